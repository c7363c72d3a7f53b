//! TPC-C: terminals of a wholesale supplier, with the five transactions of the specification.
//!
//! Source: the TPC-C specification as summed up in `workloads/tpcc.md`; the statements are those of
//! `workloads/tpcc/transactions.sql`, or one call for each transaction (`calls`). A terminal has a warehouse of its own, ten terminals a warehouse, the mix is
//! 45/43/4/4/4. One New-Order in a hundred names an item that is not there, and is rolled back by its client. Keying
//! and think times are kept when the pace asks for them, else a terminal is always busy.
//!
//! All twelve consistency conditions are checked after every course, not only the four that the specification demands,
//! since the transactions keep them all (the eleventh in a form that Delivery keeps too). A smaller scale has fewer items
//! and customers; everything else follows from them as in the specification.

mod calls;
mod orders;
mod payments;
mod population;
mod random;
mod rules;
#[cfg(test)]
mod tests;

use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use sim::dice::Dice;
use testbed::fault::Fault;
use testbed::refusal::Refusal;
use testbed::workload;

use crate::drive::{Account, Actor, Fill, Next, Rule, Session, Texts, Workload, exponential};

/// Districts of a warehouse, and terminals.
const DISTRICTS: i32 = 10;

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Warehouses.
    pub(crate) warehouses: i32,
    /// Items; 100,000 in the specification.
    pub(crate) items: i32,
    /// Customers of a district, and its orders at the beginning; 3,000 in the specification.
    pub(crate) customers: i32,
}

impl Scale {
    /// That of the specification.
    pub(crate) fn full(warehouses: i32) -> Self {
        Self { warehouses, items: 100_000, customers: 3_000 }
    }

    /// So many of a district's first orders have been delivered: seven in ten.
    fn delivered(self) -> i32 {
        self.customers * 7 / 10
    }

    /// The range of numbers that last names are made of.
    fn names(self) -> i32 {
        self.customers.min(1_000)
    }
}

/// How terminals send transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// Statement by statement.
    Statements,
    /// As calls of procedures and functions.
    Calls,
}

/// How often each transaction is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mix {
    /// That of the specification.
    Specified,
    /// 45 % New-Order, 43 % Payment, 6 % Order-Status, 6 % Stock-Level: the load of preventive replication.
    NoDelivery,
    /// The two reads, equally often.
    Reads,
}

/// The workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tpcc {
    /// How large it is.
    pub(crate) scale: Scale,
    /// What is sent.
    pub(crate) form: Form,
    /// How often.
    pub(crate) mix: Mix,
}

impl Workload for Tpcc {
    fn name(&self) -> String {
        match self.form {
            Form::Statements => "tpcc".to_owned(),
            Form::Calls => "tpcc-call".to_owned(),
        }
    }

    fn texts(&self) -> Texts {
        match self.form {
            Form::Statements => Rc::new(schema().queries),
            Form::Calls => calls::texts(),
        }
    }

    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>> {
        Box::pin(async move {
            population::fill(self.scale, schema().schema, fill).await?;
            match self.form {
                Form::Statements => Ok(()),
                Form::Calls => fill.say(calls::PROCEDURES).await,
            }
        })
    }

    fn actor(&self, number: usize, dice: Dice) -> Box<dyn Actor> {
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        Box::new(Terminal {
            scale: self.scale,
            form: self.form,
            mix: self.mix,
            warehouse: number / DISTRICTS % self.scale.warehouses + 1,
            district: number % DISTRICTS + 1,
            dice,
            next: Kind::NewOrder,
        })
    }

    fn accounts(&self) -> Vec<Account> {
        vec![
            Account { name: "orders", sql: "SELECT count(*) FROM orders" },
            Account { name: "payments", sql: "SELECT count(*) FROM history" },
            Account { name: "deliveries", sql: "SELECT count(o_carrier_id) FROM orders" },
        ]
    }

    fn rules(&self) -> Vec<Rule> {
        rules::all()
    }

    fn limit(&self, kind: &str) -> Option<Duration> {
        Some(Duration::from_secs(if kind == Kind::StockLevel.name() { 20 } else { 5 }))
    }
}

fn schema() -> workload::Workload {
    workload::named("tpcc").expect("it is one of those that are built in")
}

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    fn draw(dice: &mut Dice, mix: Mix) -> Self {
        match (mix, dice.below(100)) {
            (Mix::Specified | Mix::NoDelivery, 0..45) => Self::NewOrder,
            (Mix::Specified | Mix::NoDelivery, 45..88) => Self::Payment,
            (Mix::Specified, 88..92) | (Mix::NoDelivery, 88..94) | (Mix::Reads, 0..50) => Self::OrderStatus,
            (Mix::Specified, 92..96) => Self::Delivery,
            _ => Self::StockLevel,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "NewOrder",
            Self::Payment => "Payment",
            Self::OrderStatus => "OrderStatus",
            Self::Delivery => "Delivery",
            Self::StockLevel => "StockLevel",
        }
    }

    /// Seconds of keying, and mean seconds of thinking.
    fn times(self) -> (u64, u64) {
        match self {
            Self::NewOrder => (18, 12),
            Self::Payment => (3, 12),
            Self::OrderStatus => (2, 10),
            Self::Delivery | Self::StockLevel => (2, 5),
        }
    }
}

/// One terminal.
struct Terminal {
    scale: Scale,
    form: Form,
    mix: Mix,
    warehouse: i32,
    district: i32,
    dice: Dice,
    next: Kind,
}

impl Actor for Terminal {
    fn draw(&mut self) -> Next {
        self.next = Kind::draw(&mut self.dice, self.mix);
        let (keying, thinking) = self.next.times();
        let think = Duration::from_secs(keying)
            + exponential(&mut self.dice, Duration::from_secs(thinking), Duration::from_secs(thinking * 10));
        Next { kind: self.next.name(), think }
    }

    fn act<'a>(&'a mut self, session: &'a mut Session) -> LocalBoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            match (self.form, self.next) {
                (Form::Statements, Kind::NewOrder) => self.new_order(session).await,
                (Form::Statements, Kind::Payment) => self.payment(session).await,
                (Form::Statements, Kind::OrderStatus) => self.order_status(session).await,
                (Form::Statements, Kind::Delivery) => self.delivery(session).await,
                (Form::Statements, Kind::StockLevel) => self.stock_level(session).await,
                (Form::Calls, Kind::NewOrder) => self.call_new_order(session).await,
                (Form::Calls, Kind::Payment) => self.call_payment(session).await,
                (Form::Calls, Kind::OrderStatus) => self.call_order_status(session).await,
                (Form::Calls, Kind::Delivery) => self.call_delivery(session).await,
                (Form::Calls, Kind::StockLevel) => self.call_stock_level(session).await,
            }
        })
    }
}
