//! What people are told about statements, over a small schema.

use sql::{Catalogue, Schema, SyntaxError, explain, explained};

const SCHEMA: &str = "
CREATE TABLE author (a_id int PRIMARY KEY, a_name text);
CREATE TABLE item (i_id int PRIMARY KEY, i_title text, i_stock int, i_a_id int REFERENCES author);
CREATE TABLE visits (id bigserial PRIMARY KEY, at timestamptz DEFAULT now(), who text);
CREATE FUNCTION odd(int) RETURNS int LANGUAGE c AS 'odd';
";

fn catalogue() -> Catalogue {
    Schema::from_ddl(SCHEMA).expect("the schema is SQL").catalogue()
}

fn told(text: &str) -> String {
    explain(text, true, &catalogue(), true).expect("the statement is SQL").join("\n")
}

/// The lines that begin with a word, without it.
fn lines<'a>(told: &'a str, word: &str) -> Vec<&'a str> {
    told.lines().filter_map(|line| line.strip_prefix(word)?.strip_prefix(' ')).map(str::trim).collect()
}

#[test]
fn an_update_by_key_is_told_by_its_rows() {
    let told = told("UPDATE item SET i_stock = i_stock - 1\n WHERE i_id = 5");
    assert_eq!(lines(&told, "template"), ["UPDATE item SET i_stock = i_stock - ? WHERE i_id = ?"]);
    assert!(lines(&told, "writes")[0].starts_with("item (i_stock): i_id = 5"), "{told}");
    assert_eq!(lines(&told, "class"), ["key: it conflicts with what touches the same rows"]);
    assert_eq!(
        lines(&told, "runs"),
        ["at any replica: where what it conflicts with runs, or ran last, else by load"]
    );
    assert_eq!(lines(&told, "as text"), ["the same on every replica"]);
}

#[test]
fn how_finely_a_statement_is_known_is_told() {
    for (text, class) in [
        ("DELETE FROM item WHERE i_id = 7", "key"),
        ("UPDATE item SET i_a_id = 2 WHERE i_id = 7", "key"),
        ("INSERT INTO item VALUES (1, 'x', 0, 2)", "key"),
        ("SELECT i_title FROM item WHERE i_a_id = 7", "group"),
        ("UPDATE item SET i_stock = 0 WHERE i_a_id = 7", "group"),
        ("DELETE FROM item WHERE i_a_id = 7", "group"),
        ("UPDATE item SET i_stock = 0 WHERE i_title = 'x'", "columns"),
        ("DELETE FROM item WHERE i_title = 'x'", "table"),
        ("INSERT INTO item SELECT a_id, a_name, 0, a_id FROM author", "table"),
    ] {
        let told = told(text);
        assert!(lines(&told, "class")[0].starts_with(&format!("{class}: ")), "{text}\n{told}");
    }
}

#[test]
fn what_draws_no_value_may_run_anywhere() {
    let anywhere = ["at any replica: where what it conflicts with runs, or ran last, else by load"];
    for text in ["UPDATE visits SET who = 'x' WHERE id = 1", "DELETE FROM visits WHERE id = 1"] {
        assert_eq!(lines(&told(text), "runs"), anywhere, "{text}");
    }
    for text in ["INSERT INTO visits (who) VALUES ('x')", "UPDATE visits SET id = DEFAULT WHERE id = 1"] {
        assert_ne!(lines(&told(text), "runs"), anywhere, "{text}");
    }
}

#[test]
fn parameters_need_no_values() {
    let told =
        told("SELECT i_title FROM item JOIN author ON a_id = i_a_id WHERE i_id = $1 OR i_id = ANY ($2)");
    let reads = lines(&told, "reads");
    assert!(reads.iter().any(|line| line.contains("i_id = $1") && line.contains("any of $2")), "{told}");
    let runs = lines(&told, "runs");
    assert_eq!(runs, ["at any replica that has applied what was written to author, item"]);
}

#[test]
fn what_makes_a_statement_unknown_is_said() {
    let told = told("SELECT odd(i_id) FROM item");
    assert_eq!(lines(&told, "unknown"), ["function odd may do anything"]);
    assert_eq!(lines(&told, "runs"), ["at the anchor: it may do anything"]);
    assert_eq!(lines(&told, "not as text"), ["function odd did not come with the server"]);
}

#[test]
fn what_would_be_replaced_is_said() {
    let told =
        told("INSERT INTO visits (who) VALUES ('x'); UPDATE item SET i_title = now()::text WHERE i_id = 1");
    let texts = lines(&told, "as text");
    assert_eq!(
        texts,
        [
            "the same on every replica once constants replace defaults",
            "the same on every replica once constants replace now()"
        ]
    );
    assert_eq!(told.lines().filter(|line| line.is_empty()).count(), 1, "a line between two statements");
}

#[test]
fn other_kinds_say_where_they_run() {
    for (text, word, what) in [
        (
            "ALTER TABLE item ADD COLUMN x int",
            "runs",
            "at the anchor, then on every replica, in the order of versions",
        ),
        (
            "CREATE DATABASE x",
            "refused",
            "creating, changing or dropping a database is not supported through Onecopy",
        ),
        ("SET x.y = 1", "runs", "in the session: it concerns settings, names or the transaction"),
        ("VACUUM", "runs", "on every replica for itself, without a version"),
    ] {
        assert_eq!(lines(&told(text), word), [what], "{text}");
    }
}

#[test]
fn the_statement_inside_is_found() {
    let inside = |text| explained(text).map(|found| found.statement);
    assert_eq!(inside("explain ( Routing ) SELECT ')' ;"), Some("SELECT ')'"));
    assert_eq!(inside("/* x */ EXPLAIN (ROUTING /* ( */, COSTS off) DELETE FROM t"), Some("DELETE FROM t"));
    let found =
        explained("EXPLAIN (ROUTING /* \u{e9} */) SELECT $3, '$4', $1, $tag$$5$tag$").expect("it is one");
    assert_eq!(found.plain, "EXPLAIN                   SELECT $3, '$4', $1, $tag$$5$tag$");
    assert!(found.parameters.iter().eq(&[1, 3]), "{:?}", found.parameters);
    assert_eq!(explained("EXPLAIN SELECT 1"), None);
    assert_eq!(explained("EXPLAIN (ROUTING"), None);
}

#[test]
fn mistakes_have_a_place() {
    let place = |text: &str| {
        let error: SyntaxError = explain(text, true, &catalogue(), true).expect_err(text);
        error.position(text, true)
    };
    assert_eq!(place("SELECT * FORM t"), Some(9));
    assert_eq!(place("SELECT a, FROM FROM t"), Some(10), "the word stands in it twice");
    assert_eq!(place("SELECT a FROM FROM t"), Some(14));
    assert_eq!(place("SELECT (1 "), Some(9));
    assert_eq!(place("SELECT 'abc"), Some(7));
}
