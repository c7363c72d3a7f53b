//! What the node knows about its size: the load of each replica, the last decisions, and what the servers have cost.
//!
//! The task that lets replicas come and go ([`crate::elastic`]) writes all of it, SHOW ELASTIC, SHOW COST and the metrics
//! read it. Example: three servers that run for 20 minutes are one replica-hour, and with a price of 0.12 an hour they cost
//! 0.12. A parked replica costs nothing; one that is down does, since its server is still there.
//!
//! The usage since the cluster was made is kept in the register, which is written every minute and at the stop.
//! A crash loses what came after that.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime};

use cluster::ids::ReplicaId;
use cluster::parts::elastic::{Sample, Settings};
use commitlog::Entry;
use serde::{Deserialize, Serialize};

use super::register::TermRegister;

/// The number of decisions that SHOW ELASTIC shows.
const DECISIONS_MAX: usize = 50;

/// How large the cluster may become, and what it costs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ElasticSettings {
    /// When replicas come and go. `None`: only by command.
    pub(crate) policy: Option<Settings>,
    /// The statements that a replica is meant to run at a time.
    pub(crate) statements: u32,
    /// The price of one server for one hour, or zero if it is not known.
    pub(crate) price_per_hour: f64,
    /// The command that provides a server (`onecopy serve`).
    pub(crate) provision: Option<String>,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Change {
    Wake,
    Park,
    Provision,
}

impl Change {
    /// All kinds.
    pub(crate) const ALL: [Self; 3] = [Self::Wake, Self::Park, Self::Provision];

    /// Its word in SHOW ELASTIC and the metrics.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Wake => "wake",
            Self::Park => "park",
            Self::Provision => "provision",
        }
    }
}

/// A decision that was carried out, or is being carried out.
#[derive(Clone, Debug)]
pub(crate) struct Decided {
    /// When it was made.
    pub(crate) at: SystemTime,
    pub(crate) change: Change,
    /// The replica that it is about, once it is known.
    pub(crate) replica: Option<ReplicaId>,
    /// Why it was made.
    pub(crate) reason: String,
    /// What came of it; empty while it is carried out.
    pub(crate) outcome: String,
}

/// What the servers were used for since some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Usage {
    /// When counting began, in seconds since 1970.
    pub(crate) began_s: u64,
    /// The sum of the times for which servers ran.
    pub(crate) replica_ms: u64,
    /// Update transactions in the log.
    pub(crate) commits: u64,
    /// Transactions of clients.
    pub(crate) transactions: u64,
}

impl Usage {
    /// The sum of both, which began when `self` did.
    fn and(self, more: Self) -> Self {
        Self {
            began_s: self.began_s,
            replica_ms: self.replica_ms + more.replica_ms,
            commits: self.commits + more.commits,
            transactions: self.transactions + more.transactions,
        }
    }

    /// The sum of the times for which servers ran, in hours.
    pub(crate) fn replica_hours(&self) -> f64 {
        Duration::from_millis(self.replica_ms).as_secs_f64() / 3_600.0
    }
}

#[derive(Debug, Default)]
struct State {
    loads: BTreeMap<ReplicaId, Sample>,
    decisions: VecDeque<Decided>,
    changes: BTreeMap<Change, u64>,
    failures: u64,
    /// Since the start of the node.
    usage: Usage,
}

/// The size of the cluster, and how it came about.
#[derive(Debug)]
pub(crate) struct Elasticity {
    settings: OnceLock<ElasticSettings>,
    register: Arc<TermRegister>,
    /// The usage before the node started.
    before: Option<Usage>,
    state: Mutex<State>,
}

impl Elasticity {
    /// Nothing was decided yet. An unreadable usage is replaced, with a warning.
    pub(super) fn new(register: Arc<TermRegister>) -> Self {
        let unread = |error: &dyn std::fmt::Display| {
            tracing::warn!(%error, "the usage of the servers so far cannot be read; it is counted anew");
            None
        };
        let before = match register.read(&Entry::Usage) {
            Ok(None) => None,
            Ok(Some(value)) => serde_json::from_slice(&value).map_or_else(|error| unread(&error), Some),
            Err(error) => unread(&error),
        };
        let began_s = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |age| age.as_secs());
        let usage = Usage { began_s, ..Usage::default() };
        let state = State { usage, ..State::default() };
        Self { settings: OnceLock::new(), register, before, state: Mutex::new(state) }
    }

    /// Sets the operator's wishes, once.
    pub(crate) fn set(&self, settings: ElasticSettings) {
        let is_first = self.settings.set(settings).is_ok();
        debug_assert!(is_first, "a node starts once");
    }

    /// The operator's wishes. `None` while the node starts.
    pub(crate) fn settings(&self) -> Option<&ElasticSettings> {
        self.settings.get()
    }

    /// The least number of replicas that serve.
    pub(crate) fn least(&self) -> u16 {
        self.settings().and_then(|settings| settings.policy).map_or(1, |policy| policy.least.max(1))
    }

    /// The price of one server for one hour, if it is known.
    pub(crate) fn price_per_hour(&self) -> Option<f64> {
        self.settings().map(|settings| settings.price_per_hour).filter(|price| *price > 0.0)
    }

    /// The members over the last period.
    pub(crate) fn note_loads(&self, samples: &[Sample]) {
        self.state().loads = samples.iter().map(|sample| (sample.replica, *sample)).collect();
    }

    /// The members over the last period, as far as they were looked at.
    pub(crate) fn loads(&self) -> BTreeMap<ReplicaId, Sample> {
        self.state().loads.clone()
    }

    /// A decision was made. It is shown as under way until [`Self::ended`].
    pub(crate) fn decided(&self, decided: Decided) {
        let mut state = self.state();
        *state.changes.entry(decided.change).or_default() += 1;
        state.decisions.push_back(decided);
        while state.decisions.len() > DECISIONS_MAX {
            state.decisions.pop_front();
        }
    }

    /// The last decision was carried out, or failed.
    pub(crate) fn ended(&self, replica: Option<ReplicaId>, outcome: String, has_failed: bool) {
        let mut state = self.state();
        state.failures += u64::from(has_failed);
        if let Some(last) = state.decisions.back_mut() {
            last.replica = replica.or(last.replica);
            last.outcome = outcome;
        }
    }

    /// The last decisions, the newest first.
    pub(crate) fn decisions(&self) -> Vec<Decided> {
        self.state().decisions.iter().rev().cloned().collect()
    }

    /// The number of decisions of this kind.
    pub(crate) fn changes(&self, change: Change) -> u64 {
        self.state().changes.get(&change).copied().unwrap_or_default()
    }

    /// The number of decisions that could not be carried out.
    pub(crate) fn failures(&self) -> u64 {
        self.state().failures
    }

    /// So many servers ran for this long. The counts are totals since the start.
    pub(crate) fn count(&self, servers: usize, elapsed: Duration, commits: u64, transactions: u64) {
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        let usage = &mut self.state().usage;
        usage.replica_ms += elapsed_ms * servers as u64;
        (usage.commits, usage.transactions) = (commits, transactions);
    }

    /// The usage since the start of the node.
    pub(crate) fn since_start(&self) -> Usage {
        self.state().usage
    }

    /// The usage since the cluster was made, or since this was first counted.
    pub(crate) fn since_boot(&self) -> Usage {
        let now = self.since_start();
        self.before.map_or(now, |before| before.and(now))
    }

    /// Writes the usage to the register.
    pub(crate) async fn write(&self) {
        let written = match serde_json::to_vec(&self.since_boot()) {
            Ok(value) => {
                self.register.change(Entry::Usage, Some(value)).await.map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = written {
            tracing::warn!(error, "the usage of the servers cannot be written");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn usage_goes_on_after_a_restart() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Elasticity::new(TermRegister::in_folder(folder.path()));
        let first = open();
        first.count(3, Duration::from_mins(20), 7, 90);
        assert!((first.since_boot().replica_hours() - 1.0).abs() < 1e-9);
        first.write().await;
        let second = open();
        assert_eq!(second.since_start().replica_ms, 0);
        second.count(2, Duration::from_mins(30), 1, 10);
        let boot = second.since_boot();
        assert!((boot.replica_hours() - 2.0).abs() < 1e-9);
        assert_eq!((boot.commits, boot.transactions), (8, 100));
        assert_eq!(boot.began_s, first.since_start().began_s);
        second.write().await;
        assert_eq!(open().since_boot().commits, 8);
        std::fs::write(folder.path().join("log/usage.json"), "{").unwrap();
        assert_eq!(open().since_boot().commits, 0, "a damaged file is counted anew");
    }

    #[test]
    fn the_last_decisions_are_remembered_with_their_outcome() {
        let folder = tempfile::tempdir().unwrap();
        let elasticity = Elasticity::new(TermRegister::in_folder(folder.path()));
        for number in 0..=DECISIONS_MAX {
            let at = SystemTime::UNIX_EPOCH;
            let (change, reason) = (Change::Wake, number.to_string());
            elasticity.decided(Decided { at, change, replica: None, reason, outcome: String::new() });
            elasticity.ended(Some(ReplicaId(1)), "done".to_owned(), number == 0);
        }
        let shown = elasticity.decisions();
        assert_eq!((shown.len(), shown[0].reason.as_str()), (DECISIONS_MAX, "50"));
        assert_eq!((shown[0].replica, shown[0].outcome.as_str()), (Some(ReplicaId(1)), "done"));
        assert_eq!(elasticity.changes(Change::Wake), 51);
        assert_eq!((elasticity.changes(Change::Park), elasticity.failures()), (0, 1));
    }
}
