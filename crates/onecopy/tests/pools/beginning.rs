//! The state with which a session begins does not depend on the previous session of its connection.

use std::time::Duration;

use tokio_postgres::{Client, NoTls};
use wire::backend::tag;

use crate::cluster::raw::Raw;
use crate::cluster::{Cluster, run, value};

async fn connect(cluster: &Cluster, role: &str, options: &str) -> Result<Client, tokio_postgres::Error> {
    let port = cluster.port;
    let settings = format!(
        "host=127.0.0.1 port={port} user={role} dbname=postgres connect_timeout=10 options='{options}'"
    );
    let (client, connection) = tokio_postgres::connect(&settings, NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

async fn home(client: &Client) -> String {
    value(client, "show onecopy.home").await
}

/// Settings of Onecopy's own are given at start-up, reset to that and rolled back as all others are.
pub(crate) async fn own_settings(cluster: &Cluster) {
    let client =
        connect(cluster, "postgres", "-c onecopy.home=replica-2 --onecopy.sequences=anchor").await.unwrap();
    assert_eq!(home(&client).await, "replica-2");
    assert_eq!(value(&client, "show onecopy.sequences").await, "anchor");
    let writes = async || cluster.replicas().await[1].writes;
    let before = writes().await;
    run(&client, "update t set v = v where k = 3").await;
    assert_eq!(writes().await, before + 1, "it runs where start-up says");
    for back in ["reset onecopy.home", "set onecopy.home to default", "reset all", "discard all"] {
        run(&client, "set onecopy.home = anchor").await;
        assert_eq!(home(&client).await, "anchor");
        run(&client, back).await;
        assert_eq!(home(&client).await, "replica-2", "{back}");
    }
    run(&client, "begin; set onecopy.home = 'any'; savepoint s; set onecopy.home = anchor").await;
    assert_eq!(home(&client).await, "anchor");
    run(&client, "rollback to s").await;
    assert_eq!(home(&client).await, "any");
    run(&client, "rollback").await;
    assert_eq!(home(&client).await, "replica-2");
    run(&client, "begin; set onecopy.sequences = 'LENT'; commit").await;
    assert_eq!(value(&client, "show onecopy.sequences").await, "lent");
    for (set, code) in [
        ("set onecopy.home = nowhere", "22023"),
        ("set onecopy.sequences = nowhere", "22023"),
        ("set onecopy.via = x", "0A000"),
    ] {
        let error = client.simple_query(set).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), code, "{set}: {error:?}");
    }
    assert_eq!(home(&client).await, "replica-2");
    wrong_beginnings(cluster).await;
    of_the_role(cluster).await;
}

async fn wrong_beginnings(cluster: &Cluster) {
    for (options, code, what) in [
        ("-c onecopy.home=nowhere", "22023", "invalid value for parameter \"onecopy.home\": \"nowhere\""),
        ("-c onecopy.sequences=x", "22023", "invalid value for parameter \"onecopy.sequences\": \"x\""),
        ("-c onecopy.access=read", "0A000", "changing onecopy.access"),
        ("-c onecopy.via=x", "0A000", "changing onecopy.via"),
        ("-c default_transaction_isolation=none", "22023", "invalid value for parameter"),
        ("-c", "42601", "-c needs a value"),
    ] {
        let Err(error) = connect(cluster, "postgres", options).await else { panic!("{options} was taken") };
        let error = error.as_db_error().unwrap();
        assert_eq!((error.code().code(), error.severity()), (code, "FATAL"), "{options}: {error:?}");
        assert!(error.message().contains(what), "{options}: {error:?}");
    }
    // Not in the options but beside them, which is stronger.
    let parameters = [("user", "postgres"), ("database", "postgres"), ("onecopy.home", "any")];
    let (mut raw, _) =
        Raw::connect_as(cluster.port, &[&parameters[..], &[("options", "-c onecopy.home=anchor")]].concat());
    let shown = raw.exchange(|out| wire::encode::query(out, b"show onecopy.home"));
    assert!(shown.iter().any(|(tag, body)| *tag == tag::DATA_ROW && body.ends_with(b"any")), "{shown:?}");
}

/// Settings of the client take precedence over those of ALTER ROLE, and a wrong setting does not keep the role out.
async fn of_the_role(cluster: &Cluster) {
    let admin = cluster.client().await;
    run(&admin, "create role zoe login; alter role zoe set onecopy.home = 'anchor'").await;
    assert_eq!(home(&connect(cluster, "zoe", "").await.unwrap()).await, "anchor");
    let zoe = connect(cluster, "zoe", "-c onecopy.home=any").await.unwrap();
    run(&zoe, "set onecopy.home = auto; reset onecopy.home").await;
    assert_eq!(home(&zoe).await, "any");
    run(&admin, "alter role zoe set onecopy.home = 'nowhere'").await;
    let (mut raw, told) = Raw::connect_as(cluster.port, &[("user", "zoe"), ("database", "postgres")]);
    let shown = raw.exchange(|out| wire::encode::query(out, b"show onecopy.home"));
    assert!(shown.iter().any(|(tag, body)| *tag == tag::DATA_ROW && body.ends_with(b"auto")), "{shown:?}");
    let warns = |(tag, body): &(u8, Vec<u8>)| {
        *tag == tag::NOTICE_RESPONSE
            && String::from_utf8_lossy(body).contains("\"onecopy.home\": \"nowhere\"")
    };
    assert!(told.iter().any(warns), "{told:?}");
}

/// The time-out of the previous session of a connection ends no statement of the next one.
pub(crate) async fn limits_of_neighbours(cluster: &Cluster) {
    let (hasty, other) = (cluster.client().await, cluster.client().await);
    for _ in 0..100 {
        // It may be too short for its own statements.
        let _ = hasty.simple_query("set statement_timeout = '1ms'").await;
        let _ = hasty.simple_query("select v from t where k = 1").await;
        run(&other, "select v from t where k = 1").await;
    }
}

/// An unnamed statement lasts until its session prepares another one, whatever other sessions do on the connection in between.
pub(crate) async fn unnamed(cluster: &Cluster) {
    let mut raw = Raw::connect(cluster.port);
    raw.exchange(|out| {
        wire::encode::parse(out, b"", b"select v from t where k = $1", &[23]);
        wire::encode::sync(out);
    });
    for key in ["1", "2", "3", "4"] {
        let other = cluster.client().await;
        let rows = raw.exchange(|out| {
            wire::encode::bind(out, b"", b"", &[Some(key.as_bytes())], wire::encode::Format::Text);
            wire::encode::execute(out, b"", 0);
            wire::encode::sync(out);
        });
        let wanted = format!("row {key}");
        let has_row =
            |(tag, body): &(u8, Vec<u8>)| *tag == tag::DATA_ROW && body.ends_with(wanted.as_bytes());
        assert!(rows.iter().any(has_row), "{rows:?}");
        drop(other);
    }
}

/// The settings of the servers' own files.
fn logged(cluster: &Cluster) -> String {
    let of = |number: u32| {
        std::fs::read_to_string(cluster.data().join(format!("server-{number}.log"))).unwrap_or_default()
    };
    [1, 2].map(of).concat()
}

/// Nothing but COMMIT follows the append, so no limit of time is in force then: wherever it was set, and whichever it is.
pub(crate) async fn limits_at_commit(cluster: &Cluster) {
    const LIFTED: &str = "SET LOCAL statement_timeout = 0";
    let show_all = "set log_statement = 'all'; set onecopy.home = anchor";
    let client = cluster.client().await;
    let version: u32 = value(&client, "show server_version_num").await.parse().unwrap();
    let knows_transactions = version >= 170_000;
    run(&client, &format!("{show_all}; set idle_in_transaction_session_timeout = '1h'")).await;
    run(&client, if knows_transactions { "set transaction_timeout = '1h'" } else { "select 1" }).await;
    let update = "update t set v = v where k = 5";
    run(&client, update).await;
    let said = logged(cluster);
    assert!(said.contains(LIFTED), "{said}");
    assert_eq!(said.contains("SET LOCAL transaction_timeout = 0"), knows_transactions, "{said}");
    // In the server's own files.
    let alter = async |what: &str| {
        for replica in cluster.replicas().await {
            let direct = cluster.direct(&replica).await;
            run(&direct, &format!("alter system {what}")).await;
            run(&direct, "select pg_reload_conf()").await;
        }
    };
    let lifted = || logged(cluster).matches(LIFTED).count();
    let plain = cluster.client().await;
    run(&plain, show_all).await;
    let before = lifted();
    run(&plain, update).await;
    assert_eq!(lifted(), before, "nothing is to be lifted");
    alter("set lock_timeout = '1h'").await;
    while value(&plain, "show lock_timeout").await != "1h" {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let limited = cluster.client().await;
    run(&limited, show_all).await;
    run(&limited, update).await;
    assert!(lifted() > before, "{}", logged(cluster));
    alter("reset lock_timeout").await;
}

/// A limit of the client's that ends the session ends it, with the words of the server: to run the transaction again would
/// not help.
pub(crate) async fn limits_that_end_sessions(cluster: &Cluster) {
    let client = cluster.client().await;
    let version: u32 = value(&client, "show server_version_num").await.parse().unwrap();
    let idle = ("25P03", "set idle_in_transaction_session_timeout = '700ms'", "select 1");
    let whole = ("25P04", "set transaction_timeout = '100ms'", "select pg_sleep(5), v from t where k = 6");
    for (code, set, next) in
        [idle, whole].into_iter().filter(|(code, ..)| *code == "25P03" || version >= 170_000)
    {
        for begin in
            ["begin; update t set v = 'limited' where k = 6", "begin read only; select v from t where k = 6"]
        {
            let client = cluster.client().await;
            run(&client, set).await;
            run(&client, begin).await;
            if code == "25P03" {
                tokio::time::sleep(Duration::from_secs(2)).await;
            }
            let error = client.simple_query(next).await.unwrap_err();
            let told = error.as_db_error().unwrap_or_else(|| panic!("{begin}: {error:?}"));
            assert_eq!((told.code().code(), told.severity()), (code, "FATAL"), "{begin}: {told:?}");
            assert!(client.simple_query("select 1").await.is_err(), "{begin}: the session goes on");
        }
    }
    let alone = cluster.client().await;
    if version >= 170_000 {
        run(&alone, whole.1).await;
        let error = alone.simple_query(whole.2).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "25P04", "{error:?}");
    }
    assert_eq!(value(&client, "select v from t where k = 6").await, "row 6");
}

/// As ALTER ROLE, so ALTER DATABASE.
pub(crate) async fn of_the_database(cluster: &Cluster) {
    let admin = cluster.client().await;
    let before = value(&admin, "show work_mem").await;
    run(
        &admin,
        "alter database postgres set work_mem = '7MB'; alter database postgres set onecopy.home = 'anchor'",
    )
    .await;
    let begun = cluster.client().await;
    assert_eq!((value(&begun, "show work_mem").await, home(&begun).await), ("7MB".into(), "anchor".into()));
    // On every replica.
    for _ in 0..4 {
        assert_eq!(value(&begun, "select current_setting('work_mem') from t where k = 1").await, "7MB");
    }
    run(&begun, "set work_mem = '8MB'; reset work_mem").await;
    assert_eq!(value(&begun, "show work_mem").await, "7MB");
    run(&admin, "alter database postgres reset work_mem; alter database postgres reset onecopy.home").await;
    let after = cluster.client().await;
    assert_eq!((value(&after, "show work_mem").await, home(&after).await), (before, "auto".into()));
}
