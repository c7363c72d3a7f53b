//! COPY FROM STDIN: the session reads all data first, and ships them with the statement.
//!
//! The server of the control connection gives the CopyInResponse for the client. Nothing is written there.

use std::sync::Arc;

use wire::backend::tag as server_tag;
use wire::frontend::tag;
use wire::{encode, frame, sqlstate};

use super::commit_log::TRANSACTION_BYTES_MAX;
use super::data::text_of;
use super::session::{ClientStatement, Session};
use super::shipment::Form;
use super::statement;
use super::transaction_state::{Health, TransactionState};
use crate::backend::{BackendError, Connection};
use crate::error::{Fault, Refusal};

impl Session {
    /// Reads the data, and runs the statement with them.
    pub(super) async fn copy(&mut self, sent: &ClientStatement<'_>) -> Result<(), Fault> {
        let text = text_of(sent)?;
        statement::classify(sent.statement, text, &self.worker.coordinator.database.catalogue())?;
        if matches!(&self.transaction, TransactionState::Open(open) if open.health == Health::Failed) {
            return Err(Fault::Client);
        }
        let replica = cluster::ids::ReplicaId(0);
        let asked = copy_in_response(self.control.get(&self.settings).await?, sent.text)
            .await
            .map_err(Fault::at(replica))?;
        self.client.out.extend_from_slice(&asked);
        self.client.flush().await?;
        let came = self.data_of_copy().await;
        // PostgreSQL ignores a Sync before the data. The Sync after them ends the batch.
        if matches!(sent.form, Form::Extended { .. }) && self.batch.is_at_sync {
            while self.client.message().await?.0 != tag::SYNC {
                self.pass_over().await?;
            }
            self.pass_over().await?;
        }
        let form = Form::Copy(came??);
        let ClientStatement { statement, text, commented, .. } = *sent;
        self.data(&ClientStatement { statement, text, commented, form }).await
    }

    async fn pass_over(&mut self) -> Result<(), Fault> {
        let (_, total) = self.client.message().await?;
        self.client.input.consume(total);
        Ok(())
    }

    /// The client's data. The inner error is the statement's.
    async fn data_of_copy(&mut self) -> Result<Result<Arc<[u8]>, Refusal>, Fault> {
        let mut data = Vec::new();
        let mut is_too_much = false;
        loop {
            let (kind, total) = self.client.message().await?;
            let body = &self.client.input.data()[frame::HEADER_BYTES..total];
            match kind {
                tag::COPY_DATA if data.len() + body.len() > TRANSACTION_BYTES_MAX => is_too_much = true,
                tag::COPY_DATA => data.extend_from_slice(body),
                tag::COPY_DONE if is_too_much => {
                    self.client.input.consume(total);
                    let text = format!("a COPY can have {} MB at most", TRANSACTION_BYTES_MAX >> 20);
                    let hint = "Split the rows over several COPY statements.";
                    return Ok(Err(Refusal::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text, hint)));
                }
                tag::COPY_DONE => {
                    self.client.input.consume(total);
                    return Ok(Ok(data.into()));
                }
                tag::COPY_FAIL => {
                    let why = String::from_utf8_lossy(body.strip_suffix(&[0]).unwrap_or(body)).into_owned();
                    self.client.input.consume(total);
                    let text = format!("COPY from stdin failed: {why}");
                    return Ok(Err(Refusal::plain(sqlstate::QUERY_CANCELED, text)));
                }
                tag::SYNC | tag::FLUSH => {}
                _ => return Err(Fault::Client),
            }
            self.client.input.consume(total);
        }
    }
}

/// The server's CopyInResponse.
async fn copy_in_response(connection: &mut Connection, text: &[u8]) -> Result<Vec<u8>, BackendError> {
    connection.simple("BEGIN READ WRITE").await?;
    encode::query(&mut connection.output, text);
    encode::copy_fail(&mut connection.output, "Onecopy only asked for the format");
    connection.flush().await?;
    let (mut response, mut error) = (None, None);
    loop {
        let (kind, total) = connection.message().await?;
        let whole = &connection.input.data()[..total];
        match kind {
            server_tag::COPY_IN_RESPONSE => response = Some(whole.to_vec()),
            server_tag::ERROR_RESPONSE => error = Some(whole[frame::HEADER_BYTES..].to_vec()),
            _ => {}
        }
        connection.input.consume(total);
        if kind == server_tag::READY_FOR_QUERY {
            break;
        }
    }
    connection.simple("ROLLBACK").await?;
    response.ok_or_else(|| {
        error.map_or(
            BackendError::Protocol("the server did not ask for the data of a COPY"),
            BackendError::Server,
        )
    })
}
