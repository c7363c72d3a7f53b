//! Promise: log lines of a session carry its number and the stage they come from, as text and as JSON. At every log level the log contains no password and
//! no secret that could replace one.

use std::fs::File;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::cluster::served::{Setup, WITHIN};
use super::cluster::{rows, run};
use super::login::{PASSWORD, Servers, log_in};

/// A password in the statements of clients.
const HUSH: &str = "hush-hush";

/// Statements with a password that fail, each in its own way, and one that does not.
const STATEMENTS: [&str; 7] = [
    "ALTER ROLE nobody PASSWORD 'hush-hush'",
    "ALTER ROLE app PASSWORD 'hush-hush' VALID UNTIL 'yesterday, or so'",
    "CREATE ROLE app LOGIN PASSWORD 'hush-hush'",
    "CREATE ROLE wrong PASSWORD 'hush-hush' AND MORE",
    "ALTER ROLE app PASSWORD 'hush-hush",
    "DO $$ BEGIN EXECUTE $a$ALTER ROLE nobody PASSWORD 'hush-hush'$a$; END $$",
    "CREATE ROLE kept PASSWORD 'hush-hush'",
];

/// A stage, and what it says about an update transaction.
const STAGES: [(&str, &str); 7] = [
    ("parse", "no cache has the text"),
    ("classify", "statements are analysed"),
    ("order", "admitted at once"),
    ("place", "an update transaction begins"),
    ("execute", "statements run"),
    ("propagate", "the record is complete"),
    ("commit", "the record is durable"),
];

#[tokio::test]
async fn no_secret_is_told_and_lines_name_their_session_and_stage() {
    let servers = Servers::start().await;
    let setup = Setup::new(&[], "");
    let more = format!(
        "{}\nadmin_users = \"postgres\"\nhba = \"host all all 127.0.0.1/32 scram-sha-256\"",
        Servers::password_file(&setup)
    );
    for format in ["text", "json"] {
        setup.write_urls(&servers.urls(), &format!("{more}\nlog_format = \"{format}\""));
        let path = setup.folder.path().join(format);
        let said = || std::fs::read_to_string(&path).unwrap();
        let stderr = Stdio::from(File::create(&path).unwrap());
        let node = setup.serve_and_say(&[("ONECOPY_LOG", "trace")], stderr).await;
        let number = secrets(&setup).await;
        let wrong = log_in(&setup, "app", "postgres", "hush-hush, too").await.map(drop).unwrap_err();
        assert_eq!(wrong.code().unwrap().code(), "28P01");
        let deadline = Instant::now() + WITHIN;
        while !said().contains("password authentication failed") {
            assert!(Instant::now() < deadline, "the log does not say who was refused");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        node.stop();
        // A TLS extension has `secret` in its name.
        let said = said().replace("extended_master_secret", "");
        let begun = said.lines().filter(|line| line.contains("the session begins"));
        let begun: Vec<Option<u64>> = begun.map(|line| told_number(line, format == "json")).collect();
        assert!(begun.contains(&Some(number)), "no session {number} in {begun:?}");
        for (stage, words) in STAGES {
            let lines: Vec<&str> = said.lines().filter(|line| line.contains(words)).collect();
            assert!(!lines.is_empty(), "no line says that {words}");
            for line in lines {
                let spans = spans_of(line, format == "json");
                assert!(spans.first().is_some_and(|span| span.starts_with("session")), "{spans:?}: {line}");
                assert_eq!(spans.last().map(String::as_str), Some(stage), "{line}");
            }
        }
        for secret in [HUSH, PASSWORD, "it''s a secret", "master", "SCRAM-SHA-256$", ",r=", ",p="] {
            let line = said.lines().find(|line| line.contains(secret));
            assert_eq!(line, None, "{secret} is in the log");
        }
    }
}

/// Clients tell theirs in many ways, and nothing that is shown has them; the number of the session of `app`.
async fn secrets(setup: &Setup) -> u64 {
    let superuser = log_in(setup, "postgres", "postgres", "master").await.unwrap();
    for sql in STATEMENTS {
        assert_eq!(superuser.simple_query(sql).await.is_ok(), sql == STATEMENTS[6], "{sql}");
        // A statement that fails in Parse is as secret.
        drop(superuser.prepare(sql).await);
    }
    run(&superuser, "DROP ROLE kept").await;
    run(&superuser, "CREATE TABLE IF NOT EXISTS stages (k int, v int)").await;
    run(&superuser, "INSERT INTO stages VALUES (1, 1)").await;
    let app = log_in(setup, "app", "postgres", PASSWORD).await.unwrap();
    app.simple_query("ALTER ROLE postgres PASSWORD 'hush-hush'").await.unwrap_err();
    let admin = log_in(setup, "postgres", "onecopy", "master").await.unwrap();
    for show in ["TEMPLATES", "CONFIG", "CLIENTS", "SERVERS", "TRANSACTIONS", "STATS"] {
        let shown = format!("{:?}", rows(&admin, &format!("SHOW {show}")).await);
        assert!(!shown.contains(HUSH) && !shown.contains("SCRAM-SHA-256$"), "{show}: {shown}");
    }
    let clients = rows(&admin, "SHOW CLIENTS").await;
    clients.iter().find(|row| row["user"] == "app").unwrap()["id"].parse().unwrap()
}

/// The number of the session that a line is of.
fn told_number(line: &str, is_json: bool) -> Option<u64> {
    if is_json {
        let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
        return parsed["span"]["id"].as_u64();
    }
    assert!(!line.contains('\u{1b}'), "a file is no terminal: {line}");
    let (number, _) = line.split_once("session{id=")?.1.split_once('}')?;
    number.parse().ok()
}

/// The names of the spans of a line, the outermost first.
fn spans_of(line: &str, is_json: bool) -> Vec<String> {
    if is_json {
        let parsed: serde_json::Value = serde_json::from_str(line).unwrap();
        let spans = parsed["spans"].as_array().cloned().unwrap_or_default();
        return spans.iter().map(|span| span["name"].as_str().unwrap().to_owned()).collect();
    }
    let (_, spans) = line.split_once("session{").unwrap_or_default();
    let (spans, _) = spans.split_once(": ").unwrap_or_default();
    format!("session{{{spans}").split(':').map(str::to_owned).collect()
}
