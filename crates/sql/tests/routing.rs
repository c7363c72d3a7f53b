//! Conclusions that depend on the catalogue more than on the statement.

use std::sync::Arc;

use sql::{
    Access, Analyzer, Because, Catalogue, Claims, Contents, DatabaseId, Limits, Name, Statement, Table,
    access, claims,
};

mod fixture;

fn statement(text: &str) -> Arc<Statement> {
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).expect("the text is valid");
    Arc::clone(&script.statements[0].statement)
}

fn with(change: impl FnOnce(&mut Contents)) -> Catalogue {
    let mut contents = fixture::contents();
    change(&mut contents);
    Catalogue::new(contents)
}

fn access_of(text: &str, catalogue: &Catalogue) -> Access {
    access(&statement(text), catalogue)
}

const UNKNOWN: Access = Access::Anchor(Because::Unknown);

#[test]
fn routing_follows_the_generation() {
    let select = statement("select * from t");
    let before = fixture::catalogue();
    let first = select.routing(&before);
    assert_eq!(first.access, Access::Read(vec![DatabaseId::FIRST.table(5)]));
    assert!(Arc::ptr_eq(&first, &select.routing(&before)), "kept for one generation");
    let after = with(|contents| {
        contents.generation += 1;
        contents.tables.retain(|table| table.name != "t");
        contents.other_relations.push(("public".to_owned(), "t".to_owned()));
    });
    assert_eq!(select.routing(&after).access, UNKNOWN);
    assert_eq!(select.routing(&before).access, first.access);
    let copy = Statement::clone(&select);
    assert_eq!(copy.routing(&after).access, UNKNOWN, "a copy starts without conclusions");
}

#[test]
fn every_relation_of_a_name_counts() {
    let catalogue = fixture::catalogue();
    assert_eq!(
        access_of("select * from u", &catalogue),
        Access::Read(vec![DatabaseId::FIRST.table(6), DatabaseId::FIRST.table(26)])
    );
    assert_eq!(
        access_of("select * from other.u", &catalogue),
        Access::Read(vec![DatabaseId::FIRST.table(26)])
    );
    let shadowed = with(|contents| contents.other_relations.push(("third".to_owned(), "u".to_owned())));
    assert_eq!(access_of("select * from u", &shadowed), UNKNOWN);
    assert_eq!(
        access_of("select * from other.u", &shadowed),
        Access::Read(vec![DatabaseId::FIRST.table(26)])
    );
    let parent = with(|contents| {
        contents.tables.push(Table { schema: "public".to_owned(), ..fixture::table(30, "whole") });
    });
    let all = vec![DatabaseId::FIRST.table(7), DatabaseId::FIRST.table(8), DatabaseId::FIRST.table(30)];
    assert_eq!(
        access_of("select * from whole", &parent),
        Access::Read(all),
        "an inheritance parent has rows itself"
    );
    let missing = with(|contents| contents.parents[0].leaves.push(DatabaseId::FIRST.table(99)));
    assert_eq!(access_of("select * from whole", &missing), UNKNOWN, "a leaf that nobody knows");
}

#[test]
fn unseen_code_makes_everything_unknown() {
    let casts = with(|contents| contents.has_user_casts = true);
    assert_eq!(access_of("select 1", &casts), UNKNOWN);
    for operator in ["=", "<"] {
        let operators = with(|contents| contents.user_operators = vec![operator.to_owned()]);
        for text in ["select case 1 when 2 then 3 end", "select 1 between 2 and 3", "select 1 in (select 2)"]
        {
            let uses =
                operator == "<" && text.contains("between") || operator == "=" && !text.contains("between");
            let wanted = if uses { UNKNOWN } else { Access::Read(Vec::new()) };
            assert_eq!(access_of(text, &operators), wanted, "{operator} {text}");
        }
    }
    let overload = with(|contents| contents.user_functions = vec!["lower".to_owned()]);
    for text in ["select lower('A')", "select pg_catalog.lower('A')", "select t.lower from t"] {
        assert_eq!(access_of(text, &overload), UNKNOWN, "{text}");
    }
    let table_as_type = with(|contents| contents.user_types = vec!["text".to_owned()]);
    assert_eq!(access_of("select 'a'::text", &table_as_type), UNKNOWN);
    let system_view =
        with(|contents| contents.other_relations.push(("public".to_owned(), "pg_mine".to_owned())));
    assert_eq!(access_of("select * from pg_mine", &system_view), UNKNOWN, "a user's view may do anything");
}

#[test]
fn built_in_functions_must_be_known_to_the_server() {
    let bare = Catalogue::new(Contents::default());
    assert_eq!(access_of("select lower('A')", &bare), UNKNOWN);
    assert_eq!(access_of("select 1", &bare), Access::Read(Vec::new()));
}

#[test]
fn reads_and_writes_are_listed_apart() {
    let catalogue = fixture::catalogue();
    let routing = statement("insert into t select * from pgbench_tellers").routing(&catalogue);
    assert_eq!(routing.reads, Some(vec![DatabaseId::FIRST.table(3)]));
    assert_eq!(routing.writes, Some(vec![DatabaseId::FIRST.table(5)]));
    let routing = statement("insert into temporary select * from a_view").routing(&catalogue);
    assert_eq!((routing.reads.clone(), routing.writes.clone()), (None, None));
    assert_eq!(claims(&statement("show all"), &catalogue), Claims::Rows);
}

#[test]
fn what_runs_something_written_elsewhere_may_touch_anything() {
    let catalogue = fixture::catalogue();
    let texts = [
        "execute p",
        "execute p (1)",
        "explain execute p",
        "explain analyze execute p",
        "explain analyze create temp table x as execute p",
        "fetch c",
        "call p(1)",
        "do 'begin commit; end'",
        "set constraints all immediate",
        "discard all",
    ];
    for text in texts {
        let routing = statement(text).routing(&catalogue);
        let conclusions = (&routing.access, &routing.claims, &routing.reads, &routing.writes);
        assert_eq!(conclusions, (&UNKNOWN, &Claims::Everything, &None, &None), "{text}");
    }
    for text in ["prepare p as select * from t", "lock t", "set a.b = 1", "begin", "notify a", "vacuum t"] {
        let routing = statement(text).routing(&catalogue);
        assert_eq!((&routing.reads, &routing.writes), (&None, &None), "{text}");
    }
    for text in ["select * from t", "explain analyze select * from t", "declare c cursor for select * from t"]
    {
        let routing = statement(text).routing(&catalogue);
        assert_eq!(routing.reads, Some(vec![DatabaseId::FIRST.table(5)]), "{text}");
        assert_eq!(routing.writes, Some(Vec::new()), "{text}");
    }
}

#[test]
fn an_insert_claims_its_rows_unless_the_table_has_more() {
    let plain = Table { primary_key: Vec::new(), ..fixture::table(40, "keyless") };
    let claims_with = |change: fn(Table) -> Table, text: &str| {
        let catalogue = with(|contents| contents.tables.push(change(plain.clone())));
        let routing = statement(text).routing(&catalogue);
        (routing.claims.clone(), matches!(routing.access, Access::Anchor(_)))
    };
    let insert = "insert into keyless values (1, nextval('s'))";
    assert_eq!(claims_with(|t| t, insert), (Claims::Rows, true));
    assert_eq!(claims_with(|t| t, "select nextval('s')"), (Claims::Rows, true));
    let whole = Claims::Tables(vec![DatabaseId::FIRST.table(40)]);
    assert_eq!(claims_with(|t| Table { other_unique: true, ..t }, insert), (whole, true));
    let unbounded: [fn(Table) -> Table; 4] = [
        |t| Table { foreign_keys: true, ..t },
        |t| Table { user_triggers: true, ..t },
        |t| Table { row_security: true, ..t },
        |t| Table { coded_types: true, ..t },
    ];
    for change in unbounded {
        assert_eq!(claims_with(change, insert), (Claims::Everything, true));
    }
    let overload = with(|contents| contents.user_functions.push("nextval".to_owned()));
    assert_eq!(claims(&statement("insert into t values (nextval('s'))"), &overload), Claims::Everything);
}

#[test]
fn statements_around_others_keep_them() {
    let explain = statement("explain analyze select * from t");
    let inner = explain.inner.as_deref().expect("the statement explained");
    assert_eq!(inner.reads, [Name::bare("t")]);
    assert_eq!(inner.routing(&fixture::catalogue()).access, Access::Read(vec![DatabaseId::FIRST.table(5)]));
    assert!(statement("prepare p as insert into t values (1)").modifies_inside);
}

#[test]
fn a_plan_is_made_where_the_transaction_runs() {
    let catalogue = fixture::catalogue();
    let may_leave = |text: &str| {
        let statement = statement(text);
        sql::may_leave_anchor(&statement, &statement.routing(&catalogue), false, &catalogue)
    };
    for text in ["select * from t", "select * from t for update", "update t set id = 1 where id = 2"] {
        assert!(may_leave(&format!("explain {text}")), "{text}");
        assert!(
            !may_leave(&format!("explain analyze {text}")),
            "{text}: it runs, and nobody counts its rows"
        );
    }
    for text in ["execute p", "declare c cursor for select * from t", "select * from pg_class"] {
        assert!(!may_leave(&format!("explain {text}")), "{text}");
    }
}

#[test]
fn refusals_stand_in_the_list() {
    let golden = include_str!("golden/statements.txt");
    let shown = golden.lines().filter_map(|line| line.strip_prefix("=> refused: "));
    let shown: std::collections::BTreeSet<&str> = shown.collect();
    for what in &shown {
        assert!(sql::REFUSALS.iter().any(|(listed, _)| listed == what), "{what}");
    }
    // Five are found when the statement has run at the home.
    assert!(shown.len() + 5 >= sql::REFUSALS.len(), "all but five refusals have an example");
}
