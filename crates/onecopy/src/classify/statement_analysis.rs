//! What a group of statements needs, and what the catalogue says of that.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::claims::{Claims, DEFINITIONS};
use cluster::event::Reads;
use cluster::ids::{SequenceId, SessionId, TableId, Version};
use sql::accesses::Accesses;
use sql::{Because, Catalogue, CopyDirection, Routing, Statement, TemplateId, Traces, Verb};

use super::footprint::{footprint, forecast, written_whole};
use super::prediction::is_forecast_complete;
use crate::client::sent::Sent;
use crate::coordinator::Coordinator;

/// The function that changes a setting by its name.
const SETS: &str = "set_config";

/// What a group of statements that run together needs.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requirements {
    /// The statements; none when nothing is executed.
    pub(crate) statements: Vec<Arc<Statement>>,
    /// The same as they were sent, where that was kept.
    pub(crate) sent: Vec<Sent>,
    /// Some text could not be parsed.
    pub(crate) has_unparsed: bool,
    /// Something may be read later from what was bound here.
    pub(crate) keeps_portal: bool,
    /// Parameters or results may be in binary form.
    pub(crate) is_binary: bool,
    /// Parameters are declared to be of users' types, by the anchor's ids.
    pub(crate) declares_users: bool,
    /// It is one schema change that others can see. Any other one is about the session's temporary objects.
    pub(crate) is_schema_change: bool,
}

/// What one catalogue says of the requirements.
#[derive(Clone, Debug)]
pub(crate) struct StatementAnalysis {
    /// Where it may run, if no transaction decides that.
    pub(crate) access: Result<Arc<[TableId]>, Because>,
    /// Of each statement.
    pub(crate) routings: Vec<Arc<Routing>>,
    /// What each claims beyond its rows.
    pub(crate) claims: Vec<sql::Claims>,
    /// It is a schema change: what it asks for.
    pub(crate) redefines: Option<Box<Claims>>,
    pub(crate) has_unparsed: bool,
    /// Nothing but INSERT, UPDATE, DELETE and MERGE.
    pub(crate) is_plain: bool,
    /// The same or SELECT, read to the end: it can be undone by a savepoint, and run again.
    pub(crate) is_repeatable: bool,
    /// It asks for the whole of the tables that it writes.
    pub(crate) is_wide: bool,
    /// It may write, lock, or do anything.
    pub(crate) may_write: bool,
    /// Rows or tables are locked.
    pub(crate) has_locks: bool,
    /// It does not wait for locks.
    pub(crate) nowait: bool,
    /// Something is written that the command tag does not count.
    pub(crate) has_uncounted: bool,
    /// A WITH HOLD cursor is declared.
    pub(crate) has_hold: bool,
    /// It says that it sets sequences.
    pub(crate) sets_sequences: bool,
    /// All that the statements touch, if it is known and bounded.
    pub(crate) touched: Option<Arc<Accesses>>,
    /// It says that it calls `setval`.
    pub(crate) calls_setval: bool,
    /// It asks what the session has drawn from sequences.
    pub(crate) asks_draws: bool,
    /// That, and nothing else.
    pub(crate) only_asks_draws: bool,
    /// Any replica can be the home of a transaction with these statements.
    pub(crate) may_leave_anchor: bool,
    /// It does nothing but to call set_config, in a way that is followed.
    pub(crate) only_sets_settings: bool,
    /// It touches the session or the transaction only.
    pub(crate) is_control: bool,
    /// It may run code of which nothing is known, and which sets what no server shows.
    pub(crate) hides_code: bool,
    /// Those of its statements that may run code which sets what no server shows.
    pub(crate) code: Vec<Arc<Statement>>,
    /// What may stay on the connection.
    pub(crate) traces: Traces,
    /// It calls `set_config` where what that sets is not followed.
    pub(crate) sets_unseen: bool,
    /// The schema has changed since: nothing may be concluded.
    pub(crate) is_outdated: bool,
    /// Of the first statement.
    pub(crate) template: Option<TemplateId>,
    pub(crate) catalogue: Arc<Catalogue>,
    pub(crate) generation: Version,
}

impl Requirements {
    /// One statement.
    pub(crate) fn one(statement: &Arc<Statement>) -> Self {
        Self { statements: vec![Arc::clone(statement)], ..Self::default() }
    }

    /// The same, as it was sent.
    pub(crate) fn sent(statement: &Arc<Statement>, sent: Option<Sent>) -> Self {
        Self { sent: sent.into_iter().collect(), ..Self::one(statement) }
    }

    /// Nothing is executed.
    pub(crate) fn is_empty(&self) -> bool {
        self.statements.is_empty() && !self.has_unparsed
    }

    /// Whether it surely takes a snapshot when it runs. SAVEPOINT, SET, SHOW, LOCK TABLE and the like do not.
    pub(crate) fn takes_snapshot(&self) -> bool {
        use Verb::{Copy, DeclareCursor, Delete, Insert, Merge, Select, Update};
        let takes = |verb: &Verb| {
            matches!(verb, Select | Insert | Update | Delete | Merge | Copy { .. } | DeclareCursor { .. })
        };
        self.statements.iter().any(|statement| takes(&statement.verb))
    }

    /// Whether it touches the session or the transaction only.
    pub(crate) fn is_control(&self) -> bool {
        use Verb::{Empty, Release, Reset, RollbackTo, Savepoint, Set, Show};
        let is_control = |verb: &Verb| {
            matches!(
                verb,
                Savepoint(_) | Release(_) | RollbackTo(_) | Set { .. } | Reset(_) | Show(_) | Empty
            )
        };
        !self.has_unparsed && self.statements.iter().all(|statement| is_control(&statement.verb))
    }

    /// Whether all that it does is to call set_config where that is told by the statement itself.
    pub(crate) fn only_sets_settings(&self) -> bool {
        let only = |sent: &Sent| {
            let statement = sent.statement();
            !statement.settings.is_empty()
                && statement.verb == Verb::Select
                && statement.reads.is_empty()
                && statement.types.is_empty()
                && statement.functions.iter().all(|function| function.name == SETS)
                && statement.settings.len() == sent.mentions(SETS)
        };
        !self.has_unparsed && self.sent.len() == self.statements.len() && self.sent.iter().all(only)
    }

    /// What may stay on the connection.
    pub(crate) fn traces(&self, routings: &[Arc<Routing>]) -> Traces {
        let mut traces = if self.has_unparsed { Traces::ANYTHING } else { Traces::default() };
        for routing in routings {
            traces.add(routing.traces);
        }
        traces
    }

    /// Whether a cursor of it outlives the transaction.
    pub(crate) fn declares_held(&self) -> bool {
        self.statements.iter().any(|s| matches!(s.verb, Verb::DeclareCursor { hold: true, .. }))
    }

    /// Whether it calls `set_config` somewhere else than at the top of a SELECT list.
    pub(crate) fn sets_unseen(&self) -> bool {
        let followed: usize = self.statements.iter().map(|statement| statement.settings.len()).sum();
        let is_whole = self.sent.len() == self.statements.len();
        let mentioned: usize = self.sent.iter().map(|sent| sent.mentions(SETS)).sum();
        self.statements.iter().any(|statement| statement.calls(SETS)) && !(is_whole && mentioned == followed)
    }

    /// What a statement claims beyond its rows. A temporary object is the session's own.
    pub(crate) fn claims_of(&self, routing: &Routing) -> sql::Claims {
        let is_own = routing.only_defines && !self.is_schema_change;
        if is_own { sql::Claims::Rows } else { routing.claims.clone() }
    }

    /// It seemed to read only, and writes: those that come after it are not taken for what they seem.
    pub(crate) fn note_write(&self, coordinator: &Coordinator) {
        for statement in &self.statements {
            coordinator.workload.note_write(statement.template, coordinator.catalogue().generation());
        }
    }

    /// What all statements touch together, with the values that they were sent with.
    pub(crate) fn touched(&self, catalogue: &Catalogue) -> Option<Accesses> {
        if self.has_unparsed || self.sent.len() != self.statements.len() {
            return None;
        }
        let mut all: Option<Accesses> = None;
        for sent in &self.sent {
            let parameters = sent.parameters();
            let one = sent.statement().outline(catalogue).bind(&sent.arguments(&parameters));
            match &mut all {
                Some(all) => all.add(one),
                None => all = Some(one),
            }
        }
        all.filter(|all| all.unbounded.is_none())
    }
}

impl StatementAnalysis {
    /// What it reads when it runs wherever that is: these tables, or some of their rows.
    pub(crate) fn spread_reads(&self, tables: &Arc<[TableId]>) -> Reads {
        match &self.touched {
            Some(touched) => Reads::Rows(footprint(touched, &self.catalogue).into()),
            None => Reads::Tables(Arc::clone(tables)),
        }
    }

    /// What it may write, lock or rely on.
    pub(crate) fn writes(&self, session: SessionId) -> Claims {
        if self.has_unparsed || self.is_outdated {
            return Claims::everything();
        }
        if let Some(claims) = &self.redefines {
            return (**claims).clone();
        }
        if self.claims.contains(&sql::Claims::Everything) {
            return Claims::everything();
        }
        let mut claims = self.writes_of_rows(session);
        claims.shared.extend(asked_for(&self.routings));
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
            if self.is_wide {
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
        if !self.may_write {
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
        if self.has_unparsed { Reads::All } else { Reads::Tables(all.into()) }
    }

    /// The sequences that may be drawn from, if it may run away from the anchor, which it may only where they are lent to.
    pub(crate) fn draws(&self) -> BTreeSet<SequenceId> {
        let of = |routing: &Arc<Routing>| sql::draws(routing, &self.catalogue);
        self.routings.iter().flat_map(of).collect()
    }

    /// Something may run that draws, of which nobody knows from what. Savepoints and settings do not.
    pub(crate) fn may_draw_unseen(&self) -> bool {
        self.is_suspect() && !self.is_control
    }

    /// Something may run that sets sequences, unlike a call of `nextval`, of which only the name is not known.
    pub(crate) fn may_set_unseen(&self) -> bool {
        let is_unbounded =
            |routing: &Arc<Routing>| !is_harmless(routing) && routing.claims == sql::Claims::Everything;
        self.may_draw_unseen() && (self.has_unparsed || self.routings.iter().any(is_unbounded))
    }

    /// Something may run that touches what is not known.
    pub(crate) fn is_suspect(&self) -> bool {
        self.has_unparsed || self.routings.iter().any(|routing| !is_harmless(routing))
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

/// Whether work leaves nothing behind, and shows nothing of when and where the transaction began.
pub(crate) fn is_movable_read(requirements: &Requirements, analysis: &StatementAnalysis) -> bool {
    let only_reads =
        |verb: &Verb| matches!(verb, Verb::Select | Verb::Copy { direction: CopyDirection::To, .. });
    analysis.access.is_ok()
        && !analysis.has_locks
        && !requirements.keeps_portal
        && requirements.sent.len() == requirements.statements.len()
        && requirements.statements.iter().all(|s| only_reads(&s.verb) && s.settings.is_empty())
        && analysis.routings.iter().all(|routing| !routing.transaction_time)
        && !requirements.sent.iter().any(Sent::may_read_clock)
}

/// The relations that statements use, as they are asked for.
pub(crate) fn asked_for(routings: &[Arc<Routing>]) -> impl Iterator<Item = (TableId, u64)> + '_ {
    routings.iter().flat_map(|routing| &routing.uses.relations).map(|name| (DEFINITIONS, *name))
}
