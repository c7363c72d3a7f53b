//! Figure 2 of the paper, links that give up, and a comparison with a model that compares each pair.

use proptest::prelude::*;

use super::*;
use crate::ids::DatabaseId;

fn rows(numbers: &[u64]) -> Claims {
    let table = DatabaseId::FIRST.table(1);
    Claims { rows: numbers.iter().map(|row| (table, *row)).collect(), ..Claims::default() }
}

fn enter(chains: &mut Chains<u32>, numbers: &[u64]) -> (Link, Arrival) {
    chains.enter(rows(numbers))
}

fn lines(chains: &Chains<u32>) -> Vec<Vec<u64>> {
    chains.chains().iter().map(|chain| chain.links.iter().map(|link| link.0).collect()).collect()
}

/// II-B: "if no conflicts are predicted, T starts a new queue".
#[test]
fn figure_2_a_no_conflict_starts_a_chain() {
    let mut chains = Chains::default();
    assert_eq!(enter(&mut chains, &[1]), (Link(1), Arrival::Starts));
    assert_eq!(enter(&mut chains, &[2]), (Link(2), Arrival::Starts));
    assert!(chains.is_ready(Link(1)) && chains.is_ready(Link(2)));
    assert_eq!(lines(&chains), [[1], [2]]);
}

/// II-B: "If it conflicts with a single one, it is queued after it (Figure 2(b))."
#[test]
fn figure_2_b_one_conflict_extends_a_chain() {
    let mut chains = Chains::default();
    let [t1, t2] = [[1], [2]].map(|row| enter(&mut chains, &row).0);
    let (t3, arrival) = enter(&mut chains, &[1]);
    assert_eq!(arrival, Arrival::Extends);
    assert_eq!(lines(&chains), [vec![1, 3], vec![2]]);
    assert!(!chains.is_ready(t3));
    assert_eq!(chains.over(t2), []);
    assert_eq!(chains.over(t1), [t3]);
    assert!(chains.is_ready(t3) && !chains.is_ready(t1));
}

/// II-B: "If it conflicts with both, the two queues merge (Figure 2(c))."
#[test]
fn figure_2_c_two_conflicts_merge_chains() {
    let mut chains = Chains::default();
    let [t1, t2] = [[1], [2]].map(|row| enter(&mut chains, &row).0);
    let (t3, arrival) = enter(&mut chains, &[1, 2]);
    assert_eq!(arrival, Arrival::Merges);
    assert_eq!(chains.predecessors(t3), &BTreeSet::from([t1, t2]));
    assert_eq!(chains.last_predecessor(t3), Some(t2));
    assert_eq!(lines(&chains), [vec![1], vec![2, 3]]);
    assert_eq!(chains.over(t1), [], "a merge waits for both");
    assert_eq!(chains.over(t2), [t3]);
}

/// II-B: "If transactions t4 and t5 both conflict with t3 but not with each other, they will be on parallel queues but both
/// after t3 (the queue splits (Figure 2(d)))."
#[test]
fn figure_2_d_merge_and_split() {
    let mut chains = Chains::default();
    let [t1, t2, t3] = [&[1][..], &[2], &[1, 2, 3, 4]].map(|numbers: &[u64]| enter(&mut chains, numbers).0);
    assert_eq!(enter(&mut chains, &[3]), (Link(4), Arrival::Extends));
    assert_eq!(enter(&mut chains, &[4]), (Link(5), Arrival::Splits));
    assert_eq!(lines(&chains), [vec![1], vec![2, 3, 4], vec![5]]);
    for (over, ready) in [(t1, vec![]), (t2, vec![t3]), (t3, vec![Link(4), Link(5)])] {
        assert_eq!(chains.over(over), ready);
    }
}

/// II-B: "Repeating the algorithm, Gargamel computes chains that extend, merge or split (Figure 2(e))."
#[test]
fn figure_2_e_general_chains() {
    let mut chains = Chains::default();
    let came = [&[1, 5][..], &[2], &[1, 2], &[5], &[2, 5], &[1]];
    let arrivals: Vec<Arrival> = came.iter().map(|numbers| enter(&mut chains, numbers).1).collect();
    use Arrival::{Merges, Splits, Starts};
    assert_eq!(arrivals, [Starts, Starts, Merges, Splits, Merges, Splits]);
    assert_eq!(lines(&chains), [vec![1], vec![2, 3], vec![4, 5], vec![6]]);
    // What stands behind the merge already waits for t1 by it, so only the merge counts.
    assert_eq!(enter(&mut chains, &[1, 2]), (Link(7), Merges));
    assert_eq!(chains.predecessors(Link(7)), &BTreeSet::from([Link(5), Link(6)]));
    let mut order = Vec::new();
    while let Some(first) = chains.places.keys().copied().find(|link| chains.is_ready(*link)) {
        order.push(first.0);
        chains.over(first);
    }
    assert_eq!(order, [1, 2, 3, 4, 5, 6, 7]);
    assert!(chains.is_empty() && chains.chains().is_empty());
}

/// A tail and a link in the middle of another chain: the tail decides, and both are waited for.
#[test]
fn a_tail_beside_the_middle_of_a_chain_is_extended() {
    let mut chains = Chains::default();
    let [t1, t2, t3] = [&[1, 2][..], &[1], &[3]].map(|numbers: &[u64]| enter(&mut chains, numbers).0);
    let (t4, arrival) = enter(&mut chains, &[2, 3]);
    assert_eq!(arrival, Arrival::Extends);
    assert_eq!((chains.chain(t4), chains.chain(t2)), (Some(ChainId(t3)), Some(ChainId(t1))));
    assert_eq!(chains.over(t3), []);
    assert_eq!(chains.over(t1), [t2, t4]);
}

/// A client gives up while it waits: those behind it go on waiting for those before it, if they conflict with them.
#[test]
fn a_link_that_gives_up_leaves_no_gap() {
    let mut chains = Chains::default();
    let [t1, t2, t3, t4] =
        [&[1][..], &[1, 2], &[1], &[2]].map(|numbers: &[u64]| enter(&mut chains, numbers).0);
    assert_eq!(chains.over(t2), [t4], "it waited for no other");
    assert_eq!(chains.predecessors(t3), &BTreeSet::from([t1]));
    assert_eq!(chains.over(t1), [t3]);
    assert_eq!(chains.over(t1), [], "once is enough");
}

#[test]
fn workers_are_those_that_the_caller_chose() {
    let mut chains = Chains::default();
    let [t1, t2] = [[1], [1]].map(|row| enter(&mut chains, &row).0);
    assert_eq!(chains.worker(t1), None);
    chains.place(t1, 7);
    assert_eq!((chains.worker(t1), chains.worker(t2)), (Some(7), None));
    assert_eq!(chains.chains()[0], Chain { id: ChainId(t1), worker: Some(7), links: vec![t1, t2] });
    assert_eq!(chains.behind(&rows(&[1])), Some(t2));
    chains.over(t1);
    assert_eq!((chains.worker(t1), chains.len()), (None, 1), "what is over is forgotten");
    chains.place(t1, 8);
    assert_eq!(chains.worker(t1), None);
}

/// A hot row: the sets stay small however long its line is.
#[test]
fn a_long_line_has_one_predecessor_each() {
    let mut chains = Chains::default();
    let links: Vec<Link> = (0..1_000).map(|_| enter(&mut chains, &[1]).0).collect();
    assert!(links[1..].iter().all(|link| chains.predecessors(*link).len() == 1));
    let everything = chains.enter(Claims::everything()).0;
    let other = chains.enter(Claims::everything()).0;
    assert_eq!(chains.predecessors(other), &BTreeSet::from([everything]));
}

#[derive(Clone, Debug)]
enum Step {
    Enter(Claims),
    /// The first link that is ready, counted from one of those that are not over.
    EndReady(usize),
    /// Any link, ready or not.
    End(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let table = || (0_u32..2).prop_map(|number| DatabaseId::FIRST.table(number));
    let row = || proptest::collection::vec((table(), 0_u64..3), 0..2);
    let made = |(rows, shared, groups, tables, everything)| {
        Step::Enter(Claims { rows, shared, groups, tables, everything })
    };
    let tables = proptest::collection::vec(table(), 0..2).prop_map(|mut tables| {
        tables.truncate(usize::from(tables.len() == 1 && tables[0].number == 1));
        tables
    });
    let enter = (row(), row(), row(), tables, proptest::bool::weighted(0.05)).prop_map(made);
    let step = prop_oneof![
        5 => enter,
        2 => (0_usize..20).prop_map(Step::EndReady),
        1 => (0_usize..20).prop_map(Step::End),
    ];
    proptest::collection::vec(step, 1..60)
}

/// All links that are not over, compared pair by pair.
#[derive(Default)]
struct Model(BTreeMap<Link, Claims>);

impl Model {
    fn conflicts(&self, link: Link) -> Vec<Link> {
        let mine = &self.0[&link];
        let before = self.0.range(..link);
        before.filter(|(_, claims)| claims.overlaps(mine)).map(|(other, _)| *other).collect()
    }

    fn ready(&self) -> BTreeSet<Link> {
        self.0.keys().copied().filter(|link| self.conflicts(*link).is_empty()).collect()
    }
}

proptest! {
    /// Ready is what conflicts with nothing earlier; ends make ready exactly those that become so, in order.
    #[test]
    fn links_are_ready_as_a_comparison_of_each_pair_says(steps in steps()) {
        let mut chains: Chains<u32> = Chains::default();
        let mut model = Model::default();
        for step in steps {
            let from = |links: Vec<Link>, at: usize| links.get(at % links.len().max(1)).copied();
            let over = match step {
                Step::Enter(claims) => {
                    let expected = model.0.iter().rev().find(|(_, other)| other.overlaps(&claims));
                    let expected = expected.map(|(link, _)| *link);
                    prop_assert_eq!(chains.behind(&claims), expected);
                    let (link, arrival) = chains.enter(claims.clone());
                    model.0.insert(link, claims);
                    prop_assert_eq!(arrival == Arrival::Starts, expected.is_none());
                    None
                }
                Step::EndReady(at) => from(model.ready().into_iter().collect(), at),
                Step::End(at) => from(model.0.keys().copied().collect(), at),
            };
            if let Some(over) = over {
                let before = model.ready();
                model.0.remove(&over);
                let now: Vec<Link> = model.ready().difference(&before).copied().collect();
                prop_assert_eq!(chains.over(over), now);
            }
            for link in model.0.keys() {
                let conflicts = model.conflicts(*link);
                prop_assert_eq!(chains.is_ready(*link), conflicts.is_empty());
                prop_assert_eq!(chains.last_predecessor(*link), conflicts.last().copied());
                let claims = &model.0[link];
                prop_assert_eq!(chains.predecessors(*link), &chains.index.nearest_before(*link, claims));
            }
            let shown: BTreeSet<Link> = chains.chains().into_iter().flat_map(|chain| chain.links).collect();
            prop_assert!(shown.iter().eq(model.0.keys()), "each link is in one chain");
        }
    }
}
