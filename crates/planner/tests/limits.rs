//! What the planner must not do: split what has to stay whole, and take rows too early.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use planner::{
    Answer, Application, ApplicationError, Column, Expectation, Hosting, Plan, Query, Rewritten, plan,
};
use sql::Schema;

fn application(ddl: &str, queries: &[(&str, &str)]) -> Application {
    let mut application = Application::new("small", Schema::from_ddl(ddl).unwrap().catalogue()).unwrap();
    for (name, text) in queries {
        let query = Query::new(name, text, &application.catalogue).unwrap();
        application.queries.insert((*name).to_owned(), query);
    }
    application
}

fn planned(ddl: &str, queries: &[(&str, &str)]) -> Plan {
    plan(&application(ddl, queries)).unwrap()
}

fn service_of(plan: &Plan, table: &str, column: &str) -> usize {
    let column = Column::new(table, column);
    plan.services.iter().position(|service| service.columns.contains(&column)).unwrap()
}

const SET_BOTH: [(&str, &str); 2] =
    [("x", "UPDATE a SET x = $2 WHERE k = $1"), ("y", "UPDATE a SET y = $2 WHERE k = $1")];

#[test]
fn a_table_is_split_only_by_a_key_that_stays() {
    for (ddl, more, together) in [
        ("CREATE TABLE a (k int PRIMARY KEY, x int, y int);", None, false),
        ("CREATE TABLE a (k int, x int, y int);", None, true),
        ("CREATE TABLE a (k int PRIMARY KEY, x int, y int);", Some("UPDATE a SET k = $2 WHERE k = $1"), true),
        ("CREATE TABLE a (k int PRIMARY KEY, x int, y int, UNIQUE (x, y));", None, true),
        (
            "CREATE TABLE a (k int PRIMARY KEY, x int, y int, z int GENERATED ALWAYS AS (x + y) STORED);",
            None,
            true,
        ),
    ] {
        let mut queries = SET_BOTH.to_vec();
        queries.extend(more.map(|text| ("more", text)));
        let plan = planned(ddl, &queries);
        let is_together = service_of(&plan, "a", "x") == service_of(&plan, "a", "y");
        assert_eq!(is_together, together, "{ddl} {more:?}");
    }
}

/// A DELETE also changes the tables whose foreign keys follow it.
#[test]
fn foreign_keys_with_actions_write() {
    let ddl = |action: &str| {
        format!(
            "CREATE TABLE a (k int PRIMARY KEY, x int);
             CREATE TABLE b (k int PRIMARY KEY, a_k int REFERENCES a ON DELETE {action}, y int);
             CREATE TABLE c (k int PRIMARY KEY, b_k int REFERENCES b ON DELETE CASCADE);"
        )
    };
    let delete = [("delete", "DELETE FROM a WHERE k = $1"), ("y", "UPDATE b SET y = $2 WHERE k = $1")];
    for (action, follows, grows) in
        [("NO ACTION", false, false), ("SET NULL", true, false), ("CASCADE", true, true)]
    {
        let plan = planned(&ddl(action), &delete);
        let a = service_of(&plan, "a", "x");
        assert_eq!(service_of(&plan, "b", "a_k") == a, follows, "{action}");
        assert_eq!(service_of(&plan, "b", "y") == a, grows, "{action}");
        assert_eq!(service_of(&plan, "c", "b_k") == a, grows, "{action}");
    }
}

#[test]
fn code_of_tables_is_refused() {
    let ddl = "CREATE TABLE a (k int PRIMARY KEY, x int);
               CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
               CREATE TRIGGER t BEFORE UPDATE ON a FOR EACH ROW EXECUTE FUNCTION f();";
    let error = plan(&application(ddl, &[])).unwrap_err();
    assert!(
        matches!(error, ApplicationError::Code { .. }) && error.to_string().contains("triggers"),
        "{error}"
    );
}

fn items(reference: &str) -> String {
    format!(
        "CREATE TABLE author (a_id int PRIMARY KEY, a_name text);
         CREATE TABLE item (i_id int PRIMARY KEY, i_subject text, i_date date, i_author int {reference});"
    )
}

/// Changes that put `i_date`, `i_subject` and `a_name` into three services.
const APART: [(&str, &str); 3] = [
    ("date", "UPDATE item SET i_date = $2 WHERE i_id = $1"),
    ("name", "UPDATE author SET a_name = $2 WHERE a_id = $1"),
    ("subjects", "SELECT i_subject, i_author FROM item WHERE i_id = $1"),
];

fn rewritten(ddl: &str, text: &str) -> Option<Rewritten> {
    let mut queries = APART.to_vec();
    queries.push(("read", text));
    match planned(ddl, &queries).answers.remove("read") {
        Some(Answer::Rewritten(rewritten)) => Some(rewritten),
        _ => None,
    }
}

/// A join that may drop a row decides: LIMIT must not come before it.
#[test]
fn a_limit_comes_before_look_ups_only() {
    let text = "SELECT i_id, a_name FROM item JOIN author ON a_id = i_author ORDER BY i_date, i_id LIMIT 5";
    let has_limit = |rewritten: &Rewritten| rewritten.steps[0].text.ends_with("LIMIT 5");
    let sure = rewritten(&items("NOT NULL REFERENCES author"), text).unwrap();
    assert!(has_limit(&sure), "{sure:?}");
    for unsure in ["REFERENCES author", "NOT NULL"] {
        let other = rewritten(&items(unsure), text);
        let looks_at_author = |rewritten: &Rewritten| rewritten.steps[0].text.contains("FROM item, author");
        assert!(other.as_ref().is_none_or(|other| !has_limit(other) || looks_at_author(other)), "{other:?}");
    }
}

/// An OFFSET counts joined rows: it must not come before a join that may repeat one.
#[test]
fn an_offset_comes_after_joins_that_repeat_rows() {
    for (unique, merges) in [("UNIQUE", 0), ("", 1)] {
        let ddl = format!(
            "CREATE TABLE person (p_id int PRIMARY KEY);
             CREATE TABLE tag (t_id int PRIMARY KEY, t_person int NOT NULL REFERENCES person, t_topic int {unique});
             CREATE TABLE post (o_id int PRIMARY KEY, o_topic int, o_date date);"
        );
        let text = "SELECT o_id FROM tag JOIN post ON o_topic = t_topic WHERE t_person = $1
                    ORDER BY o_date, o_id LIMIT 5 OFFSET 5";
        let plan = planned(
            &ddl,
            &[
                ("person", "INSERT INTO person VALUES ($1)"),
                ("tag", "INSERT INTO tag VALUES ($1, $2, $3)"),
                ("post", "INSERT INTO post VALUES ($1, $2, $3)"),
                ("read", text),
            ],
        );
        assert_eq!(plan.merges.len(), merges, "{unique} {:?}", plan.answers["read"]);
    }
}

/// Each item would be counted once for each of its lines' services otherwise.
#[test]
fn sums_are_made_where_a_group_is_whole() {
    let ddl = "CREATE TABLE item (i_id int PRIMARY KEY, i_cost int);
               CREATE TABLE line (l_id int PRIMARY KEY, l_item int NOT NULL REFERENCES item, l_kind int, l_qty int);";
    let queries = [
        ("cost", "UPDATE item SET i_cost = $2 WHERE i_id = $1"),
        ("sell", "INSERT INTO line VALUES ($1, $2, $3, $4)"),
        (
            "read",
            "SELECT l_kind, sum(l_qty) AS sold FROM line JOIN item ON i_id = l_item GROUP BY l_kind ORDER BY sold LIMIT 5",
        ),
    ];
    let plan = planned(ddl, &queries);
    if let Answer::Rewritten(rewritten) = &plan.answers["read"] {
        assert!(rewritten.steps.iter().all(|step| !step.text.contains("GROUP BY")), "{rewritten:?}");
    }
}

#[test]
fn a_stock_that_is_set_is_no_escrow() {
    let ddl =
        "CREATE TABLE cart (c_id int PRIMARY KEY); CREATE TABLE stock (s_id int PRIMARY KEY, s_left int);";
    let hosting = |take: &str| {
        let mut application = application(ddl, &[("cart", "INSERT INTO cart VALUES ($1)"), ("take", take)]);
        let queries = ["cart", "take"].map(str::to_owned).into();
        let unit = planner::Unit { kind: planner::UnitKind::Transaction, queries };
        application.units.insert("buy".to_owned(), unit);
        let plan = plan(&application).unwrap();
        plan.services[service_of(&plan, "stock", "s_left")].hosting.clone()
    };
    let counted = hosting("UPDATE stock SET s_left = s_left - $2 WHERE s_id = $1");
    assert!(matches!(counted, Hosting::Partitioned(_)), "{counted}");
    let set = hosting("UPDATE stock SET s_left = $2 WHERE s_id = $1");
    assert!(matches!(set, Hosting::OnePrimary { .. }), "{set}");
}

#[test]
fn the_files_of_a_plan_are_well_formed() {
    for builtin in planner::BUILTIN {
        let application = builtin.texts(true).application(builtin.name).unwrap();
        let plan = plan(&application).unwrap();
        let file: toml::Table = planner::services_file(&application, &plan).parse().unwrap();
        assert_eq!(file["service"].as_array().unwrap().len(), plan.services.len());
        assert_eq!(planner::picture(&application, &plan).matches("<rect").count(), plan.services.len());
        let steps: usize = plan
            .answers
            .values()
            .map(|answer| match answer {
                Answer::Rewritten(rewritten) => rewritten.steps.len(),
                Answer::Whole(_) => 0,
            })
            .sum();
        assert_eq!(planner::rewritten_file(&plan).matches("PREPARE").count(), steps);
    }
}

#[test]
fn every_difference_needs_an_explanation_and_every_explanation_a_difference() {
    let application = application("CREATE TABLE a (k int PRIMARY KEY, x int, y int);", &SET_BOTH);
    let plan = plan(&application).unwrap();
    let compared = |text: &str| Expectation::read(text).unwrap().compare(&application, &plan).unwrap();
    let right = "[[service]]\nname = \"a_x\"\ntables = [\"a(x)\"]\n[[service]]\nname = \"a_y\"\ntables = [\"a(y)\"]\n";
    assert!(compared(right).passes());
    let wrong = right.replace("a(y)", "a(x)");
    let found = compared(&wrong);
    assert!(!found.passes());
    assert_eq!(found.unexplained, ["a.x is not in a_y", "a.y is in a_y"]);
    let explain = |what: &str| format!("[[difference]]\nwhat = \"{what}\"\nwhy = \"so\"\n");
    let explained = wrong + &explain("a.x is not in a_y") + &explain("a.y is in a_y");
    assert!(compared(&explained).passes());
    let stale = right.to_owned() + &explain("a.y is in a_y");
    assert_eq!(compared(&stale).stale, ["a.y is in a_y"]);
    assert!(!compared(&stale).passes());
}
