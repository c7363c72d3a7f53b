//! New-Order, Order-Status, Delivery and Stock-Level (clauses 2.4, 2.6, 2.7 and 2.8).

use testbed::refusal::Refusal;

use super::random::{between, customer, item, name_to_ask};
use super::{DISTRICTS, Terminal};
use crate::drive::{Cents, Session, Transaction, cents};

/// The columns of getStock before the texts of the ten districts.
const BEFORE_DISTRICTS: usize = 1;

/// One line of an order that comes in.
pub(super) struct Line {
    pub(super) item: i32,
    pub(super) supply: i32,
    pub(super) quantity: i32,
}

/// Whom a terminal asks about.
pub(super) enum Whom {
    /// By number.
    Id(i32),
    /// By last name.
    Name(String),
}

impl Whom {
    /// The number; of several with a name the middle one, rounded up, by first name.
    pub(super) async fn find(
        &self,
        transaction: &mut Transaction<'_>,
        warehouse: i32,
        district: i32,
    ) -> Result<i32, Refusal> {
        match self {
            Self::Id(id) => Ok(*id),
            Self::Name(name) => {
                let rows = transaction.rows("customersByName", &[&warehouse, &district, name]).await?;
                let middle = rows.get(rows.len().saturating_sub(1) / 2);
                middle.map(|row| row.get(0)).ok_or_else(|| Refusal::Told(format!("nobody is called {name}")))
            }
        }
    }
}

impl Terminal {
    pub(super) fn whom(&mut self) -> Whom {
        if self.dice.percent(60) {
            Whom::Name(name_to_ask(&mut self.dice, self.scale.names()))
        } else {
            Whom::Id(customer(&mut self.dice, self.scale.customers))
        }
    }

    /// Another warehouse than the terminal's, or the terminal's if there is no other.
    pub(super) fn other_warehouse(&mut self) -> i32 {
        let other = between(&mut self.dice, 1, self.scale.warehouses.max(2) - 1);
        let other = if other >= self.warehouse { other + 1 } else { other };
        other.min(self.scale.warehouses)
    }

    pub(super) async fn new_order(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (whose, lines) = self.draw_order();
        session.update(async |transaction| new_order(transaction, whose, &lines).await).await
    }

    /// Warehouse, district and customer of an order, and its lines.
    pub(super) fn draw_order(&mut self) -> ((i32, i32, i32), Vec<Line>) {
        let (w, d) = (self.warehouse, between(&mut self.dice, 1, DISTRICTS));
        let c = customer(&mut self.dice, self.scale.customers);
        ((w, d, c), self.draw_lines())
    }

    fn draw_lines(&mut self) -> Vec<Line> {
        let count = between(&mut self.dice, 5, 15);
        let is_undone = self.dice.percent(1);
        let line = |number| {
            let is_missing = is_undone && number == count;
            let drawn = item(&mut self.dice, self.scale.items);
            let item = if is_missing { self.scale.items + 1 } else { drawn };
            let is_remote = self.dice.percent(1);
            let supply = if is_remote { self.other_warehouse() } else { self.warehouse };
            Line { item, supply, quantity: between(&mut self.dice, 1, 10) }
        };
        (1..=count).map(line).collect()
    }

    /// Warehouse, district and customer of an Order-Status.
    pub(super) fn draw_question(&mut self) -> (i32, i32, Whom) {
        let (w, d) = (self.warehouse, between(&mut self.dice, 1, DISTRICTS));
        (w, d, self.whom())
    }

    /// Warehouse and carrier of a Delivery.
    pub(super) fn draw_delivery(&mut self) -> (i32, i32) {
        (self.warehouse, between(&mut self.dice, 1, 10))
    }

    /// Warehouse, district and threshold of a Stock-Level.
    pub(super) fn draw_level(&mut self) -> (i32, i32, i32) {
        (self.warehouse, self.district, between(&mut self.dice, 10, 20))
    }

    pub(super) async fn order_status(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (w, d, whom) = self.draw_question();
        session
            .read(async |transaction| {
                let c = whom.find(transaction, w, d).await?;
                transaction.row("getBalance", &[&w, &d, &c]).await?;
                let order: i32 = transaction.row("newestOrder", &[&w, &d, &c]).await?.get(0);
                let lines = transaction.rows("getOrderLines", &[&w, &d, &order]).await?;
                let is_whole = (5..=15).contains(&lines.len());
                is_whole.then_some(()).ok_or_else(|| Refusal::Told(format!("{} lines", lines.len())))
            })
            .await
    }

    pub(super) async fn delivery(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (w, carrier) = self.draw_delivery();
        session
            .update(async |transaction| {
                for d in 1..=DISTRICTS {
                    deliver(transaction, w, d, carrier).await?;
                }
                Ok(())
            })
            .await
    }

    pub(super) async fn stock_level(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (w, d, threshold) = self.draw_level();
        session
            .read(async |transaction| {
                let next: i32 = transaction.row("getNextOrder", &[&w, &d]).await?.get(0);
                transaction.row("countLowStock", &[&w, &d, &next, &threshold]).await.map(drop)
            })
            .await
    }
}

async fn new_order(
    transaction: &mut Transaction<'_>,
    (w, d, c): (i32, i32, i32),
    lines: &[Line],
) -> Result<(), Refusal> {
    transaction.row("getCustomer", &[&w, &d, &c]).await?;
    transaction.row("getWarehouseTax", &[&w]).await?;
    let id: i32 = transaction.row("getDistrict", &[&w, &d]).await?.get(0);
    transaction.one("advanceDistrict", &[&w, &d]).await?;
    let count = i32::try_from(lines.len()).unwrap_or(i32::MAX);
    let all_local = i32::from(lines.iter().all(|line| line.supply == w));
    transaction.one("addOrder", &[&w, &d, &id, &c, &count, &all_local]).await?;
    transaction.one("addNewOrder", &[&w, &d, &id]).await?;
    for (number, line) in (1_i32..).zip(lines) {
        let Some(item) = transaction.rows("getItem", &[&line.item]).await?.pop() else {
            transaction.undo();
            return Ok(());
        };
        let price: Cents = item.get(0);
        let stock = transaction.row("getStock", &[&line.supply, &line.item]).await?;
        let there: i32 = stock.get(0);
        let left = there - line.quantity;
        let left = if left < 10 { left + 91 } else { left };
        let remote = i32::from(line.supply != w);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&line.supply, &line.item, &left, &line.quantity, &remote];
        transaction.one("changeStock", &values).await?;
        let text: &str = stock.get(BEFORE_DISTRICTS + usize::try_from(d).unwrap_or_default());
        let amount = cents(price.0 * i64::from(line.quantity));
        transaction
            .one(
                "addOrderLine",
                &[&w, &d, &id, &number, &line.item, &line.supply, &line.quantity, &amount, &text],
            )
            .await?;
    }
    transaction.enter("orders", 1);
    Ok(())
}

/// Delivers the oldest new order of a district, if there is one.
async fn deliver(transaction: &mut Transaction<'_>, w: i32, d: i32, carrier: i32) -> Result<(), Refusal> {
    let Some(oldest) = transaction.rows("oldestNewOrder", &[&w, &d]).await?.pop() else { return Ok(()) };
    let id: i32 = oldest.get(0);
    if transaction.execute("removeNewOrder", &[&w, &d, &id]).await? == 0 {
        // At READ COMMITTED another delivery may take it while we wait for its row.
        return Err(Refusal::Again("the oldest order was delivered meanwhile".into()));
    }
    let c: i32 = transaction.row("getOrderCustomer", &[&w, &d, &id]).await?.get(0);
    transaction.one("setCarrier", &[&w, &d, &id, &carrier]).await?;
    transaction.execute("deliverLines", &[&w, &d, &id]).await?;
    let sum: Cents = transaction.row("sumLines", &[&w, &d, &id]).await?.get(0);
    transaction.one("creditCustomer", &[&w, &d, &c, &sum]).await?;
    transaction.enter("deliveries", 1);
    Ok(())
}
