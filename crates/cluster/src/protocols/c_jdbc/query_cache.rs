//! Which answers may be given again: the query result cache (section 2.2.2), without the answers.
//!
//! The paper names the component and no more. Our reading: an answer of a read outside a transaction is given again until a write to a
//! table that it reads gets its number; with [`Granularity::Database`], until any write does. For example:
//!
//! ```text
//! read of item       no open transaction has written item; moment 4      -> kept as of moment 4
//! UPDATE of item     moment 5: item was written                          -> the answer is not given any more
//! read of item       that transaction is not over at all replicas        -> not kept
//! ```
//!
//! Invariant: an answer that may be given is that of all transactions that are over, and no other transaction has written its tables.
//! So it is as fresh as a read under any early response, at any level. Why: when its read was sent, each transaction that had written
//! its tables was over at all replicas, and until its reply no other wrote them.
//!
//! Not here: answers, texts, roles and settings. The cache is memory of the controller, and its loss empties it.

use std::collections::{BTreeMap, BTreeSet};

use super::Rules;
use super::message::{Tables, TransactionId};
use crate::ids::TableId;
use crate::parts::lock_queues::Mode;

/// Tables, settings of sessions among them, of which the last write is known. With more, all present answers end.
const TABLES_MAX: usize = 4096;

/// What a write makes obsolete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Granularity {
    /// All answers.
    Database,
    /// Answers from its tables.
    Table,
}

/// A place among all writes: so many had got their numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Moment(u64);

/// The writes of one part of the database.
#[derive(Debug, Default)]
struct Part {
    last: Moment,
    /// Transactions that have written it, and are not over at all replicas.
    open: BTreeSet<TransactionId>,
}

/// Who has written what last.
#[derive(Debug)]
pub(super) struct Writings {
    granularity: Granularity,
    rules: Rules,
    now: Moment,
    whole: Part,
    tables: BTreeMap<TableId, Part>,
    /// What is not in `tables` was not written after this moment.
    floor: Moment,
    /// The tables that transactions have written, until they are over.
    written: BTreeMap<TransactionId, BTreeSet<TableId>>,
}

impl Writings {
    pub(super) fn new(granularity: Granularity, rules: Rules) -> Self {
        Self {
            granularity,
            rules,
            now: Moment::default(),
            whole: Part::default(),
            tables: BTreeMap::new(),
            floor: Moment::default(),
            written: BTreeMap::new(),
        }
    }

    /// A statement of the transaction got its number, or runs at a replica: it writes some of these.
    pub(super) fn wrote(&mut self, transaction: TransactionId, tables: &Tables) {
        let written = tables.iter().filter(|(_, mode)| *mode == Mode::Write);
        for (table, _) in written {
            self.now.0 += 1;
            let part = match self.granularity {
                Granularity::Database => &mut self.whole,
                Granularity::Table => {
                    self.written.entry(transaction).or_default().insert(*table);
                    self.tables.entry(*table).or_default()
                }
            };
            part.last = self.now;
            part.open.insert(transaction);
        }
    }

    /// The transaction is over at all replicas.
    pub(super) fn over(&mut self, transaction: TransactionId) {
        self.whole.open.remove(&transaction);
        for table in self.written.remove(&transaction).unwrap_or_default() {
            if let Some(part) = self.tables.get_mut(&table) {
                part.open.remove(&transaction);
            }
        }
        if self.tables.len() > TABLES_MAX {
            self.tables.retain(|_, part| !part.open.is_empty());
            self.floor = self.now;
        }
    }

    /// The present moment, if what is read of these tables now may be kept.
    pub(super) fn moment(&self, tables: &Tables) -> Option<Moment> {
        let is_read_only = tables.iter().all(|(_, mode)| *mode == Mode::Read);
        let has_writers = self.parts(tables).any(|part| !part.open.is_empty());
        (is_read_only && !(has_writers && self.rules.open_writers_count)).then_some(self.now)
    }

    /// Whether none of these was written since.
    pub(super) fn are_unwritten(&self, tables: &Tables, since: Moment) -> bool {
        let is_unwritten = since >= self.floor && self.parts(tables).all(|part| part.last <= since);
        is_unwritten || !self.rules.writes_end_answers
    }

    fn parts<'a>(&'a self, tables: &'a Tables) -> impl Iterator<Item = &'a Part> + 'a {
        let whole = (self.granularity == Granularity::Database).then_some(&self.whole);
        whole.into_iter().chain(tables.iter().filter_map(|(table, _)| self.tables.get(table)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::DatabaseId;

    const T1: TransactionId = TransactionId(1);

    fn tables(list: &[(u32, Mode)]) -> Tables {
        list.iter().map(|(number, mode)| (DatabaseId::FIRST.table(*number), *mode)).collect()
    }

    fn reads(number: u32) -> Tables {
        tables(&[(number, Mode::Read)])
    }

    #[test]
    fn an_answer_lasts_until_one_of_its_tables_is_written() {
        let mut writings = Writings::new(Granularity::Table, Rules::default());
        let both = tables(&[(1, Mode::Read), (2, Mode::Read)]);
        let moment = writings.moment(&both).unwrap();
        writings.wrote(T1, &tables(&[(3, Mode::Write), (1, Mode::Read)]));
        assert!(writings.are_unwritten(&both, moment), "table 1 was only read");
        writings.wrote(T1, &tables(&[(2, Mode::Write)]));
        assert!(!writings.are_unwritten(&both, moment));
        assert!(writings.are_unwritten(&reads(1), moment));
    }

    #[test]
    fn nothing_is_kept_of_a_table_until_its_writer_is_over() {
        let mut writings = Writings::new(Granularity::Table, Rules::default());
        writings.wrote(T1, &tables(&[(1, Mode::Write)]));
        assert_eq!(writings.moment(&reads(1)), None);
        assert!(writings.moment(&reads(2)).is_some());
        writings.over(T1);
        let moment = writings.moment(&reads(1)).unwrap();
        assert!(writings.are_unwritten(&reads(1), moment));
    }

    #[test]
    fn by_database_any_write_counts() {
        let mut writings = Writings::new(Granularity::Database, Rules::default());
        let moment = writings.moment(&reads(1)).unwrap();
        writings.wrote(T1, &tables(&[(2, Mode::Write)]));
        assert!(!writings.are_unwritten(&reads(1), moment));
        assert_eq!(writings.moment(&reads(1)), None, "T1 is open");
    }

    #[test]
    fn what_draws_from_a_sequence_is_not_kept() {
        let mut writings = Writings::new(Granularity::Table, Rules::default());
        let draw = tables(&[(9, Mode::Write)]);
        assert_eq!(writings.moment(&draw), None);
        let moment = writings.moment(&reads(9)).unwrap();
        writings.wrote(T1, &draw);
        assert!(!writings.are_unwritten(&reads(9), moment));
    }

    #[test]
    fn only_so_many_tables_are_known() {
        let mut writings = Writings::new(Granularity::Table, Rules::default());
        writings.wrote(T1, &tables(&[(1, Mode::Write)]));
        let before = writings.moment(&reads(2)).unwrap();
        for number in 0..2 * TABLES_MAX {
            let (transaction, table) = (TransactionId(2 + number as u64), 10 + number as u32);
            writings.wrote(transaction, &tables(&[(table, Mode::Write)]));
            writings.over(transaction);
        }
        assert!(writings.tables.len() <= TABLES_MAX + 1 && writings.written.len() == 1);
        assert!(!writings.are_unwritten(&reads(2), before), "it may be one that was forgotten");
        assert_eq!(writings.moment(&reads(1)), None, "T1 is open");
        let now = writings.moment(&reads(2)).unwrap();
        assert!(writings.are_unwritten(&reads(2), now));
    }
}
