//! VERIFY: every table, compared among all replicas that hold it, at one version.
//!
//! The node holds: it assigns no version until every replica stands at the last one. VERIFY opens a snapshot on each
//! replica, which takes milliseconds, and the node goes on. The checksums are then computed in those snapshots, however
//! long that takes.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use cluster::ids::{ReplicaId, Version};
use cluster::parts::replica::State;
use tokio::sync::MutexGuard;
use wire::sqlstate;

use super::checksum::{checksums, schema_checksums};
use super::comparison::{Checksums, differing};
use crate::backend::{BackendError, OwnConnection};
use crate::coordinator::Leader;
use crate::coordinator::node_kind::HoldingSession;
use crate::error::Refusal;

/// How long the replicas may take to stand at one version.
const HOLD_MAX: Duration = Duration::from_secs(30);

/// How long a server may take to open a snapshot. Commits wait for that.
const SNAPSHOT_MAX: Duration = Duration::from_secs(10);

/// A lock that VERIFY or CHECK holds while it runs. It is released when dropped.
pub(crate) struct ComparisonLock<'a> {
    _verifying: MutexGuard<'a, ()>,
}

impl<'a> ComparisonLock<'a> {
    /// Takes the lock. Refused while another comparison runs.
    pub(crate) fn take(leader: &'a Leader) -> Result<Self, Refusal> {
        let verifying = leader.verification.try_lock();
        verifying.map(|verifying| Self { _verifying: verifying }).map_err(|_| {
            Refusal::new(
                sqlstate::OBJECT_IN_USE,
                "the replicas are being verified already",
                "Wait until the other VERIFY has ended.",
            )
        })
    }
}

/// Compares the replicas that are not parked. Returns one row for each table: its name, the version, and `identical` or the replicas that differ.
pub(crate) async fn run(leader: &Leader) -> Result<Vec<Vec<String>>, Refusal> {
    let down: Vec<&str> = leader
        .replicas()
        .iter()
        .filter(|status| status.state != State::Up && !is_parked(leader, status.replica))
        .map(|status| leader.seats[status.replica].name.as_str())
        .collect();
    if !down.is_empty() {
        return Err(Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            format!("{} cannot be verified: not up", down.join(", ")),
            "SHOW REPLICAS shows the state of each replica.",
        ));
    }
    let _turn = ComparisonLock::take(leader)?;
    let mut replicas: Vec<ReplicaId> = leader.replicas().iter().map(|status| status.replica).collect();
    replicas.retain(|replica| !is_parked(leader, *replica));
    let (version, mut open) = snapshots(leader, &replicas).await?;
    let mut sums = Vec::new();
    for (connection, replica) in open.iter_mut().zip(&replicas) {
        let shares = leader.shares(*replica);
        sums.push(checksums(connection, &shares).await.map_err(|error| failed(&error))?);
    }
    let names: Vec<&str> = replicas.iter().map(|replica| leader.seats[*replica].name.as_str()).collect();
    Ok(compare(version, &names, &sums))
}

/// A parked replica takes no part: it is compared once it is awake.
fn is_parked(leader: &Leader, replica: ReplicaId) -> bool {
    leader.parking.state(replica).is_parked()
}

/// Opens a snapshot on each of these replicas, which are up, at one version.
pub(crate) async fn snapshots(
    leader: &Leader,
    replicas: &[ReplicaId],
) -> Result<(Version, Vec<OwnConnection>), Refusal> {
    let open = async |version| Ok((version, open_snapshots(leader, replicas).await?));
    match at_one_version(leader, open).await {
        Ok(opened) => opened.map_err(|error: BackendError| failed(&error)),
        Err(NoOneVersion) => Err(Refusal::plain(sqlstate::LOCK_NOT_AVAILABLE, NoOneVersion.to_string())),
    }
}

/// The replicas did not come to one version in time.
#[derive(Debug)]
pub(crate) struct NoOneVersion;

impl fmt::Display for NoOneVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the replicas did not come to one version within {} seconds", HOLD_MAX.as_secs())
    }
}

/// Does this while every replica that is up stands at one version. No commit goes on meanwhile, so it must not take long.
pub(crate) async fn at_one_version<T>(
    leader: &Leader,
    work: impl AsyncFnOnce(Version) -> T,
) -> Result<T, NoOneVersion> {
    let (id, mailbox) = leader.open_session();
    let session = HoldingSession { id, mailbox };
    let done = match tokio::time::timeout(HOLD_MAX, leader.kind.hold(leader, &session)).await {
        Ok(version) => Ok(work(version).await),
        Err(_) => Err(NoOneVersion),
    };
    leader.kind.end_hold(&session);
    leader.close_session(id);
    done
}

/// The checksums of a replica's schema, by kind of object.
pub(crate) async fn schema(
    leader: &Leader,
    replica: ReplicaId,
) -> Result<BTreeMap<String, String>, BackendError> {
    let mut connection = open_snapshot(leader, replica).await?;
    schema_checksums(&mut connection).await
}

fn failed(error: &BackendError) -> Refusal {
    Refusal::plain(sqlstate::CONNECTION_FAILURE, format!("a replica could not be read: {error}"))
}

async fn open_snapshots(leader: &Leader, replicas: &[ReplicaId]) -> Result<Vec<OwnConnection>, BackendError> {
    let mut open = Vec::new();
    for replica in replicas {
        open.push(open_snapshot(leader, *replica).await?);
    }
    Ok(open)
}

async fn open_snapshot(leader: &Leader, replica: ReplicaId) -> Result<OwnConnection, BackendError> {
    let seat = &leader.seats[usize::from(replica.0)];
    let own = [("application_name", "onecopy verify")];
    let opening = async {
        let mut connection = OwnConnection::open(&seat.address, &leader.database.served, &own).await?;
        connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await?;
        connection.query(crate::capture::HIDE_CODE).await?;
        Ok(connection)
    };
    let opened = tokio::time::timeout(SNAPSHOT_MAX, opening).await;
    opened.unwrap_or_else(|elapsed| Err(BackendError::Io(elapsed.into())))
}

/// Compares the checksums of replicas, whose names are in the same order. Of two equally common values, the first
/// replica's is right.
fn compare(version: Version, replicas: &[&str], sums: &[Checksums]) -> Vec<Vec<String>> {
    let sums: Vec<&Checksums> = sums.iter().collect();
    let row = |(name, places): (&str, Vec<usize>)| {
        let differ: Vec<&str> = places.iter().map(|place| replicas[*place]).collect();
        let result = match differ.as_slice() {
            [] => "identical".to_owned(),
            differ => format!("DIFFERENT at {}", differ.join(", ")),
        };
        vec![name.to_owned(), version.to_string(), result]
    };
    differing(&sums, 0).into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_compared_where_it_is_held() {
        let sums = |table: Option<&str>| {
            let sums = table.map(|sum| ("table t".to_owned(), sum.to_owned())).into_iter();
            let not_held = if table.is_none() { ["table t".to_owned()].into() } else { [].into() };
            Checksums { sums: sums.collect(), not_held, planted: [].into() }
        };
        let said = |tables: [Option<&str>; 3]| {
            let rows = compare(Version(7), &["a", "b", "c"], &tables.map(sums));
            rows.iter().map(|row| row.join(" ")).collect::<Vec<_>>()
        };
        assert_eq!(said([Some("1"), None, Some("1")]), ["table t 7 identical"]);
        assert_eq!(said([Some("1"), None, Some("2")]), ["table t 7 DIFFERENT at c"]);
        assert_eq!(said([Some("1"), Some("2"), Some("2")]), ["table t 7 DIFFERENT at a"]);
        assert_eq!(said([None, None, Some("2")]), ["table t 7 identical"]);
    }
}
