//! Random values that more than one workload draws.

use std::time::Duration;

use sim::dice::Dice;
use time::{Duration as Days, OffsetDateTime};

use super::Text;

const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

/// A time that is exponentially distributed, cut off at `most`.
pub(crate) fn exponential(dice: &mut Dice, mean: Duration, most: Duration) -> Duration {
    // From above 0 to 1, with the 53 bits that a float has.
    let u = (dice.number() >> 11) as f64 + 1.0;
    let times = -(u / (1_u64 << 53) as f64).ln();
    mean.mul_f64(times).min(most)
}

/// Letters.
pub(crate) fn letters(dice: &mut Dice, least: u64, most: u64) -> String {
    let length = dice.between(least, most);
    (0..length).map(|_| char::from(*dice.pick(LETTERS))).collect()
}

/// The date so many days after today.
pub(crate) fn day_ahead(days: i32) -> Text {
    Text((OffsetDateTime::now_utc().date() + Days::days(days.into())).to_string())
}

/// This moment, as a server reads it.
pub(crate) fn now() -> Text {
    Text(instant(OffsetDateTime::now_utc()))
}

fn instant(at: OffsetDateTime) -> String {
    let (date, (hour, minute, second, us)) = (at.date(), at.time().as_hms_micro());
    format!("{date} {hour:02}:{minute:02}:{second:02}.{us:06}+00")
}

/// The date so many days after 1970-01-01.
pub(crate) fn date(day: i64) -> String {
    (OffsetDateTime::UNIX_EPOCH.date() + Days::days(day)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!((date(0), date(11_016)), ("1970-01-01".into(), "2000-02-29".into()));
        assert_eq!(date(20_513), "2026-03-01");
        let at = OffsetDateTime::UNIX_EPOCH + Days::milliseconds(3_725_042);
        assert_eq!(instant(at), "1970-01-01 01:02:05.042000+00");
    }

    #[test]
    fn times_have_their_mean_and_are_cut_off() {
        let (mut dice, mean, most) = (Dice::new(6), Duration::from_secs(7), Duration::from_secs(70));
        let times: Vec<Duration> = (0..100_000).map(|_| exponential(&mut dice, mean, most)).collect();
        let sum: Duration = times.iter().sum();
        assert!((sum.as_secs_f64() / 100_000.0 - 7.0).abs() < 0.1, "{sum:?}");
        assert!(times.iter().all(|time| *time <= most));
    }
}
