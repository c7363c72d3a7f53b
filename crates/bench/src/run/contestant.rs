//! The contestants: each starts its programs, names the endpoints of its clients, and compares its copies.
//!
//! All servers get the settings of onecopy's replicas, which are read from these. They differ only in the settings of
//! their kind of replication. All live in the runner's own folder, on the loopback.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use testbed::account::Account;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{self, Node, Shape};
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::program;
use testbed::scratch::Scratch;
use tokio_postgres::Config;

use super::pgpool::{self, Pgpool};
use super::probe;
use super::streaming::Streaming;
use crate::bulk::peak_bytes;
use crate::cpu;
use crate::drive::{Endpoints, Workload};
use crate::load::{open, populate, runtime};
use crate::plan::{Entrant, Prepared};
use crate::proxy::pooler::{Pooler, Size};
use crate::quota::{Group, Limit};

/// Where `onecopy up` has the data of several nodes, and of their etcd.
pub(crate) const NODES_FOLDER: &str = "nodes";
const ETCD_FOLDER: &str = "etcd";
/// The time in which copies must be the same after the last write.
const SETTLED: Duration = Duration::from_mins(2);
/// How long transactions of clients that have gone may take to be rolled back.
const ROLLED_BACK: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(50);

/// The programs, folders and limits with which contestants start.
pub(crate) struct Environment<'a> {
    pub(crate) binaries: &'a Binaries,
    pub(crate) account: Account,
    pub(crate) scratch: &'a Scratch,
    pub(crate) interrupt: &'a Interrupt,
    /// The program `onecopy`.
    pub(crate) onecopy: &'a Path,
    /// The most clients that there will be.
    pub(crate) clients: u32,
}

/// What a contestant holds before any load.
pub(crate) struct Filling<'a> {
    pub(crate) workload: &'a dyn Workload,
    /// The name of its tables, for which the contestant may have statements.
    pub(crate) tables: &'a str,
    pub(crate) seed: u64,
    /// Whether its servers can be limited.
    pub(crate) is_limited: bool,
}

/// The programs of a contestant. Each is stopped when it is dropped, the first one first.
enum Running {
    Plain { _server: Plain },
    Pooled { pooler: Pooler, _server: Plain },
    Streaming(Streaming),
    Pgpool(Pgpool),
    Onecopy { node: Node, program: PathBuf },
}

/// A contestant that runs.
pub(crate) struct Contestant {
    /// Its name in the report.
    pub(crate) name: String,
    /// Where clients go.
    pub(crate) endpoints: Endpoints,
    /// The first process of each of its servers.
    pub(crate) postmasters: Vec<u32>,
    /// The process in between, if there is one.
    pub(crate) middleware: Option<u32>,
    /// The processes of its nodes and of etcd, if there are several nodes.
    pub(crate) nodes: Vec<u32>,
    /// Whether its answers were wrong at some time.
    running: Running,
    groups: Vec<Group>,
}

impl Contestant {
    /// Starts it; `number` tells its folders from those of others. Nothing when what it needs is not installed.
    pub(crate) fn start(
        entrant: &Entrant,
        number: usize,
        likeness: &Likeness,
        environment: &Environment<'_>,
    ) -> Result<Option<Self>, Fault> {
        let folder = folder(number);
        let plain = |likeness: &Likeness| {
            let Environment { binaries, account, scratch, interrupt, .. } = environment;
            Plain::start_named(&folder, binaries, *account, likeness, scratch, interrupt)
        };
        let synchronous = likeness.clone().with("synchronous_commit", "on");
        let (endpoints, middleware, running) = match entrant {
            Entrant::Postgres { synchronous_commit } => {
                let value = if *synchronous_commit { "on" } else { "off" };
                let server = plain(&likeness.clone().with("synchronous_commit", value))?;
                (only(config(&server.endpoint)), None, Running::Plain { _server: server })
            }
            Entrant::Pgbouncer { pool_size } => {
                let server = plain(&synchronous)?;
                let Environment { binaries, account, scratch, interrupt, clients, .. } = environment;
                let clients = *clients + 8;
                let size = Size { servers: pool_size.map_or(clients, u32::from), clients };
                let pooler = Pooler::start(binaries, *account, &server, size, None, scratch, interrupt)?;
                let Some(pooler) = pooler else { return Ok(None) };
                let endpoints = only(config(&pooler.prepared_endpoint));
                (endpoints, Some(pooler.pid()), Running::Pooled { pooler, _server: server })
            }
            Entrant::Streaming { replicas } => {
                let streaming = Streaming::start(&folder, *replicas, &synchronous, environment)?;
                (streaming.endpoints(), None, Running::Streaming(streaming))
            }
            Entrant::Pgpool { replicas } => {
                let pgpool = Pgpool::start(&folder, *replicas, &synchronous, environment)?;
                let Some(pgpool) = pgpool else { return Ok(None) };
                (only(config(&pgpool.endpoint)), Some(pgpool.pid()), Running::Pgpool(pgpool))
            }
            Entrant::Onecopy { replicas, arguments, message_us, rule_off, .. } => {
                let words = entrant.words();
                let replicas = u64::from(*replicas);
                let shape = Shape {
                    name: &folder,
                    folder: None,
                    replicas,
                    arguments: &words,
                    placement: None,
                    message_us: *message_us,
                    rule_off: rule_off.as_deref(),
                };
                let node = Node::start_shaped(
                    shape,
                    environment.onecopy,
                    environment.binaries,
                    environment.scratch,
                    environment.interrupt,
                )?;
                let endpoint = Endpoint { port: node.port, database: "postgres", options: None };
                let (pid, program) = (node.pid(), environment.onecopy.to_owned());
                // To the protocol onecopy a declaration of tables would say less than the statements do.
                let declares = arguments.iter().any(|word| word == "--protocol");
                let endpoints = Endpoints { declares, ..only(config(&endpoint)) };
                (endpoints, Some(pid), Running::Onecopy { node, program })
            }
        };
        let name = match &running {
            Running::Pooled { pooler, .. } if entrant.pool_size().is_some() && !pooler.pools_prepared() => {
                "PgBouncer, sessions".to_owned()
            }
            _ => entrant.name(),
        };
        let (postmasters, nodes, groups) = (Vec::new(), node_processes(&running), Vec::new());
        let mut contestant = Self { name, endpoints, postmasters, middleware, nodes, running, groups };
        contestant.postmasters = contestant.find_postmasters(entrant.servers())?;
        Ok(Some(contestant))
    }

    fn find_postmasters(&self, servers: u16) -> Result<Vec<u32>, Fault> {
        match &self.running {
            Running::Plain { _server: server } | Running::Pooled { _server: server, .. } => {
                Ok(vec![server.pid()])
            }
            Running::Streaming(streaming) => Ok(streaming.servers().map(Plain::pid).collect()),
            Running::Pgpool(pgpool) => Ok(pgpool.servers().map(Plain::pid).collect()),
            Running::Onecopy { node, .. } => {
                let server = |replica| node::server(node.data(), replica).map(|server| server.pid);
                let found: Option<Vec<u32>> = (1..=u64::from(servers)).map(server).collect();
                found.ok_or_else(|| Fault::Missing("a replica of onecopy does not run".into()))
            }
        }
    }

    /// The settings of its first server, when it is ours.
    pub(crate) fn likeness(&self, environment: &Environment<'_>) -> Result<Option<Likeness>, Fault> {
        let Running::Onecopy { node, .. } = &self.running else { return Ok(None) };
        let server = node::server(node.data(), 1)
            .ok_or_else(|| Fault::Missing("the first replica of onecopy does not run".into()))?;
        let endpoint = Endpoint { port: server.port, database: "postgres", options: None };
        Likeness::of(environment.binaries, &endpoint, environment.scratch, environment.interrupt).map(Some)
    }

    /// Starts it with these tables, filled and prepared. Nothing when what it needs is not installed.
    pub(crate) fn start_filled(
        entrant: &Entrant,
        number: usize,
        likeness: &Likeness,
        filling: &Filling<'_>,
        environment: &Environment<'_>,
    ) -> Result<Option<Self>, Fault> {
        let Some(mut contestant) = Self::start(entrant, number, likeness, environment)? else {
            return Ok(None);
        };
        runtime()?.block_on(async {
            for to in contestant.filled_through() {
                populate(filling.workload, &to, filling.seed, environment.interrupt, &|_| {}).await?;
                probe::prepare(&to).await?;
            }
            contestant.prepare(entrant.prepared(filling.tables)).await
        })?;
        if filling.is_limited {
            contestant.enclose(number)?;
        }
        Ok(Some(contestant))
    }

    /// Puts each server into a control group of its own.
    fn enclose(&mut self, number: usize) -> Result<(), Fault> {
        for (server, postmaster) in self.postmasters.iter().enumerate() {
            let group = Group::new(&format!("{number}-{server}"))?;
            group.take(*postmaster)?;
            self.groups.push(group);
        }
        Ok(())
    }

    /// Limits the processor of each of its servers from now on.
    pub(crate) fn limit(&self, limit: Option<Limit>) -> Result<(), Fault> {
        self.groups.iter().try_for_each(|group| group.limit(limit))
    }

    /// The processor time of each server.
    pub(crate) fn servers_used(&self) -> Result<Vec<cpu::Ticks>, Fault> {
        cpu::of_families(&self.postmasters)
    }

    /// Where it is filled.
    fn filled_through(&self) -> Vec<Config> {
        match &self.running {
            // A COPY of the extended protocol stands still in it for ever, so each server gets the same rows by itself.
            Running::Pgpool(pgpool) => pgpool.configs(),
            _ => vec![self.endpoints.main.clone()],
        }
    }

    /// Runs the statements with which a plan prepares filled tables.
    async fn prepare(&self, prepared: Option<&Prepared>) -> Result<(), Fault> {
        let Some(Prepared { sql, admin }) = prepared else { return Ok(()) };
        let mut administered = self.endpoints.main.clone();
        administered.dbname("onecopy");
        for (to, statements) in [(&self.endpoints.main, sql), (&administered, admin)] {
            let client = open(to).await?;
            for statement in statements {
                let said = |error: tokio_postgres::Error| {
                    let why = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
                    Fault::Database(format!("`{statement}`: {why}"))
                };
                client.simple_query(statement).await.map_err(said)?;
            }
        }
        Ok(())
    }

    /// The processor time of what is in between.
    pub(crate) fn middleware_used(&self) -> Result<cpu::Ticks, Fault> {
        match (self.middleware, &self.running) {
            (None, _) => Ok(cpu::Ticks::default()),
            // One process for each client.
            (Some(pid), Running::Pgpool(_)) => cpu::of_family(pid),
            (Some(pid), _) => [pid].into_iter().chain(self.nodes.iter().copied()).map(cpu::of_process).sum(),
        }
    }

    /// Its memory: the most so far of a single process, else what they have now.
    pub(crate) fn middleware_bytes(&self) -> Result<Option<f64>, Fault> {
        match (self.middleware, &self.running) {
            (None, _) => Ok(None),
            (Some(pid), Running::Pgpool(_)) => pgpool::memory_bytes(&cpu::family(pid)?).map(Some),
            (Some(pid), _) => {
                let all = [pid].into_iter().chain(self.nodes.iter().copied());
                all.map(peak_bytes).sum::<Result<f64, _>>().map(Some)
            }
        }
    }

    /// The release of the program in between, unless it is Onecopy.
    pub(crate) fn release(&self) -> Option<String> {
        match &self.running {
            Running::Pooled { pooler, .. } => Some(pooler.to_string()),
            Running::Pgpool(pgpool) => Some(pgpool.release.clone()),
            Running::Plain { .. } | Running::Streaming(_) | Running::Onecopy { .. } => None,
        }
    }

    /// Kills one of our servers; it stays away until what is returned is dropped. Nothing if it does not run.
    pub(crate) fn kill(&self, replica: u64) -> Option<Absence> {
        let Running::Onecopy { node, .. } = &self.running else { return None };
        let absence = Absence::begin(&node.data().join(format!("replica-{replica}"))).ok()?;
        node::kill_server(node.data(), replica).then_some(absence)
    }

    /// The folder of its data, if it is ours.
    pub(crate) fn data(&self) -> Option<&Path> {
        if let Running::Onecopy { node, .. } = &self.running { Some(node.data()) } else { None }
    }

    /// Describes how its copies differ at rest.
    pub(crate) fn differences(&self, environment: &Environment<'_>) -> Result<Vec<String>, Fault> {
        match &self.running {
            Running::Plain { .. } | Running::Pooled { .. } => Ok(Vec::new()),
            Running::Onecopy { node, program } => {
                // A node that clients use is there.
                let port = self.endpoints.main.get_ports().first().copied().unwrap_or(node.port);
                let mut verify = program::command(program);
                verify.args(["verify", "--port", &port.to_string()]);
                let log = environment.scratch.path("verify.log");
                match program::run("onecopy verify", &mut verify, &log, environment.interrupt) {
                    Ok(_) => Ok(Vec::new()),
                    Err(Fault::Program { said, .. }) => Ok(vec![format!("verify says: {said}")]),
                    Err(fault) => Err(fault),
                }
            }
            Running::Streaming(streaming) => {
                runtime()?.block_on(differences(&streaming.configs(), SETTLED, environment.interrupt))
            }
            // Nothing is on its way any more when clients have their answers.
            Running::Pgpool(pgpool) => {
                runtime()?.block_on(differences(&pgpool.configs(), ROLLED_BACK, environment.interrupt))
            }
        }
    }
}

/// A server that cannot be started: a file is out of its place without which PostgreSQL does not take a folder for its data.
/// One that runs does not look at it.
#[derive(Debug)]
pub(crate) struct Absence {
    file: PathBuf,
}

impl Absence {
    fn begin(folder: &Path) -> io::Result<Self> {
        let absence = Self { file: folder.join("PG_VERSION") };
        fs::rename(&absence.file, absence.elsewhere())?;
        Ok(absence)
    }

    fn elsewhere(&self) -> PathBuf {
        self.file.with_extension("away")
    }
}

impl Drop for Absence {
    fn drop(&mut self) {
        // If it cannot be put back, the server does not return, which is seen and reported.
        let _ = fs::rename(self.elsewhere(), &self.file);
    }
}

/// Its nodes and the members of etcd: they work in folders of its data.
fn node_processes(running: &Running) -> Vec<u32> {
    let Running::Onecopy { node, .. } = running else { return Vec::new() };
    [NODES_FOLDER, ETCD_FOLDER]
        .iter()
        .flat_map(|folder| node::working_in(&node.data().join(folder)))
        .collect()
}

/// Where a contestant has its data.
pub(crate) fn folder(number: usize) -> String {
    format!("contestant-{number}")
}

/// Where a server is.
pub(crate) fn config(endpoint: &Endpoint) -> Config {
    let mut config = Config::new();
    config.host("127.0.0.1").port(endpoint.port).user("postgres").dbname(endpoint.database);
    config
}

fn only(main: Config) -> Endpoints {
    Endpoints { main, others: Vec::new(), readers: Vec::new(), declares: false }
}

/// How servers differ from the first one, once they have had time to follow it.
async fn differences(
    servers: &[Config],
    patience: Duration,
    interrupt: &Interrupt,
) -> Result<Vec<String>, Fault> {
    let end = Instant::now() + patience;
    loop {
        let mut wrong = Vec::new();
        let mut first: Option<BTreeMap<String, String>> = None;
        for (number, server) in servers.iter().enumerate() {
            let sums = checksums(server).await?;
            match &first {
                None => first = Some(sums),
                Some(first) => {
                    let others = first.iter().filter(|(table, sum)| sums.get(*table) != Some(*sum));
                    wrong
                        .extend(others.map(|(table, _)| format!("{table} differs on server {}", number + 1)));
                }
            }
        }
        if wrong.is_empty() || Instant::now() > end {
            return Ok(wrong);
        }
        interrupt.check()?;
        tokio::time::sleep(LOOK).await;
    }
}

/// A sum over each table that does not depend on the order of rows.
async fn checksums(server: &Config) -> Result<BTreeMap<String, String>, Fault> {
    let client = open(server).await?;
    let said = |error: tokio_postgres::Error| Fault::Database(format!("a checksum: {error}"));
    let tables = client
        .query("SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace", &[])
        .await
        .map_err(said)?;
    let mut sums = BTreeMap::new();
    for table in tables {
        let table: String = table.get(0);
        let sql = format!(
            "SELECT count(*) || ' ' || coalesce(sum(hashtextextended(t::text, 0)), 0) FROM {table} AS t"
        );
        let sum = client.query_one(&sql, &[]).await.map_err(said)?;
        sums.insert(table, sum.get(0));
    }
    Ok(sums)
}
