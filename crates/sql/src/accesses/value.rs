//! Values, normalised so that two of them are equal exactly if PostgreSQL calls them equal.
//!
//! Only types for which that can be said by looking at the bytes are here: integers, exact decimals, text under
//! deterministic collations, text without trailing blanks, truth values, UUIDs, bytes, dates and timestamps in ISO
//! form. Floating point, JSON, arrays, ranges, intervals, network addresses and all users' types have values that are
//! equal and look different, or the other way round; of them nothing is known.

mod form;

use std::fmt;
use std::sync::Arc;

use crate::calendar;

pub(crate) use form::{Form, number};

/// A value of a column.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Value {
    /// NULL: the column has no value.
    Null,
    /// boolean.
    Bool(bool),
    /// smallint, integer and bigint.
    Int(i64),
    /// numeric.
    Decimal(Decimal),
    /// text and varchar under a deterministic collation; char(n) without its trailing blanks.
    Text(Arc<str>),
    /// bytea.
    Bytes(Arc<[u8]>),
    /// uuid.
    Uuid([u8; 16]),
    /// date, as days since 1970-01-01.
    Date(i32),
    /// timestamp and timestamptz, as microseconds since 1970-01-01 (for the latter in UTC).
    Timestamp(i64),
    /// A value that the column's sequence is about to give, or that is drawn at random: it differs from every other value
    /// that comes so.
    Fresh,
}

impl Value {
    /// Whether no row can have both in one column.
    pub fn differs_from(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Fresh, Self::Fresh | Self::Null) | (Self::Null, Self::Fresh) => true,
            (Self::Fresh, _) | (_, Self::Fresh) => false,
            (Self::Null, _) | (_, Self::Null) => self != other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other) && self != other,
        }
    }

    /// A date or a timestamp in ISO form; `None` for other values, and for times that ISO has no four digits for.
    pub(crate) fn calendar(&self) -> Option<String> {
        match self {
            Self::Date(days) => calendar::date_text(*days),
            Self::Timestamp(micros) => calendar::timestamp_text(*micros),
            _ => None,
        }
    }
}

/// An exact decimal number: `mantissa * 10 ^ exponent`, the mantissa not divisible by ten unless it is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Decimal {
    mantissa: i64,
    exponent: i16,
}

impl Decimal {
    /// The number `mantissa * 10 ^ exponent`.
    pub fn new(mut mantissa: i64, mut exponent: i16) -> Self {
        if mantissa == 0 {
            return Self { mantissa, exponent: 0 };
        }
        while mantissa % 10 == 0 {
            mantissa /= 10;
            exponent = exponent.saturating_add(1);
        }
        Self { mantissa, exponent }
    }

    /// Mantissa and exponent.
    pub(crate) fn parts(self) -> (i64, i16) {
        (self.mantissa, self.exponent)
    }

    /// Digits after the decimal point.
    pub(crate) fn scale(self) -> u16 {
        u16::try_from(-i32::from(self.exponent)).unwrap_or(0)
    }
}

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exponent {
            0 => write!(f, "{}", self.mantissa),
            exponent => write!(f, "{}e{exponent}", self.mantissa),
        }
    }
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("NULL"),
            Self::Bool(truth) => write!(f, "{truth}"),
            Self::Int(number) => write!(f, "{number}"),
            Self::Decimal(number) => write!(f, "{number}"),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Bytes(bytes) => {
                f.write_str("'\\x")?;
                bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
                f.write_str("'")
            }
            Self::Uuid(bytes) => write!(f, "uuid {:032x}", u128::from_be_bytes(*bytes)),
            Self::Date(days) => write!(f, "day {days}"),
            Self::Timestamp(micros) => write!(f, "instant {micros}"),
            Self::Fresh => f.write_str("fresh"),
        }
    }
}
