//! The random values of TPC-C: non-uniform numbers, names, and strings of letters and digits.

use sim::dice::Dice;

/// Parts of last names, by digit.
const SYLLABLES: [&str; 10] =
    ["BAR", "OUGHT", "ABLE", "PRI", "PRES", "ESE", "ANTI", "CALLY", "ATION", "EING"];
/// The constants C of the specification. The one of last names differs between loading and running by 66, which is
/// within what it allows.
const C_CUSTOMER: u64 = 259;
const C_ITEM: u64 = 7911;
const C_NAME_LOAD: u64 = 157;
const C_NAME_RUN: u64 = 223;
const LETTERS: &[u8; 62] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

/// From `low` to `high`, both included.
pub(super) fn between(dice: &mut Dice, low: i32, high: i32) -> i32 {
    let width = u64::from(high.abs_diff(low)) + 1;
    low + i32::try_from(dice.below(width)).unwrap_or_default()
}

/// Non-uniform from `low` to `high`: (((0..=a | low..=high) + c) mod width) + low.
fn non_uniform(dice: &mut Dice, a: u64, c: u64, low: i32, high: i32) -> i32 {
    let first = dice.below(a + 1);
    let second = u64::from(between(dice, low, high).unsigned_abs());
    let width = u64::from(high.abs_diff(low)) + 1;
    low + i32::try_from(((first | second) + c) % width).unwrap_or_default()
}

/// A customer of a district.
pub(super) fn customer(dice: &mut Dice, customers: i32) -> i32 {
    non_uniform(dice, 1023, C_CUSTOMER, 1, customers)
}

/// An item.
pub(super) fn item(dice: &mut Dice, items: i32) -> i32 {
    non_uniform(dice, 8191, C_ITEM, 1, items)
}

/// A last name, as a customer at a terminal has it.
pub(super) fn name_to_ask(dice: &mut Dice, names: i32) -> String {
    last_name(non_uniform(dice, 255, C_NAME_RUN, 0, names - 1))
}

/// A last name for one of the customers beyond the first thousand of a district.
pub(super) fn name_to_load(dice: &mut Dice, names: i32) -> String {
    last_name(non_uniform(dice, 255, C_NAME_LOAD, 0, names - 1))
}

/// The last name of a number below 1,000.
pub(super) fn last_name(number: i32) -> String {
    let digit = |unit: i32| SYLLABLES[usize::try_from(number / unit % 10).unwrap_or_default()];
    [digit(100), digit(10), digit(1)].concat()
}

/// Letters and digits.
pub(super) fn letters(dice: &mut Dice, least: i32, most: i32) -> String {
    let length = between(dice, least, most);
    (0..length).map(|_| char::from(*dice.pick(LETTERS))).collect()
}

/// Digits.
pub(super) fn digits(dice: &mut Dice, length: i32) -> String {
    (0..length).map(|_| char::from(b'0' + u8::try_from(dice.below(10)).unwrap_or_default())).collect()
}

/// Data of 26 to 50 characters, of which one in ten has ORIGINAL somewhere.
pub(super) fn original(dice: &mut Dice) -> String {
    const MARK: &str = "ORIGINAL";
    let mut data = letters(dice, 26, 50);
    if dice.percent(10) {
        let at = dice.index(data.len() - MARK.len());
        data.replace_range(at..at + MARK.len(), MARK);
    }
    data
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_syllables() {
        assert_eq!(last_name(0), "BARBARBAR");
        assert_eq!(last_name(371), "PRICALLYOUGHT");
    }

    #[test]
    fn what_is_non_uniform_stays_within_and_favours_some() {
        let mut dice = Dice::new(1);
        let mut seen = vec![0_u32; 3001];
        for _ in 0..300_000 {
            seen[usize::try_from(customer(&mut dice, 3000)).unwrap()] += 1;
        }
        assert_eq!(seen[0], 0);
        // Uniform would be 100 each; the most frequent come several times as often as the mean.
        assert!(seen.iter().max().unwrap() > &300, "{:?}", seen.iter().max());
        assert!(seen[1..].iter().all(|count| *count < 10_000));
    }
}
