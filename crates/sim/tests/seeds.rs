//! The protocol under faults: no violation with all rules on, a violation with a rule off, and the same run each time.

use cluster::claims::ROW_CLAIMS_MAX;
use cluster::ids::ReplicaId;
use cluster::placement::{Copies, Placement, ReplicaSet};
use cluster::protocols::rows::{KEYS_MAX, PATIENCE_US, REFRESH_VERSIONS_MAX};
use sim::check::Anomaly;
use sim::history::Level;
use sim::mutants::{MUTANTS, STAMP_MUTANTS};
use sim::program::{Ending, Fault, Frame, Pace, Plan, Program, Statement};
use sim::rules::Rules;
use sim::run::{run_plan, run_seed};
use sim::schema::Key;
use sim::server::Op;
use sim::shrink::shrink;

/// Enough for gross mistakes; `cargo xtask sim --seeds` runs more.
const SEEDS: u64 = 300;

#[test]
fn seeds_are_clean() {
    for seed in 0..SEEDS {
        let verdict = run_seed(seed, Rules::default(), false);
        assert!(verdict.findings.is_empty(), "seed {seed}: {}", verdict.findings[0]);
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 0..40 {
        let (one, two) = (run_seed(seed, Rules::default(), true), run_seed(seed, Rules::default(), true));
        assert_eq!(one.trace.to_string(), two.trace.to_string(), "seed {seed}");
        assert_eq!(one.history.to_json_lines(), two.history.to_json_lines(), "seed {seed}");
    }
}

/// The list of mutants and the table of what finds each are the same, so that no mutant is dropped unseen.
#[test]
fn all_mutants_are_documented_and_all_documented_ones_exist() {
    let page = include_str!("../../../docs/explanation/testing.md");
    let table = page.split_once("| guard removed |").expect("the page has the table of mutants").1;
    let rows = table.lines().skip(2).map_while(|line| line.strip_prefix("| ")?.split_once(" |"));
    let mut documented: Vec<&str> = rows.map(|(name, _)| name).collect();
    let mut listed: Vec<&str> = MUTANTS.iter().chain(STAMP_MUTANTS).map(|mutant| mutant.name).collect();
    documented.sort_unstable();
    listed.sort_unstable();
    assert_eq!(listed, documented);
}

#[test]
fn frequent_mutants_are_caught() {
    // Rare mutants take more seeds; docs/explanation/testing.md lists all.
    let frequent = [
        ("reads do not wait for needed versions", Anomaly::StaleRead),
        ("a snapshot needs only its first statement's versions", Anomaly::StaleRead),
        ("SERIALIZABLE runs as REPEATABLE READ", Anomaly::WriteSkew),
        ("overlapping transactions do not wait", Anomaly::LostUpdate),
        ("records count as durable before fsync", Anomaly::LostCommit),
        ("a finished transaction is retried", Anomaly::AppliedTwice),
        ("open transactions survive the loss of their home", Anomaly::Stuck),
        ("a sent refresh counts as applied", Anomaly::Diverged),
        ("a partial replica becomes the anchor", Anomaly::StaleRead),
        ("writes are not certified", Anomaly::LostUpdate),
        ("reads are not certified", Anomaly::WriteSkew),
        ("a copy counts as up to date", Anomaly::Diverged),
    ];
    for (name, anomaly) in frequent {
        let mutant = MUTANTS.iter().find(|mutant| mutant.name == name).expect("the mutant exists");
        let shows = |seed: &u64| {
            let found = run_seed(*seed, mutant.rules(), false).findings;
            found.iter().any(|finding| finding.anomaly == anomaly)
        };
        assert!((0..1_000).any(|seed| shows(&seed)), "no seed found the mutant: {name}");
    }
}

/// Clients that update one row, each a number of times, and a backend that dies after its last reply.
fn writers_of_one_row(times: &[usize], at_us: u64, fsync_us: u64) -> Plan {
    let update = Program {
        level: Level::ReadCommitted,
        frame: Frame::Autocommit,
        statements: vec![Statement {
            ops: vec![Op::Update(Key { table: 1, row: 0 })],
            is_unknown: false,
            is_ddl: false,
        }],
        ending: Ending::Commit,
        cancel_us: None,
        retries: 0,
        has_any_home: false,
        is_unpredicted: false,
        is_coarse: false,
        is_grouped: false,
        knows_columns: false,
    };
    Plan {
        replicas: 2,
        placement: Placement::full(2),
        sessions: times.iter().map(|times| vec![update.clone(); *times]).collect(),
        faults: vec![(at_us, Fault::KillAfterIdentity { after_us: 0 })],
        pace: Pace {
            network_us: 60,
            op_us: 5,
            fsync_us,
            show_us: 5,
            think_us: 200,
            flush_us: 5_000,
            notice_us: 5_000,
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
        keeps_answers: false,
        stays: false,
    }
}

/// Without the rule some seed loses an update. With it that seed and the next ones are clean.
fn loses_an_update(plan: &Plan, off: Rules) {
    let shows = |seed: &u64| {
        let found = run_plan(plan.clone(), off, *seed, false).findings;
        found.iter().any(|finding| finding.anomaly == Anomaly::LostUpdate)
    };
    let seed = (0..20_000).find(shows).expect("without the rule an update is lost");
    for seed in seed..seed + 50 {
        assert!(run_plan(plan.clone(), Rules::default(), seed, false).findings.is_empty());
    }
}

#[test]
fn locks_that_fell_unseen() {
    let mut off = Rules::default();
    off.core.overtaken_aborts = false;
    loses_an_update(&writers_of_one_row(&[1, 2, 1], 100, 50), off);
}

#[test]
fn locks_that_fell_to_one_that_waits() {
    let mut off = Rules::default();
    off.core.waiting_overtake = false;
    loses_an_update(&writers_of_one_row(&[2, 2, 2, 2], 300, 300), off);
}

/// A SERIALIZABLE transaction writes a row that another one has written meanwhile, rolls that back to a savepoint, and
/// reads the row as of its snapshot. It changes no row, and still no order explains it.
#[test]
fn what_was_tried_and_taken_back() {
    let gone = Key { table: 5, row: 0 };
    let step = |op| Statement { ops: vec![op], is_unknown: false, is_ddl: false };
    let look = Op::Read(Key { table: 1, row: 0 });
    let mut plan = writers_of_one_row(&[1, 1], 0, 300);
    plan.faults.clear();
    for (session, steps) in
        [vec![look, Op::Savepoint, Op::Insert(gone), Op::RollbackTo, Op::Read(gone)], vec![Op::Delete(gone)]]
            .into_iter()
            .enumerate()
    {
        let program = &mut plan.sessions[session][0];
        program.level = Level::Serializable;
        program.frame = if steps.len() > 1 { Frame::Block } else { Frame::Autocommit };
        program.statements = steps.into_iter().map(step).collect();
    }
    let off = Rules { tries_are_certified: false, ..Rules::default() };
    let shows = |seed: &u64| !run_plan(plan.clone(), off, *seed, false).findings.is_empty();
    let seed = (0..20_000).find(shows).expect("without the rule it is seen");
    for seed in seed..seed + 50 {
        assert!(run_plan(plan.clone(), Rules::default(), seed, false).findings.is_empty());
    }
}

/// A transaction at another home takes a unique value. A transaction with an older snapshot gets 23505 and must not find the
/// value free afterwards (seed 23,630 of its day, shrunk).
#[test]
fn what_a_constraint_says_is_newer_than_the_snapshot() {
    let key = |row| Key { table: 4, row };
    let step = |op| Statement { ops: vec![op], is_unknown: false, is_ddl: false };
    let mut plan = writers_of_one_row(&[1, 2], 0, 300);
    (plan.replicas, plan.placement) = (4, Placement::full(4));
    plan.faults.clear();
    plan.pace = Pace {
        network_us: 74,
        op_us: 19,
        show_us: 50,
        think_us: 10,
        notice_us: 3_000,
        takeover_us: Some(1),
        batching_us: 500,
        ..plan.pace
    };
    let block = |level, ops: [Op; 2], program: &mut Program| {
        (program.level, program.frame, program.retries) = (level, Frame::Block, 2);
        (program.statements, program.has_any_home) = (ops.into_iter().map(step).collect(), true);
    };
    let first = &mut plan.sessions[0][0];
    block(Level::RepeatableRead, [Op::Lock(key(1)), Op::Insert(key(1))], first);
    (first.is_unpredicted, first.is_coarse) = (true, true);
    block(Level::Serializable, [Op::Delete(key(0)), Op::Insert(key(1))], &mut plan.sessions[1][0]);
    let last = &mut plan.sessions[1][1];
    (last.statements, last.retries) = (vec![step(Op::Update(key(1)))], 1);
    let off = Rules { errors_are_reads: false, ..Rules::default() };
    let shows = |seed: &u64| !run_plan(plan.clone(), off, *seed, false).findings.is_empty();
    let seed = (0..20_000).find(shows).expect("without the rule it is seen");
    for seed in seed..seed + 50 {
        assert!(run_plan(plan.clone(), Rules::default(), seed, false).findings.is_empty());
    }
}

/// A transaction at another home refers to a row. A transaction that deletes the row must have seen that reference, since a
/// refresh inserts the reference without a foreign key check.
#[test]
fn who_removes_a_row_has_seen_what_refers_to_it() {
    let (parent, child) = (Key { table: 5, row: 0 }, Key { table: 6, row: 0 });
    let step = |op| Statement { ops: vec![op], is_unknown: false, is_ddl: false };
    let mut plan = writers_of_one_row(&[1, 1], 0, 2_000);
    (plan.reserves_late, plan.pace.network_us, plan.pace.batching_us) = (false, 20, 3_000);
    plan.faults.clear();
    let steps = [vec![Op::Insert(child)], vec![Op::Delete(parent), Op::Update(Key { table: 1, row: 0 })]];
    for (session, steps) in steps.into_iter().enumerate() {
        let program = &mut plan.sessions[session][0];
        (program.frame, program.has_any_home, program.is_unpredicted) = (Frame::Block, true, true);
        program.statements = steps.into_iter().map(step).collect();
    }
    let off = Rules { turns_told: false, ..Rules::default() };
    leaves_an_orphan(&plan, off);
    // The same if the core remembers no single key.
    plan.keys_max = 0;
    let mut off = Rules::default();
    off.core.forgotten_claims_count = false;
    leaves_an_orphan(&plan, off);
}

/// Without the rule some seed leaves an orphan. With it that seed and the next ones are clean.
fn leaves_an_orphan(plan: &Plan, off: Rules) {
    let shows = |seed: &u64| {
        let found = run_plan(plan.clone(), off, *seed, false).findings;
        found.iter().any(|finding| finding.anomaly == Anomaly::Integrity)
    };
    let seed = (0..20_000).find(shows).expect("without the rule a row refers to nothing");
    for seed in seed..seed + 50 {
        assert!(run_plan(plan.clone(), Rules::default(), seed, false).findings.is_empty());
    }
}

/// The table of a schema change is at one replica only, but every replica needs the new definition.
#[test]
fn a_schema_change_where_its_table_is_not() {
    let statement = |op, is_ddl| Statement { ops: vec![op], is_unknown: is_ddl, is_ddl };
    let mut plan = writers_of_one_row(&[1, 2], 0, 300);
    plan.faults.clear();
    plan.placement.restrict(Key::VIEW.table_id(), Copies::Whole(ReplicaSet::EMPTY.with(ReplicaId(0))));
    let change = &mut plan.sessions[0][0];
    (change.frame, change.statements) = (Frame::Block, vec![statement(Op::Update(Key::VIEW), true)]);
    for look in &mut plan.sessions[1] {
        look.statements = vec![statement(Op::ReadView, false)];
    }
    let mut off = Rules::default();
    off.core.schema_changes_go_everywhere = false;
    let shows = |seed: &u64| !run_plan(plan.clone(), off, *seed, false).findings.is_empty();
    let seed = (0..1_000).find(shows).expect("without the rule a replica has the old definition");
    for seed in seed..seed + 50 {
        assert!(run_plan(plan.clone(), Rules::default(), seed, false).findings.is_empty());
    }
}

/// The view gets a new definition while statements read it, or before that by the reading transaction itself.
fn views_in_motion(by_itself: bool) -> Plan {
    let statement = |ops: &[Op], is_ddl| Statement { ops: ops.to_vec(), is_unknown: false, is_ddl };
    let row = |table| Key { table, row: 0 };
    let mut plan = writers_of_one_row(&[12, 12, 12, 12], 0, 100);
    plan.faults.clear();
    (plan.reserves_late, plan.replicas) = (false, 3);
    plan.placement = Placement::full(3);
    let looks =
        |written: Key, ops: &[Op]| vec![statement(ops, false), statement(&[Op::Update(written)], false)];
    let programs = [
        if by_itself {
            let own = statement(&[Op::Update(Key::VIEW)], true);
            [vec![own], looks(row(3), &[Op::ReadView])].concat()
        } else {
            vec![statement(&[Op::Update(Key::VIEW)], true)]
        },
        looks(row(3), &[Op::ReadView]),
        looks(row(1), &[Op::Read(row(3))]),
        looks(row(2), &[Op::Read(row(3))]),
    ];
    for (session, statements) in plan.sessions.iter_mut().zip(programs) {
        for program in session {
            let is_ddl = statements[0].is_ddl;
            let only_defines = is_ddl && !by_itself;
            program.level = if only_defines { Level::ReadCommitted } else { Level::Serializable };
            (program.frame, program.statements) = (Frame::Block, statements.clone());
            (program.has_any_home, program.is_unpredicted, program.is_coarse) = (!is_ddl, !is_ddl, false);
        }
    }
    plan
}

/// Breaks a rule.
type Switch = fn(&mut Rules);

#[test]
fn what_was_concluded_before_a_schema_change() {
    let switches: [(Switch, bool); 3] = [
        (|rules| rules.conclusions_are_checked = false, false),
        (|rules| rules.definitions_claimed = false, false),
        (|rules| rules.own_changes_count = false, true),
    ];
    for (at, (switch, by_itself)) in switches.into_iter().enumerate() {
        let mut off = Rules::default();
        switch(&mut off);
        let is_skewed = |seed: &u64| {
            let findings = run_plan(views_in_motion(by_itself), off, *seed, false).findings;
            findings.iter().any(|finding| finding.anomaly == Anomaly::WriteSkew)
        };
        assert!((0..1_000).any(|seed| is_skewed(&seed)), "no seed shows that rule {at} is off");
    }
    for (seed, by_itself) in (0..100).flat_map(|seed| [(seed, false), (seed, true)]) {
        let findings = run_plan(views_in_motion(by_itself), Rules::default(), seed, false).findings;
        assert!(findings.is_empty(), "seed {seed}: {}", findings[0]);
    }
}

#[test]
fn a_failing_run_is_cut_down() {
    let mut off = Rules::default();
    off.core.reads_wait = false;
    let fails = |seed: &u64| {
        let found = run_seed(*seed, off, false).findings;
        found.first().is_some_and(|finding| finding.anomaly == Anomaly::StaleRead)
    };
    let seed = (0..100).find(fails).expect("the mutant is found at once");
    let plan = Plan::draw(&mut sim::dice::Dice::new(seed));
    let small = shrink(plan, off, seed, Anomaly::StaleRead).plan;
    let programs: usize = small.sessions.iter().map(Vec::len).sum();
    assert!(programs <= 2 && small.faults.is_empty(), "one write, one read: {small:#?}");
}
