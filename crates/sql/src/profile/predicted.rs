//! Predictions: the likely rest of a transaction, and the accesses that follow from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TemplateId;
use crate::access::Access as Routed;
use crate::accesses::{Access, Accesses, Arguments, Claim, Columns, Lock, Parameter, Rows};
use crate::catalogue::{Catalogue, TableId};
use crate::lexer::Span;
use crate::statement::Statement;

/// More accesses of one kind than this are put together by table.
const MAX_ACCESSES: usize = 128;

/// A type's number that no server gives out: a parameter of this type is not looked at.
const NO_TYPE: u32 = u32::MAX;

/// An argument of a statement, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Place {
    /// A parameter.
    Parameter(u16),
    /// A constant in the text.
    Constant(u16),
}

/// An argument of a statement of the beginning.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Source {
    /// Which statement, counted from 0.
    pub step: u16,
    /// Which argument.
    pub place: Place,
}

/// A template that is likely to come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Expected {
    /// Its number.
    pub template: TemplateId,
    /// The template.
    pub statement: Arc<Statement>,
    /// In how many of the transactions with this beginning it came, in thousandths.
    pub share: u32,
    /// Arguments whose values have always been those of the beginning.
    pub sources: BTreeMap<Place, Source>,
}

/// The likely continuation of a beginning.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Prediction {
    /// The templates, in the order of their numbers.
    pub expected: Vec<Expected>,
    /// In how many of the transactions with this beginning nothing else came than was expected at the time, in
    /// thousandths.
    pub confidence: u32,
    /// How many transactions that is known from (older ones count less).
    pub seen: u32,
}

impl Prediction {
    /// Whether nothing is expected but reads that are bounded.
    pub fn only_reads(&self, catalogue: &Catalogue) -> bool {
        let reads = |statement: &Statement| matches!(statement.routing(catalogue).access, Routed::Read(_));
        self.expected.iter().all(|expected| reads(&expected.statement))
    }

    /// The accesses that the rest of the transaction is likely to make: rows where their keys are known from the beginning, else
    /// whole tables. `beginning` are the arguments of its statements so far.
    pub fn accesses(&self, catalogue: &Catalogue, beginning: &[Arguments<'_>]) -> Accesses {
        let mut all = Accesses::default();
        for expected in &self.expected {
            all.add(expected.accesses(catalogue, beginning));
        }
        bounded(all)
    }
}

impl Expected {
    fn accesses(&self, catalogue: &Catalogue, beginning: &[Arguments<'_>]) -> Accesses {
        let mut parameters = Vec::new();
        let mut constants = Vec::new();
        let mut text = Vec::new();
        for (place, source) in &self.sources {
            match place {
                Place::Parameter(index) => {
                    let unknown = Parameter { type_oid: NO_TYPE, value: Some(b""), binary: false };
                    put(&mut parameters, *index, unknown, parameter(beginning, *source));
                }
                Place::Constant(index) => {
                    let start = text.len();
                    let found = constant(beginning, *source).map(|bytes| {
                        text.extend_from_slice(bytes);
                        Span { start, end: text.len() }
                    });
                    put(&mut constants, *index, Span { start: usize::MAX, end: usize::MAX }, found);
                }
            }
        }
        let arguments = Arguments { text: &text, constants: &constants, parameters: &parameters };
        self.statement.outline(catalogue).bind(&arguments)
    }
}

/// Puts an argument at its place, with unknown ones before it.
fn put<T: Clone>(list: &mut Vec<T>, index: u16, unknown: T, found: Option<T>) {
    let index = usize::from(index);
    if list.len() <= index {
        list.resize(index + 1, unknown);
    }
    if let Some(found) = found {
        list[index] = found;
    }
}

fn parameter<'a>(beginning: &[Arguments<'a>], source: Source) -> Option<Parameter<'a>> {
    let Place::Parameter(index) = source.place else { return None };
    beginning.get(usize::from(source.step))?.parameters.get(usize::from(index)).copied()
}

fn constant<'a>(beginning: &[Arguments<'a>], source: Source) -> Option<&'a [u8]> {
    let Place::Constant(index) = source.place else { return None };
    let arguments = beginning.get(usize::from(source.step))?;
    let span = arguments.constants.get(usize::from(index))?;
    arguments.text.get(span.start..span.end)
}

/// Puts together what has become too much, by table.
fn bounded(mut all: Accesses) -> Accesses {
    let whole = |list: &mut Vec<Access>| {
        if list.len() > MAX_ACCESSES {
            let tables: BTreeMap<TableId, bool> = list.iter().map(|access| (access.table, false)).collect();
            let access = |table| Access { table, columns: Columns::All, rows: Rows::All, new: false };
            *list = tables.into_keys().map(access).collect();
        }
    };
    whole(&mut all.reads);
    whole(&mut all.writes);
    if all.claims.len() > MAX_ACCESSES {
        let mut keys: BTreeMap<(TableId, usize), bool> = BTreeMap::new();
        for claim in &all.claims {
            *keys.entry((claim.table, claim.key)).or_default() |= claim.exclusive;
        }
        let claim = |((table, key), exclusive)| Claim { table, key, rows: Rows::All, exclusive };
        all.claims = keys.into_iter().map(claim).collect();
    }
    if all.locks.len() > MAX_ACCESSES {
        let mut tables = BTreeMap::new();
        for lock in &all.locks {
            let strength = tables.entry(lock.table).or_insert(lock.strength);
            *strength = lock.strength.max(*strength);
        }
        let lock = |(table, strength)| Lock { table, rows: Rows::All, strength };
        all.locks = tables.into_iter().map(lock).collect();
    }
    all
}
