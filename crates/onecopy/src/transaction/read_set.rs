//! The reads of a SERIALIZABLE transaction, for certification when it commits.

use cluster::claims::{Claims, Footprint};
use cluster::event::Reads;
use sql::Isolation;

use crate::classify::footprint::settle;

/// At SERIALIZABLE a transaction reserves the rows that it reads by key. So a transaction that reads and then writes
/// waits instead of failing.
pub(crate) fn lock_reads(isolation: Isolation, reads: &Reads, writes: &mut Claims) {
    if let (Isolation::Serializable, Reads::Rows(rows)) = (isolation, reads) {
        writes.rows.extend(rows.rows.iter().filter(|(table, _)| !writes.tables.contains(table)));
        writes.rows.sort_unstable();
        writes.rows.dedup();
    }
}

/// The reads of a SERIALIZABLE transaction so far.
#[derive(Debug, Default)]
pub(crate) struct ReadSet {
    rows: Footprint,
    everything: bool,
    /// A statement may have written. It has met present rows as well as rows of its snapshot. So the transaction leaves
    /// a record that is certified, even if no write is left.
    pub(crate) may_have_written: bool,
}

impl ReadSet {
    pub(crate) fn add(&mut self, reads: &Reads) {
        match reads {
            Reads::Tables(tables) => {
                self.rows.add(&Footprint { tables: tables.to_vec(), ..Footprint::default() });
            }
            Reads::Rows(more) => self.rows.add(more),
            Reads::Catalogue | Reads::All => self.everything = true,
        }
        settle(&mut self.rows);
    }

    /// Takes all reads.
    pub(crate) fn take(&mut self) -> Reads {
        if self.everything { Reads::All } else { Reads::Rows(std::mem::take(&mut self.rows).into()) }
    }
}

#[cfg(test)]
mod tests {
    use cluster::ids::DatabaseId;

    use super::*;

    fn rows(rows: &[(u32, u64)]) -> Footprint {
        Footprint {
            rows: rows.iter().map(|(t, row)| (DatabaseId::FIRST.table(*t), *row)).collect(),
            ..Footprint::default()
        }
    }

    #[test]
    fn a_table_covers_its_rows() {
        let mut read = ReadSet::default();
        read.add(&Reads::Rows(rows(&[(1, 7), (2, 8)]).into()));
        read.add(&Reads::Tables([DatabaseId::FIRST.table(1)].into()));
        let Reads::Rows(all) = read.take() else { panic!("rows were read") };
        assert_eq!(
            (all.tables.clone(), all.rows.clone()),
            (vec![DatabaseId::FIRST.table(1)], vec![(DatabaseId::FIRST.table(2), 8)])
        );
    }

    #[test]
    fn the_catalogue_stands_for_everything() {
        let mut read = ReadSet::default();
        read.add(&Reads::Rows(rows(&[(1, 7)]).into()));
        read.add(&Reads::Catalogue);
        assert!(matches!(read.take(), Reads::All));
    }

    #[test]
    fn only_serializable_reserves_what_it_reads() {
        let reads = Reads::Rows(rows(&[(1, 7), (2, 8)]).into());
        let mut writes = Claims { tables: vec![DatabaseId::FIRST.table(2)], ..Claims::default() };
        lock_reads(Isolation::RepeatableRead, &reads, &mut writes);
        assert_eq!(writes.rows, []);
        lock_reads(Isolation::Serializable, &reads, &mut writes);
        assert_eq!(writes.rows, [(DatabaseId::FIRST.table(1), 7)]);
    }
}
