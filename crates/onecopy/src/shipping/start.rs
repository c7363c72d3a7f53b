//! A node whose replicas are sent statements: put together as every other node, with another core and without agents.
//!
//! The two kinds of nodes cannot read each other's logs, and one needs servers under capture where the other must not have
//! them. So the folder of the data says which kind it is, from before the log's first record.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};

use cluster::Cluster;
use cluster::ids::{Incarnation, ReplicaId, Version};
use cluster::protocols::shipping::SequenceNumber;
use cluster::protocols::shipping::{Choices, Proxy, Scheduler};
use commitlog::{FileLog, Notices};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::board::Board;
use super::inside::{Inside, Side};
use super::kept::{Kept, Limits};
use super::{Shipping, replica, returning};
use crate::capture::vouch::Voucher;
use crate::coordinator::identities::Identities;
use crate::coordinator::plan;
use crate::coordinator::plan::Plan;
use crate::coordinator::requests::Reason;
use crate::coordinator::{AgentOrder, Coordinator, CoordinatorOptions, Seat, ShipsStatements};
use crate::security::seal::Seal;

/// The file that says that the log holds statements.
const KIND_FILE: &str = "statements";
/// Names a rule that is switched off, for tests that show that a checker notices.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";

/// A node that captures rows cannot be opened over a log of statements.
pub(crate) fn refuse_other_kind(data: &Path) -> Result<(), Reason> {
    let file = data.join(KIND_FILE);
    if !file.exists() {
        return Ok(());
    }
    let names: Vec<&str> = super::PROTOCOLS.iter().map(|choices| choices.name).collect();
    Err(format!(
        "{} holds a cluster that ships statements; start it with one of the protocols {}",
        data.display(),
        names.join(", ")
    ))
}

/// The folder is, or becomes, one of this kind.
fn claim_kind(data: &Path, is_new: bool) -> Result<(), Reason> {
    let file = data.join(KIND_FILE);
    if file.exists() {
        return Ok(());
    }
    if !is_new {
        return Err(format!(
            "{} holds a cluster of the protocol onecopy; its replicas cannot be sent statements instead of rows",
            data.display()
        ));
    }
    fs::write(&file, "The log of this cluster holds statements.\n")
        .and_then(|()| fs::File::open(&file)?.sync_all())
        .map_err(|error| format!("{} cannot be written: {error}", file.display()))
}

/// The parts of a node that ships statements.
pub(crate) struct Opened {
    pub(crate) coordinator: Arc<Coordinator>,
    /// The tasks that bring replicas back, one each.
    pub(crate) chores: Vec<JoinHandle<()>>,
    /// Orders for agents, of which there are none.
    pub(crate) orders: Vec<mpsc::Receiver<AgentOrder>>,
}

/// Opens and fences the log, and lets each replica come.
pub(crate) async fn open(plan: Plan, choices: Choices) -> Result<Opened, Reason> {
    let locks_are_off = allowed(&plan)?;
    let (log, recovered) =
        FileLog::open(&plan.log_folder(), plan.cluster).map_err(|error| error.to_string())?;
    claim_kind(&plan.data, recovered.begun)?;
    let cell: Arc<OnceLock<Arc<Shipping>>> = Arc::default();
    let (fenced, mut fence_durable) = mpsc::channel(1);
    start_log(&log, &cell, fenced)?;
    let epoch = recovered.last_epoch.next();
    let identities = Identities::default();
    let (last, nonce) = plan::fence(&log, plan.cluster, epoch, &recovered, &identities)?;
    match fence_durable.recv().await {
        Some(outcome) => outcome?,
        None => return Err("the log's writer has ended".into()),
    }
    let quarantines = plan.quarantines();
    let (seats, orders): (Vec<Seat>, Vec<_>) = plan.places.into_iter().map(Seat::new).unzip();
    let replicas: Vec<ReplicaId> = seats.iter().map(|seat| seat.replica).collect();
    if replicas.iter().enumerate().any(|(index, id)| *id != replica(index)) || replicas.is_empty() {
        return Err("a cluster that ships statements has replicas numbered from 1 without gaps".into());
    }
    let shipping = Arc::new(Shipping {
        inside: Mutex::new(inside(choices, &replicas, last)),
        coordinator: OnceLock::new(),
        choices,
        epoch,
        nonce,
        locks_are_off,
        limits: Limits::usual(),
        changes: watch::channel(0).0,
    });
    let options = CoordinatorOptions {
        anchor: replicas[0],
        cluster_id: plan.cluster,
        served: plan.served,
        epoch,
        log_was_empty: recovered.begun,
        is_founding: plan.adoption.is_founding(&recovered),
        identities,
        voucher: Voucher::draw()?,
        seal: Arc::new(Seal::in_folder(&plan.data)?),
        quarantines,
        limits: plan.limits,
        runtime_config: plan.runtime_config,
    };
    let coordinator =
        Coordinator::new(Cluster::new(Box::new(Board(Arc::clone(&shipping)))), log, seats, options);
    let is_first = coordinator.shipping.set(Arc::clone(&shipping) as Arc<dyn ShipsStatements>).is_ok()
        && shipping.coordinator.set(Arc::clone(&coordinator)).is_ok()
        && cell.set(Arc::clone(&shipping)).is_ok();
    if !is_first {
        return Err("the node was put together twice".into());
    }
    let replica_drivers = replicas.iter().map(|id| tokio::spawn(returning::keep(Arc::clone(&shipping), *id)));
    let chores = replica_drivers.collect();
    Ok(Opened { coordinator, chores, orders })
}

/// No replica takes part yet.
fn inside(choices: Choices, replicas: &[ReplicaId], appended: Version) -> Inside {
    let mut scheduler = Scheduler::new(choices, replicas.len());
    for id in replicas {
        scheduler.replica_lost(*id, &mut Vec::new());
    }
    Inside {
        scheduler,
        sides: replicas.iter().map(|_| side()).collect(),
        desks: BTreeMap::new(),
        owners: BTreeMap::new(),
        shipments: Kept::default(),
        outcomes: BTreeMap::new(),
        past: BTreeMap::new(),
        last_statement: 0,
        exclusive: None,
        pending: std::collections::VecDeque::new(),
        appended,
        numbers: BTreeMap::new(),
        times: BTreeMap::new(),
    }
}

/// Refuses what is not offered; whether locks are off.
fn allowed(plan: &Plan) -> Result<bool, Reason> {
    if plan.limits.pooling.is_shared {
        return Err("pool_mode = transaction is not offered where statements are shipped".into());
    }
    match std::env::var(RULE_OFF).ok().as_deref() {
        None | Some("") => Ok(false),
        Some("locks_wait") => Ok(true),
        Some(other) => Err(format!("{RULE_OFF}={other}: there is no such rule")),
    }
}

fn side() -> Side {
    Side {
        proxy: Proxy::new(SequenceNumber(0)),
        incarnation: Incarnation::default().next(),
        lanes: BTreeMap::new(),
        undone: std::collections::BTreeSet::new(),
        tail: None,
        again: std::collections::BTreeSet::new(),
        is_diverged: false,
        reads: 0,
        writes: 0,
    }
}

fn start_log(
    log: &FileLog,
    shipping: &Arc<OnceLock<Arc<Shipping>>>,
    fenced: mpsc::Sender<Result<(), Reason>>,
) -> Result<(), Reason> {
    let (durable, failed, fence_failed) = (Arc::clone(shipping), Arc::clone(shipping), fenced.clone());
    let notices = Notices {
        durable: Box::new(move |upto| match durable.get() {
            Some(shipping) => shipping.durable(upto),
            None => drop(fenced.try_send(Ok(()))),
        }),
        failed: Box::new(move |failure| match failed.get() {
            Some(shipping) => shipping.coordinator().log_failed(&failure),
            None => drop(fence_failed.try_send(Err(failure.to_string()))),
        }),
    };
    log.start(notices).map_err(|error| error.to_string())
}
