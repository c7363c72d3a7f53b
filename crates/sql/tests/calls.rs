//! CALL is known by the rows that the procedure writes.
//!
//! The conflicts of TPC-C's transactions come out of the texts of five procedures, and are those of Gargamel's Table II.
//! Whatever a call of these writes is among its accesses, for all small arguments.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sql::accesses::{Accesses, Parameter, View, overwrites};
use sql::{Access, Analyzer, Because, Limits, explain, may_leave_anchor};

#[path = "fixture/schema.rs"]
mod schema;
#[path = "fixture/written.rs"]
mod written;

use written::{Written, covers, touched, touched_with, written};

const TPCC: &str = include_str!("corpus/tpcc_calls.sql");

/// A call of one of the five, by what Table II calls its variables.
#[derive(Clone, Debug, PartialEq)]
enum Call {
    NewOrder { w: i64, d: i64, items: Vec<(i64, i64)> },
    Payment { w: i64, d: i64, cw: i64, cd: i64, customer: Option<i64> },
    Delivery { w: i64 },
    OrderStatus { w: i64, d: i64 },
    StockLevel { w: i64, d: i64 },
}

impl Call {
    fn text(&self) -> String {
        match self {
            Self::NewOrder { w, d, items } => {
                let list = |of: fn(&(i64, i64)) -> i64| {
                    items.iter().map(|item| of(item).to_string()).collect::<Vec<_>>().join(",")
                };
                let (warehouses, numbers) = (list(|item| item.0), list(|item| item.1));
                let quantities = list(|_| 5);
                format!(
                    "CALL new_order({w}, {d}, 1, '{{{numbers}}}', ARRAY[{warehouses}]::int[], '{{{quantities}}}', \
                     '2026-01-01')"
                )
            }
            Self::Payment { w, d, cw, cd, customer } => {
                let (id, name) = match customer {
                    Some(id) => (id.to_string(), "NULL".to_owned()),
                    None => ("NULL".to_owned(), "'BARBARBAR'".to_owned()),
                };
                format!("CALL payment({w}, {d}, {cw}, {cd}, {id}, {name}, 12.50, '2026-01-01')")
            }
            Self::Delivery { w } => format!("CALL delivery({w}, 3, '2026-01-01')"),
            Self::OrderStatus { w, d } => format!("CALL order_status({w}, {d}, 1, NULL, NULL, NULL)"),
            Self::StockLevel { w, d } => format!("CALL stock_level({w}, {d}, 15, NULL)"),
        }
    }

    fn all() -> Vec<Self> {
        let places = || (1..=2).flat_map(|w| (1..=2).map(move |d| (w, d)));
        let mut all = Vec::new();
        for (w, d) in places() {
            for items in [vec![(1, 1)], vec![(1, 2), (2, 1)], vec![(2, 2), (1, 1)], vec![]] {
                all.push(Self::NewOrder { w, d, items });
            }
            for (cw, cd) in places() {
                for customer in [Some(1), Some(2), None] {
                    all.push(Self::Payment { w, d, cw, cd, customer });
                }
            }
            all.push(Self::OrderStatus { w, d });
            all.push(Self::StockLevel { w, d });
        }
        all.extend((1..=2).map(|w| Self::Delivery { w }));
        all
    }

    /// Table II, as it is printed. Of a customer by name nothing is assumed to be different.
    fn conflicts(&self, other: &Self) -> bool {
        use Call::{Delivery, NewOrder, Payment};
        match (self, other) {
            (NewOrder { w, d, items }, NewOrder { w: w2, d: d2, items: items2 }) => {
                (w == w2 && d == d2) || items.iter().any(|item| items2.contains(item))
            }
            (
                Payment { w, cw, cd, customer, .. },
                Payment { w: w2, cw: cw2, cd: cd2, customer: customer2, .. },
            ) => {
                let same = customer.is_none() || customer2.is_none() || customer == customer2;
                w == w2 || (cw == cw2 && cd == cd2 && same)
            }
            (Delivery { w }, Delivery { w: w2 }) => w == w2,
            (Delivery { w }, Payment { cw, .. }) | (Payment { cw, .. }, Delivery { w }) => w == cw,
            _ => false,
        }
    }

    /// A New-Order and a Payment of one district write one row, in different columns.
    fn shares_district(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::NewOrder { w, d, .. }, Self::Payment { w: w2, d: d2, .. })
            | (Self::Payment { w, d, .. }, Self::NewOrder { w: w2, d: d2, .. }) => w == w2 && d == d2,
            _ => false,
        }
    }

    /// What the procedure writes, statement by statement, where the orders and customers that it looks up are these.
    fn writes(&self, order: i64, by_name: i64) -> Vec<Written> {
        match self {
            Self::NewOrder { w, d, items } => {
                let key = |prefix: &str| {
                    vec![
                        (format!("{prefix}_w_id"), *w),
                        (format!("{prefix}_d_id"), *d),
                        (format!("{prefix}_o_id"), order),
                    ]
                };
                let mut orders = key("o");
                "o_id".clone_into(&mut orders[2].0);
                let mut all = vec![
                    written("district", &[("d_w_id", *w), ("d_id", *d)], &["d_next_o_id"]),
                    Written { table: "orders", row: orders, columns: Vec::new() },
                    Written { table: "new_order", row: key("no"), columns: Vec::new() },
                ];
                for (at, (supply, item)) in items.iter().enumerate() {
                    let columns = ["s_quantity", "s_ytd", "s_order_cnt", "s_remote_cnt"];
                    all.push(written("stock", &[("s_w_id", *supply), ("s_i_id", *item)], &columns));
                    let mut line = key("ol");
                    line.push(("ol_number".to_owned(), i64::try_from(at).unwrap() + 1));
                    line.push(("ol_i_id".to_owned(), *item));
                    line.push(("ol_supply_w_id".to_owned(), *supply));
                    all.push(Written { table: "order_line", row: line, columns: Vec::new() });
                }
                all
            }
            Self::Payment { w, d, cw, cd, customer } => {
                let c = customer.unwrap_or(by_name);
                let key = [("c_w_id", *cw), ("c_d_id", *cd), ("c_id", c)];
                vec![
                    written("warehouse", &[("w_id", *w)], &["w_ytd"]),
                    written("district", &[("d_w_id", *w), ("d_id", *d)], &["d_ytd"]),
                    written("customer", &key, &["c_balance", "c_ytd_payment", "c_payment_cnt", "c_data"]),
                    written(
                        "history",
                        &[("h_w_id", *w), ("h_d_id", *d), ("h_c_id", c), ("h_c_w_id", *cw)],
                        &[],
                    ),
                ]
            }
            Self::Delivery { w } => (1..=10)
                .flat_map(|d| {
                    [
                        written("new_order", &[("no_w_id", *w), ("no_d_id", d), ("no_o_id", order)], &[]),
                        written(
                            "orders",
                            &[("o_w_id", *w), ("o_d_id", d), ("o_id", order)],
                            &["o_carrier_id"],
                        ),
                        written(
                            "order_line",
                            &[("ol_w_id", *w), ("ol_d_id", d), ("ol_o_id", order), ("ol_number", 2)],
                            &["ol_delivery_d"],
                        ),
                        written(
                            "customer",
                            &[("c_w_id", *w), ("c_d_id", d), ("c_id", by_name)],
                            &["c_balance", "c_delivery_cnt"],
                        ),
                    ]
                })
                .collect(),
            Self::OrderStatus { .. } | Self::StockLevel { .. } => Vec::new(),
        }
    }
}

#[test]
fn table_ii_follows_from_the_procedures() {
    let catalogue = schema::catalogue(TPCC);
    let all: Vec<(Call, Accesses)> =
        Call::all().into_iter().map(|call| (call.clone(), touched(&call.text(), &catalogue))).collect();
    let mut conflicts = [0_usize; 2];
    for (one, mine) in &all {
        assert_eq!(mine.unbounded, None, "{}", one.text());
        for (other, theirs) in &all {
            let (columns, rows) = (View::Columns, View::Rows);
            let pair = || format!("{} x {}", one.text(), other.text());
            assert_eq!(overwrites(mine, theirs, columns), one.conflicts(other), "{}", pair());
            let by_rows = one.conflicts(other) || one.shares_district(other);
            assert_eq!(overwrites(mine, theirs, rows), by_rows, "by rows: {}", pair());
            conflicts[0] += usize::from(one.conflicts(other));
            conflicts[1] += usize::from(by_rows);
        }
    }
    assert!(conflicts[0] > 1_000 && conflicts[1] > conflicts[0], "{conflicts:?} of {}", all.len().pow(2));
}

#[test]
fn every_row_that_the_five_write_is_known_before() {
    let catalogue = schema::catalogue(TPCC);
    for call in Call::all() {
        let touched = touched(&call.text(), &catalogue);
        for (order, customer) in [(1, 1), (3_001, 2), (7, 300)] {
            for written in call.writes(order, customer) {
                assert!(covers(&touched, &written, &catalogue), "{}: {written:?}", call.text());
            }
        }
    }
}

#[test]
fn parameters_tell_as_constants_do() {
    let catalogue = schema::catalogue(TPCC);
    let text = "CALL payment($1, $2, $3, $4, $5, $6, $7, $8)";
    let value = |text: &'static str| Parameter { type_oid: 0, value: Some(text.as_bytes()), binary: false };
    let null = Parameter { type_oid: 0, value: None, binary: false };
    let parameters =
        [value("1"), value("2"), value("1"), value("2"), value("7"), null, value("5.0"), value("2026-01-01")];
    let by_parameters = touched_with(text, &parameters, &catalogue);
    let customer = |id| written("customer", &[("c_w_id", 1), ("c_d_id", 2), ("c_id", id)], &["c_balance"]);
    assert!(covers(&by_parameters, &customer(7), &catalogue));
    assert!(!covers(&by_parameters, &customer(8), &catalogue));
    let unknown = touched_with(text, &[], &catalogue);
    assert!(covers(&unknown, &customer(8), &catalogue), "nothing is known of missing values");
}

#[test]
fn calls_may_leave_the_anchor_if_functions_may() {
    let catalogue = schema::catalogue(TPCC);
    for call in Call::all() {
        let script = Analyzer::new(Limits::default()).script(call.text().as_bytes(), true).unwrap();
        let statement = &script.statements[0].statement;
        let routing = statement.routing(&catalogue);
        match call {
            Call::OrderStatus { .. } | Call::StockLevel { .. } => {
                assert!(matches!(routing.access, Access::Read(_)), "{call:?}: {:?}", routing.access);
            }
            _ => {
                assert_eq!(routing.access, Access::Anchor(Because::Update), "{call:?}");
                assert!(may_leave_anchor(statement, &routing, false, &catalogue), "{call:?}");
            }
        }
    }
}

#[test]
fn a_call_is_explained() {
    let catalogue = schema::catalogue(TPCC);
    let told =
        explain("CALL payment(3, 7, 3, 7, 5, NULL, 1.0, '2026-01-01')", true, &catalogue, true).unwrap();
    let told = told.join("\n");
    assert!(told.contains("writes      district (d_ytd): d_w_id = 3 and d_id = 7"), "{told}");
    assert!(told.contains("runs        at any replica: where what it conflicts with runs"), "{told}");
    assert!(told.contains("capture     rows of history, by its trigger"), "{told}");
}
