//! Promise: `onecopy plan` finds the services of the paper, and a read that it rewrites gives the original's answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[allow(dead_code, reason = "only the planner's own tests look at what statements read")]
#[path = "../../planner/tests/sketch/mod.rs"]
mod sketch;

use cluster::{folder::Folder, plain::Plain, programs};
use planner::{Answer, Application, BUILTIN, Feed, Query, Rewritten, plan};
use sketch::{COLUMNS, Sketch};
use sql::Table;
use sql::anatomy::{Equal, parameters};
use tokio_postgres::{Client, SimpleQueryMessage};

async fn said(arguments: &[&str]) -> (String, bool) {
    let output = programs::onecopy(arguments).await;
    (programs::text(&output), output.status.success())
}

#[tokio::test]
async fn the_services_of_the_paper_are_found() {
    for (name, service) in [("tpcw", "Item_related"), ("rubis", "Auction"), ("rubbos", "Old_stories")] {
        let (text, succeeded) = said(&["plan", name, "--boundaries", "paper", "--expect", "paper"]).await;
        assert!(succeeded && text.contains(service) && text.contains("as expected"), "{text}");
    }
}

#[tokio::test]
async fn a_difference_that_nothing_explains_is_a_failure() {
    let (text, succeeded) = said(&["plan", "tpcw", "--expect", "paper"]).await;
    assert!(!succeeded && text.contains("expected otherwise: there is no service Financial"), "{text}");
}

#[tokio::test]
async fn blame_is_a_chain_of_reasons() {
    let (text, succeeded) = said(&["plan", "tpcw", "--why", "customer.c_discount", "orders.o_id"]).await;
    assert!(succeeded && text.contains("transaction doBuyConfirm touches both"), "{text}");
    let (text, succeeded) = said(&["plan", "tpcw", "--why", "customer.nothing", "orders.o_id"]).await;
    assert!(!succeeded && text.contains("customer.nothing"), "{text}");
}

#[tokio::test]
async fn a_folder_is_planned_into_files() {
    let folder = Folder::new("plan");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("schema.sql", "CREATE TABLE t (k int PRIMARY KEY, x int, y int);");
    write("transactions.sql", "-- interaction: A\n-- query: q\nUPDATE t SET x = $2 WHERE k = $1;\n");
    let [path, out] = [folder.path().to_owned(), folder.path().join("out")];
    let (text, succeeded) = said(&["plan", path.to_str().unwrap(), "--out", out.to_str().unwrap()]).await;
    assert!(succeeded && text.contains("2 services"), "{text}");
    for file in ["services.toml", "report.txt", "rewritten.sql", "picture.svg"] {
        assert!(out.join(file).exists(), "{file}");
    }
    write("transactions.sql", "-- interaction: A\n-- query: q\nWITH x AS (SELECT 1) SELECT * FROM x;\n");
    let (text, succeeded) = said(&["plan", path.to_str().unwrap()]).await;
    assert!(!succeeded && text.contains("query q: WITH is not understood"), "{text}");
    let (text, succeeded) = said(&["plan", "/nowhere"]).await;
    assert!(!succeeded && text.contains("tpcw"), "{text}");
}

/// Rows of each table.
const ROWS: usize = 300;

/// A value of row `g` for a column: keys count up, references point somewhere, and the rest is spread.
fn value(application: &Application, table: &Table, at: usize) -> String {
    let column = &table.columns[at];
    let spread = format!("(abs(hashint4(g * 31 + {at})))");
    let key = table.primary_key.as_slice();
    let refers =
        application.references.keys().any(|from| from.table == table.name && from.name == column.name);
    let unique = table.keys.iter().any(|key| key.columns == [at]);
    match column.type_oid {
        _ if key == [at] => "g".to_owned(),
        // Of a key of several columns, the values of one are few.
        23 if key.contains(&at) => {
            if key.last() == Some(&at) {
                format!("(g % {ROWS} + 1)")
            } else {
                "(g / 20 + 1)".to_owned()
            }
        }
        23 if refers || column.name.starts_with("i_related") => format!("({spread} % {ROWS} + 1)"),
        23 if column.name.contains("qty") => spread,
        23 => format!("({spread} % 40)"),
        1082 => format!("(current_date - {spread} % 50)"),
        1114 => {
            "(localtimestamp(0) - interval '3 days' + ((g * 7919) % 10007) * interval '1 minute')".to_owned()
        }
        700 | 701 | 1700 => format!("({spread} % 100 / 100.0)"),
        _ if unique => "('u' || g)".to_owned(),
        _ => format!("('v' || {spread} % 4)"),
    }
}

async fn fill(client: &Client, application: &Application, schema: &str) {
    client.batch_execute(schema).await.unwrap();
    for table in application.catalogue.tables() {
        let values: Vec<String> = (0..table.columns.len()).map(|at| value(application, table, at)).collect();
        let text = format!(
            "INSERT INTO {} SELECT {} FROM generate_series(1, {ROWS}) AS g ON CONFLICT DO NOTHING",
            table.name,
            values.join(", ")
        );
        client.batch_execute(&text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    }
}

/// A literal for each parameter of a read, of which some match something.
fn literal(application: &Application, query: &Query, number: u32, turn: usize) -> String {
    let anatomy = &query.anatomy;
    let equal = anatomy.equalities.iter().find(|equality| equality.to == Equal::Parameter(number));
    let Some(equal) = equal else {
        return if query.text.contains(&format!("LIKE ${number}")) {
            "'u1%'".to_owned()
        } else {
            (if query.text.contains(&format!("OFFSET ${number}")) { turn % 3 } else { 7 }).to_string()
        };
    };
    let table = application.catalogue.table(anatomy.relations[equal.column.relation].table).unwrap();
    let column = &table.columns[equal.column.column];
    let unique = table.keys.iter().any(|key| key.columns == [equal.column.column]);
    match column.type_oid {
        23 if unique || column.name.contains("id") => (1 + turn * 5).to_string(),
        23 => (turn % 40).to_string(),
        _ if unique => format!("'u{}'", 1 + turn * 5),
        _ => format!("'v{}'", turn % 4),
    }
}

fn with_values(text: &str, value: &dyn Fn(u32) -> String) -> String {
    let mut numbers = parameters(text);
    numbers.sort_unstable_by(|one, other| other.cmp(one));
    numbers
        .into_iter()
        .fold(text.to_owned(), |text, number| text.replace(&format!("${number}"), &value(number)))
}

/// The steps as WITH queries, each of which sees the ones before.
fn chained(rewritten: &Rewritten, original: &dyn Fn(u32) -> String) -> String {
    let mut parts = Vec::new();
    for (at, step) in rewritten.steps.iter().enumerate() {
        let value = |number: u32| match &step.parameters[number as usize - 1] {
            Feed::Parameter(number) => original(*number),
            Feed::Columns { step, columns } => {
                let all: Vec<String> =
                    columns.iter().map(|column| format!("SELECT {column} FROM step{step}")).collect();
                format!("ARRAY({})", all.join(" UNION ALL "))
            }
        };
        parts.push(format!("step{} AS MATERIALIZED ({})", at + 1, with_values(&step.text, &value)));
    }
    let last = |number: u32| original(rewritten.parameters[number as usize - 1]);
    format!("WITH {} {}", parts.join(", "), with_values(&rewritten.combine, &last))
}

/// The rows of an answer as text, in order of the text unless the read orders them.
async fn rows(client: &Client, text: &str, ordered: bool) -> Vec<String> {
    let messages = client.simple_query(text).await.unwrap_or_else(|error| panic!("{text}: {error:?}"));
    let mut rows: Vec<String> = messages
        .iter()
        .filter_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(
                (0..row.len())
                    .map(|at| row.get(at).unwrap_or("NULL").to_owned())
                    .collect::<Vec<_>>()
                    .join("|"),
            ),
            _ => None,
        })
        .collect();
    if !ordered {
        rows.sort();
    }
    rows
}

/// The columns that a rewritten read gives, as names of the original's answer.
fn shown(rewritten: &Rewritten) -> Vec<String> {
    let list = rewritten.combine.split(" FROM ").next().unwrap();
    list.split(" AS ").skip(1).map(|part| part.split(',').next().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn a_rewritten_read_gives_the_answer_of_the_original() {
    let server = Plain::start().await;
    let (mut reads, mut full) = (0, 0);
    for builtin in BUILTIN {
        for of_paper in [true, false] {
            let texts = builtin.texts(of_paper);
            let application = texts.application(builtin.name).unwrap();
            let client = server.client().await;
            client.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
            fill(&client, &application, &texts.schema).await;
            for (name, answer) in plan(&application).unwrap().answers {
                let Answer::Rewritten(rewritten) = answer else { continue };
                reads += 1;
                let query = &application.queries[&name];
                for turn in 0..20 {
                    let value = |number| literal(&application, query, number, turn);
                    let original = with_values(&query.text, &value);
                    let original = format!("SELECT {} FROM ({original}) AS o", shown(&rewritten).join(", "));
                    let ordered = query.text.contains("ORDER BY");
                    let wanted = rows(&client, &original, ordered).await;
                    let found = rows(&client, &chained(&rewritten, &value), ordered).await;
                    assert_eq!(found, wanted, "{} {name}, turn {turn}: {original}", builtin.name);
                    full += usize::from(!wanted.is_empty());
                }
            }
        }
    }
    assert!(reads > 12 && full > 150, "{reads} reads, {full} answers with rows");
}

/// Random applications whose rewritten reads are compared.
const SEEDS: u64 = 250;

#[tokio::test]
async fn rewritten_reads_of_random_applications_give_the_answers_of_the_originals() {
    let server = Plain::start().await;
    let client = server.client().await;
    let (mut reads, mut full) = (0, 0);
    for seed in 1000..1000 + SEEDS {
        let sketch = Sketch::new(seed, true);
        let application = sketch.application();
        let rewritten =
            plan(&application).unwrap().answers.into_iter().filter_map(|(name, answer)| match answer {
                Answer::Rewritten(rewritten) => Some((name, rewritten)),
                Answer::Whole(_) => None,
            });
        let rewritten: Vec<_> = rewritten.collect();
        if rewritten.is_empty() {
            continue;
        }
        client.batch_execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await.unwrap();
        client.batch_execute(&sketch.ddl()).await.unwrap();
        let mut tables = sketch.tables.clone();
        tables.sort_by_key(|table| table != "t0");
        for (at, table) in tables.iter().enumerate() {
            let value = |column: usize| format!("abs(hashint4(g * 37 + {at} * 5 + {column}))");
            // The references of t1 may be NULL.
            let refers = format!("{} % 12 + 1", value(3));
            let refers = if table == "t1" { format!("nullif({refers}, 5)") } else { refers };
            let text = format!(
                "INSERT INTO {table} ({}) SELECT g, {} % 6, {} % 6, {}, {} % 6 FROM generate_series(1, 12) AS g",
                COLUMNS.join(", "),
                value(1),
                value(2),
                refers,
                value(4)
            );
            client.batch_execute(&text).await.unwrap();
        }
        for (name, rewritten) in rewritten {
            reads += 1;
            let text = &application.queries[&name].text;
            for given in 0..6 {
                let value = |_| given.to_string();
                let ordered = text.contains("ORDER BY");
                let wanted = rows(&client, &with_values(text, &value), ordered).await;
                let chained = chained(&rewritten, &value);
                let found = rows(&client, &chained, ordered).await;
                assert_eq!(found, wanted, "seed {seed}: {text}\n{chained}");
                full += usize::from(!wanted.is_empty());
            }
        }
    }
    assert!(reads > 50 && full > 50, "{reads} reads, {full} answers with rows");
}
