//! RUBiS on a real server: the population, every page that sends something, and that broken rules are found.

use testbed::interrupt::Interrupt;

use super::{Rubis, tables};
use crate::drive::tests::{Server, course, run_until_seen, run_well};
use crate::judge;
use crate::load::{open, populate, runtime};

const SMALL: Rubis = Rubis { items: 60, is_browsing: false };

#[test]
fn every_page_runs_and_the_rules_hold() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        // PutCommentAuth is hardly ever visited.
        let pages = tables::BIDDING.iter().map(|(page, _)| *page).filter(|page| *page != "PutCommentAuth");
        let entered = vec!["users", "items", "bids", "purchases", "comments"];
        run_until_seen(&SMALL, &endpoints, &course(6, 2_000), (pages.collect(), entered)).await;
        run_well(&Rubis { is_browsing: true, ..SMALL }, &endpoints, &course(4, 600), false).await;
    });
}

#[test]
fn the_population_keeps_the_published_proportions_and_broken_rules_are_found() {
    let breaks = [
        ("as many bids", "UPDATE items SET nb_of_bids = nb_of_bids + 1 WHERE id = 7"),
        ("what others say", "UPDATE users SET rating = rating + 1 WHERE id = 7"),
        ("not there", "UPDATE items SET quantity = -1 WHERE id = 7"),
        ("has ended", "UPDATE items SET quantity = 0 WHERE id = 7"),
        ("a user's and for an item", "INSERT INTO bids VALUES (1000000, 0, 7, 1, 1, 1, now())"),
        ("from and to users", "UPDATE comments SET from_user_id = 0 WHERE id = 7"),
    ];
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        populate(&SMALL, &endpoints.main, 2, &Interrupt::default(), &|_| {}).await.unwrap();
        let client = open(&endpoints.main).await.unwrap();
        let of = async |table: &str| -> i64 {
            client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
        };
        assert_eq!((of("users").await, of("items").await, of("old_items").await), (1_800, 60, 900));
        assert_eq!((of("categories").await, of("regions").await, of("comments").await), (20, 62, 900));
        let bids = of("bids").await;
        assert!((400..=750).contains(&bids), "{bids}");
        for (rule, sql) in breaks {
            client.batch_execute("BEGIN").await.unwrap();
            assert_eq!(client.execute(sql, &[]).await.unwrap(), 1, "{sql}");
            let broken = judge::broken(&client, &SMALL).await.unwrap();
            assert!(broken.iter().any(|text| text.contains(rule)), "{sql}: {broken:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}
