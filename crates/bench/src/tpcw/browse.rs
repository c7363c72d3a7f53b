//! The interactions that only read: HOME, NEWP, BESS, PROD, SRES, CREG, ORDD.

use testbed::refusal::Refusal;
use tokio_postgres::Row;

use super::browser::Browser;
use super::random::{SUBJECTS, password, searched, syllables};
use crate::drive::Session;

/// Declared tables of the last order.
const ORDER: &str = "read customer, orders, order_line, cc_xacts, address, country, item";

impl Browser {
    pub(super) async fn home(&mut self, session: &mut Session) -> Result<(), Refusal> {
        if let Some(customer) = self.visit.customer
            && !self.visit.is_greeted
        {
            known(session.look("getName", &[&customer]).await?, "customer")?;
            self.visit.is_greeted = true;
        }
        self.promotions(session).await.map(drop)
    }

    /// Five books that go with a book, on most pages.
    pub(super) async fn promotions(&mut self, session: &mut Session) -> Result<Vec<i32>, Refusal> {
        let item = self.any_item();
        let rows = session.look("getRelated", &[&item]).await?;
        if rows.len() != 5 {
            return Err(Refusal::Told(format!("{} books are related to {item}", rows.len())));
        }
        Ok(ids(&rows))
    }

    pub(super) async fn new_products(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let promoted = self.promotions(session).await?;
        let subject = *self.dice.pick(&SUBJECTS);
        let rows = session.look("getNewProducts", &[&subject]).await?;
        self.list(&rows, promoted);
        Ok(())
    }

    pub(super) async fn best_sellers(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let promoted = self.promotions(session).await?;
        let subject = *self.dice.pick(&SUBJECTS);
        let rows = session.look("getBestSellers", &[&subject]).await?;
        self.list(&rows, promoted);
        Ok(())
    }

    pub(super) async fn search(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let promoted = self.promotions(session).await?;
        let items = self.scale.items;
        let rows = match self.dice.below(3) {
            0 => {
                let author = searched(&mut self.dice, items, 10) + "%";
                session.look("doAuthorSearch", &[&author]).await?
            }
            1 => {
                let title = searched(&mut self.dice, items, 5) + "%";
                session.look("doTitleSearch", &[&title]).await?
            }
            _ => {
                let subject = *self.dice.pick(&SUBJECTS);
                session.look("doSubjectSearch", &[&subject]).await?
            }
        };
        self.list(&rows, promoted);
        Ok(())
    }

    fn list(&mut self, rows: &[Row], promoted: Vec<i32>) {
        self.listed = ids(rows);
        self.listed.extend(promoted);
    }

    /// One of the books on the page before; from one book to another, one of those on the page before that.
    pub(super) async fn product(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let item = if self.listed.is_empty() { self.any_item() } else { *self.dice.pick(&self.listed) };
        self.book(session, item).await?;
        self.shown = item;
        Ok(())
    }

    pub(super) async fn book(&self, session: &mut Session, item: i32) -> Result<(), Refusal> {
        known(session.look("getBook", &[&item]).await?, "book").map(drop)
    }

    pub(super) async fn registration(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Some(customer) = self.visit.customer else { return Ok(()) };
        known(session.look("getUserName", &[&customer]).await?, "customer").map(drop)
    }

    pub(super) async fn order_display(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let customer = self.someone();
        let name = syllables(customer, 0);
        let row = known(session.look("getPassword", &[&name]).await?, "customer")?;
        if row.get::<_, &str>(0) != password(customer) {
            return Err(Refusal::Told(format!("{name} has another password")));
        }
        session
            .read_on(ORDER, async |transaction| {
                let Some(newest) = transaction.rows("newestOrder", &[&name]).await?.pop() else {
                    return Ok(());
                };
                let order: i32 = newest.get(0);
                transaction.row("getOrder", &[&order]).await?;
                let lines = transaction.rows("getOrderLines", &[&order]).await?;
                let has_lines = !lines.is_empty();
                has_lines.then_some(()).ok_or_else(|| Refusal::Told(format!("order {order} is empty")))
            })
            .await
    }
}

/// The first column of each row.
fn ids(rows: &[Row]) -> Vec<i32> {
    rows.iter().map(|row| row.get(0)).collect()
}

/// The one row of a customer or an item that must exist.
pub(super) fn known(mut rows: Vec<Row>, what: &str) -> Result<Row, Refusal> {
    let count = rows.len();
    rows.pop().filter(|_| count == 1).ok_or_else(|| Refusal::Told(format!("{count} rows for one {what}")))
}
