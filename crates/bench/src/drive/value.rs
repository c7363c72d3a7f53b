//! Values on their way to a server and back, where the client library has no type for them.
//!
//! Amounts of money are counted in their smallest unit, so that a workload's sums are exact and its invariants can be
//! checked to the last cent. What is sent as text is read by the server as whatever type the statement wants.

use std::error::Error;
use std::fmt;

use bytes::{BufMut, BytesMut};
use tokio_postgres::types::{Format, FromSql, IsNull, ToSql, Type, to_sql_checked};

/// A parameter of any type, in the words that an SQL literal of it would have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl ToSql for Text {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

/// A `numeric` with at most `SCALE` digits behind the point, as a count of its last digit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Fixed<const SCALE: u32>(pub(crate) i64);

/// Money.
pub(crate) type Cents = Fixed<2>;
/// Taxes and discounts.
pub(crate) type Rate = Fixed<4>;

/// So many cents.
pub(crate) const fn cents(count: i64) -> Cents {
    Fixed(count)
}

/// So many hundredths of a percent.
pub(crate) const fn rate(count: i64) -> Rate {
    Fixed(count)
}

impl<const SCALE: u32> fmt::Display for Fixed<SCALE> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, sign) = (10_u64.pow(SCALE), if self.0 < 0 { "-" } else { "" });
        let size = self.0.unsigned_abs();
        write!(f, "{sign}{}.{:0width$}", size / unit, size % unit, width = SCALE as usize)
    }
}

impl<const SCALE: u32> ToSql for Fixed<SCALE> {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        out.put_slice(self.to_string().as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }

    fn encode_format(&self, _: &Type) -> Format {
        Format::Text
    }

    to_sql_checked!();
}

impl<'a, const SCALE: u32> FromSql<'a> for Fixed<SCALE> {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        fixed(raw, SCALE).map(Self).ok_or_else(|| "not a number with so few digits".into())
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::NUMERIC
    }
}

/// Reads the binary form of a `numeric`: digits to the base of 10,000, the weight of the first one, and a sign.
fn fixed(raw: &[u8], scale: u32) -> Option<i64> {
    let word = |at: usize| Some(i16::from_be_bytes(raw.get(at * 2..at * 2 + 2)?.try_into().ok()?));
    let (digits, weight, sign) = (word(0)?, i32::from(word(1)?), word(2)?);
    let mut sum = 0_i128;
    for place in 0..usize::try_from(digits).ok()? {
        let digit = i128::from(word(place + 4)?);
        // The digit counts 10,000 to this power, in units of 10 to the power of -scale.
        let power = (weight - i32::try_from(place).ok()?) * 4 + i32::try_from(scale).ok()?;
        let unit = 10_i128.checked_pow(power.unsigned_abs())?;
        let part = if power >= 0 {
            digit.checked_mul(unit)?
        } else {
            (digit % unit == 0).then_some(digit / unit)?
        };
        sum = sum.checked_add(part)?;
    }
    let value = match sign {
        0 => sum,
        0x4000 => -sum,
        _ => return None,
    };
    i64::try_from(value).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(words: &[i16]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn money_is_written_exactly() {
        assert_eq!(Fixed::<2>(-1_005).to_string(), "-10.05");
        assert_eq!(Fixed::<4>(825).to_string(), "0.0825");
        assert_eq!(Fixed::<2>(30_000_000).to_string(), "300000.00");
    }

    #[test]
    fn money_is_read_exactly() {
        // 300000.00, -10.05, 0.0825, 0
        assert_eq!(fixed(&raw(&[1, 1, 0, 2, 30]), 2), Some(30_000_000));
        assert_eq!(fixed(&raw(&[2, 0, 0x4000, 2, 10, 500]), 2), Some(-1_005));
        assert_eq!(fixed(&raw(&[1, -1, 0, 4, 825]), 4), Some(825));
        assert_eq!(fixed(&raw(&[0, 0, 0, 0]), 2), Some(0));
        // 0.0825 has more digits than two; NaN is no number; the end is missing.
        assert_eq!(fixed(&raw(&[1, -1, 0, 4, 825]), 2), None);
        assert_eq!(fixed(&raw(&[0, 0, -0x4000, 0]), 2), None);
        assert_eq!(fixed(&raw(&[2, 0, 0, 2, 10]), 2), None);
    }
}
