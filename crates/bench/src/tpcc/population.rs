//! The database as it is before the first order comes in (clause 4.3 of the specification).

use sim::dice::Dice;
use testbed::fault::Fault;

use super::random::{between, digits, last_name, letters, name_to_load, original};
use super::{DISTRICTS, Scale};
use crate::drive::{Cents, Fill, Rate, cents, rate};

/// Payments of a customer before the beginning, in cents. The sums of districts and warehouses follow.
const PAID: i64 = 1_000;
/// COPY's word for no value.
const NULL: &str = "\\N";
/// When everything that is there has happened: an instant, so that all who are filled have the same rows.
const LOADED: &str = "2026-01-01 00:00:00+00";

/// Makes the tables and fills them.
pub(super) async fn fill(scale: Scale, schema: &str, fill: &Fill<'_>) -> Result<(), Fault> {
    fill.say(schema).await?;
    let mut dice = Dice::new(fill.seed);
    let warehouses = || 1..=scale.warehouses;
    let districts = || warehouses().flat_map(|w| (1..=DISTRICTS).map(move |d| (w, d)));
    let customers = || districts().flat_map(|(w, d)| (1..=scale.customers).map(move |c| (w, d, c)));

    let d = &mut dice;
    fill.copy("warehouse", warehouses().map(|w| warehouse(d, scale, w))).await?;
    fill.copy("district", districts().map(|(w, id)| district(d, scale, w, id))).await?;
    let item = |id| {
        format!("{id}\t{}\t{}\t{}\t{}", between(d, 1, 10_000), letters(d, 14, 24), price(d), original(d))
    };
    fill.copy("item", (1..=scale.items).map(item)).await?;
    let d = &mut dice;
    let stocks = warehouses().flat_map(|w| (1..=scale.items).map(move |i| (w, i)));
    fill.copy("stock", stocks.map(|(w, i)| stock(d, w, i))).await?;
    fill.copy("customer", customers().map(|(w, id, c)| customer(d, scale, w, id, c))).await?;
    let history =
        |(w, id, c)| format!("{c}\t{id}\t{w}\t{id}\t{w}\t{LOADED}\t{}\t{}", cents(PAID), letters(d, 12, 24));
    fill.copy("history", customers().map(history)).await?;

    // Orders and their lines are drawn from a seed of their own for each district, so that they fit each other.
    let seed = dice.number();
    let orders = || districts().flat_map(move |(w, id)| Orders::new(scale, seed, w, id));
    fill.copy("orders (o_id, o_d_id, o_w_id, o_c_id, o_entry_d, o_carrier_id, o_ol_cnt, o_all_local)", {
        orders().map(|order| order.line())
    })
    .await?;
    let new = orders().filter(|order| !order.is_delivered);
    fill.copy("new_order", new.map(|order| format!("{}\t{}\t{}", order.w, order.d, order.id))).await?;
    let lines = orders().flat_map(|order| order.lines(scale));
    fill.copy("order_line", lines).await?;
    fill.say("ANALYZE").await
}

fn address(dice: &mut Dice) -> String {
    format!(
        "{}\t{}\t{}\t{}\t{}11111",
        letters(dice, 10, 20),
        letters(dice, 10, 20),
        letters(dice, 10, 20),
        letters(dice, 2, 2),
        digits(dice, 4)
    )
}

fn tax(dice: &mut Dice) -> Rate {
    rate(i64::from(between(dice, 0, 2_000)))
}

fn price(dice: &mut Dice) -> Cents {
    cents(i64::from(between(dice, 100, 10_000)))
}

fn warehouse(dice: &mut Dice, scale: Scale, w: i32) -> String {
    let received = cents(PAID * i64::from(scale.customers) * i64::from(DISTRICTS));
    format!("{w}\t{}\t{}\t{}\t{received}", letters(dice, 6, 10), address(dice), tax(dice))
}

fn district(dice: &mut Dice, scale: Scale, w: i32, d: i32) -> String {
    let received = cents(PAID * i64::from(scale.customers));
    let next = scale.customers + 1;
    format!("{w}\t{d}\t{}\t{}\t{}\t{received}\t{next}", letters(dice, 6, 10), address(dice), tax(dice))
}

fn stock(dice: &mut Dice, w: i32, item: i32) -> String {
    let quantity = between(dice, 10, 100);
    let places: Vec<String> = (0..DISTRICTS).map(|_| letters(dice, 24, 24)).collect();
    format!("{w}\t{item}\t{quantity}\t{}\t0\t0\t0\t{}", places.join("\t"), original(dice))
}

fn customer(dice: &mut Dice, scale: Scale, w: i32, d: i32, c: i32) -> String {
    let last = if c <= scale.names() { last_name(c - 1) } else { name_to_load(dice, scale.names()) };
    let credit = if dice.percent(10) { "BC" } else { "GC" };
    let discount = rate(i64::from(between(dice, 0, 5_000)));
    format!(
        "{w}\t{d}\t{c}\t{}\tOE\t{last}\t{}\t{}\t{LOADED}\t{credit}\t50000.00\t{discount}\t{}\t{}\t1\t0\t{}",
        letters(dice, 8, 16),
        address(dice),
        digits(dice, 16),
        cents(-PAID),
        cents(PAID),
        letters(dice, 300, 500),
    )
}

/// An order and the seed of its lines.
struct Order {
    w: i32,
    d: i32,
    id: i32,
    customer: i32,
    carrier: i32,
    count: i32,
    is_delivered: bool,
    seed: u64,
}

impl Order {
    fn line(&self) -> String {
        let Self { w, d, id, customer, count, .. } = self;
        let carrier = if self.is_delivered { self.carrier.to_string() } else { NULL.to_owned() };
        format!("{id}\t{d}\t{w}\t{customer}\t{LOADED}\t{carrier}\t{count}\t1")
    }

    fn lines(self, scale: Scale) -> impl Iterator<Item = String> {
        let mut dice = Dice::new(self.seed);
        (1..=self.count).map(move |number| {
            let dice = &mut dice;
            let Self { w, d, id, .. } = self;
            let item = between(dice, 1, scale.items);
            let (delivery, amount) = if self.is_delivered {
                (LOADED, cents(0))
            } else {
                (NULL, cents(i64::from(between(dice, 1, 999_999))))
            };
            format!(
                "{w}\t{d}\t{id}\t{number}\t{item}\t{w}\t{delivery}\t5\t{amount}\t{}",
                letters(dice, 24, 24)
            )
        })
    }
}

/// The orders of a district.
struct Orders {
    w: i32,
    d: i32,
    next: i32,
    delivered: i32,
    /// Each customer once, in any order; the last has the next order.
    customers: Vec<i32>,
    dice: Dice,
}

impl Orders {
    fn new(scale: Scale, seed: u64, w: i32, d: i32) -> Self {
        let number = u64::from(w.unsigned_abs()) * 100 + u64::from(d.unsigned_abs());
        let mut dice = Dice::new(seed ^ number);
        let mut customers: Vec<i32> = (1..=scale.customers).collect();
        for place in (1..customers.len()).rev() {
            let other = dice.index(place + 1);
            customers.swap(place, other);
        }
        Self { w, d, next: 1, delivered: scale.delivered(), customers, dice }
    }
}

impl Iterator for Orders {
    type Item = Order;

    fn next(&mut self) -> Option<Order> {
        let customer = self.customers.pop()?;
        let id = self.next;
        self.next += 1;
        Some(Order {
            w: self.w,
            d: self.d,
            id,
            customer,
            carrier: between(&mut self.dice, 1, 10),
            count: between(&mut self.dice, 5, 15),
            is_delivered: id <= self.delivered,
            seed: self.dice.number(),
        })
    }
}
