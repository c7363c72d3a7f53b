//! Evaluates the places of an outline: from constants of a text and parameters to values.

use std::borrow::Cow;

use super::guard::Guard;
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
    /// The element of an array at a place. Elements of several arrays at the same place belong together.
    Element {
        array: Box<Self>,
        place: Place,
    },
    /// The operand, if these guards hold; otherwise nothing.
    When(Vec<Guard>, Box<Self>),
    /// A variable of the body that the statement stands in. None is left in an outline.
    Variable(String),
    /// A value that only the execution tells.
    Unknown,
    /// The next value of the column's sequence.
    Fresh,
}

/// A place in an array that is known by its name alone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Place {
    /// The value of a variable of the body, while one statement runs.
    Named(String),
    /// The same in an outline; bodies are told apart by how many calls are around them.
    Variable { depth: usize, name: String },
    /// The number of a row of `unnest`, by its range.
    Row(usize),
}

impl Operand {
    /// Whether it may stand for several values.
    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Self::List(_) | Self::Array(_) | Self::Element { .. } | Self::When(..))
    }

    /// Whether it has a built-in type that is no row, whatever its place.
    pub(crate) fn is_scalar(&self) -> bool {
        !matches!(self, Self::Parameter(_) | Self::Variable(_) | Self::Unknown) && !self.is_list()
    }

    /// Every parameter in it, with the form that its place gives it.
    pub(crate) fn parameters(&self, form: Form, array: bool, found: &mut Vec<(u32, Form, bool)>) {
        match self {
            Self::Parameter(number) => found.push((*number, form, array)),
            Self::Cast(operand, form) => operand.parameters(*form, false, found),
            Self::CastArray(operand, form) => operand.parameters(*form, true, found),
            Self::Array(operand) => operand.parameters(form, true, found),
            Self::Element { array, .. } => array.parameters(form, true, found),
            Self::When(guards, operand) => {
                operand.parameters(form, array, found);
                for guard in guards {
                    guard.test.parameters(found);
                }
            }
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
    /// By a place in an array; `None` where nothing is equal to it. The last is of all places beyond.
    At(Place, Vec<Option<Value>>),
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
    Binary(Cow<'a, [u8]>),
    Typed(Form, Value),
    Fresh,
}

impl Slot {
    /// The value, or the values.
    pub(crate) fn bind(&self, arguments: &Arguments<'_>, untrusted: &[u32]) -> Bound {
        let binder = Binder { arguments, untrusted };
        match &self.operand {
            Operand::Element { array, place } => self.at(place, &binder, array).unwrap_or(Bound::Unknown),
            operand if operand.is_list() => {
                let mut values = Vec::new();
                match self.gather(operand, &binder, &mut values) {
                    Some(()) => Bound::Many(values),
                    None => Bound::Unknown,
                }
            }
            operand => binder.one(operand).map_or(Bound::Unknown, |raw| self.value(raw)),
        }
    }

    /// Adds the values that an operand may have; `None` if some are not known, or there are too many.
    fn gather(&self, operand: &Operand, binder: &Binder<'_, '_>, values: &mut Vec<Value>) -> Option<()> {
        let mut add = |raw: Option<Raw<'_>>| match self.value(raw?) {
            Bound::One(value) if values.len() < MAX_LIST => {
                values.push(value);
                Some(())
            }
            Bound::Nothing => Some(()),
            _ => None,
        };
        match operand {
            Operand::List(operands) => {
                operands.iter().try_for_each(|operand| self.gather(operand, binder, values))
            }
            Operand::When(guards, _) if !binder.may_hold(guards) => Some(()),
            Operand::When(_, operand) => self.gather(operand, binder, values),
            Operand::Array(array) => {
                binder.elements(array, self.form)?.into_iter().try_for_each(|raw| add(Some(raw)))
            }
            // Any of the elements, or NULL for a place without one.
            Operand::Element { array, .. } => {
                add(Some(Raw::Null))?;
                binder.elements(array, self.form)?.into_iter().try_for_each(|raw| add(Some(raw)))
            }
            operand => add(binder.one(operand)),
        }
    }

    /// The values of an array by their places, which begin with 1.
    fn at(&self, place: &Place, binder: &Binder<'_, '_>, array: &Operand) -> Option<Bound> {
        let mut elements = binder.elements(array, self.form).filter(|_| binder.begins_with_one(array))?;
        elements.push(Raw::Null);
        let values = elements.into_iter().map(|raw| match self.value(raw) {
            Bound::One(value) => Some(Some(value)),
            Bound::Nothing => Some(None),
            _ => None,
        });
        let values: Vec<Option<Value>> = values.collect::<Option<_>>()?;
        (values.len() <= MAX_LIST).then(|| Bound::At(place.clone(), values))
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
    /// The same, whatever it was read from.
    fn owned<'a>(self) -> Raw<'a> {
        match self {
            Self::Null => Raw::Null,
            Self::Bool(truth) => Raw::Bool(truth),
            Self::Number { digits, negative } => {
                Raw::Number { digits: Cow::Owned(digits.into_owned()), negative }
            }
            Self::Text(text) => Raw::Text(Cow::Owned(text.into_owned())),
            Self::Binary(bytes) => Raw::Binary(Cow::Owned(bytes.into_owned())),
            Self::Typed(form, value) => Raw::Typed(form, value),
            Self::Fresh => Raw::Fresh,
        }
    }

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

pub(super) struct Binder<'a, 'b> {
    pub(super) arguments: &'b Arguments<'a>,
    /// Parameters whose type cannot be told from their places.
    pub(super) untrusted: &'b [u32],
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
            Operand::CastArray(..)
            | Operand::List(_)
            | Operand::Array(_)
            | Operand::Element { .. }
            | Operand::When(..)
            | Operand::Variable(_)
            | Operand::Unknown => None,
        }
    }

    /// The value of an operand as one of a form; NULL is one of every form.
    pub(super) fn scalar(&self, operand: &Operand, form: Form) -> Option<Value> {
        match self.one(operand)? {
            Raw::Null => Some(Value::Null),
            raw => raw.as_form(form),
        }
    }

    /// Whether an operand is NULL, if that is known.
    pub(super) fn is_null(&self, operand: &Operand) -> Option<bool> {
        Some(matches!(self.one(operand)?, Raw::Null))
    }

    /// Whether the first element of an array is at place 1.
    fn begins_with_one(&self, array: &Operand) -> bool {
        match array {
            Operand::CastArray(array, _) => self.begins_with_one(array),
            Operand::Parameter(number) => {
                self.bound(*number).is_some_and(|parameter| !parameter.binary || has_usual_bound(parameter))
            }
            _ => true,
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
            (0 | UNKNOWN_OID, true) => Some(Raw::Binary(Cow::Borrowed(value))),
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
            Operand::List(operands) if operands.len() <= MAX_LIST => {
                let element = |operand: &Operand| self.one(operand).map(Raw::owned);
                operands.iter().map(element).collect()
            }
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

/// Whether an array in binary form begins with place 1, or is empty.
fn has_usual_bound(parameter: &Parameter<'_>) -> bool {
    const DIMENSIONS: std::ops::Range<usize> = 0..4;
    const LOWER: std::ops::Range<usize> = 16..20;
    let word =
        |bytes: &[u8], at| bytes.get(at).and_then(|word: &[u8]| word.try_into().ok()).map(i32::from_be_bytes);
    parameter.value.is_none_or(|bytes| word(bytes, DIMENSIONS) == Some(0) || word(bytes, LOWER) == Some(1))
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
