//! Evaluates the places of an outline: from constants of a text and parameters to values.

use std::borrow::Cow;

use super::value::{Form, Value, number};
use crate::lexer::Span;

/// More values than this in a list or an array are not looked at: the rows of so many keys are not kept apart anyway.
pub(crate) const MAX_LIST: usize = super::MAX_MATCHES;

/// The known values of one execution of a statement.
#[derive(Clone, Copy, Debug, Default)]
pub struct Arguments<'a> {
    /// The text of the query string.
    pub text: &'a [u8],
    /// Where its constants are: [`crate::Part::constants`].
    pub constants: &'a [Span],
    /// Values bound to `$1`, `$2`, ...; parameters beyond them are not known.
    pub parameters: &'a [Parameter<'a>],
}

/// The value bound to a parameter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Parameter<'a> {
    /// Its type's OID as the client declared it or the server described it. It is 0 only if neither
    /// Parse nor PREPARE declared one, so that the server takes it from the parameter's place.
    pub type_oid: u32,
    /// The value; `None` is NULL.
    pub value: Option<&'a [u8]>,
    /// In binary form rather than as text.
    pub binary: bool,
}

/// Where a value comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Operand {
    /// The n-th constant of the text, its sign changed if negative.
    Constant {
        index: u32,
        negative: bool,
    },
    /// A parameter, counted from 1.
    Parameter(u32),
    Null,
    Bool(bool),
    /// A number as it is written, with its sign.
    Number(String),
    /// A string constant.
    Text(String),
    /// A cast to a built-in type.
    Cast(Box<Self>, Form),
    /// A cast to an array of a built-in type; the operand is an array.
    CastArray(Box<Self>, Form),
    /// One of several.
    List(Vec<Self>),
    /// An element of an array, given as one constant or parameter.
    Array(Box<Self>),
    /// The next value of the column's sequence.
    Fresh,
}

impl Operand {
    /// Every parameter in it, with the form that its place gives it.
    pub(crate) fn parameters(&self, form: Form, array: bool, found: &mut Vec<(u32, Form, bool)>) {
        match self {
            Self::Parameter(number) => found.push((*number, form, array)),
            Self::Cast(operand, form) => operand.parameters(*form, false, found),
            Self::CastArray(operand, form) => operand.parameters(*form, true, found),
            Self::Array(operand) => operand.parameters(form, true, found),
            Self::List(operands) => {
                for operand in operands {
                    operand.parameters(form, array, found);
                }
            }
            _ => {}
        }
    }
}

/// How a value is used.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Use {
    /// Compared by `=`: NULL equals nothing.
    Compared,
    /// Compared by IS NOT DISTINCT FROM.
    Same,
    /// Stored in a column with this type modifier.
    Stored(i32),
}

/// A value that an outline needs.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Slot {
    pub(crate) operand: Operand,
    pub(crate) form: Form,
    pub(crate) usage: Use,
}

/// The value of a slot, as far as known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Bound {
    One(Value),
    Many(Vec<Value>),
    /// Nothing is equal to it.
    Nothing,
    Unknown,
}

/// A value before it is known what it is compared with.
enum Raw<'a> {
    Null,
    Bool(bool),
    Number {
        digits: Cow<'a, str>,
        negative: bool,
    },
    /// A string whose type is found from its place.
    Text(Cow<'a, str>),
    /// A parameter in binary form, likewise.
    Binary(&'a [u8]),
    Typed(Form, Value),
    Fresh,
}

impl Slot {
    /// The value, or the values.
    pub(crate) fn bind(&self, arguments: &Arguments<'_>, untrusted: &[u32]) -> Bound {
        let binder = Binder { arguments, untrusted };
        match &self.operand {
            Operand::List(operands) => self.any_of(operands.iter().map(|operand| binder.one(operand))),
            Operand::Array(operand) => match binder.elements(operand, self.form) {
                Some(elements) => self.any_of(elements.into_iter().map(Some)),
                None => Bound::Unknown,
            },
            operand => binder.one(operand).map_or(Bound::Unknown, |raw| self.value(raw)),
        }
    }

    fn any_of<'a>(&self, raw: impl Iterator<Item = Option<Raw<'a>>>) -> Bound {
        let mut values = Vec::new();
        for one in raw {
            match one.map_or(Bound::Unknown, |raw| self.value(raw)) {
                Bound::One(value) if values.len() < MAX_LIST => values.push(value),
                Bound::Nothing => {}
                _ => return Bound::Unknown,
            }
        }
        Bound::Many(values)
    }

    fn value(&self, raw: Raw<'_>) -> Bound {
        let value = match raw {
            Raw::Null => {
                return if self.usage == Use::Compared { Bound::Nothing } else { Bound::One(Value::Null) };
            }
            Raw::Fresh => Some(Value::Fresh),
            raw => raw.as_form(self.form),
        };
        let value = match self.usage {
            Use::Stored(type_mod) => value.and_then(|value| self.form.stored(value, type_mod)),
            Use::Compared | Use::Same => value,
        };
        value.map_or(Bound::Unknown, Bound::One)
    }
}

impl Raw<'_> {
    fn as_form(&self, form: Form) -> Option<Value> {
        match self {
            Raw::Null | Raw::Fresh => None,
            Raw::Bool(truth) => (form == Form::Bool).then_some(Value::Bool(*truth)),
            Raw::Number { digits, negative } => number(form, digits, *negative),
            Raw::Text(text) => form.parse(text),
            Raw::Binary(bytes) => form.decode(bytes),
            Raw::Typed(from, value) => form.converted(*from, value.clone()),
        }
    }
}

struct Binder<'a, 'b> {
    arguments: &'b Arguments<'a>,
    /// Parameters whose type cannot be told from their places.
    untrusted: &'b [u32],
}

impl<'a> Binder<'a, '_> {
    fn one<'s>(&self, operand: &'s Operand) -> Option<Raw<'s>>
    where
        'a: 's,
    {
        match operand {
            Operand::Constant { index, negative } => constant(self.constant(*index)?, *negative),
            Operand::Parameter(number) => self.parameter(*number),
            Operand::Null => Some(Raw::Null),
            Operand::Bool(truth) => Some(Raw::Bool(*truth)),
            Operand::Number(digits) => Some(Raw::Number { digits: Cow::Borrowed(digits), negative: false }),
            Operand::Text(text) => Some(Raw::Text(Cow::Borrowed(text))),
            Operand::Cast(operand, form) => match self.one(operand)? {
                Raw::Null => Some(Raw::Null),
                Raw::Typed(from, value) if from == *form => Some(Raw::Typed(from, value)),
                Raw::Typed(..) => None,
                // A parameter under a cast has the type that is cast to.
                raw => Some(Raw::Typed(*form, raw.as_form(*form)?)),
            },
            Operand::Fresh => Some(Raw::Fresh),
            Operand::CastArray(..) | Operand::List(_) | Operand::Array(_) => None,
        }
    }

    fn constant(&self, index: u32) -> Option<&'a [u8]> {
        let span = self.arguments.constants.get(usize::try_from(index).ok()?)?;
        self.arguments.text.get(span.start..span.end)
    }

    fn bound(&self, number: u32) -> Option<&'a Parameter<'a>> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        let parameter = self.arguments.parameters.get(index)?;
        let typed = parameter.type_oid != 0 && parameter.type_oid != UNKNOWN_OID;
        (typed || parameter.value.is_none() || !self.untrusted.contains(&number)).then_some(parameter)
    }

    fn parameter(&self, number: u32) -> Option<Raw<'a>> {
        let parameter = self.bound(number)?;
        let Some(value) = parameter.value else { return Some(Raw::Null) };
        match (parameter.type_oid, parameter.binary) {
            (0 | UNKNOWN_OID, true) => Some(Raw::Binary(value)),
            (0 | UNKNOWN_OID, false) => Some(Raw::Text(Cow::Borrowed(std::str::from_utf8(value).ok()?))),
            (oid, true) => {
                let form = Form::of_type(oid)?;
                Some(Raw::Typed(form, form.decode(value)?))
            }
            (oid, false) => {
                let form = Form::of_type(oid)?;
                Some(Raw::Typed(form, form.parse(std::str::from_utf8(value).ok()?)?))
            }
        }
    }

    /// The elements of an array; `form` is what they are by their place.
    fn elements(&self, operand: &Operand, form: Form) -> Option<Vec<Raw<'a>>> {
        match operand {
            Operand::CastArray(operand, form) => self.elements(operand, *form),
            Operand::Constant { index, negative: false } => match constant(self.constant(*index)?, false)? {
                Raw::Text(text) => array_text(&text, form),
                _ => None,
            },
            Operand::Text(text) => array_text(text, form),
            Operand::Null => Some(Vec::new()),
            Operand::Parameter(number) => {
                let parameter = self.bound(*number)?;
                let Some(value) = parameter.value else { return Some(Vec::new()) };
                let form = match parameter.type_oid {
                    0 | UNKNOWN_OID => form,
                    oid => Form::of_array(oid)?,
                };
                if parameter.binary {
                    array_binary(value, form)
                } else {
                    array_text(std::str::from_utf8(value).ok()?, form)
                }
            }
            _ => None,
        }
    }
}

/// The OID of the type `unknown`.
const UNKNOWN_OID: u32 = 705;

/// A constant from its token; one with escapes is not read.
fn constant(token: &[u8], negative: bool) -> Option<Raw<'_>> {
    let token = std::str::from_utf8(token).ok()?;
    let text = match token.as_bytes() {
        [b'0'..=b'9' | b'.', ..] => return Some(Raw::Number { digits: Cow::Borrowed(token), negative }),
        [b'\'', .., b'\''] => &token[1..token.len() - 1],
        [b'e' | b'E', b'\'', .., b'\''] => {
            let text = &token[2..token.len() - 1];
            (!text.contains('\\')).then_some(text)?
        }
        [b'$', ..] => {
            let tag = token[1..].find('$')? + 2;
            return Some(Raw::Text(Cow::Borrowed(token.get(tag..token.len().checked_sub(tag)?)?)));
        }
        _ => return None,
    };
    if negative {
        return None;
    }
    let text = if text.contains('\'') { Cow::Owned(text.replace("''", "'")) } else { Cow::Borrowed(text) };
    Some(Raw::Text(text))
}

/// The elements of a one-dimensional array in text form, without quotes and escapes.
fn array_text<'a>(text: &str, form: Form) -> Option<Vec<Raw<'a>>> {
    let inner = text.strip_prefix('{')?.strip_suffix('}')?;
    if inner.contains(['"', '\\', '{', '}']) {
        return None;
    }
    if trimmed(inner).is_empty() {
        return Some(Vec::new());
    }
    let elements = inner.split(',').map(|element| {
        let element = trimmed(element);
        match element {
            "" => None,
            null if null.eq_ignore_ascii_case("null") => Some(Raw::Null),
            element => Some(Raw::Typed(form, form.parse(element)?)),
        }
    });
    elements.take(MAX_LIST + 1).collect()
}

fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b')
}

/// The elements of an array in binary form: dimensions, a flag, the element type, then size and lower bound of each
/// dimension, then the elements, each after its length.
fn array_binary<'a>(bytes: &[u8], form: Form) -> Option<Vec<Raw<'a>>> {
    let mut rest = bytes;
    let mut next = || -> Option<i32> {
        let (word, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        Some(i32::from_be_bytes(*word))
    };
    let (dimensions, _has_nulls, _element_type) = (next()?, next()?, next()?);
    match dimensions {
        0 => return Some(Vec::new()),
        1 => {}
        _ => return None,
    }
    let (count, _lower) = (usize::try_from(next()?).ok()?, next()?);
    let mut elements = Vec::with_capacity(count.min(MAX_LIST));
    for _ in 0..count.min(MAX_LIST + 1) {
        let (length, after) = rest.split_first_chunk::<4>()?;
        rest = after;
        match i32::from_be_bytes(*length) {
            -1 => elements.push(Raw::Null),
            length => {
                let (element, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
                rest = after;
                elements.push(Raw::Typed(form, form.decode(element)?));
            }
        }
    }
    Some(elements)
}
