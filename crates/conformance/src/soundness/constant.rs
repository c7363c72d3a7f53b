//! Constants of the columns' types, and of other types that compare with them, in the text or as parameters.

use bytes::{BufMut, BytesMut};
use sim::dice::Dice;
use tokio_postgres::types::{Format, IsNull, ToSql, Type, to_sql_checked};

/// Types of columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Int,
    Bigint,
    Text,
    Varchar,
    Char,
    Numeric,
    Bool,
    Date,
}

const KINDS: [Kind; 8] =
    [Kind::Int, Kind::Bigint, Kind::Text, Kind::Varchar, Kind::Char, Kind::Numeric, Kind::Bool, Kind::Date];
const TEXTS: [&str; 5] = ["a", "b", "a ", "A", ""];
/// The first day that is drawn, from PostgreSQL's own beginning of time, 2000-01-01.
const FIRST_DAY: i32 = 8766;

impl Kind {
    pub(super) fn draw(dice: &mut Dice) -> Self {
        *dice.pick(&KINDS)
    }

    /// As a column is declared.
    pub(super) fn sql(self) -> &'static str {
        match self {
            Self::Int => "int",
            Self::Bigint => "bigint",
            Self::Text => "text",
            Self::Varchar => "varchar(3)",
            Self::Char => "char(3)",
            Self::Numeric => "numeric",
            Self::Bool => "bool",
            Self::Date => "date",
        }
    }

    /// Whether values of both can be compared.
    pub(super) fn compares_with(self, other: Self) -> bool {
        let group = |kind| match kind {
            Self::Int | Self::Bigint | Self::Numeric => 0,
            Self::Text | Self::Varchar | Self::Char => 1,
            Self::Bool => 2,
            Self::Date => 3,
        };
        group(self) == group(other)
    }

    fn oid(self) -> Type {
        match self {
            Self::Int => Type::INT4,
            Self::Bigint => Type::INT8,
            Self::Text => Type::TEXT,
            Self::Varchar => Type::VARCHAR,
            Self::Char => Type::BPCHAR,
            Self::Numeric => Type::NUMERIC,
            Self::Bool => Type::BOOL,
            Self::Date => Type::DATE,
        }
    }

    /// A value without quotes.
    pub(super) fn bare(self, dice: &mut Dice) -> String {
        match self {
            Self::Int | Self::Bigint => dice.below(5).to_string(),
            Self::Text | Self::Varchar | Self::Char => (*dice.pick(&TEXTS)).to_owned(),
            Self::Numeric => (*dice.pick(&["0", "1", "1.0", "2", "2.50", "2.5"])).to_owned(),
            Self::Bool => (*dice.pick(&["true", "false"])).to_owned(),
            Self::Date => format!("2024-01-0{}", dice.between(1, 4)),
        }
    }

    /// A constant that the column takes as it is.
    pub(super) fn plain(self, dice: &mut Dice) -> String {
        let bare = self.bare(dice);
        match self {
            Self::Int | Self::Bigint | Self::Numeric | Self::Bool => bare,
            Self::Text | Self::Varchar | Self::Char => format!("'{bare}'"),
            Self::Date => format!("DATE '{bare}'"),
        }
    }

    /// A constant that compares with the column, perhaps of another type.
    pub(super) fn written(self, dice: &mut Dice) -> String {
        let bare = self.bare(dice);
        match (self, dice.below(7)) {
            (_, 0) => format!("'{bare}'"),
            (_, 1) => format!("'{bare}'::{}", self.sql()),
            (_, 2) => format!("CAST('{bare}' AS {})", self.sql()),
            (Self::Int | Self::Bigint, 3) => format!("{bare}.0"),
            (Self::Int | Self::Bigint | Self::Numeric, 4) => format!("{bare}::bigint"),
            (Self::Int | Self::Bigint | Self::Numeric, 5) => format!("{bare}::numeric"),
            (Self::Text | Self::Varchar | Self::Char, 3) => format!("'{bare}'::char(2)"),
            (Self::Text | Self::Varchar | Self::Char, 4) => format!("'{bare}'::text"),
            (Self::Text | Self::Varchar | Self::Char, 5) => format!("'{bare} '"),
            (Self::Text | Self::Varchar | Self::Char, 6) => format!("'{bare}'::varchar"),
            _ => self.plain(dice),
        }
    }
}

/// A value bound to a parameter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Bound {
    /// As it is declared; `UNKNOWN` when the server finds it.
    pub(crate) declared: Type,
    /// As it is sent.
    pub(crate) bytes: Option<Vec<u8>>,
    pub(super) is_binary: bool,
}

impl Bound {
    /// A value for a place of a kind.
    pub(super) fn draw(dice: &mut Dice, kind: Kind) -> Self {
        let is_foreign = dice.percent(20);
        let sent = match kind {
            Kind::Int | Kind::Numeric if is_foreign => Kind::Bigint,
            Kind::Bigint if is_foreign => Kind::Int,
            Kind::Char if is_foreign => *dice.pick(&[Kind::Text, Kind::Varchar]),
            Kind::Text if is_foreign => Kind::Char,
            Kind::Varchar if is_foreign => *dice.pick(&[Kind::Text, Kind::Char]),
            same => same,
        };
        let declared = if sent == kind && dice.percent(50) { Type::UNKNOWN } else { sent.oid() };
        if dice.percent(5) {
            return Self { declared, bytes: None, is_binary: false };
        }
        let text = sent.bare(dice);
        match Self::binary(sent, &text).filter(|_| dice.percent(50)) {
            Some(bytes) => Self { declared, bytes: Some(bytes), is_binary: true },
            None => Self { declared, bytes: Some(text.into_bytes()), is_binary: false },
        }
    }

    /// Two values in an array, for comparison with a place of a kind.
    pub(super) fn array(dice: &mut Dice, kind: Kind) -> Self {
        let (one, other) = (kind.bare(dice), kind.bare(dice));
        if kind == Kind::Int && dice.percent(50) {
            let (one, other) = (Self::binary(kind, &one), Self::binary(kind, &other));
            // One dimension without NULLs of integers; two of them, counted from 1.
            let mut bytes: Vec<u8> =
                [1, 0, 23, 2, 1].iter().flat_map(|word: &i32| word.to_be_bytes()).collect();
            for element in [one, other].into_iter().flatten() {
                bytes.extend(4_i32.to_be_bytes());
                bytes.extend(element);
            }
            return Self { declared: Type::INT4_ARRAY, bytes: Some(bytes), is_binary: true };
        }
        let text = format!("{{{},{}}}", element(&one), element(&other));
        Self { declared: Type::UNKNOWN, bytes: Some(text.into_bytes()), is_binary: false }
    }

    fn binary(kind: Kind, text: &str) -> Option<Vec<u8>> {
        let number: i64 = text.parse().unwrap_or(0);
        match kind {
            Kind::Int => Some((number as i32).to_be_bytes().to_vec()),
            Kind::Bigint => Some(number.to_be_bytes().to_vec()),
            Kind::Text | Kind::Varchar | Kind::Char => Some(text.as_bytes().to_vec()),
            Kind::Bool => Some(vec![u8::from(text == "true")]),
            Kind::Date => {
                let day: i32 = text[text.len() - 1..].parse().ok()?;
                Some((FIRST_DAY + day - 1).to_be_bytes().to_vec())
            }
            Kind::Numeric => None,
        }
    }
}

/// As an element of an array in text form.
pub(super) fn element(bare: &str) -> String {
    if bare.is_empty() || bare.ends_with(' ') { format!("\"{bare}\"") } else { bare.to_owned() }
}

impl ToSql for Bound {
    fn to_sql(
        &self,
        _kind: &Type,
        out: &mut BytesMut,
    ) -> Result<IsNull, Box<dyn std::error::Error + Sync + Send>> {
        let Some(bytes) = &self.bytes else { return Ok(IsNull::Yes) };
        out.put_slice(bytes);
        Ok(IsNull::No)
    }

    fn accepts(_kind: &Type) -> bool {
        true
    }

    fn encode_format(&self, _kind: &Type) -> Format {
        if self.is_binary { Format::Binary } else { Format::Text }
    }

    to_sql_checked!();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_counted_from_the_beginning_of_2000() {
        let first = Bound::binary(Kind::Date, "2024-01-01").unwrap();
        assert_eq!(i32::from_be_bytes(first.try_into().unwrap()), 24 * 365 + 6);
    }
}
