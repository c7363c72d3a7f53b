## rows by key

SELECT * FROM customers WHERE id = 17

SELECT name, balance FROM customers WHERE id = $1

SELECT name FROM customers WHERE 17 = id

SELECT name FROM customers c WHERE c.id = 17 AND c.active

SELECT name FROM customers WHERE (id, email) = (17, 'a@b.c')

SELECT name FROM customers WHERE id IN (1, 2, 3)

SELECT name FROM customers WHERE id IN ($1, $2) AND balance > 0

SELECT name FROM customers WHERE id = ANY ('{1,2,3}')

SELECT name FROM customers WHERE id = ANY ($1)

SELECT name FROM customers WHERE id = ANY (ARRAY[1, 2])

SELECT name FROM customers WHERE id = SOME (ARRAY[$1, $2]::int[])

SELECT name FROM customers WHERE id = ALL ('{5}')

SELECT name FROM customers WHERE id = 1 OR id = 2 OR email = 'x@y.z'

SELECT name FROM customers WHERE id = 1 OR active

SELECT name FROM customers WHERE (id = 1 AND active) OR (id = 2 AND NOT active)

SELECT name FROM customers WHERE NOT id = 1

SELECT name FROM customers WHERE NOT (id <> 1)

SELECT name FROM customers WHERE id <> 1

SELECT name FROM customers WHERE id = 1 AND id = 2

SELECT name FROM customers WHERE id = 1 AND false

SELECT name FROM customers WHERE id BETWEEN 1 AND 1

SELECT name FROM customers WHERE id = 5.5

SELECT name FROM customers WHERE id = 5.0

SELECT name FROM customers WHERE id = '5'

SELECT name FROM customers WHERE id = -5

SELECT name FROM customers WHERE id = +5

SELECT name FROM customers WHERE id = 5::bigint

SELECT name FROM customers WHERE id::text = '5'

SELECT name FROM customers WHERE id = 2147483648

SELECT name FROM customers WHERE id = 0x1F

SELECT name FROM customers WHERE id = 1_000

SELECT name FROM customers WHERE id + 0 = 5

SELECT name FROM customers WHERE id = 2 + 3

SELECT name FROM customers WHERE id = NULL

SELECT name FROM customers WHERE id IS NULL

SELECT name FROM customers WHERE referrer IS NULL

SELECT name FROM customers WHERE referrer IS NOT DISTINCT FROM 7

SELECT name FROM customers WHERE referrer IS DISTINCT FROM 7

SELECT name FROM customers WHERE (id = 5) IS TRUE

SELECT name FROM customers WHERE (id = 5) IS NOT FALSE

SELECT name FROM customers WHERE CASE WHEN active THEN id = 1 ELSE id = 2 END

SELECT name FROM customers WHERE COALESCE(id = 1, true)

SELECT name FROM customers WHERE id OPERATOR(pg_catalog.=) 5

SELECT name FROM customers WHERE email = 'a@b.c'

SELECT name FROM customers WHERE email = $1

SELECT name FROM customers WHERE email = 'a@b.c'::varchar

SELECT name FROM customers WHERE email LIKE 'a@b.c'

SELECT name FROM customers WHERE lower(email) = 'a@b.c'

SELECT name FROM customers WHERE email = 'a@b.c' COLLATE "C"

SELECT name FROM customers WHERE name = 'Ann'

SELECT name FROM customers WHERE balance = 1.50

SELECT name FROM customers WHERE active = true

SELECT name FROM customers WHERE since = '2024-02-29'

SELECT name FROM customers WHERE since = 'yesterday'

SELECT name FROM customers WHERE since = DATE '2024-02-29'

SELECT name FROM customers WHERE tags = '{a}'

SELECT name FROM customers WHERE tags && ARRAY['a'] AND profile @> '{"x": 1}'

SELECT meaning FROM labels WHERE label = 'Red'

SELECT * FROM products WHERE sku = 'A1'

SELECT * FROM products WHERE sku = 'A1      '

SELECT * FROM products WHERE sku = 'A1'::text

SELECT * FROM products WHERE weight = 1.5

SELECT * FROM notes WHERE id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'

SELECT * FROM notes WHERE digest = '\x00ff'

SELECT * FROM accounts WHERE owner = 'ann' AND note = 'savings'

SELECT * FROM order_items WHERE order_id = 7 AND line = 1

SELECT * FROM order_items WHERE (order_id, line) IN ((7, 1), (7, 2))

SELECT * FROM order_items WHERE ROW(order_id, line) = ROW(7, 1)

SELECT * FROM order_items WHERE (order_id, line) > (7, 1)

SELECT * FROM orders WHERE customer = 3 AND status = 'new'

SELECT * FROM orders WHERE placed = '2024-01-01 00:00:00+00'

SELECT * FROM moods WHERE id = 1

SELECT id FROM moods WHERE feeling = 'sad'

SELECT * FROM secrets WHERE id = 1

## joins

SELECT c.name, o.total FROM customers c JOIN orders o ON o.customer = c.id WHERE c.id = 5

SELECT c.name, o.total FROM customers c, orders o WHERE o.customer = c.id AND o.customer = 5

SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.customer = c.id WHERE c.id = 5

SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.customer = c.id AND c.id = 5

SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.customer = c.id WHERE o.customer = 5

SELECT c.name, o.total FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.id = 9 WHERE c.id = 5

SELECT c.name, o.total FROM customers c RIGHT JOIN orders o ON o.customer = c.id WHERE c.id = 5

SELECT c.name, o.total FROM customers c FULL JOIN orders o ON o.customer = c.id WHERE c.id = 5

SELECT c.name, o.total FROM customers c FULL JOIN orders o ON o.customer = c.id AND c.id = 5

SELECT * FROM customers NATURAL JOIN people WHERE id = 5

SELECT * FROM customers JOIN people USING (id) WHERE id = 5

SELECT * FROM customers c JOIN people p USING (id) WHERE p.id = 5

SELECT * FROM customers JOIN people USING (id) AS j WHERE j.id = 5

SELECT * FROM customers LEFT JOIN people USING (id) WHERE id = 5

SELECT * FROM customers FULL JOIN people USING (id) WHERE id = 5

SELECT * FROM customers CROSS JOIN people

SELECT i.quantity, p.price FROM orders o JOIN order_items i ON i.order_id = o.id JOIN products p ON p.sku = i.sku WHERE o.id = $1

SELECT * FROM customers a JOIN customers b ON a.referrer = b.id WHERE a.id = 1

SELECT * FROM customers a JOIN customers b ON a.id = b.id AND b.id = a.referrer WHERE a.referrer = 1

SELECT * FROM (customers a JOIN customers b ON a.referrer = b.id) AS pairs (x) WHERE x = 1

SELECT * FROM customers c, LATERAL (SELECT * FROM orders o WHERE o.customer = c.id ORDER BY placed DESC LIMIT 1) newest WHERE c.id = 4

SELECT c.id, t FROM customers c, LATERAL unnest(c.tags) WITH ORDINALITY AS u (t, n) WHERE c.id = 4

SELECT * FROM customers c LEFT JOIN LATERAL (SELECT sum(total) FROM orders WHERE customer = c.id) s ON true

SELECT o.id FROM orders o JOIN order_items i ON o.id = i.order_id AND o.id::text = i.sku WHERE i.order_id = 3

SELECT a.id FROM accounts a JOIN customers c ON a.owner = c.email WHERE c.email = 'x'

SELECT o.id FROM orders o JOIN accounts a ON o.customer = a.balance WHERE a.balance = 5

## sub-queries and WITH

SELECT name FROM customers WHERE id = (SELECT customer FROM orders WHERE id = 9)

SELECT name FROM customers WHERE id IN (SELECT customer FROM orders WHERE status = 'new')

SELECT name FROM customers c WHERE EXISTS (SELECT FROM orders o WHERE o.customer = c.id AND o.id = 9)

SELECT name FROM customers c WHERE NOT EXISTS (SELECT 1 FROM orders o WHERE o.customer = c.id) AND c.id = 3

SELECT name, (SELECT max(total) FROM orders o WHERE o.customer = c.id) FROM customers c WHERE id = 3

SELECT name FROM customers WHERE id > ALL (SELECT customer FROM orders)

SELECT ARRAY(SELECT id FROM orders WHERE customer = 3)

SELECT x.id FROM (SELECT id, name FROM customers WHERE id = 3) x

SELECT x.id FROM (SELECT id, name FROM customers) x WHERE x.id = 3

SELECT x.k FROM (SELECT id AS k, count(*) FROM customers GROUP BY id) x WHERE x.k = 3

SELECT x.k FROM (SELECT id AS k, row_number() OVER (ORDER BY name) AS n FROM customers) x WHERE x.k = 3

SELECT x.id FROM (SELECT id FROM customers LIMIT 5) x WHERE x.id = 3

SELECT x.id FROM (SELECT DISTINCT id FROM customers) x WHERE x.id = 3

SELECT x.id FROM (SELECT id FROM customers UNION SELECT id FROM people) x WHERE x.id = 3

WITH c AS (SELECT * FROM customers WHERE id = 3) SELECT * FROM c

WITH c AS (SELECT * FROM customers) SELECT * FROM c WHERE id = 3

WITH c AS MATERIALIZED (SELECT * FROM customers) SELECT * FROM c a JOIN c b ON a.id = b.referrer

WITH customers AS (SELECT * FROM people WHERE id = 1) SELECT * FROM customers

WITH RECURSIVE chain AS (SELECT id, referrer FROM customers WHERE id = 3 UNION ALL SELECT c.id, c.referrer FROM customers c JOIN chain ON c.id = chain.referrer) SELECT * FROM chain

WITH RECURSIVE t (n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM t WHERE n < 100) SELECT sum(n) FROM t

WITH RECURSIVE c AS (SELECT id, referrer FROM customers WHERE id = 1 UNION SELECT customers.id, customers.referrer FROM customers, c WHERE customers.referrer = c.id) SEARCH BREADTH FIRST BY id SET o CYCLE id SET looped USING path SELECT * FROM c

WITH gone AS (DELETE FROM order_items WHERE order_id = 3 RETURNING sku, quantity) UPDATE products p SET stock = stock + gone.quantity FROM gone WHERE p.sku = gone.sku

WITH new AS (INSERT INTO orders (customer) VALUES (3) RETURNING id) INSERT INTO order_items SELECT id, 1, 'A1', 2 FROM new

WITH a AS (UPDATE accounts SET balance = balance - 5 WHERE id = 1 RETURNING 5 AS moved), b AS (UPDATE accounts SET balance = balance + 5 WHERE id = 2) SELECT moved FROM a

WITH a AS (SELECT 1) INSERT INTO plain SELECT *, 2, 'x' FROM a

## set operations, grouping, windows, ordering

SELECT id FROM customers WHERE id = 1 UNION ALL SELECT id FROM people WHERE id = 2

SELECT id FROM customers INTERSECT SELECT id FROM people

(SELECT id FROM customers EXCEPT ALL SELECT id FROM people) ORDER BY 1 LIMIT 3

SELECT status, count(*) FROM orders GROUP BY status HAVING count(*) > 1

SELECT status, customer, sum(total) FROM orders GROUP BY GROUPING SETS ((status), (customer), ())

SELECT status, customer, grouping(status), sum(total) FROM orders GROUP BY ROLLUP (status, customer)

SELECT status, sum(total) FROM orders GROUP BY CUBE (status, customer) ORDER BY 1 NULLS FIRST

SELECT DISTINCT ON (customer) customer, id FROM orders ORDER BY customer, placed DESC

SELECT id, rank() OVER (PARTITION BY customer ORDER BY total DESC), sum(total) OVER w FROM orders WINDOW w AS (PARTITION BY customer ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW EXCLUDE TIES)

SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY total), mode() WITHIN GROUP (ORDER BY status) FROM orders

SELECT count(*) FILTER (WHERE active), string_agg(name, ', ' ORDER BY id) FROM customers

SELECT max(id) FROM orders

SELECT id FROM orders ORDER BY placed DESC FETCH FIRST 5 ROWS WITH TIES

SELECT id FROM orders OFFSET 10 LIMIT 10

SELECT * FROM orders TABLESAMPLE system (1)

TABLE customers

TABLE readings ORDER BY at LIMIT 1

VALUES (1, 'a'), (2, 'b')

SELECT * FROM (VALUES (1, 'a')) v (n, t) JOIN customers ON id = n

SELECT

SELECT 1 WHERE false

## expressions, JSON, arrays, casts

SELECT id, profile -> 'address' ->> 'city', profile #>> '{a,0}', profile @? '$.a[*] ? (@ > 2)' FROM customers WHERE id = 1

SELECT jsonb_build_object('id', id, 'tags', tags), to_jsonb(c) FROM customers c WHERE id = 1

SELECT jsonb_path_query(profile, '$.a[*]') FROM customers

SELECT j.key, j.value FROM customers, jsonb_each_text(profile) j

SELECT * FROM json_to_recordset('[{"a":1}]') AS x (a int)

SELECT tags[1], tags[2:3], array_length(tags, 1), tags || 'x'::text FROM customers

SELECT name FROM customers WHERE 'vip' = ANY (tags)

SELECT row_to_json(c) FROM customers c WHERE id = 2

SELECT c FROM customers c WHERE id = 2

SELECT c.* FROM customers c WHERE id = 2

SELECT (c).name FROM customers c WHERE id = 2

SELECT c.customer_name FROM customers c WHERE id = 2

SELECT customer_name(c) FROM customers c

SELECT order_total(5)

SELECT anything('delete from customers')

SELECT (m.lives).city FROM moods m

SELECT 'sad'::mood

SELECT 5::positive

SELECT '2024-01-01'::date + 7, now() - interval '1 day', extract(epoch FROM placed) FROM orders

SELECT date_trunc('month', placed), to_char(placed, 'YYYY-MM') FROM orders WHERE id = 4

SELECT CAST(balance AS int), balance::text, balance::numeric(5, 1) FROM customers

SELECT greatest(1, id), nullif(name, ''), coalesce(since, current_date) FROM customers

SELECT name SIMILAR TO '%(a|b)%', name ~* '^a', name ILIKE 'a%' FROM customers

SELECT overlay(name PLACING 'x' FROM 1), trim(BOTH ' ' FROM name), position('a' IN name), substring(name FROM 2 FOR 3) FROM customers

SELECT placed AT TIME ZONE 'UTC' FROM orders

SELECT (DATE '2024-01-01', DATE '2024-02-01') OVERLAPS (since, since) FROM customers

SELECT U&'d\0061t\+000061', E'a\tb\'c', $$it's$$, $tag$ $$ $tag$, B'101', X'1F', N'x'

SELECT 'a'
'b'

SELECT 1e10, .5, 1., 1234567890123, 0b101, 0o17

SELECT 1-1, 1 - -1, a-1, -a, @a, a|/**/b FROM plain

SELECT XMLELEMENT(NAME x, XMLATTRIBUTES(id AS k)), XMLFOREST(name) FROM customers

SELECT random(), gen_random_uuid(), clock_timestamp()

SELECT current_user, session_user, current_catalog, current_schema, current_time(3), localtime

SELECT nextval('invoice_numbers')

SELECT currval('invoice_numbers'), lastval()

SELECT setval('invoice_numbers', 100)

SELECT last_value FROM invoice_numbers

SELECT pg_advisory_lock(5)

SELECT pg_advisory_xact_lock(1, 2)

SELECT pg_try_advisory_xact_lock_shared(3)

SELECT pg_advisory_unlock_all()

SELECT pg_notify('c', 'x')

SELECT pg_sleep(0.1)

SELECT set_config('work_mem', '8MB', true)

SELECT ctid, xmin FROM customers WHERE id = 1

SELECT tableoid::regclass, * FROM readings

SELECT 'customers'::regclass::oid

SELECT count(*) FROM pg_class

SELECT * FROM information_schema.columns WHERE table_name = 'orders'

SELECT pg_table_size('orders'), pg_get_viewdef('open_orders')

SELECT * FROM generate_series(1, 10) AS g (n)

SELECT * FROM ROWS FROM (generate_series(1, 3), unnest('{a,b}'::text[])) AS r (a, b)

SELECT * FROM unnest(ARRAY[1, 2], ARRAY['a', 'b']) AS u (a, b) JOIN customers ON id = a

## locking clauses

SELECT * FROM customers WHERE id = 1 FOR UPDATE

SELECT * FROM customers WHERE id = 1 FOR NO KEY UPDATE NOWAIT

SELECT * FROM customers WHERE id IN (1, 2) FOR SHARE

SELECT * FROM customers FOR KEY SHARE

SELECT * FROM orders WHERE status = 'new' ORDER BY placed LIMIT 1 FOR UPDATE SKIP LOCKED

SELECT * FROM customers c JOIN orders o ON o.customer = c.id WHERE c.id = 1 FOR UPDATE OF o

SELECT * FROM customers c JOIN orders o ON o.customer = c.id WHERE c.id = 1 FOR UPDATE OF o FOR SHARE OF c

SELECT * FROM (SELECT * FROM customers WHERE id = 1) x FOR UPDATE

LOCK TABLE customers

LOCK customers, orders IN SHARE ROW EXCLUSIVE MODE NOWAIT

LOCK TABLE ONLY people IN ROW SHARE MODE

LOCK TABLE readings IN ACCESS SHARE MODE

LOCK TABLE open_orders IN SHARE MODE

## INSERT

INSERT INTO customers (id, email, name) VALUES (5, 'a@b.c', 'Ann')

INSERT INTO customers (id, email, name) VALUES ($1, $2, $3)

INSERT INTO customers (email, name) VALUES ('a@b.c', 'Ann') RETURNING id

INSERT INTO customers (id, email, name, referrer) VALUES (5, 'a@b.c', 'Ann', 4), (6, 'd@e.f', 'Ben', NULL)

INSERT INTO customers VALUES (DEFAULT, 'a@b.c', 'Ann', 1.50, '{}', NULL, true, NULL, 4)

INSERT INTO plain DEFAULT VALUES

INSERT INTO plain VALUES (1)

INSERT INTO plain (b, a) VALUES (1, 2)

INSERT INTO plain SELECT id, id, name FROM customers WHERE id = 5

INSERT INTO plain SELECT * FROM plain

INSERT INTO plain (a) SELECT n FROM generate_series(1, 10) n

INSERT INTO plain TABLE plain

INSERT INTO plain VALUES ((SELECT max(id) FROM customers), 2, lower('X'))

INSERT INTO plain VALUES (1, random() * 10, now()::text)

INSERT INTO products (sku, name, price) VALUES ('A1', 'pen', 1.2)

INSERT INTO order_items VALUES (7, 1, 'A1', 2)

INSERT INTO order_items (order_id, line, sku, quantity) VALUES ($1, $2, $3, $4), ($1, $5, $6, $7)

INSERT INTO orders (customer, status) VALUES (3, 'new')

INSERT INTO orders OVERRIDING SYSTEM VALUE VALUES (1, 3, now(), 'paid', 10)

INSERT INTO orders (id, customer) OVERRIDING USER VALUE VALUES (1, 3)

INSERT INTO accounts AS a (id, owner, balance, note) VALUES (1, 'ann', 0, 'x') ON CONFLICT DO NOTHING

INSERT INTO accounts (id, owner, balance) VALUES (1, 'ann', 5) ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + excluded.balance

INSERT INTO accounts (id, owner, balance) VALUES (1, 'ann', 5) ON CONFLICT (owner, note) DO UPDATE SET id = excluded.id WHERE accounts.balance < 100 RETURNING *

INSERT INTO accounts (id, owner, balance) VALUES ($1, $2, $3) ON CONFLICT ON CONSTRAINT accounts_pkey DO UPDATE SET balance = $3

INSERT INTO orders (customer, status) VALUES (3, 'new') ON CONFLICT (customer) WHERE status = 'new' DO NOTHING

INSERT INTO bookings VALUES (1, '[2024-01-01,2024-01-02)', 'x') ON CONFLICT DO NOTHING

INSERT INTO bookings VALUES (1, '[2024-01-01,2024-01-02)', 'x')

INSERT INTO labels VALUES ('Red', 'stop')

INSERT INTO notes (body) VALUES ('x')

INSERT INTO notes (id, parent, body) VALUES ('6f9619ff-8b86-d011-b42d-00c04fc964ff', NULL, 'x')

INSERT INTO audit (what) VALUES ('x')

INSERT INTO watched VALUES (1, 2)

INSERT INTO readings VALUES (1, '2025-06-01', 20.5)

INSERT INTO readings (sensor, at) VALUES ($1, $2)

INSERT INTO readings_2025 VALUES (1, '2025-06-01', 20.5)

INSERT INTO people VALUES (1, 'x')

INSERT INTO staff VALUES (1, 'x', 100)

INSERT INTO moods VALUES (1, 'sad', ROW('x', 'y'))

INSERT INTO moods (id, lives.city) VALUES (1, 'y')

INSERT INTO secrets VALUES (1, 'ann', 'x')

INSERT INTO open_orders (customer) VALUES (3)

INSERT INTO customers (id, email, name, tags[1]) VALUES (9, 'x', 'y', 'z')

INSERT INTO customers (email, name, balance) VALUES ('x', 'y', order_total(5) + 1)

## UPDATE

UPDATE customers SET balance = balance + 5 WHERE id = 1

UPDATE customers SET name = $2 WHERE id = $1

UPDATE customers SET email = 'new@b.c' WHERE id = 1

UPDATE customers SET email = 'new@b.c' WHERE email = 'old@b.c'

UPDATE customers SET id = 6 WHERE id = 5

UPDATE customers SET id = id + 1

UPDATE customers SET referrer = 4 WHERE id = 5

UPDATE customers SET referrer = NULL WHERE referrer = 4

UPDATE customers SET (name, balance) = ('x', 0) WHERE id = 1

UPDATE customers SET (name, balance) = (SELECT name, 0 FROM people WHERE people.id = customers.id) WHERE id = 1

UPDATE customers SET balance = DEFAULT, tags[2] = 'x', profile['a'] = '1' WHERE id = 1

UPDATE customers SET active = false

UPDATE customers c SET balance = 0 WHERE c.id = 1 RETURNING c.*

UPDATE customers SET balance = 0 WHERE id = 1 RETURNING (SELECT count(*) FROM orders)

UPDATE customers c SET balance = balance + o.total FROM orders o WHERE o.customer = c.id AND o.id = 9

UPDATE orders o SET status = 'paid' FROM customers c WHERE o.customer = c.id AND c.id = 3

UPDATE orders SET status = 'paid' WHERE id = 9 AND status = 'new'

UPDATE orders SET total = (SELECT sum(quantity) FROM order_items WHERE order_id = orders.id) WHERE id = 9

UPDATE orders SET total = order_total(id) WHERE id = 9

UPDATE products SET sku = 'B1' WHERE sku = 'A1'

UPDATE products SET stock = stock - 1 WHERE sku = 'A1' AND stock > 0

UPDATE products SET price = 2 * price WHERE sku IN ('A1', 'B1')

UPDATE order_items SET quantity = quantity + 1 WHERE order_id = 7 AND line = 1

UPDATE order_items SET line = 2 WHERE order_id = 7 AND line = 1

UPDATE order_items SET sku = 'B1' WHERE order_id = 7

UPDATE accounts SET balance = CASE id WHEN 1 THEN balance - 5 ELSE balance + 5 END WHERE id IN (1, 2)

UPDATE accounts SET note = 'x' WHERE id = 1

UPDATE accounts SET owner = 'ben', note = 'x' WHERE id = 1

UPDATE accounts SET balance = 5 WHERE balance = 6

UPDATE watched SET amount = 1 WHERE id = 1

UPDATE readings SET value = 0 WHERE sensor = 1 AND at = '2025-06-01'

UPDATE readings SET at = at + interval '1 year' WHERE sensor = 1

UPDATE ONLY people SET name = 'x' WHERE id = 1

UPDATE people SET name = 'x' WHERE id = 1

UPDATE staff SET id = 3 WHERE id = 2

UPDATE labels SET meaning = 'x' WHERE label = 'red'

UPDATE notes SET parent = NULL WHERE id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'

UPDATE notes SET body = 'x' WHERE id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'

UPDATE moods SET feeling = 'ok', lives.city = 'x' WHERE id = 1

UPDATE secrets SET body = 'x' WHERE id = 1

UPDATE open_orders SET total = 5 WHERE id = 3

UPDATE customers SET balance = 0 WHERE CURRENT OF c

UPDATE customers SET balance = random() WHERE id = 1

UPDATE plain SET a = b, b = a

UPDATE plain SET c = c || 'x' WHERE ctid = '(0,1)'

## DELETE, TRUNCATE

DELETE FROM customers WHERE id = 5

DELETE FROM customers

DELETE FROM orders WHERE id = $1

DELETE FROM order_items WHERE order_id = 7 AND line = 1

DELETE FROM order_items USING orders WHERE order_items.order_id = orders.id AND orders.customer = 3

DELETE FROM order_items i USING orders o JOIN customers c ON o.customer = c.id WHERE i.order_id = o.id AND c.id = 3 RETURNING i.*, c.name

DELETE FROM products WHERE sku = 'A1'

DELETE FROM accounts WHERE id = ANY ($1)

DELETE FROM watched WHERE id = 1

DELETE FROM readings WHERE at < '2025-01-01'

DELETE FROM ONLY people WHERE id = 1

DELETE FROM labels WHERE label = 'x'

DELETE FROM notes WHERE id = '6f9619ff-8b86-d011-b42d-00c04fc964ff'

DELETE FROM open_orders WHERE id = 3

DELETE FROM plain WHERE a = 1 AND b = 2

DELETE FROM customers WHERE CURRENT OF c

TRUNCATE plain

TRUNCATE customers CASCADE

TRUNCATE ONLY people, audit RESTART IDENTITY

TRUNCATE readings

## MERGE

MERGE INTO accounts a USING (VALUES (1, 5)) v (id, amount) ON a.id = v.id WHEN MATCHED THEN UPDATE SET balance = balance + v.amount

MERGE INTO accounts a USING customers c ON a.id = c.id WHEN MATCHED AND c.active THEN UPDATE SET owner = c.name WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, owner, balance) VALUES (c.id, c.name, 0)

MERGE INTO accounts a USING customers c ON a.id = c.id AND c.id = 5 WHEN MATCHED THEN DO NOTHING WHEN NOT MATCHED THEN INSERT VALUES (c.id, c.name, 0, NULL)

MERGE INTO ONLY people p USING staff s ON p.id = s.id WHEN MATCHED THEN DELETE

WITH s AS (SELECT 1 AS id) MERGE INTO accounts a USING s ON a.id = s.id WHEN NOT MATCHED THEN INSERT (id, owner, balance) OVERRIDING SYSTEM VALUE VALUES (s.id, 'x', 0)

MERGE INTO accounts a USING customers c ON a.id = c.id WHEN NOT MATCHED BY SOURCE THEN DELETE WHEN NOT MATCHED BY TARGET THEN DO NOTHING RETURNING merge_action(), a.*

MERGE INTO readings r USING plain p ON r.sensor = p.a AND r.at = '2025-01-01' WHEN MATCHED THEN UPDATE SET value = p.b

## COPY

COPY customers FROM STDIN

COPY customers (id, email, name) FROM STDIN WITH (FORMAT csv, HEADER)

COPY readings FROM STDIN BINARY

COPY watched FROM STDIN

COPY plain FROM STDIN WHERE a > 5

COPY customers TO STDOUT

COPY (SELECT * FROM customers WHERE id = 5) TO STDOUT WITH CSV

COPY (DELETE FROM plain WHERE a = 1 RETURNING *) TO STDOUT

COPY plain TO '/tmp/x'

COPY plain FROM PROGRAM 'cat'

## partitions, inheritance, views

SELECT * FROM readings WHERE sensor = 1 AND at = '2025-06-01'

SELECT * FROM readings_2025 WHERE sensor = 1

SELECT * FROM ONLY readings

SELECT * FROM readings_rest WHERE sensor = 1

SELECT * FROM people WHERE id = 1

SELECT * FROM ONLY people WHERE id = 1

SELECT * FROM people* WHERE id = 1

SELECT * FROM open_orders WHERE id = 3

SELECT * FROM order_totals WHERE id = 3

SELECT * FROM best_sellers

## cursors, prepared statements, EXPLAIN

DECLARE c CURSOR FOR SELECT * FROM customers WHERE id = 5

DECLARE c BINARY SCROLL CURSOR WITH HOLD FOR SELECT * FROM orders WHERE id = 9

DECLARE c NO SCROLL CURSOR FOR SELECT * FROM orders WHERE id = 9 FOR UPDATE

FETCH 5 FROM c

FETCH BACKWARD ALL IN c

MOVE FORWARD 3 IN c

CLOSE c

CLOSE ALL

PREPARE p (int) AS SELECT * FROM customers WHERE id = $1

PREPARE p AS UPDATE customers SET balance = 0 WHERE id = $1

EXECUTE p (5)

DEALLOCATE p

DEALLOCATE ALL

EXPLAIN SELECT * FROM customers WHERE id = 5

EXPLAIN (COSTS off, FORMAT json) UPDATE customers SET balance = 0

EXPLAIN ANALYZE SELECT * FROM customers WHERE id = 5

EXPLAIN (ANALYZE, BUFFERS) UPDATE customers SET balance = 0 WHERE id = 5

EXPLAIN (ANALYZE false) DELETE FROM customers

EXPLAIN EXECUTE p (5)

EXPLAIN CREATE TEMP TABLE x AS SELECT * FROM customers

EXPLAIN DECLARE c CURSOR FOR SELECT 1

## constants by way of other queries

UPDATE customers SET active = false FROM (VALUES (1, 'a'), (2, 'b')) v (id, note) WHERE customers.id = v.id

UPDATE customers SET active = false FROM (VALUES ($1::int, $2::text), ($3, $4)) v (id, note) WHERE customers.id = v.id

UPDATE products SET price = 1 FROM (VALUES ('007'), (5)) v (sku) WHERE products.sku = v.sku

INSERT INTO plain (a, c) SELECT 1, 'x' UNION ALL SELECT 2, 'y'

INSERT INTO plain (a, c) SELECT 1, '007' UNION ALL SELECT 2, 5

INSERT INTO plain (a, c) SELECT $1, $2 UNION ALL SELECT 2, 'y'

INSERT INTO plain (a, c) SELECT v.a, v.c FROM customers LEFT JOIN (VALUES (1, 'x')) v (a, c) ON customers.id = v.a

INSERT INTO plain (a, c) SELECT v.* FROM customers LEFT JOIN (VALUES (1, 'x')) v (a, c) ON customers.id = v.a

INSERT INTO plain (a, c) SELECT 1 AS a, 'x' AS c FROM customers GROUP BY ROLLUP (1, 2)

INSERT INTO plain (a, c) SELECT v.a, v.c FROM (VALUES (1, 'x'), (2, NULL)) v (a, c) LIMIT 1

INSERT INTO orders (customer) SELECT $1 WHERE NOT EXISTS (SELECT FROM orders WHERE customer = $1)

WITH v AS (SELECT 5 AS id) DELETE FROM customers USING v WHERE customers.id = v.id

WITH v AS (SELECT 5 AS id), w AS (SELECT v.id FROM v) SELECT * FROM customers c, w WHERE c.id = w.id

WITH v AS (SELECT id, name FROM customers LIMIT 5) SELECT * FROM v WHERE id = 3

WITH RECURSIVE v (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM v WHERE n < 3) SELECT * FROM customers JOIN v ON id = n

SELECT * FROM customers LEFT JOIN (SELECT 5 AS k) v ON id = k WHERE v.k = id

SELECT * FROM customers RIGHT JOIN (SELECT 5 AS k) v ON id = k

SELECT * FROM customers JOIN (SELECT 5 AS id UNION SELECT 6) v USING (id)

WITH c AS (SELECT * FROM customers) SELECT (SELECT name FROM c WHERE c.id = o.customer) FROM orders o WHERE o.customer = 3

## code

DO $$ BEGIN UPDATE customers SET balance = 0; END $$

DO LANGUAGE plpgsql 'BEGIN NULL; END'

CALL restock('A1', 5)

CALL restock($1, $2)

## transactions and settings

BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY

START TRANSACTION

COMMIT

END AND NO CHAIN

ROLLBACK AND CHAIN

SAVEPOINT s

ROLLBACK TO s

RELEASE SAVEPOINT s

SET TRANSACTION ISOLATION LEVEL SERIALIZABLE, READ ONLY, DEFERRABLE

SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE

SET CONSTRAINTS notes_parent_fkey DEFERRED

SET search_path = public, pg_temp

SET LOCAL work_mem TO '64MB'

SET TIME ZONE LOCAL

SET timezone = DEFAULT

SET SESSION ROLE NONE

SET XML OPTION DOCUMENT

RESET ROLE

SHOW server_version

SHOW ALL

DISCARD TEMP

LISTEN c

UNLISTEN *

NOTIFY c, 'payload'

PREPARE TRANSACTION 'x'

LOAD 'plpgsql'

CHECKPOINT

## maintenance

VACUUM

VACUUM (FULL, ANALYZE, VERBOSE) customers (id)

ANALYZE customers, orders (id)

ANALYZE

REINDEX INDEX one_new_order

REINDEX (VERBOSE) SCHEMA public

CLUSTER customers USING customers_pkey

REFRESH MATERIALIZED VIEW best_sellers

REFRESH MATERIALIZED VIEW CONCURRENTLY best_sellers WITH DATA

## definitions

CREATE TABLE t1 (id int PRIMARY KEY, a int REFERENCES customers, CHECK (a > 0), UNIQUE NULLS NOT DISTINCT (a))

CREATE TABLE IF NOT EXISTS t1 (LIKE customers INCLUDING ALL EXCLUDING INDEXES)

CREATE TEMP TABLE t1 (a int) ON COMMIT DROP

CREATE TABLE t1 AS SELECT * FROM customers

SELECT * INTO t1 FROM customers

SELECT * INTO TEMP t1 FROM customers

CREATE TABLE t1 PARTITION OF readings FOR VALUES FROM ('2030-01-01') TO ('2031-01-01')

CREATE UNLOGGED TABLE t1 (a int)

CREATE TABLE t1 OF place

CREATE TABLE t1 (a int, EXCLUDE USING btree (a WITH =) DEFERRABLE)

ALTER TABLE customers ADD COLUMN extra int NOT NULL DEFAULT 0, DROP COLUMN profile

ALTER TABLE customers ADD CONSTRAINT positive CHECK (balance >= 0) NOT VALID

ALTER TABLE customers VALIDATE CONSTRAINT positive

ALTER TABLE customers ALTER name TYPE text, ALTER since SET NOT NULL

ALTER TABLE customers RENAME COLUMN name TO full_name

ALTER TABLE customers RENAME TO clients

ALTER TABLE customers SET SCHEMA information_schema

ALTER TABLE readings DETACH PARTITION readings_old

ALTER TABLE readings ATTACH PARTITION readings_old FOR VALUES FROM (MINVALUE) TO ('2025-01-01')

ALTER TABLE staff NO INHERIT people

ALTER TABLE customers CLUSTER ON customers_pkey, SET (fillfactor = 70), OWNER TO CURRENT_USER, REPLICA IDENTITY FULL

ALTER TABLE IF EXISTS ONLY plain ADD PRIMARY KEY USING INDEX i

DROP TABLE IF EXISTS t1, t2 CASCADE

CREATE INDEX ON customers (lower(name) text_pattern_ops DESC NULLS LAST) INCLUDE (balance) WHERE active

CREATE UNIQUE INDEX CONCURRENTLY i ON plain (a)

CREATE INDEX IF NOT EXISTS g ON customers USING gin (tags)

ALTER INDEX one_new_order RENAME TO x

DROP INDEX one_new_order

CREATE VIEW v (a) AS SELECT id FROM customers WITH CHECK OPTION

CREATE OR REPLACE RECURSIVE VIEW v (n) AS VALUES (1) UNION ALL SELECT n + 1 FROM v WHERE n < 5

CREATE MATERIALIZED VIEW m AS SELECT 1 WITH NO DATA

ALTER VIEW open_orders RENAME TO v

DROP VIEW open_orders

CREATE SEQUENCE s START 5 INCREMENT 2 CACHE 10 CYCLE OWNED BY customers.id

ALTER SEQUENCE invoice_numbers RESTART

DROP SEQUENCE invoice_numbers

CREATE FUNCTION f(a int, OUT b int) LANGUAGE plpgsql AS $$ BEGIN b := a; END $$

CREATE FUNCTION f(VARIADIC a int[]) RETURNS SETOF int LANGUAGE sql RETURN 1

CREATE PROCEDURE pr() BEGIN ATOMIC DELETE FROM plain; END

CREATE AGGREGATE total (numeric) (sfunc = numeric_add, stype = numeric, initcond = '0')

CREATE OPERATOR ## (leftarg = int, rightarg = int, function = int4pl)

CREATE CAST (place AS text) WITH INOUT

CREATE TYPE pair AS (a int, b int)

CREATE TYPE span AS RANGE (subtype = float8)

ALTER TYPE mood ADD VALUE 'angry' BEFORE 'sad'

CREATE DOMAIN short AS varchar(10) NOT NULL

DROP TYPE mood CASCADE

DROP FUNCTION order_total(bigint)

CREATE TRIGGER tr BEFORE UPDATE OF balance ON customers FOR EACH ROW WHEN (OLD.* IS DISTINCT FROM NEW.*) EXECUTE FUNCTION suppress_redundant_updates_trigger()

CREATE CONSTRAINT TRIGGER ct AFTER INSERT ON plain DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION log_amount()

DROP TRIGGER log_amount ON watched

CREATE RULE r AS ON UPDATE TO plain DO ALSO NOTIFY x

CREATE RULE r AS ON INSERT TO plain WHERE new.a = 1 DO ALSO INSERT INTO audit (what) VALUES ('x')

CREATE POLICY p ON secrets FOR SELECT TO PUBLIC USING (true)

ALTER POLICY own ON secrets USING (false)

CREATE STATISTICS st (ndistinct) ON a, b FROM plain

CREATE SCHEMA s AUTHORIZATION CURRENT_USER

DROP SCHEMA s

CREATE EXTENSION IF NOT EXISTS plpgsql

CREATE COLLATION coll FROM "C"

CREATE TEXT SEARCH CONFIGURATION ts (COPY = english)

CREATE ROLE r LOGIN PASSWORD 'x' VALID UNTIL 'infinity'

ALTER ROLE CURRENT_USER SET work_mem = '1MB'

GRANT SELECT, UPDATE (name) ON customers TO PUBLIC

REVOKE ALL ON ALL TABLES IN SCHEMA public FROM PUBLIC

GRANT pg_read_all_data TO CURRENT_USER

ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT ON TABLES TO PUBLIC

COMMENT ON COLUMN customers.name IS 'the name'

SECURITY LABEL ON TABLE customers IS 'x'

REASSIGN OWNED BY CURRENT_USER TO CURRENT_USER

CREATE PUBLICATION pb FOR TABLE customers

CREATE SUBSCRIPTION sb CONNECTION 'x' PUBLICATION pb

CREATE FOREIGN DATA WRAPPER w

CREATE SERVER sv FOREIGN DATA WRAPPER w

CREATE EVENT TRIGGER e ON sql_drop EXECUTE FUNCTION f()

CREATE ACCESS METHOD am TYPE INDEX HANDLER bthandler

CREATE LANGUAGE plperl

CREATE TRANSFORM FOR int LANGUAGE sql (FROM SQL WITH FUNCTION f(internal))

CREATE CONVERSION cv FOR 'LATIN1' TO 'UTF8' FROM iso8859_1_to_utf8

CREATE DATABASE d

DROP DATABASE d

ALTER SYSTEM SET work_mem = '1MB'

CREATE TABLESPACE ts LOCATION '/x'

IMPORT FOREIGN SCHEMA x FROM SERVER y INTO z

ALTER EXTENSION plpgsql UPDATE

ALTER OPERATOR FAMILY integer_ops USING btree ADD FUNCTION 1 (int, int) btint4cmp(int, int)

CREATE OPERATOR CLASS oc FOR TYPE int USING btree AS OPERATOR 1 <

DROP OWNED BY nobody

## where a fact ends

SELECT x.id FROM (SELECT DISTINCT ON (customer) id, customer FROM orders ORDER BY customer, placed DESC) x WHERE x.id = 3

SELECT x.customer FROM (SELECT DISTINCT ON (customer) id, customer FROM orders ORDER BY customer, placed DESC) x WHERE x.customer = 3

SELECT * FROM (SELECT customer, status, sum(total) AS s FROM orders GROUP BY ROLLUP (customer, status)) x WHERE x.customer IS NULL

SELECT * FROM (SELECT customer, sum(total) AS s FROM orders GROUP BY customer) x WHERE x.s = 3

SELECT * FROM (SELECT count(*) AS n, 3 AS k FROM orders) x WHERE x.k = 3

SELECT * FROM (SELECT max(id) AS id FROM orders) x WHERE x.id = 3

SELECT (SELECT max(total) FROM orders o WHERE o.customer IS NOT DISTINCT FROM c.id) FROM customers c WHERE c.id = 3 GROUP BY ROLLUP (c.id)

SELECT (SELECT count(*) FROM customers r WHERE r.referrer IS NOT DISTINCT FROM o.customer) FROM customers c LEFT JOIN orders o ON o.customer = c.id AND o.customer = 5

SELECT c.id FROM customers c LEFT JOIN orders o ON o.customer = 5 WHERE o.customer IS NULL

SELECT c.id FROM customers c LEFT JOIN (SELECT * FROM orders WHERE customer = 5) o ON o.customer = c.id

SELECT c.id FROM customers c LEFT JOIN (orders o JOIN order_items i ON i.order_id = o.id) ON o.customer = c.id AND i.order_id = 7

SELECT c.id FROM customers c LEFT JOIN orders o ON true LEFT JOIN order_items i ON i.order_id = o.id AND o.id = 7 AND c.id = 3

SELECT c.id FROM customers c FULL JOIN orders o ON o.customer = c.id WHERE c.id = 5 OR o.customer = 6

SELECT c.id FROM customers c JOIN orders o ON o.customer = c.id OR c.id = 5 WHERE o.id = 9

SELECT id FROM customers WHERE (id = 1 OR id = 2) AND (id = 2 OR id = 3)

SELECT id FROM customers WHERE id = 1 AND (active OR NOT active)

SELECT id FROM customers WHERE (id, email) IN (SELECT 1, 'x')

SELECT id FROM customers WHERE id IN (1, NULL)

SELECT id FROM customers WHERE id NOT IN (1, 2)

SELECT id FROM customers WHERE id <> ALL (ARRAY[1])

SELECT id FROM customers WHERE (id = 1) = true

SELECT id FROM customers WHERE (id = 1) IS NOT TRUE

SELECT id FROM customers WHERE (id = 1) IS UNKNOWN

SELECT id FROM customers WHERE NOT (id = 1 OR email = 'x')

SELECT id FROM customers WHERE NOT (NOT (id = 1))

SELECT id FROM customers WHERE NULL = id

SELECT id FROM customers WHERE active

SELECT id FROM customers WHERE NOT active

SELECT id FROM customers WHERE active IS NOT TRUE

SELECT id FROM customers WHERE active IS FALSE

SELECT id FROM customers WHERE name = 'Ann '

SELECT id FROM customers WHERE name = 'Ann'::char(5)

SELECT id FROM customers WHERE name = 'Annette'::varchar(3)

SELECT id FROM customers WHERE name = 'a' || 'b'

SELECT id FROM customers WHERE name = U&'d\0061t'

SELECT id FROM customers WHERE name = E'A\x6e\u006e' AND email = $$it's$$

SELECT id FROM customers WHERE name COLLATE nocase = 'ann'

SELECT id FROM customers WHERE balance = 1.005::numeric(5, 2)

SELECT id FROM customers WHERE balance = 1e400

SELECT id FROM customers WHERE balance = 'NaN'

SELECT id FROM customers WHERE balance = 5

SELECT id FROM customers WHERE id = 5::smallint

SELECT id FROM customers WHERE id = 70000::smallint

SELECT id FROM customers WHERE id = 1.6::int

SELECT id FROM customers WHERE id = '1.6'::numeric::int

SELECT id FROM customers WHERE id = true::int

SELECT id FROM customers WHERE id = ' 5 '

SELECT id FROM customers WHERE since = '2024-01-01 10:00'::timestamp

SELECT id FROM customers WHERE since = 'infinity'

SELECT id FROM customers WHERE since = '01/02/2024'

SELECT id FROM orders WHERE placed = '2024-01-01'

SELECT id FROM orders WHERE placed = '2024-01-01 00:00:00.5+01:30'

SELECT id FROM orders WHERE placed = TIMESTAMP '2024-01-01 00:00:00'

SELECT id FROM accounts WHERE balance = 5::int AND owner = 'x'::text

SELECT sku FROM products WHERE sku = 'A1' || ''

SELECT sku FROM products WHERE sku = 'A1'::varchar

SELECT sku FROM products WHERE sku::text = 'A1'

SELECT sku FROM products WHERE sku LIKE 'A1%'

SELECT p.sku FROM products p JOIN customers c ON p.sku = c.name WHERE c.name = 'A1 '

SELECT p.sku FROM products p JOIN customers c ON p.sku = c.name WHERE p.sku = 'A1'

SELECT i.sku FROM order_items i JOIN products p USING (sku) WHERE p.sku = 'A1'

SELECT o.id FROM orders o JOIN customers c ON c.id = o.id WHERE o.id = 3000000000

SELECT c.id FROM customers c JOIN products p ON c.balance = p.price WHERE p.price = 1.50

SELECT c.id FROM customers c JOIN accounts a ON c.balance = a.balance WHERE a.balance = 5

SELECT c.id FROM customers c JOIN readings r ON r.sensor = c.id AND r.at = c.since WHERE c.since = '2024-01-01' AND c.id = 4

WITH c AS (SELECT id FROM customers WHERE id = 1 FOR UPDATE) UPDATE orders SET status = 'x' FROM c WHERE customer = c.id

WITH c AS (SELECT * FROM customers WHERE id = $1) SELECT * FROM c, orders o WHERE o.customer = c.id

WITH customers AS (SELECT 5 AS id) SELECT * FROM public.customers WHERE id IN (SELECT id FROM customers)

WITH a AS (SELECT 1 AS id), b AS (WITH a AS (SELECT * FROM customers) SELECT * FROM a WHERE id = 4) SELECT * FROM a, b

UPDATE customers SET id = 6 WHERE id = 5 RETURNING (SELECT count(*) FROM orders o WHERE o.customer = customers.id)

UPDATE customers SET referrer = 6 WHERE referrer = 5 RETURNING (SELECT count(*) FROM orders o WHERE o.customer = referrer)

UPDATE orders SET customer = 6 WHERE customer = 5 AND id IN (SELECT order_id FROM order_items WHERE sku = 'A1')

UPDATE products SET sku = 'B1', price = (SELECT max(price) FROM products p WHERE p.sku = products.sku) WHERE sku = 'A1'

UPDATE customers a SET name = b.name FROM customers b WHERE a.id = b.referrer AND b.id = 4

UPDATE customers SET balance = 1.005 WHERE balance = 1

UPDATE accounts SET note = 'x                        ' WHERE note = 'y'

UPDATE products SET sku = 'A1' WHERE sku = 'A1 '

UPDATE orders SET id = DEFAULT WHERE id = 4

INSERT INTO accounts (id, owner, balance) SELECT 1, 'x', 5 ON CONFLICT (id) DO UPDATE SET id = 7, note = (SELECT name FROM customers WHERE id = excluded.balance)

INSERT INTO accounts VALUES (1, 'a', 1, 'x'), (2, 'b', 2, 'y') ON CONFLICT (id) DO UPDATE SET note = excluded.note WHERE accounts.id = 1

INSERT INTO customers (id, email, name, balance) VALUES (5, 'x', 'y', 1.005) RETURNING (SELECT count(*) FROM orders WHERE customer = 5)

INSERT INTO products (sku, name, price) VALUES ('A1  ', 'x', 1), ($1, $2, $3)

INSERT INTO order_items SELECT o.id, 1, 'A1', 1 FROM orders o WHERE o.customer = 3 AND o.status = 'new'

DELETE FROM customers a USING customers b WHERE a.id = b.referrer AND b.id = 3

DELETE FROM orders WHERE id = 4 AND EXISTS (SELECT FROM order_items i WHERE i.order_id = orders.id AND i.quantity = 1)

DELETE FROM orders WHERE customer = (SELECT id FROM customers WHERE email = 'x@y.z')

MERGE INTO customers c USING (SELECT 5 AS id) s ON c.id = 5 WHEN MATCHED THEN UPDATE SET id = 6 WHEN NOT MATCHED THEN INSERT (id, email, name) VALUES (7, 'x', 'y')

SELECT * FROM customers c, LATERAL (SELECT * FROM orders o WHERE o.id = c.id OFFSET 1) x WHERE x.id = 3

SELECT * FROM customers WHERE id = 3 UNION SELECT * FROM customers WHERE id = 4 ORDER BY 1

SELECT * FROM (SELECT * FROM customers WHERE id = 3 UNION ALL SELECT * FROM customers WHERE id = 4) u WHERE u.id = 5

SELECT * FROM (SELECT id, random() AS r FROM customers) x WHERE x.id = 3

SELECT * FROM (SELECT id, generate_series(1, 3) AS g FROM customers) x WHERE x.id = 3 AND x.g = 1

SELECT * FROM (SELECT c.id, o.total FROM customers c LEFT JOIN orders o ON o.customer = c.id) x WHERE x.total = 5 AND x.id = 1

SELECT (SELECT name FROM customers WHERE id = o.customer) FROM orders o WHERE o.customer IN (1, 2)

SELECT id FROM orders o WHERE o.customer = 3 AND o.total = (SELECT max(total) FROM orders WHERE customer = o.customer)

SELECT id FROM orders WHERE customer = (SELECT referrer FROM customers WHERE id = orders.id)

SELECT id, (SELECT id FROM people WHERE people.id = id) FROM customers WHERE id = 3

SELECT customers.id FROM customers, people id WHERE id = 3

SELECT orders FROM orders WHERE orders = orders AND id = 3

SELECT count(orders) FROM orders WHERE id = 3 GROUP BY orders.id

SELECT id FROM ONLY customers AS c (id, email) WHERE email = 'x'

SELECT id FROM customers AS c (email, id) WHERE id = 'x'

SELECT c.a FROM customers AS c (a) WHERE a = 5

SELECT * FROM customers WHERE CASE WHEN id = 1 THEN true END

SELECT * FROM customers WHERE id = 1 LIMIT (SELECT count(*) FROM orders)

SELECT sum(balance) OVER (ORDER BY id) FROM customers WHERE id = 1

SELECT * FROM customers WHERE id = 1 AND EXISTS (SELECT 1 FROM orders WHERE customer = 2)

SELECT * FROM customers WHERE EXISTS (SELECT 1 FROM orders WHERE customer = customers.id AND customers.id = 4)

SELECT * FROM customers WHERE id = (SELECT 4)

SELECT * FROM customers WHERE id = ANY (SELECT 4)

SELECT * FROM customers WHERE id = 1 INTERSECT SELECT * FROM customers WHERE id = 2

SELECT * FROM generate_series(1, 3) AS id JOIN customers USING (id) WHERE id = 2

SELECT * FROM customers JOIN LATERAL (SELECT customers.id AS k) l ON true JOIN orders o ON o.customer = l.k WHERE l.k = 5

## behind names: views, functions, triggers, actions

SELECT * FROM rich WHERE number = 5

SELECT who FROM rich_orders WHERE id = 9

SELECT * FROM newest WHERE customer = 5

SELECT * FROM newest WHERE id = 5

SELECT name FROM everybody WHERE id = 5

SELECT r.who FROM rich r JOIN orders o ON o.customer = r.number WHERE r.number = 5 FOR UPDATE

UPDATE rich SET who = 'x' WHERE number = 5

INSERT INTO rich VALUES (5, 'x', 2000)

DELETE FROM rich WHERE worth = 5000

UPDATE rich_orders SET total = 0 WHERE id = 9

SELECT stock_of('A1')

SELECT sku, stock_of(sku) FROM products WHERE sku = 'A1'

SELECT take('A1', 3)

SELECT chain(3)

SELECT o.id, order_total(o.id) FROM orders o WHERE o.id = 9

INSERT INTO order_items SELECT 7, 1, 'A1', take('A1', 1)

UPDATE stamped SET note = 'x' WHERE id = 1

UPDATE stamped SET version = 5 WHERE version = 4

INSERT INTO stamped (id) VALUES (1)

DELETE FROM stamped WHERE id = 1

INSERT INTO counted VALUES (1, 2)

UPDATE counted SET kind = 3 WHERE id = 1

DELETE FROM counted WHERE id = 1

DELETE FROM levels WHERE id = 1

UPDATE levels SET id = 2 WHERE id = 1

UPDATE levels SET name = 'x' WHERE id = 1

UPDATE grades SET level = 3 WHERE id = 1

INSERT INTO grades VALUES (1, DEFAULT, NULL)

TRUNCATE levels, grades

TRUNCATE counted

COPY counted FROM STDIN

MERGE INTO counted c USING (SELECT 1 AS id) s ON c.id = s.id WHEN NOT MATCHED THEN INSERT VALUES (1, 2) WHEN MATCHED THEN DELETE
