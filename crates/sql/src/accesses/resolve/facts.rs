//! Facts about the rows of a relation.
//!
//! Conditions stand in contexts, each inside another one. A row of a relation can matter only if it satisfies, together
//! with some rows of the others, all conditions from its own context outwards:
//!
//! - WHERE and the ON of an inner join hold for both sides; the ON of an outer join holds for the side that may be
//!   replaced by NULLs, and says nothing about the other.
//! - From such a side outwards only conditions that NULLs cannot satisfy hold: a row that does not satisfy `b.k IS NULL`
//!   can still prevent one of NULLs that does. (If an outer condition is true with NULLs in place of the row, it is true
//!   because of equalities between other columns alone, which then are true with the row as well.)
//! - A query inside an expression matters for rows of the outer query that satisfy its conditions.
//!
//! From the equalities of each alternative a column's value is carried over to the columns that equal it.

use super::scope::{Origin, Scope, Variable};
use crate::accesses::MAX_MATCHES;
use crate::accesses::bind::{Operand, Use};
use crate::accesses::shape::Condition;
use crate::accesses::value::Form;

/// More alternatives than this are not multiplied out.
const MAX_ALTERNATIVES: usize = MAX_MATCHES;

/// More conditions under one AND are not looked at.
const MAX_CONJUNCTS: usize = 128;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ContextId(usize);

#[derive(Debug)]
struct Context {
    parent: Option<ContextId>,
    fact: Fact,
    /// From here outwards only conditions hold that NULLs cannot satisfy.
    nullable: bool,
}

/// A condition whose names have been looked up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fact {
    Nothing,
    Never,
    And(Vec<Self>),
    Or(Vec<Self>),
    Equal(Variable, Variable),
    Is { variable: Variable, form: Form, operand: Operand, usage: Use },
}

/// The facts of one alternative about one column of a relation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub(super) column: String,
    pub(super) form: Form,
    pub(super) operand: Operand,
    pub(super) usage: Use,
}

/// All contexts of a statement.
#[derive(Debug, Default)]
pub(super) struct Facts(Vec<Context>);

impl Facts {
    /// A context inside another one, of which nothing is known yet.
    pub(super) fn inside(&mut self, parent: Option<ContextId>) -> ContextId {
        self.0.push(Context { parent, fact: Fact::Nothing, nullable: false });
        ContextId(self.0.len() - 1)
    }

    /// The context of the side of an outer join that may be replaced by NULLs.
    pub(super) fn nullable(&mut self, parent: ContextId) -> ContextId {
        let id = self.inside(Some(parent));
        self.0[id.0].nullable = true;
        id
    }

    pub(super) fn add(&mut self, context: ContextId, fact: Fact) {
        let known = &mut self.0[context.0].fact;
        *known = match std::mem::replace(known, Fact::Nothing) {
            Fact::Nothing => fact,
            Fact::And(mut all) => {
                all.push(fact);
                Fact::And(all)
            }
            other => Fact::And(vec![other, fact]),
        };
    }

    /// Facts about the rows of a range, by alternatives; `None` if there are none.
    pub(super) fn about(&self, range: usize, context: ContextId) -> Option<Vec<Vec<Known>>> {
        let mut facts = Vec::new();
        let (mut next, mut strict_only) = (Some(context), false);
        while let Some(ContextId(at)) = next {
            let Context { parent, fact, nullable } = &self.0[at];
            gather(fact, strict_only, &mut facts);
            strict_only |= nullable;
            next = *parent;
        }
        facts.truncate(MAX_CONJUNCTS);
        let alternatives = multiply(&facts);
        let known: Vec<Vec<Known>> = alternatives.iter().map(|facts| carried_over(range, facts)).collect();
        (!known.iter().any(Vec::is_empty)).then_some(known)
    }
}

/// The conjuncts of a fact, without those that NULLs may satisfy if only strict ones count.
fn gather<'a>(fact: &'a Fact, strict_only: bool, found: &mut Vec<&'a Fact>) {
    match fact {
        Fact::And(all) => all.iter().for_each(|one| gather(one, strict_only, found)),
        Fact::Nothing => {}
        fact if strict_only && !is_strict(fact) => {}
        fact => found.push(fact),
    }
}

fn is_strict(fact: &Fact) -> bool {
    match fact {
        Fact::And(all) | Fact::Or(all) => all.iter().all(is_strict),
        Fact::Is { usage, .. } => *usage == Use::Compared,
        Fact::Nothing | Fact::Never | Fact::Equal(..) => true,
    }
}

/// Conjunctions of equalities of which one must hold. What would make too many of them is left out.
fn multiply<'a>(facts: &[&'a Fact]) -> Vec<Vec<&'a Fact>> {
    let mut alternatives: Vec<Vec<&Fact>> = vec![Vec::new()];
    for fact in facts {
        let own = expand(fact);
        if alternatives.len() * own.len() > MAX_ALTERNATIVES {
            continue;
        }
        alternatives = alternatives
            .iter()
            .flat_map(|one| own.iter().map(move |other| one.iter().chain(other).copied().collect()))
            .collect();
    }
    alternatives
}

fn expand(fact: &Fact) -> Vec<Vec<&Fact>> {
    match fact {
        Fact::Nothing => vec![Vec::new()],
        Fact::Never => Vec::new(),
        Fact::Equal(..) | Fact::Is { .. } => vec![vec![fact]],
        Fact::And(all) => multiply(&all.iter().take(MAX_CONJUNCTS).collect::<Vec<_>>()),
        Fact::Or(all) => {
            let alternatives: Vec<_> = all.iter().flat_map(expand).collect();
            if alternatives.len() > MAX_ALTERNATIVES { vec![Vec::new()] } else { alternatives }
        }
    }
}

/// The values of a range's columns under a conjunction of equalities.
fn carried_over(range: usize, facts: &[&Fact]) -> Vec<Known> {
    // The classes of equal columns; there are few of them.
    let mut classes: Vec<Vec<&Variable>> = Vec::new();
    for fact in facts {
        let members = match fact {
            Fact::Equal(one, other) => vec![one, other],
            Fact::Is { variable, .. } => vec![variable],
            _ => continue,
        };
        let (mut same, others): (Vec<_>, Vec<_>) =
            classes.into_iter().partition(|class| class.iter().any(|member| members.contains(member)));
        same.push(members);
        classes = others;
        classes.push(same.concat());
    }
    let mut known: Vec<Known> = Vec::new();
    for class in &classes {
        let values = facts.iter().filter_map(|fact| match fact {
            Fact::Is { variable, form, operand, usage } if class.contains(&variable) => {
                Some((form, operand, usage))
            }
            _ => None,
        });
        // A single value tells more than a list.
        let Some((form, operand, usage)) = values.min_by_key(|(_, operand, _)| operand.is_list()) else {
            continue;
        };
        for variable in class.iter().filter(|variable| variable.range == range) {
            if !known.iter().any(|known| known.column == variable.column) {
                let (column, operand) = (variable.column.clone(), operand.clone());
                known.push(Known { column, form: *form, operand, usage: *usage });
            }
        }
    }
    known
}

impl Scope<'_> {
    /// Looks up the names of a condition.
    pub(super) fn fact(&mut self, condition: &Condition) -> Fact {
        match condition {
            Condition::True => Fact::Nothing,
            Condition::Never => Fact::Never,
            Condition::And(all) => Fact::And(all.iter().map(|one| self.fact(one)).collect()),
            Condition::Or(all) => Fact::Or(all.iter().map(|one| self.fact(one)).collect()),
            Condition::Equal(one, other) => {
                let (one, other) = (self.refer(one), self.refer(other));
                self.equal(one, other)
            }
            Condition::Is { column, operand, strict } => {
                let usage = if *strict { Use::Compared } else { Use::Same };
                match self.refer(column) {
                    Origin::Column(variable) => self.is(variable, operand, usage),
                    Origin::Unknown | Origin::Given(_) => Fact::Nothing,
                }
            }
        }
    }

    fn is(&mut self, variable: Variable, operand: &Operand, usage: Use) -> Fact {
        let Some(form) = self.form(&variable) else { return Fact::Nothing };
        let Some(operand) = self.known(operand) else { return Fact::Nothing };
        self.place(&operand, form);
        Fact::Is { variable, form, operand, usage }
    }

    /// Two columns are equal, if that is a matter of their values alone.
    pub(super) fn equal(&mut self, one: Origin, other: Origin) -> Fact {
        match (one, other) {
            (Origin::Column(one), Origin::Column(other)) => {
                let forms = (self.form(&one), self.form(&other));
                if forms.0.is_some() && forms.0 == forms.1 { Fact::Equal(one, other) } else { Fact::Nothing }
            }
            // NULL in place of the value equals nothing either.
            (Origin::Column(variable), Origin::Given(given))
            | (Origin::Given(given), Origin::Column(variable)) => {
                self.is(variable, &given.operand, Use::Compared)
            }
            _ => Fact::Nothing,
        }
    }
}
