//! TPC-W on a real server: the population, every interaction of every mix, and that broken rules are found.

use testbed::interrupt::Interrupt;

use super::mix::PAGES;
use super::{Mix, Scale, Tpcw};
use crate::drive::tests::{Server, course, run_until_seen, run_well};
use crate::drive::{Course, Isolation};
use crate::judge;
use crate::load::{open, populate, runtime};

const SMALL: Scale = Scale { items: 1_000, browsers: 1 };

fn shop(mix: Mix) -> Tpcw {
    Tpcw { scale: SMALL, mix }
}

#[test]
fn every_interaction_of_every_mix_runs_and_the_rules_hold() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        let pages = PAGES.iter().map(|page| page.name()).collect();
        let entered = vec!["orders", "order lines", "customers", "carts"];
        run_until_seen(&shop(Mix::Ordering), &endpoints, &course(6, 2_000), (pages, entered)).await;
        run_well(&shop(Mix::Browsing), &endpoints, &course(4, 800), false).await;
        let strict = Course { isolation: Isolation::Serializable, ..course(4, 1_000) };
        run_well(&shop(Mix::Shopping), &endpoints, &strict, false).await;
    });
}

#[test]
fn the_population_has_the_cardinalities_of_the_specification() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        populate(&shop(Mix::Shopping), &endpoints.main, 5, &Interrupt::default(), &|_| {}).await.unwrap();
        let client = open(&endpoints.main).await.unwrap();
        let of = async |table: &str| -> i64 {
            client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
        };
        assert_eq!((of("item").await, of("author").await, of("country").await), (1_000, 250, 92));
        assert_eq!((of("customer").await, of("address").await), (2_880, 5_760));
        assert_eq!((of("orders").await, of("cc_xacts").await), (2_592, 2_592));
        let lines = of("order_line").await;
        assert!((7_400..=8_150).contains(&lines), "{lines}");
        assert_eq!((of("shopping_cart").await, of("shopping_cart_line").await), (0, 0));
        // What browsers search for is there: about 10 books by 2.5 authors, and 5 titles.
        let per_name = of("item JOIN author ON a_id = i_a_id WHERE a_lname LIKE 'BABABABABABAOG%'").await;
        assert!((1..=40).contains(&per_name), "{per_name}");
        let titles = of("item WHERE i_title LIKE 'BABABABABAOGAL%'").await;
        assert!((4..=6).contains(&titles), "{titles}");
        for subject in super::random::SUBJECTS {
            let books = of(&format!("item WHERE i_subject = '{subject}'")).await;
            assert!((20..=70).contains(&books), "{subject}: {books}");
        }
        assert_eq!(of("item WHERE i_id <= 250 AND i_a_id <> i_id").await, 0);
        assert_eq!(
            of("item WHERE i_cost > i_srp OR i_avail <= i_pub_date OR i_stock NOT BETWEEN 10 AND 30").await,
            0
        );
    });
}

#[test]
fn broken_rules_are_found() {
    let breaks = [
        ("refers to customer", "UPDATE orders SET o_c_id = 0 WHERE o_id = 7"),
        ("refers to item", "UPDATE order_line SET ol_i_id = 0 WHERE (ol_o_id, ol_id) = (7, 1)"),
        ("numbered from 1", "UPDATE order_line SET ol_id = 9 WHERE (ol_o_id, ol_id) = (7, 1)"),
        ("has been paid", "DELETE FROM cc_xacts WHERE cx_o_id = 7"),
        ("8.25 percent", "UPDATE orders SET o_tax = o_tax + 0.01 WHERE o_id = 7"),
        ("five others", "UPDATE item SET i_related1 = i_related2 WHERE i_id = 7"),
        ("are of something", "INSERT INTO shopping_cart_line VALUES (1, 1, 0)"),
    ];
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        let shop = shop(Mix::Shopping);
        populate(&shop, &endpoints.main, 1, &Interrupt::default(), &|_| {}).await.unwrap();
        let client = open(&endpoints.main).await.unwrap();
        for (rule, sql) in breaks {
            client.batch_execute("BEGIN").await.unwrap();
            assert_eq!(client.execute(sql, &[]).await.unwrap(), 1, "{sql}");
            let broken = judge::broken(&client, &shop).await.unwrap();
            assert!(broken.iter().any(|text| text.contains(rule)), "{sql}: {broken:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}
