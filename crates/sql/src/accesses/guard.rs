//! Conditions of IF in a body, over values that one call keeps: which of its branches a call may enter.
//!
//! `IF p_c_id IS NOT NULL THEN .. ELSE .. END IF` enters its first branch if the argument is given. A guard is such a
//! test with the branch that it leads to. Only what is the same during the whole call may stand in a test; anything else
//! is [`Test::Unknown`], by which no branch is left out.
//!
//! Invariant: a guard that a call does not let hold is one whose branch the call does not enter.

use super::bind::{Binder, Operand};
use super::value::{Form, Value};

/// A test, and which outcome of it leads into the branch.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Guard {
    pub(crate) test: Test,
    /// The branch is entered if the test is true; otherwise if it is false or NULL.
    pub(crate) if_true: bool,
}

/// A condition over values that do not change during a call.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Test {
    IsNull(Operand),
    /// A comparison of integers, or an equality of texts.
    Compare(Compared, Operand, Operand),
    Not(Box<Self>),
    All(Vec<Self>),
    Any(Vec<Self>),
    Unknown,
}

/// Comparisons that are the same under every collation and setting.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Compared {
    Equal,
    Less,
    LessOrEqual,
}

/// The outcome of a test; `Unknown` if the values do not tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Truth {
    True,
    False,
    Null,
    Unknown,
}

impl Test {
    /// Puts other operands in; a test of one that has none becomes unknown.
    pub(crate) fn map(&self, known: &impl Fn(&Operand) -> Option<Operand>) -> Self {
        let all = |tests: &[Self]| tests.iter().map(|test| test.map(known)).collect();
        match self {
            Self::IsNull(operand) => known(operand).map_or(Self::Unknown, Self::IsNull),
            Self::Compare(how, one, other) => match (known(one), known(other)) {
                (Some(one), Some(other)) => Self::Compare(*how, one, other),
                _ => Self::Unknown,
            },
            Self::Not(test) => Self::Not(Box::new(test.map(known))),
            Self::All(tests) => Self::All(all(tests)),
            Self::Any(tests) => Self::Any(all(tests)),
            Self::Unknown => Self::Unknown,
        }
    }

    /// Every parameter in it.
    pub(crate) fn parameters(&self, found: &mut Vec<(u32, Form, bool)>) {
        match self {
            Self::IsNull(operand) => operand.parameters(Form::Text, false, found),
            Self::Compare(_, one, other) => {
                one.parameters(Form::Text, false, found);
                other.parameters(Form::Text, false, found);
            }
            Self::Not(test) => test.parameters(found),
            Self::All(tests) | Self::Any(tests) => tests.iter().for_each(|test| test.parameters(found)),
            Self::Unknown => {}
        }
    }

    fn truth(&self, binder: &Binder<'_, '_>) -> Truth {
        match self {
            Self::IsNull(operand) => match binder.is_null(operand) {
                Some(true) => Truth::True,
                Some(false) => Truth::False,
                None => Truth::Unknown,
            },
            Self::Compare(how, one, other) => compare(*how, one, other, binder),
            Self::Not(test) => match test.truth(binder) {
                Truth::True => Truth::False,
                Truth::False => Truth::True,
                other => other,
            },
            Self::All(tests) => together(tests, binder, Truth::False, Truth::True),
            Self::Any(tests) => together(tests, binder, Truth::True, Truth::False),
            Self::Unknown => Truth::Unknown,
        }
    }
}

/// AND and OR: one outcome decides; without it what is not known, then NULL, then the other outcome.
fn together(tests: &[Test], binder: &Binder<'_, '_>, decides: Truth, otherwise: Truth) -> Truth {
    let truths: Vec<Truth> = tests.iter().map(|test| test.truth(binder)).collect();
    let first = [decides, Truth::Unknown, Truth::Null].into_iter().find(|truth| truths.contains(truth));
    first.unwrap_or(otherwise)
}

fn compare(how: Compared, one: &Operand, other: &Operand, binder: &Binder<'_, '_>) -> Truth {
    // A variable has a type; a constant beside it is of that type.
    let form = match (one, other) {
        (Operand::Cast(_, one), Operand::Cast(_, other)) if one != other => return Truth::Unknown,
        (Operand::Cast(_, form), _) | (_, Operand::Cast(_, form)) => *form,
        _ => return Truth::Unknown,
    };
    // Texts are ordered by their collation.
    if !(form == Form::Int || (form == Form::Text && how == Compared::Equal)) {
        return Truth::Unknown;
    }
    let (Some(one), Some(other)) = (binder.scalar(one, form), binder.scalar(other, form)) else {
        return Truth::Unknown;
    };
    if one == Value::Null || other == Value::Null {
        return Truth::Null;
    }
    let is_true = match (how, &one, &other) {
        (Compared::Equal, ..) => one == other,
        (Compared::Less, Value::Int(one), Value::Int(other)) => one < other,
        (Compared::LessOrEqual, Value::Int(one), Value::Int(other)) => one <= other,
        _ => return Truth::Unknown,
    };
    if is_true { Truth::True } else { Truth::False }
}

impl Binder<'_, '_> {
    /// Whether a call may enter the branch behind all of these guards.
    pub(super) fn may_hold(&self, guards: &[Guard]) -> bool {
        guards.iter().all(|guard| match guard.test.truth(self) {
            Truth::True => guard.if_true,
            Truth::False | Truth::Null => !guard.if_true,
            Truth::Unknown => true,
        })
    }
}
