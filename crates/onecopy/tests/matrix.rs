//! Promise: every change of data on one replica reaches the others. Each case of the matrix runs through Onecopy and on one
//! plain server. Either both do the same and all replicas are identical, or Onecopy refuses it with the SQLSTATE given here.
//! The resulting table is a part of `docs/reference/compatibility.md` (`UPDATE_DOCS=1` writes it).

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "matrix/cases.rs"]
mod cases;
mod cluster;
#[path = "matrix/compare.rs"]
mod compare;

use std::fmt::Write;
use std::path::Path;

use cases::{CASES, Outcome};
use cluster::Cluster;
use cluster::plain::Plain;

const DOCS: &str = "../../docs/reference/compatibility.md";
const BEGIN: &str = "<!-- matrix: written by crates/onecopy/tests/matrix.rs -->\n";
const END: &str = "<!-- end of matrix -->\n";

#[tokio::test]
async fn what_changes_data_travels_or_is_refused() {
    let mut cluster = Cluster::start(3).await;
    let plain = Plain::start().await;
    let mut wrong = Vec::new();
    for case in CASES {
        wrong.extend(compare::complaints(&cluster, &plain, case).await);
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
