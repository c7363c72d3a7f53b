//! Promise: every change of data on one replica reaches the others. Each case of the matrix runs through Onecopy and on one
//! plain server. Either both do the same and all replicas are identical, or Onecopy refuses it with the SQLSTATE given here.
//! The resulting table is a part of `docs/reference/compatibility.md` (`UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "matrix/cases.rs"]
mod cases;
mod cluster;

use std::fmt::Write;
use std::path::Path;

use cases::{CASES, Outcome};
use cluster::Cluster;
use cluster::plain::Plain;
use cluster::programs::{psql, text};

const DOCS: &str = "../../docs/reference/compatibility.md";
const BEGIN: &str = "<!-- matrix: written by crates/onecopy/tests/matrix.rs -->\n";
const END: &str = "<!-- end of matrix -->\n";

#[tokio::test]
async fn what_changes_data_travels_or_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let plain = Plain::start().await;
    let mut wrong = Vec::new();
    for (name, outcome, script) in CASES {
        let script = format!(
            "\\set VERBOSITY sqlstate\nset client_min_messages = error;\n\\pset null NULL\ncreate schema c; set search_path = c, public;\n{script}\n"
        );
        let ours = text(&psql(cluster.port, &script).await);
        let complaint = match outcome {
            Outcome::Same => {
                let theirs = text(&psql(plain.port, &script).await);
                (ours != theirs).then(|| format!("--- onecopy:\n{ours}\n--- PostgreSQL:\n{theirs}"))
            }
            Outcome::Own => ours.contains("ERROR").then(|| ours.clone()),
            Outcome::Refused(code) => {
                let errors: Vec<_> = ours.lines().filter(|line| line.contains("ERROR: ")).collect();
                let only = matches!(errors.as_slice(), [error] if error.ends_with(code));
                (!only).then(|| format!("no error {code}, or another one:\n{ours}"))
            }
        };
        wrong.extend(complaint.map(|text| format!("=== {name}\n{text}")));
        let verified = cluster.try_verify().await;
        wrong.extend(verified.err().map(|text| format!("=== {name}\nreplicas differ: {text}")));
        let clean = "drop schema if exists c cascade";
        let _ = tokio::join!(psql(cluster.port, clean), psql(plain.port, clean));
    }
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), CASES.len(), wrong.join("\n"));
    cluster.stop().await;
    compare_docs();
}

fn compare_docs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(DOCS);
    let docs = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = docs.split_once(BEGIN).expect("the documentation has a place for the table");
    let (present, after) = rest.split_once(END).expect("the table has an end");
    let table = table();
    cluster::folder::say(&table);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{table}{END}{after}")).unwrap();
    } else {
        assert_eq!(present, table, "run this test with UPDATE_DOCS=1");
    }
}

fn table() -> String {
    let mut table = "| case | outcome |\n|---|---|\n".to_owned();
    for (name, outcome, _) in CASES {
        let outcome = match outcome {
            Outcome::Same => "as on one server, replicas identical".to_owned(),
            Outcome::Own => "works, replicas identical".to_owned(),
            Outcome::Refused(code) => format!("refused, {code}"),
        };
        writeln!(table, "| {name} | {outcome} |").unwrap();
    }
    table
}
