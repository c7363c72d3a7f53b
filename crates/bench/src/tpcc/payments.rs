//! Payment (clause 2.5).

use testbed::refusal::Refusal;

use super::orders::Whom;
use super::random::between;
use super::{DISTRICTS, Terminal};
use crate::drive::{Cents, Session, Transaction, cents};

/// The column of getPayer that tells the credit.
const CREDIT: usize = 9;
/// How long a customer's data may be.
const DATA_MAX: usize = 500;

/// The subject of a payment.
pub(super) struct Payment {
    pub(super) w: i32,
    pub(super) d: i32,
    /// The customer's warehouse and district.
    pub(super) customer_w: i32,
    pub(super) customer_d: i32,
    pub(super) whom: Whom,
    pub(super) amount: Cents,
}

impl Terminal {
    pub(super) async fn payment(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let payment = self.draw_payment();
        session.update(async |transaction| pay(transaction, &payment).await).await
    }

    pub(super) fn draw_payment(&mut self) -> Payment {
        let (w, d) = (self.warehouse, between(&mut self.dice, 1, DISTRICTS));
        let is_remote = self.scale.warehouses > 1 && self.dice.percent(15);
        let (customer_w, customer_d) =
            if is_remote { (self.other_warehouse(), between(&mut self.dice, 1, DISTRICTS)) } else { (w, d) };
        let amount = cents(i64::from(between(&mut self.dice, 100, 500_000)));
        Payment { w, d, customer_w, customer_d, whom: self.whom(), amount }
    }
}

async fn pay(transaction: &mut Transaction<'_>, payment: &Payment) -> Result<(), Refusal> {
    let Payment { w, d, customer_w, customer_d, whom, amount } = payment;
    transaction.one("payWarehouse", &[w, amount]).await?;
    let warehouse = transaction.row("getWarehouse", &[w]).await?;
    transaction.one("payDistrict", &[w, d, amount]).await?;
    let district = transaction.row("getDistrictAddress", &[w, d]).await?;
    let c = whom.find(transaction, *customer_w, *customer_d).await?;
    let payer = transaction.row("getPayer", &[customer_w, customer_d, &c]).await?;
    if payer.get::<_, &str>(CREDIT) == "BC" {
        let old = transaction.row("getPayerData", &[customer_w, customer_d, &c]).await?;
        let data = format!("{c} {customer_d} {customer_w} {d} {w} {amount}|{}", old.get::<_, &str>(0));
        let data: String = data.chars().take(DATA_MAX).collect();
        transaction.one("payCustomerBadCredit", &[customer_w, customer_d, &c, amount, &data]).await?;
    } else {
        transaction.one("payCustomer", &[customer_w, customer_d, &c, amount]).await?;
    }
    // The names are the last columns of both.
    let data = format!("{}    {}", warehouse.get::<_, &str>(5), district.get::<_, &str>(5));
    transaction.one("addHistory", &[customer_w, customer_d, &c, w, d, amount, &data]).await?;
    transaction.enter("payments", 1);
    Ok(())
}
