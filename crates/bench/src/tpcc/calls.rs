//! The five transactions as calls: each is one statement, which is the whole transaction (`tpcc-call`).
//!
//! The procedures are in `workloads/tpcc-call/procedures.sql`. They do what the statements of `tpcc` do, on the same
//! tables, drawn from the same terminals; the time is an argument. The updates are procedures and the two reads are STABLE
//! functions. There is no BEGIN, so the level of isolation is `default_transaction_isolation` of the session.

use std::rc::Rc;

use testbed::refusal::Refusal;

use super::Terminal;
use super::orders::{Line, Whom};
use super::payments::Payment;
use crate::drive::{Added, Call, Session, Texts, now};

/// The procedures and functions.
pub(super) const PROCEDURES: &str = include_str!("../../workloads/tpcc-call/procedures.sql");

/// The SQLSTATE of an order with an item that is not there.
const UNKNOWN_ITEM: &str = "TPC01";
/// Orders that one Delivery delivers at most: one of each district.
const DELIVERED_MAX: i32 = super::DISTRICTS;

const CALLS: [(&str, &str); 5] = [
    ("callNewOrder", "CALL new_order($1, $2, $3, $4, $5, $6, $7, NULL, NULL)"),
    ("callPayment", "CALL payment($1, $2, $3, $4, $5, $6, $7, $8)"),
    ("callDelivery", "CALL delivery($1, $2, $3, NULL)"),
    ("callOrderStatus", "SELECT * FROM order_status($1, $2, $3, $4)"),
    ("callStockLevel", "SELECT stock_level($1, $2, $3)"),
];

/// The texts of the calls.
pub(super) fn texts() -> Texts {
    Rc::new(CALLS.iter().map(|(name, text)| (*name, (*text).to_owned())).collect())
}

/// A customer as two arguments, of which one is null: number and last name.
fn told(whom: &Whom) -> (Option<i32>, Option<&str>) {
    match whom {
        Whom::Id(id) => (Some(*id), None),
        Whom::Name(name) => (None, Some(name)),
    }
}

impl Terminal {
    pub(super) async fn call_new_order(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let ((w, d, c), lines) = self.draw_order();
        let column = |of: fn(&Line) -> i32| lines.iter().map(of).collect::<Vec<i32>>();
        let items = column(|line| line.item);
        let (supplies, quantities) = (column(|line| line.supply), column(|line| line.quantity));
        session
            .call(Call {
                name: "callNewOrder",
                values: &[&w, &d, &c, &items, &supplies, &quantities, &now()],
                entered: ("orders", Added::One),
                undone_by: Some(UNKNOWN_ITEM),
            })
            .await
    }

    pub(super) async fn call_payment(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Payment { w, d, customer_w, customer_d, whom, amount } = self.draw_payment();
        let (id, name) = told(&whom);
        session
            .call(Call {
                name: "callPayment",
                values: &[&w, &d, &customer_w, &customer_d, &id, &name, &amount, &now()],
                entered: ("payments", Added::One),
                undone_by: None,
            })
            .await
    }

    pub(super) async fn call_delivery(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (w, carrier) = self.draw_delivery();
        session
            .call(Call {
                name: "callDelivery",
                values: &[&w, &carrier, &now()],
                entered: ("deliveries", Added::Told(DELIVERED_MAX)),
                undone_by: None,
            })
            .await
    }

    pub(super) async fn call_order_status(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (w, d, whom) = self.draw_question();
        let (id, name) = told(&whom);
        let lines = session.look_isolated("callOrderStatus", &[&w, &d, &id, &name]).await?;
        let is_whole = (5..=15).contains(&lines.len());
        is_whole.then_some(()).ok_or_else(|| Refusal::Told(format!("{} lines", lines.len())))
    }

    pub(super) async fn call_stock_level(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (w, d, threshold) = self.draw_level();
        session.look_isolated("callStockLevel", &[&w, &d, &threshold]).await.map(drop)
    }
}
