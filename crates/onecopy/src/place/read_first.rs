//! Runs a transaction that probably only reads away from home.
//!
//! Clients say BEGIN and then often only read. Where that is declared or learned ([`crate::transaction::profile`]) the
//! transaction begins on any replica that is fresh enough, read-only there. It moves home with the first statement that
//! is more than a bounded read. Until then nothing depends on its place: at READ COMMITTED each statement has its own
//! snapshot, and every later statement needs the state that an earlier one has seen (design.md section 3, visibility).
//! Some features would show the move, and keep a transaction at home from the start: its start time, portals that are
//! read in parts, settings, savepoints, cursors.
//!
//! Invariant: the client cannot notice the move, except by time. A lost replica, a hidden write and a refresh that
//! cannot wait also bring the transaction home. Then the statement is retried if the client has seen none of its reply.

use cluster::claims::Claims;
use cluster::event::Reads;
use sql::{Isolation, TransactionOptions};
use wire::frame::HEADER_BYTES;
use wire::sqlstate;

use super::home_choice::PlaceDecision;
use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::{Fault, Refusal};
use crate::local::count;
use crate::place::Placer;
use crate::relay::{Ended, Expected, Relay};
use crate::transaction::anchor_reason::AnchorReason;
use crate::transaction::open::Transaction;
use crate::transaction::update::Boundary;
use crate::transaction::view::View;

impl View<'_> {
    /// Whether a read-only transaction is open at another replica than the anchor.
    pub(crate) fn is_reading_away(self) -> bool {
        matches!(&self.txn.state, Transaction::Read(read) if read.replica != self.link.anchor())
    }
}

impl Placer<'_> {
    /// Whether the transaction that begins with this may begin away from home.
    pub(crate) async fn may_begin_away(
        &mut self,
        options: TransactionOptions,
        requirements: &Requirements,
        analysis: &StatementAnalysis,
    ) -> Result<bool, Fault> {
        let may = options.read_only != Some(true)
            && options.deferrable != Some(true)
            && options.isolation <= Some(Isolation::ReadCommitted)
            && analysis.is_movable_read(requirements)
            && self.view().expects_only_reads();
        Ok(may && !self.must_stay_home().await?)
    }

    /// The error of a statement that looked like a read, writes, and has already sent rows to the client. It replaces
    /// the error of the server, which would make no sense to the client.
    pub(crate) fn found_out_too_late(&mut self, result: &Result<Ended, Fault>) -> Fault {
        let out = &mut self.link.client.out;
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

    /// Goes on at the home. The transaction has made only complete reads so far, so no state moves with it.
    pub(crate) async fn come_home(&mut self, is_intact: bool) -> Result<(), Fault> {
        let Transaction::Read(read) = &self.txn.state else { return Ok(()) };
        let (replica, options) = (read.replica, read.options);
        count(&self.link.local().stats.came_home);
        let ended = is_intact && self.end_away(replica).await;
        if !ended {
            self.link.servers.close(replica);
        }
        self.txn.state = Transaction::None;
        let (reads, writes) = (Reads::Tables([].into()), Claims::default());
        let opening =
            PlaceDecision { reads, writes, reason: AnchorReason::Interactive, ..PlaceDecision::unbounded() };
        let opened = self.open_update(options, opening, Boundary::Block).await;
        match opened {
            // The statement that caused the move asks for its own turn.
            Ok(()) => self.link.executed(),
            Err(_) => self.txn.state = Transaction::Begun(options),
        }
        opened
    }

    /// Ends the transaction at the replica. Returns whether the connection can be used again.
    async fn end_away(&mut self, replica: cluster::ids::ReplicaId) -> bool {
        let server = self.link.servers.get(replica);
        server.query_own("COMMIT");
        let ended = Relay::new(&mut self.link.client, server, None).run(Expected::silent()).await;
        matches!(ended, Ok(Ended { error: None, .. }))
    }
}
