//! The updates of TPC-C with their conflict classes, and which node holds which table.
//!
//! Section 5.2: "in the TPC-C benchmark, the transactions' parameters allow us to define a subset of tuples that could be read or
//! updated by the transaction". So reads count, too:
//!
//! | | writes | reads |
//! |---|---|---|
//! | New-order (w, d, items) | district (w, d), each item's stock | warehouse w, a customer of (w, d) |
//! | Payment (w, d; cw, cd) | warehouse w, district (w, d), a customer of (cw, cd) | |
//!
//! Customers are known by district, since 60 % of Payments name them. So a Payment conflicts with all that concerns its warehouse,
//! and New-orders of two districts run together unless they have an item in common.
//!
//! Section 6.2: under full replication each node holds all tables. Under partial replication, a quarter of the nodes holds the tables
//! of each of the four transactions. A replica is a whole table (3.1), so both updates concern every node: each quarter holds
//! `district`, `customer` or `orders`. A quarter can perform an update; the others wait for its refresh transaction.
//!
//! Not stated in the paper, so from TPC-C itself: 15 % of Payments for a customer of another warehouse, 1 % of the lines of an order
//! from another warehouse, and the skewed choice of items.

use std::sync::Arc;

use cluster::claims::Claims;
use cluster::ids::{DatabaseId, TableId};
use cluster::parts::stamps::Can;

use crate::dice::Dice;
use crate::paper::open::arrivals::exponential_us;

const DISTRICTS: u64 = 10;
const ITEMS: u64 = 100_000;
const ITEM_BITS: u64 = 8_191;
const LINES: (u64, u64) = (5, 15);
const OTHER_WAREHOUSE_PERCENT: u64 = 15;
const OTHER_SUPPLIER_PERCENT: u64 = 1;
/// Section 6.2: the weights of the two updates in the mix.
const NEW_ORDERS: u64 = 45;
const PAYMENTS: u64 = 43;

/// A kind of updates.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Kind {
    /// Writes an order of 5 to 15 lines.
    NewOrder,
    /// Pays a customer's debt.
    Payment,
}

/// An update.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Update {
    /// When a client submits it.
    pub at_us: u64,
    /// Its kind.
    pub kind: Kind,
    /// What it may read and write.
    pub claims: Arc<Claims>,
    /// How large it is, if that is the transaction's own.
    pub size: Size,
}

/// The size of a transaction as a part of the mean, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size(u64);

impl Size {
    const MEAN: Self = Self(1_000_000);

    /// The time that it takes where the mean is this.
    #[expect(clippy::cast_sign_loss, reason = "no time is negative")]
    pub fn of_us(self, mean_us: f64) -> u64 {
        (mean_us * self.0 as f64 / 1e6) as u64
    }
}

impl Update {
    /// Draws the size; it was the mean before.
    #[must_use]
    pub fn sized(self, dice: &mut Dice) -> Self {
        Self { size: Size(exponential_us(1e6, dice)), ..self }
    }

    /// Draws an update.
    pub fn draw(at_us: u64, warehouses: u32, dice: &mut Dice) -> Self {
        let all = u64::from(warehouses);
        let (w, d) = (dice.below(all), dice.below(DISTRICTS));
        let other = |dice: &mut Dice| if all == 1 { w } else { (w + 1 + dice.below(all - 1)) % all };
        let mut claims = Claims::default();
        if dice.below(NEW_ORDERS + PAYMENTS) < NEW_ORDERS {
            claims.rows.push((Claimed::District.id(), district(w, d)));
            for _ in 0..dice.between(LINES.0, LINES.1) {
                let supplier = if dice.percent(OTHER_SUPPLIER_PERCENT) { other(dice) } else { w };
                // TPC-C's `NURand`, with 0 for its constant.
                let item = (dice.between(0, ITEM_BITS) | dice.below(ITEMS)) % ITEMS;
                claims.rows.push((Claimed::Stock.id(), supplier * ITEMS + item));
            }
            claims.shared.push((Claimed::Warehouse.id(), w));
            claims.shared.push((Claimed::Customers.id(), district(w, d)));
            return Self { at_us, kind: Kind::NewOrder, claims: Arc::new(claims), size: Size::MEAN };
        }
        let is_away = dice.percent(OTHER_WAREHOUSE_PERCENT);
        let customers = if is_away { district(other(dice), dice.below(DISTRICTS)) } else { district(w, d) };
        claims.rows.push((Claimed::Warehouse.id(), w));
        claims.rows.push((Claimed::District.id(), district(w, d)));
        claims.rows.push((Claimed::Customers.id(), customers));
        Self { at_us, kind: Kind::Payment, claims: Arc::new(claims), size: Size::MEAN }
    }
}

/// What claims are of.
#[derive(Clone, Copy)]
enum Claimed {
    Warehouse = 1,
    District,
    Stock,
    Customers,
}

impl Claimed {
    fn id(self) -> TableId {
        DatabaseId::FIRST.table(self as u32)
    }
}

fn district(w: u64, d: u64) -> u64 {
    w * DISTRICTS + d
}

/// A set of tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Tables(u16);

impl Tables {
    const WAREHOUSE: Self = Self(1);
    const DISTRICT: Self = Self(1 << 1);
    const CUSTOMER: Self = Self(1 << 2);
    const HISTORY: Self = Self(1 << 3);
    const NEW_ORDERS: Self = Self(1 << 4);
    const ORDERS: Self = Self(1 << 5);
    const ORDER_LINE: Self = Self(1 << 6);
    const ITEM: Self = Self(1 << 7);
    const STOCK: Self = Self(1 << 8);
    const ALL: Self = Self((1 << 9) - 1);

    const OF_ORDER_STATUS: Self = Self::of(&[Self::CUSTOMER, Self::ORDERS, Self::ORDER_LINE]);
    const OF_STOCK_LEVEL: Self = Self::of(&[Self::DISTRICT, Self::ORDER_LINE, Self::STOCK]);
    const WRITTEN_BY_NEW_ORDER: Self =
        Self::of(&[Self::DISTRICT, Self::NEW_ORDERS, Self::ORDERS, Self::ORDER_LINE, Self::STOCK]);
    const OF_NEW_ORDER: Self =
        Self::of(&[Self::WRITTEN_BY_NEW_ORDER, Self::WAREHOUSE, Self::CUSTOMER, Self::ITEM]);
    const OF_PAYMENT: Self = Self::of(&[Self::WAREHOUSE, Self::DISTRICT, Self::CUSTOMER, Self::HISTORY]);

    const fn of(all: &[Self]) -> Self {
        let (mut sum, mut at) = (0, 0);
        while at < all.len() {
            sum |= all[at].0;
            at += 1;
        }
        Self(sum)
    }

    fn has_all(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    fn has_any(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// Which node holds what.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Configuration {
    /// Each node holds all tables.
    Full,
    /// A quarter of the nodes holds the tables of each transaction.
    Partial,
}

impl Configuration {
    /// The paper's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Full => "FR",
            Self::Partial => "PR",
        }
    }

    /// The tables of a node.
    pub fn held(self, node: u16) -> Tables {
        match (self, node % 4) {
            (Self::Full, _) => Tables::ALL,
            (Self::Partial, 0) => Tables::OF_ORDER_STATUS,
            (Self::Partial, 1) => Tables::OF_NEW_ORDER,
            (Self::Partial, 2) => Tables::OF_PAYMENT,
            (Self::Partial, _) => Tables::OF_STOCK_LEVEL,
        }
    }

    /// What a node does with an update; `None` if it holds nothing that the update writes.
    pub fn can(self, node: u16, kind: Kind) -> Option<Can> {
        let (used, written) = match kind {
            Kind::NewOrder => (Tables::OF_NEW_ORDER, Tables::WRITTEN_BY_NEW_ORDER),
            // It writes all that it reads.
            Kind::Payment => (Tables::OF_PAYMENT, Tables::OF_PAYMENT),
        };
        let held = self.held(node);
        let can = if held.has_all(used) { Can::Perform } else { Can::NeedsRefresh };
        held.has_any(written).then_some(can)
    }

    /// Whether a node can answer an Order-status query.
    pub fn answers(self, node: u16) -> bool {
        self.held(node).has_all(Tables::OF_ORDER_STATUS)
    }
}
