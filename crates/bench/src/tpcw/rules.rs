//! The rules of the shop: undeclared references, complete orders, and sums.

use crate::drive::Rule;

/// A column that refers to another table, as table, column, table, column.
const REFERENCES: [(&str, &str, &str, &str); 11] = [
    ("customer", "c_addr_id", "address", "addr_id"),
    ("address", "addr_co_id", "country", "co_id"),
    ("item", "i_a_id", "author", "a_id"),
    ("orders", "o_c_id", "customer", "c_id"),
    ("orders", "o_bill_addr_id", "address", "addr_id"),
    ("orders", "o_ship_addr_id", "address", "addr_id"),
    ("order_line", "ol_o_id", "orders", "o_id"),
    ("order_line", "ol_i_id", "item", "i_id"),
    ("cc_xacts", "cx_o_id", "orders", "o_id"),
    ("shopping_cart_line", "scl_sc_id", "shopping_cart", "sc_id"),
    ("shopping_cart_line", "scl_i_id", "item", "i_id"),
];

const OTHERS: [(&str, &str); 5] = [
    (
        "an order has lines that are numbered from 1",
        "SELECT o_id, count(ol_id), max(ol_id) FROM orders LEFT JOIN order_line ON ol_o_id = o_id
         GROUP BY o_id HAVING count(ol_id) = 0 OR min(ol_id) <> 1 OR max(ol_id) <> count(ol_id)",
    ),
    (
        "an order has been paid, as much as it costs",
        "SELECT o_id, o_total, cx_xact_amt FROM orders LEFT JOIN cc_xacts ON cx_o_id = o_id
         WHERE cx_xact_amt IS DISTINCT FROM o_total",
    ),
    (
        "an order's tax is 8.25 percent",
        "SELECT o_id, o_sub_total, o_tax FROM orders WHERE o_tax <> round(o_sub_total * 0.0825, 2)",
    ),
    ("a cart's lines are of something", "SELECT * FROM shopping_cart_line WHERE scl_qty < 1"),
    (
        "an item is related to five others, each once",
        "SELECT i_id FROM item WHERE (SELECT count(DISTINCT x) FROM
         unnest(ARRAY[i_related1, i_related2, i_related3, i_related4, i_related5]) AS x WHERE x <> i_id) <> 5",
    ),
];

/// All of them.
pub(super) fn all() -> Vec<Rule> {
    let references = REFERENCES.iter().map(|(table, column, other, key)| Rule {
        name: format!("{table}.{column} refers to {other}"),
        sql: format!("SELECT {column} FROM {table} WHERE {column} NOT IN (SELECT {key} FROM {other})"),
    });
    let others = OTHERS.iter().map(|(name, sql)| Rule { name: (*name).to_owned(), sql: (*sql).to_owned() });
    references.chain(others).collect()
}
