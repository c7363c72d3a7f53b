//! A statement that means something else in one session for a while keeps its meaning in the others.

use wire::backend::tag;
use wire::encode;

use crate::assert_pinned;
use crate::cluster::raw::Raw;
use crate::cluster::{Cluster, run, value};

/// A change that only its transaction sees, and a statement that depends on the change.
const IN_A_TRANSACTION: [(&str, &str); 6] = [
    ("begin; alter table w add column own int", "select own from w"),
    ("begin; do $$ begin create temp table fleeting (k int); end $$", "select k from fleeting"),
    ("begin; set local search_path = a", "select k from only_in_a"),
    (
        "begin read only; select v from t where k = 1; set local search_path = a",
        "select k + 1 from only_in_a",
    ),
    ("begin read only; select v from t where k = 1; set search_path = a", "select k + 2 from only_in_a"),
    (
        "begin read only; select v from t where k = 1; select set_config('search_path', 'a', true)",
        "select k + 3 from only_in_a",
    ),
];

/// State that a session keeps for itself, the reason shown, and the statement that undoes it.
const IN_A_SESSION: [(&str, &[&str], &str, &str); 3] = [
    ("create temp table lasting (k int)", &["temporary"], "select k from lasting", "drop table lasting"),
    ("set search_path = a", &[], "select k + 4 from only_in_a", "reset search_path"),
    ("select set_config('search_path', 'a', false)", &[], "select k + 5 from only_in_a", "reset search_path"),
];

/// Whether Parse of a statement succeeds. No other message follows, so only a server can refuse it.
fn parses(client: &mut Raw, sql: &str) -> bool {
    let told = client.exchange(|out| {
        encode::close(out, wire::frontend::Target::Statement(b"own"));
        encode::sync(out);
    });
    assert_eq!(told, [(tag::CLOSE_COMPLETE, Vec::new())]);
    let told = client.exchange(|out| {
        encode::parse(out, b"own", sql.as_bytes(), &[]);
        encode::sync(out);
    });
    match told.as_slice() {
        [(tag::PARSE_COMPLETE, _)] => true,
        [(tag::ERROR_RESPONSE, body)] => {
            let code = wire::backend::Fields::new(body).sqlstate().to_vec();
            assert!(code == b"42P01" || code == b"42703", "{sql}: {}", String::from_utf8_lossy(&code));
            false
        }
        other => panic!("{sql}: {other:?}"),
    }
}

/// How many columns a statement of the client's has, or the code of its error.
fn columns(client: &mut Raw, name: &[u8], sql: &str) -> Result<u16, String> {
    let told = client.exchange(|out| {
        encode::parse(out, name, sql.as_bytes(), &[]);
        encode::describe(out, wire::frontend::Target::Statement(name));
        encode::bind(out, b"", name, &[], encode::Format::Text);
        encode::execute(out, b"", 0);
        encode::sync(out);
    });
    for (tag, body) in &told {
        match *tag {
            tag::ERROR_RESPONSE => {
                return Err(String::from_utf8_lossy(wire::backend::Fields::new(body).sqlstate()).into_owned());
            }
            tag::ROW_DESCRIPTION => return Ok(u16::from_be_bytes([body[0], body[1]])),
            _ => {}
        }
    }
    panic!("{sql}: {told:?}")
}

fn ask(client: &mut Raw, sql: &str) {
    let told = client.exchange(|out| encode::query(out, sql.as_bytes()));
    assert!(told.iter().all(|(tag, _)| *tag != tag::ERROR_RESPONSE), "{sql}: {told:?}");
}

/// A statement that a server has accepted from one session is well formed for another one only if it means the same there.
pub(crate) async fn of_one_session(cluster: &Cluster) {
    run(&cluster.client().await, "create table a.only_in_a (k int)").await;
    for (does, sql) in IN_A_TRANSACTION {
        let (mut one, mut other) = (Raw::connect(cluster.port), Raw::connect(cluster.port));
        ask(&mut one, does);
        assert!(parses(&mut one, sql), "after {does}: {sql}");
        ask(&mut one, "rollback");
        assert!(!parses(&mut other, sql), "what {does} has made of it is known to others: {sql}");
        assert!(!parses(&mut one, sql), "it outlives its transaction: {sql}");
    }
    for (does, shown, sql, undo) in IN_A_SESSION {
        let (mut one, mut other) = (Raw::connect(cluster.port), Raw::connect(cluster.port));
        ask(&mut one, does);
        assert_pinned(cluster, shown).await;
        assert!(parses(&mut one, sql), "after {does}: {sql}");
        ask(&mut one, undo);
        assert_pinned(cluster, &[]).await;
        assert!(!parses(&mut other, sql), "what {does} has made of it is known to others: {sql}");
    }
}

/// Statements of two sessions do not share a name at a server, which would refuse a statement whose columns have changed
/// (0A000).
pub(crate) async fn of_one_schema(cluster: &Cluster) {
    let plain = value(
        &cluster.client().await,
        "select count(*) from information_schema.columns where table_name = 'w' and table_schema = 'public'",
    )
    .await;
    let plain: u16 = plain.parse().unwrap();
    let sql = "select * from public.w";
    for (does, more) in [
        ("alter table public.w add column own int", 1),
        ("do $$ begin create temp table w (k int, l int, m int, n int, o int); end $$", 5 - plain),
    ] {
        // The name is not qualified where a table of the transaction's own is to come first.
        let sql = if does.starts_with("do") { "select * from w" } else { sql };
        let (mut one, mut other) = (Raw::connect(cluster.port), Raw::connect(cluster.port));
        ask(&mut one, &format!("begin; {does}"));
        assert_eq!(columns(&mut one, b"p", sql), Ok(plain + more), "after {does}");
        ask(&mut one, "rollback");
        for _ in 0..3 {
            assert_eq!(columns(&mut other, b"q", sql), Ok(plain), "after {does} was rolled back");
            other = Raw::connect(cluster.port);
        }
    }
}
