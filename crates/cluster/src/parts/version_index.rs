//! The last writers and claimers of each key and table: which version a statement needs, and certification.
//!
//! *Needs.* The sequence numbers of conflict-aware scheduling (section 3: "the scheduler ... tags each query with the
//! version numbers of the tables it reads"), taken from the log's order and as fine as keys. A version enters when it is
//! assigned; reads need what is durable, since from then on every read that begins needs it *and every version before
//! it* (DESIGN section 3, Visibility; without the prefix, partial replication shows a long fork: spec FINDINGS section
//! 2). For a writer that is not durable yet, the last durable version stands in, which is never too low.
//!
//! *Certification.* A transaction of one home passes unless a version of another home has claims in common with it, and is newer
//! than what its statement was known to see (DESIGN section 3, "Certification and integrity"). PostgreSQL's locks ordered the
//! versions of its own home, and each of them was certified itself, so only the last version of *other* homes counts. That is
//! why a [`Stamp`] remembers two. The reads of a SERIALIZABLE transaction are certified against versions of every home, since
//! nothing locks them.
//!
//! *Columns.* A read of some columns does not need a version that only updated other columns. A table remembers for each column
//! the last version that updated it. There are many keys and groups, so each remembers one set: the columns updated since the
//! last version that did more than update known columns. Only schema changes change which columns a table has, and every read
//! needs those.
//!
//! The number of keys is bounded: the oldest are forgotten, and their versions count for the whole table from then on.

use std::collections::{BTreeMap, VecDeque};

use crate::claims::{Claims, ColumnSet, Footprint, Meeting};
use crate::event::Reads;
use crate::ids::{ReplicaId, TableId, Version};

/// Most keys remembered apart, counted once for each version that touched them.
pub const KEYS_MAX: usize = 200_000;

/// Rough size of a remembered key: its entry in a tree that is two thirds full, and its place in the order of age.
pub const KEY_BYTES: usize = size_of::<(u64, Key)>() * 3 / 2 + size_of::<(Version, TableId, u64)>();

/// The last version that touched something, and the last one of any home other than that version's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Stamp {
    last: Version,
    /// `None` for versions of an earlier leader: they are foreign to every home.
    home: Option<ReplicaId>,
    other: Version,
}

impl Stamp {
    fn note(&mut self, version: Version, home: Option<ReplicaId>) {
        if version <= self.last {
            if home != self.home {
                self.other = self.other.max(version);
            }
            return;
        }
        if home != self.home {
            self.other = self.last;
        }
        (self.last, self.home) = (version, home);
    }

    fn merge(&mut self, of: Self) {
        // The home of the other version is not known any more. To be safe, it counts as foreign to every home.
        self.note(of.other, None);
        self.note(of.last, of.home);
    }

    fn foreign(self, home: ReplicaId) -> Version {
        if self.home == Some(home) { self.other } else { self.last }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Key {
    written: Stamp,
    shared: Stamp,
    /// The last version that wrote rows of it, if it is a group.
    grouped: Stamp,
    /// The last version that did more than update known columns of it.
    made: Version,
    /// The columns that were updated since.
    columns: ColumnSet,
}

impl Key {
    fn newest(&self) -> Version {
        self.written.last.max(self.shared.last).max(self.grouped.last)
    }

    fn merge(&mut self, of: Self) {
        self.written.merge(of.written);
        self.shared.merge(of.shared);
        self.grouped.merge(of.grouped);
        self.made = self.made.max(of.made);
        self.columns = self.columns.union(of.columns);
    }

    /// A version wrote it: only these columns, if they are known.
    fn change(&mut self, version: Version, changed: Option<ColumnSet>) {
        if let Some(set) = changed {
            self.columns = self.columns.union(set);
        } else {
            (self.made, self.columns) = (version, ColumnSet::EMPTY);
        }
    }

    /// The last version that changed one of these columns, or any column.
    fn changed(&self, columns: Option<ColumnSet>) -> Version {
        match columns {
            Some(set) if !set.overlaps(self.columns) => self.made,
            _ => self.written.last.max(self.grouped.last),
        }
    }
}

/// The writes of a version.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The tables that have changed rows.
    pub tables: &'a [TableId],
    /// Those of them whose rows were only updated, with the columns that changed.
    pub changed: &'a [(TableId, ColumnSet)],
    /// It may have written anything.
    pub everything: bool,
}

impl Written<'_> {
    fn columns_of(&self, table: TableId) -> Option<ColumnSet> {
        self.changed.iter().find(|(of, _)| *of == table).map(|(_, set)| *set)
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// The last version that wrote rows, or claimed the whole table: a read of all columns needs it.
    written: Version,
    /// The last version that did more than update known columns: any read of the table needs it.
    made: Version,
    /// The last version that updated a column, by position.
    columns: BTreeMap<usize, Version>,
    /// The last version that wrote rows without a claim on their keys.
    unkeyed: Version,
    /// The last version that claimed the whole table.
    whole: Stamp,
    /// The last version that claimed anything of the table.
    touched: Stamp,
    keys: BTreeMap<u64, Key>,
    /// The versions of the keys that were forgotten.
    forgotten: Key,
}

/// The last writers and claimers.
#[derive(Clone, Debug)]
pub struct VersionIndex {
    tables: BTreeMap<TableId, Table>,
    /// The last version that may have written anything, such as a schema change.
    everything: Version,
    /// The last version that claimed everything.
    unbounded: Stamp,
    /// The last version of all.
    any: Stamp,
    durable: Version,
    last_ddl: Version,
    ages: VecDeque<(Version, TableId, u64)>,
    keys_max: usize,
    /// Of forgotten keys, also claims without writes are kept.
    keeps_claims: bool,
}

impl VersionIndex {
    /// The index of a new leader: every record that is in the log counts as needed, by every read (DESIGN section 6). No schema change
    /// after `schema` is among them.
    pub fn recovered(last: Version, schema: Version) -> Self {
        let mut index = Self::forgetful(last);
        index.unbounded = Stamp { last, home: None, other: Version::ZERO };
        (index.everything, index.last_ddl) = (last, schema);
        index
    }

    /// The number of keys that are remembered apart, at most [`KEYS_MAX`].
    pub fn keys_remembered(&self) -> usize {
        self.ages.len()
    }

    /// An index that takes no record in the log as needed. It is wrong, and exists to show that a checker notices (see `Rules`).
    pub(crate) fn forgetful(last: Version) -> Self {
        Self {
            tables: BTreeMap::new(),
            everything: Version::ZERO,
            unbounded: Stamp::default(),
            any: Stamp { last, home: None, other: Version::ZERO },
            durable: last,
            last_ddl: Version::ZERO,
            ages: VecDeque::new(),
            keys_max: KEYS_MAX,
            keeps_claims: true,
        }
    }

    /// Sets how many keys are remembered apart. Without `keeps_claims` it is wrong, as above.
    #[must_use]
    pub(crate) fn remembering(self, keys_max: usize, keeps_claims: bool) -> Self {
        Self { keys_max, keeps_claims, ..self }
    }

    /// The next version is assigned to a transaction of this home.
    pub fn assign(&mut self, version: Version, home: ReplicaId, written: Written<'_>, claims: &Claims) {
        assert_eq!(version, self.any.last.next(), "versions are assigned in order");
        self.any.note(version, Some(home));
        if written.everything {
            self.everything = version;
        }
        // Every read may need a schema change, although it claims no more than the definitions that it changes.
        if claims.everything {
            self.unbounded.note(version, Some(home));
        }
        for id in &claims.tables {
            let table = self.tables.entry(*id).or_default();
            table.whole.note(version, Some(home));
            table.touched.note(version, Some(home));
            (table.written, table.made) = (version, version);
        }
        let stamps: [fn(&mut Key) -> &mut Stamp; 3] =
            [|key| &mut key.written, |key| &mut key.shared, |key| &mut key.grouped];
        for (rows, stamp) in [&claims.rows, &claims.shared, &claims.groups].into_iter().zip(stamps) {
            for (id, hash) in rows {
                let table = self.tables.entry(*id).or_default();
                table.touched.note(version, Some(home));
                stamp(table.keys.entry(*hash).or_default()).note(version, Some(home));
                self.ages.push_back((version, *id, *hash));
            }
        }
        for (id, hash) in claims.rows.iter().chain(&claims.groups) {
            let key = self.tables.get_mut(id).and_then(|table| table.keys.get_mut(hash));
            if let Some(key) = key {
                key.change(version, written.columns_of(*id));
            }
        }
        for id in written.tables {
            let table = self.tables.entry(*id).or_default();
            table.written = version;
            match written.columns_of(*id) {
                Some(set) => table.columns.extend(set.positions().map(|position| (position, version))),
                None => table.made = version,
            }
            if !claims.rows.iter().any(|(of, _)| of == id) {
                table.unkeyed = version;
            }
        }
        self.forget();
    }

    fn forget(&mut self) {
        while self.ages.len() > self.keys_max {
            let Some((version, id, hash)) = self.ages.pop_front() else { return };
            let Some(table) = self.tables.get_mut(&id) else { continue };
            let is_newest = |key: &Key| key.newest() == version;
            if table.keys.get(&hash).is_some_and(is_newest)
                && let Some(mut key) = table.keys.remove(&hash)
            {
                if !self.keeps_claims {
                    (key.shared, key.grouped) = (Stamp::default(), Stamp::default());
                }
                table.forgotten.merge(key);
            }
        }
    }

    /// Everything up to this version is durable; the next one, if it may have written anything, was a schema change.
    pub fn durable_to(&mut self, version: Version, everything: bool) {
        assert_eq!(version, self.durable.next(), "versions become durable in order");
        self.durable = version;
        if everything {
            self.last_ddl = version;
        }
    }

    /// The last needed version.
    pub fn last(&self) -> Version {
        self.durable
    }

    /// The last needed version after which a catalogue may be out of date.
    pub fn last_ddl(&self) -> Version {
        self.last_ddl
    }

    /// The version that a replica must have applied before it may serve these reads.
    pub fn need(&self, reads: &Reads) -> Version {
        let writer = match reads {
            Reads::Catalogue => self.last_ddl,
            reads => self.writer(reads),
        };
        writer.min(self.durable)
    }

    /// The last assigned version that wrote any of this, or may have changed definitions that it rests on.
    pub fn writer(&self, reads: &Reads) -> Version {
        self.writer_since(reads, self.everything)
    }

    /// The last assigned version that wrote any of this. A schema change counts as a write of what it claims. A transaction that
    /// has read other things was analysed correctly all the time ([`super::schema_changes`]).
    pub fn overwriter(&self, reads: &Reads) -> Version {
        self.writer_since(reads, self.unbounded.last)
    }

    fn writer_since(&self, reads: &Reads, floor: Version) -> Version {
        match reads {
            Reads::All | Reads::Catalogue => self.any.last,
            Reads::Tables(tables) => {
                tables.iter().map(|id| self.table_writer(*id, None)).fold(floor, Version::max)
            }
            Reads::Rows(footprint) => {
                let Footprint { tables, rows, .. } = &**footprint;
                let of_table = |id: &TableId| self.table_writer(*id, footprint.columns_of(*id));
                let of_row = |row: &(TableId, u64)| self.row_writer(*row, footprint.columns_of(row.0));
                let tables = tables.iter().map(of_table);
                tables.chain(rows.iter().map(of_row)).fold(floor, Version::max)
            }
        }
    }

    /// The claim on which the version of [`VersionIndex::overwriter`] meets these reads, if it is known.
    pub fn written_at(&self, reads: &Reads) -> Option<Meeting> {
        let of_tables;
        let footprint = match reads {
            Reads::All | Reads::Catalogue => return None,
            Reads::Tables(tables) => {
                of_tables = Footprint { tables: tables.to_vec(), ..Footprint::default() };
                &of_tables
            }
            Reads::Rows(footprint) => &**footprint,
        };
        let Footprint { tables, rows, columns } = footprint;
        let of = |id: TableId| columns.iter().find(|(of, _)| *of == id).map(|(_, set)| *set);
        let rows = rows
            .iter()
            .map(|row| (self.row_writer(*row, of(row.0)), Meeting { table: row.0, row: Some(row.1) }));
        let tables =
            tables.iter().map(|id| (self.table_writer(*id, of(*id)), Meeting { table: *id, row: None }));
        let last = tables.chain(rows).max_by_key(|(version, _)| *version);
        last.filter(|(version, _)| *version > self.unbounded.last).map(|(_, meeting)| meeting)
    }

    fn table_writer(&self, id: TableId, columns: Option<ColumnSet>) -> Version {
        let Some(table) = self.tables.get(&id) else { return Version::ZERO };
        let Some(set) = columns else { return table.written };
        let read = table.columns.iter().filter(|(position, _)| set.contains(**position));
        read.map(|(_, version)| *version).fold(table.made, Version::max)
    }

    fn row_writer(&self, (id, hash): (TableId, u64), columns: Option<ColumnSet>) -> Version {
        let Some(table) = self.tables.get(&id) else { return Version::ZERO };
        let key = table.keys.get(&hash).map_or(Version::ZERO, |key| key.changed(columns));
        key.max(table.whole.last).max(table.unkeyed).max(table.forgotten.changed(columns))
    }

    /// The last assigned version of another home that conflicts with these claims, and the claim on which they meet.
    pub fn foreign(&self, claims: &Claims, home: ReplicaId) -> (Version, Option<Meeting>) {
        let (version, meeting) = self.newest(claims, |stamp| (stamp.foreign(home), None));
        (version.0, meeting)
    }

    /// The last assigned version of another home that claims one of these tables as a whole, or everything.
    pub fn foreign_whole(&self, claims: &Claims, home: ReplicaId) -> Version {
        let whole = claims.tables.iter().filter_map(|id| self.tables.get(id)).map(|table| table.whole);
        let all = whole.chain([self.unbounded]).map(|stamp| stamp.foreign(home));
        all.max().unwrap_or_default()
    }

    /// The last assigned version of any home that conflicts with these claims, and that home.
    pub fn claimer(&self, claims: &Claims) -> (Version, Option<ReplicaId>) {
        self.newest(claims, |stamp| (stamp.last, stamp.home)).0
    }

    fn newest(
        &self,
        claims: &Claims,
        of: impl Fn(Stamp) -> (Version, Option<ReplicaId>),
    ) -> ((Version, Option<ReplicaId>), Option<Meeting>) {
        if claims.everything {
            return (of(self.any), None);
        }
        let mut newest = (of(self.unbounded), None);
        let mut note = |found: (Version, Option<ReplicaId>), table: TableId, row: Option<u64>| {
            if found.0 > newest.0.0 {
                newest = (found, Some(Meeting { table, row }));
            }
        };
        for id in &claims.tables {
            if let Some(table) = self.tables.get(id) {
                note(of(table.touched), *id, None);
            }
        }
        let lists =
            [(&claims.rows, true, true), (&claims.shared, false, true), (&claims.groups, true, false)];
        for (rows, meets_shared, meets_grouped) in lists {
            for (id, hash) in rows {
                let Some(table) = self.tables.get(id) else { continue };
                note(of(table.whole), *id, None);
                // A forgotten key may have been this one.
                let known = table.keys.get(hash).map(|key| (key, Some(*hash)));
                for (key, row) in [Some((&table.forgotten, None)), known].into_iter().flatten() {
                    note(of(key.written), *id, row);
                    if meets_shared {
                        note(of(key.shared), *id, row);
                    }
                    if meets_grouped {
                        note(of(key.grouped), *id, row);
                    }
                }
            }
        }
        newest
    }
}

#[cfg(test)]
mod tests;
