//! The statements of the four workloads, and a few hundred varied ones, with what is concluded about each.
//!
//! The statements are read from the workloads' own files and from `corpus/varied.sql`; the outcomes stand in
//! `golden/NAME.txt`. Run with `UPDATE_GOLDEN=1` to write them anew, then read the difference: a file that blesses an
//! unsound answer is worse than none.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use sql::{Analyzer, Catalogue, Limits};

#[path = "fixture/schema.rs"]
mod schema;
#[path = "fixture/show.rs"]
mod show;

use show::{Tally, outcome};

/// A statement with the name that its corpus gives it, if any.
struct Entry {
    /// A heading before it.
    heading: Option<String>,
    text: String,
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The distinct statements of a workload, each with the name of its query. The format is defined by the workloads'
/// README; a query without a text was given before.
fn workload(text: &str) -> Vec<Entry> {
    let mut entries = Vec::new();
    for section in text.split("-- query: ").skip(1) {
        let (name, rest) = section.split_once('\n').unwrap();
        let lines: Vec<&str> = rest.lines().take_while(|line| !line.starts_with("--")).collect();
        let sql = lines.join("\n");
        if let Some(sql) = sql.trim().strip_suffix(';') {
            let name = name.split(" (").next().unwrap();
            entries.push(Entry { heading: Some(format!("-- {name}")), text: sql.to_owned() });
        }
    }
    entries
}

/// Statements that are paragraphs, with headings between them.
fn paragraphs(text: &str) -> Vec<Entry> {
    let mut heading = None;
    let mut entries = Vec::new();
    for paragraph in text.split("\n\n") {
        let paragraph = paragraph.trim_end();
        if paragraph.starts_with("##") {
            heading = Some(format!("{paragraph}\n"));
        } else {
            entries.push(Entry { heading: heading.take(), text: paragraph.to_owned() });
        }
    }
    entries
}

fn fresh(entries: &[Entry], catalogue: &Catalogue) -> String {
    let mut analyzer = Analyzer::new(Limits::default());
    let mut tally = Tally::default();
    let mut text = String::new();
    for entry in entries {
        if let Some(heading) = &entry.heading {
            text += &format!("{heading}\n");
        }
        text += &format!("{}\n", entry.text);
        // The second time it is found in the cache, which must make no difference.
        let script = analyzer.script(entry.text.as_bytes(), true).unwrap();
        let again = analyzer.script(entry.text.as_bytes(), true).unwrap();
        let [part] = script.statements.as_slice() else { panic!("one statement expected: {}", entry.text) };
        let lines = outcome(part, &entry.text, catalogue, &mut tally);
        let found = outcome(&again.statements[0], &entry.text, catalogue, &mut Tally::default());
        assert_eq!(lines, found, "{}", entry.text);
        text += &format!("{lines}\n");
    }
    text + &format!("{tally}\n")
}

/// Held by each test: two threads must not be in the parser at once, and the schemas are parsed without its lock.
static ALONE: Mutex<()> = Mutex::new(());

fn check(name: &str, entries: &[Entry], ddl: &Path) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let fresh = fresh(entries, &schema::catalogue(&read(ddl)));
    let path = folder().join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    let golden = read(&path);
    for (line, (old, new)) in golden.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(old, new, "{name}, line {}", line + 1);
    }
    assert_eq!(golden.lines().count(), fresh.lines().count(), "{name}");
}

fn check_workload(name: &str, at_least: usize) {
    let folder: PathBuf = folder().join("../testbed/workloads").join(name);
    let entries = workload(&read(&folder.join("transactions.sql")));
    assert!(entries.len() >= at_least, "{name}: {}", entries.len());
    check(name, &entries, &folder.join("schema.sql"));
}

#[test]
fn tpcw() {
    check_workload("tpcw", 40);
}

#[test]
fn tpcc() {
    check_workload("tpcc", 30);
}

#[test]
fn rubis() {
    check_workload("rubis", 35);
}

#[test]
fn rubbos() {
    check_workload("rubbos", 45);
}

#[test]
fn varied() {
    let entries = paragraphs(&read(&folder().join("tests/corpus/varied.sql")));
    assert!(entries.len() > 450);
    check("varied", &entries, &folder().join("tests/corpus/shop.sql"));
}
