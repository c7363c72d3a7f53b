//! What a transaction relies on being defined as it is, and what it defines anew itself.
//!
//! Every statement of an update transaction asks for the relations that it uses, shared; a schema change of which it is known
//! what it concerns asks for that alone ([`cluster::claims::DEFINITIONS`]). So it waits for the transactions that use what it
//! concerns, they wait for it, and others do not. Any other schema change asks for everything.
//!
//! That is a forecast. When the change has run, the home's own locks say which tables it has changed: if it was any other one,
//! it claims everything after all. And a schema change may be applied at a transaction's home after its statements were judged.
//! When the transaction ends, what was concluded still holds unless one of those changes concerns what the statements mention
//! ([`cluster::parts::schema_changes`]). Then the transaction may have done anything, and claims everything.
//!
//! Replicas run schema changes in the order in which they committed at home, so a name must mean the same in both orders. The
//! server's own locks see to that for the tables that a schema change opens, but not for the types, functions and schemas that
//! it names. So one that may change what a name means excludes all others until it commits, by a lock at the anchor.
//!
//! No catalogue knows what a transaction has defined anew before it commits. A statement that uses any of that may do anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cluster::claims::{ANY_DEFINITION, Claims, DEFINITIONS, Footprint};
use cluster::event::Reads;
use cluster::ids::{TableId, Version};
use serde::Deserialize;
use sql::definition::{Redefined, of_relation};
use sql::{Catalogue, DdlFacts, Isolation, Naming, Routing, RowEffect, Verb};

use super::broken;
use crate::classify::statement_analysis::{Demand, Judged};
use crate::error::Fault;
use crate::propagate::table_rewrite::array;
use crate::session::{Session, Transaction};

/// So many statements are recognised that were there just before.
const RECENT_MAX: usize = 16;
/// The advisory lock that open schema changes share, and that one which may change what names mean has alone.
const NAMING_LOCK: (i32, i32) = (0x6f6e_6563, 1);
/// More names than this are not told apart.
const NAMES_MAX: usize = 10_000;

/// Of an update transaction.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// The relations that it has asked for.
    asked: BTreeSet<u64>,
    mentioned: Mentioned,
    own: OwnChanges,
}

/// What the statements of a transaction mention.
#[derive(Debug, Default)]
struct Mentioned {
    /// The names, each with the oldest catalogue by which a statement with it was judged.
    names: BTreeMap<u64, Version>,
    recent: Vec<Arc<Routing>>,
    has_too_many: bool,
}

impl Mentioned {
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

    fn by_generation(&self) -> BTreeMap<Version, Vec<u64>> {
        let mut found: BTreeMap<Version, Vec<u64>> = BTreeMap::new();
        for (name, generation) in &self.names {
            found.entry(*generation).or_default().push(*name);
        }
        found
    }
}

/// What the transaction has defined anew itself.
#[derive(Debug, Default)]
struct OwnChanges {
    is_anything: bool,
    names: BTreeSet<u64>,
    /// The names of relations that it has made.
    made: BTreeSet<u64>,
    /// The tables that it has made, or claims as a whole.
    tables: BTreeSet<TableId>,
}

impl OwnChanges {
    fn concern(&self, judged: &Judged) -> bool {
        let mentions =
            |routing: &Arc<Routing>| routing.uses.mentioned.iter().any(|name| self.names.contains(name));
        self.is_anything || (!self.names.is_empty() && judged.routings.iter().any(mentions))
    }

    fn has(&self, changed: &Changed) -> bool {
        match changed.id {
            Some(id) => self.tables.contains(&TableId(id)),
            None => self.made.contains(&of_relation(&changed.name)),
        }
    }
}

/// One of the relations that `onecopy.changed` tells.
#[derive(Debug, Deserialize)]
struct Changed {
    name: String,
    /// A table under capture has a number.
    id: Option<u32>,
}

/// What the server says of a schema change that has run.
#[derive(Debug)]
pub(crate) struct Told {
    /// The relations that are locked against others.
    pub(crate) changed: Vec<u8>,
    /// The numbers of new objects.
    pub(crate) numbers: Vec<u8>,
}

impl Definitions {
    /// Takes out of what is to be asked for what the transaction has.
    pub(crate) fn leave_out_known(&self, writes: &mut Claims) {
        writes.shared.retain(|(table, name)| *table != DEFINITIONS || !self.asked.contains(name));
    }

    /// It has what was asked for.
    pub(crate) fn note_asked(&mut self, names: Vec<u64>) {
        self.asked.extend(names);
    }

    /// A statement is about to run.
    pub(crate) fn begin_statement(&mut self, judged: &Judged) {
        for routing in &judged.routings {
            self.mentioned.add(routing, judged.generation);
        }
    }
}

/// The names of relations among what is asked for.
pub(crate) fn names_in(writes: &Claims) -> Vec<u64> {
    let names = writes.shared.iter().filter(|(table, _)| *table == DEFINITIONS);
    names.map(|(_, name)| *name).collect()
}

/// The relations that statements use, as they are asked for.
pub(crate) fn asked_for(routings: &[Arc<Routing>]) -> impl Iterator<Item = (TableId, u64)> + '_ {
    routings.iter().flat_map(|routing| &routing.uses.relations).map(|name| (DEFINITIONS, *name))
}

/// The same, as they are read.
pub(crate) fn read(judged: &Judged) -> Reads {
    Reads::Rows(Footprint { rows: asked_for(&judged.routings).collect(), ..Footprint::default() }.into())
}

/// What a schema change asks for, and claims.
pub(crate) fn claims_of(redefined: Option<&Redefined>) -> Claims {
    let Some(Redefined { tables, names, .. }) = redefined else { return Claims::everything() };
    let rows = names.iter().map(|name| (DEFINITIONS, *name)).collect();
    Claims { rows, tables: tables.clone(), ..Claims::default() }
}

impl Demand {
    /// A schema change.
    pub(crate) fn schema_change(statement: &Arc<sql::Statement>) -> Self {
        Self { is_schema_change: true, ..Self::one(statement) }
    }

    /// What a schema change asks for.
    pub(crate) fn redefines(&self, session: &Session, catalogue: &Catalogue) -> Option<Claims> {
        let statement = self.statements.first().filter(|_| self.is_schema_change)?;
        let Verb::Ddl(facts) = &statement.verb else { return None };
        Some(claims_of(session.redefined(facts, catalogue).as_ref()))
    }
}

impl Session {
    /// What a schema change of the open or coming transaction defines anew; `None` for anything. What a SERIALIZABLE
    /// transaction reads for it is not known.
    fn redefined(&self, facts: &DdlFacts, catalogue: &Catalogue) -> Option<Redefined> {
        let nothing = BTreeSet::new();
        let (isolation, own) = match &self.transaction {
            Transaction::Begun(options) => (self.resolve(*options).isolation, &nothing),
            Transaction::Update(update) => (update.options.isolation, &update.definitions.own.made),
            _ => (None, &nothing),
        };
        let is_serializable = isolation == Some(Isolation::Serializable);
        let is_known = matches!(facts.rows, RowEffect::Same | RowEffect::Made(_))
            && !is_serializable
            && !self.hub().is_outdated(Version(catalogue.generation()));
        facts.scope.redefined(catalogue, own).filter(|_| is_known)
    }

    /// Whether the open transaction itself has defined anew what these statements use.
    pub(crate) fn has_redefined(&self, judged: &Judged) -> bool {
        matches!(&self.transaction, Transaction::Update(update) if update.definitions.own.concern(judged))
    }

    /// Waits for schema changes of open transactions if this one may change what they name, or they what it names.
    pub(crate) async fn await_naming(&mut self, facts: &DdlFacts) -> Result<(), Fault> {
        let changes_names = match facts.naming() {
            Naming::Changes => true,
            Naming::Adds(names) if names.is_empty() => false,
            Naming::Adds(names) => {
                let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
                let known = format!("SELECT onecopy.has_names({})", array(&names));
                self.own_text(&known).await? == "t"
            }
        };
        let shared = if changes_names { "" } else { "_shared" };
        let (class, object) = NAMING_LOCK;
        let lock = format!("SELECT pg_catalog.pg_advisory_xact_lock{shared}({class}, {object})");
        self.own_query(&lock).await?;
        Ok(())
    }

    /// A schema change has run at the home: whether it concerns no more than was foreseen. Then replicas keep what they were
    /// lent of sequences.
    pub(crate) fn note_redefined(
        &mut self,
        facts: &DdlFacts,
        effect: &RowEffect,
        told: &Told,
    ) -> Result<bool, Fault> {
        let shape = |_| broken("a query of our own gave something unexpected");
        let changed: Vec<Changed> = serde_json::from_slice(&told.changed).map_err(shape)?;
        let numbers: BTreeMap<String, u32> = if told.numbers.is_empty() {
            BTreeMap::new()
        } else {
            let texts: BTreeMap<String, String> = serde_json::from_slice(&told.numbers).map_err(shape)?;
            texts.into_iter().filter_map(|(thing, number)| Some((thing, number.parse().ok()?))).collect()
        };
        let catalogue = self.hub().catalogue();
        let redefined = self
            .redefined(facts, &catalogue)
            .filter(|_| matches!(effect, RowEffect::Same | RowEffect::Made(_)));
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        let own = &mut update.definitions.own;
        let made = numbers.iter().filter(|(thing, _)| thing.starts_with("table "));
        let made: BTreeSet<TableId> = made.map(|(_, number)| TableId(*number)).collect();
        own.tables.extend(&made);
        if let Some(redefined) = &redefined {
            own.names.extend(&redefined.names);
            own.made.extend(&redefined.made);
            own.tables.extend(&redefined.tables);
        }
        let Some(redefined) = redefined.filter(|_| changed.iter().all(|one| own.has(one))) else {
            own.is_anything = true;
            update.capture.claims.add_everything();
            return Ok(false);
        };
        let mut claims = claims_of(Some(&redefined));
        claims.rows.push((DEFINITIONS, ANY_DEFINITION));
        update.capture.claims.add_redefined(claims, made);
        Ok(true)
    }

    /// Whether a schema change may have made untrue what was concluded of the open transaction's statements and rows. The
    /// transaction has run, so later ones do not count.
    pub(crate) fn is_misjudged(&self, rows: &[TableId]) -> bool {
        let Transaction::Update(update) = &self.transaction else { return true };
        let (hub, catalogue) = (self.hub(), self.hub().catalogue());
        let of_rows = update.capture.generation.min(Version(catalogue.generation()));
        if !hub.is_outdated(of_rows.min(update.generation)) {
            return false;
        }
        let mentioned = &update.definitions.mentioned;
        let mut names = mentioned.by_generation();
        for id in rows.iter().filter(|id| !update.definitions.own.tables.contains(id)) {
            let Some(table) = catalogue.table(*id) else { return true };
            names.entry(of_rows).or_default().push(of_relation(&table.name));
        }
        mentioned.has_too_many || names.iter().any(|(since, names)| hub.redefines(*since, names))
    }
}
