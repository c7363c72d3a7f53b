//! The lexer against what is expected of it, and against PostgreSQL's own scanner.

use pg_query::protobuf::Token;
use proptest::prelude::*;

use super::*;

fn keyed(text: &str) -> Option<(String, Span)> {
    let mut bytes = Vec::new();
    let span = key(text.as_bytes(), &mut bytes, &mut Vec::new()).ok()?;
    Some((String::from_utf8(bytes).unwrap(), span))
}

#[test]
fn constants_and_surroundings_are_taken_out() {
    let text = "/* x */ SELECT a FROM t WHERE b = 12 AND c = 'x''y' ; -- end\n;";
    let (key, span) = keyed(text).unwrap();
    assert_eq!(key, "SELECT a FROM t WHERE b = \u{3} AND c = \u{1}");
    assert_eq!(&text[span.start..span.end], "SELECT a FROM t WHERE b = 12 AND c = 'x''y'");
}

#[test]
fn texts_that_differ_in_constants_have_one_key() {
    let pairs = [
        ("select 1", "select 23"),
        ("select 1.5, .5, 1e5", "select 2., 3.25e-7, 0.1"),
        ("select 'a'", "select 'it''s; -- /* \" $$'"),
        (r"select E'\''", r"select e'a\\b'''"),
        ("select $$a$$", "select $x$ $$ ' $x$"),
        ("select B'01', X'1f'", "select b'', x'ff'"),
        ("select 1234567890", "select 99999999999"),
        ("select /* a */ 1 -- b", "select /**/ 2 -- c /* '"),
        ("select /* /* */ ; */ 1", "select /* ' */ 1"),
    ];
    for (one, two) in pairs {
        assert_eq!(keyed(one).unwrap().0, keyed(two).unwrap().0, "{one} | {two}");
    }
}

#[test]
fn texts_that_differ_in_more_have_two_keys() {
    let pairs = [
        ("select 1", "select 1.0"),
        ("select 1", "select '1'"),
        ("select 1", "select 1234567890"),
        ("select '1'", "select B'1'"),
        ("select B'1'", "select X'1'"),
        ("select $1", "select $2"),
        ("select \"a\"", "select \"b\""),
        ("select a", "select A"),
        ("select 'a' 'b'", "select 'a'\n'b'"),
        ("select a --x\n, b", "select a --x\n"),
        ("select n'a'", "select 'a'"),
    ];
    for (one, two) in pairs {
        assert!(keyed(one).is_none() || keyed(one) != keyed(two), "{one} | {two}");
    }
}

#[test]
fn what_is_not_understood_is_left_to_the_parser() {
    let texts = [
        "",
        ";",
        "begin",
        "select 1; select 2",
        "select 'open",
        "select \"open",
        "select /* /* */",
        "select $a$ $b$",
        "select $a",
        "select U&'a'",
        "select u&\"a\" from t",
        "select 0x1f",
        "select 1_000",
        "select 1..2",
        "select 123abc",
        "select $1a",
        "select 1e",
        "select \u{1}",
        "select \"\u{1}\"",
        "select 'a\0'",
        "select E'a'\n'\\''",
        "select x'1f''x'",
        "select a..1",
    ];
    for text in texts {
        assert_eq!(keyed(text), None, "{text:?}");
    }
}

#[test]
fn parts_are_trimmed_to_their_tokens() {
    let cases = [
        (" a ", "a"),
        ("-- x\n a 'b' /* c */", "a 'b'"),
        (";; a (b; c) ", "a (b; c)"),
        ("  ", ""),
        (" \u{1} a 'open -- ", "\u{1} a 'open --"),
    ];
    for (text, wanted) in cases {
        let span = trimmed(text.as_bytes(), Span { start: 0, end: text.len() });
        assert_eq!(&text[span.start..span.end], wanted);
    }
}

#[test]
fn first_words_are_found_behind_comments_and_brackets() {
    assert_eq!(first_word(b" /* x */ (( SELECT 1"), "select");
    assert_eq!(first_word(b"/* open"), "");
    assert_eq!(first_word(b""), "");
}

/// Tokens of a text as this lexer sees them, punctuation left out: begin, end and the marker of a constant.
fn own_tokens(text: &[u8]) -> Result<Vec<(usize, usize, Option<u8>)>, Unclear> {
    let (mut scratch, mut constants) = (Vec::new(), Vec::new());
    let mut lexer = Lexer::new(text, &mut scratch, &mut constants);
    let mut tokens = Vec::new();
    loop {
        lexer.gap()?;
        lexer.key.clear();
        let begin = lexer.at;
        let Some(&byte) = text.get(begin) else { return Ok(tokens) };
        let class = CLASSES[usize::from(byte)];
        if class == Class::Semicolon {
            lexer.at += 1;
            continue;
        }
        lexer.token(byte, class)?;
        let constant = lexer.key.first().copied().filter(|byte| *byte < 0x20);
        if class != Class::Mark || constant.is_some() {
            tokens.push((begin, lexer.at, constant));
        }
    }
}

/// The same as PostgreSQL's scanner sees them.
fn server_tokens(text: &str) -> Option<Vec<(usize, usize, bool)>> {
    let tokens = pg_query::scan(text).ok()?.tokens;
    let kept = tokens.into_iter().filter_map(|token| {
        let constant = match Token::try_from(token.token).ok()? {
            Token::Sconst
            | Token::Usconst
            | Token::Iconst
            | Token::Fconst
            | Token::Bconst
            | Token::Xconst => true,
            Token::SqlComment | Token::CComment => return None,
            Token::Ident | Token::Uident | Token::Param => false,
            _ if text.as_bytes()[usize::try_from(token.start).ok()?].is_ascii_alphabetic() => false,
            _ => return None,
        };
        Some((usize::try_from(token.start).ok()?, usize::try_from(token.end).ok()?, constant))
    });
    Some(kept.collect())
}

fn tricky_text() -> impl Strategy<Value = String> {
    let pieces = [
        "'",
        "''",
        "E'",
        "e",
        "N'",
        "\\",
        "\\'",
        "$",
        "$$",
        "$a$",
        "$é1$",
        "$1",
        "--",
        "\n",
        "/*",
        "*/",
        "1",
        "12",
        ".",
        "1e5",
        "1.5",
        "abc",
        "\"",
        "\"\"",
        "select ",
        " ",
        " ",
        ";",
        "x'1f'",
        "b'01'",
        "u&'",
        "U&\"",
        "é",
        "(",
        ")",
        "::",
        "+",
        "-",
        "@",
        "0x1F",
        "_",
        "9876543210",
        "a.b",
        "'x'",
        "\r",
        "\t",
        "\u{c}",
        "?",
        "|",
    ];
    prop::collection::vec(prop::sample::select(pieces.to_vec()), 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 20_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever this lexer accepts, PostgreSQL's scanner cuts at the same places and takes for the same constants.
    #[test]
    fn tokens_are_the_servers(text in tricky_text()) {
        if let Ok(own) = own_tokens(text.as_bytes())
            && let Some(server) = server_tokens(&text)
        {
            let own: Vec<_> = own.into_iter().map(|(begin, end, marker)| (begin, end, marker.is_some())).collect();
            prop_assert_eq!(own, server);
        }
    }

    #[test]
    fn any_bytes_are_survived(text in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut scratch = Vec::new();
        if let Ok(span) = key(&text, &mut scratch, &mut Vec::new()) {
            prop_assert!(span.start < span.end && span.end <= text.len());
        }
        let span = trimmed(&text, Span { start: 0, end: text.len() });
        prop_assert!(span.start <= span.end && span.end <= text.len());
        first_word(&text);
    }
}
