//! What is needed and what conflicts, by example.

use std::sync::Arc;

use super::*;

const H1: ReplicaId = ReplicaId(1);
const H2: ReplicaId = ReplicaId(2);
const H3: ReplicaId = ReplicaId(3);

fn tables(ids: &[u32]) -> Reads {
    Reads::Tables(ids.iter().copied().map(TableId).collect())
}

fn row(table: u32, key: u64) -> Reads {
    Reads::Rows(Arc::new(Footprint { tables: Vec::new(), rows: vec![(TableId(table), key)] }))
}

fn rows(rows: &[(u32, u64)]) -> Claims {
    Claims { rows: rows.iter().map(|(t, k)| (TableId(*t), *k)).collect(), ..Claims::default() }
}

fn shared(table: u32, key: u64) -> Claims {
    Claims { shared: vec![(TableId(table), key)], ..Claims::default() }
}

fn grouped(table: u32, row: u64, group: u64) -> Claims {
    Claims { groups: vec![(TableId(table), group)], ..rows(&[(table, row)]) }
}

fn whole(table: u32) -> Claims {
    Claims { tables: vec![TableId(table)], ..Claims::default() }
}

impl VersionIndex {
    fn write(&mut self, home: ReplicaId, claims: &Claims) -> Version {
        let version = self.any.last.next();
        let ids: Vec<TableId> = claims.rows.iter().map(|(id, _)| *id).collect();
        self.assign(version, home, (&ids, false), claims);
        version
    }

    fn settle(&mut self) {
        while self.durable < self.any.last {
            self.durable_to(self.durable.next(), false);
        }
    }
}

#[test]
fn a_read_needs_the_last_writer_of_what_it_reads() {
    let mut index = VersionIndex::recovered(Version(10));
    index.write(H1, &rows(&[(1, 7)]));
    index.write(H1, &rows(&[(1, 8), (2, 1)]));
    index.settle();
    assert_eq!(index.need(&row(1, 7)), Version(11));
    assert_eq!(index.need(&row(1, 8)), Version(12));
    assert_eq!(index.need(&row(1, 9)), Version(10), "nobody wrote it since");
    assert_eq!(index.need(&tables(&[1])), Version(12));
    assert_eq!(index.need(&tables(&[3])), Version(10), "what was in the log at the start is needed");
    assert_eq!(index.need(&Reads::All), Version(12));
    assert_eq!(index.need(&Reads::Catalogue), Version(10));
}

#[test]
fn what_is_not_durable_is_needed_by_nobody() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.write(H1, &rows(&[(1, 7)]));
    index.settle();
    index.write(H1, &rows(&[(1, 7)]));
    assert_eq!(index.need(&row(1, 7)), Version(1));
    assert_eq!(index.writer(&row(1, 7)), Version(2), "but it is what was written last");
    assert_eq!(index.need(&Reads::All), Version(1));
}

#[test]
fn rows_without_claims_and_whole_tables_are_needed_by_every_row() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.assign(Version(1), H1, (&[TableId(1)], false), &Claims::default());
    index.write(H1, &whole(2));
    index.settle();
    assert_eq!(index.need(&row(1, 5)), Version(1));
    assert_eq!(index.need(&row(2, 5)), Version(2));
    assert_eq!(index.foreign(&rows(&[(1, 5)]), H2).0, Version::ZERO, "nothing was claimed there");
    assert_eq!(index.foreign(&rows(&[(2, 5)]), H2), (Version(2), Some(TableId(2))));
}

#[test]
fn ddl_is_needed_by_everything() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.write(H1, &rows(&[(1, 1)]));
    index.assign(Version(2), H1, (&[], true), &Claims::everything());
    index.durable_to(Version(1), false);
    index.durable_to(Version(2), true);
    assert_eq!(index.need(&tables(&[1])), Version(2));
    assert_eq!(index.need(&row(7, 7)), Version(2));
    assert_eq!(index.need(&Reads::Catalogue), Version(2));
}

/// DESIGN section 3: "index and certifier keep, per key, the last version that claimed it beside the last that wrote
/// it".
#[test]
fn claims_conflict_in_both_directions() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.write(H1, &shared(1, 5));
    assert_eq!(index.foreign(&rows(&[(1, 5)]), H2).0, Version(1), "who writes meets who relies on it");
    assert_eq!(index.foreign(&shared(1, 5), H2).0, Version::ZERO, "two may rely on it");
    index.write(H1, &rows(&[(1, 5)]));
    assert_eq!(index.foreign(&shared(1, 5), H2).0, Version(2), "and the other way round");
    assert_eq!(index.foreign(&whole(1), H2).0, Version(2));
    assert_eq!(index.foreign(&Claims::everything(), H2).0, Version(2));
    assert_eq!(index.foreign(&Claims::everything(), H1).0, Version::ZERO);
}

#[test]
fn a_group_is_read_and_claimed_as_a_whole_and_written_by_rows() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.write(H1, &grouped(1, 5, 100));
    index.settle();
    assert_eq!(index.need(&row(1, 100)), Version(1), "who reads the group needs who wrote a row of it");
    assert_eq!(index.need(&row(1, 101)), Version::ZERO);
    assert_eq!(index.foreign(&grouped(1, 6, 100), H2).0, Version::ZERO, "another row of it");
    assert_eq!(index.foreign(&rows(&[(1, 100)]), H2), (Version(1), Some(TableId(1))), "all of it");
    assert_eq!(index.foreign(&shared(1, 100), H2).0, Version(1));
    index.write(H1, &rows(&[(1, 100)]));
    index.write(H1, &shared(1, 101));
    assert_eq!(index.foreign(&grouped(1, 6, 100), H2).0, Version(2), "and the other way round");
    assert_eq!(index.foreign(&grouped(1, 6, 101), H2).0, Version(3));
}

#[test]
fn forgotten_groups_stand_for_their_table() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.keys_max = 1;
    index.write(H1, &Claims { rows: Vec::new(), ..grouped(1, 5, 100) });
    index.write(H1, &rows(&[(1, 1)]));
    index.settle();
    assert_eq!(index.need(&row(1, 100)), Version(1));
    assert_eq!(index.foreign(&rows(&[(1, 100)]), H2).0, Version(1));
}

#[test]
fn an_own_version_does_not_hide_a_foreign_one() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.write(H1, &shared(1, 5));
    index.write(H2, &shared(1, 5));
    index.write(H2, &shared(1, 5));
    assert_eq!(index.foreign(&rows(&[(1, 5)]), H2).0, Version(1));
    assert_eq!(index.foreign(&rows(&[(1, 5)]), H1).0, Version(3));
    assert_eq!(index.foreign(&rows(&[(1, 5)]), H3).0, Version(3));
    assert_eq!(index.claimer(&rows(&[(1, 5)])).0, Version(3));
}

#[test]
fn forgotten_keys_stand_for_their_table() {
    let mut index = VersionIndex::recovered(Version::ZERO);
    index.keys_max = 2;
    index.write(H1, &rows(&[(1, 1)]));
    index.write(H2, &rows(&[(1, 2)]));
    index.write(H2, &rows(&[(1, 3)]));
    index.settle();
    assert_eq!(index.need(&row(1, 9)), Version(1));
    assert_eq!(index.foreign(&rows(&[(1, 9)]), H2).0, Version(1));
    assert_eq!(index.foreign(&rows(&[(1, 9)]), H1).0, Version::ZERO);
    index.write(H2, &rows(&[(1, 4)]));
    assert_eq!(index.foreign(&rows(&[(1, 9)]), H1).0, Version(2));
    assert_eq!(index.foreign(&rows(&[(1, 9)]), H2).0, Version(1));
}
