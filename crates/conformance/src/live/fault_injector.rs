//! Faults while clients work: of servers, of connections and of the node itself, in an order that the seed draws.
//!
//! Every kind comes once before one comes again. A killed server loses all its processes. All processes of a hung one are
//! stopped. A server that is cut off has its socket out of reach, and every connection to it ends. A full one has no free
//! connection left. A replica is drained and takes part again, or gets the data of another one. The node is killed and
//! started again; at worst everything is killed at once. Tables or their parts move ([`super::moves`]).
//!
//! Not here: the observations of the clients. A full disk needs a file system of its own: see [`KINDS`].

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sim::dice::Dice;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{self, Node};
use testbed::refusal::Refusal;
use tokio::time::sleep;

use super::moves::Moves;
use super::session::Session;
use super::{Course, LOOK};
use crate::cache_audit::{self, CacheAudit};

/// How long a server hangs, is cut off or full.
const LASTS: Duration = Duration::from_secs(4);
/// How long the node stays down.
const DOWN: Duration = Duration::from_millis(500);
/// More connections than a server has.
const CONNECTIONS_MAX: usize = 400;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, clap::ValueEnum)]
pub(crate) enum Kind {
    /// kill -9 of a server with all its processes.
    Kill,
    /// All processes of a server stop for a while (SIGSTOP).
    Hang,
    /// One backend of a session is terminated.
    Backend,
    /// Every backend of a server is terminated, with those of its agent.
    Backends,
    /// The network to a server is cut for a while.
    Cut,
    /// A server accepts no new connection for a while.
    Connections,
    /// A replica is drained, and undrained after a while.
    Drain,
    /// A replica is rebuilt.
    Rebuild,
    /// kill -9 of the node, which is started again.
    Node,
    /// kill -9 of everything at once.
    All,
    /// Parts move, or a table is made whole and split again; under c-jdbc a table moves. Needs `--placement`.
    Place,
}

impl Kind {
    /// Whether it strikes one replica.
    pub(super) fn is_of_a_replica(self) -> bool {
        !matches!(self, Self::Node | Self::All | Self::Place)
    }
}

/// All of them. A full disk is left out: it would need a mounted file system of its own.
pub(super) const KINDS: [Kind; 11] = [
    Kind::Kill,
    Kind::Hang,
    Kind::Backend,
    Kind::Backends,
    Kind::Cut,
    Kind::Connections,
    Kind::Drain,
    Kind::Rebuild,
    Kind::Node,
    Kind::All,
    Kind::Place,
];

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Kill => "server killed",
            Self::Hang => "server hangs 4 s",
            Self::Backend => "one backend ended",
            Self::Backends => "all backends ended",
            Self::Cut => "way cut for 4 s",
            Self::Connections => "no connections for 4 s",
            Self::Drain => "drained for 4 s",
            Self::Rebuild => "rebuilt",
            Self::Node => "node killed",
            Self::All => "all killed at once",
            Self::Place => "placed anew",
        })
    }
}

/// A fault that was injected.
#[derive(Clone, Copy, Debug)]
pub(super) struct InjectedFault {
    pub(super) kind: Kind,
    /// At the replica that was the anchor then; says nothing unless the kind strikes one replica.
    pub(super) at_anchor: bool,
    /// By the clients' clock.
    pub(super) at_us: u64,
}

/// The counters of the node, over all its lives, and of what it was told to place.
#[derive(Clone, Default, Debug)]
pub(super) struct Counted {
    pub(super) retried: u64,
    pub(super) takeovers: u64,
    /// Commands that changed a placement.
    pub(super) placed: u64,
    /// The errors of the others, with their numbers.
    pub(super) unplaced: BTreeMap<String, u64>,
    /// What the audit of the result cache has found.
    pub(super) audit: CacheAudit,
}

impl Counted {
    /// Adds what a node counted until it ends. What it compared is added when it is killed, or when all is over.
    fn add(&mut self, life: &Self) {
        self.retried += life.retried;
        self.takeovers += life.takeovers;
    }
}

/// Injects faults until the course is over.
pub(super) struct FaultInjector<'a> {
    pub(super) node: &'a mut Node,
    pub(super) kinds: Vec<Kind>,
    /// How long the clients are left alone after a fault is over: from this to twice as long.
    pub(super) calm_ms: u64,
    pub(super) clock: Instant,
    pub(super) moves: Moves,
    pub(super) interrupt: &'a Interrupt,
}

impl FaultInjector<'_> {
    pub(super) async fn work(mut self, course: &Course) -> Result<(Vec<InjectedFault>, Counted), Fault> {
        let mut dice = Dice::new(course.seed ^ 0x7374_7269_6b65);
        let (mut strikes, mut counted) = (Vec::new(), Counted::default());
        let mut bag: Vec<Kind> = Vec::new();
        let mut now = Counted::default();
        loop {
            let end = Instant::now() + Duration::from_millis(dice.between(self.calm_ms, 2 * self.calm_ms));
            while Instant::now() < end && !course.is_over() {
                sleep(LOOK).await;
            }
            let anchor = match look(course.port).await {
                Some((stats, anchor)) => {
                    now = stats;
                    anchor
                }
                None => None,
            };
            if course.is_over() {
                counted.add(&now);
                return Ok((strikes, counted));
            }
            if bag.is_empty() {
                bag.clone_from(&self.kinds);
            }
            let kind = bag.swap_remove(dice.index(bag.len()));
            let replica = dice.between(1, course.replicas);
            let at_us = u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX);
            strikes.push(InjectedFault { kind, at_anchor: anchor == Some(replica), at_us });
            if matches!(kind, Kind::Node | Kind::All) {
                counted.add(&now);
                counted.audit.add(now.audit);
                now = Counted::default();
            }
            self.inject(kind, replica, &mut dice, &mut counted).await?;
        }
    }

    /// Has other replicas hold something.
    async fn place(&self, dice: &mut Dice, counted: &mut Counted) -> Result<(), Fault> {
        for sql in self.moves.draw(dice) {
            let Some(admin) = Session::try_open(self.node.port, "onecopy").await else { continue };
            match admin.simple(&sql).await {
                Ok(_) => counted.placed += 1,
                Err(Refusal::Told(why)) if is_for_later(&why) => {
                    *counted.unplaced.entry(why).or_default() += 1;
                }
                Err(refusal) => return Err(Fault::Wrong(format!("onecopy answers `{sql}` with {refusal}"))),
            }
            sleep(Duration::from_millis(dice.below(2_000))).await;
        }
        Ok(())
    }

    async fn inject(
        &mut self,
        kind: Kind,
        replica: u64,
        dice: &mut Dice,
        counted: &mut Counted,
    ) -> Result<(), Fault> {
        let folder = self.node.data().join(format!("replica-{replica}"));
        match kind {
            Kind::Kill => _ = node::signal_all(&folder, Signal::KILL),
            Kind::Hang => {
                node::signal_all(&folder, Signal::STOP);
                sleep(LASTS).await;
                node::signal_all(&folder, Signal::CONT);
            }
            Kind::Backend => {
                let other = "pid <> pg_backend_pid() and application_name <> 'onecopy agent'";
                end_backends(&folder, &format!("{other} order by pid offset {} limit 1", dice.below(6)))
                    .await;
            }
            Kind::Backends => end_backends(&folder, "pid <> pg_backend_pid()").await,
            Kind::Cut => cut(&folder).await,
            Kind::Connections => take_connections(&folder).await,
            Kind::Drain => {
                order(self.node.port, &format!("DRAIN REPLICA replica-{replica}")).await;
                sleep(LASTS).await;
                order(self.node.port, &format!("UNDRAIN REPLICA replica-{replica}")).await;
            }
            Kind::Rebuild => order(self.node.port, &format!("REBUILD REPLICA replica-{replica}")).await,
            Kind::Place => self.place(dice, counted).await?,
            Kind::Node | Kind::All => {
                self.node.kill();
                if kind == Kind::All {
                    node::signal_all(self.node.data(), Signal::KILL);
                }
                sleep(DOWN).await;
                self.node.start_again(self.interrupt)?;
            }
        }
        Ok(())
    }
}

/// The SQLSTATE at the beginning of a text, if it says that a placement cannot change now.
fn is_for_later(text: &str) -> bool {
    ["55000 ", "55006 "].iter().any(|state| text.starts_with(state))
}

/// The node's counters since its start, and the anchor.
async fn look(port: u16) -> Option<(Counted, Option<u64>)> {
    let admin = Session::try_open(port, "onecopy").await?;
    let stats = admin.simple("SHOW STATS").await.ok()?;
    let count = |name: &str| {
        stats
            .iter()
            .find(|row| row.first().is_some_and(|n| n == name))
            .and_then(|row| row.get(1)?.parse().ok())
    };
    let replicas = admin.simple("SHOW REPLICAS").await.ok()?;
    let anchor = replicas.iter().position(|row| row.iter().any(|cell| cell == "anchor"));
    let audit = audit(&admin).await?;
    let (retried, takeovers) = (count("retried_unseen")?, count("takeovers")?);
    let counted = Counted { retried, takeovers, audit, ..Counted::default() };
    Some((counted, anchor.and_then(|index| u64::try_from(index + 1).ok())))
}

/// What the node has compared since its start; nothing if it was not asked to.
pub(super) async fn audit(admin: &Session) -> Option<CacheAudit> {
    if !cache_audit::is_on() {
        return Some(CacheAudit::default());
    }
    CacheAudit::of_rows(&admin.simple("SHOW CACHE").await.ok()?)
}

/// In the admin database; what cannot be done just now is left.
async fn order(port: u16, sql: &str) {
    if let Some(admin) = Session::try_open(port, "onecopy").await {
        // It says no where too few replicas are up.
        let _ = admin.simple(sql).await;
    }
}

/// Past the node; a server that is down just now is left alone.
async fn end_backends(folder: &Path, which: &str) {
    let Some(server) = node::server_in(folder) else { return };
    let Some(session) = Session::try_open(server.port, "postgres").await else { return };
    let sql = format!(
        "select pg_terminate_backend(pid) from (select pid from pg_stat_activity \
         where backend_type = 'client backend' and {which}) as found"
    );
    // The connection may be among those that end.
    let _ = session.simple(&sql).await;
}

async fn cut(folder: &Path) {
    let Some(socket) = node::server_in(folder).and_then(|_| node::socket_of(folder)) else { return };
    let away = socket.with_extension("away");
    if std::fs::rename(&socket, &away).is_err() {
        return;
    }
    end_backends(folder, "pid <> pg_backend_pid()").await;
    sleep(LASTS).await;
    // A server that was started meanwhile has a new one.
    if socket.exists() {
        let _ = std::fs::remove_file(&away);
    } else {
        let _ = std::fs::rename(&away, &socket);
    }
}

async fn take_connections(folder: &Path) {
    let Some(server) = node::server_in(folder) else { return };
    let mut taken = Vec::new();
    while taken.len() < CONNECTIONS_MAX
        && let Some(session) = Session::try_open(server.port, "postgres").await
    {
        taken.push(session);
    }
    sleep(LASTS).await;
}
