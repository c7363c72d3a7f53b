//! Appending messages to a buffer, both directions.

use crate::backend::{Status, tag as server};
use crate::frontend::{Target, tag as client};

/// Appends one message: tag, length, and what `body` appends.
pub fn message(out: &mut Vec<u8>, tag: u8, body: impl FnOnce(&mut Vec<u8>)) {
    out.push(tag);
    sized(out, body);
}

fn sized(out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    body(out);
    let length = u32::try_from(out.len() - start).expect("a message that we build is far below 4 GiB");
    out[start..start + 4].copy_from_slice(&length.to_be_bytes());
}

fn string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend_from_slice(text);
    out.push(0);
}

fn count(out: &mut Vec<u8>, number: usize) {
    let number = u16::try_from(number).expect("the protocol's counts have 16 bits and callers stay below");
    out.extend_from_slice(&number.to_be_bytes());
}

fn value(out: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        None => out.extend_from_slice(&(-1i32).to_be_bytes()),
        Some(bytes) => {
            let length = i32::try_from(bytes.len()).expect("a value fits a message");
            out.extend_from_slice(&length.to_be_bytes());
            out.extend_from_slice(bytes);
        }
    }
}

/// Whether values are in text or in the types' binary form.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Text form.
    Text,
    /// Binary form.
    Binary,
}

/// Client: a simple query.
pub fn query(out: &mut Vec<u8>, sql: &[u8]) {
    message(out, client::QUERY, |b| string(b, sql));
}

/// Client: prepare `sql` as `name`, with declared parameter types.
pub fn parse(out: &mut Vec<u8>, name: &[u8], sql: &[u8], types: &[u32]) {
    message(out, client::PARSE, |b| {
        string(b, name);
        string(b, sql);
        count(b, types.len());
        for oid in types {
            b.extend_from_slice(&oid.to_be_bytes());
        }
    });
}

/// Client: prepare with the types as another client sent them.
pub fn parse_raw(out: &mut Vec<u8>, name: &[u8], sql: &[u8], types: &[u8]) {
    message(out, client::PARSE, |b| {
        string(b, name);
        string(b, sql);
        b.extend_from_slice(types);
    });
}

/// Client: bind as another Bind does, whose formats and values these are.
pub fn bind_raw(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], rest: &[u8]) {
    message(out, client::BIND, |b| {
        string(b, portal);
        string(b, statement);
        b.extend_from_slice(rest);
    });
}

/// Client: bind values, all in one format; results come in the same format.
pub fn bind(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[Option<&[u8]>], format: Format) {
    message(out, client::BIND, |b| {
        string(b, portal);
        string(b, statement);
        let code = u16::from(format == Format::Binary);
        count(b, 1);
        b.extend_from_slice(&code.to_be_bytes());
        count(b, values.len());
        for v in values {
            value(b, *v);
        }
        count(b, 1);
        b.extend_from_slice(&code.to_be_bytes());
    });
}

/// Client: bind values, each in its own format; results come in binary form.
pub fn bind_each(out: &mut Vec<u8>, portal: &[u8], statement: &[u8], values: &[(Option<&[u8]>, Format)]) {
    let code = |format| u16::from(format == Format::Binary);
    // One code stands for all.
    let is_one = values.windows(2).all(|pair| pair[0].1 == pair[1].1);
    let codes = if is_one { values.get(..1).unwrap_or_default() } else { values };
    message(out, client::BIND, |b| {
        string(b, portal);
        string(b, statement);
        count(b, codes.len());
        for (_, format) in codes {
            b.extend_from_slice(&code(*format).to_be_bytes());
        }
        count(b, values.len());
        for (v, _) in values {
            value(b, *v);
        }
        count(b, 1);
        b.extend_from_slice(&code(Format::Binary).to_be_bytes());
    });
}

fn targeted(out: &mut Vec<u8>, tag: u8, target: Target<'_>) {
    let (kind, name) = match target {
        Target::Statement(name) => (b'S', name),
        Target::Portal(name) => (b'P', name),
    };
    message(out, tag, |b| {
        b.push(kind);
        string(b, name);
    });
}

/// Client: describe a statement or portal.
pub fn describe(out: &mut Vec<u8>, target: Target<'_>) {
    targeted(out, client::DESCRIBE, target);
}

/// Client: close a statement or portal.
pub fn close(out: &mut Vec<u8>, target: Target<'_>) {
    targeted(out, client::CLOSE, target);
}

/// Client: run a portal; 0 rows is no limit.
pub fn execute(out: &mut Vec<u8>, portal: &[u8], rows_max: i32) {
    message(out, client::EXECUTE, |b| {
        string(b, portal);
        b.extend_from_slice(&rows_max.to_be_bytes());
    });
}

/// Client: end of a batch.
pub fn sync(out: &mut Vec<u8>) {
    message(out, client::SYNC, |_| ());
}

/// Client: ask for what is there.
pub fn flush(out: &mut Vec<u8>) {
    message(out, client::FLUSH, |_| ());
}

/// Client: good bye.
pub fn terminate(out: &mut Vec<u8>) {
    message(out, client::TERMINATE, |_| ());
}

/// Either side: bytes of a COPY.
pub fn copy_data(out: &mut Vec<u8>, bytes: &[u8]) {
    message(out, client::COPY_DATA, |b| b.extend_from_slice(bytes));
}

/// Either side: the COPY is complete.
pub fn copy_done(out: &mut Vec<u8>) {
    message(out, client::COPY_DONE, |_| ());
}

/// Client: the COPY failed.
pub fn copy_fail(out: &mut Vec<u8>, reason: &str) {
    message(out, client::COPY_FAIL, |b| string(b, reason.as_bytes()));
}

/// Client: the start-up message of protocol 3.0.
pub fn startup(out: &mut Vec<u8>, parameters: &[(&str, &str)]) {
    sized(out, |b| {
        b.extend_from_slice(&crate::startup::PROTOCOL_3_0.to_be_bytes());
        for (name, value) in parameters {
            string(b, name.as_bytes());
            string(b, value.as_bytes());
        }
        b.push(0);
    });
}

/// Client: ask another connection's statement to be cancelled.
pub fn cancel_request(out: &mut Vec<u8>, pid: i32, secret: &[u8]) {
    sized(out, |b| {
        b.extend_from_slice(&crate::startup::CANCEL_REQUEST.to_be_bytes());
        b.extend_from_slice(&pid.to_be_bytes());
        b.extend_from_slice(secret);
    });
}

/// Client: the first step of SASL, by this mechanism.
pub fn sasl_initial(out: &mut Vec<u8>, mechanism: &str, said: &str) {
    message(out, client::PASSWORD, |b| {
        string(b, mechanism.as_bytes());
        b.extend_from_slice(&i32::try_from(said.len()).unwrap_or(i32::MAX).to_be_bytes());
        b.extend_from_slice(said.as_bytes());
    });
}

/// Client: the next step of SASL.
pub fn sasl_response(out: &mut Vec<u8>, said: &str) {
    message(out, client::PASSWORD, |b| b.extend_from_slice(said.as_bytes()));
}

/// Server: log-in succeeded.
pub fn authentication_ok(out: &mut Vec<u8>) {
    message(out, server::AUTHENTICATION, |b| b.extend_from_slice(&[0; 4]));
}

/// Server: log-in is by one of these mechanisms of SASL.
pub fn authentication_sasl(out: &mut Vec<u8>, mechanisms: &[&str]) {
    message(out, server::AUTHENTICATION, |b| {
        b.extend_from_slice(&10i32.to_be_bytes());
        for name in mechanisms {
            string(b, name.as_bytes());
        }
        b.push(0);
    });
}

/// Server: the next step of SASL.
pub fn authentication_sasl_continue(out: &mut Vec<u8>, said: &str) {
    message(out, server::AUTHENTICATION, |b| {
        b.extend_from_slice(&11i32.to_be_bytes());
        b.extend_from_slice(said.as_bytes());
    });
}

/// Server: the last step of SASL.
pub fn authentication_sasl_final(out: &mut Vec<u8>, said: &str) {
    message(out, server::AUTHENTICATION, |b| {
        b.extend_from_slice(&12i32.to_be_bytes());
        b.extend_from_slice(said.as_bytes());
    });
}

/// Server: the key for cancel requests.
pub fn backend_key_data(out: &mut Vec<u8>, pid: i32, secret: &[u8]) {
    message(out, server::BACKEND_KEY_DATA, |b| {
        b.extend_from_slice(&pid.to_be_bytes());
        b.extend_from_slice(secret);
    });
}

/// Server: a setting's value.
pub fn parameter_status(out: &mut Vec<u8>, name: &[u8], setting: &[u8]) {
    message(out, server::PARAMETER_STATUS, |b| {
        string(b, name);
        string(b, setting);
    });
}

/// Server: ready for the next query.
pub fn ready_for_query(out: &mut Vec<u8>, status: Status) {
    message(out, server::READY_FOR_QUERY, |b| b.push(status.byte()));
}

/// Server: a statement is done.
pub fn command_complete(out: &mut Vec<u8>, tag: &str) {
    message(out, server::COMMAND_COMPLETE, |b| string(b, tag.as_bytes()));
}

/// Server: a message without body, for example ParseComplete.
pub fn bare(out: &mut Vec<u8>, tag: u8) {
    message(out, tag, |_| ());
}

/// Server: the columns of a result, all of type text.
pub fn row_description(out: &mut Vec<u8>, columns: &[&str]) {
    const TEXT_OID: u32 = 25;
    message(out, server::ROW_DESCRIPTION, |b| {
        count(b, columns.len());
        for name in columns {
            string(b, name.as_bytes());
            b.extend_from_slice(&[0; 6]);
            b.extend_from_slice(&TEXT_OID.to_be_bytes());
            b.extend_from_slice(&(-1i16).to_be_bytes());
            b.extend_from_slice(&(-1i32).to_be_bytes());
            b.extend_from_slice(&[0; 2]);
        }
    });
}

/// Server: a row; `None` is NULL.
pub fn data_row(out: &mut Vec<u8>, values: &[Option<&[u8]>]) {
    message(out, server::DATA_ROW, |b| {
        count(b, values.len());
        for v in values {
            value(b, *v);
        }
    });
}

/// Server: no statement takes parameters here.
pub fn parameter_description_empty(out: &mut Vec<u8>) {
    message(out, server::PARAMETER_DESCRIPTION, |b| count(b, 0));
}

/// Server: an error, with severity `ERROR` or `FATAL`.
pub fn error(out: &mut Vec<u8>, severity: &str, sqlstate: &str, text: &str, hint: Option<&str>) {
    report(out, server::ERROR_RESPONSE, severity, sqlstate, text, (None, hint));
}

/// Server: the same with a DETAIL.
pub fn error_in_detail(
    out: &mut Vec<u8>,
    severity: &str,
    sqlstate: &str,
    text: &str,
    more: (Option<&str>, Option<&str>),
) {
    report(out, server::ERROR_RESPONSE, severity, sqlstate, text, more);
}

/// Server: a notice, with severity `WARNING`, `NOTICE` and so on.
pub fn notice(out: &mut Vec<u8>, severity: &str, sqlstate: &str, text: &str, hint: Option<&str>) {
    report(out, server::NOTICE_RESPONSE, severity, sqlstate, text, (None, hint));
}

/// With a detail and a hint.
fn report(
    out: &mut Vec<u8>,
    tag: u8,
    severity: &str,
    sqlstate: &str,
    text: &str,
    (detail, hint): (Option<&str>, Option<&str>),
) {
    message(out, tag, |b| {
        let fields = [
            (b'S', severity),
            (b'V', severity),
            (b'C', sqlstate),
            (b'M', text),
            (b'D', detail.unwrap_or_default()),
            (b'H', hint.unwrap_or_default()),
        ];
        for (code, text) in fields {
            if !text.is_empty() {
                b.push(code);
                string(b, text.as_bytes());
            }
        }
        b.push(0);
    });
}
