//! Dates and times in ISO form, which reads the same under every DateStyle and time zone.
//!
//! The crate `time` knows the calendar. The forms are checked here, since they are narrower than those of any library:
//! only a text that every setting of a session reads alike has a value.

use time::{Date, Month, OffsetDateTime, Time};

const UNIX_EPOCH_JULIAN_DAY: i32 = OffsetDateTime::UNIX_EPOCH.date().to_julian_day();

/// Days from 1970-01-01 to 2000-01-01, from which the server counts.
const EPOCH_DAYS: i32 = 10_957;

const DAY_MICROS: i64 = 86_400_000_000;

/// Years before 1 and after 9999 have other forms.
const YEARS: std::ops::RangeInclusive<i32> = 1..=9999;

/// Parses a date `YYYY-MM-DD` into days since 1970-01-01.
pub(crate) fn date(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let year = digits(&bytes[..4]).filter(|year| YEARS.contains(year))?;
    let (month, day) = (digits(&bytes[5..7])?, digits(&bytes[8..])?);
    let month = Month::try_from(u8::try_from(month).ok()?).ok()?;
    let date = Date::from_calendar_date(year, month, u8::try_from(day).ok()?).ok()?;
    Some(date.to_julian_day() - UNIX_EPOCH_JULIAN_DAY)
}

/// Writes a number of days since 1970-01-01 as a date; `None` outside of the years that have four digits.
pub(crate) fn date_text(days: i32) -> Option<String> {
    let date = Date::from_julian_day(days.checked_add(UNIX_EPOCH_JULIAN_DAY)?).ok()?;
    YEARS.contains(&date.year()).then(|| date.to_string())
}

/// Writes microseconds since 1970-01-01 as a timestamp, with as many digits of a second as it needs.
pub(crate) fn timestamp_text(micros: i64) -> Option<String> {
    let text = full_timestamp_text(micros)?;
    Some(text.trim_end_matches('0').trim_end_matches('.').to_owned())
}

/// Writes an instant in microseconds since 2000-01-01, in UTC, with all six digits of a second.
pub(crate) fn instant_text(server_micros: i64) -> Option<String> {
    full_timestamp_text(since_1970(server_micros)?).map(|text| text + "+00")
}

fn full_timestamp_text(micros: i64) -> Option<String> {
    let date = date_text(i32::try_from(micros.div_euclid(DAY_MICROS)).ok()?)?;
    let time = micros.rem_euclid(DAY_MICROS);
    let (seconds, fraction) = (time / 1_000_000, time % 1_000_000);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    Some(format!("{date} {hours:02}:{minutes:02}:{:02}.{fraction:06}", seconds % 60))
}

/// A timestamp `YYYY-MM-DD[ HH:MM:SS[.ffffff]]`, as microseconds since 1970-01-01.
pub(crate) fn timestamp(text: &str) -> Option<i64> {
    let days = i64::from(date(text.get(..10)?)?);
    let time = match text.as_bytes().get(10) {
        None => 0,
        Some(b' ' | b'T') => time(text.get(11..)?)?,
        Some(_) => return None,
    };
    Some(days * DAY_MICROS + time)
}

/// A timestamp with its offset from UTC: `+HH`, `+HH:MM` or `Z` at the end.
pub(crate) fn timestamp_with_offset(text: &str) -> Option<i64> {
    if let Some(local) = text.strip_suffix('Z') {
        return (local.len() > 10).then(|| timestamp(local))?;
    }
    let at = text.rfind(['+', '-']).filter(|&at| at > 10)?;
    let (sign, zone) = (text.as_bytes()[at], &text.as_bytes()[at + 1..]);
    let (hours, minutes) = match zone {
        [_, _] => (digits(zone)?, 0),
        [_, _, b':', _, _] => (digits(&zone[..2])?, digits(&zone[3..])?),
        _ => return None,
    };
    if hours > 14 || minutes > 59 {
        return None;
    }
    let offset = i64::from(hours * 60 + minutes) * 60_000_000;
    let local = timestamp(&text[..at])?;
    Some(if sign == b'+' { local - offset } else { local + offset })
}

/// Parses a time `HH:MM:SS[.ffffff]` into microseconds.
fn time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let micros = match bytes.get(8) {
        None => 0,
        Some(b'.') if (1..=6).contains(&(bytes.len() - 9)) => {
            let missing = u32::try_from(6 - (bytes.len() - 9)).ok()?;
            digits(&bytes[9..])? * 10_i32.pow(missing)
        }
        Some(_) => return None,
    };
    let part = |bytes: &[u8]| u8::try_from(digits(bytes)?).ok();
    let (hour, minute, second) = (part(&bytes[..2])?, part(&bytes[3..5])?, part(&bytes[6..8])?);
    let time = Time::from_hms_micro(hour, minute, second, micros.cast_unsigned()).ok()?;
    time.duration_since(Time::MIDNIGHT).whole_microseconds().try_into().ok()
}

fn digits(bytes: &[u8]) -> Option<i32> {
    if !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// Reads the server's binary form of a date.
pub(crate) fn from_binary_date(bytes: &[u8]) -> Option<i32> {
    i32::from_be_bytes(bytes.try_into().ok()?).checked_add(EPOCH_DAYS)
}

/// Reads the server's binary form of a timestamp.
pub(crate) fn from_binary_timestamp(bytes: &[u8]) -> Option<i64> {
    since_1970(i64::from_be_bytes(bytes.try_into().ok()?))
}

fn since_1970(server_micros: i64) -> Option<i64> {
    server_micros.checked_add(i64::from(EPOCH_DAYS) * DAY_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_dates_of_the_calendar_have_a_value() {
        assert_eq!(date("1970-01-01"), Some(0));
        assert_eq!(date("2000-01-01"), Some(EPOCH_DAYS));
        assert_eq!(date("0001-01-01").and_then(date_text).as_deref(), Some("0001-01-01"));
        assert_eq!(date("9999-12-31").and_then(date_text).as_deref(), Some("9999-12-31"));
        for text in [
            "0000-01-01",
            "2001-02-29",
            "1900-02-29",
            "2001-13-01",
            "2001-04-31",
            "+200-01-01",
            "infinity",
            "",
        ] {
            assert_eq!(date(text), None, "{text}");
        }
        let outside = [date("0001-01-01").unwrap() - 1, date("9999-12-31").unwrap() + 1, i32::MIN, i32::MAX];
        assert_eq!(outside.map(date_text), [const { None }; 4]);
    }

    #[test]
    fn only_times_of_a_day_have_a_value() {
        assert_eq!(timestamp("1970-01-01 00:00:01.5"), Some(1_500_000));
        assert_eq!(timestamp("1969-12-31 23:59:59.999999"), Some(-1));
        for text in
            ["24:00:00", "23:60:00", "23:59:60", "23:59:59.", "23:59:59.1234567", "3:00:00", "-1:00:00"]
        {
            assert_eq!(timestamp(&format!("2001-01-01 {text}")), None, "{text}");
        }
        for text in
            ["2001-01-01", "2001-01-01 10:00:00", "2001-01-01 10:00:00.25", "0001-01-01 00:00:00.000001"]
        {
            let written = timestamp(text).and_then(timestamp_text).unwrap();
            assert_eq!(written.strip_suffix(" 00:00:00").unwrap_or(&written), text);
        }
    }
}
