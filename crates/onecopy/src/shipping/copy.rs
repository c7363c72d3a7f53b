//! COPY FROM STDIN: the session reads all data first, and ships them with the statement.
//!
//! The CopyInResponse for the client is made here. A server would run the statement for it, outside the transaction, and so
//! could wait for a lock that the transaction itself has: `BEGIN; TRUNCATE item; COPY item FROM STDIN`.

use std::sync::Arc;

use sql::{Name, Verb};
use wire::backend::tag as server_tag;
use wire::frontend::tag;
use wire::{encode, frame, sqlstate};

use super::commit_log::TRANSACTION_BYTES_MAX;
use super::control_connection::ControlConnection;
use super::data::text_of;
use super::session::{ClientStatement, Session};
use super::shipment::Form;
use super::statement;
use crate::capture::quoting::quoted;
use crate::client::settings::Settings;
use crate::error::{Fault, Refusal, broken};

impl Session {
    /// Reads the data, and runs the statement with them.
    pub(super) async fn copy(&mut self, sent: &ClientStatement<'_>) -> Result<(), Fault> {
        let text = text_of(sent)?;
        statement::classify(sent.statement, text, &self.worker.coordinator.database.catalogue())?;
        let Verb::Copy { table: Some(table), columns, binary, .. } = &sent.statement.verb else {
            return Err(broken("a COPY FROM without a table"));
        };
        let (columns, format) =
            (columns_of(&mut self.control, &self.settings, table, *columns).await?, u8::from(*binary));
        encode::message(&mut self.client.out, server_tag::COPY_IN_RESPONSE, |body| {
            body.push(format);
            body.extend_from_slice(&columns.to_be_bytes());
            body.extend((0..columns).flat_map(|_| [0, format]));
        });
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

/// The number of columns for which the client sends values: those that are listed, or else all that are not computed. No
/// lock is taken for that. An error if there is no such table.
async fn columns_of(
    control: &mut ControlConnection,
    settings: &Settings,
    table: &Name,
    listed: usize,
) -> Result<u16, Fault> {
    let schema = table.schema.iter().map(|schema| quoted(schema));
    let name = schema.chain([quoted(&table.name)]).collect::<Vec<_>>().join(".");
    let sql = format!(
        "SELECT pg_catalog.count(*) FROM pg_catalog.pg_attribute WHERE attrelid = '{}'::pg_catalog.regclass \
         AND attnum > 0 AND NOT attisdropped AND attgenerated = ''",
        name.replace('\'', "''")
    );
    let told = control.query(&sql, settings).await?.into_iter().flatten().flatten().next();
    let all = told.and_then(|told| told.parse().ok());
    let columns = if listed > 0 { u16::try_from(listed).ok() } else { all };
    columns.ok_or_else(|| broken("a COPY FROM without a number of columns"))
}
