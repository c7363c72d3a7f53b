//! A schema change that others have waited for is known to them when they run.

use std::time::Instant;

use wire::backend::tag;
use wire::encode;

use crate::cluster::raw::Raw;
use crate::cluster::script::within;
use crate::cluster::{Cluster, run};
use crate::scenarios::TABLES;
use crate::{PATIENCE, at, waits};

/// From now on rows of `q` tell what only the server of the listeners can tell.
const TELLS: &str = "create trigger tells after update on q for each row execute function tells()";
const FUNCTION: &str = "create function tells() returns trigger language plpgsql as \
    $$ begin perform pg_notify('news', new.v::text); return new; end $$";

/// Somebody listens, at the anchor.
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
            assert!(Instant::now() < deadline, "nobody hears of {news}: it ran elsewhere");
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// What was concluded of a statement before it waited for a schema change is concluded again: with the trigger it is one that
/// the anchor has to run, by itself, as the first one of a transaction, and in one that is elsewhere already.
pub(crate) async fn are_known_to_who_waited(cluster: &Cluster) {
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
