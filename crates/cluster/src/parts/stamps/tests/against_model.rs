//! Random runs against a model that sorts: agents order alike, nothing waits for ever, and with a log no message is too late.

use proptest::prelude::*;

use super::stage::{Plan, Stage};
use super::*;

const REPLICAS: u16 = 3;
const EPSILON: i64 = 4;
const MAX: u64 = 10;

fn plans(delay_most: u64) -> impl Strategy<Value = Vec<Plan>> {
    let table = || (0_u32..2).prop_map(|number| DatabaseId::FIRST.table(number));
    let row = || proptest::collection::vec((table(), 0_u64..3), 0..3);
    let claims = (row(), row(), row(), proptest::bool::weighted(0.05)).prop_map(
        |(rows, shared, groups, everything)| Claims { rows, shared, groups, everything, ..Claims::default() },
    );
    let others = proptest::collection::vec((0..=delay_most, 0_u8..3), usize::from(REPLICAS));
    let plan = (0_u64..60, 1..=REPLICAS, claims, 0_u64..12, others);
    let made = |(at, origin, claims, duration, others): (u64, u16, Claims, u64, Vec<(u64, u8)>)| {
        let target = |(to, (delay, kind)): (u16, &(u64, u8))| match kind {
            _ if to == origin => Some((to, *delay, Can::Perform)),
            0 => None,
            1 => Some((to, *delay, Can::NeedsRefresh)),
            _ => Some((to, *delay, Can::Perform)),
        };
        let targets = (1..).zip(&others).filter_map(target).collect();
        Plan { at, origin, claims, duration, targets }
    };
    proptest::collection::vec(plan.prop_map(made), 1..16)
}

fn rules() -> impl Strategy<Value = Rules> {
    let start = prop_oneof![Just(Start::Ordered), Just(Start::OnArrival)];
    let classes = prop_oneof![Just(Classes::One), Just(Classes::ByClaims)];
    let reach = prop_oneof![Just(Reach::Younger), Just(Reach::Conflicting)];
    let commit = prop_oneof![Just(Commit::ByItself), Just(Commit::ByTheLog)];
    let wait_us = MAX + EPSILON.unsigned_abs();
    let made = move |(start, classes, reach, commit)| Rules {
        wait_us,
        start,
        classes,
        reach,
        commit,
        guards: Guards::ALL,
    };
    (start, classes, reach, commit).prop_map(made)
}

fn skews(most: i64) -> impl Strategy<Value = Vec<i64>> {
    proptest::collection::vec(-most..=most, usize::from(REPLICAS))
}

/// The naive model: each replica commits the transactions that go there, sorted by stamp.
fn expected(stage: &Stage, replica: u16) -> Vec<Stamp> {
    let goes_there = |plan: &usize| stage.plans[*plan].targets.iter().any(|(to, _, _)| *to == replica);
    stage.stamps.iter().filter(|(_, plan)| goes_there(plan)).map(|(stamp, _)| *stamp).collect()
}

/// Lemma 4.5 and what it rests on: all is committed everywhere, and nothing is left behind.
fn nothing_waits(stage: &Stage) -> Result<(), TestCaseError> {
    for (replica, agent) in &stage.agents {
        prop_assert!(agent.is_empty(), "left at {}: {:#?}", replica, agent);
        prop_assert_eq!(agent.next_alarm(), None);
        let committed = &stage.commits[replica];
        prop_assert_eq!(committed.len(), expected(stage, *replica).len());
    }
    Ok(())
}

proptest! {
    /// Lemmas 4.4 and 5.2, whatever the rules.
    #[test]
    fn all_agents_order_alike(plans in plans(MAX), rules in rules(), skew in skews(EPSILON / 2)) {
        let mut stage = Stage::new(REPLICAS, rules, plans).skewed(&skew);
        stage.run();
        nothing_waits(&stage)?;
        for (replica, agent) in &stage.agents {
            prop_assert_eq!(&stage.commits[replica], &expected(&stage, *replica));
            prop_assert_eq!((agent.counts().late, agent.counts().overtaken), (0, 0));
            prop_assert!(rules.start == Start::OnArrival || agent.counts().undone == 0);
        }
    }

    /// B1 of our design: messages and clocks far beyond Max and epsilon cost time, and never the order.
    #[test]
    fn with_a_log_nothing_is_too_late(plans in plans(8 * MAX), rules in rules(), skew in skews(10 * EPSILON)) {
        let rules = Rules { commit: Commit::ByTheLog, ..rules };
        let mut stage = Stage::new(REPLICAS, rules, plans).skewed(&skew);
        stage.run();
        nothing_waits(&stage)?;
        prop_assert!(stage.log.is_sorted() && stage.log.len() == stage.plans.len());
        for (replica, agent) in &stage.agents {
            prop_assert_eq!(&stage.commits[replica], &expected(&stage, *replica));
            prop_assert_eq!(agent.counts().overtaken, 0);
        }
    }

    /// Without a log, too, nothing waits for ever; the order is lost only where that is counted.
    #[test]
    fn without_a_log_lost_order_is_counted(plans in plans(8 * MAX), rules in rules()) {
        let rules = Rules { commit: Commit::ByItself, ..rules };
        let mut stage = Stage::new(REPLICAS, rules, plans);
        stage.run();
        nothing_waits(&stage)?;
        for (replica, agent) in &stage.agents {
            let is_kept = stage.commits[replica] == expected(&stage, *replica);
            prop_assert_eq!(is_kept, agent.counts().overtaken == 0);
            prop_assert!(agent.counts().overtaken <= agent.counts().late);
        }
    }
}

/// The runs above are not without late messages: the control of the two tests of them.
#[test]
fn late_messages_do_come() {
    let far = |at, origin, delay| Plan {
        at,
        origin,
        claims: rows(&[1]),
        duration: 1,
        targets: vec![(origin, 0, Can::Perform), (3 - origin, delay, Can::Perform)],
    };
    for (commit, overtaken) in [(Commit::ByItself, 1), (Commit::ByTheLog, 0)] {
        let mut stage = Stage::new(2, Rules { commit, ..PAPER }, vec![far(0, 1, 40), far(2, 2, 0)]);
        stage.run();
        let counts = stage.agents[&2].counts();
        assert_eq!((counts.late, counts.overtaken), (1, overtaken), "{commit:?}");
        let orders = [1, 2].map(|replica| stage.commits[&replica].clone());
        assert_eq!(orders[0] == orders[1], commit == Commit::ByTheLog);
    }
}
