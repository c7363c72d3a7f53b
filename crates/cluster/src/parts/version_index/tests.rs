//! Needed versions and conflicts, by example.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::ids::DatabaseId;

fn met(table: u32, row: u64) -> Meeting {
    Meeting { table: DatabaseId::FIRST.table(table), row: Some(row) }
}

const H1: ReplicaId = ReplicaId(1);
const H2: ReplicaId = ReplicaId(2);
const H3: ReplicaId = ReplicaId(3);
const NOTHING: Written<'_> = Written { tables: &[], changed: &[], everything: false };

fn tables(ids: &[u32]) -> Reads {
    Reads::Tables(ids.iter().copied().map(|number| DatabaseId::FIRST.table(number)).collect())
}

fn row(table: u32, key: u64) -> Reads {
    Reads::Rows(Arc::new(Footprint {
        rows: vec![(DatabaseId::FIRST.table(table), key)],
        ..Footprint::default()
    }))
}

fn rows(rows: &[(u32, u64)]) -> Claims {
    Claims {
        rows: rows.iter().map(|(t, k)| (DatabaseId::FIRST.table(*t), *k)).collect(),
        ..Claims::default()
    }
}

fn shared(table: u32, key: u64) -> Claims {
    Claims { shared: vec![(DatabaseId::FIRST.table(table), key)], ..Claims::default() }
}

fn grouped(table: u32, row: u64, group: u64) -> Claims {
    Claims { groups: vec![(DatabaseId::FIRST.table(table), group)], ..rows(&[(table, row)]) }
}

fn whole(table: u32) -> Claims {
    Claims { tables: vec![DatabaseId::FIRST.table(table)], ..Claims::default() }
}

impl VersionIndex {
    fn write(&mut self, home: ReplicaId, claims: &Claims) -> Version {
        let version = self.any.last.next();
        let ids: Vec<TableId> = claims.rows.iter().map(|(id, _)| *id).collect();
        self.assign(version, home, Written { tables: &ids, ..NOTHING }, claims);
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
    let mut index = VersionIndex::recovered(Version(10), Version(4));
    index.write(H1, &rows(&[(1, 7)]));
    index.write(H1, &rows(&[(1, 8), (2, 1)]));
    index.settle();
    assert_eq!(index.need(&row(1, 7)), Version(11));
    assert_eq!(index.need(&row(1, 8)), Version(12));
    assert_eq!(index.need(&row(1, 9)), Version(10), "it was not written since");
    assert_eq!(index.need(&tables(&[1])), Version(12));
    assert_eq!(index.need(&tables(&[3])), Version(10), "what was in the log at the start is needed");
    assert_eq!(index.need(&Reads::All), Version(12));
    assert_eq!(index.need(&Reads::Catalogue), Version(4), "what is in the log after it changes no schema");
}

#[test]
fn versions_that_are_not_durable_are_not_needed() {
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    index.write(H1, &rows(&[(1, 7)]));
    index.settle();
    index.write(H1, &rows(&[(1, 7)]));
    assert_eq!(index.need(&row(1, 7)), Version(1));
    assert_eq!(index.writer(&row(1, 7)), Version(2), "but it is what was written last");
    assert_eq!(index.need(&Reads::All), Version(1));
}

#[test]
fn rows_without_claims_and_whole_tables_are_needed_by_every_row() {
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    index.assign(
        Version(1),
        H1,
        Written { tables: &[DatabaseId::FIRST.table(1)], ..NOTHING },
        &Claims::default(),
    );
    index.write(H1, &whole(2));
    index.settle();
    assert_eq!(index.need(&row(1, 5)), Version(1));
    assert_eq!(index.need(&row(2, 5)), Version(2));
    assert_eq!(index.foreign(&rows(&[(1, 5)]), H2).0, Version::ZERO, "nothing was claimed there");
    assert_eq!(
        index.foreign(&rows(&[(2, 5)]), H2),
        (Version(2), Some(Meeting { table: DatabaseId::FIRST.table(2), row: None }))
    );
}

#[test]
fn ddl_is_needed_by_everything() {
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    index.write(H1, &rows(&[(1, 1)]));
    index.assign(Version(2), H1, Written { everything: true, ..NOTHING }, &Claims::everything());
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
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
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
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    index.write(H1, &grouped(1, 5, 100));
    index.settle();
    assert_eq!(index.need(&row(1, 100)), Version(1), "who reads the group needs who wrote a row of it");
    assert_eq!(index.need(&row(1, 101)), Version::ZERO);
    assert_eq!(index.foreign(&grouped(1, 6, 100), H2).0, Version::ZERO, "another row of it");
    assert_eq!(index.foreign(&rows(&[(1, 100)]), H2), (Version(1), Some(met(1, 100))), "all of it");
    assert_eq!(
        index.foreign(&whole(1), H2).1,
        Some(Meeting { table: DatabaseId::FIRST.table(1), row: None })
    );
    assert_eq!(index.written_at(&row(1, 100)), Some(met(1, 100)));
    assert_eq!(index.foreign(&shared(1, 100), H2).0, Version(1));
    index.write(H1, &rows(&[(1, 100)]));
    index.write(H1, &shared(1, 101));
    assert_eq!(index.foreign(&grouped(1, 6, 100), H2).0, Version(2), "and the other way round");
    assert_eq!(index.foreign(&grouped(1, 6, 101), H2).0, Version(3));
}

#[test]
fn forgotten_groups_stand_for_their_table() {
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    index.keys_max = 1;
    index.write(H1, &Claims { rows: Vec::new(), ..grouped(1, 5, 100) });
    index.write(H1, &rows(&[(1, 1)]));
    index.settle();
    assert_eq!(index.need(&row(1, 100)), Version(1));
    assert_eq!(index.foreign(&rows(&[(1, 100)]), H2).0, Version(1));
}

#[test]
fn an_own_version_does_not_hide_a_foreign_one() {
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
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
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
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

/// Some columns of some rows of a table, as a version changes or a read sees them; `None` for all, and which rows there are.
#[derive(Clone, Debug)]
struct Touched {
    table: u32,
    /// `None` for all rows.
    row: Option<u64>,
    columns: Option<ColumnSet>,
}

impl Touched {
    fn meets(&self, read: &Self) -> bool {
        let rows = self.row.is_none() || read.row.is_none() || self.row == read.row;
        let columns = match (self.columns, read.columns) {
            (Some(changed), Some(read)) => changed.overlaps(read),
            _ => true,
        };
        self.table == read.table && rows && columns
    }

    fn footprint(&self) -> Reads {
        let id = DatabaseId::FIRST.table(self.table);
        Reads::Rows(Arc::new(Footprint {
            tables: self.row.is_none().then_some(id).into_iter().collect(),
            rows: self.row.map(|row| (id, row)).into_iter().collect(),
            columns: self.columns.map(|set| (id, set)).into_iter().collect(),
        }))
    }
}

fn touched(rows: impl Strategy<Value = Option<u64>>) -> impl Strategy<Value = Touched> {
    let columns = proptest::option::weighted(0.8, 0_u8..8);
    let set = |bits: u8| (0..3).filter(|at| bits >> at & 1 != 0).collect();
    (0_u32..2, rows, columns).prop_map(move |(table, row, bits)| Touched {
        table,
        row,
        columns: bits.map(set),
    })
}

proptest! {
    /// The needed version is the last one that changed the data read: exact for tables. For rows it is at least that,
    /// and at most the version needed without columns.
    #[test]
    fn columns_are_needed_as_they_are_changed(
        versions in proptest::collection::vec((touched((0_u64..3).prop_map(Some)), any::<bool>()), 1..12),
        read in touched(proptest::option::of(0_u64..3)),
    ) {
        let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
        for (wrote, is_group) in &versions {
            let id = DatabaseId::FIRST.table(wrote.table);
            let row = wrote.row.map(|row| (id, row)).into_iter().collect();
            // A row that is in a group has a key of its own, too.
            let (rows, groups) = if *is_group { (vec![(id, 99)], row) } else { (row, Vec::new()) };
            let claims = Claims { rows, groups, ..Claims::default() };
            let changed: Vec<_> = wrote.columns.map(|set| (id, set)).into_iter().collect();
            let written = Written { tables: &[id], changed: &changed, everything: false };
            index.assign(index.any.last.next(), H1, written, &claims);
        }
        let last = |read: &Touched| {
            let at = versions.iter().rposition(|(wrote, _)| wrote.meets(read));
            Version(at.map_or(0, |at| at as u64 + 1))
        };
        let (exact, whole) = (last(&read), last(&Touched { columns: None, ..read.clone() }));
        let found = index.writer(&read.footprint());
        prop_assert!(exact <= found && found <= whole, "{exact} {found} {whole}");
        prop_assert!(read.row.is_some() || found == exact, "{exact} {found}");
    }
}

#[test]
fn a_row_remembers_what_was_changed_since_it_came() {
    let mut index = VersionIndex::recovered(Version::ZERO, Version::ZERO);
    let (id, claims) = (DatabaseId::FIRST.table(1), rows(&[(1, 7)]));
    let set = |at: usize| ColumnSet::EMPTY.with(at);
    index.write(H1, &claims);
    for at in [3, 4] {
        let version = index.any.last.next();
        let written = Written { tables: &[id], changed: &[(id, set(at))], everything: false };
        index.assign(version, H1, written, &claims);
    }
    let read = |columns: ColumnSet| {
        Reads::Rows(Arc::new(Footprint {
            rows: vec![(id, 7)],
            columns: vec![(id, columns)],
            ..Footprint::default()
        }))
    };
    assert_eq!(index.writer(&read(set(5))), Version(1));
    assert_eq!(index.writer(&read(ColumnSet::EMPTY)), Version(1), "whether it is there");
    assert_eq!(index.writer(&read(set(4))), Version(3));
    assert_eq!(index.writer(&row(1, 7)), Version(3));
}
