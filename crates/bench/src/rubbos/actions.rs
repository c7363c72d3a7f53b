//! The statements of a visitor on each page.

use std::time::{Duration, SystemTime};

use testbed::refusal::Refusal;
use tokio_postgres::Row;

use super::population::{WORDS, nickname, password};
use super::{CATEGORIES, Seen, Visitor};
use crate::drive::{Session, letters};

/// Stories on a page.
const PAGE: i64 = 20;
/// Columns of stories and submissions, and of searches for them.
const STORY_WRITER: usize = 4;
const FOUND_WRITER: usize = 3;
/// Columns of comments.
const COMMENT_WRITER: usize = 1;
const COMMENT_PARENT: usize = 3;
const COMMENT_CHILDS: usize = 4;
/// How deep threads are shown, and how many comments on a page.
const SHOWN_MAX: usize = 60;
const DAY: Duration = Duration::from_hours(24);
/// Ratings of comments.
const RATING_MIN: i32 = -1;
const RATING_MAX: i32 = 5;

impl Visitor {
    pub(super) async fn visit(&mut self, session: &mut Session) -> Result<(), Refusal> {
        match self.walk.page() {
            "StoriesOfTheDay" => {
                let rows = session.look("newestStories", &[]).await?;
                self.list(session, &rows, false, STORY_WRITER).await
            }
            "RegisterUser" => self.register_user(session).await,
            "BrowseCategories" | "SubmitStory" => session.look("allCategories", &[]).await.map(drop),
            "BrowseStoriesInCategory" => {
                let category = self.up_to(CATEGORIES);
                let rows = session.look("storiesInCategory", &[&category, &PAGE, &0_i64]).await?;
                self.list(session, &rows, false, STORY_WRITER).await
            }
            "OlderStories" => self.older_stories(session).await,
            "ViewStory" => self.view_story(session).await,
            "StoreComment" => self.store_comment(session).await,
            "ViewComment" => self.view_comment(session).await,
            "ModerateComment" => self.moderate(session).await,
            "StoreModeratorLog" => self.store_moderation(session).await,
            "StoreStory" => self.store_story(session).await,
            "SearchInStories" => self.search(session, "storiesByTitle", "oldStoriesByTitle").await,
            "SearchInComments" => self.search_comments(session).await,
            "SearchInUsers" => self.search_users(session).await,
            "AuthorTasks" => self.log_in(session).await.map(drop),
            "ReviewStories" => self.review(session).await,
            "AcceptStory" => self.accept(session).await,
            "RejectStory" => self.reject(session).await,
            // Forms.
            _ => Ok(()),
        }
    }

    /// One query for each of the two tables of comments.
    fn of(&self, new: &'static str, old: &'static str) -> &'static str {
        if self.is_old { old } else { new }
    }

    async fn log_in(&mut self, session: &mut Session) -> Result<i32, Refusal> {
        let values = (nickname(self.user), password(self.user));
        let rows = session.look("authenticateWithAccess", &[&values.0, &values.1]).await?;
        rows.first().map(|row| row.get(1)).ok_or_else(|| Refusal::Told(format!("{} is nobody", values.0)))
    }

    /// Shows stories with their writers.
    async fn list(
        &mut self,
        session: &mut Session,
        rows: &[Row],
        is_old: bool,
        writer: usize,
    ) -> Result<(), Refusal> {
        self.listed = rows.iter().map(|row| (row.get(0), is_old)).collect();
        names(session, rows, writer).await
    }

    async fn register_user(&mut self, session: &mut Session) -> Result<(), Refusal> {
        self.added += 1;
        let tag = self.dice.number() % 100_000_000;
        let name = format!("n{}-{}-{tag}", self.number, self.added);
        if session.look("userByNickname", &[&name]).await?.is_empty() {
            let (secret, mail) = (letters(&mut self.dice, 8, 12), format!("{name}@example.org"));
            session.change("addUser", &[&"first", &"last", &name, &secret, &mail], &[("users", 1)]).await?;
        }
        let rows = session.look("userByNickname", &[&name]).await?;
        if rows.len() == 1 { Ok(()) } else { Err(Refusal::Told(format!("{} users are {name}", rows.len()))) }
    }

    async fn older_stories(&mut self, session: &mut Session) -> Result<(), Refusal> {
        // Mostly a day of the past week, sometimes any.
        let range = if self.dice.percent(95) { 7 } else { 700 };
        let to = SystemTime::now() - DAY * u32::try_from(self.dice.below(range)).unwrap_or_default();
        let from = to - DAY;
        let mut rows = session.look("storiesBetween", &[&from, &to, &PAGE, &0_i64]).await?;
        let is_old = rows.is_empty();
        if is_old {
            rows = session.look("oldStoriesBetween", &[&from, &to, &PAGE, &0_i64]).await?;
        }
        self.list(session, &rows, is_old, STORY_WRITER).await
    }

    async fn view_story(&mut self, session: &mut Session) -> Result<(), Refusal> {
        if !self.listed.is_empty() {
            (self.story, self.is_old) = *self.dice.pick(&self.listed);
        }
        let mut rows = session.look("getStory", &[&self.story]).await?;
        self.is_old = rows.is_empty();
        if rows.is_empty() {
            rows = session.look("getOldStory", &[&self.story]).await?;
        }
        names(session, &rows, STORY_WRITER).await?;
        self.comment = None;
        session.look(self.of("ratingCounts", "ratingCountsOld"), &[&self.story]).await?;
        let least = self.least_rating();
        let top = session.look(self.of("topComments", "topCommentsOld"), &[&self.story, &least]).await?;
        self.show(session, top).await
    }

    fn least_rating(&mut self) -> i32 {
        RATING_MIN + i32::try_from(self.dice.below(3)).unwrap_or_default()
    }

    /// Shows comments with what answers them.
    async fn show(&mut self, session: &mut Session, mut rows: Vec<Row>) -> Result<(), Refusal> {
        rows.reverse();
        let mut seen = Vec::new();
        while let Some(row) = rows.pop() {
            if seen.len() == SHOWN_MAX {
                break;
            }
            names(session, std::slice::from_ref(&row), COMMENT_WRITER).await?;
            let id: i32 = row.get(0);
            seen.push(Seen { id, parent: row.get(COMMENT_PARENT) });
            if row.get::<_, i32>(COMMENT_CHILDS) > 0 {
                rows.extend(session.look(self.of("childComments", "childCommentsOld"), &[&id]).await?);
            }
        }
        if !seen.is_empty() {
            self.comment = Some(*self.dice.pick(&seen));
        }
        Ok(())
    }

    async fn view_comment(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Some(comment) = self.comment else { return Ok(()) };
        session.look(self.of("getParent", "getParentOld"), &[&comment.id]).await?;
        session.look(self.of("ratingCounts", "ratingCountsOld"), &[&self.story]).await?;
        let least = self.least_rating();
        let query = self.of("commentsBelow", "commentsBelowOld");
        let rows = session.look(query, &[&self.story, &comment.parent, &least]).await?;
        self.show(session, rows).await
    }

    async fn store_comment(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let rows = session.look("authenticate", &[&nickname(self.user), &password(self.user)]).await?;
        if rows.is_empty() {
            return Err(Refusal::Told(format!("{} is nobody", nickname(self.user))));
        }
        let parent = self.comment.map_or(0, |comment| comment.id);
        let subject = format!("{} {}", self.dice.pick(&WORDS), letters(&mut self.dice, 5, 60));
        let text = letters(&mut self.dice, 10, 512);
        let query = self.of("addComment", "addCommentOld");
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 6] =
            [&self.user, &self.story, &parent, &0_i32, &subject, &text];
        session.change(query, &values, &[("comments", 1)]).await?;
        if parent != 0 {
            session.change(self.of("countChild", "countChildOld"), &[&parent], &[]).await?;
        }
        Ok(())
    }

    async fn moderate(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Some(comment) = self.comment else { return Ok(()) };
        let rows = session.look(self.of("getComment", "getCommentOld"), &[&comment.id]).await?;
        names(session, &rows, COMMENT_WRITER).await
    }

    async fn store_moderation(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Some(comment) = self.comment else { return Ok(()) };
        self.log_in(session).await?;
        let rows =
            session.look(self.of("getWriterAndRating", "getWriterAndRatingOld"), &[&comment.id]).await?;
        let Some(row) = rows.first() else { return Err(Refusal::Told("no such comment".into())) };
        let (writer, rating): (i32, i32) = (row.get(0), row.get(1));
        let change = i32::try_from(self.dice.below(3)).unwrap_or_default() - 1;
        if change != 0 && (RATING_MIN..=RATING_MAX).contains(&(rating + change)) {
            session.change("rateUser", &[&writer, &change], &[]).await?;
            session.change(self.of("rateComment", "rateCommentOld"), &[&comment.id, &change], &[]).await?;
        }
        session.look(self.of("getCommentRating", "getCommentRatingOld"), &[&comment.id]).await?;
        session.look("getUserRating", &[&writer]).await?;
        let entered = [("moderations", 1)];
        session.change("addModeration", &[&self.user, &comment.id, &change], &entered).await.map(drop)
    }

    async fn store_story(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let access = self.log_in(session).await?;
        let title = format!("{} {}", self.dice.pick(&WORDS), letters(&mut self.dice, 5, 60));
        let body = letters(&mut self.dice, 100, 1_024);
        let category = self.up_to(CATEGORIES);
        let (query, name) =
            if access > 0 { ("addStory", "stories") } else { ("addSubmission", "submissions") };
        session.change(query, &[&title, &body, &self.user, &category], &[(name, 1)]).await.map(drop)
    }

    /// New stories, and old ones if there are none.
    async fn search(
        &mut self,
        session: &mut Session,
        new: &'static str,
        old: &'static str,
    ) -> Result<(), Refusal> {
        let wanted = format!("{}%", self.dice.pick(&WORDS));
        self.find(session, new, old, &wanted).await
    }

    async fn find(
        &mut self,
        session: &mut Session,
        new: &'static str,
        old: &'static str,
        wanted: &str,
    ) -> Result<(), Refusal> {
        let mut rows = session.look(new, &[&wanted, &PAGE, &0_i64]).await?;
        let is_old = rows.is_empty();
        if is_old {
            rows = session.look(old, &[&wanted, &PAGE, &0_i64]).await?;
        }
        self.list(session, &rows, is_old, FOUND_WRITER).await
    }

    async fn search_users(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let wanted = format!("user{}%", self.up_to(self.rubbos.users()));
        self.find(session, "storiesByWriter", "oldStoriesByWriter", &wanted).await
    }

    async fn search_comments(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let wanted = format!("{}%", self.dice.pick(&WORDS));
        let is_old = self.dice.percent(50);
        let query = if is_old { "commentsBySubjectOld" } else { "commentsBySubject" };
        let rows = session.look(query, &[&wanted, &PAGE, &0_i64]).await?;
        self.listed = rows.iter().map(|row| (row.get(1), is_old)).collect();
        names(session, &rows, FOUND_WRITER).await
    }

    async fn review(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let rows = session.look("newestSubmissions", &[]).await?;
        self.submissions = rows.iter().map(|row| row.get(0)).collect();
        names(session, &rows, STORY_WRITER).await
    }

    async fn accept(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Some(id) = self.submissions.pop() else { return Ok(()) };
        // Another author may have been quicker.
        let Some(row) = session.look("getSubmission", &[&id]).await?.pop() else { return Ok(()) };
        let (title, body): (String, String) = (row.get(1), row.get(2));
        let (date, writer, category): (SystemTime, i32, i32) = (row.get(3), row.get(4), row.get(5));
        let values: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
            [&title, &body, &date, &writer, &category];
        session.change("acceptStory", &values, &[("stories", 1)]).await?;
        remove(session, id).await
    }

    async fn reject(&mut self, session: &mut Session) -> Result<(), Refusal> {
        let Some(id) = self.submissions.pop() else { return Ok(()) };
        if session.look("submissionExists", &[&id]).await?.is_empty() {
            return Ok(());
        }
        remove(session, id).await
    }
}

/// Takes a submission away, which another author may have done already.
async fn remove(session: &mut Session, id: i32) -> Result<(), Refusal> {
    match session.change("removeSubmission", &[&id], &[]).await {
        Ok(removed) => {
            session.ledger.tell(&[("submissions", -i64::try_from(removed).unwrap_or_default())]);
            Ok(())
        }
        Err(why) => {
            if matches!(why, Refusal::Lost(_) | Refusal::Stuck(_)) {
                session.ledger.doubt(&[("submissions", -1)]);
            }
            Err(why)
        }
    }
}

/// The name of each row's writer.
async fn names(session: &mut Session, rows: &[Row], column: usize) -> Result<(), Refusal> {
    for row in rows {
        let user: i32 = row.get(column);
        if session.look("nickname", &[&user]).await?.len() != 1 {
            return Err(Refusal::Told(format!("user {user} has no name")));
        }
    }
    Ok(())
}
