//! `sim`: runs seeds, traces one, shrinks failing runs, runs the mutants, and compares hashes.

use std::collections::BTreeMap;

use clap::Parser;
use cluster::parts::stamps::Start;
use cluster::protocols::StampCounts;
use cluster::protocols::centralised_writes::CENTRALISED_WRITES;
use cluster::protocols::gargamel::GARGAMEL;
use cluster::protocols::middle_r::MIDDLE_R;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::preventive::PREVENTIVE;
use cluster::protocols::round_robin::ROUND_ROBIN;
use cluster::protocols::rows::{Choices, Order, Rule, See};
use cluster::protocols::tashkent_plus::TASHKENT_PLUS;
use sim::check::{self, Allowed, Anomaly, Promise};
use sim::history::History;
use sim::mutants::{CHAIN_MUTANTS, LOCAL_MUTANTS, MUTANTS, STAMP_MUTANTS};
use sim::program::Plan;
use sim::rules::Rules;
use sim::{hashes, run, schema, shrink};

mod command;

/// Simulates the cluster core under faults and judges what clients saw.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds to run.
    #[arg(long, default_value_t = 1_000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Print the trace of the first seed.
    #[arg(long)]
    trace: bool,
    /// Shrink every failing run, not only the first, and print its trace; with --mutants, the first of each mutant.
    #[arg(long)]
    shrink: bool,
    /// The protocol to run.
    #[arg(long, value_name = "NAME", default_value = ONECOPY.name, value_parser = names())]
    protocol: String,
    /// Run several nodes, in a world of their own.
    #[arg(long)]
    nodes: bool,
    /// Run several schedulers that ship statements, in a world of their own.
    #[arg(long, conflicts_with = "nodes")]
    schedulers: bool,
    /// Run nodes whose sessions share a scheduler that ships statements, in a world of their own.
    #[arg(long, conflicts_with_all = ["nodes", "schedulers"])]
    linked: bool,
    /// Under `c-jdbc`, which statements wait; drawn by each seed if it is left out.
    #[arg(long, value_name = "LEVEL", value_parser = ["pass-through", "optimistic", "pessimistic"])]
    level: Option<String>,
    /// Under `c-jdbc`, when clients are answered; drawn by each seed if it is left out.
    #[arg(long, value_name = "WHEN", value_parser = ["first", "majority", "all"])]
    respond: Option<String>,
    /// What makes transactions conflict that are known beforehand; read-write with every client at SERIALIZABLE.
    #[arg(long, value_name = "RULE", value_parser = ["write-write", "read-write"])]
    rule: Option<String>,
    /// Under `preventive`, when a transaction starts of which all is known.
    #[arg(long, value_name = "WHEN", value_parser = ["on-arrival", "ordered"])]
    start: Option<String>,
    /// What reads see outside of update transactions.
    #[arg(long, value_name = "WHAT", value_parser = ["fresh", "local"])]
    see: Option<String>,
    /// Clients run only transactions of which all is known beforehand.
    #[arg(long)]
    known: bool,
    /// Switch certification off.
    #[arg(long)]
    uncertified: bool,
    /// The commit of this build, printed with a failure.
    #[arg(long, value_name = "ID", default_value = "unknown")]
    commit: String,
    /// Judge this history in JSON lines instead of running seeds.
    #[arg(long, value_name = "JSON LINES")]
    history: Option<String>,
    /// With --history, the promise to judge by: as-asked, old-snapshots or parallel; the last two also with +sessions.
    #[arg(long, value_name = "NAME", requires = "history", default_value = "as-asked")]
    promise: Promise,
    /// Compare the hashes of seeds 0 to 1,999 with `crates/sim/hashes.txt`, and print the seeds that differ.
    #[arg(long)]
    hashes: bool,
    /// Print the table of hashes instead (`cargo xtask sim --hashes --write` puts it into the file).
    #[arg(long, requires = "hashes")]
    write: bool,
    /// Switch each rule off in turn and search for a seed that shows a violation.
    #[arg(long)]
    mutants: bool,
    /// Run only the mutants with these words in their name.
    #[arg(long, value_name = "WORDS", requires = "mutants", default_value = "")]
    only: String,
}

/// Mutants that few seeds find, so a search that misses them is no failure. Plans in `tests/seeds.rs`, `tests/loads.rs`,
/// `tests/commit_groups.rs` and `tests/cache.rs` find them, except three: the first and "unbounded statements claim only
/// their rows" take more seeds, and for the last no plan is known (docs/explanation/testing.md).
const RARE: [&str; 17] = [
    "an outdated catalogue is accepted",
    "kept answers outlive schema changes",
    "schema changes claim nothing",
    "analyses outlive schema changes",
    "a transaction's own schema changes are ignored",
    "forgotten claims are ignored",
    "schema changes reach only holders of their tables",
    "a proof counts from its answer, not its request",
    "a transaction that lost its locks is appended",
    "only logged transactions count as overtaking",
    "waiting transactions do not prove their locks",
    "claims are certified as of the last statement",
    "unbounded statements claim only their rows",
    "attempted writes are not certified",
    "constraint checks count as reads of the snapshot",
    "a replica comes up inside a commit group",
    "SERIALIZABLE transactions join commit groups",
];

/// The protocols that `--protocol` knows.
const PROTOCOLS: [Choices; 7] = [
    ONECOPY,
    GARGAMEL,
    ROUND_ROBIN,
    Choices { home: schema::BY_MEMORY, ..TASHKENT_PLUS },
    CENTRALISED_WRITES,
    PREVENTIVE,
    MIDDLE_R,
];

/// The scheduler that has a world of its own.
const C_JDBC: &str = "c-jdbc";

fn names() -> Vec<&'static str> {
    PROTOCOLS.iter().map(|choices| choices.name).chain([C_JDBC]).collect()
}

/// The rules with the protocol of the options.
fn rules(options: &Options, mut rules: Rules) -> Rules {
    let named = PROTOCOLS.into_iter().find(|choices| choices.name == options.protocol);
    rules.protocol = named.unwrap_or(ONECOPY);
    match options.rule.as_deref() {
        Some("write-write") => rules.protocol.order = Order::Chains(Rule::WriteWrite),
        Some("read-write") => rules.protocol.order = Order::Chains(Rule::ReadWrite),
        _ => {}
    }
    if let (Order::Stamps(mode), Some(start)) = (&mut rules.protocol.order, options.start.as_deref()) {
        mode.start = if start == "ordered" { Start::Ordered } else { Start::OnArrival };
    }
    match options.see.as_deref() {
        Some("fresh") => rules.protocol.see = See::Fresh,
        Some("local") => rules.protocol.see = See::Local,
        _ => {}
    }
    if options.uncertified {
        (rules.core.certifies_writes, rules.core.certifies_reads) = (false, false);
    }
    rules
}

/// The plan of a seed, for the protocol and the clients of the options.
fn plan(options: &Options, seed: u64) -> Plan {
    let plan = Plan::of(seed, rules(options, Rules::default()).protocol);
    if options.known { plan.only_known() } else { plan }
}

/// The number of seeds that failed.
struct Failed(u64);

impl std::fmt::Debug for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} seeds failed", self.0)
    }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn main() -> Result<(), Failed> {
    let options = Options::parse();
    if let Some(text) = &options.history {
        return judge(text, options.promise);
    }
    if options.nodes {
        return command::nodes(&options);
    }
    if options.linked {
        return command::linked(&options);
    }
    if options.schedulers {
        return command::schedulers(&options);
    }
    if options.protocol == C_JDBC {
        return command::c_jdbc(&options);
    }
    if options.mutants {
        return hunt(&options);
    }
    if options.hashes {
        return compare_hashes(options.write);
    }
    let rules = rules(&options, Rules::default());
    let mut failed = 0;
    let mut happenings = 0;
    let (mut allowed, mut stamps) = (Allowed::default(), StampCounts::default());
    let mut answers_given_again = 0;
    let count = if options.trace { 1 } else { options.seeds };
    for seed in options.seed..options.seed + count {
        let verdict = run::run_plan(plan(&options, seed), rules, seed, options.trace);
        happenings += verdict.happenings;
        allowed.add(verdict.allowed);
        stamps.add(verdict.stamps);
        answers_given_again += verdict.answers_given_again;
        if options.trace {
            println!("{}", verdict.trace);
            for (number, transaction) in verdict.history.transactions.iter().enumerate() {
                println!("T{number} {transaction:?}");
            }
        }
        if let Some(finding) = verdict.findings.first() {
            failed += 1;
            println!("seed {seed} of {} at commit {}: {finding}", options.protocol, options.commit);
            if options.shrink || failed == 1 {
                show_small(plan(&options, seed), rules, seed, finding.anomaly);
            }
        }
    }
    println!("{count} seeds of {}, {happenings} happenings, {failed} failed; {allowed}", options.protocol);
    println!("{answers_given_again} kept answers given again");
    if let Order::Stamps(_) = rules.protocol.order {
        println!("{stamps}");
    }
    if failed > 0 { Err(Failed(failed)) } else { Ok(()) }
}

/// How many seeds with another hash are printed.
const DIFFERENCES_MAX: usize = 10;

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn compare_hashes(prints_table: bool) -> Result<(), Failed> {
    if prints_table {
        print!("{}", hashes::table());
        return Ok(());
    }
    let differences: Vec<_> = hashes::differences(0..hashes::SEEDS).collect();
    for difference in differences.iter().take(DIFFERENCES_MAX) {
        println!("{difference}");
    }
    println!("{} of {} seeds differ from crates/sim/hashes.txt", differences.len(), hashes::SEEDS);
    if differences.is_empty() { Ok(()) } else { Err(Failed(differences.len() as u64)) }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn judge(text: &str, promise: Promise) -> Result<(), Failed> {
    match History::from_json_lines(text) {
        Ok(history) => {
            let check::Judgement { findings, allowed } = check::judge(&history, promise);
            for finding in &findings {
                println!("{finding}");
            }
            println!("allowed: {allowed}");
            println!("{} transactions, {} findings", history.transactions.len(), findings.len());
            if findings.is_empty() { Ok(()) } else { Err(Failed(findings.len() as u64)) }
        }
        Err(error) => {
            println!("{error}");
            Err(Failed(1))
        }
    }
}

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn show_small(plan: Plan, rules: Rules, seed: u64, anomaly: Anomaly) {
    let small = shrink::shrink(plan, rules, seed, anomaly);
    println!("shrunk, with seed {}:\n{}", small.seed, small.plan);
    let verdict = run::run_plan(small.plan.clone(), rules, small.seed, true);
    println!("{}", verdict.trace);
    for (number, transaction) in verdict.history.transactions.iter().enumerate() {
        println!("T{number} {transaction:?}");
    }
    println!("as a test for crates/sim/tests: {:?}", small.plan);
}

/// How many failing seeds of a mutant are collected, to list its anomalies.
const KILLS: usize = 20;

#[expect(clippy::print_stdout, reason = "this is what the program is for")]
fn hunt(options: &Options) -> Result<(), Failed> {
    std::panic::set_hook(Box::new(|_| {}));
    let mut survivors = 0;
    println!("| rule off | seeds until found | anomalies | example |\n|---|---|---|---|");
    let protocol = rules(options, Rules::default()).protocol;
    let mutants = match protocol.order {
        _ if protocol.home.connects_sessions() => LOCAL_MUTANTS,
        Order::Chains(_) => CHAIN_MUTANTS,
        Order::Stamps(_) => STAMP_MUTANTS,
        Order::Statements | Order::Nothing => MUTANTS,
    };
    for mutant in mutants.iter().filter(|mutant| mutant.name.contains(&options.only)) {
        let mut seen: BTreeMap<Anomaly, usize> = BTreeMap::new();
        let mut first: Option<(u64, String)> = None;
        for seed in options.seed..options.seed + options.seeds {
            let rules = rules(options, mutant.rules());
            let verdict = run::run_plan(plan(options, seed), rules, seed, false);
            let Some(finding) = verdict.findings.into_iter().next() else { continue };
            *seen.entry(finding.anomaly).or_default() += 1;
            if first.is_none() && options.shrink {
                let small = shrink::shrink(plan(options, seed), rules, seed, finding.anomaly);
                println!("seed {seed}, shrunk, with seed {}:\n{}\n{:?}", small.seed, small.plan, small.plan);
            }
            first.get_or_insert((seed - options.seed + 1, finding.text));
            if seen.values().sum::<usize>() == KILLS {
                break;
            }
        }
        survivors += u64::from(first.is_none() && !RARE.contains(&mutant.name));
        let (seeds, text) =
            first.map_or_else(|| ("never".to_owned(), String::new()), |(n, t)| (n.to_string(), t));
        println!("| {} | {seeds} | {seen:?} | {} |", mutant.name, text.chars().take(120).collect::<String>());
    }
    if survivors > 0 { Err(Failed(survivors)) } else { Ok(()) }
}
