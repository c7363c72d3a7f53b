-- RUBBoS: what its interactions send; every statement is a transaction by itself. Where a comment may be an old one,
-- there is a query for each of the two tables, and a client sends one of them.
-- README.md beside this folder tells how to read this file.

-- interaction: StoriesOfTheDay
-- query: newestStories
SELECT * FROM stories ORDER BY date DESC LIMIT 10;
-- query: nickname (for each)
SELECT nickname FROM users WHERE id = $1;

-- interaction: Register

-- interaction: RegisterUser
-- query: userByNickname
SELECT * FROM users WHERE nickname = $1;
-- query: addUser (when the name is free)
INSERT INTO users (firstname, lastname, nickname, password, email, rating, access, creation_date)
VALUES ($1, $2, $3, $4, $5, 0, 0, localtimestamp);
-- query: userByNickname

-- interaction: Browse

-- interaction: BrowseCategories
-- query: allCategories
SELECT * FROM categories;

-- interaction: BrowseStoriesInCategory
-- query: storiesInCategory
SELECT * FROM stories WHERE category = $1 ORDER BY date DESC LIMIT $2 OFFSET $3;
-- query: nickname (for each)

-- interaction: OlderStories
-- query: storiesBetween
SELECT * FROM stories WHERE date >= $1 AND date <= $2 ORDER BY date DESC LIMIT $3 OFFSET $4;
-- query: oldStoriesBetween (when there are none)
SELECT * FROM old_stories WHERE date >= $1 AND date <= $2 ORDER BY date DESC LIMIT $3 OFFSET $4;
-- query: nickname (for each)

-- interaction: ViewStory
-- query: getStory
SELECT * FROM stories WHERE id = $1;
-- query: getOldStory (when it is not there)
SELECT * FROM old_stories WHERE id = $1;
-- query: nickname
-- query: ratingCounts
SELECT rating, count(rating) FROM comments WHERE story_id = $1 GROUP BY rating ORDER BY rating;
-- query: ratingCountsOld
SELECT rating, count(rating) FROM old_comments WHERE story_id = $1 GROUP BY rating ORDER BY rating;
-- query: topComments
SELECT * FROM comments WHERE story_id = $1 AND parent = 0 AND rating >= $2;
-- query: topCommentsOld
SELECT * FROM old_comments WHERE story_id = $1 AND parent = 0 AND rating >= $2;
-- query: childComments (for each that has any, to all depths)
SELECT * FROM comments WHERE parent = $1;
-- query: childCommentsOld
SELECT * FROM old_comments WHERE parent = $1;
-- query: nickname (for each)

-- interaction: PostComment

-- interaction: StoreComment
-- query: authenticate
SELECT id FROM users WHERE nickname = $1 AND password = $2;
-- query: addComment
INSERT INTO comments (writer, story_id, parent, childs, rating, date, subject, comment)
VALUES ($1, $2, $3, 0, $4, localtimestamp, $5, $6);
-- query: addCommentOld
INSERT INTO old_comments (writer, story_id, parent, childs, rating, date, subject, comment)
VALUES ($1, $2, $3, 0, $4, localtimestamp, $5, $6);
-- query: countChild
UPDATE comments SET childs = childs + 1 WHERE id = $1;
-- query: countChildOld
UPDATE old_comments SET childs = childs + 1 WHERE id = $1;

-- interaction: ViewComment
-- query: getParent
SELECT parent FROM comments WHERE id = $1;
-- query: getParentOld
SELECT parent FROM old_comments WHERE id = $1;
-- query: ratingCounts
-- query: ratingCountsOld
-- query: commentsBelow
SELECT * FROM comments WHERE story_id = $1 AND parent = $2 AND rating >= $3;
-- query: commentsBelowOld
SELECT * FROM old_comments WHERE story_id = $1 AND parent = $2 AND rating >= $3;
-- query: childComments (for each that has any, to all depths)
-- query: childCommentsOld
-- query: nickname (for each)

-- interaction: ModerateComment
-- query: getComment
SELECT * FROM comments WHERE id = $1;
-- query: getCommentOld
SELECT * FROM old_comments WHERE id = $1;
-- query: nickname

-- interaction: StoreModeratorLog
-- query: authenticateWithAccess
SELECT id, access FROM users WHERE nickname = $1 AND password = $2;
-- query: getWriterAndRating
SELECT writer, rating FROM comments WHERE id = $1;
-- query: getWriterAndRatingOld
SELECT writer, rating FROM old_comments WHERE id = $1;
-- query: rateUser (this and the next, unless the rating is at its limit or does not change)
UPDATE users SET rating = rating + $2 WHERE id = $1;
-- query: rateComment
UPDATE comments SET rating = rating + $2 WHERE id = $1;
-- query: rateCommentOld
UPDATE old_comments SET rating = rating + $2 WHERE id = $1;
-- query: getCommentRating
SELECT rating FROM comments WHERE id = $1;
-- query: getCommentRatingOld
SELECT rating FROM old_comments WHERE id = $1;
-- query: getUserRating
SELECT rating FROM users WHERE id = $1;
-- query: addModeration
INSERT INTO moderator_log (moderator_id, comment_id, rating, date) VALUES ($1, $2, $3, localtimestamp);

-- interaction: SubmitStory
-- query: allCategories

-- interaction: StoreStory
-- query: authenticateWithAccess
-- query: addSubmission (users)
INSERT INTO submissions (title, body, date, writer, category) VALUES ($1, $2, localtimestamp, $3, $4);
-- query: addStory (authors)
INSERT INTO stories (title, body, date, writer, category) VALUES ($1, $2, localtimestamp, $3, $4);

-- interaction: Search

-- interaction: SearchInStories
-- query: storiesByTitle (the parameter ends in %)
SELECT id, title, date, writer FROM stories WHERE title LIKE $1 ORDER BY date DESC LIMIT $2 OFFSET $3;
-- query: oldStoriesByTitle (when there are none)
SELECT id, title, date, writer FROM old_stories WHERE title LIKE $1 ORDER BY date DESC LIMIT $2 OFFSET $3;
-- query: nickname (for each)

-- interaction: SearchInComments
-- query: commentsBySubject (the newest of each story)
SELECT id, story_id, subject, writer, date
FROM (SELECT DISTINCT ON (story_id) id, story_id, subject, writer, date
      FROM comments
      WHERE subject LIKE $1
      ORDER BY story_id, date DESC) AS newest
ORDER BY date DESC
LIMIT $2 OFFSET $3;
-- query: commentsBySubjectOld
SELECT id, story_id, subject, writer, date
FROM old_comments
WHERE subject LIKE $1
ORDER BY date DESC
LIMIT $2 OFFSET $3;
-- query: nickname (for each)

-- interaction: SearchInUsers
-- query: storiesByWriter
SELECT stories.id, stories.title, stories.date, stories.writer
FROM stories JOIN users ON stories.writer = users.id
WHERE users.nickname LIKE $1
ORDER BY stories.date DESC
LIMIT $2 OFFSET $3;
-- query: oldStoriesByWriter (when there are none)
SELECT old_stories.id, old_stories.title, old_stories.date, old_stories.writer
FROM old_stories JOIN users ON old_stories.writer = users.id
WHERE users.nickname LIKE $1
ORDER BY old_stories.date DESC
LIMIT $2 OFFSET $3;
-- query: nickname (for each)

-- interaction: AuthorLogin

-- interaction: AuthorTasks
-- query: authenticateWithAccess

-- interaction: ReviewStories
-- query: newestSubmissions
SELECT * FROM submissions ORDER BY date DESC LIMIT 10;
-- query: nickname (for each)

-- interaction: AcceptStory
-- query: getSubmission
SELECT * FROM submissions WHERE id = $1;
-- query: acceptStory
INSERT INTO stories (title, body, date, writer, category) VALUES ($1, $2, $3, $4, $5);
-- query: removeSubmission
DELETE FROM submissions WHERE id = $1;

-- interaction: RejectStory
-- query: submissionExists
SELECT id FROM submissions WHERE id = $1;
-- query: removeSubmission
