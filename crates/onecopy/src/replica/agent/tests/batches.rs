//! Batches are committed whole, with their identities, or not at all.

use std::collections::BTreeSet;

use cluster::refresh::RefreshTables;
use wire::encode::{self, Format};

use super::*;
use crate::backend::OwnConnection;
use crate::replica::agent::applied_set::AppliedSet;
use crate::replica::agent::exchange;
use crate::replica::agent::exchange::{Outcome, PipelineError, Prepared};

#[tokio::test]
async fn an_index_entry_that_fits_when_lz4_compresses_it_is_applied() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY, v text)").await;
    pair.ddl("CREATE INDEX ON t (v)").await;
    let (by_lz4, as_ever) = ("SET default_toast_compression = lz4", "RESET default_toast_compression");
    // A server may be built without lz4.
    if pair.home.connection.simple(by_lz4).await.is_err() {
        return;
    }
    // 2,630 bytes by lz4, 2,723 by pglz; an entry can have 2,704.
    let long = "SELECT string_agg(repeat(md5((g * 2)::text), 2), '') FROM generate_series(1, 72) g";
    let mut records = vec![pair.home.write("INSERT INTO t VALUES (1, 'short')").await];
    records.push(pair.home.write(&format!("INSERT INTO t VALUES (2, ({long}))")).await);
    records.push(pair.home.write("INSERT INTO t VALUES (3, 'short')").await);
    pair.home.connection.simple(as_ever).await.unwrap();
    let refused = pair.home.refused(&format!("INSERT INTO t VALUES (4, ({long}))")).await;
    assert_eq!(refused, "54000", "by pglz it is too long");
    pair.second.must_apply(records).await;
    let record = pair.home.write("INSERT INTO t VALUES (5, repeat('x', 4000))").await;
    pair.second.must_apply(vec![record]).await;
    pair.assert_identical().await;
    let mut session = pair.servers[1].connect("").await;
    let methods = "SELECT pg_column_compression(v) FROM t WHERE id IN (2, 5) ORDER BY id";
    let of = |method: &str| vec![Some(method.to_owned())];
    assert_eq!(
        session.simple(methods).await.unwrap(),
        [of("lz4"), of("pglz")],
        "the applier has its own method again"
    );
}

#[tokio::test]
async fn batches_of_any_size_leave_their_identities() {
    let mut pair = Pair::start().await;
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY, v int)").await;
    let mut written = BTreeSet::new();
    for size in [1, 2, 8, 9, 20] {
        let mut records = Vec::new();
        for _ in 0..size {
            let id = written.len();
            let record = pair.home.write(&format!("INSERT INTO t VALUES ({id}, {size})")).await;
            written.insert(record.header().identity);
            records.push(record);
        }
        pair.second.must_apply(records).await;
    }
    let mut session = pair.servers[1].own("").await;
    let applied = AppliedSet::at(&mut session, &pair.servers[1].seal()).read().await.unwrap();
    assert!(written.is_subset(&applied.into_iter().collect()));
    pair.assert_identical().await;

    // A release without proofs has used the server last. Rows that a client makes up have no proof.
    let options = format!(
        "-c session_replication_role=replica -c {}={}",
        capture::VIA_SETTING,
        capture::apply_token(CLUSTER)
    );
    let mut former = pair.servers[1].connect(&options).await;
    former.simple("ALTER TABLE onecopy.applied DROP COLUMN proof; CHECKPOINT").await.unwrap();
    for made_up in ["", "INSERT INTO onecopy.applied VALUES (9, 9, 9, 0); CHECKPOINT"] {
        let mut former = pair.servers[1].connect(&options).await;
        former.simple(made_up).await.unwrap();
        pair.servers[1].crash();
        assert!(matches!(pair.second.event().await, AgentEvent::Down { .. }));
        pair.second.up().await;
        let applied: BTreeSet<_> = pair.second.applied.iter().copied().collect();
        assert!(written.is_subset(&applied) && applied.iter().all(|identity| identity.epoch == Epoch(1)));
    }
    let mut session = pair.servers[1].connect("").await;
    assert!(session.simple("SELECT FROM onecopy.applied WHERE epoch = 9").await.unwrap().is_empty());
}

#[tokio::test]
async fn what_is_not_as_it_must_be_is_not_committed() {
    let server = Server::start();
    let mut connection = server.own("").await;
    connection.query("CREATE TABLE public.t (id int)").await.unwrap();
    // Inserts one row, and expects the server to report so many.
    async fn insert(connection: &mut OwnConnection, expected: u64) -> Result<(), PipelineError> {
        let output = &mut connection.exchange().output;
        encode::parse(output, b"", b"INSERT INTO public.t VALUES (1)", &[]);
        encode::bind(output, b"", b"", &[], Format::Text);
        encode::execute(output, b"", 0);
        let (tables, mut prepared) = (RefreshTables::default(), Prepared::default());
        let before = [Some(expected)];
        exchange::run(connection, &tables, &mut prepared, Vec::new(), &before, Outcome::Committed).await
    }
    let found = insert(&mut connection, 2).await;
    assert!(matches!(found, Err(PipelineError::Rows { expected: 2, found: 1, .. })), "{found:?}");
    assert!(connection.query("SELECT FROM public.t").await.unwrap().is_empty());
    insert(&mut connection, 1).await.unwrap();
    assert_eq!(server.connect("").await.simple("SELECT FROM t").await.unwrap().len(), 1);

    connection.query("BEGIN").await.unwrap();
    let found = insert(&mut connection, 1).await;
    assert!(matches!(found, Err(PipelineError::Lost(_))), "{found:?}");
}
