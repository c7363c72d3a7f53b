//! Days and dates, in UTC: times for people, and times that a certificate has as text.
//!
//! Years are counted from March on, so that the leap day is the last one, and in blocks of 400, in which the calendar repeats.

/// Seconds of a day.
pub(crate) const DAY_S: i64 = 86_400;
/// Days of 400 years.
const BLOCK_DAYS: i64 = 146_097;
/// Days from the first of March of the year 0 to the beginning of 1970.
const UNTIL_1970_DAYS: i64 = 719_468;

/// The days from the beginning of 1970 to a date.
pub(crate) fn days(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leap + (153 * month + 2) / 5 + day - 1 - UNTIL_1970_DAYS
}

/// A time in seconds since the beginning of 1970, for people.
pub(crate) fn shown(time_s: i64) -> String {
    let [year, month, day] = date(time_s.div_euclid(DAY_S));
    let rest = time_s.rem_euclid(DAY_S);
    let (hour, minute, second) = (rest / 3_600, rest / 60 % 60, rest % 60);
    format!("{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

/// Year, month and day of so many days after the beginning of 1970.
fn date(days: i64) -> [i64; 3] {
    let days = days + UNTIL_1970_DAYS;
    let (block, day) = (days.div_euclid(BLOCK_DAYS), days.rem_euclid(BLOCK_DAYS));
    let year = (day - day / 1_460 + day / 36_524 - day / (BLOCK_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next_year) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    [block * 400 + year + next_year, month, day]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (-1, "1969-12-31 23:59:59 UTC"),
            (951_782_399, "2000-02-28 23:59:59 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (951_868_800, "2000-03-01 00:00:00 UTC"),
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(shown(seconds), text);
        }
    }

    #[test]
    fn a_date_has_the_day_that_has_the_date() {
        for day in -200_000..200_000 {
            let [year, month, of_month] = date(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }
}
