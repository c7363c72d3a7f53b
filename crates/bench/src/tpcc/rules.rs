//! The twelve consistency conditions (clause 3.3.2 of the specification), each as a query for what breaks it.
//!
//! The eleventh says at the beginning that 2,100 orders of each district have been delivered. Delivery changes that
//! number, so here it says that the orders without an entry in new_order are those that have a carrier.

use crate::drive::Rule;

const RULES: [(&str, &str); 12] = [
    (
        "1: a warehouse has received what its districts have",
        "SELECT w_id, w_ytd, sum(d_ytd) FROM warehouse JOIN district ON d_w_id = w_id
         GROUP BY w_id HAVING w_ytd <> sum(d_ytd)",
    ),
    (
        "2: a district's next order follows its last",
        "SELECT d_w_id, d_id, d_next_o_id, last_order, last_new
         FROM district
         LEFT JOIN (SELECT o_w_id, o_d_id, max(o_id) AS last_order FROM orders GROUP BY 1, 2) o
                ON (o_w_id, o_d_id) = (d_w_id, d_id)
         LEFT JOIN (SELECT no_w_id, no_d_id, max(no_o_id) AS last_new FROM new_order GROUP BY 1, 2) n
                ON (no_w_id, no_d_id) = (d_w_id, d_id)
         WHERE d_next_o_id - 1 <> coalesce(last_order, 0) OR d_next_o_id - 1 <> coalesce(last_new, d_next_o_id - 1)",
    ),
    (
        "3: new orders of a district have no gaps",
        "SELECT no_w_id, no_d_id, min(no_o_id), max(no_o_id), count(*) FROM new_order
         GROUP BY 1, 2 HAVING max(no_o_id) - min(no_o_id) + 1 <> count(*)",
    ),
    (
        "4: a district has as many lines as its orders say",
        "SELECT o_w_id, o_d_id, said, there
         FROM (SELECT o_w_id, o_d_id, sum(o_ol_cnt) AS said FROM orders GROUP BY 1, 2) o
         FULL JOIN (SELECT ol_w_id, ol_d_id, count(*) AS there FROM order_line GROUP BY 1, 2) l
                ON (ol_w_id, ol_d_id) = (o_w_id, o_d_id)
         WHERE said IS DISTINCT FROM there",
    ),
    (
        "5: an order has no carrier as long as it is new",
        "SELECT o_w_id, o_d_id, o_id, no_o_id, o_carrier_id
         FROM orders FULL JOIN new_order ON (no_w_id, no_d_id, no_o_id) = (o_w_id, o_d_id, o_id)
         WHERE o_id IS NULL OR (no_o_id IS NULL) = (o_carrier_id IS NULL)",
    ),
    (
        "6: an order has as many lines as it says",
        "SELECT o_w_id, o_d_id, o_id, o_ol_cnt, count(ol_number)
         FROM orders LEFT JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
         GROUP BY o_w_id, o_d_id, o_id HAVING o_ol_cnt <> count(ol_number)",
    ),
    (
        "7: a line is delivered when its order is",
        "SELECT ol_w_id, ol_d_id, ol_o_id, ol_number
         FROM order_line LEFT JOIN orders ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
         WHERE o_id IS NULL OR (ol_delivery_d IS NULL) <> (o_carrier_id IS NULL)",
    ),
    (
        "8: a warehouse has received what history says",
        "SELECT w_id, w_ytd, sum(h_amount) FROM warehouse LEFT JOIN history ON h_w_id = w_id
         GROUP BY w_id HAVING w_ytd <> coalesce(sum(h_amount), 0)",
    ),
    (
        "9: a district has received what history says",
        "SELECT d_w_id, d_id, d_ytd, sum(h_amount)
         FROM district LEFT JOIN history ON (h_w_id, h_d_id) = (d_w_id, d_id)
         GROUP BY d_w_id, d_id HAVING d_ytd <> coalesce(sum(h_amount), 0)",
    ),
    (
        "10: a customer owes what was delivered and not paid",
        "SELECT c_w_id, c_d_id, c_id, c_balance, delivered, paid
         FROM customer
         LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered
                    FROM orders JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
                    WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3) o
                ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)
         LEFT JOIN (SELECT h_c_w_id, h_c_d_id, h_c_id, sum(h_amount) AS paid FROM history GROUP BY 1, 2, 3) h
                ON (h_c_w_id, h_c_d_id, h_c_id) = (c_w_id, c_d_id, c_id)
         WHERE c_balance <> coalesce(delivered, 0) - coalesce(paid, 0)",
    ),
    (
        "11: the orders of a district that are not new have been delivered",
        "SELECT o_w_id, o_d_id, orders, delivered, new
         FROM (SELECT o_w_id, o_d_id, count(*) AS orders, count(o_carrier_id) AS delivered
               FROM orders GROUP BY 1, 2) o
         LEFT JOIN (SELECT no_w_id, no_d_id, count(*) AS new FROM new_order GROUP BY 1, 2) n
                ON (no_w_id, no_d_id) = (o_w_id, o_d_id)
         WHERE orders - coalesce(new, 0) <> delivered",
    ),
    (
        "12: a customer's balance and payments are what was delivered",
        "SELECT c_w_id, c_d_id, c_id, c_balance, c_ytd_payment, delivered
         FROM customer
         LEFT JOIN (SELECT o_w_id, o_d_id, o_c_id, sum(ol_amount) AS delivered
                    FROM orders JOIN order_line ON (ol_w_id, ol_d_id, ol_o_id) = (o_w_id, o_d_id, o_id)
                    WHERE ol_delivery_d IS NOT NULL GROUP BY 1, 2, 3) o
                ON (o_w_id, o_d_id, o_c_id) = (c_w_id, c_d_id, c_id)
         WHERE c_balance + c_ytd_payment <> coalesce(delivered, 0)",
    ),
];

/// All of them.
pub(super) fn all() -> Vec<Rule> {
    RULES.iter().map(|(name, sql)| Rule { name: (*name).to_owned(), sql: (*sql).to_owned() }).collect()
}
