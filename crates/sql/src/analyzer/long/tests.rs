//! What is kept of long texts, what is concluded of them, and what is refused.

use super::*;
use crate::{Analyzer, Limits, Opaque, Rejection, Verb};

fn script(text: &str) -> Arc<Script> {
    assert!(text.len() > MIN_BYTES, "{} bytes", text.len());
    Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap_or_else(|error| panic!("{error}"))
}

fn reduced(text: &str) -> String {
    let mut cutter = Cutter::new(text.as_bytes());
    let mut all = Vec::new();
    while let Some(piece) = cutter.next(MAX_TOKENS).unwrap() {
        assert!(!piece.may_go_on);
        let source = &text[piece.span.start..piece.span.end];
        assert_eq!(source, source.trim(), "the place is that of the tokens");
        all.push(String::from_utf8(piece.reduced).unwrap());
    }
    all.join("; ")
}

#[test]
fn what_differs_in_constants_only_is_kept_twice() {
    let cases = [
        (
            "insert into t values (1, 'a'), (-2, null), (3,\n true), (4, 'b'), (5, now()), (6, now()), (7, now()) returning a",
            "insert into t values (1, 'a'), (-2, 'x'), (5, now()), (6, now()) returning a",
        ),
        (
            "select 1 where a in (1,2,3, -4, null,a,b) and f(1, 2, 3)",
            "select 1 where a in (1,2,a,b) and f(1, 2, 3)",
        ),
        ("select array[1,2,3,4], array[[1,2],[3,4],[5,6]]", "select array[1,2], array[[1,2],[3,4]]"),
        (
            "delete from t where (a, b) in ((1,2),(3,4),(5,6),(7,8))",
            "delete from t where (a, b) in ((1,2),(3,4))",
        ),
        ("select * from t where a in (select 1, 1, 1, 1)", "select * from t where a in (select 1, 1, 1, 1)"),
        ("with v as (values (1), (2), (3)) select * from v", "with v as (values (1), (2)) select * from v"),
        ("select 1, 1, 1, 1; select f(1, 1, 1, 1)", "select 1, 1, 1, 1; select f(1, 1, 1, 1)"),
        (
            "insert into t (a, b) values (1, default), (2, default), (3, 4), (5, default)",
            "insert into t (a, b) values (1, default), (2, default), (3, 4)",
        ),
        ("values (a @ -1), (a @ -1), (a @-1), (a @ -1)", "values (a @ -1), (a @ -1), (a @-1)"),
        (
            "values ((1)), ((2)), ((3)) union all values (1), (2), (3)",
            "values ((1)), ((2)) union all values (1), (2)",
        ),
        ("insert into t values ($1, $2), ($3, 4), ($5, $6)", "insert into t values ('x', 'x'), ('x', 4)"),
        (
            "values (a is null, null), (a is null, 5), (a is not null, true), (a is null, 6)",
            "values (a is null, 'x'), (a is null, 5), (a is not null, 'x')",
        ),
        ("(values (1, 2), (3, 4), (5, 6)) limit 1", "(values (1, 2), (3, 4)) limit 1"),
        (
            "create rule r as on insert to t do (select 1; select 2); select 3",
            "create rule r as on insert to t do (select 1; select 2); select 3",
        ),
    ];
    for (text, kept) in cases {
        assert_eq!(reduced(text), kept);
        assert!(parser::parse(kept, true).is_ok(), "{kept}");
    }
    let long = format!("select e'{0}', $${0}$$, '{0}', 1.{1}, {1}", "x".repeat(100), "1".repeat(100));
    assert_eq!(reduced(&long), "select e'x', 'x', 'x', 1.5, 10000000000");
}

#[test]
fn many_rows_are_one_statement_about_rows() {
    let rows = "(17, 'seventeen', now()), ".repeat(200_000);
    let script = script(&format!("insert into t (a, b, c) values {rows} (1, 'x', now()) returning a"));
    let [part] = script.statements.as_slice() else { panic!("one statement") };
    assert_eq!((&part.statement.verb, part.statement.opaque), (&Verb::Insert, None));
    let short =
        "insert into t (a, b, c) values (1, 'x', now()), (1, 'x', now()), (1, 'x', now()) returning a";
    let short = Analyzer::new(Limits::default()).script(short.as_bytes(), true).unwrap();
    let short = &short.statements[0].statement;
    assert_eq!((&short.reads, &short.writes), (&part.statement.reads, &part.statement.writes));
    assert_eq!(short.functions, part.statement.functions);
}

#[test]
fn many_statements_are_each_understood_in_their_places() {
    let text = "insert into t values (1, 'a;b'); update u set a = 2 where k = 3; create table v (a int);\n"
        .repeat(2_000);
    let script = script(&text);
    assert_eq!(script.statements.len(), 6_000);
    for (part, verb) in script.statements.iter().zip([Verb::Insert, Verb::Update].iter().cycle()) {
        let source = &text[part.start..part.end];
        match source.split(' ').next() {
            Some("insert") => assert_eq!(source, "insert into t values (1, 'a;b')"),
            Some("update") => assert_eq!(source, "update u set a = 2 where k = 3"),
            _ => assert!(matches!(part.statement.verb, Verb::Ddl(_)), "{verb:?}"),
        }
    }
    let alike = |index: usize| Arc::as_ptr(&script.statements[index].statement);
    assert_eq!((alike(0), alike(1)), (alike(3), alike(4)), "each is parsed once");
}

#[test]
fn settings_are_read_and_bodies_are_not_cut() {
    let filler = format!("/* {} */", "x".repeat(MIN_BYTES));
    let script_of = |text: &str| script(&format!("{text} {filler}"));
    let setting = script_of("select set_config('a.b', 'c', false)");
    assert_eq!(setting.statements[0].statement.settings[0].value.as_deref(), Some("c"));
    let atomic = "create function f() returns void begin atomic select 1; select 2; end";
    assert_eq!(script_of(atomic).statements.len(), 1);
    let block = script_of("do $$ begin perform 1; perform 2; end $$; select 1");
    assert_eq!(block.statements.len(), 2);
    // What the lexer does not understand goes to the parser as it is.
    let strange = script_of(r"select u&'d\0061t\+000061'; select 1");
    assert_eq!(strange.statements.len(), 2);
    assert_eq!(strange.statements[0].statement.opaque, None);
}

#[test]
fn what_has_too_many_tokens_is_refused_before_it_is_parsed() {
    for text in [
        format!("select 1 from t where {} 1=1", "1=1 and ".repeat(400_000)),
        format!("select 1 from t where {} 1=1", "a=1 and b=2 or ".repeat(200_000)),
        format!("select {} 1", "1,".repeat(500_000)),
        format!("select u&'x', {} 1", "1,".repeat(500_000)),
        format!("do {}", "1 ".repeat(500_000)),
        format!("select 1 where a in ({} 1)", "(a in (".repeat(100_000)),
        (0..20_000).map(|n| format!("create table t{n} (a int)")).collect::<Vec<_>>().join(";"),
    ] {
        let error = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap_err();
        assert_eq!(error.reason, Rejection::TooComplex, "{}", &text[..60]);
        let escaping = Analyzer::new(Limits::default()).script(text.as_bytes(), false);
        assert!(escaping.is_err(), "{}", &text[..60]);
    }
    let error =
        Analyzer::new(Limits::default()).script(format!("select {}", "(".repeat(MIN_BYTES)).as_bytes(), true);
    assert!(error.is_err());
    let sum = script(&format!("select 1{}", " + 1".repeat(30_000)));
    assert_eq!(sum.statements[0].statement.opaque, Some(Opaque::Size));
}

/// Of every statement that is known to other tests the same is concluded as if it were short.
#[test]
fn a_long_text_is_understood_like_a_short_one() {
    let golden = include_str!("../../../tests/golden/statements.txt");
    let filler = format!(" -- {}", "x".repeat(MIN_BYTES));
    let texts =
        golden.lines().filter(|line| !line.starts_with("=>") && !line.starts_with("##") && !line.is_empty());
    let (mut alike, mut reduced) = (0, 0);
    for text in texts {
        let understand = |text: &str| Analyzer::new(Limits::default()).script(text.as_bytes(), true);
        let (Ok(short), Ok(long)) = (understand(text), understand(&format!("{text}{filler}"))) else {
            continue;
        };
        assert_eq!(short.statements.len(), long.statements.len(), "{text}");
        for (short, long) in short.statements.iter().zip(&long.statements) {
            assert_eq!((short.start, short.end), (long.start, long.end), "{text}");
            let mut statement = (*long.statement).clone();
            statement.template = short.statement.template;
            let lists = ["values", "in (", "array["].iter().any(|list| text.to_lowercase().contains(list));
            if lists || short.statement.settings != statement.settings || !short.statement.settings.is_empty()
            {
                statement.shape.clone_from(&short.statement.shape);
                reduced += 1;
            }
            let inner = statement.inner.is_some() || short.constants.is_empty();
            if inner {
                // Of what stands in other statements the constants are left open there only.
                statement.shape.clone_from(&short.statement.shape);
                statement.inner.clone_from(&short.statement.inner);
            }
            assert_eq!(*short.statement, statement, "{text}");
            alike += 1;
        }
    }
    assert!(alike > 300 && reduced > 30, "{alike}, {reduced}");
}
