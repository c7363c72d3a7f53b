//! Promise: every command of `onecopy` prints what its help says and shows in its exit status whether it succeeded. No input
//! makes a command panic.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;

use cluster::{Cluster, folder, programs, run};

/// Runs a command; returns its output and whether it succeeded. No command may panic.
async fn said(arguments: &[&str]) -> (String, bool) {
    let output = programs::onecopy(arguments).await;
    let text = programs::text(&output);
    assert!(!text.contains("panicked") && output.status.code() != Some(101), "{arguments:?}: {text}");
    (text, output.status.success())
}

/// It succeeds and prints this.
async fn does(arguments: &[&str], words: &[&str]) {
    let (text, succeeded) = said(arguments).await;
    assert!(succeeded, "{arguments:?}: {text}");
    for word in words {
        assert!(text.contains(word), "{word:?} of {arguments:?}: {text}");
    }
}

/// It fails and says why.
async fn refuses(arguments: &[&str], words: &str) {
    let (text, succeeded) = said(arguments).await;
    assert!(!succeeded && text.contains(words), "{words:?} of {arguments:?}: {text}");
}

#[tokio::test]
async fn what_a_command_did_is_in_its_output_and_its_exit_status() {
    let mut cluster = Cluster::start(2).await;
    run(&cluster.client().await, "create table t (id int primary key); insert into t values (1)").await;
    let (port, data) = (cluster.port.to_string(), cluster.data().display().to_string());
    let at = |words: &[&'static str]| -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).chain(["--port".to_owned(), port.clone()]).collect()
    };
    let succeeds: [(&[&str], &[&str]); 10] = [
        (&["replica", "list"], &["replica-1", "anchor", "replica-2"]),
        (&["replica", "check"], &["identical"]),
        (&["replica", "add"], &["replica-3"]),
        (&["replica", "drain", "replica-3"], &["replica-3", "drained"]),
        (&["replica", "undrain", "replica-3"], &["replica-3", "serving"]),
        (&["replica", "drop", "replica-3"], &["replica-3", "members", "2"]),
        (&["verify"], &["table \"public\".\"t\"", "identical on all replicas"]),
        (&["explain", "select * from t where id = 1"], &["template", "key"]),
        (&["top", "--every", "1", "--count", "1"], &["replica-1", "anchor"]),
        (&["log", "dump"], &["epoch 1 begins"]),
    ];
    for (words, wanted) in succeeds {
        let mut arguments = at(words);
        if words[0] == "log" {
            arguments.extend(["--data".to_owned(), data.clone()]);
        }
        does(&arguments.iter().map(String::as_str).collect::<Vec<_>>(), wanted).await;
    }
    does(&["log", "verify", "--data", &data], &["is undamaged"]).await;
    for (action, words) in [
        ("drain", "there is no replica"),
        ("undrain", "there is no replica"),
        ("rebuild", "there is no replica"),
        ("drop", "there is no replica"),
    ] {
        refuses(&["replica", action, "nobody", "--port", &port], words).await;
    }
    refuses(&["replica", "add", "mysql://x", "--port", &port], "cannot").await;
    refuses(&["explain", "select * form t", "--port", &port], "syntax error").await;
    cluster.stop().await;

    let nobody = folder::free_port().to_string();
    for words in [&["replica", "list"][..], &["verify"], &["top"], &["explain", "select 1"], &["log", "dump"]]
    {
        refuses(&[words, &["--port", &nobody]].concat(), "cannot reach a node").await;
    }
    refuses(&["log", "verify", "--data", "/nowhere"], "there is no log").await;
    refuses(&["check", "--config", "/nowhere"], "/nowhere").await;
    refuses(&["serve", "--config", "/nowhere"], "/nowhere").await;
    does(&["help"], &["replica", "explain"]).await;
    refuses(&[], "Usage").await;
}

#[tokio::test]
async fn a_placement_is_checked_against_a_schema_without_a_server() {
    let folder = folder::Folder::new("placement");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let schema = write(
        "shop.sql",
        "create table audit (k int primary key, at text);
         create table orders (k int primary key, n int);
         create table line (k int primary key, o int references orders);
         create table log_1 (k int primary key, a int references audit);
         create table item (k int primary key);",
    );
    let names = ["a", "b", "c"]
        .map(|name| format!("[[replica]]\nname = \"{name}\"\nurl = \"postgresql://{name}\"\n"));
    let config = |file: &str, rules: &str| write(file, &format!("{}[placement]\n{rules}", names.concat()));
    let templates = write(
        "templates.sql",
        "-- what the shop does\nselect * from orders where k = $1\n\nselect at from audit where k = $1\n\
         select * from item\nselect * from audit, line\nselect f(1)\n",
    );
    let check = |config: &str, schema: &str| {
        ["placement", "check", "--schema", schema, "--config", config, "--templates", &templates]
            .map(str::to_owned)
    };
    let good = config(
        "o.toml",
        "\"public.audit\" = [\"a\", \"c\"]\n\"log_*\" = [\"a\"]\norders = [\"a\", \"b\"]\nline = [\"a\", \"b\"]\n",
    );
    does(
        &check(&good, &schema).each_ref().map(String::as_str),
        &[
            "table       public.audit (a, c; ",
            "o.toml:11)",
            "table       public.item (a, b, c; no line of [placement])",
            "line 2      a, b: select * from orders",
            "line 4      a, c: select at from audit",
            "line 5      a, b, c: select * from item",
            "line 6      only where everything is held: a: select * from audit, line",
            "line 7      only where everything is held: a: select f(1)",
            "bound       lines that only a can run: 6, 7",
            "everything  a",
        ],
    )
    .await;
    let bad = config("bad.toml", "orders = [\"a\", \"b\"]\n");
    let refused = check(&bad, &schema);
    let refused = refused.each_ref().map(String::as_str);
    refuses(&refused, "breach      table public.line (a, b, c; no line of [placement]) has a foreign key to table public.orders (a, b; ").await;
    refuses(&refused, "which c would not hold").await;
    let viewed = write(
        "viewed.sql",
        "create table orders (k int); create materialized view m as select * from orders",
    );
    let refused = check(&bad, &viewed);
    refuses(&refused.each_ref().map(String::as_str), "materialized view public.m is filled by each replica")
        .await;
    let none = config("none.toml", "orders = [\"b\"]\naudit = [\"a\"]\n");
    refuses(&check(&none, &schema).each_ref().map(String::as_str), "no replica would hold every table").await;
    write("templates.sql", "select 1\nselect * form t\n");
    refuses(&check(&good, &schema).each_ref().map(String::as_str), "templates.sql:2: syntax error").await;
}
