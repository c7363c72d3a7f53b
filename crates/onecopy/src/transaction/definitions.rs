//! The definitions that a transaction relies on, and those that it replaces itself.
//!
//! Every statement of an update transaction reserves the relations that it uses, shared. A schema change with a known
//! set of relations reserves those alone ([`cluster::claims::definitions`]). Any other schema change reserves
//! everything. So `ALTER TABLE t` and transactions that use `t` wait for each other, and other transactions do not.
//!
//! The reservation is a forecast. After the change has run, the home's own locks show which tables it has changed. If
//! there is an unexpected one, the change claims everything after all. A schema change may also be applied at a
//! transaction's home after the statements of the transaction were analysed. At the end of the transaction that
//! analysis still holds, unless such a change concerns a name in the statements ([`cluster::parts::schema_changes`]).
//! If one does, the transaction may have had any effect, and claims everything.
//!
//! Replicas run schema changes in the order in which they committed at home, so a name must mean the same in both
//! orders. The server's own locks guarantee that for the tables that a schema change opens. They do not for the types,
//! functions and schemas that it names. So a schema change that may give a name another meaning takes a lock at the
//! anchor, and excludes all others until it commits.
//!
//! Until a transaction commits, no catalogue knows its new definitions. A statement that uses one may have any effect.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::claims::{Claims, Footprint, definitions, is_definitions};
use cluster::event::Reads;
use cluster::ids::{DatabaseId, TableId, Version};
use serde::Deserialize;
use sql::Routing;
use sql::definition::{Redefined, of_relation};

use crate::classify::statement_analysis::{StatementAnalysis, asked_for};

/// The number of latest statements that are recognised when they run again.
const RECENT_MAX: usize = 16;
/// Beyond this number, names are not told apart.
const NAMES_MAX: usize = 10_000;

/// The definitions that an update transaction uses and replaces.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// The relations that the transaction has reserved.
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
    /// The names of relations that the transaction has made.
    pub(crate) made: BTreeSet<u64>,
    /// The tables that the transaction has made, or claims as a whole.
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

/// A relation in the answer of `onecopy.changed`.
#[derive(Debug, Deserialize)]
pub(crate) struct Changed {
    name: String,
    /// The number of a table under capture.
    id: Option<u32>,
}

/// The report of a server on a schema change that has run.
#[derive(Debug)]
pub(crate) struct SchemaChangeReport {
    /// The relations that the change has locked against other transactions.
    pub(crate) changed: Vec<u8>,
    /// The numbers of new objects.
    pub(crate) numbers: Vec<u8>,
}

impl Definitions {
    /// Removes definitions that the transaction has reserved already from those that it is about to reserve.
    pub(crate) fn leave_out_known(&self, writes: &mut Claims) {
        writes.shared.retain(|(table, name)| !is_definitions(*table) || !self.asked.contains(name));
    }

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

/// The names of relations among the claims.
pub(crate) fn names_in(writes: &Claims) -> Vec<u64> {
    let names = writes.shared.iter().filter(|(table, _)| is_definitions(*table));
    names.map(|(_, name)| *name).collect()
}

/// The definitions that statements use, as reads.
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
