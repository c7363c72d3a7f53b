//! Analyses statements by the present catalogue and by the state of the session and its open transaction.

use std::sync::Arc;
use std::time::Duration;

use cluster::claims::Claims;
use sql::{Catalogue, Statement, Verb};

use crate::classify::effects::{Execution, RowEffects, SequenceEffects, SessionEffects};
use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::{Knowledge, Reserves, StatementAnalysis};
use crate::logging::stage_span;
use crate::transaction::definitions::claims_of;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// How long a statement waits for the catalogue after a schema change.
const CATALOGUE_PATIENCE: Duration = Duration::from_secs(2);

impl Requirements {
    /// The analysis of statements before they run.
    pub(crate) fn analyse(&self, session: View<'_>) -> StatementAnalysis {
        let _stage = stage_span!("classify").entered();
        let catalogue = session.link.database().catalogue();
        let workload = &session.link.database().workload;
        let hides_write = |s: &Arc<Statement>| workload.hides_write(s.template, catalogue.generation());
        if !self.has_unparsed && self.statements.iter().any(hides_write) {
            return self.as_unparsed().analyse(session);
        }
        tracing::debug!(
            statements = self.statements.len(),
            generation = catalogue.generation(),
            "statements are analysed"
        );
        let routings: Vec<_> = self.statements.iter().map(|s| s.routing(&catalogue)).collect();
        // EXECUTE leaves the traces of its statement.
        let run: Vec<_> = self.statements.iter().map(|s| session.executed_by(s).unwrap_or(s)).collect();
        let left: Vec<_> = run.iter().map(|statement| statement.routing(&catalogue)).collect();
        let pairs: Vec<_> = run.into_iter().zip(&left).collect();
        let access = self.access(&routings);
        let draws = || routings.iter().flat_map(|routing| sql::draws(routing, &catalogue)).collect();
        // The client sends the data of a COPY once, so the COPY cannot be run again.
        let copies = self.any(|statement| matches!(statement.verb, Verb::Copy { .. }));
        StatementAnalysis {
            may_leave_anchor: self.may_leave_anchor(&routings, &catalogue)
                && session.may_use_leases(&draws()),
            claims: routings.iter().map(|routing| self.claims_of(routing)).collect(),
            redefines: self.redefines(session, &catalogue).map(Box::new),
            touched: self.touched(&catalogue).map(Arc::new),
            reserves: if copies { Reserves::Tables } else { Reserves::Rows },
            knowledge: Knowledge { has_unparsed: self.has_unparsed, is_outdated: false },
            rows: RowEffects::of(self, access.as_ref().err().copied()),
            execution: Execution::of(self),
            sequences: SequenceEffects::of(self, &routings, &catalogue),
            session: SessionEffects::of(self, &pairs),
            template: self.statements.first().map(|statement| statement.template),
            runs_code: self.statements.first().is_some_and(|s| matches!(s.verb, Verb::Call | Verb::Do)),
            access,
            routings,
            catalogue,
        }
    }

    /// The definitions that a schema change reserves.
    fn redefines(&self, session: View<'_>, catalogue: &Catalogue) -> Option<Claims> {
        let statement = self.statements.first().filter(|_| self.is_schema_change)?;
        let Verb::Ddl(facts) = &statement.verb else { return None };
        Some(claims_of(session.redefined(facts, catalogue).as_ref(), catalogue.database()))
    }
}

impl View<'_> {
    /// Analyses statements that may write. Transactions that conflict with this one may know the present schema, so
    /// this one has to know it, too.
    pub(crate) async fn analyse_update(self, requirements: &Requirements) -> StatementAnalysis {
        let mut analysis = requirements.analyse(self);
        // The core checks the catalogue of a read, alone or in a read-only transaction.
        let only_reads = match &self.txn.state {
            Transaction::None => analysis.access.is_ok(),
            Transaction::Read(_) => true,
            _ => false,
        };
        if self.txn.has_redefined(&analysis) {
            let mut anything = requirements.as_unparsed().analyse(self);
            anything.note_redefined(analysis);
            return anything;
        }
        if only_reads
            || self.txn.has_ddl()
            || !self.link.coordinator().view.is_outdated(analysis.generation())
        {
            return analysis;
        }
        // A session that reads the catalogue may wait for locks of this one, so this wait has a limit.
        let loaded =
            tokio::time::timeout(CATALOGUE_PATIENCE, self.link.coordinator().fresh_catalogue()).await;
        if matches!(loaded, Ok(Some(_))) {
            analysis = requirements.analyse(self);
        }
        if self.link.coordinator().view.is_outdated(analysis.generation()) {
            analysis.note_outdated(&requirements.statements);
        }
        analysis
    }
}
