//! Work that a transaction has rolled back to a savepoint does not count against its later work.

use crate::at;
use crate::cluster::{Cluster, run};
use crate::scenarios::TABLES;

/// Rows that a transaction writes after ROLLBACK TO belong to the statements after it, not to those before. Otherwise each row
/// that another home writes in between would cost the transaction 40001.
pub(crate) async fn later_rows_are_later(cluster: &Cluster) {
    let many = (1_001..1_011).map(|k| format!("({k}, 0)")).collect::<Vec<_>>().join(", ");
    for home in [1, 2] {
        run(&cluster.client().await, TABLES.before).await;
        let (a, b) = (at(cluster, home).await, at(cluster, 3).await);
        run(&a, "begin; update q set v = v + 1 where k = 2; savepoint s").await;
        run(&a, &format!("insert into q values {many}")).await;
        run(&a, "update q set v = v + 1 where k = 3; rollback to s").await;
        run(&b, "update q set v = v + 1 where k = 1").await;
        run(&a, "update q set v = v + 1 where k = 1; commit").await;
        let rows = cluster.everywhere("select k, v from q where k < 4 or k > 1000 order by k").await;
        assert_eq!(rows, [["1", "12"], ["2", "21"], ["3", "30"]]);
    }
}

/// The rollback of a function's exception block, before ROLLBACK TO, does not remove rows that are written afterwards.
pub(crate) async fn later_rows_are_kept(cluster: &Cluster) {
    run(
        &cluster.client().await,
        "create function fills(k int) returns int language plpgsql as $$ begin
             insert into q select n, 0 from generate_series(k, k + 9) n; return 0;
         exception when unique_violation then return 1; end $$",
    )
    .await;
    for home in [1, 2] {
        run(&cluster.client().await, TABLES.before).await;
        let a = at(cluster, home).await;
        run(&a, "begin; select fills(200); update q set v = v + 1 where k = 2; savepoint s").await;
        run(&a, "select fills(100); rollback to s; insert into q values (50, 1), (51, 1), (52, 1); commit")
            .await;
        let rows = cluster.everywhere("select count(*), sum(v) from q where k between 50 and 199").await;
        assert_eq!(rows, [["3", "3"]], "home {home}");
        assert_eq!(cluster.everywhere("select count(*) from q where k > 199").await, [["10"]]);
    }
    run(&cluster.client().await, "drop function fills").await;
}
