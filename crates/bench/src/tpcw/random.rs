//! The random values of TPC-W: names made of syllables, non-uniform numbers and digits.

use sim::dice::Dice;

/// A syllable for each decimal digit.
const SYLLABLES: [&str; 10] = ["BA", "OG", "AL", "RI", "RE", "SE", "AT", "UL", "IN", "NG"];
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

/// A search term: the beginning of names of authors (a tenth of the items) or of titles (a fifth).
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_spoken() {
        assert_eq!(
            (syllables(0, 0), syllables(1_234_567_890, 0)),
            ("BA".into(), "OGALRIRESEATULINNGBA".into())
        );
        assert_eq!(syllables(42, 7), "BABABABABAREAL");
    }

    #[test]
    fn constants_follow_the_size() {
        assert_eq!((a_of(&A_CUSTOMERS, 2_880), a_of(&A_CUSTOMERS, 86_400)), (1_023, 16_383));
        assert_eq!((a_of(&A_ITEMS, 1_000), a_of(&A_ITEMS, 10_000)), (63, 511));
        let mut dice = Dice::new(2);
        assert!((0..10_000).all(|_| (1..=2_880).contains(&customer(&mut dice, 2_880))));
    }
}
