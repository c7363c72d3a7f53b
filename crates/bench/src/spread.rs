//! The median of some rounds, with the least and the most, as reports show them.

use std::fmt;

/// The middle one of several values, the least and the most.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    /// Of any values; nothing of none.
    pub(crate) fn of(values: impl Iterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 {
            values[middle]
        } else {
            f64::midpoint(values[middle - 1], values[middle])
        };
        Some(Self { median, least, most })
    }

    /// How far the values lie apart, for one.
    pub(crate) fn width(self) -> f64 {
        (self.most - self.least) / self.median
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let places = f.precision().unwrap_or(2);
        let Self { median, least, most } = self;
        write!(f, "{median:.places$} ({least:.places$}-{most:.places$})")
    }
}

/// A field of a table, with so many decimals; a dash when there is nothing to say.
pub(crate) struct Cell(pub(crate) Option<Spread>, pub(crate) usize);

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(spread) => write!(f, "{spread:.*}", self.1),
            None => f.write_str("-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_of_several() {
        let of =
            |values: &[f64]| Spread::of(values.iter().copied()).map(|spread| (spread.median, spread.width()));
        assert_eq!(of(&[3.0, 1.0, 2.0]), Some((2.0, 1.0)));
        assert_eq!(of(&[4.0, 1.0, 2.0, 3.0]), Some((2.5, 1.2)));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn a_field_shows_the_median_and_both_ends() {
        let spread = Spread::of([3.0, 1.0, 8.0].into_iter());
        assert_eq!(Cell(spread, 1).to_string(), "3.0 (1.0-8.0)");
        assert_eq!(Cell(None, 1).to_string(), "-");
    }
}
