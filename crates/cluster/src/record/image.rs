//! Row images: the bytes that PostgreSQL's `record_send` gives for one row.
//!
//! A number of columns, then for each its type and its value with a length in front, all big endian. The bytes were
//! written by a server, but they come through a log file and a network: so they are checked to the end before the first
//! column is handed out, and no content makes the reader panic.

use std::fmt;

/// PostgreSQL's own limit is 1600 columns; a result row may have a few more.
const COLUMNS_LIMIT: u32 = 1664;

/// A row image whose shape was checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Image<'a> {
    width: usize,
    /// The bytes after the number of columns.
    columns: &'a [u8],
}

/// One column of an image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Column<'a> {
    /// The type as the sending server numbers it; user types differ between replicas.
    pub type_oid: u32,
    /// The value in its binary form; None is NULL.
    pub value: Option<&'a [u8]>,
}

/// Why bytes are not a row image.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ImageError {
    /// They end inside a column.
    Truncated {
        /// The column, from 0.
        column: usize,
    },
    /// A number of columns that no table has.
    BadWidth {
        /// The number.
        width: i32,
    },
    /// A length below -1.
    BadLength {
        /// The column, from 0.
        column: usize,
    },
    /// Bytes after the last column.
    TrailingBytes {
        /// Their number.
        extra_bytes: usize,
    },
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { column } => write!(f, "row image ends inside column {column}"),
            Self::BadWidth { width } => write!(f, "row image names {width} columns"),
            Self::BadLength { column } => write!(f, "row image has a bad length in column {column}"),
            Self::TrailingBytes { extra_bytes } => {
                write!(f, "row image has {extra_bytes} bytes after its last column")
            }
        }
    }
}

impl std::error::Error for ImageError {}

impl<'a> Image<'a> {
    /// Checks the bytes to their end.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ImageError> {
        let (width, columns) = take_i32(bytes).ok_or(ImageError::Truncated { column: 0 })?;
        let count = u32::try_from(width)
            .ok()
            .filter(|&count| count <= COLUMNS_LIMIT)
            .ok_or(ImageError::BadWidth { width })?;
        let mut rest = columns;
        for column in 0..count as usize {
            rest = take_column(rest, column)?.1;
        }
        if !rest.is_empty() {
            return Err(ImageError::TrailingBytes { extra_bytes: rest.len() });
        }
        Ok(Self { width: count as usize, columns })
    }

    /// The number of its columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// The columns with their types.
    pub fn columns(&self) -> Columns<'a> {
        Columns { rest: self.columns }
    }

    /// The values alone; None is NULL.
    pub fn values(&self) -> Values<'a> {
        Values(self.columns())
    }
}

/// The columns of an image, in order.
#[derive(Clone, Debug)]
pub struct Columns<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Columns<'a> {
    type Item = Column<'a>;

    fn next(&mut self) -> Option<Column<'a>> {
        if self.rest.is_empty() {
            return None;
        }
        let (column, rest) =
            take_column(self.rest, 0).expect("the shape was checked when the image was parsed");
        self.rest = rest;
        Some(column)
    }
}

/// The values of an image, in order.
#[derive(Clone, Debug)]
pub struct Values<'a>(Columns<'a>);

impl<'a> Iterator for Values<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|column| column.value)
    }
}

fn take_i32(bytes: &[u8]) -> Option<(i32, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((i32::from_be_bytes(*head), rest))
}

fn take_column(bytes: &[u8], column: usize) -> Result<(Column<'_>, &[u8]), ImageError> {
    let truncated = ImageError::Truncated { column };
    let (type_oid, rest) = take_i32(bytes).ok_or(truncated)?;
    let (len, rest) = take_i32(rest).ok_or(truncated)?;
    let type_oid = type_oid.cast_unsigned();
    if len == -1 {
        return Ok((Column { type_oid, value: None }, rest));
    }
    let len = usize::try_from(len).map_err(|_| ImageError::BadLength { column })?;
    let (value, rest) = rest.split_at_checked(len).ok_or(truncated)?;
    let value = Some(value);
    Ok((Column { type_oid, value }, rest))
}
