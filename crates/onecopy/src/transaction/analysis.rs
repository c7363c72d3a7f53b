//! Judges statements by the present catalogue and by what the session and its open transaction know.

use std::sync::Arc;

use cluster::claims::Claims;
use cluster::ids::{TableId, Version};
use sql::{Access, Because, Catalogue, Routing, Statement, Verb};

use crate::classify::statement_analysis::{Requirements, StatementAnalysis};
use crate::logging::stage_span;
use crate::transaction::definitions::claims_of;
use crate::transaction::view::View;

impl Requirements {
    /// What is known of the statements before they run.
    pub(crate) fn analyse(&self, session: View<'_>) -> StatementAnalysis {
        let _stage = stage_span!("classify").entered();
        let catalogue = session.link.coordinator().catalogue();
        let workload = &session.link.coordinator().workload;
        let hides_write = |s: &Arc<Statement>| workload.hides_write(s.template, catalogue.generation());
        if !self.has_unparsed && self.statements.iter().any(hides_write) {
            return Self { has_unparsed: true, ..self.clone() }.analyse(session);
        }
        tracing::debug!(
            statements = self.statements.len(),
            generation = catalogue.generation(),
            "statements are analysed"
        );
        let routings: Vec<_> = self.statements.iter().map(|s| s.routing(&catalogue)).collect();
        let access = self.access(&routings);
        // What EXECUTE leaves is what its statement leaves.
        let run: Vec<_> = self.statements.iter().map(|s| session.executed_by(s).unwrap_or(s)).collect();
        let left: Vec<_> = run.iter().map(|statement| statement.routing(&catalogue)).collect();
        let pairs = run.iter().zip(&left);
        StatementAnalysis {
            claims: routings.iter().map(|routing| self.claims_of(routing)).collect(),
            redefines: self.redefines(session, &catalogue).map(Box::new),
            may_write: matches!(access, Err(Because::Update | Because::Unknown)) && !self.is_control(),
            access,
            has_locks: self.statements.iter().any(|s| locks(s)),
            nowait: self.statements.iter().any(|s| s.nowait),
            has_uncounted: self.statements.iter().any(|s| writes_uncounted(s)),
            has_hold: self.declares_held(),
            sets_sequences: self.statements.iter().any(|s| s.verb == Verb::Truncate || s.calls("setval")),
            calls_setval: self.statements.iter().any(|s| s.calls("setval")),
            asks_draws: routings.iter().any(|routing| routing.asks_draws),
            only_asks_draws: !self.has_unparsed
                && !self.keeps_portal
                && !self.statements.is_empty()
                && self.statements.iter().all(|s| sql::only_asks_draws(s, &catalogue)),
            is_plain: self
                .statements
                .iter()
                .all(|s| matches!(s.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge)),
            is_repeatable: !self.keeps_portal
                && !self.has_unparsed
                && self.statements.iter().all(|s| {
                    matches!(s.verb, Verb::Select | Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge)
                }),
            // What the client sends with it comes once, so it cannot be run again.
            is_wide: self.statements.iter().any(|s| matches!(s.verb, Verb::Copy { .. })),
            may_leave_anchor: may_leave_anchor(self, &routings, &catalogue)
                && session.may_use_leases(&routings.iter().flat_map(|r| sql::draws(r, &catalogue)).collect()),
            only_sets_settings: self.only_sets_settings(),
            is_control: self.is_control(),
            hides_code: self.has_unparsed,
            code: pairs.filter(|(_, routing)| routing.traces.hidden).map(|(s, _)| Arc::clone(*s)).collect(),
            traces: self.traces(&left),
            sets_unseen: self.sets_unseen(),
            touched: self.touched(&catalogue).map(Arc::new),
            is_outdated: false,
            template: self.statements.first().map(|statement| statement.template),
            routings,
            has_unparsed: self.has_unparsed,
            generation: Version(catalogue.generation()),
            catalogue,
        }
    }
}

impl Requirements {
    /// The tables that the statements read, if a bounded read is all that they are; else why the anchor has to run them.
    fn access(&self, routings: &[Arc<Routing>]) -> Result<Arc<[TableId]>, Because> {
        let mut tables: Vec<TableId> = Vec::new();
        let mut access = if self.has_unparsed { Err(Because::Unknown) } else { Ok(()) };
        for routing in routings {
            match (&routing.access, access) {
                (Access::Read(read), Ok(())) => tables.extend(read),
                (Access::Anchor(because), Ok(())) => access = Err(*because),
                (Access::Anchor(Because::Update), Err(_)) => access = Err(Because::Update),
                _ => {}
            }
            if self.is_binary && routing.user_types && access.is_ok() {
                access = Err(Because::Catalogue);
            }
        }
        if self.declares_users && access.is_ok() {
            access = Err(Because::Catalogue);
        }
        access.map(|()| tables.into())
    }

    /// What a schema change asks for.
    fn redefines(&self, session: View<'_>, catalogue: &Catalogue) -> Option<Claims> {
        let statement = self.statements.first().filter(|_| self.is_schema_change)?;
        let Verb::Ddl(facts) = &statement.verb else { return None };
        Some(claims_of(session.redefined(facts, catalogue).as_ref()))
    }
}

/// Whether a statement, or the one inside of it, locks what it reads.
pub(crate) fn locks(statement: &Statement) -> bool {
    !statement.row_locks.is_empty() || statement.inner.as_deref().is_some_and(locks)
}

/// Whether a statement writes inside a WITH query or under EXPLAIN ANALYZE.
pub(crate) fn writes_uncounted(statement: &Statement) -> bool {
    statement.modifies_inside || (statement.inner.is_some() && !statement.writes.is_empty())
}

/// Whether statements may run at any home.
pub(crate) fn may_leave_anchor(
    requirements: &Requirements,
    routings: &[Arc<Routing>],
    catalogue: &Catalogue,
) -> bool {
    let pairs = requirements.statements.iter().zip(routings);
    !requirements.has_unparsed
        && !requirements.declares_users
        && !requirements.keeps_portal
        && routings.len() == requirements.statements.len()
        && pairs.into_iter().all(|(statement, routing)| {
            sql::may_leave_anchor(statement, routing, requirements.is_binary, catalogue)
        })
}
