//! The text form of wire messages: lines of a client become bytes, messages of the server become lines.
//!
//! A line leaves out what differs between releases of PostgreSQL or between runs: the file, line and routine of an error; the
//! object id of a table and of a user-defined type; the server's version; parameters that only later releases report. In the
//! detail of an error it leaves out the numbers of versions and sessions, and the winner of a conflict, which Onecopy may have
//! forgotten. It shows a process id as the name of the connection that has it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use wire::backend::{self, Authentication, Fields, tag};
use wire::encode::{self, Format};
use wire::frontend::Target;

/// Reported since PostgreSQL 16 and 18.
const LATER_PARAMETERS: [&[u8]; 2] = [b"scram_iterations", b"search_path"];
/// The detail of an error has a number behind these words, which depends on all that ran before.
const COUNTED: [&str; 2] = ["version ", "session "];
/// Objects that users have made have higher ids.
const LAST_BUILT_IN: u32 = 16_383;

/// The connections by the process id that each was told.
pub(crate) type Names = BTreeMap<i32, char>;

/// A part of a client's line.
#[derive(Debug)]
enum Token {
    Word(String),
    Text(Vec<u8>),
    List(Vec<Self>),
}

/// Appends the message of a line such as `Execute "portal" 2`; the number of ReadyForQuery that it is answered with.
pub(crate) fn encode(out: &mut Vec<u8>, line: &str) -> usize {
    use Token::{List, Text, Word};
    let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
    let tokens = tokens(&mut rest.chars());
    match (kind, &tokens[..]) {
        ("Query", [Text(sql)]) => encode::query(out, sql),
        ("Parse", [Text(name), Text(sql)]) => encode::parse(out, name, sql, &[]),
        ("Parse", [Text(name), Text(sql), List(types)]) => encode::parse(out, name, sql, &oids(types)),
        ("Bind", [Text(portal), Text(statement), List(values)]) => {
            encode::bind(out, portal, statement, &bound(values), Format::Text);
        }
        ("Bind", [Text(portal), Text(statement), List(values), Word(form)]) if form == "binary" => {
            encode::bind(out, portal, statement, &bound(values), Format::Binary);
        }
        ("Describe", [Word(kind), Text(name)]) => encode::describe(out, target(kind, name)),
        ("Close", [Word(kind), Text(name)]) => encode::close(out, target(kind, name)),
        ("Execute", [Text(portal)]) => encode::execute(out, portal, 0),
        ("Execute", [Text(portal), Word(rows)]) => encode::execute(out, portal, rows.parse().unwrap()),
        ("Sync", []) => encode::sync(out),
        ("Flush", []) => encode::flush(out),
        ("Terminate", []) => encode::terminate(out),
        ("CopyData", [Text(bytes)]) => encode::copy_data(out, bytes),
        ("CopyDone", []) => encode::copy_done(out),
        ("CopyFail", [Text(reason)]) => encode::copy_fail(out, &String::from_utf8_lossy(reason)),
        ("Message", [Text(tag), Text(body)]) => {
            encode::message(out, tag[0], |message| message.extend_from_slice(body));
        }
        _ => panic!("no message has this form: {line}"),
    }
    usize::from(matches!(kind, "Query" | "Sync"))
}

fn tokens(rest: &mut std::str::Chars<'_>) -> Vec<Token> {
    let mut tokens = Vec::new();
    while let Some(first) = rest.next() {
        match first {
            ' ' => {}
            '"' => tokens.push(Token::Text(text(rest))),
            '[' => tokens.push(Token::List(self::tokens(rest))),
            ']' => break,
            _ => {
                let more = rest.as_str();
                let length = more.find([' ', ']']).unwrap_or(more.len());
                tokens.push(Token::Word(format!("{first}{}", &more[..length])));
                *rest = more[length..].chars();
            }
        }
    }
    tokens
}

/// The bytes up to the closing quotation mark.
fn text(rest: &mut std::str::Chars<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut next = || rest.next().expect("a text ends with a quotation mark");
    loop {
        match next() {
            '"' => return bytes,
            '\\' => match next() {
                'n' => bytes.push(b'\n'),
                't' => bytes.push(b'\t'),
                'x' => {
                    let digits = [next(), next()];
                    bytes.push(u8::from_str_radix(&String::from_iter(digits), 16).unwrap());
                }
                other => bytes.extend(other.to_string().bytes()),
            },
            other => bytes.extend(other.to_string().bytes()),
        }
    }
}

fn oids(types: &[Token]) -> Vec<u32> {
    let oid = |token: &Token| match token {
        Token::Word(number) => number.parse().unwrap(),
        other => panic!("{other:?} is no object id"),
    };
    types.iter().map(oid).collect()
}

fn bound(values: &[Token]) -> Vec<Option<&[u8]>> {
    let values = values.iter().map(|token| match token {
        Token::Text(bytes) => Some(&bytes[..]),
        Token::Word(word) if word == "null" => None,
        other => panic!("{other:?} is no value"),
    });
    values.collect()
}

fn target<'a>(kind: &str, name: &'a [u8]) -> Target<'a> {
    match kind {
        "statement" => Target::Statement(name),
        "portal" => Target::Portal(name),
        other => panic!("{other} is neither statement nor portal"),
    }
}

/// The line of a message; none for a message that other releases do not send.
pub(crate) fn decode(tag: u8, body: &[u8], names: &Names) -> Option<String> {
    let bare = |name: &str| {
        assert!(body.is_empty(), "{name} has a body: {body:?}");
        name.to_owned()
    };
    Some(match tag {
        tag::AUTHENTICATION => format!("Authentication {:?}", Authentication::parse(body).unwrap()),
        tag::BACKEND_KEY_DATA => {
            let (pid, secret) = backend::backend_key_data(body).unwrap();
            format!("BackendKeyData pid={} secret={} bytes", owner(pid, names), secret.len())
        }
        tag::PARAMETER_STATUS => match backend::parameter_status(body).unwrap() {
            (name, _) if LATER_PARAMETERS.contains(&name) => return None,
            (name @ b"server_version", _) => format!("ParameterStatus {} *", quoted(name)),
            (name, setting) => format!("ParameterStatus {} {}", quoted(name), quoted(setting)),
        },
        tag::READY_FOR_QUERY => format!("ReadyForQuery {:?}", backend::Status::parse(body).unwrap()),
        tag::COMMAND_COMPLETE => format!("CommandComplete {}", quoted(backend::command_tag(body))),
        tag::ERROR_RESPONSE => format!("ErrorResponse{}", fields(body)),
        tag::NOTICE_RESPONSE => format!("NoticeResponse{}", fields(body)),
        tag::ROW_DESCRIPTION => format!("RowDescription{}", columns(body)),
        tag::DATA_ROW => format!("DataRow{}", row(body)),
        tag::PARAMETER_DESCRIPTION => format!("ParameterDescription [{}]", parameters(body)),
        tag::NOTIFICATION_RESPONSE => {
            let mut rest = Rest(body);
            let (pid, channel, payload) = (rest.i32(), rest.text(), rest.text());
            format!("NotificationResponse pid={} {channel} {payload}", owner(pid, names))
        }
        tag::COPY_IN_RESPONSE => format!("CopyInResponse {}", copy(body)),
        tag::COPY_OUT_RESPONSE => format!("CopyOutResponse {}", copy(body)),
        tag::COPY_DATA => format!("CopyData {}", quoted(body)),
        tag::BIND_COMPLETE => bare("BindComplete"),
        tag::CLOSE_COMPLETE => bare("CloseComplete"),
        tag::COPY_DONE => bare("CopyDone"),
        tag::EMPTY_QUERY_RESPONSE => bare("EmptyQueryResponse"),
        tag::NO_DATA => bare("NoData"),
        tag::PARSE_COMPLETE => bare("ParseComplete"),
        tag::PORTAL_SUSPENDED => bare("PortalSuspended"),
        other => format!("Message {} {}", quoted(&[other]), quoted(body)),
    })
}

fn owner(pid: i32, names: &Names) -> char {
    names.get(&pid).copied().unwrap_or('?')
}

/// As a client's line has it: printable, between quotation marks.
fn quoted(bytes: &[u8]) -> String {
    let mut quoted = String::from("\"");
    for chunk in bytes.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => quoted.push_str("\\n"),
                '\t' => quoted.push_str("\\t"),
                '"' | '\\' => quoted.extend(['\\', letter]),
                letter if letter.is_ascii_control() => write!(quoted, "\\x{:02x}", letter as u32).unwrap(),
                letter => quoted.push(letter),
            }
        }
        for byte in chunk.invalid() {
            write!(quoted, "\\x{byte:02x}").unwrap();
        }
    }
    quoted.push('"');
    quoted
}

fn fields(body: &[u8]) -> String {
    let mut line = String::new();
    for (code, value) in Fields::new(body).iter().filter(|(code, _)| !b"FLR".contains(code)) {
        let plain = matches!(code, b'S' | b'V' | b'C' | b'P');
        let value = match code {
            _ if plain => String::from_utf8_lossy(value).into_owned(),
            b'D' => uncounted(&quoted(value)),
            _ => quoted(value),
        };
        write!(line, " {}={value}", char::from(code)).unwrap();
    }
    line
}

/// The text with an asterisk for each number behind one of [`COUNTED`].
fn uncounted(text: &str) -> String {
    let text = text.replace("by another transaction", "by session 0");
    COUNTED.iter().fold(text, |text, word| {
        let mut parts = text.split(word);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, part| {
            let rest = part.trim_start_matches(|letter: char| letter.is_ascii_digit());
            format!("{text}{word}{}{rest}", if rest.len() < part.len() { "*" } else { "" })
        })
    })
}

fn columns(body: &[u8]) -> String {
    let mut rest = Rest(body);
    let mut line = String::new();
    for _ in 0..rest.i16() {
        let (name, table, attribute) = (rest.text(), rest.u32(), rest.i16());
        let (of, size, modifier, form) = (rest.u32(), rest.i16(), rest.i32(), form(rest.i16()));
        let origin = if table == 0 { String::new() } else { format!(" table.{attribute}") };
        write!(line, " [{name}{origin} type={} size={size} mod={modifier} {form}]", type_id(of)).unwrap();
    }
    line
}

fn row(body: &[u8]) -> String {
    let cell = |cell: Option<&[u8]>| format!(" {}", cell.map_or_else(|| "null".to_owned(), quoted));
    backend::data_row(body).unwrap().into_iter().map(cell).collect()
}

fn parameters(body: &[u8]) -> String {
    let mut rest = Rest(body);
    let types: Vec<String> = (0..rest.i16()).map(|_| type_id(rest.u32())).collect();
    types.join(" ")
}

fn copy(body: &[u8]) -> String {
    let mut rest = Rest(body);
    let whole = form(i16::from(rest.take(1)[0]));
    let columns: Vec<String> = (0..rest.i16()).map(|_| form(rest.i16())).collect();
    format!("{whole} [{}]", columns.join(" "))
}

fn type_id(oid: u32) -> String {
    if oid > LAST_BUILT_IN { "user".to_owned() } else { oid.to_string() }
}

fn form(code: i16) -> String {
    match code {
        0 => "text".to_owned(),
        1 => "binary".to_owned(),
        other => format!("form {other}"),
    }
}

/// The unread rest of a body.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, count: usize) -> &'a [u8] {
        let (head, rest) = self.0.split_at(count);
        self.0 = rest;
        head
    }

    fn i16(&mut self) -> i16 {
        i16::from_be_bytes(self.take(2).try_into().unwrap())
    }

    fn i32(&mut self) -> i32 {
        i32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take(4).try_into().unwrap())
    }

    /// Up to the next NUL, as [`quoted`].
    fn text(&mut self) -> String {
        let end = self.0.iter().position(|byte| *byte == 0).expect("a text ends with a NUL");
        let text = quoted(self.take(end));
        self.take(1);
        text
    }
}
