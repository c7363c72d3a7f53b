//! Parses answers of catalogue queries: rows of text, field by field.

use std::collections::BTreeMap;

use sql::Volatility;

use crate::backend::{BackendError, Rows};

pub(super) type Row = Vec<Option<String>>;

/// An answer does not have the fields of its query.
pub(super) const SHAPE: BackendError =
    BackendError::Protocol("a catalogue query returned unexpected columns");

/// Groups the rows by the relation OID in their first field.
pub(super) fn by_relation(rows: &Rows) -> Result<BTreeMap<&str, Vec<&Row>>, BackendError> {
    let mut relations: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows {
        relations.entry(text(row, 0)?).or_default().push(row);
    }
    Ok(relations)
}

pub(super) fn text(row: &Row, at: usize) -> Result<&str, BackendError> {
    row.get(at).and_then(Option::as_deref).ok_or(SHAPE)
}

pub(super) fn optional(row: &Row, at: usize) -> Option<&str> {
    row.get(at).and_then(Option::as_deref)
}

pub(super) fn number<T: std::str::FromStr>(row: &Row, at: usize) -> Result<T, BackendError> {
    text(row, at)?.parse().map_err(|_| SHAPE)
}

pub(super) fn boolean(row: &Row, at: usize) -> Result<bool, BackendError> {
    match text(row, at)? {
        "t" => Ok(true),
        "f" => Ok(false),
        _ => Err(SHAPE),
    }
}

pub(super) fn names(rows: &Rows) -> Result<Vec<String>, BackendError> {
    rows.iter().map(|row| text(row, 0).map(str::to_owned)).collect()
}

pub(super) fn volatility(text: &str) -> Result<Volatility, BackendError> {
    match text {
        "0" => Ok(Volatility::Immutable),
        "1" => Ok(Volatility::Stable),
        "2" => Ok(Volatility::Volatile),
        _ => Err(SHAPE),
    }
}
