//! Whether what two statements did contradicts what was concluded about them.

use sql::Catalogue;
use sql::accesses::{
    Access, Accesses, Class, ColumnSet, Columns, Decimal, Match, Rows, Value, View, conflict,
};

use super::server::{Answer, Contents, Row};

/// Days from 1970-01-01 to 2024-01-01, in whose first days all dates lie.
const FIRST_DAY: i32 = 19_723;

/// A conclusion that is weakened on purpose, so that the check can be seen to find it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub(crate) enum Forget {
    /// Values of unique keys.
    Claims,
    /// All alternatives of a write but the first: mostly the new rows.
    After,
    /// The reads.
    Reads,
    /// Every other written column.
    Columns,
    /// The comparison that finds a row: its constant is replaced by another.
    Values,
}

impl Forget {
    /// The accesses with less in them.
    pub(super) fn applied(self, mut accesses: Accesses) -> Accesses {
        match self {
            Self::Claims => accesses.claims.clear(),
            Self::Reads => accesses.reads.clear(),
            Self::After => {
                for write in &mut accesses.writes {
                    if let Rows::AnyOf(matches) = &write.rows {
                        write.rows = Rows::AnyOf(matches.iter().take(1).cloned().collect());
                    }
                }
            }
            Self::Columns => {
                for write in &mut accesses.writes {
                    if let Columns::Some(set) = write.columns {
                        let kept: ColumnSet = set.positions().step_by(2).collect();
                        write.columns = Columns::Some(kept);
                    }
                }
            }
            Self::Values => {
                for access in accesses.writes.iter_mut().chain(&mut accesses.reads) {
                    if let Rows::AnyOf(matches) = &access.rows {
                        access.rows = Rows::AnyOf(matches.iter().map(shifted).collect());
                    }
                }
            }
        }
        accesses
    }
}

fn shifted(one: &Match) -> Match {
    let shift = |value: &Value| match value {
        Value::Int(number) => Value::Int(number + 1),
        other => other.clone(),
    };
    let mut equalities = one.equalities().to_vec();
    for equality in &mut equalities {
        equality.value = shift(&equality.value);
    }
    Match::new(equalities)
}

/// The results of two statements in both orders.
pub(super) struct Orders<'a> {
    /// Answers of the first and of the second statement when each came first.
    pub(super) first: [&'a Answer; 2],
    /// When each came second.
    pub(super) second: [&'a Answer; 2],
    /// The contents after the first and then the second, and the other way round.
    pub(super) ends: [&'a Contents; 2],
}

impl Orders<'_> {
    /// The difference between the orders. Which of several errors comes first depends on the plan, so it does not
    /// count.
    pub(super) fn difference(&self) -> Option<&'static str> {
        let differ = |one: &Answer, other: &Answer| match (one, other) {
            (Answer::Error(_), Answer::Error(_)) => false,
            _ => one != other,
        };
        if differ(self.first[0], self.second[0]) {
            Some("the first statement's answer")
        } else if differ(self.first[1], self.second[1]) {
            Some("the second statement's answer")
        } else if self.ends[0] != self.ends[1] {
            Some("the contents in the end")
        } else {
            None
        }
    }
}

/// The class of a conflict in either view, if there is one: that of rows, that of columns.
pub(super) fn classes(left: &Accesses, right: &Accesses, catalogue: &Catalogue) -> [Option<Class>; 2] {
    [View::Rows, View::Columns].map(|view| conflict(left, right, catalogue, view).map(|found| found.class))
}

/// A row that a statement changed outside its writes, if there is one.
pub(super) fn outside(
    accesses: &Accesses,
    catalogue: &Catalogue,
    before: &Contents,
    after: &Contents,
) -> Option<String> {
    if accesses.unbounded.is_some() {
        return None;
    }
    for table in catalogue.tables() {
        let (gone, come) = (less(before, after, table.id.number), less(after, before, table.id.number));
        let writes: Vec<&Access> = accesses.writes.iter().filter(|write| write.table == table.id).collect();
        // A row that changed has some row that came in its stead.
        for (images, others, made) in [(&gone, &come, false), (&come, &gone, true)] {
            for &image in images {
                let touching: Vec<&&Access> =
                    writes.iter().filter(|write| (made || !write.new) && is_in(&write.rows, image)).collect();
                let whole = touching.iter().any(|write| write.columns == Columns::All);
                let becomes = |other: &Row| {
                    let mut changed = (0..image.len()).filter(|&at| image[at] != other[at]);
                    changed.all(|at| touching.iter().any(|write| writes_column(write, at)))
                };
                if !whole && !others.iter().any(|other| becomes(other)) {
                    let word = if made { "made" } else { "changed or removed" };
                    return Some(format!(
                        "the row {image:?} of {}, which it {word}, is outside its writes",
                        table.name
                    ));
                }
            }
        }
        let counts_differ = gone.len() != come.len();
        if counts_differ && !writes.iter().any(|write| write.columns == Columns::All) {
            return Some(format!("rows of {} came or went, and only columns are written", table.name));
        }
    }
    None
}

fn writes_column(write: &Access, at: usize) -> bool {
    match write.columns {
        Columns::All => true,
        Columns::Some(set) => set.contains(at),
    }
}

/// The rows of a table in one, without those in the other.
fn less<'a>(one: &'a Contents, other: &Contents, table: u32) -> Vec<&'a Row> {
    let mut rest: Vec<&Row> =
        other.iter().filter(|(number, _)| *number == table).map(|(_, row)| row).collect();
    let mut left = Vec::new();
    for (_, row) in one.iter().filter(|(number, _)| *number == table) {
        match rest.iter().position(|other| *other == row) {
            Some(at) => _ = rest.swap_remove(at),
            None => left.push(row),
        }
    }
    left
}

fn is_in(rows: &Rows, row: &Row) -> bool {
    let is_true = |one: &Match| {
        one.equalities().iter().all(|equality| has(row[equality.column].as_deref(), &equality.value))
    };
    match rows {
        Rows::All => true,
        Rows::AnyOf(matches) => matches.iter().any(is_true),
    }
}

/// Whether a cell's text stands for a value.
fn has(cell: Option<&str>, value: &Value) -> bool {
    let Some(text) = cell else { return *value == Value::Null };
    match value {
        Value::Bool(truth) => text == if *truth { "true" } else { "false" },
        Value::Int(number) => text.parse() == Ok(*number),
        Value::Decimal(number) => decimal(text) == Some(*number),
        Value::Text(other) => text == &**other,
        Value::Date(day) => text
            .strip_prefix("2024-01-")
            .and_then(|day| day.parse::<i32>().ok())
            .is_some_and(|at| FIRST_DAY + at - 1 == *day),
        _ => false,
    }
}

fn decimal(text: &str) -> Option<Decimal> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mantissa = format!("{whole}{fraction}").parse().ok()?;
    Some(Decimal::new(mantissa, -i16::try_from(fraction.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_compared_as_values() {
        let cases = [
            (Some("2.50"), Value::Decimal(Decimal::new(25, -1)), true),
            (Some("2"), Value::Decimal(Decimal::new(25, -1)), false),
            (Some("2"), Value::Int(2), true),
            (Some("a"), Value::Text("a ".into()), false),
            (Some("2024-01-02"), Value::Date(FIRST_DAY + 1), true),
            (None, Value::Null, true),
            (None, Value::Int(0), false),
        ];
        for (cell, value, expected) in cases {
            assert_eq!(has(cell, &value), expected, "{cell:?} {value}");
        }
    }
}
