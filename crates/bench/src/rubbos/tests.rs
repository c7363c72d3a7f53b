//! RUBBoS on a real server: the population, every page that sends something, and that broken rules are found.

use testbed::interrupt::Interrupt;

use super::{Rubbos, tables};
use crate::drive::tests::{Server, course, run_until_seen, run_well};
use crate::judge;
use crate::load::{open, populate, runtime};

const SMALL: Rubbos = Rubbos { stories: 20, is_browsing: false };

#[test]
fn every_page_runs_and_the_rules_hold() {
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        // Among eleven are two authors.
        let pages = tables::USER.iter().map(|(page, _)| *page).collect();
        let entered = vec!["users", "stories", "submissions", "comments", "moderations"];
        run_until_seen(&SMALL, &endpoints, &course(11, 3_000), (pages, entered)).await;
        run_well(&Rubbos { is_browsing: true, ..SMALL }, &endpoints, &course(4, 600), false).await;
    });
}

#[test]
fn the_population_has_its_proportions_and_broken_rules_are_found() {
    let breaks = [
        ("a comment does not claim", "UPDATE comments SET childs = 1000 WHERE id = 7"),
        ("an old comment does not claim", "UPDATE old_comments SET childs = 1000 WHERE id = 7"),
        ("written by users", "UPDATE stories SET writer = 0 WHERE id = 7"),
        ("are on stories", "UPDATE comments SET story_id = 0 WHERE id = 7"),
    ];
    let server = Server::start();
    runtime().unwrap().block_on(async {
        let endpoints = server.endpoints();
        populate(&SMALL, &endpoints.main, 2, &Interrupt::default(), &|_| {}).await.unwrap();
        let client = open(&endpoints.main).await.unwrap();
        let of = async |table: &str| -> i64 {
            client.query_one(&format!("SELECT count(*) FROM {table}"), &[]).await.unwrap().get(0)
        };
        assert_eq!((of("users").await, of("stories").await, of("old_stories").await), (650, 20, 480));
        assert_eq!((of("categories").await, of("users WHERE access = 1").await), (85, 50));
        let (new, old) = (of("comments").await, of("old_comments").await);
        assert!((200..=600).contains(&new) && (8_000..=11_500).contains(&old), "{new} {old}");
        for (rule, sql) in breaks {
            client.batch_execute("BEGIN").await.unwrap();
            assert_eq!(client.execute(sql, &[]).await.unwrap(), 1, "{sql}");
            let broken = judge::broken(&client, &SMALL).await.unwrap();
            assert!(broken.iter().any(|text| text.contains(rule)), "{sql}: {broken:?}");
            client.batch_execute("ROLLBACK").await.unwrap();
        }
    });
}
