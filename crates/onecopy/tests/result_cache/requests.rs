//! Which requests are answered, and in which form.

use std::time::Duration;

use wire::encode::{self, Format};
use wire::frontend::Target;

use crate::cached::Cached;
use crate::cluster::raw::Raw;
use crate::cluster::{programs, rows, run, table, value};

type Messages = Vec<(u8, Vec<u8>)>;

#[tokio::test]
async fn every_form_of_a_request_gets_the_answer_in_its_own_form() {
    let mut cached = crate::started().await;
    let client = cached.client().await;
    run(&client, "create table t (k int primary key, v int); insert into t values (1, 10), (2, 20)").await;
    run(&client, "create table long (v text); insert into long values (repeat('x', 70000))").await;
    run(&client, "create table middling (v text); insert into middling values (repeat('x', 40000))").await;
    forms(&cached).await;
    drivers(&cached).await;
    not_kept(&cached).await;
    told(&cached).await;
    paused(&cached).await;
    refused().await;
    cached.cluster.stop().await;
}

/// What a client sends and gets, once from a replica and twice from the cache.
async fn three_times(cached: &Cached, raw: &mut Raw, hits: u64, write: impl Fn(&mut Vec<u8>)) -> Messages {
    let before = cached.count("hits").await;
    let read = raw.exchange(&write);
    for _ in 0..2 {
        assert_eq!(raw.exchange(&write), read);
    }
    assert_eq!(cached.count("hits").await, before + hits);
    read
}

async fn forms(cached: &Cached) {
    let mut raw = Raw::connect(cached.cluster.port);
    let sql = b"select v from t where k = $1";
    let execute = |out: &mut Vec<u8>, name: &[u8], format: Format, described: bool| {
        encode::bind(out, b"", name, &[Some(b"1")], format);
        if described {
            encode::describe(out, Target::Portal(b""));
        }
        encode::execute(out, b"", 0);
        encode::sync(out);
    };
    let simple = |out: &mut Vec<u8>| encode::query(out, b"select v from t where k = 1");
    let read = three_times(cached, &mut raw, 2, simple).await;
    assert_eq!(tags(&read), "TDC");
    raw.exchange(|out| {
        encode::parse(out, b"named", sql, &[]);
        encode::sync(out);
    });
    let plain = three_times(cached, &mut raw, 2, |out| execute(out, b"named", Format::Text, false)).await;
    assert_eq!(tags(&plain), "2DC");
    let described = three_times(cached, &mut raw, 2, |out| execute(out, b"named", Format::Text, true)).await;
    assert_eq!(tags(&described), "2TDC");
    // An unnamed statement of the same text has the same answers.
    let parsed = three_times(cached, &mut raw, 3, |out| {
        encode::parse(out, b"", sql, &[]);
        execute(out, b"", Format::Text, true);
    })
    .await;
    assert_eq!(tags(&parsed), "12TDC");
    // It can be executed later.
    let again = three_times(cached, &mut raw, 3, |out| execute(out, b"", Format::Text, true)).await;
    assert_eq!(again, described);
    let limited = three_times(cached, &mut raw, 0, |out| {
        encode::bind(out, b"", b"named", &[Some(b"1")], Format::Text);
        encode::execute(out, b"", 1);
        encode::sync(out);
    })
    .await;
    assert_eq!(tags(&limited), "2Ds");
    let named_portal = three_times(cached, &mut raw, 0, |out| {
        encode::bind(out, b"portal", b"named", &[Some(b"1")], Format::Text);
        encode::execute(out, b"portal", 0);
        encode::sync(out);
    })
    .await;
    assert_eq!(tags(&named_portal), "2DC");
    let twice = three_times(cached, &mut raw, 0, |out| {
        encode::bind(out, b"", b"named", &[Some(b"1")], Format::Text);
        encode::execute(out, b"", 0);
        encode::bind(out, b"", b"named", &[Some(b"2")], Format::Text);
        encode::execute(out, b"", 0);
        encode::sync(out);
    })
    .await;
    assert_eq!(tags(&twice), "2DC2DC");
    let failed = three_times(cached, &mut raw, 0, |out| {
        encode::parse(out, b"", b"select 1 / (v - 10) from t where k = 1", &[]);
        execute_nothing(out);
    })
    .await;
    assert_eq!(tags(&failed), "12E");
}

fn execute_nothing(out: &mut Vec<u8>) {
    encode::bind(out, b"", b"", &[], Format::Text);
    encode::execute(out, b"", 0);
    encode::sync(out);
}

fn tags(messages: &[(u8, Vec<u8>)]) -> String {
    messages.iter().map(|(tag, _)| char::from(*tag)).collect()
}

/// A driver asks for binary values.
async fn drivers(cached: &Cached) {
    let client = cached.client().await;
    let statement = client.prepare("select v from t where k = $1").await.unwrap();
    let before = cached.count("hits").await;
    for _ in 0..3 {
        for (k, v) in [(1, 10), (2, 20)] {
            assert_eq!(client.query_one(&statement, &[&k]).await.unwrap().get::<_, i32>(0), v);
        }
    }
    assert_eq!(cached.count("hits").await, before + 4);
    run(&client, "update t set v = 30 where k = 2").await;
    assert_eq!(client.query_one(&statement, &[&2]).await.unwrap().get::<_, i32>(0), 30);
    assert_eq!(client.query_one(&statement, &[&1]).await.unwrap().get::<_, i32>(0), 10);
    assert_eq!(cached.count("hits").await, before + 5);
    assert!(client.query_one(&statement, &[&9]).await.is_err(), "no row");
}

async fn not_kept(cached: &Cached) {
    let client = cached.client().await;
    run(
        &client,
        "create function told() returns int language plpgsql stable as 'begin raise notice ''told''; return 1; end'",
    )
    .await;
    for query in [
        "select now(), v from t",
        "select random(), v from t",
        "select pg_backend_pid(), v from t",
        "select v from t where 'now'::date is not null",
        "select v from t for update",
        "select v from t; select v from t",
        "select told(), v from t",
        "select count(*) from pg_class",
        "select v from long",
        "begin; select v from t; commit",
        "update t set v = v returning v",
        "select v from t tablesample system (100)",
    ] {
        cached.is_never_kept(&client, query).await;
    }
    let middling = "select length(v), v from middling";
    cached.is_kept(&client, middling, "40000").await;
    assert_eq!(table(&client, middling).await[0][1].len(), 40_000);
}

/// EXPLAIN, SHOW and the metrics say what the cache does.
async fn told(cached: &Cached) {
    let client = cached.client().await;
    let kept = async |query: &str| {
        let lines = table(&client, &format!("explain (routing) {query}")).await;
        let line = lines.into_iter().flatten().find(|line| line.starts_with("kept "));
        line.unwrap_or_else(|| panic!("nothing is said of {query}"))
    };
    assert!(
        kept("select v from t where k = $1").await.ends_with("until something that it depends on is written")
    );
    assert!(kept("select now(), v from t").await.contains("not kept: "));
    assert!(kept("select count(*) from pg_class").await.ends_with("only one replica can answer"));
    assert!(kept("delete from t").await.ends_with("it is not one query"));
    let memory = rows(&cached.admin, "SHOW MEMORY").await;
    let answers = memory.iter().find(|row| row["name"] == "answers").unwrap();
    assert!(answers["bytes"].parse::<u64>().unwrap() > 40_000, "{answers:?}");
    assert_eq!(answers["limit_bytes"], (16 << 20).to_string());
}

/// While the node is paused, nobody gets an answer.
async fn paused(cached: &Cached) {
    let client = cached.client().await;
    let query = "select v from t where k = 1";
    assert_eq!(value(&client, query).await, "10");
    run(&cached.admin, "PAUSE").await;
    let asking = tokio::spawn(async move { value(&client, query).await });
    loop {
        let clients = rows(&cached.admin, "SHOW CLIENTS").await;
        if clients.iter().any(|row| row["state"] == "paused") {
            break;
        }
        assert!(!asking.is_finished(), "an answer came during PAUSE");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    run(&cached.admin, "RESUME").await;
    assert_eq!(asking.await.unwrap(), "10");
}

/// Where reads may be old, or statements are shipped, there is no cache.
async fn refused() {
    for protocol in [&["--protocol", "gargamel"][..], &["--protocol", "eager"], &["--see", "local"]] {
        let arguments =
            [&["up", "--result-cache-mb", "1", "--data", "/nonexistent/onecopy"], protocol].concat();
        let output = programs::onecopy(&arguments).await;
        assert!(!output.status.success());
        let text = programs::text(&output);
        assert!(text.contains("a result cache needs protocol onecopy"), "{text}");
    }
}
