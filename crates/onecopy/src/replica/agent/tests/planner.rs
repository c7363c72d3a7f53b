//! A client's planner settings do not reach Onecopy's own functions.

use super::Pair;

/// Planner settings of a client that would slow down the queries of our functions, with the functions that they reach.
const REACHED_SQL: &str = "\
    SELECT p.oid::regprocedure, s.name FROM pg_proc p, pg_settings s \
    WHERE p.oid IN ('onecopy.install()'::regprocedure, 'onecopy.residue(boolean)'::regprocedure, \
                    'onecopy.definition(oid)'::regprocedure, 'onecopy_capture.guard()'::regprocedure) \
    AND (s.name IN ('jit', 'enable_seqscan', 'plan_cache_mode', 'random_page_cost', 'join_collapse_limit') \
         OR s.name LIKE 'enable\\_%' AND s.context = 'user' AND s.category LIKE 'Query Tuning%') \
    AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS fixed WHERE fixed LIKE s.name || '=%')";

#[tokio::test]
async fn functions_of_ours_are_planned_as_by_default() {
    let mut pair = Pair::start().await;
    let connection = &mut pair.home.connection;
    let reached = connection.simple(REACHED_SQL).await.unwrap();
    assert!(reached.is_empty(), "{reached:?}");
    let jit = "SELECT count(*) FROM pg_proc WHERE oid = 'onecopy.install()'::regprocedure AND 'jit=off' = ANY (proconfig)";
    assert_eq!(connection.simple(jit).await.unwrap()[0][0].as_deref(), Some("1"));
}
