-- TPC-W: what the 14 interactions send. README.md beside this folder tells how to read this file.

-- interaction: HOME
-- query: getName (first page of a session whose customer is known)
SELECT c_fname, c_lname FROM customer WHERE c_id = $1;
-- query: getRelated (a random item)
SELECT j.i_id, j.i_thumbnail
FROM item i
JOIN item j ON j.i_id IN (i.i_related1, i.i_related2, i.i_related3, i.i_related4, i.i_related5)
WHERE i.i_id = $1;

-- interaction: NEWP
-- query: getRelated
-- query: getNewProducts
SELECT i_id, i_title, a_fname, a_lname
FROM item JOIN author ON i_a_id = a_id
WHERE i_subject = $1
ORDER BY i_pub_date DESC, i_title
LIMIT 50;

-- interaction: BESS
-- query: getRelated
-- query: getBestSellers
SELECT i_id, i_title, a_fname, a_lname, sum(ol_qty) AS sold
FROM order_line
JOIN item ON i_id = ol_i_id
JOIN author ON a_id = i_a_id
WHERE ol_o_id > (SELECT max(o_id) - 3333 FROM orders) AND i_subject = $1
GROUP BY i_id, i_title, a_fname, a_lname
ORDER BY sold DESC
LIMIT 50;

-- interaction: PROD
-- query: getBook
SELECT * FROM item JOIN author ON i_a_id = a_id WHERE i_id = $1;

-- interaction: SREQ
-- query: getRelated

-- interaction: SRES
-- query: getRelated
-- query: doAuthorSearch (one of the three, a third each; the parameter ends in %)
SELECT * FROM item JOIN author ON i_a_id = a_id WHERE a_lname LIKE $1 ORDER BY i_title LIMIT 50;
-- query: doTitleSearch
SELECT * FROM item JOIN author ON i_a_id = a_id WHERE i_title LIKE $1 ORDER BY i_title LIMIT 50;
-- query: doSubjectSearch
SELECT * FROM item JOIN author ON i_a_id = a_id WHERE i_subject = $1 ORDER BY i_title LIMIT 50;

-- interaction: SHOP
-- begin: createEmptyCart (when the session has no cart)
-- query: createCart
INSERT INTO shopping_cart (sc_time) VALUES (localtimestamp) RETURNING sc_id;
-- commit
-- begin: doCart
-- query: findLine (when an item is added)
SELECT scl_qty FROM shopping_cart_line WHERE scl_sc_id = $1 AND scl_i_id = $2;
-- query: setLine (when the cart has it, with one more; and for each line that is refreshed to a quantity)
UPDATE shopping_cart_line SET scl_qty = $3 WHERE scl_sc_id = $1 AND scl_i_id = $2;
-- query: addLine (when it has it not)
INSERT INTO shopping_cart_line (scl_sc_id, scl_i_id, scl_qty) VALUES ($1, $2, $3);
-- query: removeLine (for each line that is refreshed to nothing)
DELETE FROM shopping_cart_line WHERE scl_sc_id = $1 AND scl_i_id = $2;
-- query: countLines
SELECT count(*) FROM shopping_cart_line WHERE scl_sc_id = $1;
-- query: firstRelated (when the cart is empty: the item of a random item is added)
SELECT i_related1 FROM item WHERE i_id = $1;
-- query: findLine
-- query: addLine
-- query: touchCart
UPDATE shopping_cart SET sc_time = localtimestamp WHERE sc_id = $1;
-- query: getCart
SELECT scl_i_id, scl_qty, i_title, i_cost, i_srp, i_backing
FROM shopping_cart_line JOIN item ON scl_i_id = i_id
WHERE scl_sc_id = $1;
-- commit
-- query: getRelated

-- interaction: CREG
-- query: getUserName (known customer)
SELECT c_uname FROM customer WHERE c_id = $1;

-- interaction: BUYR
-- query: getCustomer (known customer)
SELECT *
FROM customer
JOIN address ON addr_id = c_addr_id
JOIN country ON co_id = addr_co_id
WHERE c_uname = $1;
-- query: refreshSession (known customer)
UPDATE customer
SET c_login = localtimestamp, c_expiration = localtimestamp + interval '2 hours'
WHERE c_id = $1;
-- begin: createNewCustomer (new customer)
-- query: findCountry
SELECT co_id FROM country WHERE co_name = $1;
-- query: findAddress
SELECT addr_id
FROM address
WHERE addr_street1 = $1 AND addr_street2 = $2 AND addr_city = $3 AND addr_state = $4 AND addr_zip = $5
  AND addr_co_id = $6;
-- query: addAddress (when it is not there)
INSERT INTO address (addr_street1, addr_street2, addr_city, addr_state, addr_zip, addr_co_id)
VALUES ($1, $2, $3, $4, $5, $6)
RETURNING addr_id;
-- query: nextCustomer (its name and password are made of the id)
SELECT nextval('customer_c_id_seq');
-- query: addCustomer
INSERT INTO customer (c_id, c_uname, c_passwd, c_fname, c_lname, c_addr_id, c_phone, c_email, c_since, c_last_login,
                      c_login, c_expiration, c_discount, c_balance, c_ytd_pmt, c_birthdate, c_data)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, current_date, current_date, localtimestamp,
        localtimestamp + interval '2 hours', $9, 0, 0, $10, $11);
-- commit
-- begin: getCart
-- query: getCart
-- commit

-- interaction: BUYC
-- begin: doBuyConfirm
-- query: getDiscount
SELECT c_discount FROM customer WHERE c_id = $1;
-- query: getCart
-- query: getCustomerAddress
SELECT c_addr_id FROM customer WHERE c_id = $1;
-- query: findCountry (5 %: to another address)
-- query: findAddress
-- query: addAddress
-- query: addOrder
INSERT INTO orders (o_c_id, o_date, o_sub_total, o_tax, o_total, o_ship_type, o_ship_date, o_bill_addr_id,
                    o_ship_addr_id, o_status)
VALUES ($1, localtimestamp, $2, $3, $4, $5, $6, $7, $8, 'PENDING')
RETURNING o_id;
-- query: addOrderLine (this and the next two for each line)
INSERT INTO order_line (ol_id, ol_o_id, ol_i_id, ol_qty, ol_discount, ol_comments)
VALUES ($1, $2, $3, $4, $5, $6);
-- query: getStock
SELECT i_stock FROM item WHERE i_id = $1;
-- query: setStock
UPDATE item SET i_stock = $2 WHERE i_id = $1;
-- query: addPayment
INSERT INTO cc_xacts (cx_o_id, cx_type, cx_num, cx_name, cx_expire, cx_xact_amt, cx_xact_date, cx_co_id)
VALUES ($1, $2, $3, $4, $5, $6, localtimestamp,
        (SELECT co_id FROM address JOIN country ON addr_co_id = co_id WHERE addr_id = $7));
-- query: clearCart
DELETE FROM shopping_cart_line WHERE scl_sc_id = $1;
-- commit

-- interaction: ORDI

-- interaction: ORDD
-- query: getPassword
SELECT c_passwd FROM customer WHERE c_uname = $1;
-- begin: getMostRecentOrder (when the password is right)
-- query: newestOrder
SELECT o_id
FROM customer JOIN orders ON c_id = o_c_id
WHERE c_uname = $1
ORDER BY o_date DESC, o_id DESC
LIMIT 1;
-- query: getOrder
SELECT orders.*, customer.*, cc_xacts.cx_type,
       ship.addr_street1 AS ship_street1, ship.addr_street2 AS ship_street2, ship.addr_city AS ship_city,
       ship.addr_state AS ship_state, ship.addr_zip AS ship_zip, ship_country.co_name AS ship_country,
       bill.addr_street1 AS bill_street1, bill.addr_street2 AS bill_street2, bill.addr_city AS bill_city,
       bill.addr_state AS bill_state, bill.addr_zip AS bill_zip, bill_country.co_name AS bill_country
FROM orders
JOIN customer ON c_id = o_c_id
JOIN cc_xacts ON cx_o_id = o_id
JOIN address AS ship ON ship.addr_id = o_ship_addr_id
JOIN country AS ship_country ON ship_country.co_id = ship.addr_co_id
JOIN address AS bill ON bill.addr_id = o_bill_addr_id
JOIN country AS bill_country ON bill_country.co_id = bill.addr_co_id
WHERE o_id = $1;
-- query: getOrderLines
SELECT * FROM order_line JOIN item ON ol_i_id = i_id WHERE ol_o_id = $1;
-- commit

-- interaction: ADMR
-- query: getBook

-- interaction: ADMC
-- query: getBook
-- begin: adminUpdate
-- query: changeItem
UPDATE item SET i_cost = $2, i_image = $3, i_thumbnail = $4, i_pub_date = current_date WHERE i_id = $1;
-- query: boughtTogether
SELECT ol_i_id, sum(ol_qty) AS sold
FROM orders JOIN order_line ON o_id = ol_o_id
WHERE ol_i_id <> $1
  AND o_c_id IN (SELECT o_c_id
                 FROM orders JOIN order_line ON o_id = ol_o_id
                 WHERE o_id > (SELECT max(o_id) - 10000 FROM orders) AND ol_i_id = $1)
GROUP BY ol_i_id
ORDER BY sold DESC
LIMIT 5;
-- query: changeRelated
UPDATE item
SET i_related1 = $2, i_related2 = $3, i_related3 = $4, i_related4 = $5, i_related5 = $6
WHERE i_id = $1;
-- commit
