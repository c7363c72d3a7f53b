//! Long statements: those with many rows or long constants work, and those with too many tokens are refused. Neither takes
//! gigabytes or blocks the thread of other sessions.

use std::time::Duration;

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::ErrorPosition;

use crate::cluster::{Cluster, folder, run, value};
use crate::peak_kb;

/// Limit of the memory that such a text adds: a few times its own length, and the parser's memory for its tokens.
const TEXT_KB_MAX: u64 = 300 << 10;
/// Statements of another session that are answered while a long one is parsed.
const ANSWERED_MIN: usize = 8;

pub(crate) async fn are_bounded(cluster: &Cluster) {
    let client = cluster.client().await;
    run(&client, "create table texts (k int primary key, a text, b timestamptz)").await;
    let before_kb = peak_kb(cluster);
    too_many_tokens(cluster).await;
    many_rows(cluster).await;
    many_statements(cluster).await;
    let grown_kb = peak_kb(cluster).saturating_sub(before_kb);
    folder::say(&format!("long statements: {grown_kb} kB more at the peak"));
    assert!(grown_kb < TEXT_KB_MAX, "{grown_kb} kB for long statements");
    leaves_the_thread_to_others(cluster).await;
}

async fn too_many_tokens(cluster: &Cluster) {
    let client = cluster.client().await;
    let text = format!("select count(*) from texts where {} 1=1", "1=1 and ".repeat(400_000));
    let refused = client.simple_query(&text).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "54001", "{refused:?}");
    assert!(refused.hint().unwrap().contains("COPY"), "{refused:?}");
    let refused = client.prepare(&text).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "54001");
    assert_eq!(value(&client, "select count(*) from texts").await, "0", "the session goes on");
}

/// Rows that differ in their constants only, in a text and with parameters.
async fn many_rows(cluster: &Cluster) {
    const ROWS: usize = 60_000;
    let client = cluster.client().await;
    let row = |k: usize| match k % 3 {
        0 => format!("({k}, 'row {k}; of many', now())"),
        1 => format!("({k}, null, '2020-01-01')"),
        _ => format!("({k}, $$a$$, null)"),
    };
    let rows: Vec<String> = (1..=ROWS).map(row).collect();
    run(&client, &format!("insert into texts values {}", rows.join(", "))).await;
    let keys: Vec<String> = (1..=ROWS).map(|k| k.to_string()).collect();
    let found = value(&client, &format!("select count(*) from texts where k in ({})", keys.join(","))).await;
    assert_eq!(found, ROWS.to_string());
    let parameters: Vec<String> = (0..30_000).map(|n| format!("(${}, ${})", 2 * n + 1, 2 * n + 2)).collect();
    let insert = format!("insert into texts (k, a) values {}", parameters.join(", "));
    let keys: Vec<i32> = (0..30_000).map(|n| 1_000_000 + n).collect();
    let text = "a parameter".to_owned();
    let values: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
        keys.iter().flat_map(|key| [key as _, &text as _]).collect();
    assert_eq!(client.execute(&insert, &values).await.unwrap(), 30_000);
    let long = format!("insert into texts values (0, '{}')", "x".repeat(8 << 20));
    run(&client, &long).await;
    let counted = "select count(*), count(a), count(b), max(length(a)) from texts";
    let counts = [90_001, 70_001, 40_000, 8 << 20].map(|count: u64| count.to_string());
    assert_eq!(cluster.everywhere(counted).await, [counts]);
}

async fn many_statements(cluster: &Cluster) {
    const STATEMENTS: usize = 200;
    let client = cluster.client().await;
    let filler = "é;".repeat(200);
    let texts = (0..STATEMENTS).map(|n| format!("update texts set a = '{filler}' where k = {n};\n"));
    let mut text: String = texts.collect();
    text.push_str("select 1 / 0 as wrong");
    let error = client.simple_query(&text).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "22012");
    let text = text.replace(" / 0", "");
    let answers = client.simple_query(&text).await.unwrap();
    let done = answers.iter().filter(|answer| matches!(answer, SimpleQueryMessage::CommandComplete(1)));
    assert_eq!(done.count(), STATEMENTS + 1);
    for wrong in ["selekt 1", "select nothing"] {
        let wrong_text = text.replace("select 1", wrong);
        let error = client.simple_query(&wrong_text).await.unwrap_err();
        let at =
            wrong_text.find(wrong).unwrap() + if wrong.contains("nothing") { "select ".len() } else { 0 };
        let place = u32::try_from(wrong_text[..at].chars().count() + 1).unwrap();
        let told = error.as_db_error().unwrap().position().cloned();
        assert_eq!(told, Some(ErrorPosition::Original(place)), "{error:?}");
    }
}

/// Sessions of one thread are answered while another one's statement is parsed.
async fn leaves_the_thread_to_others(cluster: &Cluster) {
    let (busy, other) = (cluster.client().await, cluster.client().await);
    // As many tokens as the parser takes, in a statement that no server gets.
    let columns: Vec<String> = (0..30_000).map(|n| format!("c{n} int")).collect();
    let text = format!("create unlogged table t ({})", columns.join(", "));
    value(&other, "select 1").await;
    let parsing = tokio::spawn(async move { busy.simple_query(&text).await.map(|_| ()) });
    let mut answered = 0;
    while !parsing.is_finished() {
        value(&other, "select 1").await;
        answered += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(parsing.await.unwrap().unwrap_err().code().unwrap().code(), "0A000");
    folder::say(&format!("{answered} statements of another session while one is parsed"));
    assert!(answered >= ANSWERED_MIN, "{answered} statements of another session");
}
