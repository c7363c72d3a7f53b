//! The bulletin board before the first visit.

use sim::dice::Dice;
use testbed::fault::Fault;

use super::{AUTHORS, CATEGORIES, Rubbos};
use crate::drive::{Fill, day_ahead, letters};

/// How long a story and a comment may be.
const BODY_MAX: u64 = 1_024;
const COMMENT_MAX: u64 = 512;
/// A story has up to so many comments, and half of that on average.
const COMMENTS_MAX: u64 = 40;
/// How many submissions wait for a review.
const SUBMISSIONS: i32 = 40;
/// New stories are of so many days, old ones of so many before them.
const NEW_DAYS: u64 = 30;
const OLD_DAYS: u64 = 730;
/// Words that titles and subjects begin with, and that people search for.
pub(super) const WORDS: [&str; 16] = [
    "amber", "basin", "cedar", "delta", "ember", "fable", "grove", "haven", "inlet", "jetty", "knoll",
    "larch", "meadow", "north", "orchard", "pebble",
];

/// A user's nickname and password are made of the number; authors come first.
pub(super) fn nickname(user: i32) -> String {
    if user <= AUTHORS { format!("author{user}") } else { format!("user{user}") }
}

pub(super) fn password(user: i32) -> String {
    format!("pass{user}")
}

/// Makes the tables and fills them.
pub(super) async fn fill(rubbos: Rubbos, schema: &str, fill: &Fill<'_>) -> Result<(), Fault> {
    fill.say(schema).await?;
    let mut dice = Dice::new(fill.seed);
    let user = |id: i32| {
        let access = i32::from(id <= AUTHORS);
        let (name, word, day) = (nickname(id), password(id), day_ahead(-100).0);
        format!("{id}\tfirst{id}\tlast{id}\t{name}\t{word}\tuser{id}@example.org\t0\t{access}\t{day} 12:00")
    };
    fill.copy("users", (1..=rubbos.users()).map(user)).await?;
    fill.copy("categories", (1..=CATEGORIES).map(|id| format!("{id}\tcategory{id}"))).await?;
    let d = &mut dice;
    fill.copy("stories", (1..=rubbos.stories).map(|id| story(d, rubbos, id, 0, NEW_DAYS))).await?;
    // Old stories have numbers of their own, behind those that new ones will ever have.
    let old = || (1..=rubbos.old_stories()).map(|number| OLD_FIRST + number);
    fill.copy("old_stories", old().map(|id| story(d, rubbos, id, NEW_DAYS, OLD_DAYS))).await?;
    fill.copy("submissions", (1..=SUBMISSIONS).map(|id| story(d, rubbos, id, 0, 2))).await?;
    let seed = dice.number();
    let columns = "(id, writer, story_id, parent, childs, rating, date, subject, comment)";
    let lines = threads(seed, rubbos, 1..=rubbos.stories);
    let last = fill.copy(&format!("comments {columns}"), lines).await?;
    let lines = threads(!seed, rubbos, OLD_FIRST + 1..=OLD_FIRST + rubbos.old_stories());
    let last_old = fill.copy(&format!("old_comments {columns}"), lines).await?;
    for (table, last) in [
        ("users", u64::from(rubbos.users().unsigned_abs())),
        ("stories", u64::from(rubbos.stories.unsigned_abs())),
        ("submissions", u64::from(SUBMISSIONS.unsigned_abs())),
        ("comments", last),
        ("old_comments", last_old),
    ] {
        if last > 0 {
            fill.say(&format!("SELECT setval('{table}_id_seq', {last})")).await?;
        }
    }
    fill.say("ANALYZE").await
}

/// Before the number of the first old story.
pub(super) const OLD_FIRST: i32 = 1_000_000_000;

/// A story that is at least and at most so many days old.
fn story(dice: &mut Dice, rubbos: Rubbos, id: i32, least: u64, most: u64) -> String {
    let ago = i32::try_from(dice.between(least, most)).unwrap_or_default();
    let (word, title) = (*dice.pick(&WORDS), letters(dice, 5, 60));
    let body = letters(dice, 100, BODY_MAX);
    let writer = dice.between(1, u64::from(rubbos.users().unsigned_abs()));
    let category = dice.between(1, u64::from(CATEGORIES.unsigned_abs()));
    let (hour, minute) = (dice.below(24), dice.below(60));
    format!("{id}\t{word} {title}\t{body}\t{} {hour:02}:{minute:02}\t{writer}\t{category}", day_ahead(-ago).0)
}

/// The comments of all stories: half of them answer one of their story, the one before them or the one before that.
fn threads(
    seed: u64,
    rubbos: Rubbos,
    stories: std::ops::RangeInclusive<i32>,
) -> impl Iterator<Item = String> {
    let mut dice = Dice::new(seed);
    let mut next = 1_i64;
    stories.flat_map(move |story| {
        let count = dice.below(COMMENTS_MAX + 1);
        let first = next;
        next += i64::try_from(count).unwrap_or_default();
        // Whom each answers, and then how many answers each has.
        let parents: Vec<i64> = (0..i64::try_from(count).unwrap_or_default())
            .map(|place| {
                let back = if dice.percent(50) { i64::from(1 + u8::from(dice.percent(50))) } else { 0 };
                if back > 0 && place >= back { first + place - back } else { 0 }
            })
            .collect();
        let lines: Vec<String> = parents
            .iter()
            .zip(first..)
            .map(|(parent, id)| {
                let answers = parents.iter().filter(|other| **other == id).count();
                let writer = dice.between(1, u64::from(rubbos.users().unsigned_abs()));
                let rating = i64::try_from(dice.below(7)).unwrap_or_default() - 1;
                let (word, subject) = (*dice.pick(&WORDS), letters(&mut dice, 5, 60));
                let text = letters(&mut dice, 10, COMMENT_MAX);
                let day = day_ahead(-1).0;
                format!(
                    "{id}\t{writer}\t{story}\t{parent}\t{answers}\t{rating}\t{day} 12:00\t{word} {subject}\t{text}"
                )
            })
            .collect();
        lines
    })
}
