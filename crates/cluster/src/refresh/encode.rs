//! Values in PostgreSQL's binary forms: rows of a COPY, and arrays to be unnested.

use super::plan::RowImages;
use super::{Kind, RefreshError, RefreshTable, Values};

/// The beginning of a binary COPY: signature, no flags, no extension.
const COPY_HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";

/// Appends the beginning of a binary COPY.
pub fn copy_header(out: &mut Vec<u8>) {
    out.extend_from_slice(COPY_HEADER);
}

/// Appends the end of a binary COPY.
pub fn copy_footer(out: &mut Vec<u8>) {
    out.extend_from_slice(&(-1i16).to_be_bytes());
}

/// Appends a row of a binary COPY: the columns of the image that an insert writes.
pub fn copy_row(table: &RefreshTable, image: &[u8], out: &mut Vec<u8>) -> Result<(), RefreshError> {
    let values = table.values(image)?;
    let count = i16::try_from(table.inserted().count()).expect("an image has at most 1664 columns");
    out.extend_from_slice(&count.to_be_bytes());
    for at in table.inserted() {
        element(out, values[at].bytes);
    }
    Ok(())
}

/// The values of a statement that works on many rows: an array for each parameter.
pub fn unnested(
    table: &RefreshTable,
    kind: Kind,
    rows: &[RowImages<'_>],
) -> Result<Vec<Vec<u8>>, RefreshError> {
    let bound: Vec<Values<'_>> = rows.iter().map(|row| row.values(table, kind)).collect::<Result<_, _>>()?;
    let oids = table.elements(kind);
    Ok(oids
        .into_iter()
        .enumerate()
        .map(|(at, oid)| array(oid, bound.iter().map(|row| row[at].bytes)))
        .collect())
}

impl RefreshTable {
    /// The element types of the arrays that a statement for many rows takes.
    fn elements(&self, kind: Kind) -> Vec<u32> {
        self.bound_columns(kind).into_iter().map(|at| self.bound_oid(at)).collect()
    }
}

/// A one-dimensional array from 1 on.
fn array<'a>(element_oid: u32, values: impl ExactSizeIterator<Item = Option<&'a [u8]>> + Clone) -> Vec<u8> {
    let has_null = values.clone().any(|value| value.is_none());
    let count = i32::try_from(values.len()).expect("a step has far fewer rows");
    let mut out = Vec::new();
    for word in [1, i32::from(has_null), element_oid.cast_signed(), count, 1] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    for value in values {
        element(&mut out, value);
    }
    out
}

fn element(out: &mut Vec<u8>, value: Option<&[u8]>) {
    match value {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(bytes) => {
            let length = i32::try_from(bytes.len()).expect("it came out of a field with such a length");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}
