//! Kept answers (`world/cache.rs`): they are given again, and no client can tell them from the answer of a replica.

use cluster::claims::ROW_CLAIMS_MAX;
use cluster::placement::Placement;
use cluster::protocols::gargamel::GARGAMEL;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::preventive::PREVENTIVE;
use cluster::protocols::rows::{Choices, KEYS_MAX, PATIENCE_US, REFRESH_VERSIONS_MAX, See};
use sim::check::Anomaly;
use sim::history::Level;
use sim::mutants::MUTANTS;
use sim::program::{Ending, Frame, Pace, Plan, Program, Statement};
use sim::rules::Rules;
use sim::run::{run_plan, run_seed};
use sim::schema::{Key, VIEW_TABLES};
use sim::server::Op;

/// Enough for gross mistakes; `cargo xtask sim --seeds` runs more.
const SEEDS: u64 = 400;

fn plans(protocol: Choices) -> impl Iterator<Item = (u64, Plan)> {
    let plans = (0..SEEDS).map(move |seed| (seed, Plan::of(seed, protocol)));
    plans.filter(|(_, plan)| plan.keeps_answers)
}

/// How many kept answers are given again in all plans with a cache. None of these runs has a finding.
fn given_again(protocol: Choices) -> u64 {
    let rules = Rules { protocol, ..Rules::default() };
    let run = |(seed, plan)| {
        let verdict = run_plan(plan, rules, seed, false);
        assert_eq!(verdict.findings, [], "seed {seed} of {}", protocol.name);
        verdict.answers_given_again
    };
    plans(protocol).map(run).sum()
}

#[test]
fn one_plan_in_five_keeps_answers() {
    let count = plans(ONECOPY).count() as u64;
    assert!((SEEDS / 7..SEEDS / 4).contains(&count), "{count} of {SEEDS} plans");
}

#[test]
fn kept_answers_are_those_of_a_replica() {
    for protocol in [ONECOPY, GARGAMEL, PREVENTIVE] {
        let given = given_again(protocol);
        assert!(given > SEEDS, "only {given} kept answers were given under {}", protocol.name);
    }
}

#[test]
fn where_reads_may_be_stale_none_is_given() {
    assert_eq!(given_again(Choices { see: See::Local, ..GARGAMEL }), 0);
}

#[test]
fn rules_of_kept_answers_are_needed() {
    let names = [
        "answers are kept whatever was written meanwhile",
        "kept answers stay valid until home commits",
        "kept answers are looked at only once",
    ];
    for name in names {
        let mutant = MUTANTS.iter().find(|mutant| mutant.name == name).expect("the mutant exists");
        let is_stale = |seed: &u64| {
            let found = run_seed(*seed, mutant.rules(), false).findings;
            found.iter().any(|finding| finding.anomaly == Anomaly::StaleRead)
        };
        assert!((0..SEEDS).any(|seed| is_stale(&seed)), "no seed found the mutant: {name}");
    }
}

fn programs(frame: Frame, op: Op, times: usize) -> Vec<Program> {
    let is_ddl = op == Op::Update(Key::VIEW);
    let program = Program {
        level: Level::ReadCommitted,
        frame,
        statements: vec![Statement { ops: vec![op], is_unknown: false, is_ddl }],
        ending: Ending::Commit,
        cancel_us: None,
        retries: 0,
        has_any_home: false,
        is_unpredicted: false,
        is_coarse: false,
        is_grouped: false,
        knows_columns: false,
    };
    vec![program; times]
}

/// Clients that read a view again and again, one that changes its definition, and writers of both tables that it reads in turn.
///
/// COMMITs take long to become visible. So a read waits for a write at its replica, and a schema change becomes visible there
/// together with that write. The analysis of the read does not know the change: the answer has rows of one table, the footprint
/// names the other.
fn a_view_that_turns() -> Plan {
    let look = || programs(Frame::Autocommit, Op::ReadView, 30);
    let rows = (0..2).flat_map(|row| VIEW_TABLES.map(|table| Key { table, row }));
    let writers = rows.map(|key| programs(Frame::Autocommit, Op::Update(key), 8));
    let change = programs(Frame::Block, Op::Update(Key::VIEW), 6);
    Plan {
        replicas: 2,
        placement: Placement::full(2),
        sessions: [change, look(), look(), look()].into_iter().chain(writers).collect(),
        faults: Vec::new(),
        pace: Pace {
            network_us: 60,
            op_us: 5,
            fsync_us: 50,
            show_us: 1_000,
            think_us: 300,
            flush_us: 5_000,
            notice_us: 500,
            refresh_us: 0,
            batching_us: 0,
            read_us: 0,
            takeover_us: None,
        },
        clock_us: 0,
        reserves_late: false,
        row_claims_max: ROW_CLAIMS_MAX,
        keys_max: KEYS_MAX,
        refresh_versions_max: REFRESH_VERSIONS_MAX,
        patience_us: PATIENCE_US,
        foresees_tables: true,
        keeps_answers: true,
        stays: false,
    }
}

#[test]
fn an_answer_rests_on_the_catalogue_of_its_analysis() {
    let off = Rules { kept_knows_its_catalogue: false, ..Rules::default() };
    let is_stale = |seed: &u64| {
        let found = run_plan(a_view_that_turns(), off, *seed, false).findings;
        found.iter().any(|finding| finding.anomaly == Anomaly::StaleRead)
    };
    let seed = (0..1_000).find(is_stale).expect("without the rule an answer outlives a schema change");
    for seed in (0..50).chain(seed..seed + 50) {
        assert_eq!(run_plan(a_view_that_turns(), Rules::default(), seed, false).findings, []);
    }
}
