//! Finds the last schema change in the log when this node begins to lead.
//!
//! A catalogue that is older than the last schema change has to be read again, and what ran with it counts as if it had left any state. If
//! a new leader took all of its log for schema changes, that would be so at every node after each change of the leader. But this node
//! has followed: it knows of schema changes up to some version, and looks only at the records after that.
//!
//! ```text
//! the view of its sessions: durable 90, last schema change 40.   The log: 91 rows, 92 ALTER TABLE, 93 rows, 94 fence.   Answer: 92
//! ```
//!
//! Invariant: no schema change in the log comes after the answer. Where that cannot be seen, the answer is the end of the log.

use cluster::ids::Version;
use commitlog::{LogEngine, LogError};

use crate::coordinator::Coordinator;

/// If the node is further behind, it does not look.
const LOOK_MAX: u64 = 10_000;
/// The bytes of the records that are read at a time.
const PIECE_BYTES: usize = 4 << 20;

/// What a node knows of schema changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct KnownSchemaChanges {
    /// It knows all up to this version.
    upto: Version,
    /// The last of them is not after this one.
    last_ddl: Version,
}

impl KnownSchemaChanges {
    /// What sessions know that have followed other leaders.
    pub(super) fn of(sessions: &Coordinator) -> Self {
        // If the view changes in between, the schema changes are as of a later version, which is as good.
        let upto = sessions.view.durable();
        Self { upto, last_ddl: sessions.view.last_ddl() }
    }

    /// A version after which no schema change is in this log, which ends with `last`.
    pub(super) async fn complete(self, log: &dyn LogEngine, last: Version) -> Version {
        if last.0.saturating_sub(self.upto.0) > LOOK_MAX || log.first_retained() > self.upto.next() {
            return last;
        }
        self.look(log, last).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "the schema is taken for changed");
            last
        })
    }

    async fn look(self, log: &dyn LogEngine, last: Version) -> Result<Version, LogError> {
        let Self { mut upto, mut last_ddl } = self;
        while upto < last {
            let records = log.read_from(upto.next(), PIECE_BYTES).await?;
            // What is missing may be a schema change.
            let Some(end) = records.last().map(|record| record.header().last) else { return Ok(last) };
            if let Some(change) = records.iter().rev().find(|record| record.may_change_schema()) {
                last_ddl = change.header().last;
            }
            upto = end;
        }
        // A catalogue of version zero is one that was never read. The first record of a log opens a term.
        Ok(last_ddl.max(Version(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use cluster::ids::{ClusterId, DatabaseId, Epoch, Identity, Nonce, ServiceId};
    use cluster::record::{Header, Record, RecordBuilder, Statement};
    use commitlog::{FileLog, Notices};
    use tempfile::TempDir;
    use tokio::sync::mpsc;

    use super::*;

    /// What a record holds.
    #[derive(Clone, Copy)]
    enum Holds {
        Rows,
        Statement,
        Fence,
    }

    const CLUSTER: ClusterId = ClusterId(1);

    fn record(version: u64, holds: Holds) -> Arc<Record> {
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        match holds {
            Holds::Rows => body.push_truncate(DatabaseId::FIRST.table(1)),
            Holds::Statement => body.push_statement(&Statement::default()),
            Holds::Fence => body.push_fence(),
        }
        .unwrap();
        let (first, last) = (Version(version), Version(version));
        let identity = Identity { epoch: Epoch(1), n: version, nonce: Nonce(1) };
        let (database, service) = (DatabaseId::FIRST, ServiceId(1));
        Arc::new(body.finish(Header { cluster: CLUSTER, identity, first, last, database, service }))
    }

    /// A log with these records, durable.
    async fn log(dir: &TempDir, records: &[Holds]) -> FileLog {
        let (log, _) = FileLog::open(dir.path(), CLUSTER).unwrap();
        let (durable, mut reached) = mpsc::unbounded_channel();
        let notices = Notices {
            durable: Box::new(move |upto| durable.send(upto).unwrap()),
            failed: Box::new(|failure| panic!("{failure}")),
        };
        log.start(notices).unwrap();
        (1..).zip(records).for_each(|(version, holds)| log.append(record(version, *holds)));
        while reached.recv().await != Some(Version(records.len() as u64)) {}
        log
    }

    async fn found(log: &FileLog, upto: u64, last_ddl: u64) -> Version {
        KnownSchemaChanges { upto: Version(upto), last_ddl: Version(last_ddl) }
            .complete(log, log.durable())
            .await
    }

    #[tokio::test]
    async fn what_followed_is_looked_at() {
        use Holds::{Fence, Rows, Statement as Ddl};
        let dir = TempDir::new().unwrap();
        let log = log(&dir, &[Rows, Ddl, Rows, Ddl, Rows, Fence]).await;
        assert_eq!(found(&log, 0, 0).await, Version(4), "a node that knew nothing");
        assert_eq!(found(&log, 3, 2).await, Version(4), "the change was not told yet");
        assert_eq!(found(&log, 4, 4).await, Version(4));
        assert_eq!(found(&log, 5, 4).await, Version(4), "a fence changes no schema");
        assert_eq!(found(&log, 6, 4).await, Version(4), "nothing has followed");
        log.close();
    }

    #[tokio::test]
    async fn what_cannot_be_seen_may_be_a_schema_change() {
        let dir = TempDir::new().unwrap();
        let log = log(&dir, &[Holds::Rows; 3]).await;
        let known = |upto| KnownSchemaChanges { upto: Version(upto), last_ddl: Version(0) };
        assert_eq!(known(0).complete(&log, Version(3)).await, Version(1));
        assert_eq!(known(0).complete(&log, Version(4)).await, Version(4), "version 4 is not in the log");
        let far = Version(LOOK_MAX + 1);
        assert_eq!(known(0).complete(&log, far).await, far);
        log.close();
    }
}
