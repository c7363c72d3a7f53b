//! What is known of a statement only when it has run, and the client has seen some of it.

use crate::cluster::script::{ask, within};
use crate::cluster::{Cluster, run, value};
use crate::scenarios::TABLES;
use crate::{at, waits};

/// More than is held back from the client until the statement has ended.
const SHOWN: &str =
    "insert into q select n, 0 from generate_series(1001, 3000) n returning k, repeat('x', 1000)";

/// What nobody could foresee is not run again when the client has had rows of it: then it is waited for before COMMIT, or
/// whoever has asked for it before would lose it.
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

/// What nobody can bound overlaps with all that others write, but only from when it runs: at READ COMMITTED what came
/// earlier in the transaction is no reason to lose. The same for schema changes.
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
