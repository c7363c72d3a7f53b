-- TPC-C: what the five transactions send. README.md beside this folder tells how to read this file.

-- interaction: NewOrder
-- begin: NewOrder
-- query: getCustomer
SELECT c_discount, c_last, c_credit FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- query: getWarehouseTax
SELECT w_tax FROM warehouse WHERE w_id = $1;
-- query: getDistrict
SELECT d_next_o_id, d_tax FROM district WHERE d_w_id = $1 AND d_id = $2 FOR UPDATE;
-- query: advanceDistrict
UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE d_w_id = $1 AND d_id = $2;
-- query: addOrder
INSERT INTO orders (o_w_id, o_d_id, o_id, o_c_id, o_entry_d, o_ol_cnt, o_all_local)
VALUES ($1, $2, $3, $4, now(), $5, $6);
-- query: addNewOrder
INSERT INTO new_order (no_w_id, no_d_id, no_o_id) VALUES ($1, $2, $3);
-- query: getItem (this and the next three for each of 5 to 15 lines; no such item in 1 % of the last lines: rollback)
SELECT i_price, i_name, i_data FROM item WHERE i_id = $1;
-- query: getStock
SELECT s_quantity, s_data, s_dist_01, s_dist_02, s_dist_03, s_dist_04, s_dist_05, s_dist_06, s_dist_07, s_dist_08,
       s_dist_09, s_dist_10
FROM stock
WHERE s_w_id = $1 AND s_i_id = $2
FOR UPDATE;
-- query: changeStock
UPDATE stock
SET s_quantity = $3, s_ytd = s_ytd + $4, s_order_cnt = s_order_cnt + 1, s_remote_cnt = s_remote_cnt + $5
WHERE s_w_id = $1 AND s_i_id = $2;
-- query: addOrderLine
INSERT INTO order_line (ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_quantity, ol_amount,
                        ol_dist_info)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9);
-- commit

-- interaction: Payment
-- begin: Payment
-- query: payWarehouse
UPDATE warehouse SET w_ytd = w_ytd + $2 WHERE w_id = $1;
-- query: getWarehouse
SELECT w_street_1, w_street_2, w_city, w_state, w_zip, w_name FROM warehouse WHERE w_id = $1;
-- query: payDistrict
UPDATE district SET d_ytd = d_ytd + $3 WHERE d_w_id = $1 AND d_id = $2;
-- query: getDistrictAddress
SELECT d_street_1, d_street_2, d_city, d_state, d_zip, d_name FROM district WHERE d_w_id = $1 AND d_id = $2;
-- query: customersByName (60 %; the middle one, rounded up, is taken)
SELECT c_id FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_last = $3 ORDER BY c_first;
-- query: getPayer
SELECT c_first, c_middle, c_last, c_street_1, c_street_2, c_city, c_state, c_zip, c_phone, c_credit, c_credit_lim,
       c_discount, c_balance, c_ytd_payment, c_payment_cnt, c_since
FROM customer
WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- query: getPayerData (bad credit)
SELECT c_data FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- query: payCustomerBadCredit (bad credit)
UPDATE customer
SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1, c_data = $5
WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- query: payCustomer (good credit)
UPDATE customer
SET c_balance = c_balance - $4, c_ytd_payment = c_ytd_payment + $4, c_payment_cnt = c_payment_cnt + 1
WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- query: addHistory
INSERT INTO history (h_c_w_id, h_c_d_id, h_c_id, h_w_id, h_d_id, h_date, h_amount, h_data)
VALUES ($1, $2, $3, $4, $5, now(), $6, $7);
-- commit

-- interaction: OrderStatus
-- begin: OrderStatus
-- query: customersByName (60 %)
-- query: getBalance
SELECT c_first, c_middle, c_last, c_balance FROM customer WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- query: newestOrder
SELECT o_id, o_carrier_id, o_entry_d
FROM orders
WHERE o_w_id = $1 AND o_d_id = $2 AND o_c_id = $3
ORDER BY o_id DESC
LIMIT 1;
-- query: getOrderLines
SELECT ol_i_id, ol_supply_w_id, ol_quantity, ol_amount, ol_delivery_d
FROM order_line
WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3;
-- commit

-- interaction: Delivery
-- begin: Delivery
-- query: oldestNewOrder (this and the next six for each of the ten districts)
SELECT no_o_id FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 ORDER BY no_o_id LIMIT 1;
-- query: removeNewOrder
DELETE FROM new_order WHERE no_w_id = $1 AND no_d_id = $2 AND no_o_id = $3;
-- query: getOrderCustomer
SELECT o_c_id FROM orders WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3;
-- query: setCarrier
UPDATE orders SET o_carrier_id = $4 WHERE o_w_id = $1 AND o_d_id = $2 AND o_id = $3;
-- query: deliverLines
UPDATE order_line SET ol_delivery_d = now() WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3;
-- query: sumLines
SELECT sum(ol_amount) FROM order_line WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id = $3;
-- query: creditCustomer
UPDATE customer
SET c_balance = c_balance + $4, c_delivery_cnt = c_delivery_cnt + 1
WHERE c_w_id = $1 AND c_d_id = $2 AND c_id = $3;
-- commit

-- interaction: StockLevel
-- begin: StockLevel
-- query: getNextOrder
SELECT d_next_o_id FROM district WHERE d_w_id = $1 AND d_id = $2;
-- query: countLowStock
SELECT count(DISTINCT s_i_id)
FROM order_line JOIN stock ON s_w_id = $1 AND s_i_id = ol_i_id
WHERE ol_w_id = $1 AND ol_d_id = $2 AND ol_o_id >= $3 - 20 AND ol_o_id < $3 AND s_quantity < $4;
-- commit
