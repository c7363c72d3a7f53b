//! The lexer and the cache against PostgreSQL's parser, on texts made of what is awkward.
//!
//! Statements are put together from words, constants of every form the grammar knows (and some it does not), and gaps
//! that are spaces, comments or nothing at all. What the cache gives for a text must be what parsing that very text
//! gives; and the places it calls constants must be those where the parser found them.
//!
//! `ONECOPY_FUZZ=100 cargo test -p sql --test fuzz` (or `make fuzz`) takes a hundred times as many cases.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "fixture/schema.rs"]
mod schema;

use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use pg_query::ParserOptions;
use pg_query::protobuf::Token;
use proptest::prelude::*;
use sql::accesses::{Accesses, Arguments, Parameter};
use sql::{Analyzer, Catalogue, Limits, Part, Script, SyntaxError};

/// Variable that multiplies the number of cases.
const FACTOR: &str = "ONECOPY_FUZZ";

fn config(cases: u32) -> ProptestConfig {
    let factor = std::env::var(FACTOR).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1_u32);
    ProptestConfig {
        cases: cases.saturating_mul(factor),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// Held by every case: the parser must not be entered by two threads, and here it is also called directly.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn analyzer() -> Analyzer {
    Analyzer::new(Limits::default())
}

/// Constants, and what looks like them.
const CONSTANTS: [&str; 62] = [
    "0",
    "1",
    "007",
    "42",
    "2147483647",
    "2147483648",
    "999999999",
    "1234567890",
    "99999999999999999999",
    "1.5",
    ".5",
    "5.",
    "1e5",
    "1.5e-3",
    "1E+2",
    "0x1F",
    "0b101",
    "0o17",
    "1_000",
    "1_0.0_1",
    "0x",
    "1_",
    "1e",
    "12ab",
    "1..2",
    "''",
    "'a'",
    "'it''s'",
    "' -- '",
    "'/*'",
    "'$1'",
    "';'",
    "'a\\'",
    "'\u{e4}\u{1f600}'",
    "'two\nlines'",
    "'open",
    "E'\\''",
    "e'\\\\'",
    "E'\\n\\x41\\u00e4\\101'",
    "E'a''b'",
    "E'\\'",
    "$$a$$",
    "$x$ $$ ' $x$",
    "$\u{e9}$z$\u{e9}$",
    "$a$ $b$",
    "B'01'",
    "b''",
    "X'1f'",
    "x'zz'",
    "N'n'",
    "n'n'",
    "U&'\\0041'",
    "u&'d!0061' UESCAPE '!'",
    "U&'\\+01F600'",
    "'a'\n'b'",
    "'a' 'b'",
    "E'a'\n'\\''",
    "'a' -- x\n'b'",
    "true",
    "NULL",
    "$1",
    "$2",
];

/// What may stand between two tokens.
const GAPS: [&str; 14] = [
    " ",
    " ",
    " ",
    " ",
    "",
    "\n",
    "\t",
    "\r\n",
    "\u{c}",
    "\u{b}",
    "/* c */",
    "/* a /* ' */ b */",
    "-- '\n",
    "/**/ ",
];

/// Statements as tokens; `?` is the place of a constant.
const SHAPES: [&str; 26] = [
    "select a :: int [ ? ]",
    "select cast ( a as timestamp ( ? ) ) from plain t where c = ?",
    "select ?",
    "select ? , ? , ?",
    "select a - ? , ? - ? , - ? , + ? , @ ? from plain t",
    "select a -? , ?-? , -? , a-1 , 1-1 , a|/**/b from plain t",
    "select * from plain t where a = ? and b = ?",
    "select * from plain t where a in ( ? , ? , ? ) or b between ? and ?",
    "select ? :: text , ? :: numeric ( 5 , 2 ) , cast ( ? as int ) , int ? , interval ? day",
    "select a [ ? ] , a [ ? : ? ] , $1 + ? , $2 , ? || $3 from plain t",
    "select * from plain t where a = $1 and b = ? limit ? offset ?",
    "select case a when ? then ? else ? end as \"x ? '\" from \"plain\" t tablesample system ( ? )",
    "select count ( * ) filter ( where a > ? ) over ( order by b rows ? preceding ) from plain t",
    "select * from plain t where a like ? escape ? and b is not distinct from ? and c = any ( array [ ? , ? ] )",
    "select * from f ( ? , ? ) as x ( a , b ) join plain t on x . a = t . a and t . b = ?",
    "insert into plain as t values ( ? , ? , ? ) , ( - ? , default , null )",
    "insert into plain as t ( a , b ) values ( ? , default ) on conflict ( a ) do update set b = ? where t . c = ? returning a",
    "update plain t set a = ? , ( b , c ) = ( ? , ? ) where c = ?",
    "update plain t set a = a + ? where b = ? returning *",
    "delete from plain t where a = ? and b <> ?",
    "with x as ( select ? as a ) select * from x where a = ? union all select ? order by 1 limit ?",
    "merge into plain t using ( values ( ? ) ) v ( a ) on t . a = v . a when matched and t . b = ? then delete",
    "values ( ? , ? ) , ( ? , ? )",
    "( select ? ) intersect ( select ? )",
    "select ? ; select ?",
    "table plain limit ?",
];

#[derive(Clone, Debug)]
struct Text {
    shape: &'static str,
    /// For each token the gap after it, by number; taken in turns.
    gaps: Vec<usize>,
    /// The constants, by number; taken in turns.
    constants: Vec<usize>,
}

impl Text {
    fn write(&self) -> String {
        let mut constants = self.constants.iter().cycle();
        let mut gaps = self.gaps.iter().cycle();
        let mut text = String::new();
        for word in self.shape.split(' ') {
            if word.contains('?') && !word.contains('"') {
                for (number, piece) in word.split('?').enumerate() {
                    if number > 0 {
                        text += CONSTANTS[*constants.next().unwrap()];
                    }
                    text += piece;
                }
            } else {
                text += word;
            }
            text += GAPS[*gaps.next().unwrap()];
        }
        text
    }
}

fn texts() -> impl Strategy<Value = Text> {
    let shape = prop::sample::select(SHAPES.to_vec());
    let gaps = prop::collection::vec(0..GAPS.len(), 1..12);
    let constants = prop::collection::vec(0..CONSTANTS.len(), 1..5);
    (shape, gaps, constants).prop_map(|(shape, gaps, constants)| Text { shape, gaps, constants })
}

/// Two texts of one shape that differ in some constants.
fn pairs() -> impl Strategy<Value = (String, String)> {
    let changes = prop::collection::vec(prop::option::of(0..CONSTANTS.len()), 4);
    (texts(), changes).prop_map(|(one, changes)| {
        let mut other = one.clone();
        for (constant, change) in other.constants.iter_mut().zip(changes) {
            *constant = change.unwrap_or(*constant);
        }
        (one.write(), other.write())
    })
}

/// The only part of a script, if there is one.
fn single(script: &Result<Arc<Script>, SyntaxError>) -> Option<&Part> {
    match script.as_ref().ok()?.statements.as_slice() {
        [part] => Some(part),
        _ => None,
    }
}

/// What the statements of a text touch.
fn accesses(script: &Script, text: &(impl AsRef<[u8]> + ?Sized)) -> Vec<Accesses> {
    let parameter = Parameter { type_oid: 0, value: Some(b"7"), binary: false };
    let bind = |part: &Part| {
        let arguments =
            Arguments { text: text.as_ref(), constants: &part.constants, parameters: &[parameter; 3] };
        part.statement.outline(&SHOP).bind(&arguments)
    };
    script.statements.iter().map(bind).collect()
}

/// Begin and end of every constant that PostgreSQL's scanner finds, if it takes the text.
fn scanned(text: &str) -> Option<Vec<(usize, usize)>> {
    let tokens = pg_query::scan(text).ok()?.tokens;
    let constants = tokens.into_iter().filter(|token| {
        matches!(
            Token::try_from(token.token),
            Ok(Token::Sconst
                | Token::Usconst
                | Token::Iconst
                | Token::Fconst
                | Token::Bconst
                | Token::Xconst)
        )
    });
    let place = |at: i32| usize::try_from(at).unwrap();
    Some(constants.map(|token| (place(token.start), place(token.end))).collect())
}

/// What is masked in a tree, and by what: numbers that follow, or a value in brackets.
const MASKED: [(&str, &str); 9] = [
    ("location: ", ""),
    ("stmt_len: ", ""),
    ("_start: ", ""),
    ("_end: ", ""),
    ("ival: ", "number"),
    ("Ival(", "number"),
    ("Fval(", "number"),
    ("Sval(", "string"),
    ("Bsval(", "bits"),
];

/// The tree of a text with everything taken out that constants may change: their values, which kind of number they are, and all
/// places.
fn skeleton(text: &str) -> Option<String> {
    let tree = format!("{:?}", pg_query::parse(text, ParserOptions::DEFAULT).ok()?.protobuf.stmts);
    let mut skeleton = String::new();
    let mut rest = tree.as_str();
    let numbers = |c: char| c == '-' || c.is_ascii_digit();
    while let Some((at, mask)) = MASKED.iter().filter_map(|mask| Some((rest.find(mask.0)?, mask))).min() {
        let (found, instead) = mask;
        skeleton += &rest[..at];
        skeleton += instead;
        rest = &rest[at + found.len()..];
        rest = if found.ends_with('(') { after_bracket(rest) } else { rest.trim_start_matches(numbers) };
    }
    Some(skeleton + rest)
}

/// What follows the bracket that closes the one before a text in Rust's debug format.
fn after_bracket(text: &str) -> &str {
    let mut depth = 1;
    let mut quoted = false;
    let mut escaped = false;
    for (at, letter) in text.char_indices() {
        match letter {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
    }
    ""
}

proptest! {
    #![proptest_config(config(4000))]

    /// Texts that share a template differ in nothing but the values of constants, and these are where the parser sees them.
    #[test]
    fn one_template_is_one_tree((one, other) in pairs()) {
        let _alone = alone();
        let mut warm = analyzer();
        let (first, second) = (warm.script(one.as_bytes(), true), warm.script(other.as_bytes(), true));
        let (Some(first), Some(second)) = (single(&first), single(&second)) else { return Ok(()) };
        // A text that the lexer does not understand is found by its exact bytes.
        // So may one that the parser refuses: a constant that is too large for its place, say. The server says what is wrong.
        let is_accepted = |text: &str| analyzer().script(text.as_bytes(), true).is_ok();
        if one != other
            && Arc::ptr_eq(&first.statement, &second.statement)
            && is_accepted(&one)
            && is_accepted(&other)
        {
            let (left, right) = (skeleton(&one), skeleton(&other));
            prop_assert!(left.is_some() && left == right, "{one}\n{other}\n{left:?}\n{right:?}");
            for (text, part) in [(&one, first), (&other, second)] {
                let own: Vec<_> = part.constants.iter().map(|span| (span.start, span.end)).collect();
                prop_assert_eq!(Some(own), scanned(text), "{}", text);
            }
        }
    }

    /// What a warm analyzer says of a text is what a fresh one says, down to the rows it touches.
    #[test]
    fn a_hit_is_what_parsing_gives((one, other) in pairs()) {
        let _alone = alone();
        let mut warm = analyzer();
        let _ = warm.script(one.as_bytes(), true);
        // A text that the parser refuses may be found by the key of one that it takes: the server says what is wrong.
        if let Ok(cold) = analyzer().script(other.as_bytes(), true) {
            let hit = warm.script(other.as_bytes(), true).unwrap();
            prop_assert_eq!(&*hit, &*cold, "{}", other);
            prop_assert_eq!(accesses(&hit, &other), accesses(&cold, &other), "{}", other);
        }
    }

    /// No bytes end the process or make it panic, and nothing is concluded about places outside of the text.
    #[test]
    fn damaged_statements_are_survived(
        text in prop::sample::select(varied()),
        damages in prop::collection::vec((any::<prop::sample::Index>(), 0..6_usize, damage()), 0..4),
        standard in any::<bool>(),
    ) {
        let mut bytes = text.as_bytes().to_vec();
        for (place, length, patch) in damages {
            let from = place.index(bytes.len() + 1);
            let to = bytes.len().min(from + length);
            bytes.splice(from..to, patch);
        }
        let _alone = alone();
        let mut analyzer = analyzer();
        for _ in 0..2 {
            let Ok(script) = analyzer.script(&bytes, standard) else { return Ok(()) };
            let mut last = 0;
            for part in &script.statements {
                prop_assert!(last <= part.start && part.start <= part.end && part.end <= bytes.len());
                last = part.end;
                part.statement.routing(&SHOP);
            }
            accesses(&script, &bytes);
        }
    }
}

/// The statements of `corpus/varied.sql`.
fn varied() -> Vec<&'static str> {
    let text = include_str!("corpus/varied.sql");
    text.split("\n\n").filter(|paragraph| !paragraph.starts_with("##")).collect()
}

static SHOP: LazyLock<Catalogue> = LazyLock::new(|| schema::catalogue(include_str!("corpus/shop.sql")));

/// What is put somewhere into a statement: a word, a constant, a bracket without its partner, deep nesting, bytes of
/// other encodings (LATIN1, SJIS with a backslash as its second byte), control characters.
fn damage() -> impl Strategy<Value = Vec<u8>> {
    let pieces: [&[u8]; 24] = [
        b"'",
        b"\"",
        b"\\",
        b"\\'",
        b"(",
        b")",
        b"[",
        b"]",
        b";",
        b",",
        b"--",
        b"/*",
        b"*/",
        b"$",
        b"$a$",
        b"::",
        b"\0",
        b"\x01",
        b"\xe4",
        b"\x83\x5c",
        b"\xff\xfe",
        b"select ",
        b" from t ",
        b" union ",
    ];
    prop_oneof![
        8 => prop::sample::select(pieces.map(<[u8]>::to_vec).to_vec()),
        4 => prop::sample::select(CONSTANTS.map(|text| text.as_bytes().to_vec()).to_vec()),
        2 => prop::collection::vec(any::<u8>(), 0..8),
        1 => (prop::sample::select(vec!["(", "not ", "- ", "array[", "select (", "case when "]), 1..4000_usize)
            .prop_map(|(piece, times)| piece.repeat(times).into_bytes()),
    ]
}
