//! What more than one workload draws.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use sim::dice::Dice;

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

/// A day that is so many days away from now.
pub(crate) fn day_ahead(days: i32) -> Text {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let today = i64::try_from(seconds / 86_400).unwrap_or_default();
    Text(date(today + i64::from(days)))
}

/// A day counted from 1970-01-01, as a date (the civil calendar, in eras of 400 years that begin in March).
pub(crate) fn date(day: i64) -> String {
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!((date(0), date(11_016)), ("1970-01-01".into(), "2000-02-29".into()));
        assert_eq!(date(20_513), "2026-03-01");
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
