//! What a schema change of the open transaction defines anew, and whether others have done so
//! ([`crate::transaction::definitions`]).

use std::collections::{BTreeMap, BTreeSet};

use cluster::claims::{ANY_DEFINITION, DEFINITIONS};
use cluster::ids::{TableId, Version};
use sql::definition::{Redefined, of_relation};
use sql::{Catalogue, DdlFacts, Isolation, Naming, RowEffect};

use crate::drive::Driver;
use crate::error::{Fault, broken};
use crate::transaction::definitions::{Changed, SchemaChangeReport, claims_of};
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// The advisory lock that open schema changes share, and that one which may change what names mean has alone.
const NAMING_LOCK: (i32, i32) = (0x6f6e_6563, 1);

impl View<'_> {
    /// What a schema change of the open or coming transaction defines anew; `None` for anything. What a SERIALIZABLE
    /// transaction reads for it is not known.
    pub(crate) fn redefined(self, facts: &DdlFacts, catalogue: &Catalogue) -> Option<Redefined> {
        let nothing = BTreeSet::new();
        let (isolation, own) = match &self.txn.state {
            Transaction::Begun(options) => (self.link.resolve(*options).isolation, &nothing),
            Transaction::Update(update) => (update.options.isolation, &update.schema.definitions.own.made),
            _ => (None, &nothing),
        };
        let is_serializable = isolation == Some(Isolation::Serializable);
        let is_known = matches!(facts.rows, RowEffect::Same | RowEffect::Made(_))
            && !is_serializable
            && !self.link.coordinator().is_outdated(Version(catalogue.generation()));
        facts.scope.redefined(catalogue, own).filter(|_| is_known)
    }

    /// Whether a schema change may have made untrue what was concluded of the open transaction's statements and rows. The
    /// transaction has run, so later ones do not count.
    pub(crate) fn is_analysis_outdated(self, rows: &[TableId]) -> bool {
        let Transaction::Update(update) = &self.txn.state else { return true };
        let (coordinator, catalogue) = (self.link.coordinator(), self.link.database().catalogue());
        let of_rows = update.capture.generation.min(Version(catalogue.generation()));
        if !coordinator.is_outdated(of_rows.min(update.generation)) {
            return false;
        }
        let mentioned = &update.schema.definitions.mentioned;
        let mut names = mentioned.by_generation();
        for id in rows.iter().filter(|id| !update.schema.definitions.own.tables.contains(id)) {
            let Some(table) = catalogue.table(*id) else { return true };
            names.entry(of_rows).or_default().push(of_relation(&table.name));
        }
        mentioned.has_too_many || names.iter().any(|(since, names)| coordinator.redefines(*since, names))
    }
}

impl Driver<'_> {
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
        told: &SchemaChangeReport,
    ) -> Result<bool, Fault> {
        let shape = |_| broken("a query of our own gave something unexpected");
        let changed: Vec<Changed> = serde_json::from_slice(&told.changed).map_err(shape)?;
        let numbers: BTreeMap<String, u32> = if told.numbers.is_empty() {
            BTreeMap::new()
        } else {
            let texts: BTreeMap<String, String> = serde_json::from_slice(&told.numbers).map_err(shape)?;
            texts.into_iter().filter_map(|(thing, number)| Some((thing, number.parse().ok()?))).collect()
        };
        let catalogue = self.link.database().catalogue();
        let redefined = self
            .view()
            .redefined(facts, &catalogue)
            .filter(|_| matches!(effect, RowEffect::Same | RowEffect::Made(_)));
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let own = &mut update.schema.definitions.own;
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
}

pub(crate) fn array(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
    format!("ARRAY[{}]::pg_catalog.text[]", names.join(", "))
}

/// A constant that means the same whatever the session's `standard_conforming_strings`.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
