//! A transaction at the anchor that leaves only the marks that ranges wait for.
//!
//! While sessions write at the anchor, their records carry the marks
//! ([`crate::coordinator::Coordinator::wanted_marks`]). Without such a session, a transaction at another replica would
//! wait for its range for ever. So the allocator makes a record of its own. It takes the steps of a session (DESIGN
//! section 3, "Commit, step by step"), on a connection of its own.
//!
//! Invariant: once the record is handed over, the task goes on until COMMIT was sent and answered, or the anchor is
//! lost.

use std::sync::Arc;
use std::time::Duration;

use cluster::claims::Claims;
use cluster::event::{Effect, Event, Foreseen, Home, Level, Needs, Reads};
use cluster::ids::{Identity, Incarnation, Nonce, ReplicaId, SessionId, Version};
use cluster::placement::Touches;
use cluster::record::RecordBuilder;

use super::connections::{STEP_DEADLINE, answer};
use crate::backend::OwnConnection;
use crate::coordinator::Leader;
use crate::coordinator::mailbox::{Mailbox, Note};
use crate::replica::agent::identity;

/// The expected cost of its two statements.
const COST_US: u32 = 200;
/// How long it waits for the core to place the transaction.
const PLACE_PATIENCE: Duration = Duration::from_secs(1);

/// The number that home draws, as in `frontend/commit.rs`.
const NUMBER: &str = "pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::int8";

struct Bringer {
    leader: Arc<Leader>,
    id: SessionId,
    mailbox: Arc<Mailbox>,
    anchor: ReplicaId,
    incarnation: Incarnation,
    connection: OwnConnection,
}

/// Brings the marks. Returns the connection if it is still of use.
pub(super) async fn bring(
    leader: Arc<Leader>,
    incarnation: Incarnation,
    connection: OwnConnection,
) -> Option<OwnConnection> {
    let (id, mailbox) = leader.open_session();
    let anchor = leader.view.anchor();
    let mut bringer = Bringer { leader, id, mailbox, anchor, incarnation, connection };
    let is_good = bringer.run().await.is_some();
    let Bringer { leader, connection, .. } = bringer;
    // If the transaction has a record, only the log decides its outcome.
    leader.core.tell(Event::End { session: id });
    leader.close_session(id);
    is_good.then_some(connection)
}

impl Bringer {
    /// Returns `None` if the connection is of no use any more.
    async fn run(&mut self) -> Option<()> {
        let identity = self.begin().await?;
        let identified = self.identify(identity).await;
        self.leader.core.tell(Event::Executed { session: self.id });
        let lsn = identified?;
        let mut record = RecordBuilder::new(self.leader.database.served.id);
        let marks = self.leader.wanted_marks();
        let is_room = self.leader.log.has_room() && self.leader.log.refusal().is_none();
        if marks.is_empty() || !is_room || marks.iter().any(|mark| record.push_sequence(mark).is_err()) {
            return self.ask("ROLLBACK").await.map(drop);
        }
        self.leader.core.tell(Event::LockLsn { session: self.id, lsn });
        let (body, reads) = (Box::new(record.seal()), Reads::Tables([].into()));
        let (claims, changed) = (Vec::new(), Vec::new());
        self.leader.core.tell(Event::Finish { session: self.id, body, claims, changed, reads });
        self.end().await
    }

    async fn begin(&mut self) -> Option<Identity> {
        let needs = Needs {
            reads: Reads::Tables([].into()),
            touches: Touches::Tables([].into()),
            writes: Claims::default(),
            cost_us: COST_US,
            near: None,
            catalogue: Version(self.leader.database.catalogue().generation()),
            kind: None,
        };
        let (session, nonce) = (self.id, Nonce(getrandom::u64().ok()?));
        let event = Event::Begin {
            session,
            level: Level::ReadCommitted,
            nonce,
            home: Home::Anchor,
            needs,
            foreseen: Foreseen::default(),
        };
        let placed = match self.leader.core.ask(Some(self.id), event) {
            Some(effect) => effect,
            None => tokio::time::timeout(PLACE_PATIENCE, self.placed()).await.ok()?,
        };
        match placed {
            Effect::Execute { replica, incarnation, identity, .. }
                if replica == self.anchor && incarnation == self.incarnation =>
            {
                identity
            }
            _ => None,
        }
    }

    async fn placed(&self) -> Effect {
        loop {
            if let Note::Effect(effect) = self.mailbox.next().await {
                return effect;
            }
        }
    }

    async fn identify(&mut self, identity: Identity) -> Option<u64> {
        let values = identity::literals(identity, &self.leader.local.seal);
        self.ask(&format!(
            "BEGIN READ WRITE; INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ({values}) RETURNING {NUMBER}"
        ))
        .await
    }

    /// Runs a statement at the anchor. Returns the number in its answer, or 0 if it has none.
    async fn ask(&mut self, sql: &str) -> Option<u64> {
        let rows = tokio::time::timeout(STEP_DEADLINE, self.connection.query(sql)).await.ok()?.ok()?;
        answer(&rows).map_or(Some(0), |number| number.parse().ok())
    }

    /// Waits for the outcome, which only the log decides from here on.
    async fn end(&mut self) -> Option<()> {
        loop {
            let Note::Effect(effect) = self.mailbox.next().await else { continue };
            match effect {
                Effect::DrawLockLsn { .. } => {
                    let lsn = self.ask(&format!("SELECT {NUMBER}")).await?;
                    self.leader.core.tell(Event::LockLsn { session: self.id, lsn });
                }
                Effect::Commit { .. } => {
                    let committed = self.ask("COMMIT").await;
                    self.leader.core.tell(match committed {
                        Some(_) => Event::Committed { session: self.id },
                        None => Event::ReplicaLost { replica: self.anchor, incarnation: self.incarnation },
                    });
                    return committed.map(drop);
                }
                Effect::HomeLost { .. } | Effect::Abort { .. } => return None,
                // The record is durable. Its COMMIT comes as an effect of its own.
                _ => {}
            }
        }
    }
}
