//! The table that a statement changes, and those that foreign keys' actions change with it.

use std::collections::BTreeSet;

use pg_query::protobuf::RangeVar;

use super::Why;
use super::walk::Walk;
use crate::catalogue::{Action, ColumnDefault, Reference, Relation, Table, TableId};
use crate::classify::relation_name;

/// The change to rows of a table.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    Insert,
    /// These columns get new values.
    Update(BTreeSet<usize>),
    Delete,
    /// All rows go, those of referencing tables too if so.
    Truncate {
        cascade: bool,
    },
}

impl<'a> Walk<'a> {
    /// Looks at the target of a change; `None` if it is not one known table.
    pub(super) fn change_target(&mut self, relation: &RangeVar, event: &Event) -> Option<&'a Table> {
        let name = relation_name(relation);
        let catalogue = self.catalogue;
        let found: Vec<Relation<'a>> = catalogue.named(name.schema.as_deref(), &name.name).collect();
        let [Relation::Table(table)] = found.as_slice() else {
            self.note(Why::Relation(name));
            return None;
        };
        if let Err(why) = settled(table) {
            self.note(why);
        }
        if table.user_types {
            self.note(Why::UserTypes(table.name.clone()));
        }
        if !self.changed.insert(table.id) {
            self.note(Why::SameTable(table.name.clone()));
        }
        self.actions(table, event, &mut BTreeSet::new());
        Some(table)
    }

    /// Looks at what foreign keys do to other tables when rows of this one change.
    pub(super) fn actions(&mut self, table: &Table, event: &Event, seen: &mut BTreeSet<(TableId, Event)>) {
        if !seen.insert((table.id, event.clone())) {
            return;
        }
        for (child, reference) in self.catalogue.referenced_by(table.id) {
            let Some(effect) = effect(reference, event) else { continue };
            let sound = settled(child).and_then(|()| filled(child, reference, event, &effect));
            if let Err(why) = sound {
                self.note(Why::Action(child.name.clone(), Box::new(why)));
            }
            self.actions(child, &effect, seen);
        }
    }
}

/// The change to the referencing rows, unless there is an error.
fn effect(reference: &Reference, event: &Event) -> Option<Event> {
    let action = match event {
        Event::Insert | Event::Truncate { cascade: false } => return None,
        Event::Truncate { cascade: true } => return Some(event.clone()),
        Event::Delete => reference.on_delete,
        Event::Update(columns) => {
            let concerned = reference.parent_columns.iter().any(|column| columns.contains(column));
            if concerned { reference.on_update } else { return None }
        }
    };
    let referencing = || reference.columns.iter().copied().collect();
    match action {
        Action::NoAction | Action::Restrict => None,
        Action::Cascade if *event == Event::Delete => Some(Event::Delete),
        Action::Cascade | Action::SetNull | Action::SetDefault => Some(Event::Update(referencing())),
    }
}

/// Whether nothing but the server's own code runs when rows of a table change.
fn settled(table: &Table) -> Result<(), Why> {
    if table.user_triggers {
        Err(Why::Triggers(table.name.clone()))
    } else if table.row_security {
        Err(Why::Policies(table.name.clone()))
    } else {
        Ok(())
    }
}

/// Whether the values that referencing rows get are the same everywhere, and collide with no other row.
fn filled(child: &Table, reference: &Reference, event: &Event, effect: &Event) -> Result<(), Why> {
    let Event::Update(columns) = effect else { return Ok(()) };
    let action = if *event == Event::Delete { reference.on_delete } else { reference.on_update };
    if action == Action::SetDefault {
        for &column in &reference.columns {
            let column = &child.columns[column];
            if !matches!(column.default, ColumnDefault::None | ColumnDefault::Constant(_)) {
                let why = Why::NotUnderstood("an expression");
                return Err(Why::Default(column.name.clone(), Box::new(why)));
            }
        }
    }
    key_order(child, columns)
}

/// Whether new values in these columns of several rows could be in each other's way, depending on the rows' order.
pub(super) fn key_order(table: &Table, columns: &BTreeSet<usize>) -> Result<(), Why> {
    let at_once = table.keys.iter().filter(|key| !key.deferrable);
    let concerned = at_once.flat_map(|key| &key.columns).any(|column| columns.contains(column));
    if concerned { Err(Why::KeyOrder(table.name.clone())) } else { Ok(()) }
}
