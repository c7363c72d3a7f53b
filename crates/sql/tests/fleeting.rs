//! Which answers stay true while their rows stay the same.

use std::sync::Arc;

use sql::{
    Analyzer, Catalogue, Column, Contents, Fleeting, Limits, Policy, Statement, Table, ViewDefinition,
};

mod fixture;

fn statement(text: &str) -> Arc<Statement> {
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).expect("the text is valid");
    Arc::clone(&script.statements[0].statement)
}

fn under(text: &str, contents: &Contents) -> Option<Fleeting> {
    statement(text).routing(&Catalogue::new(contents.clone())).fleeting.clone()
}

fn fleeting(text: &str) -> Option<Fleeting> {
    statement(text).routing(&fixture::catalogue()).fleeting.clone()
}

fn behind_view(query: &str) -> Option<Fleeting> {
    let mut contents = fixture::contents();
    contents.other_relations.retain(|(_, name)| name != "a_view");
    contents.views.push(ViewDefinition {
        schema: "public".to_owned(),
        name: "a_view".to_owned(),
        definition: query.to_owned(),
        ..ViewDefinition::default()
    });
    under("select * from a_view", &contents)
}

fn behind_policy(expression: &str) -> Option<Fleeting> {
    let mut contents = fixture::contents();
    let secured = contents.tables.iter_mut().find(|table| table.name == "secured").expect("it is there");
    secured.policies = vec![Policy { name: "p".to_owned(), expressions: vec![expression.to_owned()] }];
    under("select * from secured", &contents)
}

fn function(name: &str) -> Fleeting {
    Fleeting::Function(name.to_owned())
}

#[test]
fn a_function_of_rows_constants_settings_and_role_is_kept() {
    for text in [
        "select * from t where id = 1",
        "select a, count(*) from t join u using (id) group by a order by 2 limit 5",
        "select to_char(a, '999'), current_user, session_user, current_schema from t",
        "select date_trunc('day', $1::timestamptz), '2020-01-01'::date from t",
        "select a::text, b::numeric(5, 2), (a + b)::int8 from t",
        "select generate_series(1, 3), concat(a, b), lower('X') from t",
        "select array_to_string(array_agg(a), ','), row_to_json(t) from t",
    ] {
        assert_eq!(fleeting(text), None, "{text}");
    }
}

#[test]
fn the_clock_chance_and_the_servers_state_make_an_answer_fleeting() {
    for text in [
        "select current_timestamp from t",
        "select current_date",
        "select localtime from t",
        "select a from t where current_time is not null",
    ] {
        assert_eq!(fleeting(text), Some(Fleeting::Clock), "{text}");
    }
    for name in ["now", "clock_timestamp", "gen_random_uuid", "random", "version", "pg_backend_pid"] {
        assert_eq!(fleeting(&format!("select {name}() from t")), Some(function(name)));
    }
    assert_eq!(fleeting("select age(a) from t"), Some(function("age")));
    assert_eq!(fleeting("select timezone('UTC', a) from t"), None, "immutable in this catalogue");
    assert_eq!(fleeting("select pg_sleep(1)"), Some(function("pg_sleep")));
    assert_eq!(fleeting("select * from t tablesample bernoulli (10)"), Some(Fleeting::Sample));
    assert_eq!(fleeting("select (x.a).age from t x"), Some(function("age")), "a call in functional notation");
}

#[test]
fn a_text_that_is_not_constant_may_say_now() {
    for text in [
        "select a::date from t",
        "select cast(a || 'w' as timestamptz) from t",
        "select ('no' || 'w')::timestamp",
        "select string_to_array(a, ',')::date[] from t",
        "select a::mood from t",
        "select date(a) from t",
        "select 'now'::text::date",
        "select * from xmltable('/x' passing '<x/>' columns d date)",
        "select '12:00'::timetz::time::timetz",
    ] {
        assert_eq!(fleeting(text), Some(Fleeting::TextToClock), "{text}");
    }
}

#[test]
fn a_setting_of_the_servers_may_change_at_any_time() {
    assert_eq!(fleeting("select current_setting('app.tenant')"), Some(Fleeting::Setting), "one template");
    assert_eq!(behind_policy("(a = (current_setting('app.tenant'::text))::integer)"), None);
    assert_eq!(behind_policy("(a = (current_setting('app.tenant'::text, true))::integer)"), None);
    assert_eq!(behind_policy("(b = current_user)"), None);
    for expression in [
        "(a = (current_setting('work_mem'::text))::integer)",
        "(b = current_setting(a))",
        "(b = current_setting(('app.'::text || a)))",
        "(b = current_setting(\"x.y\"))",
    ] {
        assert_eq!(behind_policy(expression), Some(Fleeting::Setting), "{expression}");
    }
}

#[test]
fn views_and_policies_count() {
    assert_eq!(behind_view("SELECT t.a FROM t"), None);
    assert_eq!(behind_view("SELECT CURRENT_TIMESTAMP AS a FROM t"), Some(Fleeting::Clock));
    assert_eq!(behind_view("SELECT t.a FROM t WHERE t.b > 'yesterday'::date"), Some(Fleeting::Clock));
    assert_eq!(behind_policy("(a > now())"), Some(function("now")));
}

#[test]
fn users_code_and_times_with_zones_are_not_looked_into() {
    assert_eq!(fleeting("select my_function(a) from t"), Some(Fleeting::Code("my_function".to_owned())));
    let mut contents = fixture::contents();
    let at = Column { name: "at".to_owned(), type_oid: 1266, ..Column::default() };
    contents.tables.push(Table { columns: vec![at], ..fixture::table(40, "meetings") });
    assert_eq!(under("select count(*) from meetings", &contents), Some(Fleeting::Clock));
}
