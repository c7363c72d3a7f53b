//! The state of one walk through a tree, and its end: was everything visited?
//!
//! Every node that the walk understands is counted when it is entered. Afterwards a count that goes through all fields
//! of all nodes, whatever they mean, says how many there are. A difference means that something was passed over.

use std::collections::BTreeSet;

use pg_query::protobuf::{Node, ParamRef};
use serde::Serialize;

use super::kind::Kind;
use super::rewrite::{Evaluate, Fragment, Piece, Rewrite};
use super::scope::{Found, Scope, Sight};
use super::tokens::{Place, Tokens};
use super::{Determinism, Subject, Why};
use crate::ast_scan::AstScan;
use crate::builtin;
use crate::catalogue::{Catalogue, Relation, Table, TableId};
use crate::name::Name;

/// More reasons are not told.
const MAX_REASONS: usize = 16;

/// More places are not rewritten.
const MAX_PLACES: usize = 4096;

/// One walk.
pub(super) struct Walk<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) subject: Subject<'a>,
    tokens: Option<Tokens<'a>>,
    reasons: Vec<Why>,
    pieces: Vec<Piece>,
    pub(super) evaluate: Vec<Evaluate>,
    visited: usize,
    highest_parameter: usize,
    /// Queries in sight, the innermost last.
    pub(super) scopes: Vec<Scope<'a>>,
    /// Names of WITH queries in sight.
    pub(super) with_names: Vec<String>,
    /// Tables that parts of the statement change.
    pub(super) changed: BTreeSet<TableId>,
    /// The visited expression is evaluated at most once.
    pub(super) once: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(subject: &Subject<'a>, catalogue: &'a Catalogue) -> Self {
        let mut walk = Self {
            catalogue,
            subject: *subject,
            tokens: None,
            reasons: Vec::new(),
            pieces: Vec::new(),
            evaluate: Vec::new(),
            visited: 0,
            highest_parameter: 0,
            scopes: Vec::new(),
            with_names: Vec::new(),
            changed: BTreeSet::new(),
            once: false,
        };
        if catalogue.has_user_casts() {
            walk.note(Why::UserCasts);
        }
        walk
    }

    /// The answer, when the whole of a tree should have been visited.
    pub(super) fn verdict<T: Serialize + ?Sized>(mut self, tree: &T) -> Determinism {
        if self.visited != AstScan::of(tree).nodes {
            self.note(Why::NotUnderstood("a part of the statement"));
        }
        if !self.reasons.is_empty() {
            return Determinism::No(self.reasons);
        }
        if self.pieces.is_empty() {
            return Determinism::Deterministic;
        }
        let Self { subject, pieces, evaluate, highest_parameter, .. } = self;
        match Rewrite::new(subject.text, pieces, evaluate, highest_parameter) {
            Some(rewrite) => Determinism::AfterRewrite(rewrite),
            None => Determinism::No(vec![Why::NotUnderstood("a call within a call")]),
        }
    }

    pub(super) fn note(&mut self, why: Why) {
        if self.reasons.len() < MAX_REASONS && !self.reasons.contains(&why) {
            self.reasons.push(why);
        }
    }

    /// Counts a node as visited.
    pub(super) fn count(&mut self) {
        self.visited += 1;
    }

    pub(super) fn parameter(&mut self, parameter: ParamRef) {
        let number = usize::try_from(parameter.number).unwrap_or(0);
        self.highest_parameter = self.highest_parameter.max(number);
    }

    /// The type that the client declared for a parameter.
    pub(super) fn declared(&self, parameter: ParamRef) -> Option<u32> {
        let index = usize::try_from(parameter.number).ok()?.checked_sub(1)?;
        self.subject.parameter_types.get(index).copied().filter(|&oid| oid != 0)
    }

    /// Counts all nodes of a part as visited that says nothing about effects.
    pub(super) fn pass_over<T: Serialize + ?Sized>(&mut self, part: &T) {
        self.visited += AstScan::of(part).nodes;
    }

    /// Nodes of a part that was passed over are going to be visited after all.
    pub(super) fn take_back(&mut self, part: &Node) {
        self.visited -= AstScan::of(part).nodes;
    }

    /// Whether a part of the text has its replacement: a multiple assignment holds its source once for each column.
    pub(super) fn is_replaced_at(&self, place: Place) -> bool {
        place.start < place.end && self.pieces.iter().any(|piece| piece.place == place)
    }

    /// Puts fragments in place of a part of the text.
    pub(super) fn replace(&mut self, place: Place, fragments: Vec<Fragment>) {
        if self.is_replaced_at(place) {
            return;
        }
        if self.pieces.len() >= MAX_PLACES {
            self.note(Why::TooManyPlaces);
        } else {
            self.pieces.push(Piece { place, fragments });
        }
    }

    pub(super) fn tokens(&mut self) -> Option<&Tokens<'a>> {
        if self.tokens.is_none() {
            self.tokens = Tokens::of(self.subject.text);
        }
        self.tokens.as_ref()
    }

    /// The meaning of a column reference, searched from the innermost query outwards.
    pub(super) fn column(&self, fields: &[String]) -> Option<Found<'a>> {
        for scope in self.scopes.iter().rev() {
            match scope.column(fields) {
                Sight::Column(found) => return Some(found),
                Sight::Unclear => return None,
                Sight::Nothing => {}
            }
        }
        None
    }

    /// Looks at a relation that is read, and brings it into sight.
    pub(super) fn relation(&mut self, name: &Name) -> Option<&'a Table> {
        if name.schema.is_none() && self.with_names.contains(&name.name) {
            return None;
        }
        let catalogue = self.catalogue;
        let known: Vec<Relation<'a>> = catalogue.named(name.schema.as_deref(), &name.name).collect();
        let system = match &name.schema {
            Some(schema) => builtin::is_system_schema(schema),
            None => builtin::is_system_relation(&name.name),
        };
        if system {
            self.note(Why::Catalogue(name.clone()));
            return None;
        }
        let Some(tables) = catalogue.tables_named(name) else {
            self.note(Why::Relation(name.clone()));
            return None;
        };
        for id in tables {
            match catalogue.table(id) {
                Some(table) if table.row_security => self.note(Why::Policies(table.name.clone())),
                Some(table) if table.user_types => self.note(Why::UserTypes(table.name.clone())),
                Some(_) => {}
                None => self.note(Why::Relation(name.clone())),
            }
        }
        match known.as_slice() {
            [Relation::Table(table)] => Some(table),
            _ => None,
        }
    }

    /// The default of a column.
    pub(super) fn default_value(&mut self, value: &Node) {
        self.scopes.push(Scope::default());
        self.once = true;
        self.expression(value);
        self.once = false;
        self.scopes.pop();
    }

    /// Whether equal values of all these expressions look the same.
    pub(super) fn all_exact<'n>(&self, nodes: impl IntoIterator<Item = &'n Node>) -> bool {
        nodes.into_iter().all(|node| is_plain_constant(node) || self.kind(node).is_exact())
    }

    /// Whether a kind, or the kind of a parameter's declared type, compares with a column by the column's own equality.
    pub(super) fn compares_plainly(&self, column: Found<'_>, node: &Node) -> bool {
        use pg_query::NodeEnum;
        match &node.node {
            Some(NodeEnum::AConst(_)) => true,
            Some(NodeEnum::ParamRef(parameter)) => match self.declared(*parameter) {
                None => true,
                Some(oid) => oid == column.of.type_oid || (is_integer(oid) && is_integer(column.of.type_oid)),
            },
            _ => {
                let (own, other) = (column.kind(), self.kind(node));
                own == other && matches!(own, Kind::Integer | Kind::Text | Kind::Varchar)
                    || self.same_type(column, node)
            }
        }
    }

    /// Whether an expression is a column of exactly the same type.
    fn same_type(&self, column: Found<'_>, node: &Node) -> bool {
        use pg_query::NodeEnum;
        let Some(NodeEnum::ColumnRef(other)) = &node.node else { return false };
        let other = self.column(&crate::ast_scan::names_in(&other.fields));
        other.is_some_and(|other| other.of.type_oid == column.of.type_oid)
    }
}

fn is_integer(oid: u32) -> bool {
    matches!(oid, 20 | 21 | 23)
}

/// A constant or a parameter.
pub(super) fn is_plain_constant(node: &Node) -> bool {
    matches!(node.node, Some(pg_query::NodeEnum::AConst(_) | pg_query::NodeEnum::ParamRef(_)))
}
