-- RUBiS: what its interactions send. Home, Register, Browse, Sell and the forms for logging in send nothing.
-- README.md beside this folder tells how to read this file.

-- interaction: Home

-- interaction: Register

-- interaction: RegisterUser
-- begin: RegisterUser
-- query: regionByName
SELECT id FROM regions WHERE name = $1;
-- query: countNickname
SELECT count(*) FROM users WHERE nickname = $1;
-- query: addUser (when the name is free)
INSERT INTO users (firstname, lastname, nickname, password, email, rating, balance, creation_date, region)
VALUES ($1, $2, $3, $4, $5, 0, 0, localtimestamp, $6);
-- query: userByNickname
SELECT id, firstname, lastname, nickname, email, creation_date FROM users WHERE nickname = $1;
-- commit

-- interaction: Browse

-- interaction: BrowseCategories
-- query: allCategories
SELECT * FROM categories;

-- interaction: SearchItemsInCategory
-- query: itemsInCategory
SELECT id, name, initial_price, max_bid, nb_of_bids, end_date
FROM items
WHERE category = $1 AND end_date >= localtimestamp
ORDER BY end_date
LIMIT $2 OFFSET $3;

-- interaction: BrowseRegions
-- query: allRegions
SELECT * FROM regions;

-- interaction: BrowseCategoriesInRegion
-- query: regionByName
-- query: allCategories

-- interaction: SearchItemsInRegion
-- query: itemsInRegion
SELECT items.id, items.name, items.initial_price, items.max_bid, items.nb_of_bids, items.end_date
FROM items JOIN users ON items.seller = users.id
WHERE items.category = $1 AND users.region = $2 AND items.end_date >= localtimestamp
ORDER BY items.end_date
LIMIT $3 OFFSET $4;

-- interaction: ViewItem
-- query: getItem
SELECT * FROM items WHERE id = $1;
-- query: getOldItem (when it is not there)
SELECT * FROM old_items WHERE id = $1;
-- query: maxBid
SELECT max(bid) FROM bids WHERE item_id = $1;
-- query: topBids (when there are several of it)
SELECT bid, qty FROM bids WHERE item_id = $1 ORDER BY bid DESC LIMIT $2;
-- query: countBids
SELECT count(*) FROM bids WHERE item_id = $1;
-- query: nickname
SELECT nickname FROM users WHERE id = $1;

-- interaction: ViewUserInfo
-- query: getUser
SELECT * FROM users WHERE id = $1;
-- query: commentsTo
SELECT * FROM comments WHERE to_user_id = $1;
-- query: nickname (for each comment)

-- interaction: ViewBidHistory
-- query: itemName
SELECT name FROM items WHERE id = $1;
-- query: oldItemName (when it is not there)
SELECT name FROM old_items WHERE id = $1;
-- query: bidsOn
SELECT * FROM bids WHERE item_id = $1 ORDER BY date DESC;
-- query: nickname (for each bid)

-- interaction: BuyNowAuth

-- interaction: BuyNow
-- query: authenticate
SELECT id FROM users WHERE nickname = $1 AND password = $2;
-- query: getItem
-- query: nickname

-- interaction: StoreBuyNow
-- begin: StoreBuyNow
-- query: lockItem
SELECT quantity, end_date FROM items WHERE id = $1 FOR UPDATE;
-- query: takeItems (when some are left)
UPDATE items SET quantity = $2 WHERE id = $1;
-- query: takeLastItems (when none is)
UPDATE items SET quantity = 0, end_date = localtimestamp WHERE id = $1;
-- query: addBuyNow
INSERT INTO buy_now (buyer_id, item_id, qty, date) VALUES ($1, $2, $3, localtimestamp);
-- commit

-- interaction: PutBidAuth

-- interaction: PutBid
-- query: authenticate
-- query: getItem
-- query: nickname
-- query: maxBid
-- query: countBids

-- interaction: StoreBid
-- begin: StoreBid
-- query: lockBids
SELECT max_bid, nb_of_bids FROM items WHERE id = $1 FOR UPDATE;
-- query: addBid
INSERT INTO bids (user_id, item_id, qty, bid, max_bid, date) VALUES ($1, $2, $3, $4, $5, localtimestamp);
-- query: countUpAndRaise (when it is the highest)
UPDATE items SET max_bid = $2, nb_of_bids = nb_of_bids + 1 WHERE id = $1;
-- query: countUp (when it is not)
UPDATE items SET nb_of_bids = nb_of_bids + 1 WHERE id = $1;
-- commit

-- interaction: PutCommentAuth

-- interaction: PutComment
-- query: authenticate
-- query: nickname
-- query: itemName

-- interaction: StoreComment
-- begin: StoreComment
-- query: getRating
SELECT rating FROM users WHERE id = $1;
-- query: rate
UPDATE users SET rating = rating + $2 WHERE id = $1;
-- query: addComment
INSERT INTO comments (from_user_id, to_user_id, item_id, rating, date, comment)
VALUES ($1, $2, $3, $4, localtimestamp, $5);
-- commit

-- interaction: Sell

-- interaction: SelectCategoryToSellItem
-- query: authenticate
-- query: allCategories

-- interaction: SellItemForm

-- interaction: RegisterItem
-- begin: RegisterItem
-- query: addItem
INSERT INTO items (name, description, initial_price, quantity, reserve_price, buy_now, nb_of_bids, max_bid,
                   start_date, end_date, seller, category)
VALUES ($1, $2, $3, $4, $5, $6, 0, 0, localtimestamp, localtimestamp + make_interval(days => $7), $8, $9);
-- query: itemByName
SELECT id FROM items WHERE name = $1;
-- commit

-- interaction: AboutMeAuth

-- interaction: AboutMe
-- query: authenticate
-- query: getUser
-- query: currentBids
SELECT bids.item_id, max(bids.max_bid) AS highest
FROM bids JOIN items ON bids.item_id = items.id
WHERE bids.user_id = $1 AND items.end_date >= localtimestamp
GROUP BY bids.item_id;
-- query: getItem (for each of them, with the next)
-- query: nickname
-- query: itemsWon
SELECT bids.item_id
FROM bids JOIN old_items ON bids.item_id = old_items.id
WHERE bids.user_id = $1 AND old_items.end_date >= localtimestamp - interval '30 days'
GROUP BY bids.item_id;
-- query: getOldItem (for each of them, with the next)
-- query: nickname
-- query: boughtNow
SELECT * FROM buy_now WHERE buyer_id = $1 AND date >= localtimestamp - interval '30 days';
-- query: getItem (for each of them, with the next)
-- query: nickname
-- query: itemsOnSale
SELECT * FROM items WHERE seller = $1 AND end_date >= localtimestamp;
-- query: itemsSold
SELECT * FROM old_items WHERE seller = $1 AND end_date >= localtimestamp - interval '30 days';
-- query: commentsTo
-- query: nickname (for each comment)
