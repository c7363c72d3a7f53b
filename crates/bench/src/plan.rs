//! A plan of comparisons, as a file in TOML: the contestants, their loads and times.
//!
//! An unknown word is an error: a plan that means something else than it says would be worse than none.

mod entrant;
pub(crate) mod stamped;

use std::fs;
use std::path::Path;
use std::time::Duration;

use clap::ValueEnum as _;
use serde::Deserialize;
use testbed::fault::Fault;

use crate::drive::{Isolation, Pace};
use crate::load::{Load, Size};
pub(crate) use entrant::{Entrant, Prepared};

/// Bounds of what a plan may ask for.
const ROUNDS_MAX: u32 = 1_000;
const SECONDS_MAX: u32 = 86_400;
const REPLICAS_MAX: u16 = 16;
const CLIENTS_MAX: usize = 2_000;
const POOL_MAX: u16 = 1_000;

/// Between the moment when servers are limited, warm as they are then, and what is counted.
pub(crate) const SETTLING: Duration = Duration::from_secs(1);

/// A plan.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Plan {
    /// Title of the report.
    pub(crate) title: String,
    /// The plots.
    #[serde(default)]
    pub(crate) seed: u64,
    /// How often everything is measured, in turns.
    pub(crate) rounds: u32,
    /// Length of the warm-up at the beginning of a run, in seconds. Servers are not limited during it, and have
    /// [`SETTLING`] more afterwards.
    pub(crate) warm_up_s: u32,
    /// Length of the measurement, in seconds.
    pub(crate) seconds: u32,
    /// Processors that each server may use; without it there is no limit.
    pub(crate) cores_per_server: Option<f64>,
    /// The period over which that is counted.
    #[serde(default = "period_ms")]
    pub(crate) period_ms: u32,
    /// Whether the simulator is asked about the same runs; needs one plain PostgreSQL among the contestants.
    #[serde(default)]
    pub(crate) simulate: bool,
    /// Whether contestants are started one after the other, each alone on the machine, instead of all at once and in turns.
    #[serde(default)]
    pub(crate) one_by_one: bool,
    /// The contestants. The others are compared with the first one.
    #[serde(rename = "contestant")]
    pub(crate) contestants: Vec<Entrant>,
    /// On what.
    #[serde(rename = "load", default)]
    pub(crate) loads: Vec<Course>,
    /// Losses of replicas, each on a cluster of its own.
    #[serde(rename = "failure", default)]
    pub(crate) failures: Vec<Failure>,
    /// Loads that grow and fall, each on a cluster of its own whose replicas come and go.
    #[serde(rename = "wave", default)]
    pub(crate) waves: Vec<Wave>,
    /// Single calls of known times.
    #[serde(rename = "delay", default)]
    pub(crate) delays: Vec<stamped::Delay>,
    /// The same load on clusters of several sizes.
    #[serde(rename = "scaling", default)]
    pub(crate) scalings: Vec<stamped::Scaling>,
    /// The same load under several protocols.
    #[serde(rename = "cost", default)]
    pub(crate) costs: Vec<stamped::Cost>,
    /// Calls that lose their server.
    #[serde(rename = "origin", default)]
    pub(crate) origins: Vec<stamped::Origin>,
}

fn period_ms() -> u32 {
    20
}

/// A load, with the clients and the pace at which it runs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Course {
    /// As `drive` calls it.
    pub(crate) load: String,
    /// Clients for each server that the contestant has; either this or `clients`.
    clients_per_server: Option<usize>,
    /// Clients, however many servers there are.
    clients: Option<usize>,
    /// How large the database is.
    #[serde(default = "one")]
    pub(crate) scale: i32,
    /// Items of TPC-C and TPC-W.
    pub(crate) items: Option<i32>,
    /// Customers of a district of TPC-C.
    pub(crate) customers: Option<i32>,
    /// Think times are multiplied by this; without it clients are always busy.
    pub(crate) think: Option<f64>,
    /// Interactions in a second for each server, in an open loop.
    pub(crate) rate_per_server: Option<f64>,
    /// At which level transactions that write run.
    pub(crate) isolation: Option<String>,
}

fn one() -> i32 {
    1
}

impl Course {
    /// The load of that name.
    pub(crate) fn which(&self) -> Result<Load, Fault> {
        Load::from_str(&self.load, true)
            .map_err(|_| Fault::Missing(format!("no load is called {}", self.load)))
    }

    /// How large the database is.
    pub(crate) fn size(&self) -> Size {
        Size { scale: self.scale, items: self.items, customers: self.customers }
    }

    /// How many clients there are, with so many servers.
    pub(crate) fn clients(&self, servers: u16) -> usize {
        self.clients.unwrap_or_else(|| self.clients_per_server.unwrap_or(1) * usize::from(servers))
    }

    /// When interactions are due, with so many servers.
    pub(crate) fn pace(&self, servers: u16) -> Pace {
        match (self.rate_per_server, self.think) {
            (Some(rate), _) => Pace::Rate(rate * f64::from(servers)),
            (None, Some(factor)) => Pace::Thinking(factor),
            (None, None) => Pace::Busy,
        }
    }

    /// How transactions are isolated.
    pub(crate) fn isolation(&self) -> Result<Isolation, Fault> {
        match &self.isolation {
            None => Ok(Isolation::default()),
            Some(name) => Isolation::from_str(name, true)
                .map_err(|_| Fault::Missing(format!("no level of isolation is called {name}"))),
        }
    }
}

/// A replica is killed while clients go on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Failure {
    /// How many replicas onecopy has.
    pub(crate) replicas: u16,
    /// Further words for `onecopy up`.
    #[serde(default)]
    pub(crate) arguments: Vec<String>,
    /// The number of the replica that is killed, counted from 1.
    pub(crate) killed: u16,
    /// When, in seconds.
    pub(crate) after_s: u32,
    /// For how long it cannot be started again, in seconds.
    #[serde(default)]
    pub(crate) away_s: u32,
    /// For how long clients work.
    pub(crate) seconds: u32,
    /// The clients' behaviour. There are no other clients.
    pub(crate) course: Course,
}

/// A load that grows and falls, on a cluster whose replicas come and go with it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wave {
    /// How many replicas onecopy has at first.
    pub(crate) replicas: u16,
    /// How many it may have, which is what its cost is compared with.
    pub(crate) most: u16,
    /// Further words for `onecopy up`.
    pub(crate) arguments: Vec<String>,
    /// Interactions in a second, of all clients, in a phase of factor 1.
    pub(crate) rate: f64,
    /// The phases, in their order.
    #[serde(rename = "phase")]
    pub(crate) phases: Vec<Phase>,
    /// The clients' behaviour. Their pace is that of the phases.
    pub(crate) course: Course,
}

/// A part of a wave.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Phase {
    /// The rate is multiplied by this.
    pub(crate) factor: f64,
    /// For how long.
    pub(crate) seconds: u32,
}

impl Plan {
    /// Reads a plan.
    pub(crate) fn read(path: &Path) -> Result<Self, Fault> {
        let text = fs::read_to_string(path).map_err(Fault::system(format!("read {}", path.display())))?;
        Self::parse(&text).map_err(|why| match why {
            Fault::Missing(why) => Fault::Missing(format!("{}: {why}", path.display())),
            other => other,
        })
    }

    fn parse(text: &str) -> Result<Self, Fault> {
        let plan: Self = toml::from_str(text).map_err(|error| Fault::Missing(error.to_string()))?;
        plan.check()?;
        Ok(plan)
    }

    fn check(&self) -> Result<(), Fault> {
        let must =
            |holds: bool, what: &str| if holds { Ok(()) } else { Err(Fault::Missing(what.to_owned())) };
        must((1..=ROUNDS_MAX).contains(&self.rounds), "rounds: from 1 to 1,000")?;
        must((1..=SECONDS_MAX).contains(&self.seconds), "seconds: from 1 to a day's")?;
        must(self.warm_up_s <= SECONDS_MAX, "warm_up_s: at most a day's")?;
        must((1..=1_000).contains(&self.period_ms), "period_ms: from 1 to 1,000")?;
        let cores = self.cores_per_server.is_none_or(|cores| cores > 0.0 && cores.is_finite());
        must(cores, "cores_per_server: above 0")?;
        must(!self.contestants.is_empty(), "a plan needs at least one contestant")?;
        let has_plain = self.contestants.iter().any(|who| matches!(who, Entrant::Postgres { .. }));
        must(!self.simulate || has_plain, "simulate: one of the contestants must be of kind postgres")?;
        let counts = |replicas: u16| (1..=REPLICAS_MAX).contains(&replicas);
        must(self.contestants.iter().all(|who| counts(who.servers())), "replicas: from 1 to 16")?;
        let pools = self.contestants.iter().filter_map(Entrant::pool_size);
        must(pools.into_iter().all(|size| (1..=POOL_MAX).contains(&size)), "pool_size: from 1 to 1,000")?;
        let tables: Vec<&str> =
            self.loads.iter().map(|load| load.which().map(Load::tables)).collect::<Result<_, _>>()?;
        let mut prepares = self.contestants.iter().flat_map(Entrant::prepares);
        must(prepares.all(|name| tables.contains(&name)), "prepared: for tables of one of the loads")?;
        let others = self.failures.iter().map(|failure| &failure.course);
        let others = others.chain(self.waves.iter().map(|wave| &wave.course));
        for course in self.loads.iter().chain(others) {
            course.which()?;
            course.isolation()?;
            let is_one = course.clients.is_some() != course.clients_per_server.is_some();
            must(
                is_one && (1..=CLIENTS_MAX).contains(&course.clients(1)),
                "clients or clients_per_server: from 1 to 2,000",
            )?;
            must((1..=10_000).contains(&course.scale), "scale: from 1 to 10,000")?;
            let given = [course.think, course.rate_per_server];
            must(given.iter().flatten().all(|value| *value > 0.0), "think, rate_per_server: above 0")?;
        }
        for Wave { replicas, most, rate, phases, .. } in &self.waves {
            must(counts(*most) && (1..=*most).contains(replicas), "wave: replicas is at most most")?;
            let rates = phases.iter().map(|phase| rate * phase.factor);
            let mut rates = rates.chain([*rate]);
            must(rates.all(|rate| rate > 0.0 && rate.is_finite()), "wave: rate, factor: above 0")?;
            let lengths = phases.iter().map(|phase| phase.seconds);
            let mut lengths = lengths.chain([u32::from(!phases.is_empty())]);
            must(lengths.all(|seconds| (1..=SECONDS_MAX).contains(&seconds)), "wave: phases have seconds")?;
        }
        for Failure { replicas, killed, after_s, away_s, seconds, .. } in &self.failures {
            must(
                counts(*replicas) && (1..=*replicas).contains(killed),
                "failure: killed is one of replicas",
            )?;
            let returns_s = after_s.checked_add(*away_s);
            must(
                returns_s.is_some_and(|at| at < *seconds),
                "failure: after_s and away_s together lie before the end",
            )?;
        }
        stamped::check(self)
    }

    /// What tells a load apart from those of the plan that are called the same.
    pub(crate) fn apart(&self, course: &Course) -> String {
        let kin = || self.loads.iter().filter(|other| other.load == course.load);
        let mut apart = String::new();
        if kin().any(|other| other.scale != course.scale) {
            apart += &format!(", scale {}", course.scale);
        }
        let clients = |course: &Course| (course.clients, course.clients_per_server);
        if kin().any(|other| clients(other) != clients(course)) {
            apart += &match course.clients {
                Some(count) => format!(", clients {count}"),
                None => format!(", clients {} a server", course.clients(1)),
            };
        }
        if let Some(level) =
            course.isolation.as_ref().filter(|_| kin().any(|o| o.isolation != course.isolation))
        {
            apart += &format!(", {level}");
        }
        apart
    }

    /// The loads, grouped by those that share their tables.
    pub(crate) fn groups(&self) -> Result<Vec<Vec<Course>>, Fault> {
        let mut groups: Vec<(&str, Size, Vec<Course>)> = Vec::new();
        for course in &self.loads {
            let (tables, size) = (course.which()?.tables(), course.size());
            match groups.iter_mut().find(|(known, other, _)| *known == tables && *other == size) {
                Some((_, _, courses)) => courses.push(course.clone()),
                None => groups.push((tables, size, vec![course.clone()])),
            }
        }
        Ok(groups.into_iter().map(|(_, _, courses)| courses).collect())
    }

    /// How long all runs take, without starting and filling.
    pub(crate) fn measured(&self) -> Duration {
        let runs = self.loads.len() * self.contestants.len() * self.rounds as usize;
        let settling_s = self.cores_per_server.map_or(0, |_| SETTLING.as_secs());
        let each = u64::from(self.warm_up_s) + settling_s + u64::from(self.seconds);
        let losses: u64 = self.failures.iter().map(|failure| u64::from(failure.seconds)).sum();
        let phases = self.waves.iter().flat_map(|wave| &wave.phases);
        let waves: u64 = phases.map(|phase| u64::from(phase.seconds)).sum();
        Duration::from_secs(each * runs as u64 + losses + waves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "title = 't'\nrounds = 2\nwarm_up_s = 1\nseconds = 3\n\
        [[contestant]]\nkind = 'postgres'\nsynchronous_commit = true\n\
        [[contestant]]\nkind = 'onecopy'\nreplicas = 2\n\
        [[load]]\nload = 'tpcw-browsing'\nclients_per_server = 8\n\
        [[load]]\nload = 'tpcc'\nclients_per_server = 8\nscale = 2\n\
        [[load]]\nload = 'tpcw-ordering'\nclients_per_server = 8\n";

    #[test]
    fn a_plan_is_read_and_its_loads_are_grouped_by_tables() {
        let plan = Plan::parse(TEXT).unwrap();
        let names: Vec<String> = plan.contestants.iter().map(Entrant::name).collect();
        assert_eq!(names, ["PostgreSQL", "onecopy x2"]);
        let eager = |pool_size| Entrant::onecopy(4, pool_size, vec!["--protocol".into(), "eager".into()]);
        let called = |entrant: Entrant| (entrant.name(), entrant.family(), entrant.words().join(" "));
        let say = |texts: [&str; 3]| (texts[0].to_owned(), texts[1].to_owned(), texts[2].to_owned());
        assert_eq!(
            called(eager(None)),
            say(["onecopy x4 --protocol eager", "onecopy --protocol eager", "--protocol eager"])
        );
        assert_eq!(
            called(eager(Some(3))),
            say([
                "onecopy x4 --protocol eager, pools of 3",
                "onecopy --protocol eager, pools of 3",
                "--protocol eager --pool-mode transaction --pool-size 3"
            ])
        );
        assert_eq!(
            called(Entrant::Pgbouncer { pool_size: Some(3) }),
            say(["PgBouncer, pools of 3", "PgBouncer, pools of 3", ""])
        );
        assert_eq!(plan.contestants[1].family(), "onecopy");
        let groups = plan.groups().unwrap();
        assert_eq!(groups.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(plan.measured(), Duration::from_secs(3 * 2 * 2 * 4));
        let limited =
            Plan::parse(&TEXT.replace("seconds = 3", "seconds = 3\ncores_per_server = 0.1")).unwrap();
        assert_eq!(limited.measured(), plan.measured() + SETTLING * (3 * 2 * 2));
    }

    #[test]
    fn a_contestant_prepares_tables_that_a_load_has() {
        let text = |tables| {
            TEXT.replace(
                "replicas = 2\n",
                &format!(
                    "replicas = 2\ncalled = 'split'\n[contestant.prepared.{tables}]\nadmin = ['SHOW STATS']\n"
                ),
            )
        };
        let plan = Plan::parse(&text("tpcc")).unwrap();
        assert_eq!(plan.contestants[1].name(), "onecopy x2, split");
        assert_eq!(plan.contestants[1].prepared("tpcc").unwrap().admin, ["SHOW STATS"]);
        assert_eq!(plan.contestants[1].prepared("tpcw"), None);
        assert!(matches!(Plan::parse(&text("rubis")), Err(Fault::Missing(_))));
    }

    #[test]
    fn loads_of_one_name_are_told_apart() {
        let more = "[[load]]\nload = 'tpcc'\nclients = 4\nscale = 2\nisolation = 'serializable'\n\
            [[load]]\nload = 'tpcc'\nclients = 4\nscale = 3\nisolation = 'serializable'\n";
        let plan = Plan::parse(&format!("{TEXT}{more}")).unwrap();
        let apart: Vec<String> = plan.loads.iter().map(|course| plan.apart(course)).collect();
        let four = |scale: i32| format!(", scale {scale}, clients 4, serializable");
        assert_eq!(apart, ["", ", scale 2, clients 8 a server", "", &four(2), &four(3)]);
    }

    #[test]
    fn the_plans_that_are_there_can_be_read() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("plans");
        let plans: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(plans.len() >= 3, "{plans:?}");
        for path in plans {
            let plan = Plan::read(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let is_empty = plan.groups().unwrap().is_empty()
                && plan.failures.is_empty()
                && plan.waves.is_empty()
                && plan.scalings.is_empty();
            assert!(!is_empty, "{}", path.display());
        }
    }

    #[test]
    fn a_replica_returns_while_clients_still_work() {
        let failure = "[[failure]]\nreplicas = 3\nkilled = 2\nafter_s = 5\naway_s = 5\nseconds = 11\n\
            [failure.course]\nload = 'tpcc'\nclients = 4\n";
        assert!(Plan::parse(&format!("{TEXT}{failure}")).is_ok());
        let late = failure.replace("seconds = 11", "seconds = 10");
        assert!(matches!(Plan::parse(&format!("{TEXT}{late}")), Err(Fault::Missing(_))));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (from, to) in [
            ("rounds = 2", "rounds = 0"),
            ("rounds = 2", "rouds = 2"),
            ("'tpcc'", "'tpcd'"),
            ("replicas = 2", "replicas = 17"),
            ("replicas = 2", "replicas = 2\npool_size = 0"),
            ("synchronous_commit = true", "synchronous_commit = true\npool_size = 3"),
            ("clients_per_server = 8", "clients_per_server = 0"),
            ("clients_per_server = 8", "clients_per_server = 8\nclients = 8"),
            ("clients_per_server = 8", "isolation = 'serializable'"),
            ("seconds = 3", "seconds = 3\ncores_per_server = -0.1"),
            ("scale = 2", "scale = 2\nisolation = 'chaos'"),
        ] {
            assert!(matches!(Plan::parse(&TEXT.replace(from, to)), Err(Fault::Missing(_))), "{to}");
        }
    }
}
