//! Which tables are simple, and why the others are not.

use sql::{
    Action, Body, Catalogue, Contents, Function, Key, Name, Parent, Reference, Rule, Table, TableId, Timing,
    Trigger, ViewDefinition, WhyNot, simple,
};

mod fixture;

const TABLE: TableId = TableId(5);

/// The shared catalogue without functions of which nothing is known.
fn with(change: impl FnOnce(&mut Contents)) -> Result<(), WhyNot> {
    let mut contents = fixture::contents();
    contents.user_functions.clear();
    change(&mut contents);
    simple(TABLE, &Catalogue::new(contents))
}

fn with_table(change: impl FnOnce(&mut Table)) -> Result<(), WhyNot> {
    with(|contents| {
        change(contents.tables.iter_mut().find(|table| table.id == TABLE).expect("the fixture has it"));
    })
}

fn with_function(body: &str) -> Result<(), WhyNot> {
    with(|contents| {
        contents.user_functions.push("f".to_owned());
        contents.functions.push(Function {
            schema: "public".to_owned(),
            name: "f".to_owned(),
            body: Body::PlPgSql(body.to_owned()),
            ..Function::default()
        });
    })
}

fn with_view(definition: &str) -> Result<(), WhyNot> {
    with(|contents| {
        contents.views.push(ViewDefinition {
            schema: "public".to_owned(),
            name: "v".to_owned(),
            definition: definition.to_owned(),
            ..ViewDefinition::default()
        });
    })
}

fn reference(parent: u32, on_delete: Action) -> Reference {
    Reference {
        columns: vec![1],
        parent: TableId(parent),
        parent_columns: vec![0],
        on_delete,
        on_update: Action::NoAction,
        deferrable: false,
        matches_full: false,
        period: false,
    }
}

#[test]
fn a_plain_table_is_simple() {
    assert_eq!(with(|_| ()), Ok(()));
    assert_eq!(with_function("BEGIN PERFORM 1 FROM t; DELETE FROM other.t2; END"), Ok(()));
    assert_eq!(with_view("SELECT id FROM other.t2"), Ok(()));
    let refers = |table: &mut Table| {
        table.foreign_keys = true;
        table.references.push(reference(6, Action::Restrict));
    };
    assert_eq!(with_table(refers), Ok(()), "a reference that refuses writes nothing");
    let children = |contents: &mut Contents| {
        contents.tables[0].references.push(reference(5, Action::Cascade));
    };
    assert_eq!(with(children), Ok(()), "its children are not simple, but it is");
    assert_eq!(simple(TableId(99), &fixture::catalogue()), Err(WhyNot::Unknown));
}

#[test]
fn its_own_definition_can_be_in_the_way() {
    assert_eq!(with_table(|t| t.primary_key.clear()), Err(WhyNot::NoPrimaryKey));
    assert_eq!(with_table(|t| t.keys[0].deferrable = true), Err(WhyNot::DeferrableKey));
    let overlapping = Key { exclusion: true, primary: true, unique: true, ..Key::default() };
    assert_eq!(with_table(|t| t.keys = vec![overlapping]), Err(WhyNot::DeferrableKey));
    assert_eq!(with_table(|t| t.own_code = true), Err(WhyNot::OwnCode));
    assert_eq!(with_table(|t| t.user_triggers = true), Err(WhyNot::OwnCode));
    assert_eq!(with_table(|t| t.foreign_keys = true), Err(WhyNot::OwnCode));
    assert_eq!(with_table(|t| t.row_security = true), Err(WhyNot::RowSecurity));
    assert_eq!(with_table(|t| t.coded_types = true), Err(WhyNot::CodedTypes));
    let trigger = Trigger {
        name: "trig".to_owned(),
        timing: Timing::Before,
        on_insert: true,
        on_update: false,
        on_delete: false,
        on_truncate: false,
        each_row: true,
        function: Name::qualified("pg_catalog", "suppress_redundant_updates_trigger"),
        enabled: false,
        deferrable: false,
        condition_runs_code: false,
    };
    assert_eq!(with_table(|t| t.triggers.push(trigger)), Err(WhyNot::Trigger("trig".to_owned())));
    for action in [Action::Cascade, Action::SetNull, Action::SetDefault] {
        let refers = |table: &mut Table| {
            table.foreign_keys = true;
            table.references.push(reference(6, action));
        };
        assert_eq!(with_table(refers), Err(WhyNot::Cascade(TableId(6))));
    }
    for (name, leaves) in [("whole2", vec![TABLE]), ("t", vec![TableId(6)])] {
        let parent = Parent { schema: "public".to_owned(), name: name.to_owned(), leaves };
        assert_eq!(with(|contents| contents.parents.push(parent)), Err(WhyNot::Inheritance), "{name}");
    }
}

#[test]
fn what_others_do_can_be_in_the_way() {
    let named = |name: &str| name.to_owned();
    assert_eq!(with_function("BEGIN UPDATE t SET a = 1; END"), Err(WhyNot::WrittenBy(named("f"))));
    assert_eq!(with_function("BEGIN EXECUTE 'x'; END"), Err(WhyNot::UnknownFunction(named("f"))));
    let unknown = |contents: &mut Contents| contents.user_functions.push("g".to_owned());
    assert_eq!(with(unknown), Err(WhyNot::UnknownFunction(named("g"))));
    assert_eq!(with(|contents| contents.has_user_casts = true), Err(WhyNot::UnseenCode));
    for definition in ["SELECT id FROM public.t", "SELECT x FROM a WHERE EXISTS (SELECT FROM t)", "nonsense"]
    {
        assert_eq!(with_view(definition), Err(WhyNot::View(Name::qualified("public", "v"))), "{definition}");
    }
    let ruled = |contents: &mut Contents| {
        contents.tables[0].rules.push(Rule { name: named("r"), definition: String::new() });
    };
    assert_eq!(with(ruled), Err(WhyNot::Rule(Name::qualified("public", "pgbench_accounts"))));
    let why = WhyNot::WrittenBy(named("f"));
    assert_eq!(why.to_string(), "function f writes it");
}
