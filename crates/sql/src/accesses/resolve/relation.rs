//! Relations of a FROM clause: tables, views, WITH queries.

use std::rc::Rc;

use super::facts::ContextId;
use super::query::{Resolver, With, renamed};
use super::scope::RangeKind;
use crate::access::{self, Because};
use crate::accesses::Why;
use crate::accesses::shape::{Root, Shape, WithQuery};
use crate::catalogue::{Catalogue, Relation, TableId};
use crate::name::Name;
use crate::statement::Statement;

/// Views deeper inside of each other are not looked into.
const MAX_VIEW_DEPTH: usize = 8;

/// Nor are more of them in one statement.
const MAX_VIEWS: usize = 64;

impl<'a> Resolver<'a> {
    /// Enters a relation by its name.
    pub(super) fn relation(&mut self, name: &Name, alias: Option<&str>, context: ContextId, is_source: bool) {
        let alias = alias.unwrap_or(&name.name).to_owned();
        let with = self.with.iter().rev().find(|(known, _)| name.schema.is_none() && *known == name.name);
        if let Some((_, with)) = with.filter(|_| is_source) {
            match with.clone() {
                With::Seen(outputs) => {
                    self.enter(alias, RangeKind::Derived { outputs, inside: 0..0 }, context, true);
                }
                With::Once { query, levels, known } => {
                    self.with_query(&query, (levels, known), alias, context);
                }
            }
            return;
        }
        if is_source && let Some(view) = self.only_view(name) {
            self.view(view, alias, context);
            return;
        }
        let ids = match access::relation(self.statement, self.catalogue, name) {
            Ok(ids) if !ids.is_empty() => ids.into_iter().collect(),
            Err(Because::Catalogue) => {
                self.effects.give_up(Why::Catalogue);
                Vec::new()
            }
            _ if self.is_empty_parent(name) => Vec::new(),
            _ => {
                self.effects.give_up(Why::Relation(name.clone()));
                Vec::new()
            }
        };
        self.enter(alias, RangeKind::Tables { ids, is_parent: self.is_parent(name) }, context, is_source);
    }

    /// A WITH query is what it says where it stands, and sees nothing of what stands around its name.
    fn with_query(&mut self, with: &WithQuery, sees: (usize, usize), alias: String, context: ContextId) {
        let begin = self.scope.ranges.len();
        let levels = self.scope.levels.split_off(sees.0.min(self.scope.levels.len()));
        let known = self.with.split_off(sees.1.min(self.with.len()));
        let outputs = self.query(&with.query, Some(context));
        self.with.extend(known);
        self.scope.levels.extend(levels);
        let outputs = Rc::new(renamed(outputs, &with.columns));
        let inside = begin..self.scope.ranges.len();
        self.enter(alias, RangeKind::Derived { outputs, inside }, context, true);
    }

    /// The query of the view that a name stands for, if it can stand for nothing else.
    fn only_view(&self, name: &Name) -> Option<&'a Statement> {
        let catalogue: &'a Catalogue = self.catalogue;
        let only = catalogue.named(name.schema.as_deref(), &name.name).count() == 1;
        let known = access::stands_for_relation(Some(self.statement), catalogue, name);
        let within = self.views < MAX_VIEW_DEPTH && self.expanded < MAX_VIEWS;
        match catalogue.views_named(name).as_slice() {
            [(_, Some([query]))] if only && within && known == Ok(true) => Some(query),
            _ => None,
        }
    }

    /// A view is its query, which sees nothing of what stands around.
    fn view(&mut self, view: &'a Statement, alias: String, context: ContextId) {
        let Some(Shape { root: Root::Query(query), named_once, .. }) = view.shape.as_deref() else {
            self.effects.give_up(Why::Relation(Name::bare(alias)));
            return;
        };
        if let Some(why) = super::unknown_name(view, self.catalogue) {
            self.effects.give_up(why);
        }
        let begin = self.scope.ranges.len();
        let levels = std::mem::take(&mut self.scope.levels);
        let with = std::mem::take(&mut self.with);
        let statement = std::mem::replace(&mut self.statement, view);
        let named_once = std::mem::replace(&mut self.named_once, named_once);
        self.views += 1;
        self.expanded += 1;
        let outputs = Rc::new(self.query(query, Some(context)));
        self.views -= 1;
        self.statement = statement;
        self.named_once = named_once;
        self.with = with;
        self.scope.levels = levels;
        let inside = begin..self.scope.ranges.len();
        self.enter(alias, RangeKind::Derived { outputs, inside }, context, true);
    }

    /// The tables that names stand for.
    pub(super) fn named(&mut self, names: &[Name]) -> Vec<TableId> {
        let mut found = Vec::new();
        for name in names {
            match access::relation(self.statement, self.catalogue, name) {
                Ok(ids) => found.extend(ids),
                Err(_) => self.effects.give_up(Why::Relation(name.clone())),
            }
        }
        found
    }

    pub(super) fn is_parent(&self, name: &Name) -> bool {
        let mut found = self.catalogue.named(name.schema.as_deref(), &name.name);
        found.any(|relation| matches!(relation, Relation::Parent(_)))
    }

    /// Partitioned tables without partitions hold nothing.
    fn is_empty_parent(&self, name: &Name) -> bool {
        let mut found = self.catalogue.named(name.schema.as_deref(), &name.name).peekable();
        found.peek().is_some()
            && found.all(|relation| matches!(relation, Relation::Parent(parent) if parent.leaves.is_empty()))
    }
}
