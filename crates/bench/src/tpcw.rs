//! TPC-W: emulated browsers in an online book shop, which send SQL; there are no web pages.
//!
//! Source: the specification as summed up in `workloads/tpcw.md`; the statements are those of
//! `workloads/tpcw/transactions.sql`. A browser goes from interaction to interaction by the table of its mix, thinks for
//! seven seconds on average before each, and begins a new session when the former has lasted its time and the next
//! page is HOME. The throughput is WIPS, interactions in a second. Where the implementations that the literature used
//! are known to be wrong (ids from counting, refreshes of carts without effect, discounts in two units), this one
//! follows the specification instead.

mod browse;
mod browser;
mod buy;
mod mix;
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
use testbed::workload;

use crate::drive::{Account, Actor, Fill, Rule, Texts, Workload};
use browser::Browser;
pub(crate) use mix::Mix;

/// How large everything is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scale {
    /// Books: 1,000, 10,000 and so on in the specification.
    pub(crate) items: i32,
    /// The emulated browsers for which the database is made, which may be others than there are.
    pub(crate) browsers: i32,
}

impl Scale {
    fn customers(self) -> i32 {
        2_880 * self.browsers
    }

    fn addresses(self) -> i32 {
        2 * self.customers()
    }

    fn orders(self) -> i32 {
        self.customers() / 10 * 9
    }

    fn authors(self) -> i32 {
        self.items / 4
    }
}

/// The workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tpcw {
    /// How large it is.
    pub(crate) scale: Scale,
    /// Where browsers go.
    pub(crate) mix: Mix,
}

impl Workload for Tpcw {
    fn name(&self) -> String {
        format!("tpcw-{}", self.mix.name())
    }

    fn texts(&self) -> Texts {
        Rc::new(schema().queries)
    }

    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>> {
        Box::pin(population::fill(self.scale, schema().schema, fill))
    }

    fn actor(&self, _number: usize, dice: Dice) -> Box<dyn Actor> {
        Box::new(Browser::new(self.scale, self.mix, dice))
    }

    fn accounts(&self) -> Vec<Account> {
        vec![
            Account { name: "orders", sql: "SELECT count(*) FROM orders" },
            Account { name: "order lines", sql: "SELECT count(*) FROM order_line" },
            Account { name: "customers", sql: "SELECT count(*) FROM customer" },
            Account { name: "carts", sql: "SELECT count(*) FROM shopping_cart" },
        ]
    }

    fn rules(&self) -> Vec<Rule> {
        rules::all()
    }

    fn limit(&self, kind: &str) -> Option<Duration> {
        let page = mix::PAGES.iter().find(|page| page.name() == kind);
        page.map(|page| Duration::from_secs(page.limit_s()))
    }
}

/// 8.25 percent, rounded as PostgreSQL rounds.
fn tax(sub_total: i64) -> i64 {
    (sub_total * 825 + 5_000) / 10_000
}

fn schema() -> workload::Workload {
    workload::named("tpcw").expect("it is one of those that are built in")
}
