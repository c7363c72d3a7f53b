//! Lends ranges of sequences to replicas that want to be the homes of transactions that draw from them
//! (`cluster::parts::sequences::leases`).
//!
//! One task lends for the whole node, on connections of its own, one range after the other. It draws a range at the
//! anchor, waits until a record has brought a mark that covers the draw, and then puts the range into force at the
//! replica. Any transaction at the anchor brings such a record; if none comes, the task makes one ([`marks`]).
//!
//! A transaction waits for a range only if it is open at the replica and did not look as if it would draw. Others run
//! at the anchor while the replica has no range.
//!
//! A replica with leased ranges is not fit to be the anchor: its sequences stand in those ranges. Before it becomes the
//! anchor, all its leases are revoked ([`take_back`]), and statements there wait for that. Its own server refuses a
//! range that is on its way at that moment: the server counts how often leases were revoked.
//!
//! Invariant: a range is good only while its replica is in the incarnation in which it was put into force, and is not
//! the anchor.

mod connections;
mod marks;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::ids::ReplicaId;
use cluster::parts::sequences::leases::{Loan, Range, Want, lendable};
use tokio::time::Instant;

use crate::backend::{BackendError, OwnConnection};
use crate::capture::sequences::{drawn_range, move_call, states};
use crate::coordinator::{AgentOrder, Leader};
use connections::{Connections, STEP_DEADLINE, answer, open_unlimited};

/// The pause between two looks whether a mark is durable.
const LOOK: Duration = Duration::from_millis(2);
/// How long the task waits for a transaction's record before it makes one.
const OTHERS_PATIENCE: Duration = Duration::from_millis(10);
/// The pause after a step that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of the task.
#[derive(Debug, Default)]
struct SequenceAllocator {
    connections: Connections,
    /// Since when a drawn range waits for its mark.
    waits: Option<Instant>,
}

/// Why a step was not done.
enum Failure {
    /// The step had no effect at the server.
    NotDone(String),
    /// The step may have had an effect.
    Unknown(String),
}

/// Lends for as long as the node runs.
pub(crate) async fn run(leader: Arc<Leader>) {
    let mut lender = SequenceAllocator::default();
    loop {
        let want = leader.database.sequences().leases.next_want();
        if let Some(want) = want {
            lender.draw(&leader, want).await;
            continue;
        }
        let (anchor, durable) = (leader.view.anchor(), leader.log.durable());
        let loan = leader.database.sequences().next_loan(anchor, durable);
        if let Some(loan) = loan {
            lender.lend(&leader, loan).await;
            continue;
        }
        let has_drawn = leader.database.sequences().has_drawn();
        leader.sequences.set_wants_marks(has_drawn);
        let asked = leader.sequences.requested();
        // Requests that came before this was registered are seen here.
        if leader.database.sequences().leases.is_asked() {
            continue;
        }
        if lender.wants_record(leader.as_ref(), has_drawn) {
            lender.bring_marks(&leader).await;
            continue;
        }
        if has_drawn {
            drop(tokio::time::timeout(LOOK, asked).await);
        } else {
            asked.await;
        }
    }
}

impl SequenceAllocator {
    /// Whether sessions have brought no marks for a while although ranges wait for them.
    fn wants_record(&mut self, leader: &Leader, has_drawn: bool) -> bool {
        if !has_drawn || leader.wanted_marks().is_empty() {
            self.waits = None;
            return false;
        }
        self.waits.get_or_insert_with(Instant::now).elapsed() >= OTHERS_PATIENCE
    }

    /// Makes a record that has only the marks.
    async fn bring_marks(&mut self, leader: &Arc<Leader>) {
        self.waits = None;
        let anchor = leader.view.anchor();
        let connected = tokio::time::timeout(STEP_DEADLINE, self.connections.at(leader, anchor)).await;
        let is_connected = matches!(connected, Ok(Ok(_)));
        let brought = match self.connections.take(anchor).filter(|_| is_connected) {
            Some((incarnation, connection)) => {
                let bringing = marks::bring(Arc::clone(leader), incarnation, connection);
                // The spawned task runs to its end even if this one is dropped.
                let brought = tokio::spawn(bringing).await;
                brought.ok().flatten().map(|connection| (incarnation, connection))
            }
            None => None,
        };
        match brought {
            Some((incarnation, connection)) => self.connections.put(anchor, incarnation, connection),
            None => tokio::time::sleep(PAUSE).await,
        }
    }

    /// Draws at the anchor a range that a replica wants.
    async fn draw(&mut self, leader: &Leader, want: Want) {
        let drawn = tokio::time::timeout(STEP_DEADLINE, self.draw_at_anchor(leader, want)).await;
        let drawn = drawn.unwrap_or_else(|_| Err(Failure::NotDone("it takes too long".to_owned())));
        match drawn {
            Ok(true) => leader.sequences.set_wants_marks(true),
            Ok(false) => leader.database.sequences().leases.refuse(want, true),
            Err(Failure::NotDone(reason) | Failure::Unknown(reason)) => {
                tracing::debug!(sequence = %want.id, %reason, "no range could be drawn");
                drop(self.connections.take(leader.view.anchor()));
                tokio::time::sleep(PAUSE).await;
                leader.database.sequences().leases.refuse(want, false);
            }
        }
    }

    /// Draws a range. Returns false if ranges of the sequence cannot be lent.
    async fn draw_at_anchor(&mut self, leader: &Leader, want: Want) -> Result<bool, Failure> {
        let anchor = leader.view.anchor();
        let not_done = |error: BackendError| Failure::NotDone(error.to_string());
        let connection = self.connections.at(leader, anchor).await.map_err(not_done)?;
        // Look at the bounds first, without a draw.
        let look = connection.query(&format!("SELECT onecopy_capture.state_of({})", want.id)).await;
        let look = look.map_err(not_done).map(|rows| answer(&rows))?;
        let Some((state, values)) = look.and_then(|text| {
            let state = states(&text, leader.database.served.id)?.pop()?;
            Some((state, lendable(&state, want.values)?))
        }) else {
            return Ok(false);
        };
        if !leader.database.sequences().leases.may_be_drawn(want, &state) {
            tokio::time::sleep(LOOK).await;
            return Ok(true);
        }
        let sql = format!("SELECT onecopy_capture.draw_range({}, {values})", want.id);
        let rows = connection.query(&sql).await.map_err(not_done)?;
        let Some((state, range)) =
            answer(&rows).and_then(|text| drawn_range(&text, leader.database.served.id))
        else {
            return Ok(false);
        };
        leader.database.sequences().leases.drew(want, range, state);
        Ok(true)
    }

    /// Puts a range into force.
    async fn lend(&mut self, leader: &Leader, loan: Loan) {
        let Want { replica, id, .. } = loan.want;
        match self.lend_at(leader, replica, loan).await {
            Ok(()) => {
                let Range { first, last, .. } = loan.range;
                tracing::debug!(sequence = %id, replica = %replica, first, last, "a range is lent");
            }
            Err(failure) => {
                let (reason, is_unknown) = match failure {
                    Failure::NotDone(reason) => (reason, false),
                    Failure::Unknown(reason) => (reason, true),
                };
                tracing::debug!(sequence = %id, replica = %replica, %reason, "a range could not be lent");
                drop(self.connections.take(replica));
                if is_unknown {
                    leader.database.sequences().leases.bar(replica);
                } else {
                    leader.database.sequences().leases.refuse(loan.want, false);
                }
            }
        }
    }

    async fn lend_at(&mut self, leader: &Leader, replica: ReplicaId, loan: Loan) -> Result<(), Failure> {
        let seat = &leader.seats[replica];
        let incarnation = seat.run.incarnation();
        let asked = tokio::time::timeout(STEP_DEADLINE, self.ask_stint(leader, replica)).await;
        let (connection, stint) =
            asked.unwrap_or_else(|_| Err(Failure::NotDone("the server does not answer".to_owned())))?;
        {
            // A change that makes this replica the anchor takes this lock, too, after the change.
            let mut sequences = leader.database.sequences();
            let is_wanted = sequences.leases.is_wanted(loan);
            if !is_wanted || leader.view.anchor() == replica || seat.run.incarnation() != incarnation {
                return Err(Failure::NotDone("the replica is another than it was".to_owned()));
            }
            seat.is_lent.store(true, Ordering::Release);
        }
        let Range { first, last, .. } = loan.range;
        let sql = format!("SELECT onecopy_capture.lend({stint}, {}, '{first}', '{last}')", loan.want.id);
        let put = tokio::time::timeout(STEP_DEADLINE, connection.query(&sql)).await;
        let put = put.map_err(|_| Failure::Unknown("it takes too long".to_owned()))?;
        let rows = put.map_err(|error| match error {
            BackendError::Server(_) => Failure::NotDone(error.to_string()),
            lost => Failure::Unknown(lost.to_string()),
        })?;
        if answer(&rows).as_deref() != Some("t") {
            return Err(Failure::NotDone("what was lent was taken back".to_owned()));
        }
        let mut sequences = leader.database.sequences();
        if leader.view.anchor() == replica || seat.run.incarnation() != incarnation {
            return Err(Failure::NotDone("the replica is another than it was".to_owned()));
        }
        sequences.leases.lent(loan);
        Ok(())
    }

    /// Asks the replica for its lending number. `lend` refuses an older number, so a range that was revoked meanwhile
    /// is not put into force.
    async fn ask_stint(
        &mut self,
        leader: &Leader,
        replica: ReplicaId,
    ) -> Result<(&mut OwnConnection, String), Failure> {
        let not_done = |error: BackendError| Failure::NotDone(error.to_string());
        let connection = self.connections.at(leader, replica).await.map_err(not_done)?;
        let rows = connection.query("SELECT n FROM onecopy_capture.stint").await.map_err(not_done)?;
        let stint = answer(&rows).ok_or_else(|| Failure::NotDone("it has no number".to_owned()))?;
        Ok((connection, stint))
    }
}

/// Revokes a replica's sequence leases: it is the anchor now, or the node stops. Its sequences stand at their marks
/// then.
pub(crate) async fn take_back(leader: &Leader, replica: ReplicaId) {
    let seat = &leader.seats[replica];
    if !seat.is_lent.load(Ordering::Acquire) {
        return;
    }
    let incarnation = seat.run.incarnation();
    let taken = tokio::time::timeout(STEP_DEADLINE, async {
        let mut connection = open_unlimited(leader, replica).await?;
        unlend(leader, &mut connection).await
    });
    match taken.await {
        Ok(Ok(_)) if seat.run.incarnation() == incarnation => seat.is_lent.store(false, Ordering::Release),
        // The replica comes up again, and then all leases are revoked.
        Ok(Ok(_)) => {}
        outcome => {
            let reason = match outcome {
                Ok(Err(error)) => error.to_string(),
                _ => "the server does not answer".to_owned(),
            };
            tracing::warn!(replica = %seat.name, %reason, "its sequences could not be taken back");
            leader.seats[replica].order(AgentOrder::Reset);
        }
    }
}

/// Revokes the server's sequence leases, and moves these sequences to their marks. Returns their number.
pub(crate) async fn unlend(leader: &Leader, connection: &mut OwnConnection) -> Result<usize, BackendError> {
    connection.query("BEGIN").await?;
    let taken = connection.query("SELECT onecopy_capture.unlend()").await?;
    let marks = leader.database.sequences().all_marks();
    for mark in &marks {
        if taken.iter().any(|row| row.first().and_then(|id| id.as_deref()) == Some(&mark.id.to_string())) {
            connection.query(&format!("SELECT {}", move_call(mark))).await?;
        }
    }
    connection.query("COMMIT").await?;
    Ok(taken.len())
}
