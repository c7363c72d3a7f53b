//! RUBiS: visitors of an auction site, by the published navigation tables.
//!
//! Source: `workloads/rubis.md`; the statements are those of `workloads/rubis/transactions.sql`. The sizes keep the
//! published proportions (30 users and 15 old items for an item on sale, ten bids for each of those), but texts are
//! shorter. Five pages write, each in one transaction.

mod actions;
mod population;
mod tables;
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
use crate::walk::{Moved, Walk};

/// Before a page, on average and at most.
const THINK: Duration = Duration::from_secs(7);
const THINK_MAX: Duration = Duration::from_secs(70);
/// Categories and regions, as published.
const CATEGORIES: i32 = 20;
const REGIONS: i32 = 62;

/// The workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rubis {
    /// Items on sale at the beginning.
    pub(crate) items: i32,
    /// Whether users only read.
    pub(crate) is_browsing: bool,
}

impl Rubis {
    fn users(self) -> i32 {
        30 * self.items
    }

    fn old_items(self) -> i32 {
        15 * self.items
    }
}

impl Workload for Rubis {
    fn name(&self) -> String {
        if self.is_browsing { "rubis-browsing" } else { "rubis-bidding" }.to_owned()
    }

    fn texts(&self) -> Texts {
        Rc::new(schema().queries)
    }

    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>> {
        Box::pin(population::fill(*self, schema().schema, fill))
    }

    fn actor(&self, number: usize, dice: Dice) -> Box<dyn Actor> {
        let table = if self.is_browsing { tables::BROWSING } else { tables::BIDDING };
        let mut visitor = Visitor {
            rubis: *self,
            walk: Walk::new(table),
            number,
            added: 0,
            user: 1,
            listed: Vec::new(),
            item: 1,
            other: 1,
            category: 1,
            region: 1,
            page: 0,
            is_first: true,
            dice,
        };
        visitor.arrive();
        Box::new(visitor)
    }

    fn accounts(&self) -> Vec<Account> {
        vec![
            Account { name: "users", sql: "SELECT count(*) FROM users" },
            Account { name: "items", sql: "SELECT count(*) FROM items" },
            Account { name: "bids", sql: "SELECT count(*) FROM bids" },
            Account { name: "purchases", sql: "SELECT count(*) FROM buy_now" },
            Account { name: "comments", sql: "SELECT count(*) FROM comments" },
        ]
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |(name, sql): &(&str, &str)| Rule { name: (*name).to_owned(), sql: (*sql).to_owned() };
        RULES.iter().map(rule).collect()
    }
}

const RULES: [(&str, &str); 6] = [
    (
        "an item has as many bids as it says, and the highest of them",
        "SELECT items.id, nb_of_bids, count(bids.id), items.max_bid, max(bid)
         FROM items LEFT JOIN bids ON item_id = items.id GROUP BY items.id
         HAVING nb_of_bids <> count(bids.id) OR items.max_bid <> coalesce(max(bid), 0)",
    ),
    (
        "a user's rating is the sum of what others say",
        "SELECT users.id, users.rating, sum(comments.rating) FROM users LEFT JOIN comments ON to_user_id = users.id
         GROUP BY users.id HAVING users.rating <> coalesce(sum(comments.rating), 0)",
    ),
    ("nothing is sold that is not there", "SELECT id, quantity FROM items WHERE quantity < 0"),
    ("what is sold out has ended", "SELECT id FROM items WHERE quantity = 0 AND end_date > localtimestamp"),
    (
        "a bid is a user's and for an item",
        "SELECT id FROM bids WHERE user_id NOT IN (SELECT id FROM users)
         OR item_id NOT IN (SELECT id FROM items UNION ALL SELECT id FROM old_items)",
    ),
    (
        "a comment is from and to users",
        "SELECT id FROM comments WHERE from_user_id NOT IN (SELECT id FROM users)
         OR to_user_id NOT IN (SELECT id FROM users)",
    ),
];

fn schema() -> workload::Workload {
    workload::named("rubis").expect("it is one of those that are built in")
}

/// A visitor of the site.
struct Visitor {
    rubis: Rubis,
    walk: Walk,
    /// Which visitor it is, and how many names it has made, so that its next one is new.
    number: usize,
    added: u32,
    /// The visitor.
    user: i32,
    /// The items on the last page.
    listed: Vec<i32>,
    /// The item that the visitor looks at.
    item: i32,
    other: i32,
    category: i32,
    region: i32,
    /// The page of a search.
    page: i64,
    is_first: bool,
    dice: Dice,
}

impl Visitor {
    /// From 1 to `most`.
    fn up_to(&mut self, most: i32) -> i32 {
        1 + i32::try_from(self.dice.below(u64::from(most.unsigned_abs()))).unwrap_or_default()
    }

    /// A new session.
    fn arrive(&mut self) {
        self.user = self.up_to(self.rubis.users());
        self.other = self.up_to(self.rubis.users());
        self.item = self.up_to(self.rubis.items);
        self.category = self.up_to(CATEGORIES);
        self.region = self.up_to(REGIONS);
        self.page = 0;
        self.listed.clear();
    }
}

impl Actor for Visitor {
    fn draw(&mut self) -> Next {
        if !self.is_first && self.walk.go(&mut self.dice) == Moved::Anew {
            self.arrive();
        }
        self.is_first = false;
        Next { kind: self.walk.page(), think: exponential(&mut self.dice, THINK, THINK_MAX) }
    }

    fn act<'a>(&'a mut self, session: &'a mut Session) -> LocalBoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let outcome = self.visit(session).await;
            if outcome.is_err() {
                self.walk.restart();
                self.is_first = true;
            }
            outcome
        })
    }
}
