//! COPY FROM STDIN: the session takes all data first, and ships them with the statement.
//!
//! The CopyInResponse that the client waits for comes from the server of the control connection. Nothing is written there.

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
    /// Takes the data, and runs the statement with them.
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
        // A Sync that came before the data was passed over, as PostgreSQL does; the one after them is the batch's.
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

    /// What the client sends; the inner error is the statement's.
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
                    let text = format!("COPY may bring {} MB at most", TRANSACTION_BYTES_MAX >> 20);
                    let hint = "Bring the rows in several parts.";
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
    encode::copy_fail(&mut connection.output, "it was only asked");
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
    response.ok_or_else(|| error.map_or(BackendError::Protocol("a COPY without data"), BackendError::Server))
}
