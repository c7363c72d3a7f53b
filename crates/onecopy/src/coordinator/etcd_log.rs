//! Opens the log on etcd for a term of this node: claims the chair, completes the copy, and says from when on the node may serve.
//!
//! A node that finds a leader claims all the same: one node runs at a time, so the former one has died, or is replaced. If it
//! runs still, it is fenced and ends.
//!
//! Invariant: nothing is served or applied before [`OpenedLog::serve_from`]. Until then the former leader may answer reads under its
//! term lease, which a version that this node shows earlier would make stale.
//!
//! Non-goal: followers. They come with the links between nodes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::ids::Epoch;
use cluster::nodes::Timing;
use commitlog::{
    Chair, ChairError, Claim, Claimed, Entry, EtcdChair, EtcdError, EtcdKeys, EtcdLog, EtcdOptions,
    EtcdRegister, FileRegister, Gateway, Keys, LogCopy, LogEngine, LogError, Recovered,
};

use super::open_error::OpenError;
use super::register::TermRegister;
use crate::config::log::EtcdPlace;

/// Nodes that claim at the same time overtake each other at most so often.
const CLAIMS: u32 = 20;

/// A log that this node may write, and what it holds.
pub(crate) struct OpenedLog {
    pub(crate) log: Arc<dyn LogEngine>,
    pub(crate) recovered: Recovered,
    pub(crate) register: Arc<TermRegister>,
    /// Nothing is served or applied before; `None` if no other node can have a lease.
    pub(crate) serve_from: Option<Instant>,
}

/// The client of an etcd. Reads the files for TLS.
pub(crate) fn gateway(place: &EtcdPlace) -> Result<Arc<Gateway>, OpenError> {
    Ok(Arc::new(Gateway::new(&place.urls, &place.tls).map_err(OpenError::kind)?))
}

/// The entry of the members as it is now. Blocks on the network.
pub(crate) fn members(place: &EtcdPlace) -> Result<Option<Vec<u8>>, OpenError> {
    Ok(EtcdRegister::peek(&keys(place)?, &Entry::Members, place.patience)?)
}

fn keys(place: &EtcdPlace) -> Result<EtcdKeys, OpenError> {
    Ok(EtcdKeys { store: gateway(place)?, keys: Keys::new(&place.cluster_name) })
}

/// Claims the log, with its register. `members`: that entry as it was read before. Blocks on the network and on the disk.
///
/// Ordering duty: the copy was opened before, so one that cannot be costs another node nothing.
pub(super) fn open(
    place: &EtcdPlace,
    copy: LogCopy,
    files: FileRegister,
    members: Option<&[u8]>,
) -> Result<OpenedLog, OpenError> {
    let etcd = keys(place)?;
    let claim = claim(&etcd, place, copy.last_epoch())?;
    let serve_from = claim.before.as_ref().map(|_| claim.answered_at + leases_run_out());
    let epoch = claim.epoch;
    let options = EtcdOptions { node: place.node.clone(), patience: place.patience };
    let (log, mut recovered) = EtcdLog::open(etcd.clone(), claim.clone(), copy, &options)?;
    // After the log: it has found that etcd is of this cluster.
    let register = EtcdRegister::open(etcd, claim, files, members, place.patience)?;
    // The record that opens the term has the epoch of the claim, which is above that of all records.
    recovered.last_epoch = Epoch(epoch.0 - 1);
    let register = TermRegister::new(Arc::new(register));
    Ok(OpenedLog { log: Arc::new(log), recovered, register, serve_from })
}

/// Makes terms so many times slower, for tests on machines that are busy with others.
const SLOWER_VARIABLE: &str = "ONECOPY_TEST_SLOWER_TERMS";

/// The durations of terms.
pub(crate) fn timing() -> Timing {
    let asked = std::env::var(SLOWER_VARIABLE).ok().and_then(|text| text.parse::<u64>().ok());
    let factor = asked.unwrap_or(1).clamp(1, 100);
    let Timing { beat_us, leader_deadline_us, lease_us, drift_percent } = Timing::default();
    let (leader_deadline_us, lease_us) = (leader_deadline_us * factor, lease_us * factor);
    Timing { beat_us, leader_deadline_us, lease_us, drift_percent }
}

/// After this no lease of a former leader is in force, whichever clock is fast.
fn leases_run_out() -> Duration {
    Duration::from_micros(timing().lease_is_over_us())
}

/// Takes the chair from the node that has it.
fn claim(etcd: &EtcdKeys, place: &EtcdPlace, above: Epoch) -> Result<Claim, OpenError> {
    let chair = EtcdChair::new(Arc::clone(&etcd.store), etcd.keys.clone(), &place.node, "");
    let refused = |error: ChairError| OpenError::Log(LogError::Etcd(EtcdError::Chair(error)));
    let mut reading = chair.read().map_err(refused)?;
    for _ in 0..CLAIMS {
        match chair.claim(&reading, above).map_err(refused)? {
            Claimed::Won(claim) => {
                if let Some(before) = &claim.before {
                    tracing::warn!(epoch = claim.epoch.0, from = before.node, "this node takes over the log");
                }
                return Ok(claim);
            }
            Claimed::Lost(to) => reading = to,
        }
    }
    let (by, node) = reading.leader.map_or_else(Default::default, |leader| (leader.epoch, leader.node));
    Err(OpenError::Log(LogError::Etcd(EtcdError::Fenced { by, node })))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use cluster::ids::ClusterId;
    use commitlog::{Register, RegisterError, TlsFiles};
    use etcdserver::Etcd;

    use super::*;

    fn open_in(
        data: &Path,
        place: &EtcdPlace,
        cluster: u128,
        members: Option<&[u8]>,
    ) -> Result<OpenedLog, OpenError> {
        let copy = LogCopy::open(&data.join("log"), ClusterId(cluster))?;
        open(place, copy, FileRegister::in_folder(data), members)
    }

    #[test]
    fn a_node_that_has_read_outdated_members_reads_them_again_and_opens() {
        let (etcd, data, foreign) =
            (Etcd::start(1), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let place = EtcdPlace {
            urls: etcd.urls(),
            tls: TlsFiles::default(),
            node: "a".to_owned(),
            cluster_name: "main".to_owned(),
            patience: Duration::from_secs(10),
            peers: None,
        };
        FileRegister::in_folder(data.path()).change(&Entry::Members, Some(b"m")).unwrap();
        assert_eq!(members(&place).unwrap(), None);
        drop(open_in(data.path(), &place, 1, None).unwrap());
        let refused = open_in(data.path(), &place, 1, None).err().unwrap();
        assert!(matches!(refused, OpenError::Register(RegisterError::Outdated { .. })), "{refused}");
        // The files of the copy are free again.
        let read = members(&place).unwrap();
        assert_eq!(read.as_deref(), Some(&b"m"[..]));
        drop(open_in(data.path(), &place, 1, read.as_deref()).unwrap());
        let refused = open_in(foreign.path(), &place, 2, read.as_deref()).err().unwrap();
        assert!(refused.to_string().contains("cluster"), "{refused}");
        assert_eq!(FileRegister::in_folder(foreign.path()).read(&Entry::Members).unwrap(), None);
    }
}
