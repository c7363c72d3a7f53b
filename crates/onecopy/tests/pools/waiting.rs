//! Sessions that wait for a connection, and cancel requests.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use tokio_postgres::NoTls;

use crate::cluster::{Cluster, raw, rows, run};
use crate::{WITHIN, pair};

pub(crate) async fn waiting(cluster: &Cluster) {
    const INSERT: &str = "insert into s (v) values (1)";
    let ((a, b), (hasty, stopped)) = (pair(cluster).await, pair(cluster).await);
    run(&hasty, "set statement_timeout = '100ms'").await;
    let mut raw = raw::Raw::connect(cluster.port);
    for name in [&b"one"[..], b"two"] {
        let parsed = raw.exchange(|out| {
            wire::encode::parse(out, name, b"select v from s where id = $1", &[23]);
            wire::encode::sync(out);
        });
        assert_eq!(parsed, [(wire::backend::tag::PARSE_COMPLETE, Vec::new())]);
    }
    run(&a, "begin; create table never (k int)").await;
    let begun = Instant::now();
    // A limit of the client's own is met first, and it need not wait any longer than it wants.
    let error = hasty.simple_query(INSERT).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!(error.code().code(), "57014", "{error:?}");
    assert!(error.hint().is_some_and(|hint| hint.contains("SHOW POOLS")), "{error:?}");
    // The Parse of a known statement needs no connection.
    let parsed = raw.exchange(|out| {
        wire::encode::parse(out, b"again", b"select v from s where id = $1", &[23]);
        wire::encode::sync(out);
    });
    assert_eq!(parsed, [(wire::backend::tag::PARSE_COMPLETE, Vec::new())]);
    let stop = stopped.cancel_token();
    let (ended, ()) = tokio::join!(stopped.simple_query(INSERT), async {
        let admin = cluster.try_client("onecopy").await.unwrap();
        let deadline = Instant::now() + WITHIN;
        loop {
            let pools = rows(&admin, "show pools").await;
            if (pools[0]["cl_waiting"].as_str(), pools[0]["sv_active"].as_str()) == ("1", "1") {
                break;
            }
            assert!(Instant::now() < deadline, "{pools:?}");
        }
        stop.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(ended.unwrap_err().code().unwrap().code(), "57014");
    let (waited, ()) = tokio::join!(b.simple_query(INSERT), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        run(&a, "rollback").await;
    });
    waited.unwrap();
    // Its limit may be short for a slow machine; then nothing else comes of it.
    while let Err(error) = hasty.simple_query(INSERT).await {
        assert_eq!(error.code().unwrap().code(), "57014", "{error:?}");
        assert!(begun.elapsed() < WITHIN, "{error:?}");
    }
}

/// A cancel request hits the statement that it was meant for, or nothing.
pub(crate) async fn cancelling(cluster: &Cluster) {
    let (a, b) = pair(cluster).await;
    let stop = a.cancel_token();
    let (slept, ()) = tokio::join!(a.simple_query("select pg_sleep(20) from t"), async {
        let admin = cluster.try_client("onecopy").await.unwrap();
        let is_active =
            |row: &BTreeMap<String, String>| row["database"] == "postgres" && row["sv_active"] != "0";
        while !rows(&admin, "show pools").await.iter().any(is_active) {}
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.cancel_query(NoTls).await.unwrap();
    });
    assert_eq!(slept.unwrap_err().code().unwrap().code(), "57014");
    let mut hits = 0;
    for n in 0..60 {
        let short = format!("select pg_sleep({})", f64::from(n % 6) / 1000.0);
        let (cancelled, stopped, other) = tokio::join!(
            a.simple_query(&short),
            stop.cancel_query(NoTls),
            b.simple_query("select pg_sleep(0.004)")
        );
        stopped.unwrap();
        hits += usize::from(cancelled.is_err());
        other.unwrap_or_else(|error| panic!("it was meant for another session: {error:?}"));
        run(&b, "select pg_sleep(0.001)").await;
    }
    assert!(hits < 60, "some are over before they can be cancelled");
}
