//! Times as people read them, in UTC.

use time::OffsetDateTime;

/// Writes a time in UTC as `2026-11-24 09:05:00 UTC`.
pub(crate) fn shown(time: OffsetDateTime) -> String {
    let (hour, minute, second) = time.to_hms();
    format!("{} {hour:02}:{minute:02}:{second:02} UTC", time.date())
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
            (1_798_761_599, "2026-12-31 23:59:59 UTC"),
            (4_107_542_400, "2100-03-01 00:00:00 UTC"),
        ] {
            assert_eq!(shown(OffsetDateTime::from_unix_timestamp(seconds).unwrap()), text);
        }
    }
}
