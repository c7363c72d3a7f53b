//! The auction site before the first visit.

use sim::dice::Dice;
use testbed::fault::Fault;

use super::{CATEGORIES, REGIONS, Rubis};
use crate::drive::{Fill, day_ahead, letters};

/// How long a description and a comment may be; the published ones have up to 7,168 and 2,048 characters.
const DESCRIPTION_MAX: u64 = 1_024;
const COMMENT_MAX: u64 = 512;
/// An item has fewer bids than this, and ten on average.
const BIDS: u64 = 20;
/// Comments of users on other users.
pub(super) const RATINGS: [i32; 5] = [-5, -3, 0, 3, 5];

/// A user's nickname and password are made of the number.
pub(super) fn nickname(user: i32) -> String {
    format!("nick{user}")
}

pub(super) fn password(user: i32) -> String {
    format!("pass{user}")
}

/// A region's name.
pub(super) fn region(region: i32) -> String {
    format!("region{region}")
}

/// The properties of an item that are drawn from a seed of its own, so that they fit its bids.
struct Item {
    id: i32,
    initial: u64,
    bids: u64,
    dice: Dice,
}

impl Item {
    fn draw(seed: u64, id: i32) -> Self {
        let mut dice = Dice::new(seed ^ u64::from(id.unsigned_abs()));
        let (initial, bids) = (dice.between(1, 5_000), dice.below(BIDS));
        Self { id, initial, bids, dice }
    }

    /// Each bid is one more than the one before.
    fn highest(&self) -> u64 {
        if self.bids == 0 { 0 } else { self.initial + self.bids }
    }

    fn row(mut self, rubis: Rubis, is_old: bool) -> String {
        let dice = &mut self.dice.clone();
        let quantity = if dice.percent(80) { 1 } else { dice.between(1, 10) };
        let reserve = if dice.percent(40) { self.initial + dice.below(1_000) } else { 0 };
        let now = if dice.percent(10) { self.initial + dice.below(1_000) } else { 0 };
        let lasts = i32::try_from(dice.between(1, 7)).unwrap_or(1);
        let ago = i32::try_from(dice.between(1, 60)).unwrap_or(1);
        let (from, to) = if is_old { (-ago - lasts, -ago) } else { (0, lasts) };
        let (bids, highest) = if is_old { (0, 0) } else { (self.bids, self.highest()) };
        let seller = dice.between(1, u64::from(rubis.users().unsigned_abs()));
        let category = dice.between(1, u64::from(CATEGORIES.unsigned_abs()));
        let description = letters(&mut self.dice, 20, DESCRIPTION_MAX);
        format!(
            "{id}\tItem {id}\t{description}\t{}\t{quantity}\t{reserve}\t{now}\t{bids}\t{highest}\t{} 00:00\t{} 23:59\t{seller}\t{category}",
            self.initial,
            day_ahead(from).0,
            day_ahead(to).0,
            id = self.id,
        )
    }
}

/// Makes the tables and fills them.
pub(super) async fn fill(rubis: Rubis, schema: &str, fill: &Fill<'_>) -> Result<(), Fault> {
    fill.say(schema).await?;
    let mut dice = Dice::new(fill.seed);
    fill.copy("categories", (1..=CATEGORIES).map(|id| format!("{id}\tcategory{id}"))).await?;
    fill.copy("regions", (1..=REGIONS).map(|id| format!("{id}\t{}", region(id)))).await?;
    let seed = dice.number();
    let columns = "(from_user_id, to_user_id, item_id, rating, date, comment)";
    let all = u64::from(rubis.users().unsigned_abs());
    let mut ratings = vec![0_i32; usize::try_from(rubis.users()).unwrap_or_default() + 1];
    let d = &mut dice;
    // About one comment for each old item; the ratings of users are their sums.
    let comments = (1..=rubis.old_items()).map(|item| {
        let (from, to, rating) = (d.between(1, all), d.between(1, all), *d.pick(&RATINGS));
        ratings[usize::try_from(to).unwrap_or_default()] += rating;
        let text = letters(d, 10, COMMENT_MAX);
        format!("{from}\t{to}\t{}\t{rating}\t{} 12:00\t{text}", rubis.items + item, day_ahead(-1).0)
    });
    fill.copy(&format!("comments {columns}"), comments).await?;
    let d = &mut dice;
    let user = |id: i32| {
        let rating = ratings[usize::try_from(id).unwrap_or_default()];
        let region = d.between(1, u64::from(REGIONS.unsigned_abs()));
        format!(
            "{id}\tfirst{id}\tlast{id}\t{}\t{}\tuser{id}@example.org\t{rating}\t0\t{} 12:00\t{region}",
            nickname(id),
            password(id),
            day_ahead(-100).0
        )
    };
    fill.copy("users", (1..=rubis.users()).map(user)).await?;
    let items = || (1..=rubis.items).map(move |id| Item::draw(seed, id));
    fill.copy("items", items().map(|item| item.row(rubis, false))).await?;
    let old = (1..=rubis.old_items()).map(|id| Item::draw(seed, rubis.items + id).row(rubis, true));
    fill.copy("old_items", old).await?;
    let d = &mut dice;
    let bids = items().flat_map(|item| (1..=item.bids).map(move |bid| (item.id, item.initial + bid)));
    let bid = |(item, bid): (i32, u64)| {
        format!("{}\t{item}\t1\t{bid}\t{}\t{} 12:00", d.between(1, all), bid * 2, day_ahead(-1).0)
    };
    fill.copy("bids (user_id, item_id, qty, bid, max_bid, date)", bids.map(bid)).await?;
    // Old items have their numbers behind the new ones; what is put on sale comes behind both.
    for (table, last) in [("users", rubis.users()), ("items", rubis.items + rubis.old_items())] {
        fill.say(&format!("SELECT setval('{table}_id_seq', {last})")).await?;
    }
    fill.say("ANALYZE").await
}
