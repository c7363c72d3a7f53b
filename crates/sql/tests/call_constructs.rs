//! No construct of PL/pgSQL hides a row that a CALL or DO writes.
//!
//! Each procedure would mislead a reader who overlooks its one construct. The rows that a call writes, by PostgreSQL's
//! rules, have to be among its accesses.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use sql::accesses::{Arguments, Rows};
use sql::{Analyzer, Catalogue, Limits};

#[path = "fixture/schema.rs"]
mod schema;
#[path = "fixture/written.rs"]
mod written;

use written::{covers, touched, written};

/// A table, and a procedure whose body is written into it.
fn with_body(arguments: &str, body: &str) -> Catalogue {
    schema::catalogue(&format!(
        "CREATE TABLE t (k int PRIMARY KEY, g int, v int);
         CREATE TABLE u (k int PRIMARY KEY, v int);
         CREATE FUNCTION wipe() RETURNS int LANGUAGE plpgsql AS $$ BEGIN DELETE FROM u; RETURN 1; END $$;
         CREATE PROCEDURE back(INOUT x int) LANGUAGE plpgsql AS $$ BEGIN x := 9; END $$;
         CREATE PROCEDURE into_t(a int, b int) LANGUAGE sql AS 'UPDATE t SET v = 1 WHERE k = b';
         CREATE PROCEDURE p({arguments}) LANGUAGE plpgsql AS $body$ {body} $body$;"
    ))
}

/// Nothing that a call spares has to be known.
const ANY: &[i64] = &[];

/// The arguments and the body of a procedure, and those of a call; keys of rows that it may write, and of rows that it
/// is known to spare.
type Case = (&'static str, &'static str, &'static str, &'static [i64], &'static [i64]);

/// In each body something gives a variable another value than the argument, or runs what no statement shows; or it is
/// one that is understood.
const CASES: &[Case] = &[
    ("a int", "BEGIN UPDATE t SET v = 1 WHERE k = a; END", "3", &[3], &[4]),
    ("a int", "BEGIN a := 9; UPDATE t SET v = 1 WHERE k = a; END", "3", &[3, 9], ANY),
    ("a int", "BEGIN $1 := 9; UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "DECLARE b ALIAS FOR a; BEGIN b := 9; UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "DECLARE b ALIAS FOR $1; BEGIN b := 9; UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "BEGIN SELECT max(k) INTO a FROM u; UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "BEGIN p.a := 9; UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "BEGIN GET DIAGNOSTICS a = ROW_COUNT; UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "BEGIN CALL back(a); UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "BEGIN CALL back(x => a); UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "DECLARE a int := 9; BEGIN UPDATE t SET v = 1 WHERE k = a; END", "3", &[9], ANY),
    ("a int", "DECLARE b int := a; BEGIN UPDATE t SET v = 1 WHERE k = b; END", "3", &[3], &[4]),
    ("a int", "DECLARE b int := a; BEGIN b := b + 1; UPDATE t SET v = 1 WHERE k = b; END", "3", &[4], ANY),
    ("a int", "DECLARE b bool := true; BEGIN UPDATE t SET v = 1 WHERE k = a OR b; END", "3", &[9], ANY),
    ("a int", "BEGIN FOR a IN 5..7 LOOP UPDATE t SET v = 1 WHERE k = a; END LOOP; END", "3", &[5, 7], &[8]),
    (
        "a int",
        "BEGIN FOR i IN 5..7 LOOP i := 9; UPDATE t SET v = 1 WHERE k = i; END LOOP; END",
        "3",
        &[9],
        &[8],
    ),
    ("a int", "BEGIN FOR i IN 5..a LOOP UPDATE t SET v = 1 WHERE k = i; END LOOP; END", "6", &[5, 6], ANY),
    (
        "a int",
        "BEGIN FOR a IN SELECT k FROM u LOOP UPDATE t SET v = 1 WHERE k = a; END LOOP; END",
        "3",
        &[9],
        ANY,
    ),
    (
        "a int[]",
        "DECLARE x int; BEGIN FOREACH x IN ARRAY a LOOP UPDATE t SET v = 1 WHERE k = x; END LOOP; END",
        "'{5,7}'",
        &[5, 7],
        &[6],
    ),
    (
        "a int[]",
        "DECLARE x int; BEGIN FOREACH x IN ARRAY a LOOP x := 9; UPDATE t SET v = 1 WHERE k = x; END LOOP; END",
        "'{5,7}'",
        &[9],
        &[6],
    ),
    ("a int[]", "BEGIN a[1] := 9; UPDATE t SET v = 1 WHERE k = ANY (a); END", "'{5,7}'", &[9], ANY),
    ("a int[]", "BEGIN UPDATE t SET v = 1 WHERE k = ANY (a); END", "'{5,7}'", &[5, 7], &[6]),
    ("VARIADIC a int[]", "BEGIN UPDATE t SET v = 1 WHERE k = ANY (a); END", "5, 7", &[5, 7], ANY),
    (
        "a int[], b int[]",
        "BEGIN UPDATE t SET v = 1 FROM unnest(a, b) AS x(k, g) WHERE t.k = x.k AND t.g = x.g; END",
        "'{5,7}', '{1,1}'",
        &[5, 7],
        &[6],
    ),
    (
        "OUT a int",
        "BEGIN UPDATE t SET v = 1 WHERE k IS NOT DISTINCT FROM a OR a IS NULL; END",
        "3",
        &[9],
        ANY,
    ),
    (
        "t int",
        "#variable_conflict use_variable DECLARE t t; BEGIN UPDATE t SET v = 1 WHERE t.k = 3; END",
        "3",
        &[9],
        ANY,
    ),
    (
        "k int",
        "#variable_conflict use_variable <<t>> DECLARE k int; BEGIN UPDATE t SET v = 1 WHERE t.k = 3; END",
        "3",
        &[9],
        ANY,
    ),
    ("a int", "BEGIN EXECUTE 'UPDATE t SET v = 1'; END", "3", &[9], ANY),
    ("k int", "BEGIN UPDATE t SET v = 1 WHERE k = k; END", "3", &[9], ANY),
    ("k int", "#variable_conflict use_column BEGIN UPDATE t SET v = 1 WHERE t.k = k; END", "3", &[9], ANY),
    ("g int", "#variable_conflict use_variable BEGIN UPDATE t SET v = 1 WHERE g = 3; END", "3", &[9], ANY),
    ("a int", "BEGIN CALL into_t(4, a); END", "3", &[3], &[4]),
    ("a int, b int DEFAULT 9", "BEGIN UPDATE t SET v = 1 WHERE k = b; END", "3", &[9], ANY),
    ("a int, b int", "BEGIN UPDATE t SET v = 1 WHERE k = b; END", "b => 3, a => 4", &[3], &[4]),
    (
        "a int",
        "BEGIN IF a IS NULL THEN UPDATE t SET v = 1 WHERE k = 5; ELSE UPDATE t SET v = 1 WHERE k = 6; END IF; END",
        "3",
        &[6],
        &[5],
    ),
    (
        "a int",
        "BEGIN IF a > 2 THEN UPDATE t SET v = 1 WHERE k = 5; ELSIF a > 1 THEN UPDATE t SET v = 1 WHERE k = 6; \
         ELSE UPDATE t SET v = 1 WHERE k = 7; END IF; END",
        "2",
        &[6],
        &[5, 7],
    ),
    (
        "a int",
        "BEGIN IF NOT a > 2 THEN UPDATE t SET v = 1 WHERE k = 5; ELSE UPDATE t SET v = 1 WHERE k = 6; END IF; END",
        "NULL",
        &[6],
        &[5],
    ),
    (
        "a int",
        "BEGIN a := NULL; IF a IS NULL THEN UPDATE t SET v = 1 WHERE k = 5; END IF; END",
        "3",
        &[5],
        ANY,
    ),
    ("a int", "DECLARE b int := 2.6; BEGIN UPDATE t SET v = 1 WHERE k = b; END", "3", &[3], ANY),
    ("a char(1)", "BEGIN UPDATE t SET v = 1 WHERE k = a::int; END", "3", &[3], ANY),
];

#[test]
fn no_construct_hides_a_row() {
    for (arguments, body, call, writes, spares) in CASES {
        let catalogue = with_body(arguments, body);
        let text = format!("CALL p({call})");
        let touched = touched(&text, &catalogue);
        for k in *writes {
            let row = written("t", &[("k", *k), ("g", 1)], &["v"]);
            assert!(
                covers(&touched, &row, &catalogue),
                "({arguments}) {body}: {text} writes {k}: {touched:?}"
            );
        }
        for k in *spares {
            let row = written("t", &[("k", *k), ("g", 1)], &["v"]);
            assert!(
                !covers(&touched, &row, &catalogue),
                "({arguments}) {body}: {text} spares {k}: {touched:?}"
            );
        }
    }
}

/// The parser's tree lacks the first value of a record.
#[test]
fn what_the_tree_does_not_show_is_seen_all_the_same() {
    let row = written("u", &[("k", 1)], &[]);
    for body in [
        "DECLARE r record := ROW(wipe()); BEGIN UPDATE t SET v = 1 WHERE k = a; END",
        "DECLARE r t := (SELECT t FROM t WHERE wipe() = 1 LIMIT 1); BEGIN UPDATE t SET v = 1 WHERE k = a; END",
        "BEGIN PERFORM wipe(); UPDATE t SET v = 1 WHERE k = a; END",
    ] {
        let catalogue = with_body("a int", body);
        assert!(covers(&touched("CALL p(3)", &catalogue), &row, &catalogue), "{body}");
    }
}

#[test]
fn procedures_with_transaction_control_stay_unknown() {
    for body in
        ["BEGIN COMMIT; END", "BEGIN ROLLBACK; END", "BEGIN EXECUTE 'x'; END", "BEGIN SET jit = off; END"]
    {
        let catalogue = with_body("a int", body);
        assert!(touched("CALL p(3)", &catalogue).unbounded.is_some(), "{body}");
        assert!(touched("CALL unheard_of(3)", &catalogue).unbounded.is_some());
    }
}

#[test]
fn a_block_is_known_by_its_own_text() {
    let catalogue = with_body("a int", "BEGIN END");
    let covers_key =
        |text: &str, k| covers(&touched(text, &catalogue), &written("t", &[("k", k)], &["v"]), &catalogue);
    let block = "DO $$ BEGIN UPDATE t SET v = 1 WHERE k = 3; END $$";
    assert!(covers_key(block, 3) && !covers_key(block, 4));
    assert!(covers_key("DO LANGUAGE plpgsql 'BEGIN CALL into_t(1, 4); END'", 4));
    assert!(touched("DO $$ BEGIN COMMIT; END $$", &catalogue).unbounded.is_some());
    assert!(touched("DO LANGUAGE plperl 'x'", &catalogue).unbounded.is_some());
    // Blocks that differ in their texts only are no templates of each other.
    let mut analyzer = Analyzer::new(Limits::default());
    for (text, k) in [(block.to_owned(), 3), (block.replace('3', "4"), 4), (block.to_owned(), 3)] {
        let script = analyzer.script(text.as_bytes(), true).unwrap();
        let touched = script.statements[0].statement.outline(&catalogue).bind(&Arguments::default());
        assert!(covers(&touched, &written("t", &[("k", k)], &["v"]), &catalogue), "{text}");
    }
}

#[test]
fn a_cursor_takes_its_arguments_when_it_is_opened() {
    let body = "DECLARE c CURSOR (x int) FOR SELECT k FROM t WHERE k = x FOR UPDATE; r record; \
                BEGIN FOR r IN c(a) LOOP NULL; END LOOP; END";
    let catalogue = with_body("a int", body);
    let touched = touched("CALL p(3)", &catalogue);
    assert!(
        touched.unbounded.is_some() || touched.locks.iter().any(|lock| lock.rows == Rows::All),
        "{touched:?}"
    );
}

/// A function of the procedure's name takes other arguments than the procedure.
#[test]
fn a_function_of_the_same_name_is_another_one() {
    let ddl = "CREATE TABLE t (k int PRIMARY KEY, g int, v int);
         CREATE FUNCTION p(a int) RETURNS int LANGUAGE plpgsql
             AS $$ BEGIN UPDATE t SET v = 1 WHERE k = a; RETURN 1; END $$;
         CREATE PROCEDURE p(a int, b int) LANGUAGE plpgsql AS $$ BEGIN END $$;";
    let catalogue = schema::catalogue(ddl);
    let touched = touched("CALL p(5, p(6))", &catalogue);
    assert!(covers(&touched, &written("t", &[("k", 6)], &["v"]), &catalogue), "{touched:?}");
}
