//! The variables of a body under one call: which values they may have.
//!
//! A parameter that is never assigned has the call's argument. Another variable may have every value that something in
//! the body gives it, whichever comes last: its first value, those assigned to it, the elements of an array that a loop
//! walks through. Variables of one name, in blocks within each other, are taken for one. A variable is not known if one
//! of these values is not ([`crate::body`] says which values there are).
//!
//! Invariant: whenever a statement of the body runs, the value of a known variable is among those of its operand.

use std::collections::{BTreeMap, BTreeSet};

use crate::accesses::bind::{MAX_LIST, Operand, Place};
use crate::accesses::guard::{Guard, Test};
use crate::accesses::shape::Call;
use crate::accesses::value::Form;
use crate::body::{Flow, Given, Source};
use crate::catalogue::{Argument, ArgumentMode, Catalogue, Function};

/// The known values of variables, by name.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Variables {
    /// How many calls are around the body.
    depth: usize,
    by_name: BTreeMap<String, Option<Known>>,
    /// Names that may stand before that of a variable: those of the procedure and of blocks, and others.
    labels: BTreeSet<String>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Known {
    Value(Operand),
    /// An array: a list, or what [`Operand::Array`] holds.
    Array(Operand),
}

/// A body with what its variables come from.
pub(super) struct Body<'a> {
    pub(super) name: &'a str,
    pub(super) arguments: &'a [Argument],
    pub(super) flow: &'a Flow,
}

impl Variables {
    /// Those of a body, by the call. `outer` are those of the body that the call itself stands in.
    pub(super) fn of(body: &Body<'_>, call: &Call, outer: Option<&Self>, catalogue: &Catalogue) -> Self {
        let flow = body.flow;
        let labels = flow.loose().cloned().chain([body.name.to_owned()]).collect();
        let depth = outer.map_or(0, |outer| outer.depth + 1);
        let mut found = Self { depth, by_name: BTreeMap::new(), labels };
        let returns = |one: &Function| {
            one.arguments.iter().any(|one| matches!(one.mode, ArgumentMode::Out | ArgumentMode::InOut))
        };
        let passed = flow.passed.iter().filter(|one| {
            let mut overloads = catalogue.functions_named(&one.procedure).peekable();
            overloads.peek().is_none() || overloads.any(returns)
        });
        let assigned = passed.flat_map(|one| one.names.iter().map(String::as_str)).collect();
        let parameters = parameters(body.arguments, call, outer);
        let open = Vec::new();
        let mut builder = Builder { body, parameters: &parameters, assigned, known: BTreeMap::new(), open };
        for name in parameters.keys().chain(flow.given.keys()) {
            let known = builder.variable(name);
            found.by_name.insert(name.clone(), known);
        }
        found
    }

    /// How many calls are around the body.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// Whether a name with another one before it may be a field of a variable, or a variable of a block.
    pub(super) fn has_qualified(&self, before: &str, name: Option<&str>) -> bool {
        self.has(before) || (self.labels.contains(before) && name.is_none_or(|name| self.has(name)))
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.by_name.contains_key(name)
    }

    /// The operand with values in place of names; `None` if one is not known. `is_other` says of a name that it may mean
    /// something else.
    pub(super) fn known(&self, operand: &Operand, is_other: &dyn Fn(&str) -> bool) -> Option<Operand> {
        match operand {
            Operand::Variable(name) => match self.named(name, is_other)? {
                Known::Value(value) => Some(value.clone()),
                Known::Array(_) => None,
            },
            Operand::Array(array) => match &**array {
                Operand::Variable(name) => self.array(name, is_other).map(as_array),
                _ => Some(operand.clone()),
            },
            Operand::Element { array, place: Place::Named(place) } => {
                let Operand::Variable(name) = &**array else { return None };
                if is_other(place) || !self.has(place) {
                    return None;
                }
                let place = Place::Variable { depth: self.depth, name: place.clone() };
                Some(Operand::Element { array: Box::new(self.array(name, is_other)?.clone()), place })
            }
            Operand::Cast(inner, form) => Some(cast(self.known(inner, is_other)?, *form)),
            Operand::List(all) => {
                let all: Option<Vec<Operand>> = all.iter().map(|one| self.known(one, is_other)).collect();
                Some(Operand::List(all?))
            }
            other => Some(other.clone()),
        }
    }

    /// Guards with values in place of names.
    pub(super) fn guards(&self, guards: &[Guard]) -> Vec<Guard> {
        let known = |operand: &Operand| self.known(operand, &|_| false).filter(|operand| !operand.is_list());
        let guard = |guard: &Guard| Guard { test: guard.test.map(&known), if_true: guard.if_true };
        guards.iter().map(guard).filter(|guard| guard.test != Test::Unknown).collect()
    }

    fn named(&self, name: &str, is_other: &dyn Fn(&str) -> bool) -> Option<&Known> {
        self.by_name.get(name)?.as_ref().filter(|_| !is_other(name))
    }

    fn array(&self, name: &str, is_other: &dyn Fn(&str) -> bool) -> Option<&Operand> {
        match self.named(name, is_other)? {
            Known::Array(array) => Some(array),
            Known::Value(_) => None,
        }
    }
}

/// One of the elements of an array.
fn as_array(array: &Operand) -> Operand {
    match array {
        list @ Operand::List(_) => list.clone(),
        array => Operand::Array(Box::new(array.clone())),
    }
}

/// A value as one of a type, or each of several.
fn cast(operand: Operand, form: Form) -> Operand {
    match operand {
        Operand::List(all) => Operand::List(all.into_iter().map(|one| cast(one, form)).collect()),
        Operand::When(guards, inner) => Operand::When(guards, Box::new(cast(*inner, form))),
        Operand::Array(inner) => match *inner {
            Operand::CastArray(_, own) if own == form => Operand::Array(inner),
            Operand::CastArray(..) => Operand::Unknown,
            _ => Operand::Array(Box::new(Operand::CastArray(inner, form))),
        },
        Operand::Cast(inner, own) if own == form => Operand::Cast(inner, own),
        Operand::Element { .. } => Operand::Unknown,
        other => Operand::Cast(Box::new(other), form),
    }
}

/// The parameters by their names, and by `$1` and the like, as the call gives them.
fn parameters(
    arguments: &[Argument],
    call: &Call,
    outer: Option<&Variables>,
) -> BTreeMap<String, Option<Known>> {
    let mut found: BTreeMap<String, Option<Known>> = BTreeMap::new();
    let is_variadic = call.variadic || arguments.iter().any(|one| one.mode == ArgumentMode::Variadic);
    let taken = arguments.iter().filter(|one| one.mode != ArgumentMode::Table);
    for (at, parameter) in taken.enumerate() {
        let by_name = call.arguments.iter().find(|one| one.name.as_ref() == Some(&parameter.name));
        let by_place = call.arguments.get(at).filter(|one| one.name.is_none());
        let argument = by_name.or(by_place).filter(|_| !is_variadic && parameter.mode != ArgumentMode::Out);
        let known = argument.and_then(|argument| {
            let value = |operand: &Operand| match outer {
                Some(outer) => outer.known(operand, &|_| false),
                None => Some(operand.clone()),
            };
            if let Some(form) = Form::of_type(parameter.type_oid) {
                return value(argument.value.as_ref()?).map(|operand| Known::Value(cast(operand, form)));
            }
            let form = Form::of_array(parameter.type_oid)?;
            match value(argument.array.as_ref()?)? {
                list @ Operand::List(_) => Some(Known::Array(cast(list, form))),
                Operand::Array(array) => Some(Known::Array(Operand::CastArray(array, form))),
                _ => None,
            }
        });
        for name in [parameter.name.clone(), format!("${}", at + 1)] {
            // Two parameters of one name cannot be told apart.
            let entry = found.entry(name).or_insert_with(|| known.clone());
            if *entry != known {
                *entry = None;
            }
        }
    }
    found.remove("");
    found
}

/// Finds the values of variables, each from those of others.
struct Builder<'a> {
    body: &'a Body<'a>,
    /// Variables that something outside of the body may assign.
    assigned: BTreeSet<&'a str>,
    parameters: &'a BTreeMap<String, Option<Known>>,
    known: BTreeMap<String, Option<Known>>,
    /// Those that are being looked at: one that gets its own value is not known.
    open: Vec<String>,
}

impl Builder<'_> {
    fn variable(&mut self, name: &str) -> Option<Known> {
        if let Some(known) = self.known.get(name) {
            return known.clone();
        }
        if self.open.iter().any(|open| open == name) || self.open.len() > MAX_LIST {
            return None;
        }
        self.open.push(name.to_owned());
        let known = if self.is_loose(name) { None } else { self.values(name) };
        self.open.pop();
        self.known.insert(name.to_owned(), known.clone());
        known
    }

    /// Whether it may have other values than those that it is given, by this name or, of a parameter, by another one.
    fn is_loose(&self, name: &str) -> bool {
        let flow = self.body.flow;
        let is_loose = |name: &str| flow.is_loose(name) || self.assigned.contains(name);
        let mut taken = self.body.arguments.iter().filter(|one| one.mode != ArgumentMode::Table).zip(1..);
        let other = taken.find_map(|(argument, number)| {
            let by_number = format!("${number}");
            match name {
                name if name == argument.name => Some(by_number),
                name if name == by_number => Some(argument.name.clone()),
                _ => None,
            }
        });
        is_loose(name) || other.is_some_and(|other| is_loose(&other) || flow.given.contains_key(&other))
    }

    fn values(&mut self, name: &str) -> Option<Known> {
        let flow = self.body.flow;
        let given = flow.given.get(name).map_or(&[][..], Vec::as_slice);
        let parameter = self.parameters.get(name);
        match (parameter, given) {
            (Some(known), []) => return known.clone(),
            (None, []) => return None,
            _ => {}
        }
        let mut all = Vec::with_capacity(given.len() + 1);
        match parameter {
            Some(Some(Known::Value(value))) => all.push(value.clone()),
            Some(_) => return None,
            None => {}
        }
        for Given { guards, source, form } in given {
            let value = self.source(source).map(|operand| match form {
                Some(form) => cast(operand, *form),
                None => Operand::Unknown,
            });
            let value = value.unwrap_or(Operand::Unknown);
            let guards = self.guards(guards);
            if guards.is_empty() {
                all.push(value);
            } else {
                all.push(Operand::When(guards, Box::new(value)));
            }
        }
        all.dedup();
        match <[Operand; 1]>::try_from(all) {
            Ok([Operand::Unknown]) => None,
            Ok([one]) => Some(Known::Value(one)),
            Err(all) if all.contains(&Operand::Unknown) || all.len() > MAX_LIST => None,
            Err(all) => Some(Known::Value(Operand::List(all))),
        }
    }

    fn source(&mut self, source: &Source) -> Option<Operand> {
        match source {
            Source::Value(operand) => match operand {
                // The place may be another one by the time that the value is used.
                Operand::Element { array, .. } => {
                    let Operand::Variable(name) = &**array else { return None };
                    let array = self.array(name)?;
                    Some(Operand::List(vec![Operand::Null, as_array(&array)]))
                }
                operand => self.substituted(operand),
            },
            Source::ElementOf(array) => {
                let array = match array {
                    Operand::Array(array) => match &**array {
                        Operand::Variable(name) => self.array(name)?,
                        _ => return None,
                    },
                    _ => return None,
                };
                Some(Operand::List(vec![Operand::Null, as_array(&array)]))
            }
            Source::Unknown => None,
        }
    }

    fn array(&mut self, name: &str) -> Option<Operand> {
        match self.variable(name)? {
            Known::Array(array) => Some(array),
            Known::Value(_) => None,
        }
    }

    /// An operand with the values of scalar variables in it.
    fn substituted(&mut self, operand: &Operand) -> Option<Operand> {
        match operand {
            Operand::Variable(name) => match self.variable(name)? {
                Known::Value(value) => Some(value),
                Known::Array(_) => None,
            },
            Operand::Cast(inner, form) => Some(cast(self.substituted(inner)?, *form)),
            Operand::List(all) => {
                let all: Option<Vec<Operand>> = all.iter().map(|one| self.substituted(one)).collect();
                Some(Operand::List(all?))
            }
            Operand::Array(_) | Operand::Element { .. } | Operand::When(..) | Operand::CastArray(..) => None,
            other => Some(other.clone()),
        }
    }

    fn guards(&mut self, guards: &[Guard]) -> Vec<Guard> {
        let this = std::cell::RefCell::new(self);
        let known = |operand: &Operand| {
            let value = this.borrow_mut().substituted(operand);
            value.filter(|operand| !operand.is_list())
        };
        let guard = |guard: &Guard| Guard { test: guard.test.map(&known), if_true: guard.if_true };
        guards.iter().map(guard).filter(|guard| guard.test != Test::Unknown).collect()
    }
}
