//! TPC-C on a real server at a small scale: the population, every transaction, and that each condition can fail.

use sim::dice::Dice;
use testbed::refusal::Refusal;

use super::{DISTRICTS, Form, Kind, Mix, Scale, Tpcc};
use crate::drive::tests::{Server, course, run_until_seen, run_well};
use crate::drive::{Course, Isolation, Session, Workload};
use crate::judge;
use crate::load::{open, populate, runtime};

const SMALL: Tpcc = Tpcc {
    scale: Scale { warehouses: 2, items: 200, customers: 30 },
    form: Form::Statements,
    mix: Mix::Specified,
};
const CALLS: Tpcc = Tpcc { form: Form::Calls, ..SMALL };

#[test]
fn every_transaction_runs_and_the_conditions_hold() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        let kinds = vec!["Delivery", "NewOrder", "OrderStatus", "Payment", "StockLevel"];
        run_until_seen(&SMALL, &endpoints, &course(8, 1_500), (kinds, Vec::new())).await;
        for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
            let course = Course { isolation, seed: 8, ..course(8, 1_000) };
            run_well(&SMALL, &endpoints, &course, false).await;
        }
    });
}

/// More runs than it takes until transactions conflict, however slow the machine is.
const SEEDS_MAX: u64 = 60;

#[test]
fn every_call_runs_and_the_conditions_hold() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        let kinds = vec!["Delivery", "NewOrder", "OrderStatus", "Payment", "StockLevel"];
        let entered = vec!["orders", "payments", "deliveries"];
        run_until_seen(&CALLS, &endpoints, &course(8, 1_500), (kinds, entered)).await;
        for isolation in [Isolation::RepeatableRead, Isolation::Serializable] {
            // A slow machine needs longer until two of the eight clients have met in one of the two warehouses.
            let mut seed = 8;
            loop {
                let course = Course { seed, isolation, ..course(8, 1_000) };
                if run_well(&CALLS, &endpoints, &course, false).await.tally.conflicts() > 0 {
                    break;
                }
                seed += 1;
                assert!(seed < SEEDS_MAX, "no transaction was told to run again at {isolation:?}");
            }
        }
    });
}

/// Everything in the tables but the times.
async fn contents(client: &tokio_postgres::Client) -> Vec<String> {
    const TABLES: [(&str, &str); 8] = [
        ("warehouse", "*"),
        ("district", "*"),
        ("customer", "*"),
        ("stock", "*"),
        ("new_order", "*"),
        ("history", "h_c_id, h_c_d_id, h_c_w_id, h_d_id, h_w_id, h_amount, h_data"),
        ("orders", "o_w_id, o_d_id, o_id, o_c_id, o_carrier_id, o_ol_cnt, o_all_local"),
        (
            "order_line",
            "ol_w_id, ol_d_id, ol_o_id, ol_number, ol_i_id, ol_supply_w_id, ol_delivery_d IS NULL, ol_quantity,
             ol_amount, ol_dist_info",
        ),
    ];
    let mut all = Vec::new();
    for (table, columns) in TABLES {
        let sql = format!("SELECT x::text FROM (SELECT {columns} FROM {table}) AS x ORDER BY 1");
        all.extend(
            client
                .query(&sql, &[])
                .await
                .unwrap()
                .iter()
                .map(|row| format!("{table} {}", row.get::<_, &str>(0))),
        );
    }
    all
}

/// Two more customers for each last name, so that the middle one is none of the ends.
const NAMESAKES: &str = "INSERT INTO customer
    SELECT c_w_id, c_d_id, c_id + 30 * n, left(md5(c_first || n), 12), c_middle, c_last, c_street_1, c_street_2, c_city,
           c_state, c_zip, c_phone, c_since, c_credit, c_credit_lim, c_discount, 0, 0, 0, 0, c_data
    FROM customer, generate_series(1, 2) AS n";

#[test]
fn calls_do_what_the_statements_do() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let main = server.endpoints().main;
        open(&main).await.unwrap().batch_execute("CREATE DATABASE other").await.unwrap();
        let mut after = Vec::new();
        for (form, database) in [(Form::Statements, "postgres"), (Form::Calls, "other")] {
            let tpcc = Tpcc { form, ..SMALL };
            let mut endpoints = server.endpoints();
            endpoints.main.dbname(database);
            populate(&tpcc, &endpoints.main, 4, &testbed::interrupt::Interrupt::default(), &|_| {})
                .await
                .unwrap();
            let client = open(&endpoints.main).await.unwrap();
            client.batch_execute(NAMESAKES).await.unwrap();
            let mut session =
                Session::open(&endpoints, 0, Isolation::RepeatableRead, &tpcc.texts()).await.unwrap();
            let mut terminal = tpcc.actor(3, Dice::new(2));
            let mut failed = Vec::new();
            for number in 0..800 {
                let kind = terminal.draw().kind;
                // A namesake may have ordered nothing yet.
                if let Err(why) = terminal.act(&mut session).await {
                    assert!(matches!(why, Refusal::Told(_)) && kind == "OrderStatus", "{kind}: {why}");
                    failed.push(number);
                }
            }
            assert!(session.tries.undone > 0, "{form:?} names no unknown item");
            assert_eq!(session.tries.retries, 0);
            let told = (session.ledger.clone(), session.tries, failed);
            after.push((told, contents(&client).await));
            assert_eq!(judge::broken(&client, &tpcc).await.unwrap(), Vec::<String>::new());
        }
        let (statements, calls) = (&after[0], &after[1]);
        assert_eq!(statements.0, calls.0);
        let differs = statements.1.iter().zip(&calls.1).find(|(one, other)| one != other);
        assert_eq!(differs, None);
        assert_eq!(statements.1.len(), calls.1.len());
    });
}

#[test]
fn the_population_has_the_cardinalities_of_the_specification() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        let scale = Scale { warehouses: 1, items: 1_000, customers: 100 };
        let small = Tpcc { scale, form: Form::Statements, mix: Mix::Specified };
        populate(&small, &endpoints.main, 3, &testbed::interrupt::Interrupt::default(), &|_| {})
            .await
            .unwrap();
        let client = open(&endpoints.main).await.unwrap();
        let count = async |sql: &str| -> i64 { client.query_one(sql, &[]).await.unwrap().get(0) };
        let of = async |table: &str| count(&format!("SELECT count(*) FROM {table}")).await;
        assert_eq!(of("district").await, i64::from(DISTRICTS));
        assert_eq!((of("item").await, of("stock").await), (1_000, 1_000));
        assert_eq!((of("customer").await, of("history").await, of("orders").await), (1_000, 1_000, 1_000));
        // Three in ten orders are new, which is condition 11 as the specification has it.
        assert_eq!(of("new_order").await, 300);
        assert_eq!(count("SELECT count(DISTINCT (o_d_id, o_c_id)) FROM orders").await, 1_000);
        let lines = of("order_line").await;
        assert!((9_300..=10_700).contains(&lines), "{lines}");
        let bad = of("customer WHERE c_credit = 'BC'").await;
        assert!((60..=140).contains(&bad), "{bad}");
        let original = of("stock WHERE s_data LIKE '%ORIGINAL%'").await;
        assert!((60..=140).contains(&original), "{original}");
        assert_eq!(count("SELECT sum(w_ytd)::bigint FROM warehouse").await, 10_000);
        assert_eq!(of("order_line WHERE (ol_delivery_d IS NULL) = (ol_amount = 0)").await, 0);
    });
}

#[test]
fn each_condition_finds_what_breaks_it() {
    let breaks = [
        "UPDATE warehouse SET w_ytd = w_ytd + 1 WHERE w_id = 1",
        "UPDATE district SET d_next_o_id = d_next_o_id + 1 WHERE (d_w_id, d_id) = (1, 2)",
        "DELETE FROM new_order WHERE (no_w_id, no_d_id, no_o_id) = (1, 1, 25)",
        "DELETE FROM order_line WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (2, 3, 4, 1)",
        "UPDATE orders SET o_carrier_id = 1 WHERE (o_w_id, o_d_id, o_id) = (1, 1, 30)",
        "UPDATE orders SET o_ol_cnt = o_ol_cnt + 1 WHERE (o_w_id, o_d_id, o_id) = (1, 1, 1)",
        "UPDATE order_line SET ol_delivery_d = NULL WHERE (ol_w_id, ol_d_id, ol_o_id, ol_number) = (1, 1, 1, 1)",
        "DELETE FROM history WHERE (h_w_id, h_d_id, h_c_id) = (1, 1, 1)",
        "UPDATE district SET d_ytd = d_ytd + 1 WHERE (d_w_id, d_id) = (1, 2)",
        "UPDATE customer SET c_balance = c_balance + 1 WHERE (c_w_id, c_d_id, c_id) = (1, 2, 3)",
        "UPDATE orders SET o_carrier_id = NULL WHERE (o_w_id, o_d_id, o_id) = (1, 1, 1)",
        "UPDATE customer SET c_ytd_payment = 0 WHERE (c_w_id, c_d_id, c_id) = (1, 2, 3)",
    ];
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        populate(&SMALL, &endpoints.main, 1, &testbed::interrupt::Interrupt::default(), &|_| {})
            .await
            .unwrap();
        let client = open(&endpoints.main).await.unwrap();
        for (number, sql) in (1..).zip(breaks) {
            client.batch_execute("BEGIN").await.unwrap();
            assert_eq!(client.execute(sql, &[]).await.unwrap(), 1, "{sql}");
            let broken = judge::broken(&client, &SMALL).await.unwrap();
            let start = format!("{number}: ");
            assert!(broken.iter().any(|rule| rule.starts_with(&start)), "{sql}: {broken:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
        assert!(judge::broken(&client, &SMALL).await.unwrap().is_empty());
    });
}

#[test]
fn mixes_have_their_shares() {
    assert!(SMALL.limit("StockLevel") > SMALL.limit("Payment"));
    for (mix, shares) in [
        (Mix::Specified, [45, 43, 4, 4, 4]),
        (Mix::NoDelivery, [45, 43, 6, 0, 6]),
        (Mix::Reads, [0, 0, 50, 0, 50]),
    ] {
        let mut dice = Dice::new(5);
        let mut counts = [0_i32; 5];
        for _ in 0..100_000 {
            counts[Kind::draw(&mut dice, mix) as usize] += 1;
        }
        for (count, percent) in counts.iter().zip(shares) {
            assert!((count - percent * 1_000).abs() < 700, "{mix:?}: {counts:?}");
        }
    }
}
