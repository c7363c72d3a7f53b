//! Functions of users that fail where rows are applied, with errors that the server raises, too, when it cannot go on
//! for a while.

use super::{AgentEvent, DivergenceCause, Pair};

/// Errors that are raised only at the other replica, in the body of a function that an index calls.
const RAISED: [&str; 6] = ["40001", "40P01", "53100", "55P03", "57014", "58030"];

#[tokio::test]
async fn a_function_that_always_fails_is_not_tried_for_ever() {
    let mut pair = Pair::start().await;
    pair.ddl(
        "CREATE FUNCTION fails(state text) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('session_replication_role') = 'replica' THEN RAISE EXCEPTION 'not now' USING ERRCODE = state; END IF; \
         RETURN state; END $$",
    )
    .await;
    pair.ddl("CREATE TABLE t (state text PRIMARY KEY); CREATE INDEX ON t (fails(state))").await;
    pair.ddl("CREATE TABLE other (id int PRIMARY KEY)").await;
    for (id, state) in RAISED.iter().enumerate() {
        let other = pair.home.write(&format!("INSERT INTO other VALUES ({id})")).await;
        let record = pair.home.write(&format!("INSERT INTO t VALUES ('{state}')")).await;
        let version = record.header().last;
        match pair.second.apply(vec![other, record]).await {
            AgentEvent::Diverged { version: found, cause, reason } => {
                assert_eq!((found, cause), (version, DivergenceCause::Record), "{reason}");
                assert!(reason.contains(state), "{state}: {reason}");
            }
            unexpected => panic!("{state}: {unexpected:?}"),
        }
    }
}

#[tokio::test]
async fn a_function_that_fails_once_costs_nothing() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE SEQUENCE tries").await;
    // Values that a sequence has given out stay given out.
    pair.ddl(
        "CREATE FUNCTION fails(id int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN \
         IF current_setting('session_replication_role') = 'replica' AND nextval('public.tries') % 2 = 1 \
         THEN RAISE EXCEPTION 'not now' USING ERRCODE = '40001'; END IF; RETURN id; END $$",
    )
    .await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY); CREATE INDEX ON t (fails(id))").await;
    let record = pair.home.write("INSERT INTO t VALUES (1)").await;
    pair.second.must_apply(vec![record]).await;
    pair.assert_identical().await;
}
