//! From query strings to scripts, remembering what was seen.
//!
//! A text that is one statement about rows is looked up by its key (see [`crate::lexer`]), so that texts which differ
//! in constants share a template; every other text by its exact bytes. The two kinds of keys are told apart by their
//! first byte. Errors are not remembered: a text of the same key may be correct.
//!
//! One analyzer belongs to one thread; a text that it does not remember can be parsed on another ([`Unknown`]). Texts over a
//! limit are parsed every time, since their keys would push everything else out. Long ones are cut first ([`long`]).

mod long;

use std::sync::Arc;

pub(crate) use long::MAX_TOKENS;
use pg_query::protobuf::RawStmt;

use crate::accesses::attach;
use crate::cache::Cache;
use crate::classify::classify;
use crate::explain;
use crate::lexer::{self, Span};
use crate::parser::{self, Parsed};
use crate::profile::{TemplateId, hash};
use crate::refusal::{self, refused};
use crate::script::{Part, Script, SyntaxError};
use crate::statement::{Opaque, Statement, Verb};

/// Texts longer than this are not remembered.
const MAX_REMEMBERED_TEXT: usize = 16 << 10;

/// How much an [`Analyzer`] may remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Number of templates and texts.
    pub entries: usize,
    /// Their size in bytes, roughly.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 8192, bytes: 16 << 20 }
    }
}

/// Counters of an [`Analyzer`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Texts found by their key or their exact bytes.
    pub hits: u64,
    /// Texts that were parsed.
    pub misses: u64,
    /// Entries pushed out.
    pub evictions: u64,
    /// Entries held now.
    pub entries: usize,
    /// Their bytes, roughly.
    pub bytes: usize,
}

enum Entry {
    /// The template of a single statement.
    Template(Arc<Statement>),
    /// The meaning depends on the constants: look the text up by its bytes.
    ByText,
    /// A script, for its exact text.
    Script(Arc<Script>),
}

/// Splits and classifies query strings. One per thread.
pub struct Analyzer {
    cache: Cache<Entry>,
    key: Vec<u8>,
    constants: Vec<Span>,
    hits: u64,
    misses: u64,
}

impl Analyzer {
    /// An analyzer that has seen nothing.
    pub fn new(limits: Limits) -> Self {
        Self {
            cache: Cache::new(limits.entries, limits.bytes),
            key: Vec::new(),
            constants: Vec::new(),
            hits: 0,
            misses: 0,
        }
    }

    /// Its counters.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            hits: self.hits,
            misses: self.misses,
            evictions: self.cache.evictions(),
            entries: self.cache.len(),
            bytes: self.cache.bytes(),
        }
    }

    /// Splits and classifies a query string. `standard_conforming_strings` is the session's setting of that name, as
    /// the server reports it.
    pub fn script(
        &mut self,
        text: &[u8],
        standard_conforming_strings: bool,
    ) -> Result<Arc<Script>, SyntaxError> {
        match self.find(text, standard_conforming_strings) {
            Ok(script) => Ok(script),
            Err(unknown) => {
                let understood = unknown.parse(text)?;
                Ok(self.keep(unknown, understood))
            }
        }
    }

    /// Looks a query string up.
    ///
    /// # Errors
    /// If the text is not remembered; the error knows how to parse it.
    pub fn find(&mut self, text: &[u8], standard_conforming_strings: bool) -> Result<Arc<Script>, Unknown> {
        if !standard_conforming_strings || text.len() > MAX_REMEMBERED_TEXT {
            self.misses += 1;
            return Err(Unknown { standard_conforming_strings, exact: None, key: None });
        }
        let span = lexer::key(text, &mut self.key, &mut self.constants);
        if let Ok(span) = span {
            self.key.push(KEYED);
            if let Some(Entry::Template(statement)) = self.cache.get(&self.key) {
                self.hits += 1;
                let statement = Arc::clone(statement);
                let constants = self.constants.as_slice().into();
                let part = Part { start: span.start, end: span.end, statement, constants };
                return Ok(Arc::new(Script { statements: vec![part] }));
            }
        }
        let mut exact = Vec::with_capacity(text.len() + 1);
        exact.extend_from_slice(text);
        exact.push(EXACT);
        if let Some(Entry::Script(script)) = self.cache.get(&exact) {
            self.hits += 1;
            return Ok(Arc::clone(script));
        }
        self.misses += 1;
        let key = span.is_ok().then(|| (self.key.clone(), self.constants.clone()));
        Err(Unknown { standard_conforming_strings, exact: Some(exact), key })
    }

    /// Remembers a parsed text, unless it is too long for that.
    pub fn keep(&mut self, unknown: Unknown, understood: Understood) -> Arc<Script> {
        let Understood { script, is_faithful } = understood;
        if let Some(exact) = unknown.exact.filter(|_| is_faithful) {
            self.remember(unknown.key.map(|(key, _)| key), &exact, &script);
        }
        script
    }

    fn remember(&mut self, key: Option<Vec<u8>>, exact: &[u8], script: &Arc<Script>) {
        let single = match script.statements.as_slice() {
            [part] if key.is_some() => Some(&part.statement),
            _ => None,
        };
        match (single, key) {
            (Some(statement), Some(key)) if !depends_on_constants(statement) => {
                let weight = statement.bytes();
                self.cache.insert(&key, Entry::Template(Arc::clone(statement)), weight);
            }
            (_, key) => {
                if let Some(key) = key {
                    self.cache.insert(&key, Entry::ByText, 0);
                }
                let weight = script.statements.iter().map(|part| part.statement.bytes()).sum();
                self.cache.insert(exact, Entry::Script(Arc::clone(script)), weight);
            }
        }
    }
}

/// A text that an analyzer does not remember. Any thread can parse it.
#[derive(Debug)]
pub struct Unknown {
    standard_conforming_strings: bool,
    /// The key of the exact text, if it may be remembered.
    exact: Option<Vec<u8>>,
    /// The key of its template, if it has one, and the constants that the key leaves open.
    key: Option<(Vec<u8>, Vec<Span>)>,
}

/// A parsed text.
#[derive(Debug)]
pub struct Understood {
    script: Arc<Script>,
    /// The parser saw the text as it was sent.
    is_faithful: bool,
}

impl Unknown {
    /// Parses the text.
    ///
    /// # Errors
    /// If PostgreSQL's parser does not accept the text, or it is too complex to be looked at.
    pub fn parse(&self, text: &[u8]) -> Result<Understood, SyntaxError> {
        let constants = self.key.as_ref().map(|(_, constants)| constants.as_slice());
        let parsed = parser::with_deep_stack(|| parse(text, self.standard_conforming_strings, constants))?;
        Ok(Understood { script: Arc::new(parsed.script), is_faithful: parsed.faithful })
    }
}

/// Last byte of a key with constants taken out.
const KEYED: u8 = 0;
/// Last byte of a key that is a text.
const EXACT: u8 = 1;

/// Whether a template keeps something of the constants, such as the code of a DO block. Names never come from constants
/// otherwise.
fn depends_on_constants(statement: &Statement) -> bool {
    statement.calls("set_config") || statement.verb == Verb::Do
}

struct Parse {
    script: Script,
    /// The parser saw the text as it was sent.
    faithful: bool,
}

/// Parses a text. `constants` are those that its key leaves open, if it has one.
fn parse(
    text: &[u8],
    standard_conforming_strings: bool,
    constants: Option<&[Span]>,
) -> Result<Parse, SyntaxError> {
    let (readable, faithful) = parser::as_utf8(text);
    if text.len() > long::MIN_BYTES {
        return long::parse(&readable, standard_conforming_strings, faithful);
    }
    let parsed = match parser::parse(&readable, standard_conforming_strings) {
        Err(_) if explain::explains_call(&readable) => {
            let span = lexer::trimmed(readable.as_bytes(), Span { start: 0, end: readable.len() });
            let script = Script { statements: vec![Part::new(span, Statement::of(Verb::ExplainRouting))] };
            return Ok(Parse { script, faithful });
        }
        parsed => parsed?,
    };
    let script = match parsed {
        Parsed::Trees(trees) => {
            let conforming = standard_conforming_strings && text.len() <= MAX_REMEMBERED_TEXT;
            let form = Form { is_faithful: faithful, has_keys: faithful && conforming };
            from_trees(&readable, &trees, form, constants)
        }
        Parsed::TooDeep => split(&readable)?,
    };
    Ok(Parse { script: or_empty(script), faithful })
}

/// A text without a statement is one empty one.
fn or_empty(mut script: Script) -> Script {
    if script.statements.is_empty() {
        script.statements.push(Part::new(Span { start: 0, end: 0 }, Statement::of(Verb::Empty)));
    }
    script
}

/// How a text was sent.
#[derive(Clone, Copy)]
struct Form {
    /// The parser saw it as it was sent.
    is_faithful: bool,
    /// The lexer may look at its statements.
    has_keys: bool,
}

fn from_trees(text: &str, trees: &[RawStmt], form: Form, keyed: Option<&[Span]>) -> Script {
    let parts = trees.iter().map(|raw| {
        let Span { start, end } = place(text, raw);
        // One of several is kept by the text of all, but its constants are left open as if it stood alone.
        let own = if trees.len() > 1 && form.has_keys { constants_of(text, start, end) } else { None };
        let constants = if trees.len() > 1 { own.as_deref() } else { keyed };
        let mut statement =
            raw.stmt.as_deref().map_or_else(|| Statement::of(refused(refusal::UNKNOWN_KIND)), classify);
        statement.template = template(&text.as_bytes()[start..end]);
        match raw.stmt.as_deref() {
            Some(node) if form.is_faithful => attach(&mut statement, node, text, constants),
            _ => statement.opaque = Some(Opaque::Encoding),
        }
        Part { constants: constants.unwrap_or_default().into(), ..Part::new(Span { start, end }, statement) }
    });
    Script { statements: parts.collect() }
}

/// The constants of one statement of a text, if it has a key.
fn constants_of(text: &str, start: usize, end: usize) -> Option<Vec<Span>> {
    let mut constants = Vec::new();
    lexer::key(&text.as_bytes()[start..end], &mut Vec::new(), &mut constants).ok()?;
    for span in &mut constants {
        *span = Span { start: start + span.start, end: start + span.end };
    }
    Some(constants)
}

/// The number of a statement's template: by its key, or by all of its text if it has none. Texts are keyed here as if
/// standard_conforming_strings were on, since numbers promise nothing.
fn template(text: &[u8]) -> TemplateId {
    let mut key = Vec::new();
    let keyed = lexer::key(text, &mut key, &mut Vec::new()).is_ok();
    TemplateId(hash(if keyed { &key } else { text }))
}

/// Where a statement stands: the parser's range, with the white space and comments around it left out.
fn place(text: &str, raw: &RawStmt) -> Span {
    let start = usize::try_from(raw.stmt_location).unwrap_or(0).min(text.len());
    let length = usize::try_from(raw.stmt_len).unwrap_or(0);
    let end = if length == 0 { text.len() } else { text.len().min(start + length) };
    lexer::trimmed(text.as_bytes(), Span { start, end })
}

/// Splits a text and judges each statement by its first word, unless it can be parsed by itself.
fn split(text: &str) -> Result<Script, SyntaxError> {
    let ranges = parser::split(text)?;
    let mut statements = Vec::with_capacity(ranges.len());
    for (start, end) in ranges {
        let span = lexer::trimmed(text.as_bytes(), Span { start, end });
        let part = &text[span.start..span.end];
        let statement = Statement { template: template(part.as_bytes()), ..large(part) };
        statements.push(Part::new(span, statement));
    }
    Ok(Script { statements })
}

/// A statement of a text that is too deep as a whole.
fn large(text: &str) -> Statement {
    if let Ok(Parsed::Trees(trees)) = parser::parse(text, true)
        && let [RawStmt { stmt: Some(tree), .. }] = trees.as_slice()
    {
        return classify(tree);
    }
    let verb = match lexer::first_word(text.as_bytes()).as_str() {
        "select" | "values" | "table" => Verb::Select,
        "insert" => Verb::Insert,
        "update" => Verb::Update,
        "delete" => Verb::Delete,
        "merge" => Verb::Merge,
        "with" => {
            return Statement { modifies_inside: true, ..Statement::opaque(Verb::Select, Opaque::Size) };
        }
        _ => refused(refusal::TOO_DEEP),
    };
    Statement::opaque(verb, Opaque::Size)
}

#[cfg(test)]
mod tests;
