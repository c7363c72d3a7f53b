//! Reads a server's replies to a statement, and separates errors of the statement from those of the server.

use wire::backend::{Fields, Status, command_tag, data_row, tag};
use wire::{encode, frame};

use super::shipment::{Command, Form, Reply};
use crate::backend::{BackendError, Connection};
use crate::pool::cached::Cached;

/// The SQLSTATE of a statement whose reply is too large.
pub(super) const TOO_LARGE: &str = wire::sqlstate::PROGRAM_LIMIT_EXCEEDED;

pub(super) fn code(body: &[u8]) -> Vec<u8> {
    Fields::new(body).sqlstate().to_vec()
}

/// Whether the statement and the data cause the error, so that every replica raises it. Errors of resources, the
/// operator, other transactions and the server itself do not count. A malformed message (too few parameters) fails
/// everywhere, and so does an object in the wrong state (a view that takes no rows, a role in use by its own
/// session).
pub(super) fn is_deterministic(sqlstate: &[u8]) -> bool {
    const MESSAGE: &[u8] = b"08P01";
    const LOCK: &[u8] = b"55P03";
    if sqlstate == MESSAGE || (sqlstate.starts_with(b"55") && sqlstate != LOCK) {
        return true;
    }
    const OTHERS: [&[u8]; 8] = [b"08", b"40", b"53", b"55", b"57", b"58", b"F0", b"XX"];
    !OTHERS.iter().any(|class| sqlstate.starts_with(class)) && !sqlstate.is_empty()
}

/// Reads the replies to a statement and to the queries after it.
pub(super) async fn exchange(
    connection: &mut Connection,
    cached: &mut Cached,
    command: &Command,
    bytes_max: usize,
) -> Result<(Reply, Option<Status>), BackendError> {
    let mut reply = Reply { bytes: Vec::new(), asked: Vec::new(), error: None, outcome: Vec::new() };
    let mut rows_bytes = 0;
    let status = loop {
        let (kind, total) = connection.message().await?;
        let whole = &connection.input.data()[..total];
        let body = &whole[frame::HEADER_BYTES..];
        match kind {
            tag::PARSE_COMPLETE => command.note_parsed(cached),
            tag::ERROR_RESPONSE if reply.error.is_none() => {
                (reply.outcome, reply.error) = (code(body), Some(body.to_vec()));
            }
            tag::COMMAND_COMPLETE if reply.error.is_none() => {
                reply.outcome.extend_from_slice(command_tag(body));
                reply.bytes.extend_from_slice(whole);
            }
            tag::EMPTY_QUERY_RESPONSE | tag::NOTICE_RESPONSE | tag::PARAMETER_STATUS => {
                reply.bytes.extend_from_slice(whole);
            }
            tag::ROW_DESCRIPTION | tag::NO_DATA if command.describes() => {
                reply.bytes.extend_from_slice(whole);
            }
            tag::DATA_ROW => {
                rows_bytes += total;
                if rows_bytes <= bytes_max {
                    reply.bytes.extend_from_slice(whole);
                }
            }
            tag::COPY_IN_RESPONSE if matches!(command.form, Form::Copy(_)) => {}
            tag::COPY_IN_RESPONSE | tag::COPY_OUT_RESPONSE | tag::COPY_BOTH_RESPONSE => {
                return Err(BackendError::Protocol("the server started a COPY without being asked"));
            }
            _ => {}
        }
        let status = (kind == tag::READY_FOR_QUERY).then(|| Status::parse(body).ok());
        connection.input.consume(total);
        if let Some(status) = status {
            break status;
        }
    };
    if rows_bytes > bytes_max && reply.error.is_none() {
        let text = format!("the result has more than {bytes_max} bytes, which is not supported");
        let mut error = Vec::new();
        encode::error(&mut error, "ERROR", TOO_LARGE, &text, Some("Ask for fewer rows."));
        (reply.error, reply.bytes) = (Some(error.split_off(frame::HEADER_BYTES)), Vec::new());
        reply.outcome = TOO_LARGE.into();
    }
    if let Some(after) = command.after.as_ref().filter(|_| reply.error.is_none()) {
        reply.asked = connection.simple(after).await?;
    }
    Ok((reply, status))
}

/// The rows among messages for a client, as text.
pub(super) fn rows_of(bytes: &[u8]) -> Vec<Vec<Option<String>>> {
    let mut rows = Vec::new();
    let mut rest = bytes;
    while let Ok(Some(frame)) = wire::next_frame(rest) {
        if frame.tag == tag::DATA_ROW
            && let Ok(values) = data_row(frame.body())
        {
            let text = |value: Option<&[u8]>| value.map(|v| String::from_utf8_lossy(v).into_owned());
            rows.push(values.into_iter().map(text).collect());
        }
        rest = &rest[frame.bytes.len()..];
    }
    rows
}
