//! The definitions that a transaction relies on, and those that it replaces itself.
//!
//! Every statement of an update transaction reserves the relations that it uses, shared. A schema change that is known to
//! concern certain relations reserves those alone ([`cluster::claims::definitions`]); any other one reserves everything. So
//! `ALTER TABLE t` waits for transactions that use `t`, they wait for it, and others do not.
//!
//! That is a forecast. When the change has run, the home's own locks say which tables it has changed. If there was any
//! other one, the change claims everything after all. And a schema change may be applied at a transaction's home after its
//! statements were analysed. When the transaction ends, their analysis still holds unless one of those changes concerns a
//! name in the statements ([`cluster::parts::schema_changes`]). Then the transaction may have done anything, and claims
//! everything.
//!
//! Replicas run schema changes in the order in which they committed at home, so a name must mean the same in both orders.
//! The server's own locks guarantee that for the tables that a schema change opens, but not for the types, functions and
//! schemas that it names. So a schema change that may give a name another meaning excludes all others until it commits, by
//! a lock at the anchor.
//!
//! Until a transaction commits, no catalogue knows its new definitions. A statement that uses one of them may do anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::claims::{Claims, Footprint, definitions, is_definitions};
use cluster::event::Reads;
use cluster::ids::{DatabaseId, TableId, Version};
use serde::Deserialize;
use sql::Routing;
use sql::definition::{Redefined, of_relation};

use crate::classify::statement_analysis::{StatementAnalysis, asked_for};

/// So many statements are recognised that were there just before.
const RECENT_MAX: usize = 16;
/// More names than this are not told apart.
const NAMES_MAX: usize = 10_000;

/// Of an update transaction.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// The relations that it has asked for.
    asked: BTreeSet<u64>,
    pub(crate) mentioned: MentionedNames,
    pub(crate) own: OwnChanges,
}

/// The names in the statements of a transaction.
#[derive(Debug, Default)]
pub(crate) struct MentionedNames {
    /// The names, each with the oldest catalogue by which a statement with it was analysed.
    names: BTreeMap<u64, Version>,
    recent: Vec<Arc<Routing>>,
    pub(crate) has_too_many: bool,
}

impl MentionedNames {
    fn add(&mut self, routing: &Arc<Routing>, generation: Version) {
        // A routing belongs to one catalogue.
        if self.recent.iter().any(|one| Arc::ptr_eq(one, routing)) {
            return;
        }
        if self.recent.len() == RECENT_MAX {
            self.recent.remove(0);
        }
        self.recent.push(Arc::clone(routing));
        for name in &routing.uses.mentioned {
            let oldest = self.names.entry(*name).or_insert(generation);
            *oldest = generation.min(*oldest);
        }
        self.has_too_many |= self.names.len() > NAMES_MAX;
    }

    pub(crate) fn by_generation(&self) -> BTreeMap<Version, Vec<u64>> {
        let mut found: BTreeMap<Version, Vec<u64>> = BTreeMap::new();
        for (name, generation) in &self.names {
            found.entry(*generation).or_default().push(*name);
        }
        found
    }
}

/// The definitions that the transaction has replaced itself.
#[derive(Debug, Default)]
pub(crate) struct OwnChanges {
    pub(crate) is_anything: bool,
    pub(crate) names: BTreeSet<u64>,
    /// The names of relations that it has made.
    pub(crate) made: BTreeSet<u64>,
    /// The tables that it has made, or claims as a whole.
    pub(crate) tables: BTreeSet<TableId>,
}

impl OwnChanges {
    pub(crate) fn concern(&self, analysis: &StatementAnalysis) -> bool {
        let mentions =
            |routing: &Arc<Routing>| routing.uses.mentioned.iter().any(|name| self.names.contains(name));
        self.is_anything || (!self.names.is_empty() && analysis.routings.iter().any(mentions))
    }

    pub(crate) fn has(&self, changed: &Changed, database: DatabaseId) -> bool {
        match changed.id {
            Some(id) => self.tables.contains(&database.table(id)),
            None => self.made.contains(&of_relation(&changed.name)),
        }
    }
}

/// One of the relations that `onecopy.changed` tells.
#[derive(Debug, Deserialize)]
pub(crate) struct Changed {
    name: String,
    /// A table under capture has a number.
    id: Option<u32>,
}

/// The report of a server on a schema change that has run.
#[derive(Debug)]
pub(crate) struct SchemaChangeReport {
    /// The relations that are locked against others.
    pub(crate) changed: Vec<u8>,
    /// The numbers of new objects.
    pub(crate) numbers: Vec<u8>,
}

impl Definitions {
    /// Removes definitions that the transaction has reserved already from those that it is about to reserve.
    pub(crate) fn leave_out_known(&self, writes: &mut Claims) {
        writes.shared.retain(|(table, name)| !is_definitions(*table) || !self.asked.contains(name));
    }

    /// The transaction has reserved these names.
    pub(crate) fn note_asked(&mut self, names: Vec<u64>) {
        self.asked.extend(names);
    }

    /// A statement is about to run.
    pub(crate) fn begin_statement(&mut self, analysis: &StatementAnalysis) {
        for routing in &analysis.routings {
            self.mentioned.add(routing, analysis.generation());
        }
    }
}

/// The names of relations among the definitions to reserve.
pub(crate) fn names_in(writes: &Claims) -> Vec<u64> {
    let names = writes.shared.iter().filter(|(table, _)| is_definitions(*table));
    names.map(|(_, name)| *name).collect()
}

/// The same, as they are read.
pub(crate) fn read(analysis: &StatementAnalysis) -> Reads {
    Reads::Rows(
        Footprint {
            rows: asked_for(&analysis.routings, analysis.catalogue.database()).collect(),
            ..Footprint::default()
        }
        .into(),
    )
}

/// The reservation and the claims of a schema change.
pub(crate) fn claims_of(redefined: Option<&Redefined>, database: DatabaseId) -> Claims {
    let Some(Redefined { tables, names, .. }) = redefined else { return Claims::everything() };
    let rows = names.iter().map(|name| (definitions(database), *name)).collect();
    Claims { rows, tables: tables.clone(), ..Claims::default() }
}
