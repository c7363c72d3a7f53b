//! What the catalogue says of statements that run together: where they may run, what they read, write and claim.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::claims::{Claims, definitions};
use cluster::event::Reads;
use cluster::ids::{DatabaseId, SequenceId, SessionId, TableId, Version};
use sql::accesses::Accesses;
use sql::{Because, Catalogue, CopyDirection, Routing, Statement, TemplateId, Verb};

use super::effects::{Execution, HiddenCode, RowEffects, Scope, SequenceEffects, SessionEffects};
use super::footprint::{footprint, forecast, written_whole};
use super::prediction::is_forecast_complete;
use super::requirements::Requirements;
use crate::client::sent::Sent;

/// What is known of statements under one catalogue.
#[derive(Clone, Debug)]
pub(crate) struct StatementAnalysis {
    /// Where they may run, if no transaction decides that.
    pub(crate) access: Result<Arc<[TableId]>, Because>,
    /// Any replica can be the home of a transaction with these statements.
    pub(crate) may_leave_anchor: bool,
    /// Of each statement.
    pub(crate) routings: Vec<Arc<Routing>>,
    /// What each claims beyond its rows.
    pub(crate) claims: Vec<sql::Claims>,
    /// Of a schema change: what it reserves.
    pub(crate) redefines: Option<Box<Claims>>,
    /// All that the statements touch, if it is known and bounded.
    pub(crate) touched: Option<Arc<Accesses>>,
    pub(crate) reserves: Reserves,
    pub(crate) knowledge: Knowledge,
    pub(crate) rows: RowEffects,
    pub(crate) execution: Execution,
    pub(crate) sequences: SequenceEffects,
    pub(crate) session: SessionEffects,
    /// Of the first statement.
    pub(crate) template: Option<TemplateId>,
    pub(crate) catalogue: Arc<Catalogue>,
}

/// How finely statements reserve what they write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserves {
    /// The rows that are known.
    Rows,
    /// The whole of the tables that they write.
    Tables,
}

/// What the analysis cannot rely on. Both can be so at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Knowledge {
    /// Some text could not be parsed, or a statement does what its text does not say.
    pub(crate) has_unparsed: bool,
    /// The schema has changed since: nothing may be concluded.
    pub(crate) is_outdated: bool,
}

impl StatementAnalysis {
    /// The version of the catalogue that this was concluded from.
    pub(crate) fn generation(&self) -> Version {
        Version(self.catalogue.generation())
    }

    /// Nothing is executed.
    pub(crate) fn is_empty(&self) -> bool {
        self.routings.is_empty() && !self.knowledge.has_unparsed
    }

    /// Whether running this may leave something on its connection.
    pub(crate) fn may_leave_traces(&self) -> bool {
        self.session.scope == Scope::Data && (self.session.traces.shown || self.knowledge.is_outdated)
    }

    /// From now on it runs at the anchor only.
    pub(crate) fn keep_at_anchor(&mut self) {
        self.may_leave_anchor = false;
    }

    /// From now on it reserves the whole of the tables that it writes.
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

    /// No catalogue knows yet what the open transaction has redefined. `known` is the analysis by the present one: what
    /// may stay on the connection is taken from there, and seen when the transaction is over.
    pub(crate) fn note_redefined(&mut self, known: Self) {
        self.knowledge.is_outdated = true;
        self.session = SessionEffects { scope: self.session.scope, ..known.session };
    }

    /// Whether this leaves nothing behind, and shows nothing of when and where the transaction began.
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

    /// Whether this asks the system catalogues and nothing else.
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

    /// What it reads when it runs wherever that is: these tables, or some of their rows.
    pub(crate) fn spread_reads(&self, tables: &Arc<[TableId]>) -> Reads {
        match &self.touched {
            Some(touched) => Reads::Rows(footprint(touched, &self.catalogue).into()),
            None => Reads::Tables(Arc::clone(tables)),
        }
    }

    /// What it may write, lock or rely on.
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

    /// The same, definitions aside.
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

    /// Whether it writes nothing but what it asks for beforehand.
    pub(crate) fn reserves_all_writes(&self) -> bool {
        if !self.rows.may_write {
            return true;
        }
        // A number that no session has: whose forecast it is does not matter here.
        let forecast = || self.writes(SessionId(u64::MAX));
        match &self.touched {
            Some(touched) => {
                is_forecast_complete(touched, forecast, self.routings.len() == 1, &self.catalogue)
            }
            None => forecast().everything || self.routings.iter().all(|routing| routing.only_defines),
        }
    }

    /// What it reads, if it runs at the home.
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

    /// The sequences that may be drawn from, if it may run away from the anchor, which it may only where they are lent to.
    pub(crate) fn draws(&self) -> BTreeSet<SequenceId> {
        let of = |routing: &Arc<Routing>| sql::draws(routing, &self.catalogue);
        self.routings.iter().flat_map(of).collect()
    }

    /// Something may run that draws, of which nobody knows from what. Savepoints and settings do not.
    pub(crate) fn may_draw_unseen(&self) -> bool {
        self.is_suspect() && self.session.scope != Scope::Control
    }

    /// Something may run that sets sequences, unlike a call of `nextval`, of which only the name is not known.
    pub(crate) fn may_set_unseen(&self) -> bool {
        let is_unbounded =
            |routing: &Arc<Routing>| !is_harmless(routing) && routing.claims == sql::Claims::Everything;
        self.may_draw_unseen() && (self.knowledge.has_unparsed || self.routings.iter().any(is_unbounded))
    }

    /// Something may run that touches what is not known.
    pub(crate) fn is_suspect(&self) -> bool {
        self.knowledge.has_unparsed || self.routings.iter().any(|routing| !is_harmless(routing))
    }
}

/// Whether nothing can run but queries and modifications that are known, in functions and triggers too.
fn is_harmless(routing: &Routing) -> bool {
    routing.reads.is_some() && routing.writes.is_some()
}

/// What a statement may read at the home, what it writes and what its triggers and references read included; `None` when
/// that is not bounded: then everything is needed.
fn home_tables(routing: &Routing) -> Option<Vec<TableId>> {
    let (reads, writes) = (routing.reads.as_ref()?, routing.writes.as_ref()?);
    Some(reads.iter().chain(writes).copied().collect())
}

/// The relations that statements use, as they are asked for.
pub(crate) fn asked_for(
    routings: &[Arc<Routing>],
    database: DatabaseId,
) -> impl Iterator<Item = (TableId, u64)> + '_ {
    let relations = routings.iter().flat_map(|routing| &routing.uses.relations);
    relations.map(move |name| (definitions(database), *name))
}
