//! Statements of `golden/determinism.txt` with what is concluded about their determinism.
//!
//! The form of the file is that of `golden.rs`; run with `UPDATE_GOLDEN=1` to write the outcomes anew, then read the
//! difference.

use std::collections::BTreeMap;
use std::path::Path;

use sql::{
    Action, Catalogue, Clock, Column, ColumnDefault, Contents, DatabaseId, Determinism, Key, Name, Parent,
    Reference, RewriteError, Schema, Subject, SyntaxError, Table, Volatility, Why, determinism,
};

/// A column of a type: built-in OIDs by name.
fn column(name: &str, of: &str) -> Column {
    let (type_oid, type_mod) = match of {
        "int" => (23, -1),
        "bigint" => (20, -1),
        "text" => (25, -1),
        "varchar" => (1043, -1),
        "numeric" => (1700, -1),
        "money_amount" => (1700, (10 << 16) + 2 + 4),
        "float" => (701, -1),
        "timestamptz" => (1184, -1),
        "date" => (1082, -1),
        "uuid" => (2950, -1),
        "jsonb" => (3802, -1),
        other => panic!("{other}"),
    };
    Column { name: name.to_owned(), type_oid, type_mod, collation_deterministic: true, ..Column::default() }
}

/// A table from `name type` pairs; the first column is the primary key.
fn table(id: u32, name: &str, columns: &str) -> Table {
    let mut columns: Vec<Column> = columns
        .split(", ")
        .map(|one| one.split_once(' ').map(|(name, of)| column(name, of)).expect("a name and a type"))
        .collect();
    columns[0].not_null = true;
    let primary = Key { columns: vec![0], primary: true, unique: true, ..Key::default() };
    Table {
        id: DatabaseId::FIRST.table(id),
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns,
        primary_key: vec![0],
        keys: vec![primary],
        ..Table::default()
    }
}

fn reference(parent: u32, on_delete: Action) -> Reference {
    Reference {
        columns: vec![1],
        parent: DatabaseId::FIRST.table(parent),
        parent_columns: vec![0],
        on_delete,
        on_update: Action::NoAction,
        deferrable: false,
        matches_full: false,
        period: false,
    }
}

fn tables() -> Vec<Table> {
    let mut serial = table(3, "orders", "id int, customer int, created timestamptz, note text");
    serial.columns[0].default = ColumnDefault::Sequence(Name::qualified("public", "orders_id_seq"));
    serial.columns[2].default = ColumnDefault::Expression("now()".to_owned());
    serial.columns[3].default = ColumnDefault::Constant("none".to_owned());
    let mut uuids = table(4, "tokens", "id uuid, x int");
    uuids.columns[0].default = ColumnDefault::Expression("gen_random_uuid()".to_owned());
    let mut always = table(5, "numbered", "id bigint, x int");
    always.columns[0].default = ColumnDefault::Sequence(Name::qualified("public", "numbered_id_seq"));
    always.columns[0].identity_always = true;
    let mut child = table(7, "child", "id int, pid int");
    child.references = vec![reference(6, Action::Cascade)];
    let mut grandchild = table(8, "grandchild", "id int, pid int");
    grandchild.references = vec![reference(7, Action::Cascade)];
    grandchild.user_triggers = true;
    let mut other = table(2, "s", "id int, tid int, v text, k text");
    other.columns[3].not_null = true;
    other.keys.push(Key { columns: vec![3], unique: true, ..Key::default() });
    let t = "id int, a int, b text, n numeric, m money_amount, f float, ts timestamptz, d date, j jsonb";
    vec![
        table(1, "t", t),
        other,
        serial,
        uuids,
        always,
        table(6, "parent", "id int, x int"),
        child,
        grandchild,
        Table { user_triggers: true, ..table(9, "triggered", "id int, x int") },
        Table { row_security: true, ..table(10, "secured", "id int, x int") },
        Table { user_types: true, coded_types: true, ..table(11, "fancy", "id int, x int") },
        table(12, "part1", "id int, x int"),
        table(13, "v", "id varchar, x int"),
        table(14, "stats", "day date, total int, name text"),
    ]
}

fn catalogue() -> Catalogue {
    let functions = [
        (
            Volatility::Immutable,
            "lower upper abs length sum count max min avg row_number rank string_agg array_agg",
        ),
        (
            Volatility::Immutable,
            "round floor unnest md5 bool_or lag percentile_cont json_agg coalesce jsonb_set",
        ),
        (
            Volatility::Stable,
            "now transaction_timestamp statement_timestamp to_char date_trunc concat age timezone",
        ),
        (
            Volatility::Stable,
            "current_setting generate_series to_tsvector extract inet_client_addr txid_current",
        ),
        (Volatility::Stable, "date timestamptz pg_get_userbyid current_schema format"),
        (
            Volatility::Volatile,
            "random clock_timestamp gen_random_uuid nextval setval timeofday pg_sleep currval",
        ),
    ];
    let builtin = functions
        .iter()
        .flat_map(|(volatility, names)| names.split(' ').map(|name| (name.to_owned(), *volatility)));
    Catalogue::new(Contents {
        generation: 1,
        tables: tables(),
        parents: vec![Parent {
            schema: "public".to_owned(),
            name: "whole".to_owned(),
            leaves: vec![DatabaseId::FIRST.table(12)],
        }],
        other_relations: vec![("public".to_owned(), "a_view".to_owned())],
        builtin_functions: builtin.collect(),
        user_functions: vec!["my_function".to_owned()],
        user_operators: vec!["@@@".to_owned()],
        user_types: vec!["mood".to_owned()],
        ..Contents::default()
    })
}

const CLOCK: Clock = Clock { transaction_us: 1_000_000, statement_us: 2_000_000 };

/// The answer in lines.
fn outcome(result: Result<Determinism, SyntaxError>) -> String {
    let rewrite = match result {
        Err(error) => return format!("=> error: {error}\n"),
        Ok(Determinism::Deterministic) => return "=> deterministic\n".to_owned(),
        Ok(Determinism::No(reasons)) => {
            let lines: Vec<String> = reasons.iter().map(|why| format!("=> no: {why}\n")).collect();
            return lines.concat();
        }
        Ok(Determinism::AfterRewrite(rewrite)) => rewrite,
    };
    let mut lines = String::new();
    for evaluate in rewrite.evaluate() {
        lines.push_str(&format!("=> evaluate {}: {}\n", evaluate.type_name, evaluate.expression));
    }
    let values: Vec<String> = (1..=rewrite.evaluate().len()).map(|number| format!("v{number}")).collect();
    let values: Vec<Option<&str>> = values.iter().map(|value| Some(value.as_str())).collect();
    let constant = rewrite.with_constants(CLOCK, &values).expect("as many values as expressions");
    lines.push_str(&format!("=> as {constant}\n"));
    let (text, binds) = rewrite.with_parameters(0);
    lines.push_str(&format!("=> or {text} {binds:?}\n"));
    lines
}

fn judged(text: &str, catalogue: &Catalogue) -> String {
    outcome(determinism(&Subject::new(&text.replace('\n', " ")), catalogue))
}

/// What a rewrite makes must need no other, whichever way it is written.
fn rewrites_settle(text: &str, catalogue: &Catalogue) -> bool {
    let Ok(Determinism::AfterRewrite(rewrite)) = determinism(&Subject::new(text), catalogue) else {
        return false;
    };
    let values = vec![Some("1"); rewrite.evaluate().len()];
    let constant = rewrite.with_constants(CLOCK, &values).expect("as many values as expressions");
    let (parametric, _) = rewrite.with_parameters(0);
    for text in [constant, parametric] {
        assert_eq!(determinism(&Subject::new(&text), catalogue), Ok(Determinism::Deterministic), "{text}");
    }
    true
}

#[test]
fn what_was_rewritten_is_deterministic() {
    let catalogue = catalogue();
    let golden = include_str!("golden/determinism.txt");
    let texts = golden.split("\n\n").filter_map(|paragraph| paragraph.split("\n=>").next());
    let rewritten = texts.filter(|text| rewrites_settle(&text.replace('\n', " "), &catalogue)).count();
    assert!(rewritten >= 20, "{rewritten}");
}

#[test]
fn every_statement_of_the_other_corpus_has_an_answer() {
    let catalogue = catalogue();
    let golden = include_str!("golden/statements.txt");
    let (mut judged, mut unexplained) = (0, 0);
    for paragraph in golden.split("\n\n").filter(|paragraph| !paragraph.starts_with("##")) {
        let text = paragraph.split("\n=>").next().unwrap_or_default().trim_end_matches(';');
        if let Ok(Determinism::No(reasons)) = determinism(&Subject::new(text), &catalogue) {
            assert!(!reasons.is_empty(), "{text}");
            unexplained += usize::from(reasons.iter().all(|why| matches!(why, Why::NotUnderstood(_))));
        }
        judged += 1;
    }
    assert!(unexplained * 20 < judged, "{unexplained} of {judged}");
}

/// The statements of a golden file of the corpora: what stands before each outcome.
fn corpus(golden: &str) -> Vec<String> {
    let statement = |paragraph: &str| {
        let lines = paragraph.lines().take_while(|line| !line.starts_with("=>"));
        let lines: Vec<&str> =
            lines.filter(|line| !line.starts_with("##") && !line.starts_with("-- ")).collect();
        lines.join("\n")
    };
    golden.split("\n\n").map(statement).filter(|text| !text.trim().is_empty()).collect()
}

/// One word for an answer, and what it is about.
fn short(answer: Result<Determinism, SyntaxError>) -> (&'static str, String) {
    match answer {
        Err(error) => ("error", error.to_string()),
        Ok(Determinism::Deterministic) => ("same", String::new()),
        Ok(Determinism::AfterRewrite(rewrite)) => {
            let calls: Vec<&str> = rewrite.replaced().filter(|call| !call.is_empty()).collect();
            ("rewrite", format!("{} evaluated {}", calls.join(" "), rewrite.evaluate().len()))
        }
        Ok(Determinism::No(reasons)) => {
            ("no", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))
        }
    }
}

/// Every statement of the workloads and of the varied ones: `golden/determinism_corpora.txt` has the answers, and how
/// many there are of each kind.
#[test]
fn corpora_are_judged_as_written() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut fresh = String::new();
    for name in ["tpcw", "tpcc", "rubis", "rubbos", "varied"] {
        let schema = match name {
            "varied" => root.join("tests/corpus/shop.sql"),
            _ => root.join("../testbed/workloads").join(name).join("schema.sql"),
        };
        let read = |path: &Path| std::fs::read_to_string(path).expect("it is part of the repository");
        let catalogue = Schema::from_ddl(&read(&schema)).expect("it is SQL").catalogue();
        let golden = read(&root.join("tests/golden").join(format!("{name}.txt")));
        let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
        fresh.push_str(&format!("## {name}\n\n"));
        for text in corpus(&golden) {
            let (word, about) = short(determinism(&Subject::new(text.trim_end_matches(';')), &catalogue));
            *tally.entry(word).or_default() += 1;
            fresh.push_str(format!("{text}\n=> {word} {about}").trim_end());
            fresh.push_str("\n\n");
        }
        fresh.push_str(&format!("## {name}: {tally:?}\n\n"));
    }
    let fresh = format!("{}\n", fresh.trim_end());
    let path = root.join("tests/golden/determinism_corpora.txt");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &fresh).expect("the repository can be written");
        return;
    }
    let golden = std::fs::read_to_string(&path).expect("it is part of the repository");
    for (line, (old, new)) in golden.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(old, new, "line {}", line + 1);
    }
    assert_eq!(golden.lines().count(), fresh.lines().count());
}

#[test]
fn parameters_are_numbered_after_those_that_are_there() {
    let catalogue = catalogue();
    let text = "UPDATE t SET ts = now() WHERE id = $2 AND a = $1";
    let Ok(Determinism::AfterRewrite(rewrite)) = determinism(&Subject::new(text), &catalogue) else {
        panic!("now() is rewritten")
    };
    assert!(rewrite.with_parameters(0).0.contains("($3::pg_catalog.timestamptz)"));
    assert!(rewrite.with_parameters(5).0.contains("($6::pg_catalog.timestamptz)"));
    assert_eq!(
        rewrite.with_constants(CLOCK, &[Some("x")]),
        Err(RewriteError::Values { given: 1, wanted: 0 })
    );
}

#[test]
fn a_parameter_of_another_type_pins_no_row() {
    let catalogue = catalogue();
    let judged = |oid: u32| {
        let types = [oid];
        let text = "UPDATE t SET b = s.v FROM s WHERE s.id = $1";
        let subject = Subject { parameter_types: &types, ..Subject::new(text) };
        determinism(&subject, &catalogue).map(|answer| answer.is_deterministic())
    };
    // Not declared, int8, and float8, which equals many integers.
    assert_eq!([judged(0), judged(20), judged(701)], [Ok(true), Ok(true), Ok(false)]);
}

#[test]
fn outcomes_are_as_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/determinism.txt");
    let golden = std::fs::read_to_string(&path).unwrap();
    let catalogue = catalogue();
    let mut fresh = String::new();
    let mut cases = 0;
    for paragraph in golden.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().filter(|line| !line.starts_with("=>")).collect();
        let text = lines.join("\n");
        if text.trim().is_empty() {
            continue;
        }
        fresh.push_str(&text);
        fresh.push('\n');
        if !text.starts_with("##") {
            cases += 1;
            fresh.push_str(&judged(&text, &catalogue));
        }
        fresh.push('\n');
    }
    let fresh = format!("{}\n", fresh.trim_end());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    for (line, (old, new)) in golden.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(old, new, "line {}", line + 1);
    }
    assert_eq!(golden.lines().count(), fresh.lines().count());
    assert!(cases >= 100, "{cases} cases");
}
