//! Onecopy's own statements mean the same under every search path.
//!
//! On a connection that has a client's settings, a statement of Onecopy's own passes `backend::assert_qualified`; on an
//! `OwnConnection` it need not. So few files of the stages of a session and of the shipping protocols send SQL; the table
//! below says what each of them sends.
//! A function that is installed in the servers sets a search path; the few that run too often for that name the schema of
//! everything.

use super::Finding;
use crate::tree::Tree;

/// Folders of `onecopy` whose connections are clients'.
const FOLDERS: [&str; 16] = [
    "accept",
    "classify",
    "client",
    "commit",
    "connect",
    "drive",
    "execute",
    "link",
    "place",
    "pool",
    "propagate",
    "relay",
    "session",
    "shipping",
    "transaction",
    "writeset",
];

/// Calls that send SQL.
const SENDING: [&str; 3] = [".simple(", "encode::query(", "encode::parse("];

/// Files that may use them, and what they send.
const SENDERS: [(&str, &str); 15] = [
    ("commit.rs", "own statements, checked"),
    ("client/credentials.rs", "on a connection of Onecopy's own"),
    ("pool/state_sync.rs", "the client's settings"),
    ("pool/opening.rs", "own statements, checked"),
    ("pool/server.rs", "own statements, checked, and the client's"),
    ("session/simple.rs", "the client's text, to be parsed only"),
    ("relay/work.rs", "the client's text"),
    ("shipping/connections.rs", "own statements, checked"),
    ("shipping/control_connection.rs", "own statements, checked, and the client's settings"),
    ("shipping/copy.rs", "the client's text in a transaction"),
    ("shipping/lane.rs", "own statements, checked, and the client's"),
    ("shipping/recovery.rs", "on a connection of Onecopy's own"),
    ("shipping/replayed.rs", "on a connection of Onecopy's own"),
    ("shipping/reply.rs", "own statements, checked"),
    ("shipping/shipment.rs", "the client's text"),
];

/// Files that are installed in every server.
const INSTALLED: [&str; 3] = [
    "crates/onecopy/src/capture/install.sql",
    "crates/onecopy/src/capture/carriage.sql",
    "crates/onecopy/src/capture/sandbox.sql",
];

/// The search path of its functions.
const PATH: &str = "SET search_path = pg_catalog, pg_temp";

/// Functions that run for each row, statement or transaction, and name every schema; `tests/rights.rs` holds them to that.
const FREQUENT: [&str; 8] = [
    // It has to run with the path of a statement's author.
    "onecopy.run",
    // Code of users that it calls has the path of the sandbox.
    "onecopy.read_as",
    // For each row of a table. It names the schema of everything.
    "onecopy.part",
    "onecopy.sequences",
    "onecopy.xact_status",
    "onecopy_capture.cap",
    "onecopy_capture.cap_inserted",
    "onecopy_capture.cap_truncate",
];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.rust_files() {
        let Some(name) = path.strip_prefix("crates/onecopy/src/") else { continue };
        let may_send = SENDERS.iter().any(|(file, _)| *file == name) || crate::tree::is_test_file(path);
        let folder = name.split(['/', '.']).next().unwrap_or_default();
        if may_send || !FOLDERS.contains(&folder) {
            continue;
        }
        for (line, text) in text.lines().enumerate() {
            if let Some(word) = SENDING.iter().find(|word| text.contains(**word)) {
                let what =
                    format!("`{word}..)` sends SQL unchecked: use Server::ask, query_own or own_query");
                findings.push(Finding::line(path, line + 1, what));
            }
        }
    }
    for file in INSTALLED {
        check_functions(file, tree.text(file).unwrap_or_default(), &mut findings);
    }
    findings
}

fn check_functions(file: &str, sql: &str, findings: &mut Vec<Finding>) {
    for definition in sql.split("\nCREATE OR REPLACE FUNCTION ").skip(1) {
        let name = definition.split('(').next().unwrap_or_default();
        let head = definition.split("$$").next().unwrap_or_default();
        if !head.contains(PATH) && !FREQUENT.contains(&name) {
            findings.push(Finding::file(
                file,
                format!("{name} runs under the caller's search path: add `{PATH}`"),
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sent_unchecked_is_found() {
        let texts = [
            ("crates/onecopy/src/place/a.rs", "connection.simple(sql);\nserver.ask(sql);"),
            ("crates/onecopy/src/pool/state_sync.rs", "connection.simple(sql);"),
            ("crates/onecopy/src/shipping/b/c.rs", "encode::query(out, sql);"),
            ("crates/onecopy/src/replica/d.rs", "encode::query(out, sql);"),
        ];
        let found = check(&Tree::of(&texts));
        assert_eq!(found.iter().map(|it| it.path.as_str()).collect::<Vec<_>>(), [texts[0].0, texts[2].0]);
    }

    #[test]
    fn a_function_without_a_path_is_found() {
        let sql = "\nCREATE OR REPLACE FUNCTION onecopy.a(x oid) RETURNS text LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $$\n\
                   SELECT 1 $$;\nCREATE OR REPLACE FUNCTION onecopy.b() RETURNS text LANGUAGE sql AS $$\n\
                   SELECT 'SET search_path = pg_catalog, pg_temp' $$;";
        let found = check(&Tree::of(&[(INSTALLED[0], sql)]));
        assert_eq!(found.len(), 1);
        assert!(found[0].text.starts_with("onecopy.b "));
    }
}
