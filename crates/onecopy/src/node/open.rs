//! Opens a node: fences its log, and connects the parts of its kind with the coordinator.
//!
//! This is the only place that names all kinds of node.

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use cluster::ids::ReplicaId;
use cluster::placement::Placement;
use commitlog::Recovered;
use tokio::task::spawn_blocking;

use super::fenced_log::{FencedLog, OpenLog, known_identities};
use super::process::{Process, TermParts};
use super::running::{Node, Shared};
use crate::c_jdbc::{CJdbc, CJdbcOptions};
use crate::config::placement::PlacementRules;
use crate::config::protocol::Propagation;
use crate::coordinator::errands::Errands;
use crate::coordinator::etcd_log::OpenedLog;
use crate::coordinator::held_backends::HeldBackends;
use crate::coordinator::identities::Identities;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::plan::Plan;
use crate::coordinator::{Coordinator, Leader, ReplicaAddress, Seat};
use crate::database::Database;
use crate::link::node_kind::ServesClients;
use crate::rows::Rows;
use crate::security::seal::Seal;
use crate::shipping::{self, LogKind, Shipping, ShippingOptions};

/// Lets sessions reach the core as those of another node do, for tests: `forever`, or the number of messages after which the link breaks.
const LINK_VARIABLE: &str = "ONECOPY_TEST_LINKED_SESSIONS";

/// How long sessions of such a link wait for a leader before they are refused.
const LINK_PATIENCE: Duration = Duration::from_secs(10);

/// The parts of a kind of node, made for the term of a log.
struct Parts {
    kind: Arc<dyn ServesClients>,
    core: Option<Cluster>,
    anchor: ReplicaId,
}

/// Opens and fences the log, and starts the tasks of each replica.
pub(super) async fn open(plan: Plan) -> Result<Node, OpenError> {
    raise_file_limit();
    let database = Database::new(plan.served.clone());
    let members: Vec<ReplicaId> = plan.places.iter().map(|place| place.replica).collect();
    if members.is_empty() {
        return Err(OpenError::NoReplicas);
    }
    let (fenced, parts) = match plan.propagation {
        Propagation::Rows(choices) => {
            shipping::refuse_log(&plan.data).map_err(OpenError::kind)?;
            let rows = Rows::from_environment(choices, plan.new_tables.clone())?;
            let fenced = open_log(&plan, &database, |recovered| Ok(known_identities(recovered))).await?;
            let placement = plan.placement(&fenced.register, database.served.id).await?;
            let anchor =
                first_anchor(&plan.places, &plan.new_tables, &placement).ok_or(OpenError::NoFullReplica)?;
            let core = Some(rows.core(&members, anchor, placement, fenced.term, fenced.term.last)?);
            (fenced, Parts { kind: Arc::new(rows), core, anchor })
        }
        Propagation::Statements(choices) => {
            let options =
                ShippingOptions::new(plan.limits.pooling.is_shared, choices).map_err(OpenError::kind)?;
            let claim = |recovered: &Recovered| {
                let claimed = shipping::claim_log(&plan.data, recovered.begun, LogKind::Numbered);
                claimed.map(|()| Identities::default()).map_err(OpenError::kind)
            };
            let fenced = open_log(&plan, &database, claim).await?;
            let shipping = Shipping::new(options, &members, fenced.term).map_err(OpenError::kind)?;
            let anchor = *members.first().ok_or(OpenError::NoReplicas)?;
            (fenced, Parts { kind: Arc::new(shipping), core: None, anchor })
        }
        Propagation::CJdbc(ref choices) => {
            let options = CJdbcOptions::new(&plan, choices.clone(), &members).map_err(OpenError::kind)?;
            let claim = |recovered: &Recovered| {
                let claimed = shipping::claim_log(&plan.data, recovered.begun, LogKind::CJdbc);
                claimed.map(|()| Identities::default()).map_err(OpenError::kind)
            };
            let fenced = open_log(&plan, &database, claim).await?;
            let anchor = *members.first().ok_or(OpenError::NoReplicas)?;
            let placement = plan.placement(&fenced.register, database.served.id).await?;
            let node = CJdbc::new(options, &members, fenced.term, placement).map_err(OpenError::kind)?;
            (fenced, Parts { kind: Arc::new(node), core: None, anchor })
        }
    };
    let register = Arc::clone(&fenced.register);
    let seal = spawn_blocking(move || register.seal()).await;
    let seal = seal.map_err(|error| OpenError::Log(error.into()))??;
    assemble(plan, database, fenced, parts, seal)
}

/// The first replica that holds everything, and will with the tables to come. If there is none, the first that holds everything.
pub(super) fn first_anchor(
    places: &[ReplicaAddress],
    new_tables: &PlacementRules,
    placement: &Placement,
) -> Option<ReplicaId> {
    let is_full = |place: &&ReplicaAddress| placement.holdings(place.replica).is_everything();
    let stays_full = |place: &&ReplicaAddress| is_full(place) && new_tables.let_hold_all(&place.name);
    let anchor = places.iter().find(stays_full).or_else(|| places.iter().find(is_full));
    anchor.map(|place| place.replica)
}

/// Opens the log, and fences it. `prepare` inspects the log before anything is appended.
async fn open_log(
    plan: &Plan,
    database: &Database,
    prepare: impl FnOnce(&Recovered) -> Result<Identities, OpenError>,
) -> Result<FencedLog, OpenError> {
    let OpenedLog { log, recovered, register, serve_from } = plan.open_log().await?;
    let identities = prepare(&recovered)?;
    let fenced =
        FencedLog::fence(OpenLog { log, recovered, register }, identities, plan.cluster, database).await?;
    if let Some(serve_from) = serve_from {
        tokio::time::sleep_until(serve_from.into()).await;
    }
    Ok(fenced)
}

fn assemble(
    plan: Plan,
    database: Arc<Database>,
    fenced: FencedLog,
    parts: Parts,
    seal: Seal,
) -> Result<Node, OpenError> {
    let Parts { kind, core, anchor } = parts;
    let checkpoints = plan.checkpoints().map_err(OpenError::kind)?;
    let is_founding = plan.adoption.is_founding(&fenced.recovered);
    let process = Process::new(plan.cluster, database, kind, plan.limits, plan.runtime_config, seal);
    let held = HeldBackends::default();
    let parts = TermParts { places: plan.places, core, anchor, checkpoints, is_founding, held };
    let (leader, chores) = process.lead(fenced, parts)?;
    let coordinator = match links_sessions(leader.as_ref())? {
        Linking::Here => Arc::clone(&leader.coordinator),
        Linking::Linked { breaks_after } => link_sessions(&process, &leader, breaks_after),
    };
    let Process { pools, kind, .. } = process;
    Ok(Node::new(Shared { leader, coordinator, pools, kind }, chores, plan.start_patience))
}

/// The coordinator of sessions in this process that reach the core over a link.
fn link_sessions(process: &Process, leader: &Arc<Leader>, breaks_after: Option<u64>) -> Arc<Coordinator> {
    tracing::warn!("sessions reach the core over a link, for tests");
    leader.mailboxes.number_for_leader();
    let members = leader.seats.iter().map(Seat::address).collect();
    let spills = Arc::clone(&leader.spills);
    let coordinator = process.follow(members, leader.view.anchor(), spills, Errands::new().0, LINK_PATIENCE);
    let (leader, linked) = (Arc::clone(leader), Arc::clone(&coordinator));
    tokio::spawn(async move { while leader.link(&linked, breaks_after).await.is_ok() {} });
    coordinator
}

/// How sessions reach the core.
enum Linking {
    /// Directly.
    Here,
    /// Over a link, although it is in this process, for tests. The link breaks after so many messages, again and again.
    Linked { breaks_after: Option<u64> },
}

/// As [`LINK_VARIABLE`] says.
fn links_sessions(leader: &Leader) -> Result<Linking, OpenError> {
    let Ok(value) = std::env::var(LINK_VARIABLE) else { return Ok(Linking::Here) };
    let breaks_after = if value == "forever" {
        None
    } else if let Ok(count) = value.parse() {
        Some(count)
    } else {
        let wanted = "a number of messages, or forever";
        return Err(OpenError::TestVariable { name: LINK_VARIABLE, value, wanted });
    };
    Ok(if leader.kind.choices().is_some() { Linking::Linked { breaks_after } } else { Linking::Here })
}

/// Raises the limit of open files. Each session needs a descriptor for its client and one for each replica it uses.
pub(super) fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}
