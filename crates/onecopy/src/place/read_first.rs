//! A transaction that is expected to read only, away from home.
//!
//! Clients say BEGIN and then often only read. Where that is declared or learned ([`crate::transaction::profile`]) the transaction
//! begins on any replica that is fresh enough, read-only there, and comes home with the first statement that is more
//! than a bounded read. Until then nothing depends on where it is: at READ COMMITTED each statement has a snapshot of
//! its own, and what one has seen every later one needs (DESIGN section 3, visibility). What would show the move stays
//! at home from the start: the time at which the transaction began, portals that are read in parts, settings,
//! savepoints, cursors.
//!
//! Invariant: the client cannot tell, but by time. A loss of the replica, a hidden write and a refresh that cannot wait
//! bring the transaction home, too, and the statement is run again if nothing of it was shown.

use cluster::claims::Claims;
use cluster::event::Reads;
use sql::{CopyDirection, Isolation, TransactionOptions, Verb};
use wire::frame::HEADER_BYTES;
use wire::sqlstate;

use super::home_choice::Opening;
use crate::classify::statement_analysis::{Demand, Judged};
use crate::coordinator::count;
use crate::error::{Fault, Refusal};
use crate::relay::work::Work;
use crate::relay::{Ended, Relay};
use crate::session::{Session, Transaction};
use crate::transaction::reasons::Reason;

impl Session {
    /// Whether the transaction that begins with this may begin away from home.
    pub(crate) async fn may_begin_away(
        &mut self,
        options: TransactionOptions,
        demand: &Demand,
        judged: &Judged,
    ) -> Result<bool, Fault> {
        let may = options.read_only != Some(true)
            && options.deferrable != Some(true)
            && options.isolation <= Some(Isolation::ReadCommitted)
            && may_roam(demand, judged)
            && self.expects_only_reads();
        Ok(may && !self.must_stay_home().await?)
    }

    /// Whether the open transaction is away from home and may come back.
    pub(crate) fn is_roaming(&self) -> bool {
        matches!(&self.transaction, Transaction::Read(read) if read.is_roaming)
    }

    /// Work in a transaction that is away from home.
    pub(crate) async fn roam(
        &mut self,
        demand: &Demand,
        work: Work<'_>,
        is_first: bool,
    ) -> Result<Ended, Fault> {
        let judged = demand.judge(self);
        if !may_roam(demand, &judged) {
            self.come_home(true).await?;
            return self.run_inside(demand, work, false).await;
        }
        let mark = self.client.out.len();
        self.client.shown = false;
        let result = self.read_away(judged, work, is_first).await;
        let hides_write =
            |ended: &Ended| ended.sqlstate() == Some(sqlstate::READ_ONLY_SQL_TRANSACTION.as_bytes());
        let may_write = match &result {
            Ok(ended) if !hides_write(ended) => return result,
            Ok(_) => true,
            Err(Fault::Lost(_) | Fault::Evicted | Fault::Unplaced(_)) => false,
            Err(_) => {
                self.abandon_read();
                return result;
            }
        };
        if may_write {
            demand.note_write(self);
        }
        if self.client.shown {
            self.abandon_read();
            return if may_write { Err(self.found_out_too_late(&result)) } else { result };
        }
        self.client.take_back(mark);
        self.come_home(false).await?;
        let demand = Demand { has_unparsed: demand.has_unparsed || may_write, ..demand.clone() };
        self.run_inside(&demand, work, false).await
    }

    /// What seemed to read only writes, and the client has had rows of it. It is told this instead of what the server has said
    /// at last, which would make no sense to it.
    pub(crate) fn found_out_too_late(&mut self, result: &Result<Ended, Fault>) -> Fault {
        let out = &mut self.client.out;
        if let Ok(Ended { error: Some(body), .. }) = result
            && out.ends_with(body)
        {
            out.truncate(out.len().saturating_sub(HEADER_BYTES + body.len()));
        }
        Refusal::new(
            sqlstate::SERIALIZATION_FAILURE,
            "a statement that seemed to read only writes, which was found out too late",
            "Run the transaction again: from now on the statement runs where it may write.",
        )
        .into()
    }

    async fn read_away(&mut self, judged: Judged, work: Work<'_>, is_first: bool) -> Result<Ended, Fault> {
        let Transaction::Read(read) = &self.transaction else {
            return Err(crate::transaction::broken("no read-only transaction is open"));
        };
        let replica = read.replica;
        if !is_first {
            let reads = judged.access.as_ref().map_or(Reads::All, |tables| judged.spread_reads(tables));
            self.place_read(&reads, Some(replica), judged.generation).await?;
        }
        self.at_replica(replica, work).await
    }

    /// Whether a read-only transaction is open at another replica than the anchor.
    pub(crate) fn is_reading_away(&self) -> bool {
        matches!(&self.transaction, Transaction::Read(read) if read.replica != self.anchor())
    }

    /// A session lock is held at the anchor, or it would exclude nobody. A transaction that keeps a snapshot, or has something
    /// at its replica, cannot go there.
    pub(crate) async fn come_home_to_lock(&mut self) -> Result<(), Fault> {
        let Transaction::Read(read) = &self.transaction else { return Ok(()) };
        let may_move = !read.is_snapshot
            && self.savepoints.is_empty()
            && !self.settings.is_astray()
            && !self.prepared.has_named_portals();
        if may_move {
            return self.come_home(true).await;
        }
        let what =
            "an advisory lock of the session in a read-only transaction that has begun at another replica";
        Err(Refusal::unsupported(what, "Take the lock before the transaction, or use READ WRITE.").into())
    }

    /// Goes on at the home. What was done so far were complete reads, so nothing has to be brought along.
    pub(crate) async fn come_home(&mut self, is_intact: bool) -> Result<(), Fault> {
        let Transaction::Read(read) = &self.transaction else { return Ok(()) };
        let (replica, options) = (read.replica, read.options);
        count(&self.hub().stats.came_home);
        let ended = is_intact && self.end_away(replica).await;
        if !ended {
            self.servers.close(replica);
        }
        self.transaction = Transaction::None;
        let (reads, writes) = (Reads::Tables([].into()), Claims::default());
        let opening = Opening { reads, writes, reason: Reason::Interactive, ..Opening::unbounded() };
        let opened = self.open_update(options, opening, false).await;
        match opened {
            // The statement for which it came asks for its own turn.
            Ok(()) => self.executed(),
            Err(_) => self.transaction = Transaction::Begun(options),
        }
        opened
    }

    /// Ends what is open at the replica; whether the connection is of use.
    async fn end_away(&mut self, replica: cluster::ids::ReplicaId) -> bool {
        let server = self.servers.get(replica);
        server.query_own("COMMIT");
        let ended = Relay::new(&mut self.client, server, None).run(Self::silent()).await;
        matches!(ended, Ok(Ended { error: None, .. }))
    }
}

/// Whether work leaves nothing behind, and shows nothing of when and where the transaction began.
pub(crate) fn may_roam(demand: &Demand, judged: &Judged) -> bool {
    let only_reads =
        |verb: &Verb| matches!(verb, Verb::Select | Verb::Copy { direction: CopyDirection::To, .. });
    judged.access.is_ok()
        && !judged.has_locks
        && !demand.keeps_portal
        && demand.sent.len() == demand.statements.len()
        && demand.statements.iter().all(|s| only_reads(&s.verb) && s.settings.is_empty())
        && judged.routings.iter().all(|routing| !routing.transaction_time)
        && !demand.sent.iter().any(crate::client::sent::Sent::may_read_clock)
}
