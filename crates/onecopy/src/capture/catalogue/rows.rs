//! Answers of a server about its catalogues: rows of text, read field by field.

use std::collections::BTreeMap;

use sql::Volatility;

use crate::backend::{BackendError, Rows};

/// A row of an answer.
pub(super) type Row = Vec<Option<String>>;

/// An answer has other fields than its query asks for.
pub(super) const SHAPE: BackendError =
    BackendError::Protocol("an answer about the catalogues of an unexpected shape");

/// The rows that begin with the same relation's OID.
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
