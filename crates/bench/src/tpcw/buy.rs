//! The interactions that write: SHOP, BUYR, BUYC, ADMC.

use std::time::{Duration, SystemTime};

use testbed::refusal::Refusal;

use super::browse::known;
use super::browser::Browser;
use super::mix::Page;
use super::population::COUNTRIES;
use super::random::{CARDS, SHIPPING, between, country, day_of, digits, password, syllables};
use super::tax;
use crate::drive::{Cents, Session, Text, Transaction, cents, day_ahead, letters};

/// Declared tables of the transactions.
const CART: &str = "read item; write shopping_cart, shopping_cart_line";
const CUSTOMER: &str = "read country; write address, customer";
const BOOK: &str = "read orders, order_line; write item";
const PURCHASE: &str =
    "read customer, country; write address, orders, order_line, cc_xacts, item, shopping_cart_line";

/// Below this an item's stock is filled up, by so many.
const STOCK_MIN: i32 = 10;
const STOCK_MORE: i32 = 21;
const DAY: Duration = Duration::from_hours(24);

/// An address as a customer types it in.
struct Address {
    street1: String,
    street2: String,
    city: String,
    state: String,
    zip: String,
    country: String,
}

impl Address {
    fn draw(browser: &mut Browser) -> Self {
        let dice = &mut browser.dice;
        Self {
            street1: letters(dice, 15, 40),
            street2: letters(dice, 15, 40),
            city: letters(dice, 10, 30),
            state: letters(dice, 2, 20),
            zip: letters(dice, 5, 10),
            country: country(between(dice, 1, COUNTRIES)),
        }
    }

    /// Its id; it is added if it is not there.
    async fn enter(&self, transaction: &mut Transaction<'_>) -> Result<i32, Refusal> {
        let Self { street1, street2, city, state, zip, country } = self;
        let country: i32 = transaction.row("findCountry", &[country]).await?.get(0);
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [street1, street2, city, state, zip, &country];
        if let Some(row) = transaction.rows("findAddress", &values).await?.pop() {
            return Ok(row.get(0));
        }
        Ok(transaction.row("addAddress", &values).await?.get(0))
    }
}

/// A line of a cart.
struct Line {
    item: i32,
    quantity: i32,
    cost: Cents,
}

/// A change of a cart.
enum Change {
    Add(i32),
    Refresh,
    Nothing,
}

impl Browser {
    pub(super) async fn cart(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let change = match self.from {
            Some(Page::ProductDetail) => Change::Add(self.shown),
            Some(Page::ShoppingCart) => Change::Refresh,
            _ => Change::Nothing,
        };
        let cart = if let Some(cart) = self.visit.cart {
            cart
        } else {
            let made = session.update_on("write shopping_cart", async |transaction| {
                transaction.enter("carts", 1);
                Ok(transaction.row("createCart", &[]).await?.get(0))
            });
            *self.visit.cart.insert(made.await?)
        };
        let (instead, seed) = (self.any_item(), self.dice.number());
        session
            .update_on(CART, async |transaction| {
                match change {
                    Change::Add(item) => add(transaction, cart, item).await?,
                    Change::Refresh => refresh(transaction, cart, seed).await?,
                    Change::Nothing => {}
                }
                let count: i64 = transaction.row("countLines", &[&cart]).await?.get(0);
                if count == 0 {
                    let item: i32 = transaction.row("firstRelated", &[&instead]).await?.get(0);
                    add(transaction, cart, item).await?;
                }
                transaction.one("touchCart", &[&cart]).await?;
                transaction.rows("getCart", &[&cart]).await.map(drop)
            })
            .await?;
        self.promotions(session).await.map(drop)
    }

    pub(super) async fn buy_request(&mut self, session: &mut Session) -> Result<(), Refusal> {
        match self.visit.customer {
            Some(customer) => {
                let name = syllables(customer, 0);
                let row = known(session.look("getCustomer", &[&name]).await?, "customer")?;
                if row.get::<_, i32>("c_id") != customer {
                    return Err(Refusal::Told(format!("{name} is another customer")));
                }
                session.change("refreshSession", &[&customer], &[]).await?;
            }
            None => self.visit.customer = Some(self.new_customer(session).await?),
        }
        if let Some(cart) = self.visit.cart {
            session
                .read_on("read shopping_cart_line, item", async |transaction| {
                    transaction.rows("getCart", &[&cart]).await.map(drop)
                })
                .await?;
        }
        Ok(())
    }

    async fn new_customer(&mut self, session: &mut Session) -> Result<i32, Refusal> {
        let address = Address::draw(self);
        let dice = &mut self.dice;
        let (first, last) = (letters(dice, 8, 15), letters(dice, 8, 15));
        let length = between(dice, 9, 16);
        let (phone, domain) = (digits(dice, length), letters(dice, 2, 9));
        let discount = f32::from(i16::try_from(between(dice, 0, 50)).unwrap_or_default()) / 100.0;
        let year = between(dice, 1_880, 2_000);
        let (birth, data) = (Text(day_of(dice, year)), letters(dice, 100, 500));
        session
            .update_on(CUSTOMER, async |transaction| {
                let address = address.enter(transaction).await?;
                let id: i64 = transaction.row("nextCustomer", &[]).await?.get(0);
                let id = i32::try_from(id).map_err(|_| Refusal::Told("no customer number is left".into()))?;
                let (name, word) = (syllables(id, 0), password(id));
                let email = format!("{name}@{domain}.com");
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 11] =
                    [&id, &name, &word, &first, &last, &address, &phone, &email, &discount, &birth, &data];
                transaction.one("addCustomer", &values).await?;
                transaction.enter("customers", 1);
                Ok(id)
            })
            .await
    }

    pub(super) async fn buy_confirm(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let customer = self.someone();
        let cart = self.visit.cart.ok_or_else(|| Refusal::Told("nothing to buy: there is no cart".into()))?;
        let elsewhere = self.dice.percent(5).then(|| Address::draw(self));
        let dice = &mut self.dice;
        let purchase = Purchase {
            customer,
            cart,
            elsewhere,
            shipping: dice.pick::<&str>(&SHIPPING),
            card: dice.pick::<&str>(&CARDS),
            number: digits(dice, 16),
            name: letters(dice, 14, 30),
            expires: day_ahead(between(dice, 1, 730)),
            ships: SystemTime::now() + DAY * between(dice, 0, 7).unsigned_abs(),
            comment: letters(dice, 20, 100),
        };
        session.update_on(PURCHASE, async |transaction| purchase.run(transaction).await).await
    }

    pub(super) async fn admin_confirm(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let item = self.shown;
        self.book(session, item).await?;
        let cost = cents(i64::from(between(&mut self.dice, 100, 999_999)));
        let picture = self.any_item();
        let image = format!("img{}/image_{picture}.gif", picture % 100);
        let thumbnail = format!("img{}/thumb_{picture}.gif", picture % 100);
        // Books to be named when too few were bought together.
        let first = self.any_item();
        let items = self.scale.items;
        session
            .update_on(BOOK, async |transaction| {
                transaction.one("changeItem", &[&item, &cost, &image, &thumbnail]).await?;
                let rows = transaction.rows("boughtTogether", &[&item]).await?;
                let mut related: Vec<i32> = rows.iter().map(|row| row.get(0)).collect();
                let mut more = first;
                while related.len() < 5 {
                    if more != item && !related.contains(&more) {
                        related.push(more);
                    }
                    more = more % items + 1;
                }
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                    [&item, &related[0], &related[1], &related[2], &related[3], &related[4]];
                transaction.one("changeRelated", &values).await
            })
            .await
    }
}

/// One more of an item.
async fn add(transaction: &mut Transaction<'_>, cart: i32, item: i32) -> Result<(), Refusal> {
    match transaction.rows("findLine", &[&cart, &item]).await?.pop() {
        Some(line) => {
            let quantity: i32 = line.get(0);
            transaction.one("setLine", &[&cart, &item, &(quantity + 1)]).await
        }
        None => transaction.one("addLine", &[&cart, &item, &1_i32]).await,
    }
}

/// Other quantities for some lines: of one line from 1 to 10, of several 0 to 9, where 0 takes the line away.
async fn refresh(transaction: &mut Transaction<'_>, cart: i32, seed: u64) -> Result<(), Refusal> {
    let mut dice = sim::dice::Dice::new(seed);
    let mut lines = lines(transaction, cart).await?;
    if let [line] = &lines[..] {
        let quantity = between(&mut dice, 1, 10);
        return transaction.one("setLine", &[&cart, &line.item, &quantity]).await;
    }
    let changed = if lines.is_empty() { 0 } else { 1 + dice.index(lines.len()) };
    for _ in 0..changed {
        let line = lines.swap_remove(dice.index(lines.len()));
        let drawn = between(&mut dice, 0, 8);
        let quantity = if drawn >= line.quantity { drawn + 1 } else { drawn };
        match quantity {
            0 => transaction.one("removeLine", &[&cart, &line.item]).await?,
            quantity => transaction.one("setLine", &[&cart, &line.item, &quantity]).await?,
        }
    }
    Ok(())
}

async fn lines(transaction: &mut Transaction<'_>, cart: i32) -> Result<Vec<Line>, Refusal> {
    let rows = transaction.rows("getCart", &[&cart]).await?;
    Ok(rows.iter().map(|row| Line { item: row.get(0), quantity: row.get(1), cost: row.get(3) }).collect())
}

/// An order as it is confirmed.
struct Purchase {
    customer: i32,
    cart: i32,
    elsewhere: Option<Address>,
    shipping: &'static str,
    card: &'static str,
    number: String,
    name: String,
    expires: Text,
    ships: SystemTime,
    comment: String,
}

impl Purchase {
    async fn run(&self, transaction: &mut Transaction<'_>) -> Result<(), Refusal> {
        let discount: f32 = transaction.row("getDiscount", &[&self.customer]).await?.get(0);
        let lines = lines(transaction, self.cart).await?;
        if lines.is_empty() {
            return Err(Refusal::Told(format!("nothing to buy: cart {} is empty", self.cart)));
        }
        let bill: i32 = transaction.row("getCustomerAddress", &[&self.customer]).await?.get(0);
        let ship = match &self.elsewhere {
            Some(address) => address.enter(transaction).await?,
            None => bill,
        };
        let full: i64 = lines.iter().map(|line| line.cost.0 * i64::from(line.quantity)).sum();
        let units: i64 = lines.iter().map(|line| i64::from(line.quantity)).sum();
        let percent = (f64::from(discount) * 100.0).round() as i64;
        let sub_total = full * (100 - percent) / 100;
        let total = cents(sub_total + tax(sub_total) + 300 + 100 * units);
        let order: i32 = transaction
            .row(
                "addOrder",
                &[
                    &self.customer,
                    &cents(sub_total),
                    &cents(tax(sub_total)),
                    &total,
                    &self.shipping,
                    &self.ships,
                    &bill,
                    &ship,
                ],
            )
            .await?
            .get(0);
        let discount = cents(percent);
        for (number, line) in (1_i32..).zip(&lines) {
            let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
                [&number, &order, &line.item, &line.quantity, &discount, &self.comment];
            transaction.one("addOrderLine", &values).await?;
            let stock: i32 = transaction.row("getStock", &[&line.item]).await?.get(0);
            let left = stock - line.quantity;
            let left = if left < STOCK_MIN { left + STOCK_MORE } else { left };
            transaction.one("setStock", &[&line.item, &left]).await?;
        }
        let Self { card, number, name, expires, .. } = self;
        transaction.one("addPayment", &[&order, card, number, name, expires, &total, &ship]).await?;
        transaction.execute("clearCart", &[&self.cart]).await?;
        transaction.enter("orders", 1);
        transaction.enter("order lines", i64::try_from(lines.len()).unwrap_or(i64::MAX));
        Ok(())
    }
}
