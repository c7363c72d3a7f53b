//! The workloads are read as they are meant, and a real server takes every statement of them.

use std::fmt::Write as _;

use super::*;
use crate::account::Account;
use crate::interrupt::Interrupt;
use crate::postgres::{Binaries, Likeness, Plain};
use crate::scratch::Scratch;

#[test]
fn a_file_is_read_as_its_readme_says() {
    let text = "-- words: and more\n\n-- interaction: Read\n-- query: one (when new)\nSELECT 1;\n\n\
                -- interaction: Write\n-- begin: T\n-- query: two\nUPDATE t\nSET a = 1;\n-- query: one\n-- commit\n";
    let read = transactions_of(text).unwrap();
    let queries: Vec<(&str, &str)> = read.queries.iter().map(|(name, sql)| (*name, sql.as_str())).collect();
    assert_eq!(queries, [("one", "SELECT 1"), ("two", "UPDATE t\nSET a = 1")]);
    let wanted = [
        Interaction { name: "Read", steps: vec![Step::Query("one")] },
        Interaction {
            name: "Write",
            steps: vec![Step::Begin("T"), Step::Query("two"), Step::Query("one"), Step::Commit],
        },
    ];
    assert_eq!(read.interactions, wanted);
}

#[test]
fn a_file_that_is_not_so_is_refused() {
    let cases = [
        ("SELECT 1;\n", 1),
        ("-- query: a\nSELECT 1;\n", 1),
        ("-- interaction: I\n-- query: a\n", 2),
        ("-- interaction: I\n-- query: a\n-- query: b\nSELECT 1;\n", 3),
        ("-- interaction: I\n-- query: a\nSELECT 1;\nSELECT 2;\n", 4),
        ("-- interaction: I\n-- query: a\nSELECT 1;\n-- query: a\nSELECT 2;\n", 5),
        ("-- interaction: I\n-- query: a\nSELECT 1;\n-- query: a\nSELECT 2\n", 5),
        ("-- interaction: I\n-- begin: T\n-- begin: T\n", 3),
        ("-- interaction: I\n-- begin: T\n", 2),
        ("-- interaction: I\n-- begin: T\n-- interaction: J\n", 3),
        ("-- interaction: I\n-- commit\n", 2),
    ];
    for (text, line) in cases {
        assert_eq!(transactions_of(text).err().map(|error| error.line), Some(line), "{text}");
    }
}

#[test]
fn a_server_takes_every_statement() {
    let (scratch, interrupt) = (Scratch::new().unwrap(), Interrupt::default());
    let binaries = Binaries::find(None).unwrap();
    let account = Account::choose().unwrap();
    let server = Plain::start(&binaries, account, &Likeness::bare(), &scratch, &interrupt).unwrap();
    let mut statements = 0;
    for workload in all() {
        let mut script =
            format!("CREATE SCHEMA {0}; SET search_path = {0};\n{1}", workload.name, workload.schema);
        for (name, sql) in &workload.queries {
            writeln!(script, "PREPARE \"{name}\" AS {sql};").unwrap();
        }
        script.push_str("SELECT count(*) FROM pg_prepared_statements");
        let said = binaries.ask(&server.endpoint, &script, &scratch, &interrupt).unwrap();
        assert_eq!(said.trim(), workload.queries.len().to_string(), "{}", workload.name);
        statements += workload.queries.len();
    }
    assert!(statements > 150, "{statements}");
}
