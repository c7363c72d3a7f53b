//! What TPC-W draws: names made of syllables, non-uniform numbers, strings and dates.

use std::time::{SystemTime, UNIX_EPOCH};

use sim::dice::Dice;

use crate::drive::Text;

/// A syllable for each decimal digit.
const SYLLABLES: [&str; 10] = ["BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"];
const LETTERS: &[u8; 52] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
/// The least numbers of customers, with the constant A for one of them.
const A_CUSTOMERS: [(i32, u64); 6] = [
    (0, 1_023),
    (10_000, 4_095),
    (40_000, 16_383),
    (160_000, 65_535),
    (640_000, 262_143),
    (2_560_000, 1_048_575),
];
/// The same for what is searched for, by items.
const A_ITEMS: [(i32, u64); 5] =
    [(0, 63), (10_000, 511), (100_000, 4_095), (1_000_000, 32_767), (10_000_000, 524_287)];
/// The subjects of books.
pub(super) const SUBJECTS: [&str; 24] = [
    "ARTS",
    "BIOGRAPHIES",
    "BUSINESS",
    "CHILDREN",
    "COMPUTERS",
    "COOKING",
    "HEALTH",
    "HISTORY",
    "HOME",
    "HUMOR",
    "LITERATURE",
    "MYSTERY",
    "NON-FICTION",
    "PARENTING",
    "POLITICS",
    "REFERENCE",
    "RELIGION",
    "ROMANCE",
    "SELF-HELP",
    "SCIENCE-NATURE",
    "SCIENCE-FICTION",
    "SPORTS",
    "YOUTH",
    "TRAVEL",
];
/// How orders are sent.
pub(super) const SHIPPING: [&str; 6] = ["AIR", "UPS", "FEDEX", "SHIP", "COURIER", "MAIL"];
/// Credit cards.
pub(super) const CARDS: [&str; 5] = ["VISA", "MASTERCARD", "DISCOVER", "AMEX", "DINERS"];

/// From `low` to `high`, both included.
pub(super) fn between(dice: &mut Dice, low: i32, high: i32) -> i32 {
    low + i32::try_from(dice.below(u64::from(high.abs_diff(low)) + 1)).unwrap_or_default()
}

/// ((0..=a | low..=high) mod width) + low.
fn non_uniform(dice: &mut Dice, a: u64, low: i32, high: i32) -> i32 {
    let first = dice.below(a + 1);
    let second = u64::from(between(dice, low, high).unsigned_abs());
    let width = u64::from(high.abs_diff(low)) + 1;
    low + i32::try_from((first | second) % width).unwrap_or_default()
}

fn a_of(table: &[(i32, u64)], size: i32) -> u64 {
    table.iter().rev().find(|(least, _)| size >= *least).map_or(table[0].1, |(_, a)| *a)
}

/// A customer.
pub(super) fn customer(dice: &mut Dice, customers: i32) -> i32 {
    non_uniform(dice, a_of(&A_CUSTOMERS, customers), 1, customers)
}

/// What is searched for: the beginning of names of authors (a tenth of the items) or of titles (a fifth).
pub(super) fn searched(dice: &mut Dice, items: i32, part: i32) -> String {
    syllables(non_uniform(dice, a_of(&A_ITEMS, items), 0, items / part), 7)
}

/// A number as syllables, of at least so many digits.
pub(super) fn syllables(number: i32, digits: usize) -> String {
    let digits = format!("{number:0digits$}");
    digits.bytes().map(|digit| SYLLABLES[usize::from(digit - b'0')]).collect()
}

/// A customer's password.
pub(super) fn password(customer: i32) -> String {
    syllables(customer, 0).to_lowercase()
}

/// Letters.
pub(super) fn letters(dice: &mut Dice, least: i32, most: i32) -> String {
    let length = between(dice, least, most);
    (0..length).map(|_| char::from(*dice.pick(LETTERS))).collect()
}

/// Digits.
pub(super) fn digits(dice: &mut Dice, length: i32) -> String {
    (0..length).map(|_| char::from(b'0' + u8::try_from(dice.below(10)).unwrap_or_default())).collect()
}

/// The name of a country; the names of the specification tell nothing more.
pub(super) fn country(id: i32) -> String {
    syllables(id, 3)
}

/// A day of a year, which all years have.
pub(super) fn day_of(dice: &mut Dice, year: i32) -> String {
    format!("{year}-{:02}-{:02}", between(dice, 1, 12), between(dice, 1, 28))
}

/// A day that is so many days away from now.
pub(super) fn day_ahead(days: i32) -> Text {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let today = i64::try_from(seconds / 86_400).unwrap_or_default();
    Text(date(today + i64::from(days)))
}

/// A day counted from 1970-01-01, as a date (the civil calendar, in eras of 400 years that begin in March).
pub(super) fn date(day: i64) -> String {
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
    fn numbers_are_spoken_and_days_are_dates() {
        assert_eq!(
            (syllables(0, 0), syllables(1_234_567_890, 0)),
            ("BA".into(), "OGALRIRESEATULINNGBA".into())
        );
        assert_eq!(syllables(42, 7), "BABABABABAREAL");
        assert_eq!(
            (date(0), date(11_016), date(20_513)),
            ("1970-01-01".into(), "2000-02-29".into(), "2026-03-01".into())
        );
    }

    #[test]
    fn constants_follow_the_size() {
        assert_eq!((a_of(&A_CUSTOMERS, 2_880), a_of(&A_CUSTOMERS, 86_400)), (1_023, 16_383));
        assert_eq!((a_of(&A_ITEMS, 1_000), a_of(&A_ITEMS, 10_000)), (63, 511));
        let mut dice = Dice::new(2);
        assert!((0..10_000).all(|_| (1..=2_880).contains(&customer(&mut dice, 2_880))));
    }
}
