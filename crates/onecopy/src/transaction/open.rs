//! The state of a session's open transaction, in addition to its state at a server ([`Transaction`]).

use std::collections::BTreeSet;
use std::time::Duration;

use cluster::claims::Claims;
use cluster::event::AbortCause;
use cluster::ids::{Identity, Incarnation, ReplicaId, TableId, Version};
use cluster::record::{Mark, Statement as Recorded};
use sql::{Isolation, TransactionOptions};
use tokio::time::Instant;
use wire::backend::Status;

use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::{Fault, Refusal, broken};
use crate::relay::Ended;
use crate::transaction::conflict_detail::ConflictDetail;
use crate::transaction::profile::TxnProfile;
use crate::transaction::sequence_use::{LeaseUse, SequenceUse};
use crate::transaction::update::Update;
use crate::transaction::wait_stats::WaitStats;

/// The number of transparent retries of a single-statement transaction.
pub(crate) const RETRIES_MAX: u32 = 3;
/// The pause before a retry.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(20);

/// The transaction as the client sees it.
#[derive(Debug)]
pub(crate) enum Transaction {
    /// No transaction is open.
    None,
    /// The client said BEGIN, and no statement has run yet.
    Begun(TransactionOptions),
    /// A read-only transaction, open on one replica.
    Read(ReadOnly),
    /// A transaction that may write, open at its home.
    Update(Box<Update>),
    /// The server of the transaction is lost, so the client can only roll it back.
    Lost(TransactionOptions),
}

/// A read-only transaction on a replica.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    pub(crate) replica: ReplicaId,
    pub(crate) options: TransactionOptions,
    /// The client may go on to write. Then the transaction moves home.
    pub(crate) is_read_first: bool,
    /// Its snapshot outlives its statements.
    pub(crate) is_snapshot: bool,
    /// The snapshot is taken. SAVEPOINT, SET, SHOW and LOCK take none, so the first statement need not be the one that
    /// takes it.
    pub(crate) has_snapshot: bool,
}

/// The place of a statement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Assignment {
    pub(crate) replica: ReplicaId,
    pub(crate) incarnation: Incarnation,
    pub(crate) identity: Option<Identity>,
    /// The replica has every version up to this one.
    pub(crate) applied: Version,
}

/// The answer to a request for a place.
pub(crate) enum Admission {
    Granted(Assignment),
    /// The catalogue was out of date. The session must analyse the statement again with the present one.
    Reclassify,
    /// The transaction is over, or the replica where it is open is lost.
    Aborted(AbortCause),
    /// An older transaction goes first: it has to be rolled back.
    Recalled,
}

/// The open transaction of a session. Without one, the state with which the next transaction begins.
pub(crate) struct OpenTransaction {
    pub(crate) state: Transaction,
    /// The client can only roll the open transaction back.
    pub(crate) failed: bool,
    /// The savepoints of the open transaction.
    pub(crate) savepoints: Vec<Savepoint>,
    /// The declared, past and expected accesses of the open transaction.
    pub(crate) txn_profile: TxnProfile,
    /// The waits of the open update transaction.
    pub(crate) wait_stats: WaitStats,
    /// The keys that its statements have named.
    pub(crate) named_rows: ConflictDetail,
    /// The reason of the loss, if it was not the loss of its home.
    pub(crate) loss: Option<Refusal>,
    /// The transaction was lost while the client was silent. Its next statement gets the error.
    pub(crate) must_tell_loss: bool,
    /// The home of the present or last update transaction.
    pub(crate) last_home: ReplicaId,
    /// The replica where the session's rows with sequence values are written.
    pub(crate) lease_use: LeaseUse,
    /// Changes for its next attempt.
    pub(crate) retry_hints: RetryHints,
    /// The replica where the session's last statement ran.
    pub(crate) last_ran_at: Option<ReplicaId>,
    /// The time when its present statement got a place.
    pub(crate) admitted_at: Instant,
    /// The expected run time of the statement at a server.
    pub(crate) cost_us: Option<u32>,
    /// Tables for which the client got a warning.
    pub(crate) warned: BTreeSet<TableId>,
}

impl OpenTransaction {
    pub(crate) fn none(anchor: ReplicaId) -> Self {
        Self {
            state: Transaction::None,
            failed: false,
            savepoints: Vec::new(),
            txn_profile: TxnProfile::default(),
            wait_stats: WaitStats::default(),
            named_rows: ConflictDetail::default(),
            loss: None,
            must_tell_loss: false,
            last_home: anchor,
            lease_use: LeaseUse::default(),
            retry_hints: RetryHints::default(),
            last_ran_at: None,
            admitted_at: Instant::now(),
            cost_us: None,
            warned: BTreeSet::new(),
        }
    }

    /// The client's transaction has lost its server. It is failed until the client ends it.
    pub(crate) fn lose(&mut self, options: TransactionOptions) {
        self.state = Transaction::Lost(options);
        self.failed = true;
    }

    /// Reports the loss once, as an error of the next statement, COMMIT included.
    pub(crate) fn tell_loss(&mut self) -> Result<(), Fault> {
        if std::mem::take(&mut self.must_tell_loss) {
            return Err(self.loss());
        }
        Ok(())
    }

    /// The error that reports the loss of the transaction.
    pub(crate) fn loss(&mut self) -> Fault {
        self.loss.take().map_or(Fault::Lost(self.last_home), Fault::Rival)
    }

    /// Whether the transaction is certified even if its record may be empty. Not if the server lets it write nothing.
    pub(crate) fn must_certify(&self) -> bool {
        matches!(&self.state, Transaction::Update(update)
            if update.reads.may_have_written && update.options.read_only != Some(true))
    }

    pub(crate) fn has_ddl(&self) -> bool {
        matches!(&self.state, Transaction::Update(update) if update.schema.has_changes())
    }

    pub(crate) fn is_identified(&self) -> bool {
        matches!(&self.state, Transaction::Update(update) if update.preparation.is_identified())
    }

    /// The transaction status for ReadyForQuery.
    pub(crate) fn status(&self) -> Status {
        match self.state {
            Transaction::None => Status::Idle,
            _ if self.failed => Status::Failed,
            _ => Status::Open,
        }
    }

    pub(crate) fn admit(&mut self, place: Assignment, was_free: bool) -> Admission {
        self.admitted_at = Instant::now();
        if was_free {
            self.last_ran_at = Some(place.replica);
        }
        Admission::Granted(place)
    }

    /// Whether the open transaction runs away from home and may move home.
    pub(crate) fn is_read_first(&self) -> bool {
        matches!(&self.state, Transaction::Read(read) if read.is_read_first)
    }

    pub(crate) fn push_statement(&mut self, recorded: &Recorded) -> Result<(), Fault> {
        let Transaction::Update(update) = &mut self.state else {
            return Err(broken("no update transaction is open"));
        };
        update.capture.record.push_statement(recorded).map_err(|_| too_large())
    }

    pub(crate) fn sequences(&mut self) -> Result<&mut SequenceUse, Fault> {
        match &mut self.state {
            Transaction::Update(update) => Ok(&mut update.sequences),
            _ => Err(broken("no update transaction is open")),
        }
    }

    /// The number of captured rows of the open update transaction.
    pub(crate) fn rows_captured(&self) -> u64 {
        match &self.state {
            Transaction::Update(update) => update.capture.record.rows(),
            _ => 0,
        }
    }

    /// Notes a statement that wrote, or may have written, rows without capture. `rows_before` counts the rows captured
    /// before it.
    pub(crate) fn note_written(&mut self, tag: &[u8], rows_before: u64) {
        if let Transaction::Update(update) = &mut self.state {
            let is_captured = update.capture.record.rows() != rows_before;
            update.unseen.note_written(rows_written(tag), is_captured);
        }
    }

    pub(crate) fn captured_rows(&self) -> u64 {
        match &self.state {
            Transaction::Update(update) => update.capture.record.rows(),
            _ => 0,
        }
    }

    /// Notes that a statement has taken the transaction's snapshot, if the transaction keeps one.
    pub(crate) fn note_snapshot(&mut self, takes_snapshot: bool, ended: &Result<Ended, Fault>) {
        if !takes_snapshot || !matches!(ended, Ok(ended) if ended.error.is_none()) {
            return;
        }
        match &mut self.state {
            Transaction::Read(read) => read.has_snapshot = read.is_snapshot,
            Transaction::Update(update) => update.server.has_snapshot = true,
            _ => {}
        }
    }

    /// Notes the facts for later decisions about the transaction's home.
    pub(crate) fn record_profile(&mut self, requirements: &Requirements, analysis: &StatementAnalysis) {
        if let Transaction::Update(update) = &mut self.state {
            update.profile.is_movable &= analysis.is_movable_read(requirements);
            update.profile.needs_anchor |= !analysis.may_leave_anchor;
        }
    }

    pub(crate) fn is_read_committed(&self) -> bool {
        matches!(&self.state,
            Transaction::Update(update) if update.options.isolation <= Some(Isolation::ReadCommitted))
    }

    /// A statement has run, or is about to run. Rows that it did not reserve are reserved at the end.
    pub(crate) fn note_unreserved(&mut self, is_reserved: bool) {
        if let Transaction::Update(update) = &mut self.state {
            update.has_unreserved_writes |= !is_reserved;
        }
    }

    /// The client sets or ends savepoints of its own. Our savepoint may be gone, or lie under them.
    pub(crate) fn leave_guard(&mut self) {
        if let Transaction::Update(update) = &mut self.state {
            update.server.has_own_savepoint = false;
        }
    }

    pub(crate) fn record_mark(&mut self) -> Mark {
        match &mut self.state {
            Transaction::Update(update) => update.capture.record.mark_whole(),
            _ => Mark::default(),
        }
    }

    /// The server has rolled back the rows that were captured after the mark.
    pub(crate) fn forget_rows(&mut self, mark: Mark) {
        let Transaction::Update(update) = &mut self.state else { return };
        let capture = &mut update.capture;
        capture.record.truncate_to(mark);
        capture.claims.cut(capture.record.elements());
        capture.runs.forget_from(mark.elements());
    }

    /// Whether the open transaction began without BEGIN.
    pub(crate) fn is_implicit(&self) -> bool {
        matches!(&self.state, Transaction::Update(update) if update.boundary.is_implicit())
    }

    pub(crate) fn chain(&mut self, chain: bool, options: Option<TransactionOptions>) {
        if let (true, Some(options)) = (chain, options) {
            self.state = Transaction::Begun(options);
        }
    }

    /// The replica where the transaction is open.
    pub(crate) fn open_at(&self) -> Option<ReplicaId> {
        match &self.state {
            Transaction::Update(update) => Some(update.replica),
            Transaction::Read(read) => Some(read.replica),
            Transaction::None | Transaction::Begun(_) | Transaction::Lost(_) => None,
        }
    }

    pub(crate) fn declared_access(&self) -> String {
        self.txn_profile.declared.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// Whether the open transaction itself has replaced a definition that these statements use.
    pub(crate) fn has_redefined(&self, analysis: &StatementAnalysis) -> bool {
        matches!(&self.state, Transaction::Update(update) if update.schema.definitions.own.concern(analysis))
    }
}

/// The number of written rows in a command tag.
fn rows_written(tag: &[u8]) -> u64 {
    let mut words = tag.split(|&byte| byte == b' ');
    let is_write = matches!(words.next(), Some(b"INSERT" | b"UPDATE" | b"DELETE" | b"MERGE" | b"COPY"));
    let count = words.next_back().and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
    if is_write { count.unwrap_or(0) } else { 0 }
}

fn too_large() -> Fault {
    Fault::Refused(crate::writeset::too_large())
}

/// Changes for the next attempt at a transaction that was rolled back.
#[derive(Debug, Default)]
pub(crate) struct RetryHints {
    /// Only the anchor could have run the transaction.
    pub(crate) needs_anchor: bool,
    /// Rows that the transaction wrote while another one held them. The next attempt reserves them first.
    pub(crate) unreserved: Claims,
    /// The core has recalled the transaction, and waits for the session to run it again in its place in the order.
    pub(crate) is_recalled: bool,
}

/// The state when a savepoint was set.
#[derive(Debug)]
pub(crate) struct Savepoint {
    pub(crate) name: String,
    /// The position in the record; `None` without capture.
    pub(crate) mark: Option<Mark>,
    /// The number of staged settings.
    pub(crate) staged: usize,
}
