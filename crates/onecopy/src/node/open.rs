//! Opens a node: fences its log, and connects the parts of its kind with the coordinator.
//!
//! This is the only place that names all kinds of node. A record of the new epoch fences the log before the
//! coordinator exists. So an earlier run of the node can append nothing after it.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cluster::Cluster;
use cluster::ids::{ReplicaId, Version};
use cluster::placement::Placement;
use commitlog::{LogEngine, LogFailure, Notices, Recovered};
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::running::{Node, Shared};
use crate::c_jdbc::{CJdbc, CJdbcOptions};
use crate::capture::vouch::Voucher;
use crate::config::protocol::Propagation;
use crate::coordinator::etcd_log::OpenedLog;
use crate::coordinator::identities::Identities;
use crate::coordinator::open_error::{FenceError, OpenError};
use crate::coordinator::plan::{self, Plan, Term};
use crate::coordinator::register::TermRegister;
use crate::coordinator::term::TermState;
use crate::coordinator::{Leader, LeaderOptions, ReplicaAddress, Seat};
use crate::database::Database;
use crate::link::node_kind::ServesClients;
use crate::local::{IdleConnections, LocalState};
use crate::pool::Pools;
use crate::rows::Rows;
use crate::security::seal::Seal;
use crate::shipping::{self, LogKind, Shipping, ShippingOptions};

/// Lets sessions reach the core as those of another node do, for tests: `forever`, or the number of messages after which the link breaks.
const LINK_VARIABLE: &str = "ONECOPY_TEST_LINKED_SESSIONS";

/// A log that this node has opened and fenced.
struct FencedLog {
    /// The database whose records it holds.
    database: Arc<Database>,
    log: Arc<dyn LogEngine>,
    recovered: Recovered,
    identities: Identities,
    register: Arc<TermRegister>,
    term: Term,
    receiver: Arc<Receiver>,
}

/// The receiver of the log's notices.
#[derive(Default)]
struct Receiver {
    leader: OnceLock<Arc<Leader>>,
    /// A failure that was told before the leader was there.
    early_failure: Mutex<Option<LogFailure>>,
}

impl Receiver {
    fn early_failure(&self) -> MutexGuard<'_, Option<LogFailure>> {
        self.early_failure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notices go to the leader from now on. False if there is one already.
    fn set(&self, leader: &Arc<Leader>) -> bool {
        let mut early = self.early_failure();
        if let Some(failure) = early.take() {
            leader.term.log_failed(&failure);
        }
        self.leader.set(Arc::clone(leader)).is_ok()
    }
}

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
            let fenced =
                FencedLog::open(&plan, database, |recovered| Ok(known_identities(recovered))).await?;
            let placement = plan.placement(&fenced.register, fenced.database.served.id).await?;
            let anchor = first_anchor(&plan, &placement).ok_or(OpenError::NoFullReplica)?;
            let core = Some(rows.core(&members, anchor, placement, fenced.term)?);
            (fenced, Parts { kind: Arc::new(rows), core, anchor })
        }
        Propagation::Statements(choices) => {
            let options = ShippingOptions::new(&plan, choices).map_err(OpenError::kind)?;
            let claim = |recovered: &Recovered| {
                let claimed = shipping::claim_log(&plan.data, recovered.begun, LogKind::Numbered);
                claimed.map(|()| Identities::default()).map_err(OpenError::kind)
            };
            let fenced = FencedLog::open(&plan, database, claim).await?;
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
            let fenced = FencedLog::open(&plan, database, claim).await?;
            let anchor = *members.first().ok_or(OpenError::NoReplicas)?;
            let placement = plan.placement(&fenced.register, fenced.database.served.id).await?;
            let node = CJdbc::new(options, &members, fenced.term, placement).map_err(OpenError::kind)?;
            (fenced, Parts { kind: Arc::new(node), core: None, anchor })
        }
    };
    let register = Arc::clone(&fenced.register);
    let seal = spawn_blocking(move || register.seal()).await;
    let seal = seal.map_err(|error| OpenError::Log(error.into()))??;
    assemble(plan, fenced, parts, Arc::new(seal))
}

/// The first replica that holds everything, and will with the tables to come. If there is none, the first that holds everything.
fn first_anchor(plan: &Plan, placement: &Placement) -> Option<ReplicaId> {
    let is_full = |place: &&ReplicaAddress| placement.holdings(place.replica).is_everything();
    let stays_full = |place: &&ReplicaAddress| is_full(place) && plan.new_tables.let_hold_all(&place.name);
    let anchor = plan.places.iter().find(stays_full).or_else(|| plan.places.iter().find(is_full));
    anchor.map(|place| place.replica)
}

/// The identities in the log. Agents compare the applied sets of their replicas with them.
fn known_identities(recovered: &Recovered) -> Identities {
    let identities = Identities::default();
    for (identity, version) in &recovered.identities {
        identities.insert(*identity, *version);
    }
    identities
}

impl FencedLog {
    /// `prepare` inspects the log before anything is appended.
    async fn open(
        plan: &Plan,
        database: Arc<Database>,
        prepare: impl FnOnce(&Recovered) -> Result<Identities, OpenError>,
    ) -> Result<Self, OpenError> {
        let OpenedLog { log, recovered, register, serve_from } = plan.open_log().await?;
        let identities = prepare(&recovered)?;
        let receiver = Arc::new(Receiver::default());
        let (fenced, mut fence_durable) = mpsc::channel(1);
        start_log(log.as_ref(), &receiver, fenced)?;
        let term = plan::fence(log.as_ref(), plan.cluster, &database, &recovered, &identities)?;
        match fence_durable.recv().await {
            Some(outcome) => outcome?,
            None => return Err(FenceError::WriterEnded.into()),
        }
        if let Some(serve_from) = serve_from {
            tokio::time::sleep_until(serve_from.into()).await;
        }
        fence_durable.close();
        if let Ok(outcome) = fence_durable.try_recv() {
            outcome?;
        }
        Ok(Self { database, log, recovered, identities, register, term, receiver })
    }
}

fn assemble(plan: Plan, fenced: FencedLog, parts: Parts, seal: Arc<Seal>) -> Result<Node, OpenError> {
    let FencedLog { log, database, recovered, identities, register, term, receiver } = fenced;
    let Parts { kind, core, anchor } = parts;
    let checkpoints = plan.checkpoints().map_err(OpenError::kind)?;
    let (seats, queues): (Vec<Seat>, Vec<_>) = plan.places.into_iter().map(Seat::new).unzip();
    let members: Vec<ReplicaId> = seats.iter().map(|seat| seat.replica).collect();
    let local = LocalState::new(&plan.limits, plan.runtime_config, seal);
    let pools = Pools::new(plan.limits.pooling);
    local.set_idle_connections(Arc::clone(&pools) as Arc<dyn IdleConnections>);
    let options = LeaderOptions {
        kind: Arc::clone(&kind) as Arc<_>,
        core,
        anchor,
        database,
        term: TermState::new(
            plan.cluster,
            term.epoch,
            recovered.begun,
            plan.adoption.is_founding(&recovered),
            register,
        ),
        identities,
        voucher: Voucher::draw()?,
        checkpoints,
        limits: plan.limits,
        local: Arc::clone(&local),
    };
    let leader = Leader::new(log, seats, options);
    if !receiver.set(&leader) {
        return Err(OpenError::Twice("the log was started"));
    }
    let orders = members.into_iter().zip(queues).collect();
    let chores = Arc::clone(&kind).start(&leader, orders)?;
    let coordinator = match links_sessions(leader.as_ref())? {
        Linking::Here => Arc::clone(&leader.coordinator),
        Linking::Linked { breaks_after } => leader.link_sessions(Arc::clone(&kind) as Arc<_>, breaks_after),
    };
    Ok(Node::new(Shared { leader, coordinator, pools, kind }, chores, plan.start_patience))
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

/// Starts the writer of the log. Its first report is about the fence and comes before the coordinator exists. All
/// later reports go to the coordinator.
fn start_log(
    log: &dyn LogEngine,
    receiver: &Arc<Receiver>,
    fenced: mpsc::Sender<Result<(), FenceError>>,
) -> Result<(), OpenError> {
    let (durable_at, failed_at, fence_failed) = (Arc::clone(receiver), Arc::clone(receiver), fenced.clone());
    let notices = Notices {
        durable: Box::new(move |upto: Version| match durable_at.leader.get() {
            Some(leader) => Arc::clone(&leader.kind).logged(leader, upto),
            None => drop(fenced.try_send(Ok(()))),
        }),
        failed: Box::new(move |failure: LogFailure| {
            let mut early = failed_at.early_failure();
            if let Some(leader) = failed_at.leader.get() {
                return leader.term.log_failed(&failure);
            }
            // The channel is closed once the fence is durable.
            let unsent = fence_failed.try_send(Err(FenceError::Failed(failure)));
            if let Err(unsent) = unsent
                && let Err(FenceError::Failed(failure)) = unsent.into_inner()
            {
                *early = Some(failure);
            }
        }),
    };
    Ok(log.start(notices)?)
}

/// Raises the limit of open files. Each session needs a descriptor for its client and one for each replica it uses.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current < limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::warn!(%error, "cannot raise the limit of open files");
        }
    }
}
