//! Every schedule of a few small transactions at two homes, over the very core.
//!
//! Two or three transactions of one or two statements, known by keys, by a group of rows, by their table, or not known
//! beforehand, run against two servers that have row locks and no more ([`world`]). Whatever can happen next is tried in every
//! order: who goes on, which statement runs, when the log is durable, when a COMMIT or a refresh arrives. The simulator
//! draws long schedules with faults; here nothing is drawn and nothing fails, so what holds here holds for all schedules
//! of these transactions.
//!
//! Judged at the end of each: nobody waits for ever; both servers have what the log has; no write is lost or there twice; at
//! READ COMMITTED nobody is told 40001; what committed at SERIALIZABLE is as if one had run after the other.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test fails by panicking")]

#[path = "every_schedule/world.rs"]
mod world;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use cluster::event::Level;
use world::{Duties, GROUPED, Program, Step, World};

/// More states than this of one scenario are a mistake of the scenario.
const STATES_MAX: usize = 200_000;

/// A build that is not optimised looks at the schedules of so many scenarios less.
const EVERY: usize = if cfg!(debug_assertions) { 6 } else { 1 };

/// Looks at every schedule; the first finding with this word, and how many states there were.
fn search(programs: &[Program], duties: Duties, word: &str) -> (Option<String>, usize) {
    let mut seen: BTreeSet<u64> = BTreeSet::new();
    let mut open: Vec<Vec<usize>> = vec![Vec::new()];
    while let Some(path) = open.pop() {
        let mut world = World::new(programs, duties);
        for choice in &path {
            let choices = world.choices();
            world.go(choices[*choice]);
        }
        let mut hasher = DefaultHasher::new();
        format!("{world:?}").hash(&mut hasher);
        if !seen.insert(hasher.finish()) {
            continue;
        }
        assert!(seen.len() <= STATES_MAX, "too many states of {programs:?}");
        let choices = world.choices();
        let finding = choices.is_empty().then(|| world.judge()).flatten();
        if let Some(finding) = finding.filter(|finding| finding.contains(word)) {
            return (Some(format!("{finding}\n{programs:?}\n{}", world.story.join("\n"))), seen.len());
        }
        open.extend((0..choices.len()).map(|choice| [&path[..], &[choice]].concat()));
    }
    (None, seen.len())
}

fn programs(level: Level, homes: &[u16], steps: &[&[Step]]) -> Vec<Program> {
    let program = |(home, steps): (&u16, &&[Step])| Program { home: *home, level, steps: steps.to_vec() };
    homes.iter().zip(steps).map(program).collect()
}

/// All scenarios of a level. Of two transactions, one has two statements and the other one or two; of three, one each.
fn scenarios(level: Level) -> Vec<Vec<Program>> {
    use Step::{Group, Hidden, Look, LookGroup, Row, Table};
    let mut all = Vec::new();
    let (ones, pairs): (&[Step], &[[Step; 2]]) = if level == Level::Serializable {
        (
            &[Row(1), Group, Table, Look(2)],
            &[[Look(1), Row(2)], [Look(2), Row(1)], [LookGroup, Row(2)], [Row(1), Row(2)], [Row(2), Group]],
        )
    } else {
        (
            &[Row(1), Group, Table, Hidden(1)],
            &[[Row(1), Row(2)], [Row(2), Row(1)], [Row(3), Group], [Hidden(2), Row(1)], [Row(2), Hidden(1)]],
        )
    };
    for (at, pair) in pairs.iter().enumerate() {
        for one in ones {
            all.push(programs(level, &[0, 1], &[&pair[..], &[*one]]));
        }
        for other in &pairs[at..] {
            all.push(programs(level, &[0, 1], &[&pair[..], &other[..]]));
        }
    }
    for (a, one) in ones.iter().enumerate() {
        for (b, two) in ones.iter().enumerate().skip(a) {
            for three in &ones[b..] {
                all.push(programs(level, &[0, 1, 0], &[&[*one], &[*two], &[*three]]));
                all.push(programs(level, &[0, 1, 1], &[&[*one], &[*two], &[*three]]));
            }
        }
    }
    all
}

fn every(level: Level) {
    let mut states = 0;
    let all: Vec<_> = scenarios(level).into_iter().step_by(EVERY).collect();
    for programs in &all {
        let (finding, some) = search(programs, Duties::default(), "");
        assert!(finding.is_none(), "{}", finding.unwrap_or_default());
        states += some;
    }
    println!("{level:?}: {} scenarios, {states} states", all.len());
}

#[test]
fn at_read_committed_nobody_loses() {
    every(Level::ReadCommitted);
}

#[test]
fn at_serializable_one_runs_after_the_other() {
    every(Level::Serializable);
}

/// What is left undone, by whom, and a word of what is found then.
type Undone = (&'static str, fn(&mut Duties), Vec<Program>, &'static str);

/// Each duty that is left undone shows in some schedule of these.
#[test]
fn without_a_duty_it_is_noticed() {
    use Step::{Group, Hidden, Look, Row};
    let committed = |steps: &[&[Step]]| programs(Level::ReadCommitted, &[0, 1], steps);
    let strict = |steps: &[&[Step]]| programs(Level::Serializable, &[0, 1], steps);
    let cases: [Undone; 6] = [
        (
            "nothing is certified and hidden writes are not asked for",
            |duties| (duties.core.certifies_writes, duties.asks) = (false, false),
            committed(&[&[Hidden(1)], &[Row(1)]]),
            "for ever",
        ),
        (
            "hidden writes are not asked for",
            |duties| duties.asks = false,
            committed(&[&[Hidden(1)], &[Row(1)]]),
            "loses",
        ),
        (
            "nothing is foretold",
            |duties| duties.foretells = false,
            committed(&[&[Row(1)], &[Row(1)]]),
            "loses",
        ),
        (
            "rows belong to no group",
            |duties| duties.tells_groups = false,
            committed(&[&[Group], &[Row(GROUPED)]]),
            "loses",
        ),
        (
            "reads are not certified, nor locked",
            |duties| {
                (duties.core.certifies_reads, duties.locks_reads) = (false, false);
            },
            strict(&[&[Look(1), Row(2)], &[Look(2), Row(1)]]),
            "no order",
        ),
        (
            "waits inside the servers are not told",
            |duties| duties.tells_waits = false,
            programs(
                Level::ReadCommitted,
                &[0, 0, 1],
                &[&[Row(1), Row(2)], &[Row(3), Row(1)], &[Row(2), Row(3)]],
            ),
            "for ever",
        ),
    ];
    for (name, undo, programs, word) in cases {
        let mut duties = Duties::default();
        assert_eq!(search(&programs, duties, "").0, None, "{name}: with all duties done");
        undo(&mut duties);
        let finding = search(&programs, duties, word).0.unwrap_or_default();
        assert!(finding.contains(word), "{name}: {finding}");
    }
}
