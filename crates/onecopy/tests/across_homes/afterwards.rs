//! Statements whose rows Onecopy learns only by running them, after the client has received some of the rows.

use crate::cluster::script::{ask, within};
use crate::cluster::{Cluster, run, value};
use crate::scenarios::TABLES;
use crate::{at, waits};

/// More than is held back from the client until the statement has ended.
const SHOWN: &str =
    "insert into q select n, 0 from generate_series(1001, 3000) n returning k, repeat('x', 1000)";

/// Onecopy cannot re-run a statement whose rows the client has received. The transaction then waits before its COMMIT, so that
/// a transaction that reserved the same rows earlier does not lose.
pub(crate) async fn rows_are_shown_once(cluster: &Cluster) {
    for is_alone in [false, true] {
        run(&cluster.client().await, TABLES.before).await;
        let (a, b) = (at(cluster, 2).await, at(cluster, 3).await);
        run(&b, "begin; insert into q values (2000, 0)").await;
        let shown = if is_alone {
            let waiting = waits(&a, SHOWN).await;
            run(&b, "rollback").await;
            within(waiting).await
        } else {
            run(&a, "begin").await;
            let shown = within(ask(&a, SHOWN.to_owned())).await;
            let waiting = waits(&a, "commit").await;
            run(&b, "rollback").await;
            assert_eq!(within(waiting).await, "done 0");
            shown
        };
        let told = (shown.matches(",xxx").count(), shown.ends_with("; done 2000"));
        assert_eq!(told, (2000, true), "alone: {is_alone}");
        assert_eq!(value(&b, "select count(*) from q where k > 1000").await, "2000");
    }
}

/// A statement that Onecopy cannot bound conflicts with all writes of others, but only from its own start: at READ COMMITTED
/// earlier statements of the transaction are no reason to fail. The same holds for schema changes.
pub(crate) async fn what_was_seen_is_not_lost_against(cluster: &Cluster) {
    for unbounded in
        ["do $$ begin update q set v = v + 1 where k = 1; end $$", "alter table q alter v set default 5"]
    {
        run(&cluster.client().await, TABLES.before).await;
        let (a, b) = (at(cluster, 1).await, at(cluster, 2).await);
        run(&a, "begin; update q set v = 0 where k = 2").await;
        run(&b, "update q set v = v + 7 where k = 1").await;
        run(&a, unbounded).await;
        run(&a, "commit").await;
    }
}
