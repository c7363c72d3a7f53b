//! Pipelines of statements with one Sync.

use crate::cluster::raw::Raw;
use crate::cluster::{Cluster, run};
use crate::scenarios::TABLES;
use crate::{admin_of, at, until_waiting};

const ADDS: &str = "update q set v = v + 1 where k = 1";
/// Onecopy cannot predict its keys.
const FILLS: &str = "insert into q select n, 0 from generate_series(3000, 3009) n";

fn at_home(cluster: &Cluster, home: usize) -> Raw {
    let mut client = Raw::connect(cluster.port);
    assert_eq!(client.pipeline(&[&format!("set onecopy.home = 'replica-{home}'")]), ["SET"]);
    client
}

/// The unpredictable rows of a pipeline wait only for transactions with the same rows. This holds also if the session itself
/// answers one of the statements, so that the ones before it run without the ones after it.
pub(crate) async fn wait_for_their_own_rows(cluster: &Cluster) {
    for together in [
        &["begin", ADDS, FILLS, ADDS][..],
        &["begin", ADDS, FILLS, "commit"][..],
        &["begin", FILLS, "savepoint s", ADDS, "rollback to s", "commit"][..],
    ] {
        run(&cluster.client().await, TABLES.before).await;
        let holder = at(cluster, 3).await;
        run(&holder, "begin; insert into q values (2000, 0)").await;
        let mut client = at_home(cluster, 2);
        let told = client.pipeline(together);
        let tags = together.iter().map(|sql| match sql.split_whitespace().next() {
            Some("insert") => "INSERT 0 10".to_owned(),
            Some("update") => "UPDATE 1".to_owned(),
            word => word.unwrap_or_default().to_uppercase(),
        });
        assert_eq!(told, tags.collect::<Vec<_>>());
        run(&holder, "commit").await;
    }
}

/// They are undone together and run again, unseen, when one of them meets a row of another home.
pub(crate) async fn are_run_again_together(cluster: &Cluster) {
    for (together, adds) in [
        (&["begin", ADDS, FILLS, ADDS][..], 2),
        (&["begin", ADDS, FILLS, "savepoint s", ADDS, "rollback to s"][..], 1),
    ] {
        run(&cluster.client().await, TABLES.before).await;
        let holder = at(cluster, 3).await;
        run(&holder, "begin; insert into q values (3005, 0)").await;
        let mut client = at_home(cluster, 2);
        let sent =
            tokio::task::spawn_blocking(move || (client.pipeline(together), client.pipeline(&["commit"])));
        until_waiting(&admin_of(cluster).await, 1).await;
        run(&holder, "rollback").await;
        let (told, committed) = sent.await.unwrap();
        assert_eq!((told.len(), committed), (together.len(), vec!["COMMIT".to_owned()]), "{told:?}");
        let rows = cluster
            .everywhere("select sum(v) filter (where k = 1), count(*) from q where k = 1 or k > 999")
            .await;
        assert_eq!(rows, [[(10 + adds).to_string(), "11".to_owned()]], "{told:?}");
    }
}
