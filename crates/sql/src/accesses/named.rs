//! A row's key as people read it: `(id)=(7)`, as PostgreSQL has it in its errors.
//!
//! Conflicts are found by numbers that stand for keys and their values ([`super::digest`], [`super::group`]). If the
//! statement itself names a value, a search among its values finds the one with this number. A value that it does not
//! name stays hidden, so a message shows a client only values that the client has sent.

use super::value::{Decimal, Value};
use super::{Accesses, Match, Rows, digest, group};
use crate::catalogue::Table;

/// A key is told in so many bytes at most.
pub const KEY_TEXT_BYTES_MAX: usize = 240;
/// Decimals with more digits before or after the point are told by their exponent.
const DIGITS_MAX: i16 = 30;

/// The key, or what a group of rows has in common, that has this number among what an execution of a statement names of
/// the table: the names of its columns, and their values.
pub fn named(touched: &Accesses, table: &Table, number: u64) -> Option<String> {
    let accesses = touched.writes.iter().chain(&touched.reads).map(|access| (access.table, &access.rows));
    let claims = touched.claims.iter().map(|claim| (claim.table, &claim.rows));
    let locks = touched.locks.iter().map(|lock| (lock.table, &lock.rows));
    let rows = accesses.chain(claims).chain(locks).filter(|(of, _)| *of == table.id);
    let mut matches = rows.filter_map(|(_, rows)| match rows {
        Rows::AnyOf(matches) => Some(matches.iter()),
        Rows::All => None,
    });
    matches.find_map(|mut all| all.find_map(|one| named_by(one, table, number)))
}

fn named_by(one: &Match, table: &Table, number: u64) -> Option<String> {
    let is_key = |key: usize, columns: &[usize]| {
        let digest = digest::hash(one, columns).map(|hash| super::KeyDigest { table: table.id, key, hash });
        digest.is_some_and(|digest| digest.row() == number || digest.reference() == number)
    };
    let key = digest::unique_keys(table).find(|(key, columns)| is_key(*key, columns));
    let is_group = |columns: &&Vec<usize>| group::named(one, columns) == Some(number);
    let grouping = || table.groupings.iter().find(is_group).map(Vec::as_slice);
    let columns = key.map(|(_, columns)| columns).or_else(grouping)?;
    let names: Option<Vec<&str>> =
        columns.iter().map(|at| Some(table.columns.get(*at)?.name.as_str())).collect();
    let values: Option<Vec<String>> = columns.iter().map(|at| one.value(*at).map(told)).collect();
    Some(bounded(format!("({})=({})", names?.join(", "), values?.join(", "))))
}

fn bounded(mut text: String) -> String {
    const MORE: &str = "...";
    if text.len() > KEY_TEXT_BYTES_MAX {
        let end = (0..=KEY_TEXT_BYTES_MAX - MORE.len()).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push_str(MORE);
    }
    text
}

/// As the server would print it; times with a zone are told in UTC and without it.
fn told(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => if *truth { "t" } else { "f" }.to_owned(),
        Value::Text(text) => text.to_string(),
        Value::Decimal(number) => decimal(*number),
        Value::Bytes(bytes) => bytes.iter().fold("\\x".to_owned(), |text, byte| format!("{text}{byte:02x}")),
        Value::Uuid(bytes) => {
            let digits = format!("{:032x}", u128::from_be_bytes(*bytes));
            [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
        }
        Value::Date(_) | Value::Timestamp(_) => value.calendar().unwrap_or_else(|| value.to_string()),
        Value::Int(_) | Value::Fresh => value.to_string(),
    }
}

fn decimal(number: Decimal) -> String {
    let (mantissa, exponent) = number.parts();
    if !(-DIGITS_MAX..=DIGITS_MAX).contains(&exponent) {
        return number.to_string();
    }
    let places = usize::from(exponent.unsigned_abs());
    let (sign, digits) = (if mantissa < 0 { "-" } else { "" }, mantissa.unsigned_abs().to_string());
    if exponent >= 0 {
        return format!("{sign}{digits}{}", "0".repeat(places));
    }
    let digits = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = digits.split_at(digits.len() - places);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_told_as_the_server_prints_them() {
        let texts = [
            (Value::Bool(true), "t"),
            (Value::Int(-7), "-7"),
            (Value::Decimal(Decimal::new(-5, -2)), "-0.05"),
            (Value::Decimal(Decimal::new(1250, -1)), "125"),
            (Value::Decimal(Decimal::new(12, 3)), "12000"),
            (Value::Decimal(Decimal::new(1, 90)), "1e90"),
            (Value::Text("o'hara".into()), "o'hara"),
            (Value::Bytes([0xde, 0x0a].into()), "\\xde0a"),
            (Value::Uuid([0x11; 16]), "11111111-1111-1111-1111-111111111111"),
        ];
        for (value, text) in texts {
            assert_eq!(told(&value), text);
        }
        let form = super::super::value::Form::Date;
        for text in ["1970-01-01", "2024-02-29", "2000-03-01", "1999-12-31", "0001-01-01", "9999-12-31"] {
            assert_eq!(told(&form.parse(text).unwrap()), text);
        }
        let form = super::super::value::Form::Timestamp;
        for text in ["1970-01-01 00:00:00", "1969-12-31 23:59:59.5", "2026-11-22 22:05:07.000123"] {
            assert_eq!(told(&form.parse(text).unwrap()), text);
        }
    }

    #[test]
    fn long_keys_are_cut_between_letters() {
        let text = bounded("ä".repeat(KEY_TEXT_BYTES_MAX));
        assert!(text.len() <= KEY_TEXT_BYTES_MAX && text.ends_with("ä..."));
        assert_eq!(bounded("(id)=(7)".to_owned()), "(id)=(7)");
    }
}
