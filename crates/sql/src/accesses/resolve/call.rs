//! CALL and DO: the accesses of a body under one call.
//!
//! `CALL payment(3, 7, ..)` writes the rows that the statements of the procedure write, with the call's arguments in
//! place of the parameters: warehouse 3, district (3, 7). A name of several procedures stands for each of them. Calls
//! within a body are followed. After Gargamel, section IV-A, whose conflicts of TPC-C (Table II) were found by hand.
//!
//! Invariant: as for every statement, soundness. A statement of the body whose rows are not known touches whole tables;
//! if the body has parts that no statement shows, or if it leads too far, the call touches all tables that it reaches.
//!
//! Non-goals: which statements run, but for branches of IF that the arguments rule out; values that queries give.

use std::collections::BTreeMap;

use super::query::Resolver;
use super::variables::{Body, Variables};
use super::{add_tables, shadows_types, unknown_name};
use crate::access;
use crate::accesses::bind::Operand;
use crate::accesses::effect::Effects;
use crate::accesses::guard::Guard;
use crate::accesses::outline::Outline;
use crate::accesses::shape::{Call, Root, Shape};
use crate::accesses::value::Form;
use crate::body::Code;
use crate::catalogue::{Argument, Catalogue, HeadTypes};
use crate::name::Name;
use crate::statement::{Statement, Verb};

/// Calls deeper inside of each other are not followed.
const MAX_DEPTH: usize = 8;

/// More conditions around a statement are not looked at.
const MAX_GUARDS: usize = 16;

/// More statements of bodies, each as often as it is reached, are not looked at.
const MAX_STATEMENTS: usize = 1_000;

/// The accesses of a CALL or DO; `None` if it has to stand for whole tables.
pub(super) fn outline(statement: &Statement, catalogue: &Catalogue) -> Option<Outline> {
    if statement.opaque.is_some() || catalogue.has_user_casts() || is_unknown_beside(statement, catalogue) {
        return None;
    }
    let mut walk = Walk { catalogue, effects: Effects::new(catalogue), statements: 0 };
    if let Some(Shape { root: Root::Call(call), parameters, .. }) = statement.shape.as_deref() {
        walk.call(call, None, &[])?;
        let untrusted = untrusted(call, parameters.as_deref(), catalogue, &walk.effects);
        walk.effects.distrust(untrusted);
    } else {
        let code = statement.block.as_deref()?;
        let call = Call { name: Name::bare("DO"), arguments: Vec::new(), variadic: false };
        let body = Body { name: "", arguments: &[], flow: &code.flow };
        walk.body(&body, code, &call, None, &[])?;
    }
    let outline = walk.effects.finish();
    outline.unbounded().is_none().then_some(outline)
}

/// Whether something in the statement beside the procedure itself may touch data.
fn is_unknown_beside(statement: &Statement, catalogue: &Catalogue) -> bool {
    let procedure = match statement.shape.as_deref() {
        Some(Shape { root: Root::Call(call), .. }) => Some(&call.name),
        _ => None,
    };
    let mut rest = statement.clone();
    rest.functions.retain(|name| Some(name) != procedure);
    unknown_name(&rest, catalogue).is_some()
}

struct Walk<'a> {
    catalogue: &'a Catalogue,
    effects: Effects<'a>,
    statements: usize,
}

impl Walk<'_> {
    /// Every procedure that the name of a call may stand for.
    fn call(&mut self, call: &Call, outer: Option<&Variables>, guards: &[Guard]) -> Option<()> {
        for (function, code) in self.catalogue.code(&call.name.name)? {
            if function.types == HeadTypes::Coded {
                return None;
            }
            let body = Body { name: &function.name, arguments: &function.arguments, flow: &code.flow };
            self.body(&body, code, call, outer, guards)?;
        }
        Some(())
    }

    fn body(
        &mut self,
        body: &Body<'_>,
        code: &Code,
        call: &Call,
        outer: Option<&Variables>,
        guards: &[Guard],
    ) -> Option<()> {
        let catalogue = self.catalogue;
        if outer.is_some_and(|outer| outer.depth() >= MAX_DEPTH) || hides_something(code, catalogue) {
            return None;
        }
        let variables = Variables::of(body, call, outer, catalogue);
        for (at, statement) in code.statements.iter().enumerate() {
            self.statements += 1;
            if self.statements > MAX_STATEMENTS || self.effects.is_full() {
                return None;
            }
            let own = code.flow.guards.get(at).map_or(&[][..], Vec::as_slice);
            let mut all = guards.to_vec();
            all.extend(variables.guards(own));
            all.truncate(MAX_GUARDS);
            self.statement(statement, &variables, &all)?;
        }
        Some(())
    }

    fn statement(&mut self, statement: &Statement, variables: &Variables, guards: &[Guard]) -> Option<()> {
        let catalogue = self.catalogue;
        self.effects.guard(guards.to_vec());
        let shape = statement.shape.as_deref();
        if let (Verb::Call, Some(Shape { root: Root::Call(call), .. })) = (&statement.verb, shape)
            && !is_unknown_beside(statement, catalogue)
        {
            return self.call(call, Some(variables), guards);
        }
        let is_known = unknown_name(statement, catalogue).is_none() && !shadows_types(statement, catalogue);
        match shape.filter(|_| is_known) {
            Some(Shape { root: Root::Query(query), named_once, .. }) => {
                let effects = std::mem::replace(&mut self.effects, Effects::new(catalogue));
                let mut resolver = Resolver::of(statement, named_once, effects);
                resolver.scope.variables = Some(variables);
                resolver.query(query, None);
                self.effects = resolver.finish_within().under(catalogue);
                Some(())
            }
            _ => add_tables(statement, &mut self.effects),
        }
    }
}

/// Whether the code names what touches data where no statement shows it.
fn hides_something(code: &Code, catalogue: &Catalogue) -> bool {
    code.flow.loose().any(|name| {
        let is_called = code.words.called.contains(name) && catalogue.builtin_volatility(name).is_some();
        catalogue.named(None, name).next().is_some()
            || catalogue.is_user_function(name)
            || (is_called && access::may_touch_data(catalogue, &Name::bare(name)))
    })
}

/// The parameters of a CALL whose types do not follow from their places: each that is not an argument by itself, once,
/// or that procedures of the name take as values of different types.
fn untrusted(
    call: &Call,
    occurrences: Option<&[u32]>,
    catalogue: &Catalogue,
    effects: &Effects<'_>,
) -> Vec<u32> {
    let mut used = Vec::new();
    for slot in effects.slots() {
        slot.operand.parameters(slot.form, false, &mut used);
    }
    effects.tested(&mut used);
    let mut total: BTreeMap<u32, usize> = BTreeMap::new();
    for number in occurrences.unwrap_or_default() {
        *total.entry(*number).or_default() += 1;
    }
    let is_trusted = |number: u32| {
        let at = call.arguments.iter().position(|one| one.value == Some(Operand::Parameter(number)));
        let Some(at) = at.filter(|_| total.get(&number) == Some(&1)) else { return false };
        let type_of = |arguments: &[Argument]| {
            let by_name = |one: &&Argument| call.arguments[at].name.as_ref() == Some(&one.name);
            let argument = arguments.iter().find(by_name).or_else(|| arguments.get(at))?;
            Some((Form::of_type(argument.type_oid), Form::of_array(argument.type_oid)))
        };
        let mut types = catalogue.functions_named(&call.name.name).map(|one| type_of(&one.arguments));
        let first = types.next().flatten();
        first.is_some() && types.all(|other| other == first)
    };
    let mut found: Vec<u32> = used.iter().map(|one| one.0).filter(|number| !is_trusted(*number)).collect();
    found.sort_unstable();
    found.dedup();
    found
}
