//! Who wrote and who claimed what last: which version a statement needs, and the certifier.
//!
//! *Needs.* The sequence numbers of conflict-aware scheduling (section 3: "the scheduler ... tags each query with the
//! version numbers of the tables it reads"), taken from the log's order and as fine as keys. A version enters when it is
//! assigned; reads need what is durable, since from then on every read that begins needs it *and every version before
//! it* (DESIGN section 3, Visibility; without the prefix, partial replication shows a long fork: spec FINDINGS section
//! 2). Of a writer that is not durable yet, the last durable version stands in: that is never too little.
//!
//! *Certification.* A transaction of one home passes unless another home's version, newer than what its statement was
//! known to see, claims what it claims (DESIGN section 3, "Certification and integrity"). Versions of its own home were
//! ordered by PostgreSQL's locks there, and each of them was certified itself, so only the last version of *other* homes
//! counts; that is why a [`Stamp`] remembers two. What a SERIALIZABLE transaction has read is certified against versions
//! of every home: nothing locks it.
//!
//! *Columns.* A read of some columns does not need a version that only changed others of rows that stay. A table
//! remembers the last version that changed each column so; a key or group, which there are many of, only all columns that
//! were changed since the last version of any other kind. Which columns a table has changes with schema changes alone,
//! and everything needs those.
//!
//! Bounded: the oldest keys are forgotten, and stand for their whole table from then on.

use std::collections::{BTreeMap, VecDeque};

use crate::claims::{Claims, ColumnSet, Footprint, Meeting};
use crate::event::Reads;
use crate::ids::{ReplicaId, TableId, Version};

/// Most keys remembered apart, counted once for each version that touched them.
pub const KEYS_MAX: usize = 200_000;

/// Bytes that one of them takes, roughly: its entry in a tree that is two thirds full, and its place in the order of age.
pub const KEY_BYTES: usize = size_of::<(u64, Key)>() * 3 / 2 + size_of::<(Version, TableId, u64)>();

/// The last version of something, and the last one of any other home than that one's.
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
        // Whose the other one is, is not known any more: to be safe, nobody's own.
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
    /// Of a group: rows of it were written.
    grouped: Stamp,
    /// The last version that wrote it in another way than by changing columns that are known.
    made: Version,
    /// What was changed since.
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

    /// It was written by this version, where `changed` is known in these columns only.
    fn change(&mut self, version: Version, changed: Option<ColumnSet>) {
        if let Some(set) = changed {
            self.columns = self.columns.union(set);
        } else {
            (self.made, self.columns) = (version, ColumnSet::EMPTY);
        }
    }

    /// The last version that changed what is read of these columns, or all, by this.
    fn changed(&self, columns: Option<ColumnSet>) -> Version {
        match columns {
            Some(set) if !set.overlaps(self.columns) => self.made,
            _ => self.written.last.max(self.grouped.last),
        }
    }
}

/// What a version wrote.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The tables that have changed rows.
    pub tables: &'a [TableId],
    /// Of these, the ones of which no row came or went, and only these columns of rows were changed.
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
    /// Rows were written, or all of it was claimed: what a read of all columns needs.
    written: Version,
    /// The same in another way than by changing columns that are known: what any read of the table needs.
    made: Version,
    /// The last version that changed a column of rows that stay, by position.
    columns: BTreeMap<usize, Version>,
    /// Rows were written without a claim on their keys.
    unkeyed: Version,
    /// Claimed as a whole.
    whole: Stamp,
    /// Anything in it was claimed.
    touched: Stamp,
    keys: BTreeMap<u64, Key>,
    /// Of the keys that were forgotten.
    forgotten: Key,
}

/// Who wrote and claimed everything last.
#[derive(Clone, Debug)]
pub struct VersionIndex {
    tables: BTreeMap<TableId, Table>,
    /// May have written anything, as a schema change may.
    everything: Version,
    /// Claimed anything.
    unbounded: Stamp,
    /// All.
    any: Stamp,
    durable: Version,
    last_ddl: Version,
    ages: VecDeque<(Version, TableId, u64)>,
    keys_max: usize,
    /// What was claimed without being written of forgotten keys is kept.
    keeps_claims: bool,
}

impl VersionIndex {
    /// A new leader takes every record that is in the log as needed, by everything (DESIGN section 6).
    pub fn recovered(last: Version) -> Self {
        let mut index = Self::forgetful(last);
        index.unbounded = Stamp { last, home: None, other: Version::ZERO };
        (index.everything, index.last_ddl) = (last, last);
        index
    }

    /// How many keys are remembered apart, at most [`KEYS_MAX`].
    pub fn keys_remembered(&self) -> usize {
        self.ages.len()
    }

    /// As if nothing in the log had been seen by anybody: wrong, and there to show that it is (see `Rules`).
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

    /// Remembers so many keys apart; without `keeps_claims` wrongly, as above.
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
        // A schema change may be needed by everything and yet claim no more than what it defines anew.
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

    /// The version that a replica must have applied before it may serve this.
    pub fn need(&self, reads: &Reads) -> Version {
        let writer = match reads {
            Reads::Catalogue => self.last_ddl,
            reads => self.writer(reads),
        };
        writer.min(self.durable)
    }

    /// The last assigned version that wrote any of this, or may have changed what it means.
    pub fn writer(&self, reads: &Reads) -> Version {
        self.writer_since(reads, self.everything)
    }

    /// The last assigned version that wrote any of this. A schema change has written what it claims. A transaction
    /// that has read anything else had the right conclusions all the time ([`super::schema_changes`]).
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

    /// Where the last one of [`VersionIndex::overwriter`] has written, if that is known.
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

    /// The last assigned version of any other home that claims something of this, and where they meet.
    pub fn foreign(&self, claims: &Claims, home: ReplicaId) -> (Version, Option<Meeting>) {
        let (version, meeting) = self.newest(claims, |stamp| (stamp.foreign(home), None));
        (version.0, meeting)
    }

    /// The last assigned version of any other home that claims one of these tables as a whole, or anything.
    pub fn foreign_whole(&self, claims: &Claims, home: ReplicaId) -> Version {
        let whole = claims.tables.iter().filter_map(|id| self.tables.get(id)).map(|table| table.whole);
        let all = whole.chain([self.unbounded]).map(|stamp| stamp.foreign(home));
        all.max().unwrap_or_default()
    }

    /// The last assigned version of any home that claims something of this, and that home.
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
                // What is forgotten may have been any key.
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
