//! The database of the simulated world: a few rows in ten tables.
//!
//! | table | content |
//! |---|---|
//! | 0 | the catalogue: its one row is the definition of a view; each DDL turns the view from table 1 to 2 and back |
//! | 1, 2, 3 | rows that always exist |
//! | 4 | rows that are inserted and deleted; rows 0 and 1 have one unique value, rows 2 and 3 another |
//! | 5 | parents, which are inserted and deleted |
//! | 6 | children: row `c` refers to parent `c / 2` |
//! | 7 | accounts of a bank; their total is always 0 |
//! | 8 | visitors, inserted and deleted, for reads by predicates; rows 0 and 1 are a group, 2 and 3 another |
//! | 9 | stock, inserted many rows at a time; rows 4 and 5 refer to parents 0 and 1, rows 6 and 7 have one unique value |
//!
//! The value of a row is the list of all writes to it, deletions included, so that one read shows its whole history (the
//! list-append workload of Jepsen's Elle).

use std::collections::BTreeMap;

use cluster::ids::{DatabaseId, PartId, ReplicaId, TableId};
use cluster::placement::{Copies, Holdings, Placement, ReplicaSet};
use cluster::protocols::rows::HomePolicy;

use crate::dice::Dice;
use crate::history::Element;

/// The database of all tables.
pub const DATABASE: DatabaseId = DatabaseId(1);
/// The table with the definition of the view.
pub const CATALOGUE: u8 = 0;
/// The table with unique values.
pub const UNIQUE: u8 = 4;
/// The table of parents.
pub const PARENTS: u8 = 5;
/// The table of children.
pub const CHILDREN: u8 = 6;
/// The table of accounts.
pub const ACCOUNTS: u8 = 7;
/// The table of visitors.
pub const VISITORS: u8 = 8;
/// The table for inserts of many rows at a time.
pub const STOCK: u8 = 9;
/// Not a table: the number under which unique values are locked.
pub const UNIQUE_VALUES: u8 = 100;
/// Not a table: the number under which whole tables are locked.
pub const WHOLE_TABLES: u8 = 101;
/// The view's definition, in claims.
pub const VIEW_NAME: u64 = 100;
/// Rows of each table except the stock.
pub const ROWS: u8 = 4;
/// Parts of each table that is split.
pub const PARTS: u8 = 2;
/// The columns by which tables may be split.
pub const COLUMNS: [&str; 2] = ["first", "second"];
/// Rows of the stock.
pub const STOCK_ROWS: u8 = 8;

/// The bytes of each table when the log is empty.
pub const TABLE_BYTES: u64 = 1 << 20;
/// Each table is larger by [`TABLE_BYTES`] after so many records.
pub const GROWTH_RECORDS: u64 = 16;
/// A replica has memory for two tables, until they grow.
pub const BY_MEMORY: HomePolicy = HomePolicy::ByMemory { memory_bytes: 2 * TABLE_BYTES };

/// One row.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Key {
    /// The table.
    pub table: u8,
    /// The number of the row in it.
    pub row: u8,
}

impl Key {
    /// The row of the catalogue.
    pub const VIEW: Self = Self { table: CATALOGUE, row: 0 };

    /// The row as a number, for histories.
    pub fn number(self) -> u32 {
        u32::from(self.table) * 100 + u32::from(self.row)
    }

    /// The row with this number.
    pub fn of_number(number: u32) -> Self {
        Self { table: (number / 100) as u8, row: (number % 100) as u8 }
    }

    /// Its table, as the core names it.
    pub fn table_id(self) -> TableId {
        DATABASE.table(u32::from(self.table))
    }

    /// The row's unique value as a key to lock, if it has one.
    pub fn unique_value(self) -> Option<Self> {
        let value = match (self.table, self.row) {
            (UNIQUE, row) => row / 2,
            (STOCK, 6 | 7) => ROWS,
            _ => return None,
        };
        Some(Self { table: UNIQUE_VALUES, row: value })
    }

    /// The other row with the same unique value.
    pub fn twin(self) -> Option<Self> {
        self.unique_value().map(|_| Self { row: self.row ^ 1, ..self })
    }

    /// The row that this one refers to.
    pub fn parent(self) -> Option<Self> {
        let row = match (self.table, self.row) {
            (CHILDREN, row) => row / 2,
            (STOCK, 4 | 5) => self.row - 4,
            _ => return None,
        };
        Some(Self { table: PARENTS, row })
    }

    /// Its table, as a key to lock.
    #[must_use]
    pub fn whole_table(self) -> Self {
        Self { table: WHOLE_TABLES, row: self.table }
    }

    /// The rows that may refer to this one.
    pub fn children(self) -> impl Iterator<Item = Self> {
        let row = (self.table == PARENTS && self.row < ROWS / 2).then_some(self.row);
        let children = |table, row| Self { table, row };
        row.into_iter().flat_map(move |row| {
            [children(CHILDREN, row * 2), children(CHILDREN, row * 2 + 1), children(STOCK, row + 4)]
        })
    }

    /// The group of the row, if its table has groups.
    pub fn group(self) -> Option<u8> {
        (self.table == VISITORS).then_some(self.row / 2)
    }

    /// Its part if its table is split by this column, which is the first or the second. The columns differ by one.
    pub fn part(self, column: &str) -> PartId {
        let value = match (self.table, self.row) {
            (UNIQUE | CHILDREN | VISITORS, row) | (STOCK, row @ (6 | 7)) => row / 2,
            (_, row) => row,
        };
        PartId((value + u8::from(column == COLUMNS[1])) % PARTS)
    }

    /// Whether a constraint ties rows of its table to other rows.
    pub fn is_tied(self) -> bool {
        matches!(self.table, UNIQUE | PARENTS | CHILDREN)
    }

    /// Whether the row exists at the start.
    pub fn is_present_at_start(self) -> bool {
        !matches!(self.table, UNIQUE | CHILDREN | VISITORS | STOCK)
    }
}

/// The rows of a table.
pub fn rows_of(table: u8) -> impl Iterator<Item = Key> {
    let rows = if table == STOCK { STOCK_ROWS } else { ROWS };
    (0..rows).map(move |row| Key { table, row })
}

/// Every row of the database.
pub fn keys() -> impl Iterator<Item = Key> {
    let rows = (1..=STOCK).flat_map(rows_of);
    std::iter::once(Key::VIEW).chain(rows)
}

/// The tables that the view reads in turn.
pub const VIEW_TABLES: [u8; 2] = [1, 2];

/// The table that the view reads after this many changes of its definition.
pub fn view_target(changes: usize) -> u8 {
    VIEW_TABLES[changes % VIEW_TABLES.len()]
}

/// The content of a row.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Whether it exists.
    pub present: bool,
    /// Every element written to it, in order.
    pub list: Vec<Element>,
    /// The balance of an account.
    pub balance: i64,
}

impl Row {
    /// The row at the start.
    pub fn first(key: Key) -> Self {
        Self { present: key.is_present_at_start(), list: Vec::new(), balance: 0 }
    }

    /// The row after one more write, which may have moved money.
    #[must_use]
    pub fn then(&self, element: Element, present: bool, amount: i64) -> Self {
        let mut list = Vec::with_capacity(self.list.len() + 1);
        list.extend_from_slice(&self.list);
        list.push(element);
        Self { present, list, balance: self.balance + amount }
    }

    /// The row as an image of a record.
    pub fn encode(&self, key: Key) -> Vec<u8> {
        let mut bytes = vec![key.row, u8::from(self.present)];
        bytes.extend_from_slice(&self.balance.to_le_bytes());
        self.list.iter().for_each(|element| bytes.extend_from_slice(&element.to_le_bytes()));
        bytes
    }

    /// Reads an image.
    pub fn decode(table: TableId, bytes: &[u8]) -> (Key, Self) {
        let element = |b: &[u8]| Element::from_le_bytes(b.try_into().expect("chunks of eight bytes"));
        let list = bytes[10..].chunks_exact(8).map(element).collect();
        let balance = i64::from_le_bytes(bytes[2..10].try_into().expect("eight bytes"));
        (Key { table: table.number as u8, row: bytes[0] }, Self { present: bytes[1] != 0, list, balance })
    }
}

/// All rows after some version of the log.
pub type Rows = BTreeMap<Key, Row>;

/// The rows at the start.
pub fn first_rows() -> Rows {
    keys().map(|key| (key, Row::first(key))).collect()
}

/// Draws the placement: full, or with some tables or their parts at some replicas only. Replica 0 holds everything.
pub fn draw_placement(dice: &mut Dice, replicas: u16) -> Placement {
    let mut placement = Placement::full(replicas);
    if dice.percent(50) {
        for table in 1..=STOCK {
            if !dice.percent(40) {
                continue;
            }
            let mut draw = || {
                let drawn = (1..replicas).filter(|_| dice.percent(50)).map(ReplicaId);
                drawn.fold(ReplicaSet::EMPTY.with(ReplicaId(0)), ReplicaSet::with)
            };
            let copies = match draw() {
                whole if table % 2 == 0 => Copies::Whole(whole),
                first => split(COLUMNS[0], [first, draw()]),
            };
            // A replica that joins later holds the tables without a restriction.
            let everyone = ReplicaSet::first(replicas);
            if copies.of_all_rows(everyone) != everyone {
                placement.restrict(DATABASE.table(u32::from(table)), copies);
            }
        }
    }
    placement
}

/// The copies of a table that is split.
pub fn split(column: &str, holders: [ReplicaSet; PARTS as usize]) -> Copies {
    Copies::Parts { column: column.into(), holders: holders.into() }
}

/// The part of a row, if its table is split.
pub fn part(placement: &Placement, key: Key) -> Option<PartId> {
    placement.copies(key.table_id()).split().map(|(column, _)| key.part(column))
}

/// Whether the replica has a copy of the row. Definitions are at every replica, whatever holds the rows of their tables.
pub fn holds(placement: &Placement, replica: usize, key: Key) -> bool {
    is_held(&placement.holdings(ReplicaId(replica as u16)), key)
}

/// The same by what a replica holds.
pub fn is_held(holdings: &Holdings, key: Key) -> bool {
    let part = holdings.split(key.table_id()).map(|(column, _)| key.part(column));
    key.table == CATALOGUE || holdings.holds_row(key.table_id(), part)
}

/// Whether some replica holds only part of the tables.
pub fn is_partial(placement: &Placement, replicas: u16) -> bool {
    !(0..usize::from(replicas)).all(|replica| keys().all(|key| holds(placement, replica, key)))
}
