//! The shop as it is before the first visit: cardinalities and values of the specification.
//!
//! The generator of titles and names that the specification has is not public. Here an author's last name and a
//! book's title begin with what browsers search for, so that a search finds about ten books of two or three authors, or
//! five titles. Days lie before a fixed one, so that a seed is a database.

use sim::dice::Dice;
use testbed::fault::Fault;

use super::Scale;
use super::random::{CARDS, SHIPPING, SUBJECTS, between, country, day_of, digits, password, syllables};
use crate::drive::{Cents, Fill, cents, date, letters};

/// How many countries there are.
pub(super) const COUNTRIES: i32 = 92;
/// The day on which everything was filled in, counted from 1970-01-01: 2026-01-01.
const TODAY: i64 = 20_454;
const BACKINGS: [&str; 5] = ["HARDBACK", "PAPERBACK", "USED", "AUDIO", "LIMITED-EDITION"];
const STATES: [&str; 4] = ["PROCESSING", "SHIPPED", "PENDING", "DENIED"];

/// Makes the tables and fills them.
pub(super) async fn fill(scale: Scale, schema: &str, fill: &Fill<'_>) -> Result<(), Fault> {
    fill.say(schema).await?;
    let mut dice = Dice::new(fill.seed);
    let d = &mut dice;
    let row = |id| format!("{id}\t{}\t{}.{}\tCoins", country(id), between(d, 0, 99), digits(d, 6));
    fill.copy("country", (1..=COUNTRIES).map(row)).await?;
    let d = &mut dice;
    fill.copy("address", (1..=scale.addresses()).map(|id| address(d, id))).await?;
    fill.copy("customer", (1..=scale.customers()).map(|id| customer(d, scale, id))).await?;
    fill.copy("author", (1..=scale.authors()).map(|id| author(d, scale, id))).await?;
    fill.copy("item", (1..=scale.items).map(|id| item(d, scale, id))).await?;

    // An order, its lines and its payment are drawn from one seed, so that they fit each other.
    let seed = dice.number();
    let orders = || (1..=scale.orders()).map(move |id| Order::draw(scale, seed, id));
    fill.copy("orders", orders().map(|order| order.row())).await?;
    fill.copy("order_line", orders().flat_map(|order| order.lines(scale))).await?;
    fill.copy("cc_xacts", orders().map(Order::payment)).await?;
    for (table, column, last) in [
        ("address", "addr_id", scale.addresses()),
        ("customer", "c_id", scale.customers()),
        ("orders", "o_id", scale.orders()),
    ] {
        fill.say(&format!("SELECT setval('{table}_{column}_seq', {last})")).await?;
    }
    fill.say("ANALYZE").await
}

fn address(dice: &mut Dice, id: i32) -> String {
    format!(
        "{id}\t{}\t{}\t{}\t{}\t{}\t{}",
        letters(dice, 15, 40),
        letters(dice, 15, 40),
        letters(dice, 4, 30),
        letters(dice, 2, 20),
        letters(dice, 5, 10),
        between(dice, 1, COUNTRIES)
    )
}

fn customer(dice: &mut Dice, scale: Scale, id: i32) -> String {
    let (uname, passwd) = (syllables(id, 0), password(id));
    let since = TODAY - i64::from(between(dice, 1, 730));
    let last_login = (since + i64::from(between(dice, 0, 60))).min(TODAY);
    let year = between(dice, 1_880, 2_000);
    format!(
        "{id}\t{uname}\t{passwd}\t{}\t{}\t{}\t{}\t{}@{}.com\t{}\t{}\t{today} 00:00\t{today} 02:00\t0.{:02}\t0.00\t{}\t{}\t{}",
        letters(dice, 8, 15),
        letters(dice, 8, 15),
        between(dice, 1, scale.addresses()),
        digits(dice, 12),
        uname,
        letters(dice, 2, 9),
        date(since),
        date(last_login),
        between(dice, 0, 50),
        cents(i64::from(between(dice, 0, 99_999))),
        day_of(dice, year),
        letters(dice, 100, 500),
        today = date(TODAY),
    )
}

fn author(dice: &mut Dice, scale: Scale, id: i32) -> String {
    let last = syllables(id % (scale.items / 10 + 1), 7) + &letters(dice, 0, 6);
    let year = between(dice, 1_800, 1_990);
    format!(
        "{id}\t{}\t{last}\t{}\t{}\t{}",
        letters(dice, 3, 20),
        letters(dice, 1, 20),
        day_of(dice, year),
        letters(dice, 125, 500)
    )
}

fn item(dice: &mut Dice, scale: Scale, id: i32) -> String {
    let title = syllables(id % (scale.items / 5 + 1), 7) + &letters(dice, 0, 46);
    let author = if id <= scale.authors() { id } else { between(dice, 1, scale.authors()) };
    // A day in the years 1930 to 2000, counted as all days are.
    let published = i64::from(between(dice, -14_610, 11_322));
    let available = published + i64::from(between(dice, 1, 30));
    let related: Vec<String> = others(dice, scale.items, id).iter().map(ToString::to_string).collect();
    let retail = i64::from(between(dice, 100, 99_999));
    let cost = retail * i64::from(between(dice, 50, 100)) / 100;
    let size = |dice: &mut Dice| format!("{}.{:02}", between(dice, 0, 99), between(dice, 1, 99));
    format!(
        "{id}\t{title}\t{author}\t{}\t{}\t{}\t{}\t{}\timg{}/thumb_{id}.gif\timg{}/image_{id}.gif\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}x{}x{}",
        date(published),
        letters(dice, 14, 60),
        dice.pick(&SUBJECTS),
        letters(dice, 100, 500),
        related.join("\t"),
        id % 100,
        id % 100,
        cents(retail),
        cents(cost),
        date(available),
        between(dice, 10, 30),
        digits(dice, 13),
        between(dice, 20, 9_999),
        dice.pick(&BACKINGS),
        size(dice),
        size(dice),
        size(dice)
    )
}

/// Five different items, none of them this one.
fn others(dice: &mut Dice, items: i32, id: i32) -> Vec<i32> {
    let mut others = Vec::with_capacity(5);
    while others.len() < 5 {
        let other = between(dice, 1, items);
        if other != id && !others.contains(&other) {
            others.push(other);
        }
    }
    others
}

/// An order of the past.
struct Order {
    id: i32,
    customer: i32,
    day: i64,
    sub_total: i64,
    lines: i32,
    dice: Dice,
    addresses: i32,
}

impl Order {
    fn draw(scale: Scale, seed: u64, id: i32) -> Self {
        let mut dice = Dice::new(seed ^ u64::from(id.unsigned_abs()));
        Self {
            id,
            customer: between(&mut dice, 1, scale.customers()),
            day: TODAY - i64::from(between(&mut dice, 1, 60)),
            sub_total: i64::from(between(&mut dice, 1_000, 999_999)),
            lines: between(&mut dice, 1, 5),
            dice,
            addresses: scale.addresses(),
        }
    }

    fn tax(&self) -> i64 {
        super::tax(self.sub_total)
    }

    fn total(&self) -> Cents {
        cents(self.sub_total + self.tax() + 300 + 100 * i64::from(self.lines))
    }

    fn row(&self) -> String {
        let mut dice = self.dice.clone();
        let shipped = self.day + i64::from(between(&mut dice, 0, 7));
        format!(
            "{}\t{}\t{} 12:00\t{}\t{}\t{}\t{}\t{} 12:00\t{}\t{}\t{}",
            self.id,
            self.customer,
            date(self.day),
            cents(self.sub_total),
            cents(self.tax()),
            self.total(),
            dice.pick(&SHIPPING).to_owned(),
            date(shipped),
            between(&mut dice, 1, self.addresses),
            between(&mut dice, 1, self.addresses),
            dice.pick(&STATES)
        )
    }

    fn lines(mut self, scale: Scale) -> impl Iterator<Item = String> {
        (1..=self.lines).map(move |number| {
            let dice = &mut self.dice;
            format!(
                "{number}\t{}\t{}\t{}\t0.{:02}\t{}",
                self.id,
                between(dice, 1, scale.items),
                between(dice, 1, 300),
                between(dice, 0, 30),
                letters(dice, 20, 100)
            )
        })
    }

    fn payment(mut self) -> String {
        let total = self.total();
        let dice = &mut self.dice;
        format!(
            "{}\t{}\t{}\t{}\t{}\t{}\t{total}\t{} 12:00\t{}",
            self.id,
            dice.pick(&CARDS).to_owned(),
            digits(dice, 16),
            letters(dice, 14, 30),
            date(TODAY + i64::from(between(dice, 10, 730))),
            letters(dice, 15, 15),
            date(self.day),
            between(dice, 1, COUNTRIES)
        )
    }
}
