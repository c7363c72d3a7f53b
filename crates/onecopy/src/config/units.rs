//! Lengths of time and sizes, written as in postgresql.conf: a number and a unit.

use std::time::Duration;

use super::value_error::{Measure, ValueError};

const TIME: Measure = Measure {
    name: "a length of time",
    example: "5s",
    units: &[
        ("us", 1),
        ("ms", 1_000),
        ("s", 1_000_000),
        ("min", 60_000_000),
        ("h", 3_600_000_000),
        ("d", 86_400_000_000),
    ],
};
const SIZE: Measure = Measure {
    name: "a size",
    example: "64MB",
    units: &[("B", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)],
};

/// Parses a length of time, such as `5s`.
pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    parse(text, TIME).map(Duration::from_micros)
}

/// Parses a size in bytes, such as `64MB`.
pub(super) fn size(text: &str) -> Result<u64, ValueError> {
    parse(text, SIZE)
}

fn parse(text: &str, kind: Measure) -> Result<u64, ValueError> {
    let digits = text.trim().bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.trim().split_at(digits);
    let unit = unit.trim_start();
    let Ok(number) = number.parse::<u64>() else {
        return Err(ValueError::NoMeasure { text: text.to_owned(), kind });
    };
    if unit.is_empty() {
        return if number == 0 { Ok(0) } else { Err(ValueError::NoUnit { number, kind }) };
    }
    let Some((_, factor)) = kind.units.iter().find(|(name, _)| *name == unit) else {
        return Err(ValueError::UnknownUnit { unit: unit.to_owned(), number, kind });
    };
    number.checked_mul(*factor).ok_or_else(|| ValueError::TooMuch { text: text.to_owned(), kind })
}

/// Writes a length of time with the largest fitting unit.
pub(super) fn show_duration(duration: Duration) -> String {
    show(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), TIME.units)
}

/// Writes a size with the largest fitting unit.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, SIZE.units)
}

fn show(number: u64, units: &[(&str, u64)]) -> String {
    let fits = units.iter().rev().find(|(_, factor)| number > 0 && number.is_multiple_of(*factor));
    fits.map_or_else(|| "0".to_owned(), |(name, factor)| format!("{}{name}", number / factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_units() {
        assert_eq!(duration("5s"), Ok(Duration::from_secs(5)));
        assert_eq!(duration(" 2 min "), Ok(Duration::from_mins(2)));
        assert_eq!(duration("0"), Ok(Duration::ZERO));
        assert_eq!(size("64MB"), Ok(64 << 20));
        assert_eq!(size("16GB"), Ok(16 << 30));
        for wrong in ["5", "s", "", "-1s", "1.5s", "5 weeks", "5S", "99999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert!(size("5mb").is_err_and(|error| error.help().contains("5MB")));
        assert!(duration("60").is_err_and(|error| error.help().contains("\"60s\"")));
    }

    #[test]
    fn what_is_shown_can_be_read() {
        for us in [0, 1, 1_500, 60_000_000, 90_000_000, 86_400_000_000] {
            let time = Duration::from_micros(us);
            assert_eq!(duration(&show_duration(time)), Ok(time));
        }
        assert_eq!(show_size(16 << 30), "16GB");
        assert_eq!(show_duration(Duration::from_mins(1)), "1min");
    }
}
