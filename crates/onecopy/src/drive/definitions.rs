//! Which definitions a schema change of the open transaction replaces, and whether other transactions have replaced
//! definitions that it uses ([`crate::transaction::definitions`]).

use std::collections::{BTreeMap, BTreeSet};

use cluster::claims::{ANY_DEFINITION, definitions};
use cluster::ids::{TableId, Version};
use sql::definition::{Redefined, of_relation};
use sql::{Catalogue, DdlFacts, Isolation, Naming, RowEffect};

use crate::drive::Driver;
use crate::error::{Fault, broken};
use crate::transaction::definitions::{Changed, SchemaChangeReport, claims_of};
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// Open schema changes hold this advisory lock shared. One that may give names another meaning holds it exclusively.
const NAMING_LOCK: (i32, i32) = (0x6f6e_6563, 1);

/// Whether a schema change has outdated the analysis of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outdated {
    No,
    /// A schema change may have.
    Maybe,
    /// The leader that knew is lost, and the transaction with it.
    Lost,
}

impl View<'_> {
    /// Which definitions a schema change replaces; `None` if it may replace any. A SERIALIZABLE transaction always gets
    /// `None`, since the reads of the change are not known.
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
            && !self.link.coordinator().view.is_outdated(Version(catalogue.generation()));
        facts.scope.redefined(catalogue, own).filter(|_| is_known)
    }

    /// Whether a schema change may have outdated the analysis of statements and rows of the open transaction. Later
    /// schema changes do not count, since the transaction has run.
    pub(crate) async fn analysis_outdated(self, rows: &[TableId]) -> Outdated {
        let Transaction::Update(update) = &self.txn.state else { return Outdated::Maybe };
        let (coordinator, catalogue) = (self.link.coordinator(), self.link.database().catalogue());
        let of_rows = update.capture.generation.min(Version(catalogue.generation()));
        if !coordinator.view.is_outdated(of_rows.min(update.generation)) {
            return Outdated::No;
        }
        let mentioned = &update.schema.definitions.mentioned;
        let mut names = mentioned.by_generation();
        for id in rows.iter().filter(|id| !update.schema.definitions.own.tables.contains(id)) {
            let Some(table) = catalogue.table(*id) else { return Outdated::Maybe };
            names.entry(of_rows).or_default().push(of_relation(&table.name));
        }
        if mentioned.has_too_many {
            return Outdated::Maybe;
        }
        for (since, names) in &names {
            match coordinator.core.redefines(*since, catalogue.database(), names).await {
                Some(false) => {}
                Some(true) => return Outdated::Maybe,
                None => return Outdated::Lost,
            }
        }
        Outdated::No
    }
}

impl Driver<'_> {
    /// Waits for open schema changes that conflict by name: those whose names this one may change, and those that may
    /// change the names that this one uses.
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

    /// Notes which definitions a schema change has replaced at the home. Returns whether they were all predicted; then
    /// replicas keep their sequence leases.
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
        let made: BTreeSet<TableId> = made.map(|(_, number)| catalogue.database().table(*number)).collect();
        own.tables.extend(&made);
        if let Some(redefined) = &redefined {
            own.names.extend(&redefined.names);
            own.made.extend(&redefined.made);
            own.tables.extend(&redefined.tables);
        }
        let Some(redefined) =
            redefined.filter(|_| changed.iter().all(|one| own.has(one, catalogue.database())))
        else {
            own.is_anything = true;
            update.capture.claims.add_everything();
            return Ok(false);
        };
        let mut claims = claims_of(Some(&redefined), catalogue.database());
        claims.rows.push((definitions(catalogue.database()), ANY_DEFINITION));
        update.capture.claims.add_redefined(claims, made);
        Ok(true)
    }
}

pub(crate) fn array(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| literal(name)).collect();
    format!("ARRAY[{}]::pg_catalog.text[]", names.join(", "))
}

/// A string constant with the same meaning under every `standard_conforming_strings`.
pub(crate) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}
