//! The messages of an execution: sent in one flush, and their replies, which no client sees.

use cluster::ids::Identity;
use sql::Isolation;
use wire::backend::{Status, tag};
use wire::frontend::Target;
use wire::{encode, frame};

use super::rows::CapturedRows;
use crate::backend::{BackendError, assert_qualified};
use crate::client::timeouts::lifted;
use crate::coordinator::Coordinator;
use crate::link::performable::Performable;
use crate::pool::server::Server;
use crate::relay::work::doubt;

/// The prepared insert of the identity. The id of the transaction tells rows of subtransactions apart.
const IDENTITY_STATEMENT: &str = "onecopy performed";
const IDENTITY_SQL: &str = "INSERT INTO onecopy.applied (epoch, n, nonce, proof) VALUES ($1, $2, $3, $4) \
                              RETURNING pg_catalog.pg_current_xact_id()::pg_catalog.text";
const INT4_OID: u32 = 23;
const INT8_OID: u32 = 20;

/// The replies to some messages.
#[derive(Debug, Default)]
pub(super) struct Replies {
    pub(super) has_failed: bool,
    /// The last command tag.
    pub(super) command: Vec<u8>,
    /// The first column of the last row, as text.
    pub(super) value: Option<String>,
}

/// Appends all messages of an execution up to its COMMIT. Returns how many ReadyForQuery answer them.
pub(super) fn write(
    server: &mut Server,
    coordinator: &Coordinator,
    performable: &Performable,
    identity: Identity,
) -> usize {
    server.query_own(beginning(performable.isolation));
    let _ = performable.work.as_work().write(server);
    let mut units = 2;
    if coordinator.database.catalogue().has_deferrable() {
        server.query_own("SET CONSTRAINTS ALL IMMEDIATE");
        units += 1;
    }
    if performable.settings.has_timeouts {
        let version = server.connection.process.version();
        server.query_own(&lifted(version));
        units += 1;
    }
    write_identity(server, coordinator, identity);
    units + 1
}

fn write_identity(server: &mut Server, coordinator: &Coordinator, identity: Identity) {
    let name = IDENTITY_STATEMENT.as_bytes();
    let is_prepared = server.own.has_identity_insert(IDENTITY_STATEMENT);
    let output = &mut server.connection.output;
    if !is_prepared {
        encode::close(output, Target::Statement(name));
        assert_qualified(IDENTITY_SQL);
        encode::parse(output, name, IDENTITY_SQL.as_bytes(), &[INT4_OID, INT8_OID, INT8_OID, INT8_OID]);
    }
    let proof = coordinator.local.seal.proof(identity).to_be_bytes();
    let Identity { epoch, n, nonce } = identity;
    let (epoch, n, nonce) = (epoch.0.to_be_bytes(), n.to_be_bytes(), nonce.0.to_be_bytes());
    let values = [Some(&epoch[..]), Some(&n[..]), Some(&nonce[..]), Some(&proof[..])];
    encode::bind(output, b"", name, &values, encode::Format::Binary);
    encode::execute(output, b"", 0);
    encode::sync(output);
}

/// Notes on the connection what the server has prepared, or that this is unknown after an error.
pub(super) fn note_prepared(server: &mut Server, performable: &Performable, replies: &Replies) {
    while let Some(ahead) = server.own.next_ahead() {
        if !replies.has_failed {
            server.own.answered(ahead);
        }
    }
    if replies.has_failed {
        doubt(server, performable.work.messages());
        server.own.forget();
    } else {
        server.own.add_identity_insert(IDENTITY_STATEMENT);
    }
}

/// Sends the output, and reads up to so many ReadyForQuery. After an error the connection cannot be used any more.
pub(super) async fn read(
    server: &mut Server,
    mut units: usize,
    mut rows: Option<&mut CapturedRows>,
) -> Result<Replies, BackendError> {
    let mut replies = Replies::default();
    let connection = &mut server.connection;
    while units > 0 {
        let (tag, total) = connection.message().await?;
        let body = &connection.input.data()[frame::HEADER_BYTES..total];
        let mut ready = None;
        match tag {
            tag::NOTICE_RESPONSE => {
                if let Some(rows) = &mut rows {
                    rows.take(body);
                }
            }
            tag::ERROR_RESPONSE => replies.has_failed = true,
            tag::COMMAND_COMPLETE => replies.command = wire::backend::command_tag(body).to_vec(),
            tag::DATA_ROW => {
                let value = wire::backend::data_row(body)?.into_iter().next().flatten();
                replies.value = value.map(|value| String::from_utf8_lossy(value).into_owned());
            }
            tag::COPY_IN_RESPONSE => {
                return Err(BackendError::Protocol("a COPY cannot be performed elsewhere"));
            }
            tag::READY_FOR_QUERY => ready = Some(Status::parse(body).ok()),
            _ => {}
        }
        connection.input.consume(total);
        if let Some(status) = ready {
            connection.note_ready(status);
            units -= 1;
        }
    }
    Ok(replies)
}

/// The statement that begins an execution.
fn beginning(isolation: Isolation) -> &'static str {
    match isolation {
        Isolation::ReadUncommitted => "BEGIN ISOLATION LEVEL READ UNCOMMITTED READ WRITE",
        Isolation::ReadCommitted => "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",
        Isolation::RepeatableRead => "BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE",
        Isolation::Serializable => "BEGIN ISOLATION LEVEL SERIALIZABLE READ WRITE",
    }
}
