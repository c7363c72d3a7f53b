//! Lengths of time and sizes, written as in postgresql.conf: a number and a unit.

use std::time::Duration;

const TIMES: [(&str, u64); 6] = [
    ("us", 1),
    ("ms", 1_000),
    ("s", 1_000_000),
    ("min", 60_000_000),
    ("h", 3_600_000_000),
    ("d", 86_400_000_000),
];
const SIZES: [(&str, u64); 5] =
    [("B", 1), ("kB", 1 << 10), ("MB", 1 << 20), ("GB", 1 << 30), ("TB", 1 << 40)];

/// What is wrong, and what to write instead.
pub(super) type Wrong = (String, String);

/// A length of time, such as `5s`.
pub(super) fn duration(text: &str) -> Result<Duration, Wrong> {
    measure(text, &TIMES, "a length of time", "5s").map(Duration::from_micros)
}

/// A size in bytes, such as `64MB`.
pub(super) fn size(text: &str) -> Result<u64, Wrong> {
    measure(text, &SIZES, "a size", "64MB")
}

fn measure(text: &str, units: &[(&str, u64)], what: &str, example: &str) -> Result<u64, Wrong> {
    let digits = text.trim().bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.trim().split_at(digits);
    let unit = unit.trim_start();
    let names: Vec<&str> = units.iter().map(|(name, _)| *name).collect();
    let names = names.join(", ");
    let Ok(number) = number.parse::<u64>() else {
        return Err((
            format!("\"{text}\" is not {what}"),
            format!("write it as \"{example}\"; units are {names}"),
        ));
    };
    if unit.is_empty() && number == 0 {
        return Ok(0);
    }
    if unit.is_empty() {
        let first = example.trim_start_matches(|c: char| c.is_ascii_digit());
        return Err((
            format!("{what} needs a unit"),
            format!("write \"{number}{first}\"; units are {names}"),
        ));
    }
    let Some((_, factor)) = units.iter().find(|(name, _)| *name == unit) else {
        let near = units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit));
        let help = near.map_or_else(
            || format!("units are {names}"),
            |(name, _)| format!("write \"{number}{name}\": large and small letters differ"),
        );
        return Err((format!("\"{unit}\" is no unit of {what}"), help));
    };
    number
        .checked_mul(*factor)
        .ok_or_else(|| (format!("\"{text}\" is too much"), format!("units are {names}")))
}

/// As a person would write it.
pub(super) fn show_duration(duration: Duration) -> String {
    show(u64::try_from(duration.as_micros()).unwrap_or(u64::MAX), &TIMES)
}

/// As a person would write it.
pub(super) fn show_size(bytes: u64) -> String {
    show(bytes, &SIZES)
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
        assert!(size("5mb").is_err_and(|(_, help)| help.contains("5MB")));
        assert!(duration("60").is_err_and(|(_, help)| help.contains("\"60s\"")));
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
