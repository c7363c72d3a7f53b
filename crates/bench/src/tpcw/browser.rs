//! An emulated browser: where it is, what it knows, and where it goes next.

use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use sim::dice::Dice;
use testbed::refusal::Refusal;

use super::Scale;
use super::mix::{Mix, Page};
use super::random::{between, customer};
use crate::drive::{Actor, Next, Session, exponential};

/// Before an interaction, on average and at most.
const THINK: Duration = Duration::from_secs(7);
const THINK_MAX: Duration = Duration::from_secs(70);
/// How long a session lasts at least, on average and at most.
const STAY: Duration = Duration::from_mins(15);
const STAY_MAX: Duration = Duration::from_hours(1);

/// The state of a session.
#[derive(Debug, Default)]
pub(super) struct Visit {
    /// The customer, once known.
    pub(super) customer: Option<i32>,
    /// Its cart, once it has one.
    pub(super) cart: Option<i32>,
    /// Whether HOME has greeted it.
    pub(super) is_greeted: bool,
    /// The time it has been there and the time it stays, of thinking only: what the system takes does not count.
    been: Duration,
    stays: Duration,
}

/// A browser.
pub(super) struct Browser {
    pub(super) scale: Scale,
    mix: Mix,
    pub(super) dice: Dice,
    pub(super) visit: Visit,
    /// Where it was before.
    pub(super) from: Option<Page>,
    page: Page,
    /// The books on the last page with a list of them.
    pub(super) listed: Vec<i32>,
    /// The book that was looked at last.
    pub(super) shown: i32,
    /// The last interaction failed, so that nothing is known about the session any more.
    is_broken: bool,
}

impl Browser {
    /// One that has just been opened.
    pub(super) fn new(scale: Scale, mix: Mix, dice: Dice) -> Self {
        let mut browser = Self {
            scale,
            mix,
            dice,
            visit: Visit::default(),
            from: None,
            page: Page::Home,
            listed: Vec::new(),
            shown: 1,
            is_broken: true,
        };
        browser.shown = browser.any_item();
        browser
    }

    /// Any book.
    pub(super) fn any_item(&mut self) -> i32 {
        between(&mut self.dice, 1, self.scale.items)
    }

    /// Four in five are customers already.
    fn begin_visit(&mut self) {
        let is_known = self.dice.percent(80);
        let drawn = customer(&mut self.dice, self.scale.customers());
        let stays = exponential(&mut self.dice, STAY, STAY_MAX);
        self.visit = Visit { customer: is_known.then_some(drawn), stays, ..Visit::default() };
    }

    /// The customer; a random one if none is known.
    pub(super) fn someone(&mut self) -> i32 {
        let drawn = customer(&mut self.dice, self.scale.customers());
        *self.visit.customer.get_or_insert(drawn)
    }

    async fn interact(&mut self, session: &mut Session) -> Result<(), Refusal> {
        match self.page {
            Page::Home => self.home(session).await,
            Page::NewProducts => self.new_products(session).await,
            Page::BestSellers => self.best_sellers(session).await,
            Page::ProductDetail => self.product(session).await,
            Page::SearchRequest => self.promotions(session).await.map(drop),
            Page::SearchResults => self.search(session).await,
            Page::ShoppingCart => self.cart(session).await,
            Page::CustomerRegistration => self.registration(session).await,
            Page::BuyRequest => self.buy_request(session).await,
            Page::BuyConfirm => self.buy_confirm(session).await,
            // A form, without anything from the database.
            Page::OrderInquiry => Ok(()),
            Page::OrderDisplay => self.order_display(session).await,
            Page::AdminRequest => self.book(session, self.shown).await,
            Page::AdminConfirm => self.admin_confirm(session).await,
        }
    }
}

impl Actor for Browser {
    fn draw(&mut self) -> Next {
        let think = exponential(&mut self.dice, THINK, THINK_MAX);
        self.visit.been += think;
        if self.is_broken {
            (self.from, self.page) = (None, Page::Home);
            self.begin_visit();
            self.is_broken = false;
        } else {
            let next = self.mix.next(self.page, &mut self.dice);
            self.from = Some(self.page);
            self.page = next;
            if next == Page::Home && self.visit.been > self.visit.stays {
                self.begin_visit();
            }
        }
        Next { kind: self.page.name(), think }
    }

    fn act<'a>(&'a mut self, session: &'a mut Session) -> LocalBoxFuture<'a, Result<(), Refusal>> {
        Box::pin(async move {
            let outcome = self.interact(session).await;
            self.is_broken = outcome.is_err();
            outcome
        })
    }
}
