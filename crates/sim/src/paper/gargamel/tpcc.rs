//! TPC-C as the paper simulates it: ten warehouses, five kinds of transactions, Table I, and Table II as claims.
//!
//! Table II says which pairs conflict. A kind's claims are made so that [`Claims::overlaps`] says the same:
//!
//! | pair | condition | claims |
//! |---|---|---|
//! | New-Order, New-Order | one district, or a common item | the row (w, d); a row for each (supply warehouse, item) |
//! | Payment, Payment | one warehouse, or one customer | the row w; by number the row (cw, cd, c), and (cw, cd) as a group; by name (cw, cd) alone |
//! | Delivery, Delivery | one warehouse | the row "customers of w" |
//! | Delivery, Payment | w = cw | Delivery the row, Payment the group "customers of cw" |
//!
//! So two Payments by number share the group of a customer's district, and one by name has the district for itself: the classifier
//! does not know which customer it concerns.
//!
//! A transaction has two sets of claims: what the classifier predicts, and the rows that it writes. They differ where a customer is
//! chosen by name, or by a Delivery. Where a prediction is wrong, it is a false positive (section IV-A).
//!
//! *Two readings of conflicts.* Table II compares columns: New-Order writes `d_next_o_id` and Payment `d_ytd` of the same row of
//! `district`, so they do not conflict. PostgreSQL compares rows, so they do. [`Reading`] names which one a run uses.
//!
//! Not stated in the paper, so from TPC-C itself: the mix 45/43/4/4/4 (92 % updates), 15 % of Payments for a customer of another
//! warehouse, 1 % of the lines of an order from another warehouse, and the skewed choice of items and customers.

use cluster::claims::Claims;
use cluster::event::Kind as KindOfGroup;
use cluster::ids::{DatabaseId, KindId, TableId};

use super::super::open::Jittered;
use crate::dice::Dice;

/// Table I.
pub const WAREHOUSES: u64 = 10;
const DISTRICTS: u64 = 10;
const CUSTOMERS: u64 = 3_000;
const NAMES: u64 = 1_000;
const ITEMS: u64 = 100_000;
const LINES: (u64, u64) = (5, 15);
const BY_NAME_PERCENT: u64 = 60;
const OTHER_WAREHOUSE_PERCENT: u64 = 15;
const OTHER_SUPPLIER_PERCENT: u64 = 1;

/// A kind of transactions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Writes an order of 5 to 15 lines.
    NewOrder,
    /// Pays a customer's debt.
    Payment,
    /// Reads a customer's last order.
    OrderStatus,
    /// Delivers the oldest order of each district.
    Delivery,
    /// Counts items that run short.
    StockLevel,
}

impl Kind {
    /// All kinds, and how many of a hundred transactions are of each.
    pub const MIX: [(Self, u64); 5] = [
        (Self::NewOrder, 45),
        (Self::Payment, 43),
        (Self::OrderStatus, 4),
        (Self::Delivery, 4),
        (Self::StockLevel, 4),
    ];

    /// Table I: "value, mean 1, variance" is read as a value multiplied with a Gaussian factor.
    pub fn duration(self) -> Jittered {
        let (ms, variance) = match self {
            Self::NewOrder => (700.0, 0.025),
            Self::Payment => (660.0, 0.028),
            Self::OrderStatus => (680.0, 0.028),
            Self::Delivery => (660.0, 0.035),
            Self::StockLevel => (1_010.0, 0.022),
        };
        Jittered { mean_us: ms * 1e3, variance }
    }

    /// Whether it writes.
    pub fn is_update(self) -> bool {
        !matches!(self, Self::OrderStatus | Self::StockLevel)
    }

    /// Its number among the types of Tashkent+.
    pub fn id(self) -> KindId {
        KindId(self as u64)
    }

    /// The tables that its plan names, with their sizes.
    pub fn working_set(self) -> KindOfGroup {
        use Relation::{Customer, District, History, Item, NewOrders, OrderLine, Orders, Stock, Warehouse};
        let tables: &[Relation] = match self {
            Self::NewOrder => &[Warehouse, District, Customer, NewOrders, Orders, OrderLine, Item, Stock],
            Self::Payment => &[Warehouse, District, Customer, History],
            Self::OrderStatus => &[Customer, Orders, OrderLine],
            Self::Delivery => &[NewOrders, Orders, OrderLine, Customer],
            Self::StockLevel => &[District, OrderLine, Stock],
        };
        let sized = tables.iter().map(|relation| (relation.id(), relation.bytes()));
        KindOfGroup { id: self.id(), tables: sized.collect() }
    }
}

/// The memory of a worker for Tashkent+, in bytes: about two thirds of the database of ten warehouses.
pub const MEMORY_BYTES: u64 = 512 << 20;

/// The tables of TPC-C.
#[derive(Clone, Copy)]
enum Relation {
    Warehouse = 1,
    District,
    Customer,
    History,
    NewOrders,
    Orders,
    OrderLine,
    Item,
    Stock,
}

impl Relation {
    fn id(self) -> TableId {
        DatabaseId::FIRST.table(self as u32)
    }

    /// Rows of ten warehouses, times the bytes of a row with its header.
    fn bytes(self) -> u64 {
        let (rows, row_bytes) = match self {
            Self::Warehouse => (WAREHOUSES, 120),
            Self::District => (WAREHOUSES * DISTRICTS, 130),
            Self::Customer => (WAREHOUSES * DISTRICTS * CUSTOMERS, 600),
            Self::History => (WAREHOUSES * DISTRICTS * CUSTOMERS, 80),
            Self::NewOrders => (WAREHOUSES * 9_000, 40),
            Self::Orders => (WAREHOUSES * DISTRICTS * CUSTOMERS, 70),
            Self::OrderLine => (WAREHOUSES * DISTRICTS * CUSTOMERS * 10, 100),
            Self::Item => (ITEMS, 110),
            Self::Stock => (WAREHOUSES * ITEMS, 350),
        };
        rows * row_bytes
    }
}

/// Which transactions conflict.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reading {
    /// Those that write the same column of a row: Table II.
    Columns,
    /// Those that write the same row, as in PostgreSQL: New-Order and Payment of one district, too.
    Rows,
}

impl Reading {
    /// The name in every output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Columns => "columns (Table II)",
            Self::Rows => "rows (PostgreSQL)",
        }
    }
}

/// A transaction with its parameters, named as in Table II.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Transaction {
    /// `NO(w, d, I)`: an item is (supply warehouse, number).
    NewOrder { w: u64, d: u64, items: Vec<(u64, u64)> },
    /// `P(w, c, cw, cd)`, and the district whose total it adds to.
    Payment { w: u64, d: u64, c: u64, cw: u64, cd: u64, is_by_name: bool },
    /// `D(w)`, and the customer of the oldest order of each district.
    Delivery { w: u64, customers: Vec<u64> },
    /// Order-Status or Stock-Level.
    ReadOnly(Kind),
}

impl Transaction {
    /// Draws a transaction.
    pub(super) fn draw(dice: &mut Dice) -> Self {
        let mut point = dice.below(100);
        let is_drawn = |(_, weight): &(Kind, u64)| {
            let is_here = point < *weight;
            point = point.saturating_sub(*weight);
            is_here
        };
        let kind = Kind::MIX.into_iter().find(is_drawn).map(|(kind, _)| kind);
        let w = dice.below(WAREHOUSES);
        let d = dice.below(DISTRICTS);
        match kind.unwrap_or(Kind::StockLevel) {
            Kind::NewOrder => {
                let count = dice.between(LINES.0, LINES.1);
                let item = |dice: &mut Dice| {
                    let supplier = if dice.percent(OTHER_SUPPLIER_PERCENT) { other(w, dice) } else { w };
                    (supplier, skewed(dice, 8_191, ITEMS))
                };
                Self::NewOrder { w, d, items: (0..count).map(|_| item(dice)).collect() }
            }
            Kind::Payment => {
                let is_away = dice.percent(OTHER_WAREHOUSE_PERCENT);
                let (cw, cd) = if is_away { (other(w, dice), dice.below(DISTRICTS)) } else { (w, d) };
                let is_by_name = dice.percent(BY_NAME_PERCENT);
                // Of those with a name, the one in the middle is chosen: one customer for each name.
                let c = if is_by_name { skewed(dice, 255, NAMES) } else { skewed(dice, 1_023, CUSTOMERS) };
                Self::Payment { w, d, c, cw, cd, is_by_name }
            }
            Kind::Delivery => {
                Self::Delivery { w, customers: (0..DISTRICTS).map(|_| dice.below(CUSTOMERS)).collect() }
            }
            kind @ (Kind::OrderStatus | Kind::StockLevel) => Self::ReadOnly(kind),
        }
    }

    /// Its kind.
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::NewOrder { .. } => Kind::NewOrder,
            Self::Payment { .. } => Kind::Payment,
            Self::Delivery { .. } => Kind::Delivery,
            Self::ReadOnly(kind) => *kind,
        }
    }

    /// What the classifier predicts: section IV-A, "complete, i.e., there are no false negatives".
    pub(super) fn predicted(&self, reading: Reading) -> Claims {
        let mut claims = self.common(reading);
        match self {
            Self::Payment { c, cw, cd, is_by_name, .. } => {
                let district = (Claimed::CustomersOfDistrict.id(), district(*cw, *cd));
                if *is_by_name {
                    claims.rows.push(district);
                } else {
                    claims.groups.push(district);
                    claims.rows.push((Claimed::Customer.id(), customer(*cw, *cd, *c)));
                }
                claims.groups.push((Claimed::CustomersOfWarehouse.id(), *cw));
            }
            Self::Delivery { w, .. } => claims.rows.push((Claimed::CustomersOfWarehouse.id(), *w)),
            Self::NewOrder { .. } | Self::ReadOnly(_) => {}
        }
        claims
    }

    /// The rows, or columns of rows, that it writes.
    pub(super) fn written(&self, reading: Reading) -> Claims {
        let mut claims = self.common(reading);
        match self {
            Self::Payment { c, cw, cd, .. } => {
                claims.rows.push((Claimed::Customer.id(), customer(*cw, *cd, *c)));
            }
            Self::Delivery { w, customers } => {
                claims.rows.push((Claimed::OldestOrders.id(), *w));
                let delivered = (0_u64..).zip(customers);
                claims.rows.extend(delivered.map(|(d, c)| (Claimed::Customer.id(), customer(*w, d, *c))));
            }
            Self::NewOrder { .. } | Self::ReadOnly(_) => {}
        }
        claims
    }

    /// What is known of both, by parameters.
    fn common(&self, reading: Reading) -> Claims {
        let mut claims = Claims::default();
        match self {
            Self::NewOrder { w, d, items } => {
                let number = match reading {
                    Reading::Columns => Claimed::NextOrder,
                    Reading::Rows => Claimed::District,
                };
                claims.rows.push((number.id(), district(*w, *d)));
                claims.rows.extend(items.iter().map(|(w, i)| (Claimed::Stock.id(), w * ITEMS + i)));
            }
            Self::Payment { w, d, .. } => {
                claims.rows.push((Claimed::Warehouse.id(), *w));
                if reading == Reading::Rows {
                    claims.rows.push((Claimed::District.id(), district(*w, *d)));
                }
            }
            Self::Delivery { .. } | Self::ReadOnly(_) => {}
        }
        claims
    }
}

/// What claims are of.
#[derive(Clone, Copy)]
enum Claimed {
    Warehouse = 1,
    District,
    NextOrder,
    Stock,
    Customer,
    CustomersOfDistrict,
    CustomersOfWarehouse,
    OldestOrders,
}

impl Claimed {
    fn id(self) -> TableId {
        DatabaseId::FIRST.table(self as u32)
    }
}

fn district(w: u64, d: u64) -> u64 {
    w * DISTRICTS + d
}

fn customer(w: u64, d: u64, c: u64) -> u64 {
    district(w, d) * CUSTOMERS + c
}

/// Another warehouse than this one.
fn other(w: u64, dice: &mut Dice) -> u64 {
    (w + 1 + dice.below(WAREHOUSES - 1)) % WAREHOUSES
}

/// TPC-C's `NURand`, with 0 for its constant: numbers whose bits are often set are drawn more often.
fn skewed(dice: &mut Dice, bits: u64, count: u64) -> u64 {
    (dice.between(0, bits) | dice.below(count)) % count
}

#[cfg(test)]
mod tests;
