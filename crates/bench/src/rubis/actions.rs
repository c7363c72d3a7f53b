//! The statements of a visitor on each page.

use testbed::refusal::Refusal;
use tokio_postgres::Row;

use super::population::{RATINGS, nickname, password, region};
use super::{CATEGORIES, REGIONS, Visitor};
use crate::drive::{Session, letters};

/// Items on a page.
const PAGE: i64 = 20;
/// Columns of `items` and `old_items`.
const QUANTITY: usize = 4;
const SELLER: usize = 11;
/// Columns of comments and bids that name a user.
const COMMENT_FROM: usize = 1;
const BID_USER: usize = 1;

impl Visitor {
    pub(super) async fn visit(&mut self, session: &mut Session) -> Result<(), Refusal> {
        match self.walk.page() {
            "RegisterUser" => self.register_user(session).await,
            "BrowseCategories" => all(session, "allCategories").await,
            "SearchItemsInCategory" => self.search(session, false).await,
            "BrowseRegions" => all(session, "allRegions").await,
            "BrowseCategoriesInRegion" => {
                self.region = self.up_to(REGIONS);
                one(session.look("regionByName", &[&region(self.region)]).await?, "region")?;
                all(session, "allCategories").await
            }
            "SearchItemsInRegion" => self.search(session, true).await,
            "ViewItem" => self.view_item(session).await,
            "ViewUserInfo" => self.view_user(session).await,
            "ViewBidHistory" => self.bid_history(session).await,
            "BuyNow" => self.sale(session, false).await,
            "StoreBuyNow" => self.buy_now(session).await,
            "PutBid" => self.sale(session, true).await,
            "StoreBid" => self.bid(session).await,
            "PutComment" => {
                self.log_in(session).await?;
                name_of(session, self.other).await?;
                self.item_name(session).await
            }
            "StoreComment" => self.comment(session).await,
            "SelectCategoryToSellItem" => {
                self.log_in(session).await?;
                all(session, "allCategories").await
            }
            "RegisterItem" => self.register_item(session).await,
            "AboutMe" => self.about_me(session).await,
            // Forms and pages without anything from the database.
            _ => Ok(()),
        }
    }

    async fn log_in(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let rows = session.look("authenticate", &[&nickname(self.user), &password(self.user)]).await?;
        one(rows, "user with that password").map(drop)
    }

    async fn register_user(&mut self, session: &mut Session) -> Result<(), Refusal> {
        self.added += 1;
        // A name that no other run makes, since seeds differ.
        let tag = self.dice.number() % 100_000_000;
        let name = format!("n{}-{}-{tag}", self.number, self.added);
        let (region, secret) = (region(self.up_to(REGIONS)), letters(&mut self.dice, 8, 12));
        session
            .update(async |transaction| {
                let region: i32 = transaction.row("regionByName", &[&region]).await?.get(0);
                let taken: i64 = transaction.row("countNickname", &[&name]).await?.get(0);
                if taken > 0 {
                    transaction.undo();
                    return Ok(());
                }
                let mail = format!("{name}@example.org");
                transaction.one("addUser", &[&"first", &"last", &name, &secret, &mail, &region]).await?;
                transaction.row("userByNickname", &[&name]).await?;
                transaction.enter("users", 1);
                Ok(())
            })
            .await
    }

    async fn search(&mut self, session: &mut Session, is_regional: bool) -> Result<(), Refusal> {
        // On to the next page, or another category.
        if self.listed.len() == 20 && self.dice.percent(50) {
            self.page += 1;
        } else {
            (self.page, self.category) = (0, self.up_to(CATEGORIES));
        }
        let from = self.page * PAGE;
        let rows = if is_regional {
            session.look("itemsInRegion", &[&self.category, &self.region, &PAGE, &from]).await?
        } else {
            session.look("itemsInCategory", &[&self.category, &PAGE, &from]).await?
        };
        self.listed = rows.iter().map(|row| row.get(0)).collect();
        Ok(())
    }

    /// The item, on sale or not.
    async fn find_item(&self, session: &mut Session) -> Result<Row, Refusal> {
        let mut rows = session.look("getItem", &[&self.item]).await?;
        if rows.is_empty() {
            rows = session.look("getOldItem", &[&self.item]).await?;
        }
        one(rows, "item")
    }

    async fn view_item(&mut self, session: &mut Session) -> Result<(), Refusal> {
        self.item =
            if self.listed.is_empty() { self.up_to(self.rubis.items) } else { *self.dice.pick(&self.listed) };
        let item = self.find_item(session).await?;
        session.look("maxBid", &[&self.item]).await?;
        let quantity: i32 = item.get(QUANTITY);
        if quantity > 1 {
            session.look("topBids", &[&self.item, &i64::from(quantity)]).await?;
        }
        session.look("countBids", &[&self.item]).await?;
        self.other = item.get(SELLER);
        name_of(session, self.other).await
    }

    async fn view_user(&mut self, session: &mut Session) -> Result<(), Refusal> {
        one(session.look("getUser", &[&self.other]).await?, "user")?;
        comments_to(session, self.other).await
    }

    async fn item_name(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let mut rows = session.look("itemName", &[&self.item]).await?;
        if rows.is_empty() {
            rows = session.look("oldItemName", &[&self.item]).await?;
        }
        one(rows, "item").map(drop)
    }

    async fn bid_history(&mut self, session: &mut Session) -> Result<(), Refusal> {
        self.item_name(session).await?;
        for bid in session.look("bidsOn", &[&self.item]).await? {
            name_of(session, bid.get(BID_USER)).await?;
        }
        Ok(())
    }

    /// The form on which something is bought or bid for.
    async fn sale(&mut self, session: &mut Session, is_auction: bool) -> Result<(), Refusal> {
        self.log_in(session).await?;
        let item = self.find_item(session).await?;
        name_of(session, item.get(SELLER)).await?;
        if is_auction {
            session.look("maxBid", &[&self.item]).await?;
            session.look("countBids", &[&self.item]).await?;
        }
        Ok(())
    }

    async fn buy_now(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (item, user, drawn) = (self.item, self.user, self.up_to(10));
        session
            .update(async |transaction| {
                let Some(row) = transaction.rows("lockItem", &[&item]).await?.pop() else {
                    transaction.undo();
                    return Ok(());
                };
                let there: i32 = row.get(0);
                if there == 0 {
                    transaction.undo();
                    return Ok(());
                }
                let taken = 1 + drawn % there;
                if taken == there {
                    transaction.one("takeLastItems", &[&item]).await?;
                } else {
                    transaction.one("takeItems", &[&item, &(there - taken)]).await?;
                }
                transaction.one("addBuyNow", &[&user, &item, &taken]).await?;
                transaction.enter("purchases", 1);
                Ok(())
            })
            .await
    }

    async fn bid(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (item, user, more) = (self.item, self.user, f64::from(self.up_to(10)));
        session
            .update(async |transaction| {
                let Some(row) = transaction.rows("lockBids", &[&item]).await?.pop() else {
                    transaction.undo();
                    return Ok(());
                };
                let highest: f64 = row.get(0);
                let bid = highest + more;
                transaction.one("addBid", &[&user, &item, &1_i32, &bid, &(bid * 2.0)]).await?;
                if bid > highest {
                    transaction.one("countUpAndRaise", &[&item, &bid]).await?;
                } else {
                    transaction.one("countUp", &[&item]).await?;
                }
                transaction.enter("bids", 1);
                Ok(())
            })
            .await
    }

    async fn comment(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let (from, to, item) = (self.user, self.other, self.item);
        let (rating, text) = (*self.dice.pick(&RATINGS), letters(&mut self.dice, 10, 512));
        session
            .update(async |transaction| {
                transaction.row("getRating", &[&to]).await?;
                transaction.one("rate", &[&to, &rating]).await?;
                transaction.one("addComment", &[&from, &to, &item, &rating, &text]).await?;
                transaction.enter("comments", 1);
                Ok(())
            })
            .await
    }

    async fn register_item(&mut self, session: &mut Session) -> Result<(), Refusal> {
        self.added += 1;
        let tag = self.dice.number();
        let name = format!("New item {}-{}-{tag}", self.number, self.added);
        let text = letters(&mut self.dice, 20, 1_024);
        let price = f64::from(self.up_to(5_000));
        let (days, user, category) = (self.up_to(7), self.user, self.up_to(CATEGORIES));
        session
            .update(async |transaction| {
                let values: [&(dyn tokio_postgres::types::ToSql + Sync); 9] =
                    [&name, &text, &price, &1_i32, &price, &(price + 10.0), &days, &user, &category];
                transaction.one("addItem", &values).await?;
                transaction.row("itemByName", &[&name]).await?;
                transaction.enter("items", 1);
                Ok(())
            })
            .await
    }

    async fn about_me(&mut self, session: &mut Session) -> Result<(), Refusal> {
        self.log_in(session).await?;
        one(session.look("getUser", &[&self.user]).await?, "user")?;
        for (list, item, column) in
            [("currentBids", "getItem", 0), ("itemsWon", "getOldItem", 0), ("boughtNow", "getItem", 2)]
        {
            for row in session.look(list, &[&self.user]).await? {
                let id: i32 = row.get(column);
                if let Some(item) = session.look(item, &[&id]).await?.pop() {
                    name_of(session, item.get(SELLER)).await?;
                }
            }
        }
        session.look("itemsOnSale", &[&self.user]).await?;
        session.look("itemsSold", &[&self.user]).await?;
        comments_to(session, self.user).await
    }
}

async fn all(session: &mut Session, query: &'static str) -> Result<(), Refusal> {
    session.look(query, &[]).await.map(drop)
}

async fn name_of(session: &mut Session, user: i32) -> Result<(), Refusal> {
    one(session.look("nickname", &[&user]).await?, "user").map(drop)
}

async fn comments_to(session: &mut Session, user: i32) -> Result<(), Refusal> {
    for comment in session.look("commentsTo", &[&user]).await? {
        name_of(session, comment.get(COMMENT_FROM)).await?;
    }
    Ok(())
}

fn one(mut rows: Vec<Row>, what: &str) -> Result<Row, Refusal> {
    rows.pop().ok_or_else(|| Refusal::Told(format!("no such {what}")))
}
