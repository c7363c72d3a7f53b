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
