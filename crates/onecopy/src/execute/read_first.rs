//! Runs statements of a transaction that has only read so far, away from its home, and moves it home
//! ([`crate::place::read_first`]).

use cluster::event::Reads;
use wire::sqlstate;

use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::drive::reading::WantedRead;
use crate::error::{Fault, Refusal};
use crate::execute::Executor;
use crate::place::holdings::HomeTables;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::transaction::open::Transaction;

impl Executor<'_> {
    /// Runs work in a transaction that is away from home.
    pub(crate) async fn run_read_first(
        &mut self,
        requirements: &Requirements,
        work: Work<'_>,
        is_first: bool,
    ) -> Result<Ended, Fault> {
        let analysis = requirements.analyse(self.view());
        if !analysis.is_movable_read(requirements) {
            self.placer().come_home(true).await?;
            return self.run_inside(requirements, work, false).await;
        }
        let mark = self.link.client.out.len();
        self.link.client.shown = false;
        let result = self.read_away(analysis, work, is_first).await;
        let hides_write =
            |ended: &Ended| ended.sqlstate() == Some(sqlstate::READ_ONLY_SQL_TRANSACTION.as_bytes());
        let may_write = match &result {
            Ok(ended) if !hides_write(ended) => return result,
            Ok(_) => true,
            Err(Fault::Lost(_) | Fault::Evicted | Fault::Unplaced(_)) => false,
            Err(_) => {
                self.driver().abandon_read();
                return result;
            }
        };
        if may_write {
            requirements.note_write(self.link.coordinator());
        }
        if self.link.client.shown {
            self.driver().abandon_read();
            return if may_write { Err(self.placer().found_out_too_late(&result)) } else { result };
        }
        self.link.client.take_back(mark);
        self.placer().come_home(false).await?;
        let requirements = if may_write { requirements.as_unparsed() } else { requirements.clone() };
        self.run_inside(&requirements, work, false).await
    }

    async fn read_away(
        &mut self,
        analysis: StatementAnalysis,
        work: Work<'_>,
        is_first: bool,
    ) -> Result<Ended, Fault> {
        let Transaction::Read(read) = &self.txn.state else {
            return Err(crate::error::broken("no read-only transaction is open"));
        };
        let replica = read.replica;
        if !is_first {
            let reads = analysis.access.as_ref().map_or(Reads::All, |tables| analysis.spread_reads(tables));
            let touches = HomeTables::of(self.view(), &analysis).touched();
            let read = WantedRead { reads: &reads, touches };
            self.driver().place_read_of(read, Some(replica), analysis.generation(), None).await?;
        }
        self.driver().at_replica(replica, work).await
    }

    /// Moves a read-only transaction to the anchor, where session locks are held; elsewhere they would not exclude
    /// other sessions. A transaction that keeps a snapshot, or has state at its replica, cannot move.
    pub(crate) async fn come_home_to_lock(&mut self) -> Result<(), Fault> {
        let Transaction::Read(read) = &self.txn.state else { return Ok(()) };
        let may_move = !read.is_snapshot
            && self.txn.savepoints.is_empty()
            && !self.link.settings.is_astray()
            && !self.link.prepared.has_named_portals();
        if may_move {
            return self.placer().come_home(true).await;
        }
        let what =
            "an advisory lock of the session in a read-only transaction that has begun at another replica";
        Err(Refusal::unsupported(what, "Take the lock before the transaction, or use READ WRITE.").into())
    }
}
