//! `check-live`: real servers under load, and the simulator's judges over what clients saw.
//!
//! Clients append to lists and read them at every level, alone and in transactions, in both protocols; beside them others
//! move money between accounts, or draw numbers from a sequence. What each saw is a history as `sim::history` has it, with times of one clock, and
//! `sim::check` says whether one PostgreSQL could have produced it. Lists that are full are put away and new ones
//! taken, so that a read stays small however long the run is.
//!
//! An error is part of the history: 40001 and 40P01 are aborted and tried again, a connection that is lost at COMMIT
//! leaves the outcome unknown. Any other error is wrong, unless something is made to fail: servers that are killed
//! (`--kill`), or all that can be done to servers, connections and the node ([`fault_injector`], `cargo xtask chaos`), or to several
//! nodes ([`several`], `--nodes 3`).

mod bank;
mod client;
mod drawn;
mod fault_injector;
mod manner;
mod moves;
mod options;
mod plan;
mod report;
mod session;
mod several;
mod stall;
mod tally;
mod verdict;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use sim::dice::Dice;
use sim::history::History;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{self, Node, Shape};
use testbed::nodes::{self, Nodes};
use testbed::postgres::Binaries;
use testbed::refusal::Refusal;
use testbed::scratch::Scratch;
use tokio::runtime::Builder;
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::split::{DEALINGS, Placement, Split, split};
use client::Shelf;
use fault_injector::{Counted, FaultInjector, InjectedFault};
use manner::Manner;
use moves::Moves;
pub(crate) use options::Options;
use session::Session;
use several::{Striker, Struck};
use tally::{Attempt, Ending, Tally};

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

/// The settings of every client.
#[derive(Clone, Debug)]
struct Course {
    /// Where the servers are asked for.
    port: u16,
    /// Where clients connect, at each node.
    ports: Vec<u16>,
    /// Of all times.
    clock: Instant,
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

    fn now_us(&self) -> u64 {
        now_us(self.clock)
    }

    /// An attempt that has just ended.
    fn attempt(&self, client: u32, node: usize, begin_us: u64, ending: Ending) -> Attempt {
        Attempt { client, node, begin_us, end_us: self.now_us(), ending }
    }
}

/// Microseconds since then; 0 means never in a history.
fn now_us(clock: Instant) -> u64 {
    u64::try_from(clock.elapsed().as_micros()).map_or(u64::MAX, |us| us + 1)
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
    /// Of several nodes.
    struck: Option<Struck>,
    /// What several nodes said.
    said: Vec<(usize, String)>,
    /// The time of the day when the clock began, in microseconds.
    day_us: u64,
}

/// What clients work with.
enum Tested {
    /// A cluster that others have started.
    Port(u16),
    Node(Box<Node>),
    Nodes(Box<Nodes>),
}

impl Tested {
    fn ports(&self) -> Vec<u16> {
        match self {
            Self::Port(port) => vec![*port],
            Self::Node(node) => vec![node.port],
            Self::Nodes(nodes) => nodes.ports(),
        }
    }
}

/// Runs it; the report, which is a fault if anything is wrong.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    options.check()?;
    let scratch = Scratch::new()?;
    let mut tested = match options.port {
        Some(port) => Tested::Port(port),
        None => start(options, &scratch, interrupt, news)?,
    };
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Fault::system("run clients"))?;
    news(&format!("{} clients work for {} s", options.clients, options.seconds));
    let outcome = runtime.block_on(drive(options, &mut tested, interrupt, news));
    interrupt.check()?;
    let mut run = outcome.map_err(|refusal| Fault::Wrong(refusal.to_string()))?;
    if let Tested::Nodes(nodes) = &tested {
        run.said = nodes.said();
    }
    drop(tested);
    news("judging");
    report::conclude(options, &run)
}

fn start(
    options: &Options,
    scratch: &Scratch,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<Tested, Fault> {
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => build::onecopy(&repository, scratch, interrupt, news)?,
    };
    news("starting the servers");
    if options.has_several() {
        return start_several(options, &onecopy, &binaries, scratch, interrupt);
    }
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
        rule_off: None,
    };
    Ok(Tested::Node(Box::new(Node::start_shaped(shape, &onecopy, &binaries, scratch, interrupt)?)))
}

fn start_several(
    options: &Options,
    onecopy: &Path,
    binaries: &Binaries,
    scratch: &Scratch,
    interrupt: &Interrupt,
) -> Result<Tested, Fault> {
    let mut settings =
        format!("protocol = {:?}\nhealth_deadline = \"{HEALTH_DEADLINE_MS}ms\"\n", options.protocol);
    for (name, value) in [("rule", &options.rule), ("see", &options.see)] {
        if let Some(value) = value {
            settings.push_str(&format!("{name} = {value:?}\n"));
        }
    }
    let nodes = usize::try_from(options.nodes).unwrap_or_default();
    let shape = nodes::Shape {
        nodes,
        replicas: options.replicas,
        settings: &settings,
        folder: options.data.as_deref(),
    };
    Ok(Tested::Nodes(Box::new(Nodes::start(shape, onecopy, binaries, scratch, interrupt)?)))
}

async fn drive(
    options: &Options,
    tested: &mut Tested,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<Run, Refusal> {
    let ports = tested.ports();
    let port = ports.first().copied().unwrap_or_default();
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
    let clock = shelf.clock();
    let mut course = Course { port, ports, clock, seed, replicas, end, interrupt, manner };
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
    for (number, home) in (options.clients..).zip(manner.drawing_homes()) {
        let course = course.clone();
        drawers.spawn(async move { drawn::work(number, home, &course).await });
    }
    let mut run = Run { day_us: day_us(), ..Run::default() };
    let injected = inject(options, tested, &course, moves, &mut run, news).await;
    injected.map_err(|fault| Refusal::Told(fault.to_string()))?;
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
    settle(&mut run, &mut course).await?;
    Ok(run)
}

/// Injects what was chosen, until the course is over.
async fn inject(
    options: &Options,
    tested: &mut Tested,
    course: &Course,
    moves: Moves,
    run: &mut Run,
    news: &dyn Fn(&str),
) -> Result<(), Fault> {
    let calm_ms = u64::from(options.calm_ms);
    match tested {
        Tested::Node(node) if options.kill => run.kills = kill_servers(node.data(), course).await,
        Tested::Node(node) if !options.kinds()?.is_empty() => {
            let (kinds, clock, interrupt) = (options.kinds()?, course.clock, &course.interrupt);
            let injector = FaultInjector { node, kinds, calm_ms, clock, moves, interrupt };
            (run.strikes, run.counted) = injector.work(course).await?;
        }
        Tested::Nodes(nodes) => {
            let striker = Striker { nodes, kinds: options.strike_kinds()?, calm_ms, course, news };
            run.struck = Some(striker.work().await?);
        }
        Tested::Node(_) | Tested::Port(_) => {}
    }
    Ok(())
}

/// The time of the day, in microseconds.
fn day_us() -> u64 {
    const DAY_US: u128 = 86_400_000_000;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros());
    u64::try_from(since % DAY_US).unwrap_or_default()
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
async fn settle(run: &mut Run, course: &mut Course) -> Result<(), Refusal> {
    let end = Instant::now() + SETTLE;
    loop {
        // Only the leader compares replicas.
        if course.ports.len() > 1
            && let Some(leader) = several::leader(&course.ports).await
        {
            course.port = course.ports[leader];
        }
        let session = Session::open(course.port, "postgres").await?;
        let looked = look(run, &session, course).await;
        match looked {
            Ok(()) => return Ok(()),
            Err(refusal) if Instant::now() >= end || course.interrupt.check().is_err() => {
                return Err(refusal);
            }
            // A server that was killed last is still being started again.
            Err(_) => sleep(LOOK).await,
        }
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
