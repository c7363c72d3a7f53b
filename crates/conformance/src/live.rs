//! `check-live`: real servers under load, and the simulator's judges over what clients saw.
//!
//! Clients append to lists and read them at every level, alone and in transactions, in both protocols; beside them others
//! move money between accounts, or draw numbers from a sequence. What each saw is a history as `sim::history` has it, with times of one clock, and
//! `sim::check` says whether one PostgreSQL could have produced it. Lists that are full are put away and new ones
//! taken, so that a read stays small however long the run is.
//!
//! An error is part of the history: 40001 and 40P01 are aborted and tried again, a connection that is lost at COMMIT
//! leaves the outcome unknown. Any other error is wrong, unless something is made to fail: servers that are killed
//! (`--kill`), or all that can be done to servers, connections and the node ([`fault_injector`], `cargo xtask chaos`).

mod bank;
mod client;
mod drawn;
mod fault_injector;
mod manner;
mod moves;
mod plan;
mod report;
mod session;
mod stall;
mod tally;
mod verdict;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::builder::PossibleValue;
use clap::{Args, ValueEnum};
use sim::check::Promise;
use sim::dice::Dice;
use sim::history::History;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{self, Node, Shape};
use testbed::postgres::Binaries;
use testbed::refusal::Refusal;
use testbed::scratch::Scratch;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::split::{DEALINGS, Placement, Split, split};
use client::Shelf;
use fault_injector::{Counted, FaultInjector, InjectedFault, Kind};
use manner::{CacheName, LevelName, Manner, RespondName};
use moves::Moves;
use session::Session;
use tally::Tally;

/// The default protocol.
const ONECOPY: &str = "onecopy";
/// The table of lists.
const LISTS: &str = "check_live_list";
/// The table of accounts.
const BANK: &str = "check_live_bank";
/// The table of rows with a number from a sequence.
const DRAWN: &str = "check_live_drawn";
/// At how many appends a list is put away; those under way still reach it.
const LENGTH: u64 = 48;
/// How many generations of lists are there for each second; a run ends when they are used up.
const GENERATIONS_PER_SECOND: u32 = 40;
/// And for all.
const GENERATIONS_MIN: u32 = 20;
/// One client in so many is one of the bank.
const BANK_SHARE: u32 = 4;
/// A server that has not answered for so long is down, in milliseconds.
const HEALTH_DEADLINE_MS: &str = "2000";
/// How often a server is killed.
const KILL_EVERY: Duration = Duration::from_secs(4);
/// How long the replicas may take to be the same after the last kill.
const SETTLE: Duration = Duration::from_mins(1);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(200);
/// How many findings of a kind are told.
const TOLD: usize = 10;

/// `check-live`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Time under load, in seconds.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=86_400))]
    seconds: u32,

    /// Number of clients; every fourth one moves money.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(2..=100))]
    clients: u32,

    /// Number of lists in use at a time.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=100))]
    keys: u32,

    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,

    /// Check the cluster on this port instead of starting servers. Recreates the tables `check_live_..`.
    #[arg(long, value_name = "PORT", conflicts_with_all = ["onecopy", "kill", "chaos"])]
    port: Option<u16>,

    /// File for the history, as JSON lines.
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Kill the first process of one PostgreSQL server every few seconds.
    #[arg(long)]
    kill: bool,

    /// Inject all kinds of faults, in an order drawn from the seed: servers killed, hung, cut off, full, drained,
    /// rebuilt; the node killed; everything killed at once.
    #[arg(long, conflicts_with = "kill")]
    chaos: bool,

    /// Inject only these faults, separated by commas.
    #[arg(long, value_name = "KINDS", value_enum, value_delimiter = ',', conflicts_with_all = ["kill", "port"])]
    strikes: Vec<Kind>,

    /// Pause after a fault, in milliseconds, up to twice this.
    #[arg(long, value_name = "MS", default_value_t = 3_000, value_parser = clap::value_parser!(u32).range(1..=600_000))]
    calm_ms: u32,

    /// Where tables are held: `parts` (split by their key; with --chaos their placement changes under load, too), `few` (at two
    /// replicas), a seed, or `random`, which is one of these by the seed; under c-jdbc `one` or `few`, which change with
    /// --chaos [default: everywhere].
    #[arg(long, value_name = "WORD", conflicts_with = "port")]
    placement: Option<String>,

    /// Number of servers.
    #[arg(long, value_name = "N", default_value_t = node::REPLICAS, value_parser = clap::value_parser!(u64).range(2..=9), conflicts_with = "port")]
    replicas: u64,

    /// Folder of the servers' data, which is kept; an existing one is used again.
    #[arg(long, value_name = "FOLDER", conflicts_with = "port")]
    data: Option<PathBuf>,

    /// Replication protocol, as for `onecopy up --protocol`.
    #[arg(long, value_name = "NAME", default_value = ONECOPY)]
    protocol: String,

    /// Under c-jdbc, which statements wait for which, as for `onecopy up --transaction-level`.
    #[arg(long, value_name = "LEVEL", value_enum)]
    level: Option<LevelName>,

    /// Under c-jdbc, when clients are answered, as for `onecopy up --early-response`.
    #[arg(long, value_name = "WHO", value_enum)]
    respond: Option<RespondName>,

    /// Under c-jdbc, what a write makes obsolete of the answers that are kept, as for `onecopy up --query-cache`.
    #[arg(long, value_name = "WHAT", value_enum, conflicts_with = "port")]
    query_cache: Option<CacheName>,

    /// Which transactions wait for each other, as for `onecopy up --rule`.
    #[arg(long, value_name = "RULE", conflicts_with = "port")]
    rule: Option<String>,

    /// What reads see, as for `onecopy up --see`; with `local`, choose a promise that allows old snapshots.
    #[arg(long, value_name = "WHAT", conflicts_with = "port")]
    see: Option<String>,

    /// The promise to judge by: as-asked, old-snapshots or parallel; the last two also with +sessions.
    #[arg(long, value_name = "NAME", default_value = "as-asked")]
    promise: Promise,

    /// Folder of PostgreSQL's programs [default: ONECOPY_PG_BIN, else the newest installed release].
    #[arg(long, value_name = "FOLDER")]
    pg_bin: Option<PathBuf>,

    /// Program to check [default: built from these sources].
    #[arg(long, value_name = "PROGRAM")]
    onecopy: Option<PathBuf>,
}

/// The settings of every client.
#[derive(Clone, Debug)]
struct Course {
    port: u16,
    seed: u64,
    replicas: u64,
    end: Instant,
    interrupt: Interrupt,
    /// What clients of the protocol do.
    manner: Manner,
}

impl Course {
    fn is_over(&self) -> bool {
        Instant::now() >= self.end || self.interrupt.check().is_err()
    }
}

impl Options {
    fn kinds(&self) -> Vec<Kind> {
        let chaos = |kind: &Kind| *kind != Kind::Place || self.places();
        if self.chaos {
            fault_injector::KINDS.into_iter().filter(chaos).collect()
        } else {
            self.strikes.clone()
        }
    }

    fn placement(&self) -> Placement {
        Placement::chosen(self.placement.as_deref(), self.seed)
    }

    /// Whether what is held where may change under load.
    fn places(&self) -> bool {
        self.placement() == Placement::Parts || matches!(self.moves(), Ok(Moves::Tables { .. }))
    }

    /// How tables move under C-JDBC; under other protocols they are placed when they are made.
    fn moves(&self) -> Result<Moves, Fault> {
        match &self.placement {
            Some(word) if self.manner().is_c_jdbc() => Moves::of_tables(word, self.replicas)
                .ok_or_else(|| Fault::Missing("`--placement` is `one` or `few` under c-jdbc".to_owned())),
            _ => Ok(Moves::Nothing),
        }
    }

    fn manner(&self) -> Manner {
        Manner::of(&self.protocol, self.level, self.respond)
    }

    /// Whether errors are to be expected.
    fn strikes(&self) -> bool {
        self.kill || !self.kinds().is_empty()
    }
}

/// The result.
#[derive(Default)]
struct Run {
    history: History,
    tally: Tally,
    /// Numbers that were drawn from a sequence.
    given: drawn::Numbers,
    /// The replicas whose servers were killed, in this order.
    kills: Vec<u64>,
    verified: Vec<Vec<String>>,
    strikes: Vec<InjectedFault>,
    counted: Counted,
}

/// Runs it; the report, which is a fault if anything is wrong.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    options.moves()?;
    if options.strikes.contains(&Kind::Place) && !options.places() {
        let text = "`--strikes place` needs `--placement parts`, or under c-jdbc `one` or `few`";
        return Err(Fault::Missing(text.to_owned()));
    }
    let scratch = Scratch::new()?;
    let mut node = match options.port {
        Some(_) => None,
        None => Some(start(options, &scratch, interrupt, news)?),
    };
    let port = options.port.or_else(|| node.as_ref().map(|node| node.port)).unwrap_or_default();
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Fault::system("run clients"))?;
    news(&format!("{} clients work for {} s", options.clients, options.seconds));
    let outcome = runtime.block_on(drive(options, port, node.as_mut(), interrupt));
    interrupt.check()?;
    let run = outcome.map_err(|refusal| Fault::Wrong(refusal.to_string()))?;
    drop(node);
    news("judging");
    report::conclude(options, &run)
}

fn start(
    options: &Options,
    scratch: &Scratch,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<Node, Fault> {
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => build::onecopy(&repository, scratch, interrupt, news)?,
    };
    news("starting the servers");
    let words = ["--health-deadline-ms", HEALTH_DEADLINE_MS, "--protocol", &options.protocol];
    let level = options.level.and_then(|level| level.to_possible_value());
    let respond = options.respond.and_then(|respond| respond.to_possible_value());
    let cache = options.query_cache.and_then(|cache| cache.to_possible_value());
    let name = |value: PossibleValue| value.get_name().to_owned();
    let chosen = [
        ("--rule", options.rule.clone()),
        ("--see", options.see.clone()),
        ("--transaction-level", level.map(name)),
        ("--early-response", respond.map(name)),
        ("--query-cache", cache.map(name)),
    ];
    let chosen = chosen.into_iter().filter_map(|(flag, value)| Some([flag.to_owned(), value?])).flatten();
    let arguments: Vec<String> = words.into_iter().map(str::to_owned).chain(chosen).collect();
    let folder = options.data.as_deref();
    let chosen = options.placement();
    let placement = chosen.variable().filter(|_| !options.manner().is_c_jdbc());
    let shape = Shape {
        name: "onecopy",
        folder,
        replicas: options.replicas,
        arguments: &arguments,
        placement,
        message_us: None,
    };
    Node::start_shaped(shape, &onecopy, &binaries, scratch, interrupt)
}

async fn drive(
    options: &Options,
    port: u16,
    node: Option<&mut Node>,
    interrupt: &Interrupt,
) -> Result<Run, Refusal> {
    let rows = options.keys * (GENERATIONS_MIN + GENERATIONS_PER_SECOND * options.seconds);
    let session = Session::open(port, "postgres").await?;
    prepare(&session, rows).await?;
    drop(session);
    let moves = match options.placement() {
        Placement::Parts => Moves::Parts(parted(port).await?.tables),
        _ => options.moves().map_err(|fault| Refusal::Told(fault.to_string()))?,
    };
    let admin = Session::open(port, "onecopy").await?;
    for sql in moves.first() {
        admin.simple(&sql).await?;
    }
    drop(admin);
    let shelf = Arc::new(Shelf::new(options.keys, rows));
    let end = Instant::now() + Duration::from_secs(options.seconds.into());
    let manner = options.manner();
    let (seed, replicas, interrupt) = (options.seed, options.replicas, interrupt.clone());
    let course = Course { port, seed, replicas, end, interrupt, manner };
    let mut listers = JoinSet::new();
    let mut bankers = JoinSet::new();
    for number in 0..options.clients {
        let course = course.clone();
        if number % BANK_SHARE == BANK_SHARE - 1 {
            bankers.spawn(async move { bank::work(number, &course).await });
        } else {
            let shelf = Arc::clone(&shelf);
            listers.spawn(async move { client::work(number, &course, &shelf).await });
        }
    }
    let mut drawers = JoinSet::new();
    for home in manner.drawing_homes() {
        let course = course.clone();
        drawers.spawn(async move { drawn::work(home, &course).await });
    }
    let mut run = Run::default();
    match node {
        Some(node) if options.kill => run.kills = kill_servers(node.data(), &course).await,
        Some(node) if !options.kinds().is_empty() => {
            let calm_ms = u64::from(options.calm_ms);
            let (kinds, clock, interrupt) = (options.kinds(), shelf.clock(), &course.interrupt);
            let injector = FaultInjector { node, kinds, calm_ms, clock, moves, interrupt };
            let struck = injector.work(&course).await;
            (run.strikes, run.counted) = struck.map_err(|fault| Refusal::Told(fault.to_string()))?;
        }
        _ => {}
    }
    for (transactions, tally) in listers.join_all().await {
        run.history.transactions.extend(transactions);
        run.tally.add(tally);
    }
    for tally in bankers.join_all().await {
        run.tally.add(tally);
    }
    for (numbers, tally) in drawers.join_all().await {
        run.given.extend(numbers);
        run.tally.add(tally);
    }
    run.history.transactions.sort_by_key(|t| t.statements.first().map_or(0, |s| s.begin_us));
    settle(&mut run, &course).await?;
    Ok(run)
}

async fn prepare(session: &Session, rows: u32) -> Result<(), Refusal> {
    let (last, accounts, deposit) = (rows - 1, bank::ACCOUNTS - 1, bank::DEPOSIT);
    for sql in [
        format!("drop table if exists {LISTS}"),
        format!("drop table if exists {BANK}"),
        format!("drop table if exists {DRAWN}"),
        format!("create table {DRAWN} (id bigserial primary key, v int)"),
        format!("create table {LISTS} (k int primary key, v text not null)"),
        format!("create table {BANK} (k int primary key, balance bigint not null)"),
        format!("insert into {LISTS} select k, '' from generate_series(0, {last}) k"),
        format!("insert into {BANK} select k, {deposit} from generate_series(0, {accounts}) k"),
    ] {
        session.simple(&sql).await?;
    }
    Ok(())
}

/// Splits the tables.
async fn parted(port: u16) -> Result<Split, Refusal> {
    let split = split(port, DEALINGS[0]).await.map_err(|fault| Refusal::Told(fault.to_string()))?;
    if split.tables.is_empty() {
        return Err(Refusal::Told(format!("no table was split, {} times onecopy refused", split.refused)));
    }
    Ok(split)
}

/// Kills until the course is over; which ones.
async fn kill_servers(data: &Path, course: &Course) -> Vec<u64> {
    let mut dice = Dice::new(course.seed ^ 0x6b69_6c6c);
    let mut kills = Vec::new();
    let mut next = Instant::now() + KILL_EVERY;
    while !course.is_over() {
        if Instant::now() >= next {
            let replica = dice.between(1, course.replicas);
            let may_kill = !course.manner.rebuilds() || members_up(course.port).await > 1;
            if may_kill && node::kill_server(data, replica) {
                kills.push(replica);
            }
            next += KILL_EVERY;
        }
        sleep(LOOK).await;
    }
    kills
}

/// The number of replicas that are up.
async fn members_up(port: u16) -> usize {
    let Ok(admin) = Session::open(port, "onecopy").await else { return 0 };
    let replicas = admin.simple("SHOW REPLICAS").await.unwrap_or_default();
    replicas.iter().filter(|row| row.get(3).is_some_and(|state| state == "up")).count()
}

/// Reads the lists and sums at the end, and has the replicas compared.
async fn settle(run: &mut Run, course: &Course) -> Result<(), Refusal> {
    let end = Instant::now() + SETTLE;
    let mut session = Session::open(course.port, "postgres").await?;
    loop {
        let looked = look(run, &session, course).await;
        match looked {
            Ok(()) => return Ok(()),
            Err(refusal) if Instant::now() >= end || course.interrupt.check().is_err() => {
                return Err(refusal);
            }
            // A server that was killed last is still being started again.
            Err(_) => sleep(LOOK).await,
        }
        session.reopen().await?;
    }
}

async fn look(run: &mut Run, session: &Session, course: &Course) -> Result<(), Refusal> {
    let admin = Session::open(course.port, "onecopy").await?;
    let replicas = admin.simple("SHOW REPLICAS").await?;
    if let Some(row) = replicas.iter().find(|row| row.get(3).is_none_or(|state| state != "up")) {
        if let (true, Some(name)) = (course.manner.rebuilds(), row.first()) {
            admin.simple(&format!("REBUILD REPLICA {name}")).await?;
        }
        return Err(Refusal::Told(format!("a replica is not up at the end: {}", row.join(" | "))));
    }
    // It waits until every replica has everything, whenever clients were answered.
    let verified = admin.simple("VERIFY").await?;
    let rows = session.simple(&format!("select k, v from {LISTS} where v <> '' order by k")).await?;
    let sum = bank::sum(session, "true").await?;
    let there = drawn::there(session).await?;
    let audit = fault_injector::audit(&admin).await;
    let audit = audit.ok_or_else(|| Refusal::Told("SHOW CACHE is not as expected".into()))?;
    let finals = rows.iter().map(|row| client::seen(row)).collect::<Option<Vec<_>>>();
    run.history.finals = finals.ok_or_else(|| Refusal::Told("the final rows are no lists".into()))?;
    bank::check(sum, "the end", &mut run.tally);
    run.tally.wrong.extend(drawn::judge(&run.given, &there));
    run.verified = verified;
    run.counted.audit.add(audit);
    Ok(())
}
