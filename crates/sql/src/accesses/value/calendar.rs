//! Dates and times in ISO form, which reads the same under every DateStyle and time zone.

/// Days from 1970-01-01 to 2000-01-01, from which the server counts.
const EPOCH_DAYS: i32 = 10_957;

const DAY_MICROS: i64 = 86_400_000_000;

/// A date `YYYY-MM-DD`, as days since 1970-01-01.
pub(super) fn date(text: &str) -> Option<i32> {
    let bytes = text.as_bytes();
    if bytes.len() != 10 || bytes[4] != b'-' || bytes[7] != b'-' {
        return None;
    }
    let (year, month, day) = (digits(&bytes[..4])?, digits(&bytes[5..7])?, digits(&bytes[8..])?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let length = match month {
        2 if leap => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    };
    if year == 0 || !(1..=12).contains(&month) || !(1..=length).contains(&day) {
        return None;
    }
    // Years begin in March here, so that the leap day is the last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year / 4 - year / 100 + year / 400 + (month * 153 + 2) / 5 + day - 1;
    Some(days - 719_468)
}

/// The date of a day that [`date`] gives; `None` outside of the years that have four digits.
pub(super) fn date_text(days: i32) -> Option<String> {
    // The first of January of a year is at most one day off from what the mean length of a year says.
    let guess = i32::try_from(1970 + i64::from(days) * 400 / 146_097).ok()?;
    let first = |year: i32| date(&format!("{year:04}-01-01"));
    let year = (guess - 1..=guess + 1).rev().find(|year| first(*year).is_some_and(|first| first <= days))?;
    let start = |month: &i32| date(&format!("{year:04}-{month:02}-01")).filter(|start| *start <= days);
    let month = (1..=12).rev().find(|month| start(month).is_some())?;
    let day = days - start(&month)? + 1;
    date(&format!("{year:04}-{month:02}-{day:02}")).map(|_| format!("{year:04}-{month:02}-{day:02}"))
}

/// The same for a time that [`timestamp`] gives.
pub(super) fn timestamp_text(micros: i64) -> Option<String> {
    let date = date_text(i32::try_from(micros.div_euclid(DAY_MICROS)).ok()?)?;
    let time = micros.rem_euclid(DAY_MICROS);
    let (seconds, fraction) = (time / 1_000_000, time % 1_000_000);
    let (hours, minutes) = (seconds / 3_600, seconds / 60 % 60);
    let text = format!("{date} {hours:02}:{minutes:02}:{:02}", seconds % 60);
    let fraction = format!(".{fraction:06}");
    Some(format!("{text}{}", fraction.trim_end_matches('0').trim_end_matches('.')))
}

/// A timestamp `YYYY-MM-DD[ HH:MM:SS[.ffffff]]`, as microseconds since 1970-01-01.
pub(super) fn timestamp(text: &str) -> Option<i64> {
    let days = i64::from(date(text.get(..10)?)?);
    let time = match text.as_bytes().get(10) {
        None => 0,
        Some(b' ' | b'T') => time(text.get(11..)?)?,
        Some(_) => return None,
    };
    Some(days * DAY_MICROS + time)
}

/// A timestamp with its offset from UTC: `+HH`, `+HH:MM` or `Z` at the end.
pub(super) fn timestamp_with_offset(text: &str) -> Option<i64> {
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

/// A time `HH:MM:SS[.ffffff]`, as microseconds.
fn time(text: &str) -> Option<i64> {
    let bytes = text.as_bytes();
    if bytes.len() < 8 || bytes[2] != b':' || bytes[5] != b':' {
        return None;
    }
    let (hour, minute, second) = (digits(&bytes[..2])?, digits(&bytes[3..5])?, digits(&bytes[6..8])?);
    if hour > 23 || minute > 59 || second > 59 {
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
    Some(i64::from(hour * 3600 + minute * 60 + second) * 1_000_000 + i64::from(micros))
}

fn digits(bytes: &[u8]) -> Option<i32> {
    if !bytes.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(bytes).ok()?.parse().ok()
}

/// The server's binary form of a date.
pub(super) fn from_binary_date(bytes: &[u8]) -> Option<i32> {
    i32::from_be_bytes(bytes.try_into().ok()?).checked_add(EPOCH_DAYS)
}

/// The server's binary form of a timestamp.
pub(super) fn from_binary_timestamp(bytes: &[u8]) -> Option<i64> {
    i64::from_be_bytes(bytes.try_into().ok()?).checked_add(i64::from(EPOCH_DAYS) * DAY_MICROS)
}
