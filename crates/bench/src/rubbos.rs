//! RUBBoS: readers and authors of a bulletin board, by the published navigation tables.
//!
//! Source: `workloads/rubbos.md`; the statements are those of `workloads/rubbos/transactions.sql`, each a transaction by
//! itself, as in the implementation that the literature used. One visitor in ten is an author, who reviews what others
//! submit and moderates comments. Texts are shorter than the published ones; new stories are those of the last month,
//! and there are 24 times as many old ones.

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
/// Categories, as published, and of users the authors.
const CATEGORIES: i32 = 85;
const AUTHORS: i32 = 50;
/// One visitor in so many is an author.
const AUTHOR_EVERY: usize = 10;

/// The workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rubbos {
    /// Stories of the last month.
    pub(crate) stories: i32,
    /// Whether users only read.
    pub(crate) is_browsing: bool,
}

impl Rubbos {
    fn users(self) -> i32 {
        AUTHORS + 30 * self.stories
    }

    fn old_stories(self) -> i32 {
        24 * self.stories
    }
}

impl Workload for Rubbos {
    fn name(&self) -> String {
        if self.is_browsing { "rubbos-browsing" } else { "rubbos-submission" }.to_owned()
    }

    fn texts(&self) -> Texts {
        Rc::new(schema().queries)
    }

    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>> {
        Box::pin(population::fill(*self, schema().schema, fill))
    }

    fn actor(&self, number: usize, dice: Dice) -> Box<dyn Actor> {
        let is_author = !self.is_browsing && number.is_multiple_of(AUTHOR_EVERY);
        let table = match (self.is_browsing, is_author) {
            (true, _) => tables::BROWSING,
            (false, true) => tables::AUTHOR,
            (false, false) => tables::USER,
        };
        let mut visitor = Visitor {
            rubbos: *self,
            walk: Walk::new(table),
            number,
            is_author,
            added: 0,
            user: 1,
            listed: Vec::new(),
            story: 1,
            is_old: false,
            comment: None,
            submissions: Vec::new(),
            is_first: true,
            dice,
        };
        visitor.arrive();
        Box::new(visitor)
    }

    fn accounts(&self) -> Vec<Account> {
        vec![
            Account { name: "users", sql: "SELECT count(*) FROM users" },
            Account { name: "stories", sql: "SELECT count(*) FROM stories" },
            Account { name: "submissions", sql: "SELECT count(*) FROM submissions" },
            Account {
                name: "comments",
                sql: "SELECT (SELECT count(*) FROM comments) + (SELECT count(*) FROM old_comments)",
            },
            Account { name: "moderations", sql: "SELECT count(*) FROM moderator_log" },
        ]
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |(name, sql): &(&str, &str)| Rule { name: (*name).to_owned(), sql: (*sql).to_owned() };
        RULES.iter().map(rule).collect()
    }
}

/// Every statement is a transaction, so only what one of them keeps by itself can be demanded; the count of answers is
/// kept by two, of which a client that loses its connection may send only the first.
const RULES: [(&str, &str); 4] = [
    (
        "a comment does not claim more answers than it has",
        "SELECT up.id, up.childs, count(down.id) FROM comments up LEFT JOIN comments down ON down.parent = up.id
         GROUP BY up.id HAVING up.childs > count(down.id)",
    ),
    (
        "an old comment does not claim more answers than it has",
        "SELECT up.id, up.childs, count(down.id) FROM old_comments up LEFT JOIN old_comments down ON down.parent = up.id
         GROUP BY up.id HAVING up.childs > count(down.id)",
    ),
    (
        "stories are written by users",
        "SELECT id FROM stories WHERE writer NOT IN (SELECT id FROM users)
         UNION ALL SELECT id FROM submissions WHERE writer NOT IN (SELECT id FROM users)",
    ),
    (
        "comments are on stories",
        "SELECT id FROM comments WHERE story_id NOT IN (SELECT id FROM stories)
         UNION ALL SELECT id FROM old_comments WHERE story_id NOT IN (SELECT id FROM old_stories)",
    ),
];

fn schema() -> workload::Workload {
    workload::named("rubbos").expect("it is one of those that are built in")
}

/// A comment that was seen: its number, and whose it is an answer to.
#[derive(Clone, Copy, Debug)]
struct Seen {
    id: i32,
    parent: i32,
}

/// A visitor of the board.
struct Visitor {
    rubbos: Rubbos,
    walk: Walk,
    /// Which visitor it is, and how many names it has made.
    number: usize,
    is_author: bool,
    added: u32,
    user: i32,
    /// The stories on the last page, and whether each is an old one.
    listed: Vec<(i32, bool)>,
    story: i32,
    is_old: bool,
    /// A comment of that story.
    comment: Option<Seen>,
    /// Stories that wait for a review.
    submissions: Vec<i32>,
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
        self.user = if self.is_author {
            self.up_to(AUTHORS)
        } else {
            AUTHORS + self.up_to(self.rubbos.users() - AUTHORS)
        };
        self.story = self.up_to(self.rubbos.stories);
        (self.is_old, self.comment) = (false, None);
        self.listed.clear();
        self.submissions.clear();
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
