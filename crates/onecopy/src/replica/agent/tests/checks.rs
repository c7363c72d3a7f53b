//! CHECKs that depend on more than the row: rows that passed at home are applied, and later the CHECKs are in force
//! again.

use std::sync::Arc;

use super::Pair;

/// This condition holds at home alone, as one on the time holds only for a while.
const HOLDS: &str = "current_setting('test.holds', true) IS NOT DISTINCT FROM 'on'";

#[tokio::test]
async fn rows_are_applied_where_their_checks_hold_no_more() {
    let mut pair = Pair::start().await;
    for sql in [
        &format!("CREATE TABLE bare (id int PRIMARY KEY, CHECK ({HOLDS}), CHECK (id > 0))"),
        &format!("CREATE TABLE root (id int PRIMARY KEY, CHECK ({HOLDS})) PARTITION BY RANGE (id)"),
        "CREATE TABLE leaf PARTITION OF root FOR VALUES FROM (0) TO (100)",
        &format!("CREATE DOMAIN inner_one AS int CHECK ({HOLDS})"),
        "CREATE DOMAIN \"Outer\" AS inner_one CHECK (VALUE < 100)",
        "CREATE TABLE held (id int PRIMARY KEY, d \"Outer\")",
        "CREATE TABLE other (id int PRIMARY KEY)",
    ] {
        pair.ddl(sql).await;
    }
    pair.home.connection.simple("SET test.holds = 'on'").await.unwrap();
    // Each by itself, and all in one batch.
    let writes = [
        "INSERT INTO bare VALUES (1)",
        "INSERT INTO root VALUES (1)",
        "INSERT INTO held VALUES (1, 1)",
        "INSERT INTO other VALUES (1)",
        "UPDATE bare SET id = id + 1; UPDATE root SET id = id + 1; UPDATE held SET id = id + 1, d = d + 1",
    ];
    for sql in writes {
        let record = pair.home.write(sql).await;
        pair.second.must_apply(vec![record]).await;
        pair.assert_identical().await;
    }
    pair.home.connection.simple("SET test.holds = 'on'").await.unwrap();
    let mut records = vec![pair.home.write("DELETE FROM bare; DELETE FROM root; DELETE FROM held").await];
    records.push(pair.home.write("DELETE FROM other").await);
    for sql in writes {
        records.push(pair.home.write(sql).await);
    }
    pair.second.must_apply(records).await;
    pair.assert_identical().await;
    let mut both = pair.servers[1].connect("").await;
    let counted = "SELECT relname, relchecks FROM pg_class WHERE relchecks > 0 ORDER BY 1";
    let here = both.simple(counted).await.unwrap();
    assert_eq!(here, pair.home.connection.simple(counted).await.unwrap(), "a CHECK was forgotten");
    let options = "-c session_replication_role=replica -c onecopy.via=";
    let via = crate::capture::apply_token(super::CLUSTER);
    let mut stranger = pair.servers[1].connect(&format!("{options}{via}")).await;
    for sql in
        ["INSERT INTO bare VALUES (9)", "INSERT INTO leaf VALUES (9)", "INSERT INTO held VALUES (9, 9)"]
    {
        let error = stranger.simple(sql).await.expect_err(sql);
        assert_eq!(error.sqlstate(), Some(&b"23514"[..]), "{sql} passes: a CHECK was left out for good");
    }
}

#[tokio::test]
async fn a_check_on_more_than_the_row_is_not_held_against_rows_that_are_there() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE DOMAIN soon AS timestamptz").await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY, e timestamptz, s soon, o text CHECK (o <> ''))").await;
    pair.ddl("CREATE FUNCTION elsewhere(int) RETURNS boolean STABLE LANGUAGE sql AS 'SELECT true'").await;
    // The table is still empty.
    pair.ddl("ALTER TABLE t ADD CONSTRAINT early CHECK (e > now())").await;
    let record = pair.home.write("INSERT INTO t VALUES (1, '2200-01-01')").await;
    pair.second.must_apply(vec![Arc::clone(&record)]).await;
    pair.home.set_ddl().await;
    for sql in [
        "ALTER TABLE t ADD CHECK (e > now())",
        "ALTER TABLE t ADD CHECK (e > CURRENT_TIMESTAMP)",
        "ALTER TABLE t ADD COLUMN f date CHECK (f > CURRENT_DATE)",
        "ALTER TABLE t ADD CHECK (random() >= 0)",
        "ALTER TABLE t ADD CHECK (age(e) < '1 day')",
        "ALTER TABLE t ADD CHECK (current_setting('test.holds', true) IS NULL)",
        "ALTER TABLE t ADD CHECK (elsewhere(id))",
        "ALTER TABLE t ADD CONSTRAINT late CHECK (e > now()) NOT VALID; ALTER TABLE t VALIDATE CONSTRAINT late",
        "BEGIN; SAVEPOINT a; ALTER TABLE t ADD CHECK (e > now())",
        "ALTER DOMAIN soon ADD CHECK (VALUE > now())",
    ] {
        assert_eq!(pair.home.refused(sql).await, "0A000", "{sql}");
        pair.home.connection.simple("ROLLBACK").await.unwrap();
    }
    for sql in [
        "ALTER TABLE t ADD CHECK (id > 0)",
        // These depend on settings, which come with the statement.
        "ALTER TABLE t ADD CHECK (e::date > '2000-01-01')",
        "ALTER TABLE t ADD CHECK (length(id::text) < 9 AND id || o <> '' AND current_user <> 'joe')",
        "ALTER TABLE t ADD CHECK (e > '2000-01-01 00:00:00+00')",
        "ALTER TABLE t ADD CHECK (e > now()) NOT VALID",
        "ALTER DOMAIN soon ADD CHECK (VALUE > now()) NOT VALID",
        "ALTER TABLE t ALTER COLUMN id TYPE bigint",
        "CREATE TABLE u (id int PRIMARY KEY, e timestamptz CHECK (e > now()))",
    ] {
        pair.ddl(sql).await;
    }
    pair.assert_identical().await;
}
