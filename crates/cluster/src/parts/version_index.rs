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
//! Bounded: the oldest keys are forgotten, and stand for their whole table from then on.
//!
//! Non-goal: columns.

use std::collections::{BTreeMap, VecDeque};

use crate::claims::{Claims, Footprint};
use crate::event::Reads;
use crate::ids::{ReplicaId, TableId, Version};

/// Most keys remembered apart, counted once for each version that touched them.
pub const KEYS_MAX: usize = 200_000;

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
}

impl Key {
    fn newest(&self) -> Version {
        self.written.last.max(self.shared.last).max(self.grouped.last)
    }

    fn merge(&mut self, of: Self) {
        self.written.merge(of.written);
        self.shared.merge(of.shared);
        self.grouped.merge(of.grouped);
    }

    /// The last version that changed what is read by this.
    fn changed(&self) -> Version {
        self.written.last.max(self.grouped.last)
    }
}

#[derive(Clone, Debug, Default)]
struct Table {
    /// Rows were written, or all of it was claimed: what a read of the table needs.
    written: Version,
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
}

impl VersionIndex {
    /// A new leader takes every record that is in the log as needed, by everything (DESIGN section 6).
    pub fn recovered(last: Version) -> Self {
        let mut index = Self::forgetful(last);
        index.unbounded = Stamp { last, home: None, other: Version::ZERO };
        (index.everything, index.last_ddl) = (last, last);
        index
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
        }
    }

    /// The next version is assigned to a transaction of this home. It wrote these tables, or anything.
    pub fn assign(
        &mut self,
        version: Version,
        home: ReplicaId,
        (tables, everything): (&[TableId], bool),
        claims: &Claims,
    ) {
        assert_eq!(version, self.any.last.next(), "versions are assigned in order");
        self.any.note(version, Some(home));
        if everything {
            self.everything = version;
        }
        if everything || claims.everything {
            self.unbounded.note(version, Some(home));
        }
        for id in &claims.tables {
            let table = self.tables.entry(*id).or_default();
            table.whole.note(version, Some(home));
            table.touched.note(version, Some(home));
            table.written = version;
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
        for id in tables {
            let table = self.tables.entry(*id).or_default();
            table.written = version;
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
                && let Some(key) = table.keys.remove(&hash)
            {
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

    /// The last assigned version that wrote any of this.
    pub fn writer(&self, reads: &Reads) -> Version {
        let of_tables = |tables: &[TableId]| {
            let written = |id: &TableId| self.tables.get(id).map_or(Version::ZERO, |table| table.written);
            tables.iter().map(written).fold(self.everything, Version::max)
        };
        match reads {
            Reads::All | Reads::Catalogue => self.any.last,
            Reads::Tables(tables) => of_tables(tables),
            Reads::Rows(footprint) => {
                let Footprint { tables, rows } = &**footprint;
                rows.iter().map(|row| self.row_writer(*row)).fold(of_tables(tables), Version::max)
            }
        }
    }

    fn row_writer(&self, (id, hash): (TableId, u64)) -> Version {
        let Some(table) = self.tables.get(&id) else { return Version::ZERO };
        let key = table.keys.get(&hash).map_or(Version::ZERO, Key::changed);
        key.max(table.whole.last).max(table.unkeyed).max(table.forgotten.changed())
    }

    /// The last assigned version of any other home that claims something of this, and the table where they meet.
    pub fn foreign(&self, claims: &Claims, home: ReplicaId) -> (Version, Option<TableId>) {
        let (version, table) = self.newest(claims, |stamp| (stamp.foreign(home), None));
        (version.0, table)
    }

    /// The last assigned version of any home that claims something of this, and that home.
    pub fn claimer(&self, claims: &Claims) -> (Version, Option<ReplicaId>) {
        self.newest(claims, |stamp| (stamp.last, stamp.home)).0
    }

    fn newest(
        &self,
        claims: &Claims,
        of: impl Fn(Stamp) -> (Version, Option<ReplicaId>),
    ) -> ((Version, Option<ReplicaId>), Option<TableId>) {
        if claims.everything {
            return (of(self.any), None);
        }
        let mut newest = (of(self.unbounded), None);
        let mut note = |found: (Version, Option<ReplicaId>), id: TableId| {
            if found.0 > newest.0.0 {
                newest = (found, Some(id));
            }
        };
        for id in &claims.tables {
            if let Some(table) = self.tables.get(id) {
                note(of(table.touched), *id);
            }
        }
        let lists =
            [(&claims.rows, true, true), (&claims.shared, false, true), (&claims.groups, true, false)];
        for (rows, meets_shared, meets_grouped) in lists {
            for (id, hash) in rows {
                let Some(table) = self.tables.get(id) else { continue };
                note(of(table.whole), *id);
                for key in [Some(&table.forgotten), table.keys.get(hash)].into_iter().flatten() {
                    note(of(key.written), *id);
                    if meets_shared {
                        note(of(key.shared), *id);
                    }
                    if meets_grouped {
                        note(of(key.grouped), *id);
                    }
                }
            }
        }
        newest
    }
}

#[cfg(test)]
mod tests;
