//! What stands behind the names of a statement: views, functions, triggers, references and policies.

use std::sync::Arc;

use sql::{
    Access, Action, Analyzer, Argument, ArgumentMode, Because, Body, Catalogue, Claims, Contents, DatabaseId,
    Function, HeadTypes, Limits, Name, Policy, Reference, Returns, Routing, Rule, Statement, Table, TableId,
    Timing, Trigger, ViewDefinition,
};

mod fixture;

const UNKNOWN: Access = Access::Anchor(Because::Unknown);
const UPDATE: Access = Access::Anchor(Because::Update);

fn statement(text: &str) -> Arc<Statement> {
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).expect("the text is valid");
    Arc::clone(&script.statements[0].statement)
}

fn routing(text: &str, contents: &Contents) -> Arc<Routing> {
    statement(text).routing(&Catalogue::new(contents.clone()))
}

fn ids(ids: &[u32]) -> Vec<TableId> {
    ids.iter().copied().map(|number| DatabaseId::FIRST.table(number)).collect()
}

fn read(tables: &[u32]) -> Access {
    Access::Read(ids(tables))
}

fn function(name: &str, body: Body) -> Function {
    Function { schema: "public".to_owned(), name: name.to_owned(), body, ..Function::default() }
}

fn sql(name: &str, text: &str) -> Function {
    function(name, Body::Sql(text.to_owned()))
}

fn plpgsql(name: &str, text: &str) -> Function {
    function(name, Body::PlPgSql(text.to_owned()))
}

/// The shared tables (t is 5, u is 6 and 26, t2 is 25), and these functions.
fn with_functions(functions: Vec<Function>) -> Contents {
    let mut contents = fixture::contents();
    contents.user_functions.extend(functions.iter().map(|function| function.name.clone()));
    contents.functions.extend(functions);
    contents
}

fn with_function(body: Body) -> Contents {
    with_functions(vec![function("f", body)])
}

fn view(name: &str, definition: &str) -> ViewDefinition {
    ViewDefinition {
        schema: "public".to_owned(),
        name: name.to_owned(),
        definition: definition.to_owned(),
        ..ViewDefinition::default()
    }
}

fn trigger(function: &str) -> Trigger {
    Trigger {
        name: "trigger".to_owned(),
        timing: Timing::After,
        on_insert: true,
        on_update: true,
        on_delete: true,
        on_truncate: false,
        each_row: true,
        function: Name::qualified("public", function),
        enabled: true,
        deferrable: false,
        condition_runs_code: false,
    }
}

fn table_mut(contents: &mut Contents, id: u32) -> &mut Table {
    contents
        .tables
        .iter_mut()
        .find(|table| table.id == DatabaseId::FIRST.table(id))
        .expect("a table of the fixture")
}

fn refer(contents: &mut Contents, child: u32, parent: u32, on_delete: Action) {
    table_mut(contents, parent).foreign_keys = true;
    let table = table_mut(contents, child);
    table.foreign_keys = true;
    table.references.push(Reference {
        columns: vec![1],
        parent: DatabaseId::FIRST.table(parent),
        parent_columns: vec![0],
        on_delete,
        on_update: Action::NoAction,
        deferrable: false,
        matches_full: false,
        period: false,
    });
}

#[test]
fn a_view_is_read_as_its_query() {
    let mut contents = fixture::contents();
    contents.views = vec![
        view("seen", "SELECT a FROM public.t WHERE (id IN (SELECT t2.id FROM other.t2));"),
        view("again", "SELECT s.a FROM (public.seen s JOIN public.pgbench_tellers k ON ((s.a = k.id)));"),
        view("looping", "SELECT a FROM public.looping;"),
        view("catalogued", "SELECT relname FROM pg_class;"),
        view("calling", "SELECT my_function(1);"),
        view("broken", "SELEC"),
        view("empty", ""),
        ViewDefinition { materialized: true, ..view("stored", "SELECT 1;") },
    ];
    assert_eq!(routing("select * from seen", &contents).access, read(&[5, 25]));
    assert_eq!(routing("select * from again", &contents).access, read(&[3, 5, 25]));
    assert_eq!(
        routing("select * from public.seen where exists (select from u)", &contents).access,
        read(&[5, 6, 25, 26])
    );
    assert_eq!(routing("select * from looping", &contents).access, read(&[]));
    assert_eq!(routing("select * from catalogued", &contents).access, Access::Anchor(Because::Catalogue));
    for name in ["calling", "broken", "empty", "stored"] {
        let routing = routing(&format!("select * from {name}"), &contents);
        assert_eq!((&routing.access, &routing.claims), (&UNKNOWN, &Claims::Everything), "{name}");
    }
    let locking = routing("select * from seen for update", &contents);
    assert_eq!((&locking.access, &locking.claims), (&UPDATE, &Claims::Tables(ids(&[5, 25]))));
    // Another object of that name, wherever it is, counts as well.
    contents.tables.push(Table { schema: "other".to_owned(), ..fixture::table(50, "seen") });
    assert_eq!(routing("select * from seen", &contents).access, read(&[5, 25, 50]));
    assert_eq!(routing("select * from other.seen", &contents).access, read(&[50]));
}

#[test]
fn a_write_to_a_view_is_one_to_its_tables() {
    let mut contents = with_functions(vec![plpgsql("instead", "BEGIN DELETE FROM u; RETURN NEW; END")]);
    contents.functions[0].returns = Returns::Trigger;
    contents.views = vec![
        view("seen", "SELECT a FROM public.t;"),
        ViewDefinition {
            triggers: vec![Trigger { timing: Timing::InsteadOf, ..trigger("instead") }],
            ..view("acting", "SELECT 1 FROM t2;")
        },
        ViewDefinition {
            rules: vec![Rule { name: "r".to_owned(), definition: String::new() }],
            ..view("ruled", "SELECT 1 FROM t2;")
        },
    ];
    let through = routing("update seen set a = 1", &contents);
    assert_eq!(
        (&through.access, &through.claims, &through.writes),
        (&UPDATE, &Claims::Rows, &Some(ids(&[5])))
    );
    let acting = routing("delete from acting", &contents);
    assert_eq!(acting.writes, Some(ids(&[6, 25, 26])));
    assert_eq!((&acting.reads, &acting.claims), (&Some(ids(&[6, 25, 26])), &Claims::Rows));
    assert_eq!(routing("delete from ruled", &contents).claims, Claims::Everything);
}

#[test]
fn functions_are_looked_into() {
    let bodies = [
        (Body::Sql("SELECT a FROM t WHERE id = $1".to_owned()), read(&[5])),
        (Body::SqlStandard("RETURN (SELECT max(t.a) FROM public.t)".to_owned()), read(&[5])),
        (
            Body::SqlStandard("BEGIN ATOMIC\n SELECT t2.a FROM other.t2;\n SELECT 1;\nEND".to_owned()),
            read(&[25]),
        ),
        (Body::PlPgSql("BEGIN RETURN (SELECT count(*) FROM t); END".to_owned()), read(&[5])),
        (
            Body::PlPgSql(
                "DECLARE n int := 0; r record; BEGIN FOR r IN SELECT * FROM t2 LOOP n := n + r.a; END LOOP; \
                 IF n > 3 THEN PERFORM 1 FROM t; END IF; RETURN n; EXCEPTION WHEN OTHERS THEN RETURN 0; END"
                    .to_owned(),
            ),
            read(&[5, 25]),
        ),
        (
            Body::PlPgSql(
                "DECLARE c CURSOR FOR SELECT * FROM t; r record; BEGIN OPEN c; FETCH c INTO r; END"
                    .to_owned(),
            ),
            read(&[5]),
        ),
        (Body::Sql("INSERT INTO t VALUES (1)".to_owned()), UPDATE),
        (Body::Sql("SELECT 1; SELECT * FROM t FOR UPDATE".to_owned()), UPDATE),
        (Body::PlPgSql("BEGIN UPDATE t SET a = 1; RETURN 1; END".to_owned()), UPDATE),
        (
            Body::PlPgSql("BEGIN PERFORM relname FROM pg_class; END".to_owned()),
            Access::Anchor(Because::Catalogue),
        ),
    ];
    for (body, wanted) in bodies {
        let contents = with_function(body.clone());
        let routing = routing("select f(1)", &contents);
        assert_eq!(routing.access, wanted, "{body:?}");
        assert_ne!(routing.claims, Claims::Everything, "{body:?}");
    }
}

#[test]
fn code_that_is_not_understood_may_do_anything() {
    let texts = [
        "BEGIN EXECUTE 'select 1'; END",
        "BEGIN EXECUTE 'select ' || $1 INTO x USING 1; END",
        "DECLARE r record; BEGIN FOR r IN EXECUTE 'select 1' LOOP NULL; END LOOP; END",
        "DECLARE c refcursor; BEGIN OPEN c FOR EXECUTE 'select 1'; END",
        "BEGIN RETURN QUERY EXECUTE 'select 1'; END",
        "BEGIN COMMIT; END",
        "BEGIN ROLLBACK; END",
        "BEGIN CALL p(); END",
        "BEGIN DO 'begin end'; END",
        "BEGIN CREATE TABLE x (y int); END",
        "BEGIN SET search_path = x; END",
        "BEGIN LOCK TABLE t; END",
        "BEGIN PERFORM set_config('a.b', 'c', true); END",
        "BEGIN PERFORM nobody_knows(1); END",
        "BEGIN PERFORM 1 FROM nowhere; END",
        "BEGIN PERFORM 1 WHERE 1 @@@ 2; END",
        "BEGIN PERFORM 'x'::citext; END",
        "DECLARE m citext; BEGIN NULL; END",
        "DECLARE r record := my_function(1); BEGIN NULL; END",
        "DECLARE r record := (SELECT lo_create(1)); BEGIN NULL; END",
        "DECLARE r record := (1 @@@ 2, 3); BEGIN NULL; END",
        "BEGIN PERFORM 'a\\'; END",
        "BEGIN PERFORM 1; END $body0$ LANGUAGE plpgsql; SELECT $body0$ ",
        "BEGIN nonsense END",
    ];
    for text in texts {
        let contents =
            with_functions(vec![Function { returns_set: text.contains("QUERY"), ..plpgsql("f", text) }]);
        let routing = routing("select f(1)", &contents);
        assert_eq!((&routing.access, &routing.claims), (&UNKNOWN, &Claims::Everything), "{text}");
        assert_eq!(routing.reads, None, "{text}");
    }
    let others = [
        Function { settings: vec!["role".to_owned()], ..sql("f", "SELECT 1") },
        Function { settings: vec!["standard_conforming_strings".to_owned()], ..sql("f", "SELECT 1") },
        Function { defaults: "my_function(1)".to_owned(), ..sql("f", "SELECT 1") },
        Function { types: HeadTypes::Coded, ..sql("f", "SELECT 1") },
        sql("f", "SELECT 'a\\'"),
        sql("f", "VACUUM"),
        sql("f", "CREATE TEMP TABLE x AS SELECT 1"),
        sql("f", ""),
        function("f", Body::Unknown),
    ];
    for function in others {
        let contents = with_functions(vec![function.clone()]);
        assert_eq!(routing("select f(1)", &contents).claims, Claims::Everything, "{function:?}");
    }
    let harmless = Function {
        settings: vec!["search_path".to_owned()],
        defaults: "1, now()".to_owned(),
        ..sql("f", "SELECT 1")
    };
    assert_eq!(routing("select f()", &with_functions(vec![harmless])).access, read(&[]));
    let of_types = |types| {
        let function = Function { types, ..sql("f", "SELECT t FROM t") };
        let routed = routing("select f()", &with_functions(vec![function]));
        (routed.access.clone(), routed.claims.clone(), routed.user_types)
    };
    assert_eq!(of_types(HeadTypes::BuiltIn), (read(&[5]), Claims::Rows, false));
    assert_eq!(of_types(HeadTypes::Plain), (read(&[5]), Claims::Rows, true));
    assert_eq!(of_types(HeadTypes::Objects), (Access::Anchor(Because::Catalogue), Claims::Rows, true));
}

#[test]
fn words_stand_in_for_what_the_parser_leaves_out() {
    let hidden = "DECLARE r record := (SELECT t FROM t2 AS t); BEGIN RETURN 1; END";
    assert_eq!(
        routing("select f()", &with_function(Body::PlPgSql(hidden.to_owned()))).access,
        read(&[5, 25])
    );
    let typed = "DECLARE x t.a%TYPE; y pgbench_tellers%ROWTYPE; BEGIN RETURN 1; END";
    assert_eq!(routing("select f()", &with_function(Body::PlPgSql(typed.to_owned()))).access, read(&[3, 5]));
    let calls = with_functions(vec![
        plpgsql("f", "DECLARE r record := g(1); BEGIN RETURN 1; END"),
        sql("g", "INSERT INTO t VALUES (1)"),
    ]);
    assert_eq!(routing("select f()", &calls).access, UPDATE);
    for text in [
        "x oid",
        "x regclass",
        "r record := (SELECT x.ctid FROM t x)",
        "r record := (SELECT x FROM pg_class x)",
    ] {
        let body = Body::PlPgSql(format!("DECLARE {text}; BEGIN RETURN 1; END"));
        assert_eq!(
            routing("select f()", &with_function(body)).access,
            Access::Anchor(Because::Catalogue),
            "{text}"
        );
    }
    let random = Body::PlPgSql("DECLARE r record := (SELECT random()); BEGIN RETURN 1; END".to_owned());
    let random = routing("select f()", &with_function(random));
    assert_eq!((&random.access, &random.claims), (&UNKNOWN, &Claims::Rows));
}

#[test]
fn all_functions_of_a_name_count() {
    let mut functions = vec![sql("f", "SELECT 1 FROM t"), sql("f", "SELECT 1 FROM t2")];
    functions[1].schema = "other".to_owned();
    let contents = with_functions(functions.clone());
    for text in ["select f(1)", "select public.f(1)", "select x.f from pgbench_tellers x"] {
        let tellers = text.contains("tellers");
        let wanted = if tellers { read(&[3, 5, 25]) } else { read(&[5, 25]) };
        assert_eq!(routing(text, &contents).access, wanted, "{text}");
    }
    functions.push(function("f", Body::Unknown));
    assert_eq!(routing("select f(1)", &with_functions(functions)).access, UNKNOWN);
    let nothing_known = statement("select my_function(1)").routing(&fixture::catalogue());
    assert_eq!(nothing_known.access, UNKNOWN);
    let shadow = with_functions(vec![sql("nextval", "SELECT 1 FROM t")]);
    let shadow = routing("select nextval('s')", &shadow);
    assert_eq!((&shadow.access, &shadow.claims), (&UNKNOWN, &Claims::Rows), "the server's own counts, too");
    let recursive = with_functions(vec![
        sql("even", "SELECT odd($1 - 1) FROM t"),
        plpgsql("odd", "BEGIN RETURN even(x - 1) FROM t2; END"),
    ]);
    assert_eq!(routing("select even(4)", &recursive).access, read(&[5, 25]));
}

#[test]
fn arguments_and_results_are_variables() {
    let argument = |name: &str, mode| Argument { name: name.to_owned(), mode, type_oid: 0 };
    let cases = [
        (vec![argument("n", ArgumentMode::In), argument("out", ArgumentMode::InOut)], false, "out := n;"),
        (
            vec![argument("x", ArgumentMode::Out), argument("y", ArgumentMode::Out)],
            true,
            "SELECT a, b INTO x, y FROM t; RETURN NEXT;",
        ),
        (
            vec![argument("", ArgumentMode::In), argument("a b", ArgumentMode::Table)],
            true,
            "RETURN QUERY SELECT 1 FROM t;",
        ),
        (vec![argument("v", ArgumentMode::In)], false, "v[1 + (SELECT a FROM t)] := 2; RETURN v;"),
    ];
    for (arguments, returns_set, text) in cases {
        let function = Function { arguments, returns_set, ..plpgsql("f", &format!("BEGIN {text} END")) };
        let wanted = if text.contains("FROM t") { read(&[5]) } else { read(&[]) };
        assert_eq!(routing("select f(1)", &with_functions(vec![function])).access, wanted, "{text}");
    }
}

#[test]
fn triggers_are_followed() {
    let mut contents = with_functions(vec![plpgsql(
        "audit",
        "BEGIN NEW.a := 1; IF TG_OP = 'INSERT' THEN INSERT INTO t2 SELECT a FROM pgbench_tellers; END IF; RETURN NEW; END",
    )]);
    contents.functions[0].returns = Returns::Trigger;
    let table = table_mut(&mut contents, 5);
    table.user_triggers = true;
    table.triggers.push(trigger("audit"));
    let routed = routing("insert into t values (1)", &contents);
    assert_eq!((&routed.reads, &routed.writes), (&Some(ids(&[3, 25])), &Some(ids(&[5, 25]))));
    assert_eq!(routed.claims, Claims::Rows);
    assert_eq!(routing("select * from t", &contents).access, read(&[5]));
    table_mut(&mut contents, 25).other_unique = true;
    assert_eq!(routing("delete from t", &contents).claims, Claims::Tables(ids(&[25])));

    let broken: [fn(&mut Table); 5] = [
        |table| table.triggers[0].function = Name::qualified("public", "nobody"),
        |table| table.triggers[0].condition_runs_code = true,
        |table| table.own_code = true,
        |table| table.rules.push(Rule { name: "r".to_owned(), definition: String::new() }),
        |table| table.triggers.clear(),
    ];
    for (at, change) in broken.into_iter().enumerate() {
        let mut contents = contents.clone();
        change(table_mut(&mut contents, 5));
        let routed = routing("insert into t values (1)", &contents);
        assert_eq!((&routed.claims, &routed.reads), (&Claims::Everything, &None), "{at}");
    }
    table_mut(&mut contents, 5).triggers[0].enabled = false;
    assert_eq!(routing("insert into t values (1)", &contents).writes, Some(ids(&[5])));
}

#[test]
fn references_are_looked_up_and_cascade() {
    let mut contents = fixture::contents();
    refer(&mut contents, 5, 25, Action::NoAction);
    refer(&mut contents, 3, 5, Action::Cascade);
    refer(&mut contents, 2, 3, Action::SetNull);
    let of = |text: &str| {
        let routed = routing(text, &contents);
        (routed.reads.clone(), routed.writes.clone(), routed.claims.clone())
    };
    let cascade = (Some(ids(&[2, 3, 5, 25])), Some(ids(&[2, 3, 5])), Claims::Rows);
    assert_eq!(of("delete from t where id = 1"), cascade);
    let parent = (Some(ids(&[5])), Some(ids(&[25])), Claims::Rows);
    assert_eq!(of("insert into t2 values (1)"), parent);
    let emptied = of("truncate t2 cascade");
    assert_eq!(emptied.1, Some(ids(&[2, 3, 5, 25])));
    assert_eq!(emptied.2, Claims::Tables(ids(&[2, 3, 5, 25])));
    // That it has references is not enough.
    table_mut(&mut contents, 26).foreign_keys = true;
    assert_eq!(routing("delete from other.u", &contents).claims, Claims::Everything);
}

#[test]
fn policies_run_with_every_access() {
    let mut contents = fixture::contents();
    let policy = |text: &str| Policy { name: "p".to_owned(), expressions: vec![text.to_owned()] };
    let secured = table_mut(&mut contents, 23);
    secured.policies = vec![policy("(id IN ( SELECT t2.id\n   FROM other.t2))"), policy("(a = 1)")];
    assert_eq!(routing("select * from secured", &contents).access, read(&[23, 25]));
    assert_eq!(routing("delete from secured", &contents).reads, Some(ids(&[25])));
    table_mut(&mut contents, 23).policies.push(policy("my_function(a)"));
    assert_eq!(routing("select * from secured", &contents).access, UNKNOWN);
    assert_eq!(routing("delete from secured", &contents).claims, Claims::Everything);
}

#[test]
fn defaults_are_computed_for_new_rows_and_where_they_are_asked_for() {
    let mut contents = with_functions(vec![
        sql("adds", "INSERT INTO t VALUES (1)"),
        sql("counts", "SELECT count(*) FROM t"),
        plpgsql("guesses", "BEGIN PERFORM 1; END"),
    ]);
    let fills = |text: &str, contents: &Contents| routing(text, contents).fills_defaults;
    for text in [
        "update t set a = 1 where a = 2",
        "delete from t where a = 2",
        "select * from t for update",
        "with gone as (delete from t returning a) update t2 set a = 1 from gone",
    ] {
        assert!(!fills(text, &contents), "{text}");
    }
    for text in [
        "insert into t values (1)",
        "update t set a = default",
        "update t set (a, b) = (1, default)",
        "with added as (insert into t values (1) returning a) delete from t2 using added",
        "merge into t using t2 on t.a = t2.a when not matched then insert values (1)",
        "delete from t where a = adds()",
        "delete from t where a = guesses()",
        "copy t from stdin",
        "execute something",
    ] {
        assert!(fills(text, &contents), "{text}");
    }
    refer(&mut contents, 25, 5, Action::Cascade);
    assert!(!fills("delete from t", &contents));
    refer(&mut contents, 25, 5, Action::SetDefault);
    assert!(fills("delete from t", &contents));
}
