//! Ends at one replica a transaction whose node is lost, on a connection of Onecopy's own.
//!
//! Example: a node is lost while its transaction 7, which is decided, commits at replica 2. Its backend there is ended, and then the
//! server is asked whether it has 7. If so, nothing is left to do; if not, the statements run again as the log has them.
//!
//! Invariant: no backend of the lost crew can commit once the server was asked. Those that are known are ended, and none can prove any
//! more to which crew it belongs, which it has to before its first statement. And all that the replica had when it joined is still there:
//! a server that has crashed since may have lost its last commits, which must not be overtaken by what is done here.

use std::sync::Arc;

use cluster::ids::{CrewId, Identity};
use cluster::protocols::shipping::{Ending, Kind, Transaction, Work};
use cluster::record::Shipped;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::lane_site::OrphanJob;
use super::recovery::{FENCE_DEADLINE, FENCE_PAUSE, connect};
use super::replayed::Replayed;
use super::replica_run::{LeadingHost, ReplicaRun};
use crate::backend::{BackendError, OwnConnection};

/// How far the transaction is at the replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    NotBegun,
    /// The lost node has committed it there.
    IsThere,
    Open {
        has_failed: bool,
    },
}

struct Orphan {
    host: Arc<dyn LeadingHost>,
    crew: CrewId,
    run: ReplicaRun,
    control: Option<OwnConnection>,
    progress: Progress,
}

/// Does the jobs of a transaction at one replica until it is over there.
pub(super) async fn run(
    host: Arc<dyn LeadingHost>,
    crew: CrewId,
    run: ReplicaRun,
    transaction: Transaction,
    mut jobs: mpsc::UnboundedReceiver<OrphanJob>,
) {
    let mut orphan =
        Orphan { host: Arc::clone(&host), crew, run, control: None, progress: Progress::NotBegun };
    while let Some(job) = jobs.recv().await {
        let is_over = matches!(job.work, Work::RunAlone(_) | Work::End(_));
        match orphan.perform(job).await {
            Ok(()) => Arc::clone(&host).finished(run, transaction, None),
            Err(error) => return host.give_up(run, &error.to_string()),
        }
        if is_over {
            return;
        }
    }
}

impl Orphan {
    async fn perform(&mut self, job: OrphanJob) -> Result<(), BackendError> {
        let OrphanJob { work, logged, identity } = job;
        match work {
            Work::Run(operation) if operation.kind == Kind::Write => self.write(&logged, identity).await,
            Work::RunAlone(operation) if operation.kind == Kind::Write => {
                self.write(&logged, identity).await?;
                self.commit(identity).await
            }
            // No one waits for what it reads.
            Work::Run(_) | Work::RunAlone(_) => Ok(()),
            Work::Restart | Work::End(Ending::Abort) => {
                let is_open = matches!(self.progress, Progress::Open { .. });
                // Also if there is nothing to undo here: the lost node's backend holds locks on rows.
                let control = self.control().await?;
                if is_open {
                    control.query("ROLLBACK").await?;
                }
                self.progress = Progress::NotBegun;
                Ok(())
            }
            Work::End(Ending::Commit) => self.commit(identity).await,
        }
    }

    async fn write(&mut self, logged: &[Shipped], identity: Option<Identity>) -> Result<(), BackendError> {
        let bytes_max = self.host.reply_bytes_max();
        let progress = self.progress;
        let control = self.control().await?;
        let mut replayed = match progress {
            Progress::IsThere => return Ok(()),
            Progress::Open { has_failed } => Replayed::of(control, bytes_max, has_failed),
            Progress::NotBegun => {
                if let Some(identity) = identity
                    && !control.query(&is_there_sql(identity)).await?.is_empty()
                {
                    self.progress = Progress::IsThere;
                    return Ok(());
                }
                let mut replayed = Replayed::of(control, bytes_max, false);
                replayed.begin().await?;
                replayed
            }
        };
        for shipped in logged {
            replayed.run(shipped).await?;
        }
        self.progress = Progress::Open { has_failed: replayed.has_failed() };
        Ok(())
    }

    async fn commit(&mut self, identity: Option<Identity>) -> Result<(), BackendError> {
        let (Progress::Open { has_failed }, Some(identity)) = (self.progress, identity) else {
            return Ok(());
        };
        let (bytes_max, host) = (self.host.reply_bytes_max(), Arc::clone(&self.host));
        let control = self.control().await?;
        let replayed = Replayed::of(control, bytes_max, has_failed);
        replayed.commit(identity, &host.coordinator().local.seal).await?;
        self.progress = Progress::IsThere;
        Ok(())
    }

    /// The connection, once the backends of the lost crew are ended.
    async fn control(&mut self) -> Result<&mut OwnConnection, BackendError> {
        if self.control.is_none() {
            self.control = Some(connect(&*self.host, self.run.replica).await?);
            self.fence().await?;
        }
        self.control.as_mut().ok_or(BackendError::Protocol("the connection is lost"))
    }

    /// Ends the backends of the crew, and lets none begin, at the run of the server that was let in.
    async fn fence(&mut self) -> Result<(), BackendError> {
        let Some(control) = &mut self.control else { return Ok(()) };
        // A replica that returns ends this connection, if it was open before.
        if !self.host.is_present(self.run) {
            return Err(BackendError::Protocol("the replica was given up"));
        }
        // The table is empty after a crash, and no crash outlasts the connection.
        let is_installed = self.host.leader().voucher.is_installed_sql();
        if control.query(&is_installed).await?.is_empty() {
            return Err(BackendError::Protocol("the server has restarted since its replica was let in"));
        }
        let crew = self.crew.0;
        control
            .query(&format!(
                "BEGIN; LOCK TABLE onecopy_capture.lost_crews IN SHARE ROW EXCLUSIVE MODE; \
                 INSERT INTO onecopy_capture.lost_crews VALUES ({crew}) ON CONFLICT DO NOTHING; COMMIT"
            ))
            .await?;
        let end = format!(
            "SELECT pg_terminate_backend(v.pid) FROM onecopy_capture.vouched v JOIN pg_stat_activity a \
             ON a.pid = v.pid AND a.backend_start = v.started WHERE v.crew = {crew}"
        );
        let deadline = Instant::now() + FENCE_DEADLINE;
        while !control.query(&end).await?.is_empty() {
            if Instant::now() > deadline {
                return Err(BackendError::Protocol("backends of a lost node do not end"));
            }
            sleep(FENCE_PAUSE).await;
        }
        Ok(())
    }
}

/// The query that returns a row if a server has this transaction.
fn is_there_sql(identity: Identity) -> String {
    let (epoch, n) = (identity.epoch.0.cast_signed(), identity.n.cast_signed());
    format!("SELECT 1 FROM onecopy.applied WHERE epoch = {epoch} AND n = {n}")
}
