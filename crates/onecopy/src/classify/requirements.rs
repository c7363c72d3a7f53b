//! The needs of statements that run together, before the catalogue is consulted.
//!
//! Example: `INSERT INTO t VALUES ($1)` with a binary parameter is one statement whose `protocol.is_binary` is set.

use std::sync::Arc;

use cluster::ids::TableId;
use sql::accesses::Accesses;
use sql::{Access, Because, Catalogue, Routing, Statement, Verb};

use crate::client::sent::Sent;
use crate::coordinator::Coordinator;

/// The needs of a group of statements that run together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Requirements {
    /// The statements; empty when nothing is executed.
    pub(crate) statements: Vec<Arc<Statement>>,
    /// The same statements as the client sent them, where these texts were kept.
    pub(crate) sent: Vec<Sent>,
    /// Some text could not be parsed.
    pub(crate) has_unparsed: bool,
    /// The group is one schema change that other sessions can see. Any other schema change is about the session's
    /// temporary objects.
    pub(crate) is_schema_change: bool,
    pub(crate) protocol: ProtocolNeeds,
}

/// The requirements of messages of the extended protocol. Messages of the simple protocol have none of these.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtocolNeeds {
    /// A portal that was bound here may be read later.
    pub(crate) keeps_portal: bool,
    /// Parameters or results may be in binary form.
    pub(crate) is_binary: bool,
    /// Parameters are declared to be of users' types, by the anchor's ids.
    pub(crate) declares_users: bool,
}

impl Requirements {
    pub(crate) fn one(statement: &Arc<Statement>) -> Self {
        Self { statements: vec![Arc::clone(statement)], ..Self::default() }
    }

    pub(crate) fn sent(statement: &Arc<Statement>, sent: Option<Sent>) -> Self {
        Self { sent: sent.into_iter().collect(), ..Self::one(statement) }
    }

    pub(crate) fn schema_change(statement: &Arc<Statement>) -> Self {
        Self { is_schema_change: true, ..Self::one(statement) }
    }

    /// The same statements, treated as texts that could not be parsed.
    pub(crate) fn as_unparsed(&self) -> Self {
        Self { has_unparsed: true, ..self.clone() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.statements.is_empty() && !self.has_unparsed
    }

    /// Whether every statement that runs was kept as the client sent it.
    pub(crate) fn is_sent_whole(&self) -> bool {
        self.sent.len() == self.statements.len()
    }

    pub(crate) fn any(&self, is_such: impl Fn(&Statement) -> bool) -> bool {
        self.statements.iter().any(|statement| is_such(statement))
    }

    pub(crate) fn all(&self, are_such: impl Fn(&Statement) -> bool) -> bool {
        self.statements.iter().all(|statement| are_such(statement))
    }

    /// Whether the statements take a snapshot when they run. SAVEPOINT, SET, SHOW, LOCK TABLE and the like take none.
    pub(crate) fn takes_snapshot(&self) -> bool {
        use Verb::{Call, Copy, DeclareCursor, Delete, Do, Insert, Merge, Select, Update};
        self.any(|statement| {
            matches!(
                statement.verb,
                Select | Insert | Update | Delete | Merge | Copy { .. } | DeclareCursor { .. } | Call | Do
            )
        })
    }

    /// The tables that are read, if any replica may run the statements; otherwise the reason why only the anchor may.
    pub(crate) fn access(&self, routings: &[Arc<Routing>]) -> Result<Arc<[TableId]>, Because> {
        let mut tables: Vec<TableId> = Vec::new();
        let mut access = if self.has_unparsed { Err(Because::Unknown) } else { Ok(()) };
        for routing in routings {
            match (&routing.access, access) {
                (Access::Read(read), Ok(())) => tables.extend(read),
                (Access::Anchor(because), Ok(())) => access = Err(*because),
                (Access::Anchor(Because::Update), Err(_)) => access = Err(Because::Update),
                _ => {}
            }
            if self.protocol.is_binary && routing.user_types && access.is_ok() {
                access = Err(Because::Catalogue);
            }
        }
        if self.protocol.declares_users && access.is_ok() {
            access = Err(Because::Catalogue);
        }
        access.map(|()| tables.into())
    }

    /// Whether any replica can be the home of a transaction with these statements. Sequence leases are checked
    /// elsewhere.
    pub(crate) fn may_leave_anchor(&self, routings: &[Arc<Routing>], catalogue: &Catalogue) -> bool {
        let pairs = self.statements.iter().zip(routings);
        !self.has_unparsed
            && !self.protocol.declares_users
            && !self.protocol.keeps_portal
            && routings.len() == self.statements.len()
            && pairs.into_iter().all(|(statement, routing)| {
                sql::may_leave_anchor(statement, routing, self.protocol.is_binary, catalogue)
            })
    }

    /// The claims of a statement beyond its rows. A temporary object belongs to the session alone.
    pub(crate) fn claims_of(&self, routing: &Routing) -> sql::Claims {
        let is_own = routing.only_defines && !self.is_schema_change;
        if is_own { sql::Claims::Rows } else { routing.claims.clone() }
    }

    /// The statements looked like reads and write. From now on similar statements count as writes.
    pub(crate) fn note_write(&self, coordinator: &Coordinator) {
        for statement in &self.statements {
            coordinator
                .database
                .workload
                .note_write(statement.template, coordinator.database.catalogue().generation());
        }
    }

    /// The accesses of all statements together, with the values that they were sent with.
    pub(crate) fn touched(&self, catalogue: &Catalogue) -> Option<Accesses> {
        if self.has_unparsed || !self.is_sent_whole() {
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
