//! Elastic replicas: when a parked replica is woken, when one that serves is parked, and when a server is to be provided.
//!
//! Gargamel (section I) promises that a cluster needs only as many replicas as its load keeps busy, and leaves open how their
//! number follows the load. This is our rule. Every period the driver gives one [`Sample`] of each member: whether it serves,
//! its busy share, and its queue. Growing looks at the mean busy share of the last `grow_after`. Shrinking asks whether one
//! replica less would carry the same work at [`CALM_PERMILLE`] of the target, and waits until that was so for `shrink_after`
//! without a break. The gap between the two, and the longer wait, keep a load that swings from moving the number with it.
//!
//! Example: a target of 0.7, three replicas that are 0.2 busy do the work of 0.6 replicas. Two of them would be 0.3 busy, which
//! is below 0.56, so one is parked after `shrink_after`. Two that are 0.3 busy stay: one alone would be 0.6 busy.
//!
//! A member that does not serve and is not parked ([`Standing::Away`]) does no work, so the others have to do it. It still
//! counts towards the upper bound, because its server is paid for and may come back.
//!
//! Invariant: no decision leads below the lower bound, nor to more running servers than the upper bound. After a change of the
//! replicas that serve, the next decision rests on samples from after the change only.
//!
//! Non-goals: how a replica is parked, woken or made; the driver does that, one change at a time, and says
//! [`Elastic::changed`]. How the load is measured: the driver says that, too.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;

use crate::ids::ReplicaId;
use crate::time::Time;

/// The share of the target that the remaining replicas may reach at most when one is parked.
const CALM_PERMILLE: u64 = 800;
/// The most samples that are kept. With more of them in `grow_after`, the oldest are forgotten.
const SAMPLES_MAX: usize = 1_024;
/// A whole, in permille.
const WHOLE: u64 = 1_000;

/// The operator's wishes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The least number of replicas that serve.
    pub least: u16,
    /// The largest number of servers that run.
    pub most: u16,
    /// The busy share, in permille, from which another replica is wanted.
    pub busy_permille: u32,
    /// How long the load has to be that high, or fewer than the least have to serve.
    pub grow_after_us: u64,
    /// How long the load has to be low before a replica is parked.
    pub shrink_after_us: u64,
    /// The number of parked replicas that are to be ready.
    pub spares: u16,
}

/// The state of a member, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// It takes statements, and is the anchor.
    Anchor,
    /// It takes statements.
    Serving,
    /// Its server runs or should run, but it takes no statements: it is down, drained, joining or in quarantine.
    Away,
    /// It is parked.
    Parked,
}

/// One member over one period.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Sample {
    /// The member.
    pub replica: ReplicaId,
    /// Its state at the end of the period.
    pub standing: Standing,
    /// The share of the period in which it was busy, in permille.
    pub busy_permille: u32,
    /// The mean work that was queued there, in permille of what it can do at a time.
    pub queued_permille: u32,
}

/// What a new server is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// It serves at once.
    Serve,
    /// It is parked as soon as it has the data.
    Spare,
}

/// Why the number of replicas is to change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cause {
    /// Fewer replicas serve than the lower bound.
    BelowLeast {
        /// The number that serves.
        serving: u16,
    },
    /// The replicas are as busy as the target, or busier.
    Busy {
        /// Their mean busy share.
        permille: u32,
    },
    /// One replica less would do.
    Calm {
        /// Their mean busy share.
        permille: u32,
    },
    /// More replicas serve than the upper bound.
    AboveMost {
        /// The number that serves.
        serving: u16,
    },
    /// Fewer replicas are parked than the operator wants as spares.
    FewSpares {
        /// The number that is parked.
        parked: u16,
    },
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let share = |permille: &u32| f64::from(*permille) / 1e3;
        match self {
            Self::BelowLeast { serving } => write!(f, "only {serving} serve, fewer than the lower bound"),
            Self::Busy { permille } => write!(f, "busy for {:.2} of the time", share(permille)),
            Self::Calm { permille } => {
                write!(f, "busy for {:.2} of the time: one replica less is enough", share(permille))
            }
            Self::AboveMost { serving } => write!(f, "{serving} serve, more than the upper bound"),
            Self::FewSpares { parked } => write!(f, "{parked} are parked, fewer than the wanted spares"),
        }
    }
}

/// What the driver is to do now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Nothing.
    Nothing,
    /// Wake this parked replica.
    Wake(ReplicaId, Cause),
    /// Park this replica.
    Park(ReplicaId, Cause),
    /// Provide a new server.
    Provision(Purpose, Cause),
}

/// The sums over the replicas that serve, of one period.
#[derive(Clone, Copy, Debug)]
struct Period {
    at: Time,
    busy: u64,
    queued: u64,
}

/// The policy of one cluster.
#[derive(Debug)]
pub struct Elastic {
    settings: Settings,
    /// The replicas that served in the present window.
    serving: BTreeSet<ReplicaId>,
    /// The time at which the present window began.
    begun: Option<Time>,
    periods: VecDeque<Period>,
    /// Since then one replica less would have been enough.
    calm_since: Option<Time>,
    /// Since then fewer than the least serve.
    few_since: Option<Time>,
}

impl Elastic {
    /// A policy that has seen nothing yet.
    pub fn new(settings: Settings) -> Self {
        let (serving, periods) = (BTreeSet::new(), VecDeque::new());
        Self { settings, serving, begun: None, periods, calm_since: None, few_since: None }
    }

    /// The driver has changed the number of replicas, or failed to: what was seen before no longer counts.
    pub fn changed(&mut self) {
        self.periods.clear();
        (self.begun, self.calm_since, self.few_since) = (None, None, None);
    }

    /// Takes the samples of all members over the period that ends now.
    pub fn observe(&mut self, now: Time, samples: &[Sample]) -> Decision {
        let serves = |sample: &&Sample| matches!(sample.standing, Standing::Anchor | Standing::Serving);
        let serving: BTreeSet<ReplicaId> = samples.iter().filter(serves).map(|s| s.replica).collect();
        if serving != self.serving {
            let few_since = self.few_since;
            self.changed();
            (self.serving, self.few_since) = (serving, few_since);
        }
        let begun = *self.begun.get_or_insert(now);
        let sum = |of: fn(&Sample) -> u32| samples.iter().filter(serves).map(|s| u64::from(of(s))).sum();
        let period = Period { at: now, busy: sum(|s| s.busy_permille), queued: sum(|s| s.queued_permille) };
        self.periods.push_back(period);
        let is_old = |period: &Period| now.since_us(period.at) > self.settings.grow_after_us;
        while self.periods.len() > SAMPLES_MAX || self.periods.front().is_some_and(is_old) {
            self.periods.pop_front();
        }
        if let Some(decision) = self.too_few(now, samples) {
            return decision;
        }
        if now.since_us(begun) < self.settings.grow_after_us {
            return Decision::Nothing;
        }
        self.by_load(now, samples)
    }

    /// Fewer replicas serve than the lower bound. A server that only restarts is back before a spare is woken.
    fn too_few(&mut self, now: Time, samples: &[Sample]) -> Option<Decision> {
        let serving = count(self.serving.len());
        if serving >= self.settings.least {
            self.few_since = None;
            return None;
        }
        let since = *self.few_since.get_or_insert(now);
        if now.since_us(since) < self.settings.grow_after_us {
            return Some(Decision::Nothing);
        }
        Some(self.grow(samples, Cause::BelowLeast { serving }))
    }

    fn by_load(&mut self, now: Time, samples: &[Sample]) -> Decision {
        let Settings { least, most, busy_permille, shrink_after_us, spares, .. } = self.settings;
        let (serving, target) = (self.serving.len() as u64, u64::from(busy_permille));
        let periods = self.periods.len().max(1) as u64;
        let busy = self.periods.iter().map(|period| period.busy).sum::<u64>() / periods;
        let queued = self.periods.iter().map(|period| period.queued).sum::<u64>() / periods;
        let permille = u32::try_from(busy / serving.max(1)).unwrap_or(u32::MAX);
        if count(self.serving.len()) > most {
            let cause = Cause::AboveMost { serving: count(self.serving.len()) };
            return park(samples, cause);
        }
        let is_calm = serving > 1 && busy + queued < (serving - 1) * target * CALM_PERMILLE / WHOLE;
        self.calm_since = is_calm.then(|| self.calm_since.unwrap_or(now));
        if busy >= serving * target {
            let grown = self.grow(samples, Cause::Busy { permille });
            if grown != Decision::Nothing {
                return grown;
            }
        }
        let was_calm = self.calm_since.is_some_and(|since| now.since_us(since) >= shrink_after_us);
        if was_calm && count(self.serving.len()) > least {
            return park(samples, Cause::Calm { permille });
        }
        let parked = number(samples, Standing::Parked);
        if parked < spares && count(samples.len()) < most {
            return Decision::Provision(Purpose::Spare, Cause::FewSpares { parked });
        }
        Decision::Nothing
    }

    /// One replica more, if the upper bound allows it.
    fn grow(&self, samples: &[Sample], cause: Cause) -> Decision {
        let running = count(samples.len()) - number(samples, Standing::Parked);
        if running >= self.settings.most {
            return Decision::Nothing;
        }
        match samples.iter().find(|sample| sample.standing == Standing::Parked) {
            Some(parked) => Decision::Wake(parked.replica, cause),
            None => Decision::Provision(Purpose::Serve, cause),
        }
    }
}

/// Parks the replica that is least busy; among equals the one with the highest number. The anchor stays.
fn park(samples: &[Sample], cause: Cause) -> Decision {
    let may_go = samples.iter().rev().filter(|sample| sample.standing == Standing::Serving);
    let least = may_go.min_by_key(|sample| sample.busy_permille);
    least.map_or(Decision::Nothing, |sample| Decision::Park(sample.replica, cause))
}

fn number(samples: &[Sample], standing: Standing) -> u16 {
    count(samples.iter().filter(|sample| sample.standing == standing).count())
}

fn count(members: usize) -> u16 {
    u16::try_from(members).expect("numbers of replicas are below 64")
}

#[cfg(test)]
mod tests;
