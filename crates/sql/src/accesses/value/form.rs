//! The types whose values can be compared here, and how constants and parameters become values of them.
//!
//! A constant is taken only if its meaning does not depend on a setting of the session. `None` always means "not
//! known", never an error: the server reports those.

use std::borrow::Cow;
use std::sync::Arc;

use super::{Decimal, Value};
use crate::calendar;
use crate::catalogue::Column;

/// Values longer than this are not kept.
const MAX_VALUE_BYTES: usize = 1024;

/// What a type modifier of varchar(n), char(n) and numeric(p, s) has on top.
const MODIFIER_HEADER: i32 = 4;

/// Types by the way their values are compared.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) enum Form {
    Bool,
    Int,
    Decimal,
    Text,
    /// char(n): trailing blanks do not count.
    Padded,
    Bytes,
    Uuid,
    Date,
    Timestamp,
    TimestampTz,
}

impl Form {
    /// The form of a built-in type.
    pub(crate) fn of_type(oid: u32) -> Option<Self> {
        Some(match oid {
            16 => Self::Bool,
            17 => Self::Bytes,
            20 | 21 | 23 => Self::Int,
            25 | 1043 => Self::Text,
            1042 => Self::Padded,
            1082 => Self::Date,
            1114 => Self::Timestamp,
            1184 => Self::TimestampTz,
            1700 => Self::Decimal,
            2950 => Self::Uuid,
            _ => return None,
        })
    }

    /// The form of the elements of a built-in array type.
    pub(crate) fn of_array(oid: u32) -> Option<Self> {
        Some(match oid {
            1000 => Self::Bool,
            1001 => Self::Bytes,
            1005 | 1007 | 1016 => Self::Int,
            1009 | 1015 => Self::Text,
            1014 => Self::Padded,
            1182 => Self::Date,
            1115 => Self::Timestamp,
            1185 => Self::TimestampTz,
            1231 => Self::Decimal,
            2951 => Self::Uuid,
            _ => return None,
        })
    }

    /// The form of a built-in type by the name that the parser gives it.
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        Some(match name {
            "bool" => Self::Bool,
            "bytea" => Self::Bytes,
            "int2" | "int4" | "int8" => Self::Int,
            "text" | "varchar" => Self::Text,
            "bpchar" => Self::Padded,
            "date" => Self::Date,
            "timestamp" => Self::Timestamp,
            "timestamptz" => Self::TimestampTz,
            "numeric" => Self::Decimal,
            "uuid" => Self::Uuid,
            _ => return None,
        })
    }

    /// The form of a column, if equal values of it look equal.
    pub(crate) fn of_column(column: &Column) -> Option<Self> {
        let form = Self::of_type(column.type_oid)?;
        let collated = matches!(form, Self::Text | Self::Padded);
        (!collated || column.collation_deterministic).then_some(form)
    }

    /// The value that a text is as input of this type.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        let trimmed = || text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
        match self {
            Self::Bool => truth(trimmed()).map(Value::Bool),
            Self::Int => integer(trimmed()).map(Value::Int),
            Self::Decimal => decimal(trimmed()).map(Value::Decimal),
            Self::Text => bounded(text),
            Self::Padded => bounded(text.trim_end_matches(' ')),
            Self::Bytes => hexadecimal(text.strip_prefix("\\x")?).map(|bytes| Value::Bytes(bytes.into())),
            Self::Uuid => uuid(text),
            Self::Date => calendar::date(text).map(Value::Date),
            Self::Timestamp => calendar::timestamp(text).map(Value::Timestamp),
            Self::TimestampTz => calendar::timestamp_with_offset(text).map(Value::Timestamp),
        }
    }

    /// The value that a parameter in binary form is.
    pub(crate) fn decode(self, bytes: &[u8]) -> Option<Value> {
        match self {
            Self::Bool => match bytes {
                [0] => Some(Value::Bool(false)),
                [1] => Some(Value::Bool(true)),
                _ => None,
            },
            Self::Int => match bytes.len() {
                2 => Some(Value::Int(i16::from_be_bytes(bytes.try_into().ok()?).into())),
                4 => Some(Value::Int(i32::from_be_bytes(bytes.try_into().ok()?).into())),
                8 => Some(Value::Int(i64::from_be_bytes(bytes.try_into().ok()?))),
                _ => None,
            },
            Self::Decimal => binary_decimal(bytes).map(Value::Decimal),
            Self::Text | Self::Padded => self.parse(std::str::from_utf8(bytes).ok()?),
            Self::Bytes => (bytes.len() <= MAX_VALUE_BYTES).then(|| Value::Bytes(bytes.into())),
            Self::Uuid => Some(Value::Uuid(bytes.try_into().ok()?)),
            Self::Date => calendar::from_binary_date(bytes).map(Value::Date),
            Self::Timestamp | Self::TimestampTz => {
                calendar::from_binary_timestamp(bytes).map(Value::Timestamp)
            }
        }
    }

    /// What a value of another form is when it is compared with a column of this form, or stored in it. Only where
    /// the comparison takes place in this form's own type.
    pub(crate) fn converted(self, from: Self, value: Value) -> Option<Value> {
        match (from, self, value) {
            (from, to, value) if from == to => Some(value),
            (Self::Int, Self::Decimal, Value::Int(number)) => Some(Value::Decimal(Decimal::new(number, 0))),
            // Beside text a char(n) is compared as text, which takes its own blanks away, but not those of the other side;
            // beside varchar both are compared without blanks. Here text and varchar are one form.
            (Self::Text, Self::Padded, Value::Text(text)) => {
                (!text.ends_with(' ')).then_some(Value::Text(text))
            }
            _ => None,
        }
    }

    /// What becomes of a value when it is stored in a column with a type modifier, if that is sure.
    pub(crate) fn stored(self, value: Value, type_mod: i32) -> Option<Value> {
        let value = match (self, value) {
            (Self::Padded, Value::Text(text)) if text.ends_with(' ') => {
                Value::Text(Arc::from(text.trim_end_matches(' ')))
            }
            (_, value) => value,
        };
        if type_mod < 0 {
            return Some(value);
        }
        let fits = match (self, &value) {
            (Self::Text | Self::Padded, Value::Text(text)) => {
                let limit = usize::try_from(type_mod - MODIFIER_HEADER).unwrap_or(0);
                text.chars().count() <= limit
            }
            (Self::Decimal, Value::Decimal(number)) => {
                // The scale is the lower eleven bits, signed.
                let scale = (((type_mod - MODIFIER_HEADER) & 0x7ff) ^ 0x400) - 0x400;
                i32::from(number.scale()) <= scale
            }
            (Self::Timestamp | Self::TimestampTz, Value::Timestamp(micros)) => micros % 1_000_000 == 0,
            (Self::Bool | Self::Int | Self::Bytes | Self::Uuid | Self::Date, _) | (_, Value::Fresh) => true,
            _ => false,
        };
        fits.then_some(value)
    }
}

/// A number of the statement's text as a value of a form.
pub(crate) fn number(form: Form, digits: &str, negative: bool) -> Option<Value> {
    let signed: Cow<'_, str> =
        if negative { Cow::Owned(format!("-{digits}")) } else { Cow::Borrowed(digits) };
    match form {
        Form::Int => integer(&signed).map(Value::Int),
        Form::Decimal => decimal(&signed).map(Value::Decimal),
        _ => None,
    }
}

fn bounded(text: &str) -> Option<Value> {
    (text.len() <= MAX_VALUE_BYTES).then(|| Value::Text(text.into()))
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// Digits with or without a sign, as every version of the server reads them.
fn integer(text: &str) -> Option<i64> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

fn decimal(text: &str) -> Option<Decimal> {
    let (number, exponent) = match text.find(['e', 'E']) {
        Some(at) => (&text[..at], i16::try_from(integer(&text[at + 1..])?).ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let fraction = fraction.trim_end_matches('0');
    if !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let bare = whole.strip_prefix(['-', '+']).unwrap_or(whole);
    if bare.is_empty() && fraction.is_empty() {
        // "." and "-" are no numbers; ".0" is one, but clients do not write it.
        return None;
    }
    let zero = if bare.is_empty() { "0" } else { "" };
    let mantissa = integer(&format!("{whole}{zero}{fraction}"))?;
    let places = i16::try_from(fraction.len()).ok()?;
    Some(Decimal::new(mantissa, exponent.checked_sub(places)?))
}

/// The server's binary form: counts of digits, weight of the first, sign, places to show, digits to the base 10,000.
fn binary_decimal(bytes: &[u8]) -> Option<Decimal> {
    const POSITIVE: u16 = 0;
    const NEGATIVE: u16 = 0x4000;
    let words: Vec<u16> =
        bytes.chunks(2).map(|pair| Some(u16::from_be_bytes(pair.try_into().ok()?))).collect::<Option<_>>()?;
    let [count, weight, sign, _places, digits @ ..] = words.as_slice() else { return None };
    if usize::from(*count) != digits.len() || !matches!(*sign, POSITIVE | NEGATIVE) {
        return None;
    }
    let mut mantissa = 0_i64;
    for digit in digits {
        mantissa = mantissa.checked_mul(10_000)?.checked_add(i64::from(*digit))?;
    }
    let last = i32::from(weight.cast_signed()) + 1 - i32::from(*count);
    let exponent = i16::try_from(last * 4).ok()?;
    Some(Decimal::new(if *sign == NEGATIVE { -mantissa } else { mantissa }, exponent))
}

fn hexadecimal(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    if !text.len().is_multiple_of(2) || text.len() / 2 > MAX_VALUE_BYTES {
        return None;
    }
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).ok()).collect()
}

/// The usual form only.
fn uuid(text: &str) -> Option<Value> {
    const HYPHENS: [usize; 4] = [8, 13, 18, 23];
    let bytes = text.as_bytes();
    let hyphened = bytes.len() == 36 && HYPHENS.iter().all(|&at| bytes[at] == b'-');
    if !hyphened && bytes.len() != 32 {
        return None;
    }
    let digits: String = text.chars().filter(|&c| !hyphened || c != '-').collect();
    Some(Value::Uuid(hexadecimal(&digits)?.try_into().ok()?))
}
