//! A cluster with whole tables and parts of tables.

use super::*;
use crate::ids::DatabaseId;

const A: ReplicaId = ReplicaId(0);
const B: ReplicaId = ReplicaId(1);
const C: ReplicaId = ReplicaId(2);
const D: ReplicaId = ReplicaId(3);

fn table(number: u32) -> TableId {
    DatabaseId::FIRST.table(number)
}

/// Three replicas. Table 1 is at A and C, table 2 at A and B, table 3 at A only; the others are everywhere.
fn partial() -> Placement {
    let mut placement = Placement::full(3);
    let only_a = ReplicaSet::EMPTY.with(A);
    for (number, holders) in [(1, only_a.with(C)), (2, only_a.with(B)), (3, only_a)] {
        placement.restrict(table(number), Copies::Whole(holders));
    }
    placement
}

struct Wrote {
    is_for_all: bool,
    tables: &'static [u32],
    parts: Option<PartSet>,
}

impl Writes for Wrote {
    fn is_for_all(&self) -> bool {
        self.is_for_all
    }

    fn changes(&self) -> impl Iterator<Item = Changed> {
        self.tables.iter().map(|number| Changed { table: table(*number), parts: self.parts })
    }
}

fn rows(tables: &'static [u32]) -> Wrote {
    Wrote { is_for_all: false, tables, parts: None }
}

#[test]
fn unlisted_fragments_are_everywhere() {
    let placement = partial();
    assert!(placement.holders_of_all(&[table(9)]).contains(B));
    assert!(!placement.holders_of_all(&[table(9), table(1)]).contains(B));
    assert!(!placement.holders_of_everything().contains(B));
    assert!(!Placement::full(3).holders_of_everything().contains(D));
    assert!(placement.holdings(B).holds(table(9)) && !placement.holdings(B).holds(table(1)));
    assert!(placement.holdings(A).is_everything() && !placement.holdings(B).is_everything());
    // A replica that has yet to join holds nothing that is listed.
    assert!(placement.holdings(D).holds(table(9)) && !placement.holdings(D).holds(table(3)));
}

#[test]
fn a_record_is_applied_where_one_of_its_tables_is() {
    let placement = partial();
    let at_b = placement.holdings(B);
    assert!(!at_b.must_apply(&rows(&[1])) && !at_b.must_apply(&rows(&[1, 3])));
    assert!(at_b.must_apply(&rows(&[1, 2])) && at_b.must_apply(&rows(&[1, 9])));
    assert!(!at_b.must_apply(&rows(&[])), "an empty record concerns no partial replica");
    assert!(at_b.must_apply(&Wrote { is_for_all: true, tables: &[1], parts: None }));
    assert!(Placement::full(3).holdings(B).must_apply(&rows(&[])));
    assert!(placement.holdings(A).must_apply(&rows(&[])), "it holds everything, while others do not");
    assert!(Holdings::everything().must_apply(&rows(&[1])));
}

#[test]
fn a_donor_holds_all_that_is_wanted() {
    let placement = partial();
    let covers = |donor, target| placement.holdings(donor).cover(&placement.holdings(target));
    assert!(covers(A, B) && covers(A, A) && covers(B, D) && covers(C, D));
    assert!(!covers(B, A) && !covers(B, C) && !covers(C, B));
    assert!(!placement.holdings(B).cover(&Holdings::everything()));
    assert!(Holdings::everything().cover(&placement.holdings(B)));
    let full = Placement::full(3);
    assert!(full.holdings(B).cover(&full.holdings(A)));
}

#[test]
fn the_last_holder_of_a_fragment_does_not_leave() {
    let mut placement = partial();
    let refused = LastHolder { replica: A, table: table(3), part: None };
    assert_eq!(placement.leave(A), Err(refused));
    assert!(placement.holdings(A).is_everything(), "a refusal changes nothing");
    assert!(placement.holders_of_everything().contains(A));
    assert_eq!(placement.leave(C), Ok(()));
    assert!(!placement.holders_of_all(&[table(1)]).contains(C));
    assert!(!placement.holders_of_all(&[table(9)]).contains(C));
    let refused = LastHolder { replica: A, table: table(1), part: None };
    assert_eq!(placement.may_leave(A), Err(refused));
    assert_eq!(Placement::full(1).leave(A), Ok(()));
}

fn parts(holders: &[ReplicaSet]) -> Copies {
    Copies::Parts { column: "k".into(), holders: holders.into() }
}

/// Four replicas. Tables 1 and 2 are split: part 0 is at A and B, part 1 at A and C. Table 3 is at A and B.
fn split() -> Placement {
    let mut placement = Placement::full(4);
    let only_a = ReplicaSet::EMPTY.with(A);
    for number in [1, 2] {
        placement.restrict(table(number), parts(&[only_a.with(B), only_a.with(C)]));
    }
    placement.restrict(table(3), Copies::Whole(only_a.with(B)));
    placement
}

fn touches(placement: &Placement, tables: &[u32], parts: &[u8]) -> Touches {
    let tables = tables.iter().map(|number| table(*number)).collect();
    let parts = parts.iter().copied().map(PartId).collect();
    Touches::Parts { tables, parts, edition: placement.edition() }
}

/// The replicas, and what each says of itself.
fn where_held(placement: &Placement, touches: &Touches) -> Vec<ReplicaId> {
    let holders: Vec<ReplicaId> = placement.holders_of(touches).iter().collect();
    let says = |replica: &ReplicaId| placement.holdings(*replica).hold(touches);
    assert_eq!([A, B, C, D].into_iter().filter(says).collect::<Vec<_>>(), holders);
    holders
}

#[test]
fn a_statement_of_known_parts_runs_where_these_are_held() {
    let placement = split();
    assert_eq!(where_held(&placement, &touches(&placement, &[1, 2], &[0])), [A, B]);
    assert_eq!(
        where_held(&placement, &touches(&placement, &[1, 3], &[1])),
        [A],
        "part 1 and table 3 together"
    );
    assert_eq!(where_held(&placement, &touches(&placement, &[1], &[0, 1])), [A]);
    assert_eq!(where_held(&placement, &touches(&placement, &[1], &[])), [A, B, C, D], "it touches no row");
    assert_eq!(where_held(&placement, &Touches::Tables([table(1)].into())), [A]);
    assert_eq!(placement.holdings(B).share(table(1)), Share::Parts(PartSet::EMPTY.with(PartId(0))));
    assert_eq!(placement.holdings(D).share(table(1)), Share::Nothing);
    assert_eq!(placement.holdings(A).share(table(1)), Share::All);
}

#[test]
fn parts_told_by_another_column_are_all_parts() {
    let mut placement = split();
    let before = touches(&placement, &[1], &[0]);
    placement.restrict(table(9), parts(&[ReplicaSet::first(4), ReplicaSet::first(4)]));
    assert_eq!(where_held(&placement, &before), [A, B], "another table was split");
    let Copies::Parts { holders, .. } = placement.copies(table(1)) else { panic!("it is split") };
    placement.restrict(table(1), Copies::Parts { column: "other".into(), holders });
    assert_eq!(where_held(&placement, &before), [A]);
}

#[test]
fn rows_that_do_not_tell_their_present_parts_are_found() {
    let mut placement = split();
    let tells = |placement: &Placement, number: u32, is_told: bool, edition: Edition| {
        let untold = if is_told { BTreeSet::new() } else { BTreeSet::from([table(number)]) };
        placement.tells_parts(edition, [table(number)].into_iter(), &untold)
    };
    let now = placement.edition();
    assert!(tells(&placement, 1, true, now) && tells(&placement, 9, false, now));
    assert!(!tells(&placement, 1, false, now), "a split table");
    placement.restrict(table(9), Copies::Whole(ReplicaSet::first(4)));
    placement.restrict(table(9), parts(&[ReplicaSet::first(4), ReplicaSet::first(4)]));
    assert!(!tells(&placement, 9, false, now) && !tells(&placement, 9, true, now));
    assert!(tells(&placement, 1, true, now), "its table is split as it was");
    placement.restrict(table(9), Copies::Whole(ReplicaSet::first(4)));
    assert!(!tells(&placement, 9, true, now), "it is whole again, but was split in between");
}

#[test]
fn a_record_of_known_parts_is_applied_where_one_of_these_is_held() {
    let placement = split();
    let wrote = |parts: &[u8]| {
        let parts = parts.iter().copied().map(PartId).collect();
        Wrote { is_for_all: false, tables: &[1], parts: Some(parts) }
    };
    let apply = |record: &Wrote| [A, B, C, D].map(|replica| placement.holdings(replica).must_apply(record));
    assert_eq!(apply(&wrote(&[0])), [true, true, false, false]);
    assert_eq!(apply(&wrote(&[0, 1])), [true, true, true, false]);
    assert_eq!(apply(&rows(&[1])), [true, true, true, false], "the parts are not known");
    let holds = |replica, part: u8| placement.holdings(replica).holds_row(table(1), Some(PartId(part)));
    assert!(holds(B, 0) && !holds(B, 1) && holds(C, 1) && !holds(D, 0) && !holds(A, 7));
}

#[test]
fn the_last_holder_of_a_part_does_not_leave_and_donors_have_the_parts() {
    let mut placement = split();
    assert!(
        placement.holdings(A).cover(&placement.holdings(B))
            && placement.holdings(B).cover(&placement.holdings(D))
    );
    assert!(
        !placement.holdings(B).cover(&placement.holdings(C))
            && !placement.holdings(D).cover(&placement.holdings(B))
    );
    assert_eq!(placement.leave(B), Ok(()));
    let refused = LastHolder { replica: A, table: table(1), part: Some(PartId(0)) };
    assert_eq!(placement.leave(A), Err(refused));
    assert_eq!(refused.to_string(), "replica 0 is the only holder of part 0 of table number 1");
}
