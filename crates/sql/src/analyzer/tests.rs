//! The analyzer: what it remembers, where it cuts, and what it survives.

use proptest::prelude::*;

use super::*;

fn analyzer() -> Analyzer {
    Analyzer::new(Limits::default())
}

fn one(script: &Script) -> &Part {
    let [part] = script.statements.as_slice() else { panic!("one statement expected: {script:?}") };
    part
}

#[test]
fn texts_that_differ_in_constants_share_a_template() {
    let mut analyzer = analyzer();
    let first = analyzer.script(b"select a from t where b = 1", true).unwrap();
    let second = analyzer.script(b"select a from t where b = 234;", true).unwrap();
    assert!(Arc::ptr_eq(&one(&first).statement, &one(&second).statement));
    assert_eq!((one(&second).start, one(&second).end), (0, 29));
    assert_eq!((analyzer.statistics().hits, analyzer.statistics().misses), (1, 1));
}

#[test]
fn statements_that_keep_constants_are_keyed_by_text() {
    let mut analyzer = analyzer();
    for name in ["a.b", "c.d", "a.b"] {
        let text = format!("select set_config('{name}', 'x', false)");
        let script = analyzer.script(text.as_bytes(), true).unwrap();
        assert_eq!(one(&script).statement.settings[0].name.as_deref(), Some(name));
    }
    assert_eq!(analyzer.statistics().hits, 1);
    for value in ["1", "2"] {
        let script = analyzer.script(format!("set a.b = {value}").as_bytes(), true).unwrap();
        assert!(
            matches!(&one(&script).statement.verb, Verb::Set { value: crate::SetValue::Text(text), .. } if text == value)
        );
    }
}

#[test]
fn several_statements_have_their_own_places() {
    let text = "begin ; /* x */ update t set a = 'é;' -- y\n;; select 2 ; ";
    for _ in 0..2 {
        let script = analyzer().script(text.as_bytes(), true).unwrap();
        let parts: Vec<_> = script.statements.iter().map(|part| &text[part.start..part.end]).collect();
        assert_eq!(parts, ["begin", "update t set a = 'é;'", "select 2"]);
    }
}

#[test]
fn errors_are_not_remembered() {
    let mut analyzer = analyzer();
    let error = analyzer.script(b"select from where", true).unwrap_err();
    assert!(error.to_string().contains("syntax error"));
    assert_eq!(analyzer.statistics().entries, 0);
    assert!(analyzer.script(b"select 1\0", true).is_err());
}

#[test]
fn long_texts_are_parsed_and_not_remembered() {
    let mut analyzer = analyzer();
    let text = format!("select '{}'", "x".repeat(MAX_REMEMBERED_TEXT));
    assert_eq!(one(&analyzer.script(text.as_bytes(), true).unwrap()).end, text.len());
    let text = format!("insert into t values ('{}'); select 1", "x".repeat(4 << 20));
    let script = analyzer.script(text.as_bytes(), true).unwrap();
    assert_eq!(script.statements.len(), 2);
    assert_eq!(script.statements[0].statement.verb, Verb::Insert);
    assert_eq!(analyzer.statistics().entries, 0);
}

#[test]
fn deep_statements_are_judged_by_their_first_words() {
    let deep = format!("1{}", " + 1".repeat(3000));
    let nested = format!("{}select 1{}", "select * from (".repeat(300), ") x".repeat(300));
    let cases = [
        (format!("select {deep}"), Verb::Select),
        (format!("update t set a = {deep}"), Verb::Update),
        (format!("with x as (select {deep}) select 1"), Verb::Select),
        (nested, Verb::Select),
    ];
    for (text, verb) in cases {
        let script = analyzer().script(text.as_bytes(), true).unwrap();
        assert_eq!(
            (&one(&script).statement.verb, one(&script).statement.opaque),
            (&verb, Some(Opaque::Size))
        );
    }
    let text = format!("create view v as select {deep}; select 1");
    let script = analyzer().script(text.as_bytes(), true).unwrap();
    assert!(matches!(script.statements[0].statement.verb, Verb::Refused { .. }));
    assert_eq!(script.statements[1].statement.opaque, None, "the other statement is understood all the same");
    let brackets = format!("select {}1{}", "(".repeat(100_000), ")".repeat(100_000));
    let outcome = analyzer().script(brackets.as_bytes(), true);
    assert!(outcome.is_err() || one(&outcome.unwrap()).statement.verb == Verb::Select);
}

#[test]
fn strings_with_backslashes_follow_the_setting() {
    let text = br"select 'a\'; delete from t; --'";
    let standard = analyzer().script(text, true).unwrap();
    assert_eq!(standard.statements.len(), 2);
    let escaping = analyzer().script(text, false).unwrap();
    assert_eq!(escaping.statements.len(), 1);
}

#[test]
fn other_encodings_are_split_but_not_trusted() {
    let mut analyzer = analyzer();
    let script = analyzer.script(b"select * from t\xe4b; delete from t where a = '\xfc'';'", true).unwrap();
    assert_eq!(script.statements.len(), 2);
    for part in &script.statements {
        assert_eq!(part.statement.opaque, Some(Opaque::Encoding));
    }
    assert_eq!(analyzer.statistics().entries, 0, "a faithful text of the same key must not find it");
}

fn golden() -> Vec<&'static str> {
    let golden = include_str!("../../tests/golden/statements.txt");
    golden
        .lines()
        .filter(|line| !line.starts_with("=>") && !line.starts_with("##") && !line.is_empty())
        .collect()
}

/// Puts other constants into a text: every number and every plain string is replaced.
fn with_other_constants(text: &str, number: u32, string: &str) -> String {
    let mut fresh = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(|c: char| c == '\'' || c.is_ascii_digit()) {
        let (before, from) = rest.split_at(at);
        fresh.push_str(before);
        let in_word = fresh.ends_with(|c: char| c.is_alphanumeric() || "_$.&".contains(c));
        if let Some(inside) = from.strip_prefix('\'') {
            let Some(end) = inside.find('\'') else {
                rest = from;
                break;
            };
            let whole = &from[..end + 2];
            fresh += &if in_word { whole.to_owned() } else { ["'", string, "'"].concat() };
            rest = &inside[end + 1..];
        } else {
            let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
            fresh.push_str(&if in_word { from[..end].to_owned() } else { number.to_string() });
            rest = &from[end..];
        }
    }
    fresh + rest
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// What is found by key is what the parser would have said of that very text.
    #[test]
    fn a_hit_is_what_parsing_would_give(
        text in prop::sample::select(golden()),
        number in 0..2_000_000_000_u32,
        string in "[a-z ;(]{0,9}|--|/[*]|\\$\\$",
    ) {
        let mut warm = analyzer();
        let Ok(_) = warm.script(text.as_bytes(), true) else { return Ok(()) };
        let other = with_other_constants(text, number, &string);
        if let Ok(cold) = analyzer().script(other.as_bytes(), true) {
            prop_assert_eq!(&*warm.script(other.as_bytes(), true).unwrap(), &*cold, "{}", other);
        }
    }

    /// No bytes make the analyzer panic, and its parts lie in the text, in order.
    #[test]
    fn mutated_statements_are_survived(
        text in prop::sample::select(golden()),
        cut in any::<prop::sample::Index>(),
        length in 0..8_usize,
        patch in prop::collection::vec(any::<u8>(), 0..6),
        standard in any::<bool>(),
    ) {
        let mut bytes = text.as_bytes().to_vec();
        let from = cut.index(bytes.len());
        let to = bytes.len().min(from + length);
        bytes.splice(from..to, patch);
        if let Ok(script) = analyzer().script(&bytes, standard) {
            let mut last = 0;
            for part in &script.statements {
                prop_assert!(last <= part.start && part.start <= part.end && part.end <= bytes.len());
                last = part.end;
            }
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let _ = analyzer().script(&bytes, true);
    }
}

#[test]
fn one_of_several_statements_leaves_its_constants_open_as_if_it_stood_alone() {
    let mut analyzer = Analyzer::new(Limits::default());
    let text = "BEGIN; SELECT 'a', b FROM t WHERE k = 12; DELETE FROM t WHERE k = 7";
    let script = analyzer.script(text.as_bytes(), true).unwrap();
    let constants = |part: &Part| -> Vec<&str> {
        part.constants.iter().map(|span| &text[span.start..span.end]).collect()
    };
    let found: Vec<Vec<&str>> = script.statements.iter().map(constants).collect();
    assert_eq!(found, [vec![], vec!["'a'", "12"], vec!["7"]]);
    assert_eq!(script.statements[1].template(text), "SELECT ?, b FROM t WHERE k = ?");
    let alone = analyzer.script(b"DELETE FROM t WHERE k = 8", true).unwrap();
    assert_eq!(script.statements[2].statement, alone.statements[0].statement);
    // Where a backslash may mean something else, the lexer is not asked.
    let script = analyzer.script(text.as_bytes(), false).unwrap();
    assert!(script.statements.iter().all(|part| part.constants.is_empty()));
}
