//! The analysis of statements that run together: where they may run, and their reads, writes and claims.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cluster::claims::{Claims, definitions};
use cluster::event::Reads;
use cluster::ids::{DatabaseId, KindId, SequenceId, SessionId, TableId, Version};
use cluster::placement::Touches;
use rustc_hash::FxHasher;
use sql::accesses::Accesses;
use sql::{Because, Catalogue, CopyDirection, Routing, Statement, TemplateId, Verb};

use super::effects::{Execution, HiddenCode, RowEffects, Scope, SequenceEffects, SessionEffects};
use super::footprint::{footprint, forecast, written_whole};
use super::prediction::is_forecast_complete;
use super::requirements::Requirements;
use crate::client::sent::Sent;
use crate::coordinator::splits::Splits;

/// The analysis of statements under one catalogue.
#[derive(Clone, Debug)]
pub(crate) struct StatementAnalysis {
    /// The tables that they read, if any replica may run them; otherwise the reason why only the anchor may. An open
    /// transaction may decide otherwise.
    pub(crate) access: Result<Arc<[TableId]>, Because>,
    /// Any replica can be the home of a transaction with these statements.
    pub(crate) may_leave_anchor: bool,
    /// One for each statement.
    pub(crate) routings: Vec<Arc<Routing>>,
    /// The claims of each statement beyond its rows.
    pub(crate) claims: Vec<sql::Claims>,
    /// The reservations of a schema change.
    pub(crate) redefines: Option<Box<Claims>>,
    /// The accesses of the statements, if they are known and bounded.
    pub(crate) touched: Option<Arc<Accesses>>,
    pub(crate) reserves: Reserves,
    pub(crate) knowledge: Knowledge,
    pub(crate) rows: RowEffects,
    pub(crate) execution: Execution,
    pub(crate) sequences: SequenceEffects,
    pub(crate) session: SessionEffects,
    /// The template of the first statement.
    pub(crate) template: Option<TemplateId>,
    /// The first statement is a CALL or DO, whose template is another one with other constants.
    pub(crate) runs_code: bool,
    pub(crate) catalogue: Arc<Catalogue>,
}

/// How finely statements reserve their writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserves {
    /// The rows, where they are known.
    Rows,
    /// The whole tables that they write.
    Tables,
}

/// Gaps in the analysis. Both can be set at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Knowledge {
    /// Some text could not be parsed, or a statement has effects that its text does not show.
    pub(crate) has_unparsed: bool,
    /// The schema has changed since, so the analysis proves nothing.
    pub(crate) is_outdated: bool,
}

impl StatementAnalysis {
    /// The version of the catalogue that this analysis used.
    pub(crate) fn generation(&self) -> Version {
        Version(self.catalogue.generation())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.routings.is_empty() && !self.knowledge.has_unparsed
    }

    /// Whether running the statements may leave state on the connection.
    pub(crate) fn may_leave_traces(&self) -> bool {
        self.session.scope == Scope::Data && (self.session.traces.shown || self.knowledge.is_outdated)
    }

    /// From now on the statements run at the anchor only.
    pub(crate) fn keep_at_anchor(&mut self) {
        self.may_leave_anchor = false;
    }

    /// From now on the statements reserve the whole tables that they write.
    pub(crate) fn reserve_tables(&mut self) {
        self.reserves = Reserves::Tables;
    }

    /// The catalogue is out of date and could not be loaded anew.
    pub(crate) fn note_outdated(&mut self, statements: &[Arc<Statement>]) {
        self.knowledge.is_outdated = true;
        self.keep_at_anchor();
        if let HiddenCode::In(code) = &mut self.session.hidden_code {
            code.clear();
            code.extend(statements.iter().map(Arc::clone));
        }
    }

    /// The open transaction has redefined objects, which no catalogue knows yet. `known` is the analysis by the present
    /// catalogue. It gives the state that may stay on the connection, which the session checks after the transaction.
    pub(crate) fn note_redefined(&mut self, known: Self) {
        self.knowledge.is_outdated = true;
        self.session = SessionEffects { scope: self.session.scope, ..known.session };
    }

    /// Whether the statements leave no state behind, and do not show when and where the transaction began.
    pub(crate) fn is_movable_read(&self, requirements: &Requirements) -> bool {
        let only_reads =
            |verb: &Verb| matches!(verb, Verb::Select | Verb::Copy { direction: CopyDirection::To, .. });
        self.access.is_ok()
            && !self.rows.has_locks
            && !requirements.protocol.keeps_portal
            && requirements.is_sent_whole()
            && requirements.all(|statement| only_reads(&statement.verb) && statement.settings.is_empty())
            && self.routings.iter().all(|routing| !routing.transaction_time)
            && !requirements.sent.iter().any(Sent::may_read_clock)
    }

    /// Whether the statements only query the system catalogues.
    pub(crate) fn asks_catalogues_only(&self, requirements: &Requirements) -> bool {
        let is_system = |name: &sql::Name| match name.schema.as_deref() {
            Some(schema) => matches!(schema, "pg_catalog" | "information_schema"),
            None => name.name.starts_with("pg_"),
        };
        let asks = |statement: &Statement| {
            statement.verb == Verb::Select
                && statement.settings.is_empty()
                && statement.with_names.is_empty()
                && statement.reads.iter().all(is_system)
        };
        matches!(self.access, Err(Because::Catalogue))
            && !self.rows.has_locks
            && !requirements.protocol.keeps_portal
            && requirements.all(asks)
    }

    /// The reads of the statements on any replica: these tables, or some of their rows.
    pub(crate) fn spread_reads(&self, tables: &Arc<[TableId]>) -> Reads {
        match &self.touched {
            Some(touched) => Reads::Rows(footprint(touched, &self.catalogue).into()),
            None => Reads::Tables(Arc::clone(tables)),
        }
    }

    /// The writes, locks and dependencies that the statements may have.
    pub(crate) fn writes(&self, session: SessionId) -> Claims {
        if self.knowledge.has_unparsed || self.knowledge.is_outdated {
            return Claims::everything();
        }
        if let Some(claims) = &self.redefines {
            return (**claims).clone();
        }
        if self.claims.contains(&sql::Claims::Everything) {
            return Claims::everything();
        }
        let mut claims = self.writes_of_rows(session);
        claims.shared.extend(asked_for(&self.routings, self.catalogue.database()));
        if self.routings.len() > 1 {
            claims.shared.sort_unstable();
            claims.shared.dedup();
        }
        claims
    }

    /// As [`Self::writes`], without definitions.
    fn writes_of_rows(&self, session: SessionId) -> Claims {
        if let Some(touched) = &self.touched {
            let mut claims = forecast(touched, session.0, &self.catalogue);
            if self.reserves == Reserves::Tables {
                claims.tables.extend(written_whole(touched, &self.catalogue));
            }
            return claims;
        }
        let mut tables: Vec<TableId> = Vec::new();
        for (routing, claims) in self.routings.iter().zip(&self.claims) {
            tables.extend(routing.writes.iter().flatten());
            if let sql::Claims::Tables(more) = claims {
                tables.extend(more);
            }
        }
        tables.sort_unstable();
        tables.dedup();
        Claims { tables, ..Claims::default() }
    }

    /// Whether the statements reserve all their writes before they run.
    pub(crate) fn reserves_all_writes(&self) -> bool {
        if !self.rows.may_write {
            return true;
        }
        // A number that no session has. The owner of the forecast does not matter here.
        let forecast = || self.writes(SessionId(u64::MAX));
        match &self.touched {
            Some(touched) => {
                is_forecast_complete(touched, forecast, self.routings.len() == 1, &self.catalogue)
            }
            None => forecast().everything || self.routings.iter().all(|routing| routing.only_defines),
        }
    }

    /// The reads of the statements at the home.
    pub(crate) fn home_reads(&self) -> Reads {
        if let Some(touched) = &self.touched {
            return Reads::Rows(footprint(touched, &self.catalogue).into());
        }
        let mut all = Vec::new();
        for routing in &self.routings {
            match home_tables(routing) {
                Some(tables) => all.extend(tables),
                None => return Reads::All,
            }
        }
        if self.knowledge.has_unparsed { Reads::All } else { Reads::Tables(all.into()) }
    }

    /// The kind of a transaction that begins with these statements: those of one kind differ in constants only. A procedure or
    /// block is known by the names of what it reaches, since object ids differ between servers.
    pub(crate) fn kind(&self) -> Option<KindId> {
        if !self.runs_code {
            return self.template.map(|template| KindId(template.0));
        }
        let mut hasher = FxHasher::default();
        self.routings.first()?.uses.mentioned.hash(&mut hasher);
        Some(KindId(hasher.finish()))
    }

    /// The tables that the statements may touch, each once; `None` if they are not bounded.
    pub(crate) fn tables(&self) -> Option<BTreeSet<TableId>> {
        let mut tables = BTreeSet::new();
        for routing in self.routings.iter().filter(|_| !self.knowledge.has_unparsed) {
            tables.extend(home_tables(routing)?);
        }
        Some(tables)
    }

    /// The tables that the statements may write, as far as they are known.
    pub(crate) fn written_tables(&self) -> BTreeSet<TableId> {
        self.routings.iter().filter_map(|routing| routing.writes.as_ref()).flatten().copied().collect()
    }

    /// What must be held where the statements run: tables, and of split tables the parts.
    pub(crate) fn touches(&self, splits: &Splits) -> Touches {
        if self.session.scope == Scope::Control {
            return Touches::Tables([].into());
        }
        let is_known = !self.knowledge.has_unparsed && !self.knowledge.is_outdated;
        match self.tables().filter(|_| is_known) {
            Some(tables) => splits.touches(tables, self.touched.as_deref()),
            None => Touches::Anything,
        }
    }

    /// The sequences that the statements may draw from. Away from the anchor they may run only with leases on these.
    pub(crate) fn draws(&self) -> BTreeSet<SequenceId> {
        let of = |routing: &Arc<Routing>| sql::draws(routing, &self.catalogue);
        self.routings.iter().flat_map(of).collect()
    }

    /// Whether code may run that draws from unknown sequences. Savepoints and settings never do.
    pub(crate) fn may_draw_unseen(&self) -> bool {
        self.is_suspect() && self.session.scope != Scope::Control
    }

    /// Whether code may run that sets sequences. A call of `nextval` on an unknown name does not count.
    pub(crate) fn may_set_unseen(&self) -> bool {
        let is_unbounded =
            |routing: &Arc<Routing>| !is_harmless(routing) && routing.claims == sql::Claims::Everything;
        self.may_draw_unseen() && (self.knowledge.has_unparsed || self.routings.iter().any(is_unbounded))
    }

    /// Whether code may run whose accesses are unknown.
    pub(crate) fn is_suspect(&self) -> bool {
        self.knowledge.has_unparsed || self.routings.iter().any(|routing| !is_harmless(routing))
    }
}

/// Whether only known queries and modifications can run, including those in functions and triggers.
fn is_harmless(routing: &Routing) -> bool {
    routing.reads.is_some() && routing.writes.is_some()
}

/// The tables that a statement may read at the home: its own writes, and the reads of its triggers and references,
/// included. `None` if they are not bounded; then the statement needs everything.
fn home_tables(routing: &Routing) -> Option<Vec<TableId>> {
    let (reads, writes) = (routing.reads.as_ref()?, routing.writes.as_ref()?);
    Some(reads.iter().chain(writes).copied().collect())
}

/// The relations that statements use, in the form of reservations.
pub(crate) fn asked_for(
    routings: &[Arc<Routing>],
    database: DatabaseId,
) -> impl Iterator<Item = (TableId, u64)> + '_ {
    let relations = routings.iter().flat_map(|routing| &routing.uses.relations);
    relations.map(move |name| (definitions(database), *name))
}
