//! A node that ships statements, before its first replica takes part; and its mark beside the log.
//!
//! The two kinds of nodes cannot read each other's logs, and one needs servers under capture where the other must not have
//! them. So a file beside the log says which kind of log it is, from before its first record.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use cluster::ids::{Incarnation, ReplicaId, Version};
use cluster::protocols::shipping::{Choices, Proxy, Scheduler, SequenceNumber};
use tokio::sync::watch;

use super::inside::{Inside, Side};
use super::kept::{Kept, Limits};
use super::{Shipping, replica};
use crate::coordinator::plan::{Plan, Term};
use crate::coordinator::requests::Reason;

/// The file that says that the log holds statements.
const KIND_FILE: &str = "statements";
/// Names a rule that is switched off, for tests that show that a checker notices.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";

/// Refuses a folder with a log of statements, for a kind of node that cannot read it.
pub(crate) fn refuse_log(data: &Path) -> Result<(), Reason> {
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

/// The folder has, or is about to get, a log of statements.
pub(crate) fn claim_log(data: &Path, is_new: bool) -> Result<(), Reason> {
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

/// How statements are shipped.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShippingOptions {
    choices: Choices,
    locks_are_off: bool,
}

/// Refuses what this kind of node does not offer.
pub(crate) fn options(plan: &Plan, choices: Choices) -> Result<ShippingOptions, Reason> {
    Ok(ShippingOptions { choices, locks_are_off: allowed(plan)? })
}

impl Shipping {
    /// A node of this term, to which no replica belongs yet.
    pub(crate) fn new(options: ShippingOptions, replicas: &[ReplicaId], term: Term) -> Result<Self, Reason> {
        if replicas.iter().enumerate().any(|(index, id)| *id != replica(index)) || replicas.is_empty() {
            return Err("a cluster that ships statements has replicas numbered from 1 without gaps".into());
        }
        Ok(Self {
            inside: Mutex::new(inside(options.choices, replicas, term.last)),
            coordinator: OnceLock::new(),
            epoch: term.epoch,
            nonce: term.nonce,
            locks_are_off: options.locks_are_off,
            limits: Limits::usual(),
            changes: watch::channel(0).0,
        })
    }
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
