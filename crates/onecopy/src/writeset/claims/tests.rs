//! The claims of rows, locks and turns, and which of them conflict.

use cluster::record::RecordBuilder;
use sql::accesses::Strength;
use sql::{Action, Column, Contents, Key, Reference};

use super::*;
use cluster::ids::DatabaseId;

const PARENT: TableId = DatabaseId::FIRST.table(1);
const CHILD: TableId = DatabaseId::FIRST.table(2);
const LOG: TableId = DatabaseId::FIRST.table(3);

/// A parent and a child of two columns, `id` and `p`, and a table without a key.
fn catalogue(known: bool, change: impl Fn(&mut Table)) -> Catalogue {
    let table = |id| Table {
        id,
        columns: vec![Column { type_oid: 23, collation_deterministic: true, ..Column::default() }; 2],
        primary_key: vec![0],
        keys: vec![Key { columns: vec![0], primary: true, unique: true, ..Key::default() }],
        foreign_keys: true,
        ..Table::default()
    };
    let reference = Reference {
        columns: vec![1],
        parent: PARENT,
        parent_columns: vec![0],
        on_delete: Action::Cascade,
        on_update: Action::NoAction,
        deferrable: false,
        matches_full: false,
        period: false,
    };
    let references = if known { vec![reference] } else { Vec::new() };
    let log = Table { primary_key: Vec::new(), keys: Vec::new(), foreign_keys: false, ..table(LOG) };
    let mut tables = vec![table(PARENT), Table { references, ..table(CHILD) }, log];
    tables.iter_mut().for_each(change);
    Catalogue::new(Contents { tables, ..Contents::default() })
}

fn keyed() -> Catalogue {
    catalogue(true, |_| ())
}

fn image(values: [i32; 2]) -> Vec<u8> {
    let mut image = 2_i32.to_be_bytes().to_vec();
    for value in values {
        image.extend([23, 4, value].map(i32::to_be_bytes).concat());
    }
    image
}

fn claims_in(catalogue: &Catalogue, push: impl FnOnce(&mut RecordBuilder)) -> Claims {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    push(&mut builder);
    let nonce = Nonce(builder.elements() << 32 | builder.len_bytes() as u64);
    let claimed = ClaimsSoFar::new(nonce).complete(&builder.seal(), catalogue);
    assert!(claimed.iter().all(|claimed| claimed.turn == 0));
    let mut all = Claims::default();
    for one in &claimed {
        all.add(&one.claims);
    }
    all
}

fn claims(push: impl FnOnce(&mut RecordBuilder)) -> Claims {
    claims_in(&keyed(), push)
}

#[test]
fn references_meet_their_parents() {
    let (one, other, moved) = (image([1, 7]), image([2, 7]), image([1, 8]));
    let insert = claims(|b| b.push_insert(CHILD, &one).unwrap());
    let unmoved = claims(|b| b.push_update(CHILD, &one, &one).unwrap());
    let moving = claims(|b| b.push_update(CHILD, &one, &moved).unwrap());
    let rekeying = claims(|b| b.push_update(CHILD, &one, &other).unwrap());
    let deleting = claims(|b| b.push_delete(CHILD, &one).unwrap());
    let parent = claims(|b| b.push_delete(PARENT, &image([7, 0])).unwrap());
    let rekeyed = claims(|b| b.push_update(PARENT, &image([9, 0]), &image([7, 0])).unwrap());
    for claims in [&insert, &moving, &deleting] {
        assert!(claims.overlaps(&parent) && parent.overlaps(claims), "{claims:?}");
        assert!(claims.overlaps(&rekeyed), "{claims:?}");
        assert!(claims.overlaps(&unmoved), "they are of one row");
        assert!(!claims.everything && claims.tables.is_empty(), "{claims:?}");
    }
    for claims in [&unmoved, &rekeying] {
        assert!(!claims.overlaps(&parent), "{claims:?}");
    }
    let new_parent = claims(|b| b.push_insert(PARENT, &image([8, 0])).unwrap());
    assert!(moving.overlaps(&new_parent) && !insert.overlaps(&new_parent));
    let beside = claims(|b| b.push_update(PARENT, &image([7, 0]), &image([7, 1])).unwrap());
    assert!(!insert.overlaps(&beside), "the parent keeps its key");
    assert!(beside.overlaps(&parent), "but it is one row");
    let sibling = claims(|b| b.push_insert(CHILD, &other).unwrap());
    assert!(!insert.overlaps(&sibling), "two may rely on one parent");
}

/// Like the histories of TPC-C: otherwise any two transactions that write one would wait for each other.
#[test]
fn new_rows_without_keys_meet_their_parents_and_who_claims_their_table() {
    let keyless = catalogue(true, |t| {
        if t.id == CHILD {
            (t.primary_key, t.keys) = (Vec::new(), Vec::new());
        }
    });
    let claims = |push: &dyn Fn(&mut RecordBuilder)| claims_in(&keyless, push);
    let inserts = |rows: i32| {
        move |b: &mut RecordBuilder| {
            (0..rows).for_each(|row| b.push_insert(CHILD, &image([row, 7])).unwrap());
        }
    };
    let (few, more) = (claims(&inserts(2)), claims(&inserts(3)));
    assert!(!few.overlaps(&more) && few.tables.is_empty());
    let delete = claims(&|b| b.push_delete(PARENT, &image([7, 0])).unwrap());
    let other = claims(&|b| b.push_delete(PARENT, &image([8, 0])).unwrap());
    assert!(few.overlaps(&delete) && !few.overlaps(&other));
    let update = claims(&|b| b.push_update(CHILD, &image([1, 7]), &image([1, 7])).unwrap());
    assert!(few.overlaps(&update) && update.tables == [CHILD]);
    let many = claims(&|b| (0..3_000).for_each(|row| b.push_insert(CHILD, &image([row, row])).unwrap()));
    assert_eq!(many.tables, [PARENT], "too many parents to be told apart");
    assert!(many.overlaps(&update) && many.overlaps(&other));
    let both = claims(&|b| {
        inserts(2)(b);
        b.push_delete(CHILD, &image([1, 7])).unwrap();
    });
    assert_eq!(both.tables, [CHILD]);
    assert!(both.overlaps(&few));
}

#[test]
fn what_is_not_known_is_claimed_as_a_whole() {
    let (one, other) = (image([1, 7]), image([2, 7]));
    let update =
        |catalogue: &Catalogue, row: &[u8]| claims_in(catalogue, |b| b.push_update(CHILD, row, row).unwrap());
    assert!(!update(&keyed(), &one).overlaps(&update(&keyed(), &other)), "rows of different keys");
    let changes: [fn(&mut Table); 5] = [
        |t| t.columns[0].type_oid = 869,
        |t| t.columns[0].collation_deterministic = false,
        |t| t.other_unique = true,
        |t| t.keys.push(Key { columns: vec![1], unique: true, partial: true, ..Key::default() }),
        |t| (t.primary_key, t.keys) = (Vec::new(), Vec::new()),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        let catalogue = catalogue(true, |table| {
            if at == 1 {
                table.columns[0].type_oid = 25;
            }
            change(table);
        });
        assert_eq!(update(&catalogue, &one).tables, [CHILD], "change {at}");
        let insert = claims_in(&catalogue, |b| b.push_insert(CHILD, &one).unwrap());
        let parent = claims_in(&catalogue, |b| b.push_delete(PARENT, &image([7, 0])).unwrap());
        assert!(insert.overlaps(&parent), "change {at}");
    }
    let unknown = catalogue(false, |_| ());
    let child = claims_in(&unknown, |b| b.push_insert(CHILD, &one).unwrap());
    let parent = claims_in(&unknown, |b| b.push_delete(PARENT, &one).unwrap());
    assert!(child.overlaps(&parent) && !child.everything);
    let missing = claims(|b| b.push_insert(DatabaseId::FIRST.table(9), &one).unwrap());
    assert!(missing.everything);
    assert_eq!(claims(|b| b.push_truncate(PARENT).unwrap()).tables, [PARENT]);
}

#[test]
fn every_unique_value_is_claimed_before_and_after() {
    let catalogue = catalogue(true, |table| {
        if table.id == PARENT {
            table.other_unique = true;
            table.keys.push(Key { columns: vec![1], unique: true, ..Key::default() });
        }
    });
    let of = |push: fn(&mut RecordBuilder)| claims_in(&catalogue, push);
    let taken = of(|b| b.push_insert(PARENT, &image([1, 7])).unwrap());
    let freed = of(|b| b.push_update(PARENT, &image([2, 7]), &image([2, 8])).unwrap());
    let removed = of(|b| b.push_delete(PARENT, &image([3, 8])).unwrap());
    let elsewhere = of(|b| b.push_insert(PARENT, &image([4, 9])).unwrap());
    assert!(taken.overlaps(&freed), "the value 7 in the second column");
    assert!(freed.overlaps(&removed), "the value 8 in the second column");
    assert!(!taken.overlaps(&removed), "7 in one column is not 7 in the other");
    for claims in [&taken, &freed, &removed] {
        assert!(claims.tables.is_empty() && !claims.overlaps(&elsewhere), "{claims:?}");
    }
}

#[test]
fn new_rows_without_keys_meet_whole_tables_only() {
    let one = claims(|b| b.push_insert(LOG, &image([1, 1])).unwrap());
    let other = claims(|b| {
        b.push_insert(LOG, &image([1, 1])).unwrap();
        b.push_insert(LOG, &image([2, 2])).unwrap();
    });
    let deletion = claims(|b| b.push_delete(LOG, &image([1, 1])).unwrap());
    assert!(!one.overlaps(&other));
    assert_eq!(other.rows.len(), 1, "one claim for any number of rows");
    assert!(one.overlaps(&deletion) && deletion.tables == [LOG]);
}

#[test]
fn many_rows_become_their_tables() {
    let rows = i32::try_from(ROW_CLAIMS_MAX).unwrap() * 2;
    let many = claims(|b| (0..rows).for_each(|row| b.push_insert(CHILD, &image([row, row])).unwrap()));
    assert_eq!(many.tables, [PARENT, CHILD]);
    assert!(many.rows.len() + many.shared.len() <= ROW_CLAIMS_MAX * 2);
    let row = claims(|b| b.push_delete(CHILD, &image([3, 3])).unwrap());
    assert!(many.overlaps(&row));
}

/// Only tables that thousands of new rows claim are held, and not if a constraint is deferrable.
#[test]
fn what_home_holds_is_kept_apart() {
    let held = |catalogue: &Catalogue, table: TableId, deletes: bool| {
        let (mut so_far, mut builder) = (ClaimsSoFar::default(), RecordBuilder::new(DatabaseId::FIRST));
        so_far.begin_turn(0);
        so_far.begin_turn(1);
        (0..3_000).for_each(|row| builder.push_insert(table, &image([row, row])).unwrap());
        so_far.begin_turn(builder.elements());
        if deletes {
            builder.push_delete(table, &image([1, 1])).unwrap();
        }
        let claimed = so_far.complete(&builder.seal(), catalogue);
        let of = |is_held| {
            let all = claimed.iter().filter(|one| one.is_held == is_held && !one.claims.tables.is_empty());
            all.map(|one| one.claims.tables.clone()).collect::<Vec<_>>()
        };
        (of(true), of(false))
    };
    assert_eq!(held(&keyed(), PARENT, false), (vec![vec![PARENT]], vec![]));
    assert_eq!(
        held(&keyed(), CHILD, false),
        (vec![vec![CHILD]], vec![vec![PARENT]]),
        "others may lock parents"
    );
    assert_eq!(held(&keyed(), PARENT, true), (vec![vec![PARENT]], vec![vec![PARENT]]));
    let changes: [fn(&mut Table); 4] = [
        |t| t.keys.iter_mut().for_each(|key| key.deferrable = true),
        |t| t.references.iter_mut().for_each(|reference| reference.deferrable = true),
        |t| t.references.iter_mut().for_each(|reference| reference.period = true),
        |t| t.references.clear(),
    ];
    for change in changes {
        assert!(held(&catalogue(true, change), CHILD, false).0.is_empty());
    }
}

/// Otherwise the load of a second table would conflict with all earlier commits to it.
#[test]
fn each_table_is_held_from_its_own_turn() {
    let (mut so_far, mut builder) = (ClaimsSoFar::default(), RecordBuilder::new(DatabaseId::FIRST));
    for table in [PARENT, CHILD, PARENT] {
        so_far.begin_turn(builder.elements());
        (0..3_000).for_each(|row| builder.push_insert(table, &image([row, row])).unwrap());
    }
    let claimed = so_far.complete(&builder.seal(), &keyed());
    let held = claimed.iter().filter(|one| one.is_held);
    let held: Vec<_> = held.map(|one| (one.turn, one.claims.tables.clone())).collect();
    assert_eq!(held, [(0, vec![PARENT]), (1, vec![CHILD])]);
}

/// The claims, by turn, of a row that is written in the turn that this makes.
fn by_turns(steps: impl FnOnce(&mut ClaimsSoFar, &mut RecordBuilder)) -> Vec<(u32, Vec<i32>)> {
    let (mut so_far, mut builder) = (ClaimsSoFar::default(), RecordBuilder::new(DatabaseId::FIRST));
    steps(&mut so_far, &mut builder);
    let claimed = so_far.complete(&builder.seal(), &keyed());
    let row = |key| claims(|b| b.push_update(PARENT, &image([key, 0]), &image([key, 1])).unwrap());
    let which = |claims: &Claims| (0..100).filter(|key| row(*key).overlaps(claims)).collect();
    claimed.iter().map(|one| (one.turn, which(&one.claims))).collect()
}

fn write(builder: &mut RecordBuilder, key: i32) {
    builder.push_delete(PARENT, &image([key, 0])).unwrap();
}

#[test]
fn rows_belong_to_the_turn_that_wrote_them() {
    let found = by_turns(|so_far, builder| {
        so_far.begin_turn(0);
        write(builder, 1);
        so_far.begin_turn(builder.elements());
        so_far.begin_turn(builder.elements());
        write(builder, 2);
        let chunk = builder.spill().unwrap();
        so_far.add_rows(chunk.row_changes(), builder.elements(), &keyed());
        write(builder, 3);
        so_far.begin_turn(builder.elements());
        write(builder, 4);
    });
    assert_eq!(found, [(0, vec![1]), (2, vec![2, 3]), (3, vec![4])]);
}

#[test]
fn rows_after_a_savepoint_that_was_gone_back_to_are_not_taken_for_later_ones() {
    let found = by_turns(|so_far, builder| {
        so_far.begin_turn(0);
        write(builder, 1);
        let mark = builder.mark();
        so_far.begin_turn(builder.elements());
        write(builder, 2);
        write(builder, 3);
        so_far.begin_turn(builder.elements());
        builder.truncate_to(mark);
        so_far.cut(builder.elements());
        so_far.begin_turn(builder.elements());
        write(builder, 4);
        so_far.begin_turn(builder.elements());
        write(builder, 5);
    });
    assert_eq!(found, [(0, vec![1]), (3, vec![4]), (4, vec![5])]);
}

#[test]
fn turns_in_which_nothing_is_written_are_not_kept() {
    let found = by_turns(|so_far, builder| {
        for turn in 0..4_200 {
            so_far.begin_turn(builder.elements());
            if turn % 1_000 == 7 {
                write(builder, turn / 1_000 + 1);
            }
        }
        assert_eq!(so_far.turns_left(), 0);
    });
    let kept = [(7, 1), (1_007, 2), (2_007, 3), (3_007, 4), (4_007, 5)];
    assert_eq!(found, kept.map(|(turn, key)| (turn, vec![key])));
}

#[test]
fn a_table_claimed_as_a_whole_covers_later_turns_only() {
    let mut so_far = ClaimsSoFar::default();
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    so_far.begin_turn(0);
    write(&mut builder, 1);
    so_far.begin_turn(builder.elements());
    so_far.add(&sql::Claims::Tables(vec![PARENT]), None, &keyed());
    so_far.begin_turn(builder.elements());
    write(&mut builder, 2);
    let claimed = so_far.complete(&builder.seal(), &keyed());
    assert_eq!(claimed.len(), 2);
    assert!(claimed[0].turn == 0 && claimed[0].claims.tables.is_empty());
    assert!(claimed[1].turn == 1 && claimed[1].claims.tables == [PARENT]);
}

/// Otherwise a READ COMMITTED transaction would conflict with commits before the statement that cannot be bounded.
#[test]
fn what_nobody_can_bound_is_claimed_from_its_turn() {
    let found = by_turns(|so_far, builder| {
        so_far.begin_turn(0);
        write(builder, 1);
        so_far.begin_turn(builder.elements());
        write(builder, 2);
        so_far.add_everything();
        so_far.begin_turn(builder.elements());
        write(builder, 3);
        so_far.add(&sql::Claims::Everything, None, &keyed());
    });
    assert_eq!(found, [(0, vec![1]), (1, (0..100).collect())]);
}

#[test]
fn locked_rows_are_claimed_by_their_keys() {
    let lock = |key: Option<i64>, strength| {
        let value = |key| accesses::Equality { column: 0, value: accesses::Value::Int(key) };
        let rows = key.map_or(accesses::Rows::All, |key| {
            accesses::Rows::any_of(vec![accesses::Match::new(vec![value(key)])])
        });
        let locks = vec![accesses::Lock { table: PARENT, rows, strength }];
        let touched = Accesses { locks, ..Accesses::default() };
        let (catalogue, mut so_far) = (keyed(), ClaimsSoFar::default());
        so_far.add(&sql::Claims::Tables(vec![PARENT]), Some(&touched), &catalogue);
        let claimed = so_far.complete(&RecordBuilder::new(DatabaseId::FIRST).seal(), &catalogue);
        claimed.into_iter().next().unwrap().claims
    };
    let for_update = lock(Some(7), Strength::Update);
    let for_share = lock(Some(7), Strength::Share);
    let written = claims(|b| b.push_update(PARENT, &image([7, 0]), &image([7, 1])).unwrap());
    let referring = claims(|b| b.push_insert(CHILD, &image([1, 7])).unwrap());
    let elsewhere = claims(|b| b.push_update(PARENT, &image([8, 0]), &image([8, 1])).unwrap());
    assert!(for_update.overlaps(&written) && for_share.overlaps(&written));
    assert!(for_update.overlaps(&for_share) && for_update.overlaps(&for_update));
    assert!(!for_share.overlaps(&lock(Some(7), Strength::Share)), "two may share a lock");
    assert!(for_update.overlaps(&referring) && !for_share.overlaps(&referring));
    assert!(!for_update.overlaps(&elsewhere));
    assert_eq!(lock(None, Strength::Share).tables, [PARENT]);
}
