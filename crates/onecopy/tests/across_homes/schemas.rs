//! Schema changes wait for transactions at other homes, and a statement that has waited for one knows of it.

use std::time::Instant;

use wire::backend::tag;
use wire::encode;

use crate::cluster::raw::Raw;
use crate::cluster::script::{ask, sqlstate, within};
use crate::cluster::{Cluster, run, value};
use crate::scenarios::TABLES;
use crate::{PATIENCE, at, holder, waits};

/// Updates of `q` send notifications, which only the server of the listeners can deliver.
const TELLS: &str = "create trigger tells after update on q for each row execute function tells()";
const FUNCTION: &str = "create function tells() returns trigger language plpgsql as \
    $$ begin perform pg_notify('news', new.v::text); return new; end $$";

/// A session that listens, at the anchor.
struct Listener(Raw);

impl Listener {
    fn at(cluster: &Cluster) -> Self {
        let mut raw = Raw::connect(cluster.port);
        raw.exchange(|out| encode::query(out, b"listen news"));
        Self(raw)
    }

    /// Waits until it has heard that.
    fn hears(&mut self, news: &str) {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let told = self.0.exchange(|out| encode::query(out, b"select 1"));
            let is_it = |(tag, body): &(u8, Vec<u8>)| {
                *tag == tag::NOTIFICATION_RESPONSE && body.ends_with(format!("{news}\0").as_bytes())
            };
            if told.iter().any(is_it) {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "the listener does not hear of {news}: the statement ran elsewhere"
            );
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// A statement that has waited for a schema change is analysed again. With the new trigger the anchor has to run it: as a
/// statement of its own, as the first one of a transaction, and in a transaction that has begun elsewhere.
pub(crate) async fn are_known_to_statements_that_waited(cluster: &Cluster) {
    run(&cluster.client().await, TABLES.before).await;
    run(&cluster.client().await, FUNCTION).await;
    let mut listener = Listener::at(cluster);
    for (n, before, after) in
        [(1, "", ""), (2, "begin", "commit"), (3, "begin; select c from lines where a = 1", "commit")]
    {
        let (changer, writer) = (at(cluster, 1).await, at(cluster, 2).await);
        run(&writer, before).await;
        run(&changer, &format!("begin; {TELLS}")).await;
        let waiting = waits(&writer, &format!("update q set v = {n}77 where k = {n}")).await;
        run(&changer, "commit").await;
        assert_eq!(within(waiting).await, "done 1", "after `{before}`");
        run(&writer, after).await;
        listener.hears(&format!("{n}77"));
        run(&changer, "drop trigger tells on q").await;
    }
    run(&cluster.client().await, "drop function tells").await;
}

/// A schema change waits for transactions at all homes, and they for it.
pub(crate) async fn wait_and_are_waited_for(cluster: &Cluster) {
    let a = holder(cluster, 2).await;
    let b = at(cluster, 3).await;
    let waiting = waits(&b, "alter table q add column w int default 7").await;
    run(&a, "update q set v = v + 1 where k = 2; commit").await;
    within(waiting).await;
    assert_eq!(value(&a, "select v + w from q where k = 2").await, "28");
    run(&b, "begin; alter table q drop column w").await;
    let waiting = waits(&a, "update q set v = 0 where k = 3").await;
    run(&b, "commit").await;
    assert_eq!(within(waiting).await, "done 1");
    let by_w = within(ask(&a, "update q set w = 0".to_owned())).await;
    assert_eq!(sqlstate(&by_w), Some("42703"), "{by_w}");
    run(&a, "begin; insert into q values (6, 60)").await;
    let waiting = waits(&b, "create unique index concurrently by_v on q (v)").await;
    run(&a, "commit").await;
    within(waiting).await;
    let doubled = within(ask(&a, "insert into q values (7, 60)".to_owned())).await;
    assert_eq!(sqlstate(&doubled), Some("23505"), "{doubled}");
    run(&b, "drop index by_v").await;
}
