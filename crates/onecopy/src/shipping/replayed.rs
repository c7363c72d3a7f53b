//! One transaction of the log as a replica runs it again, on a connection of Onecopy's own.
//!
//! Each statement runs as its role and under its settings. A statement that failed fails again, and then the transaction leaves nothing
//! but its identity.

use cluster::ids::Identity;
use cluster::record::Shipped;
use wire::backend::{Fields, tag};
use wire::{encode, frame, frontend};

use super::lane::insert_identity;
use super::reply::is_deterministic;
use super::shipment::{COPY_MARK, encode_copy};
use crate::backend::{BackendError, OwnConnection};
use crate::security::seal::Seal;

const BEGIN: &str = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE";

/// A transaction that is run again.
pub(super) struct Replayed<'a> {
    control: &'a mut OwnConnection,
    /// A failed transaction accepts only ROLLBACK TO SAVEPOINT.
    has_failed: bool,
    /// Most bytes of rows that one statement may return.
    reply_bytes_max: usize,
}

impl<'a> Replayed<'a> {
    /// One in which a statement may have failed before.
    pub(super) fn of(control: &'a mut OwnConnection, reply_bytes_max: usize, has_failed: bool) -> Self {
        Self { control, has_failed, reply_bytes_max }
    }

    pub(super) async fn begin(&mut self) -> Result<(), BackendError> {
        self.control.query(BEGIN).await.map(drop)
    }

    /// Whether a statement has failed in it.
    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(super) async fn run(&mut self, shipped: &Shipped) -> Result<(), BackendError> {
        match run(self.control, shipped, !self.has_failed).await {
            Ok(returned_bytes) => self.has_failed = returned_bytes > self.reply_bytes_max,
            Err(BackendError::Server(body)) if is_deterministic(Fields::new(&body).sqlstate()) => {
                self.has_failed = true;
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    pub(super) async fn commit(self, identity: Identity, seal: &Seal) -> Result<(), BackendError> {
        let insert = insert_identity(identity, seal);
        let reset = "SET LOCAL SESSION AUTHORIZATION DEFAULT; ";
        if self.has_failed {
            self.control.query("ROLLBACK").await?;
            self.control.query(&format!("BEGIN READ WRITE; {insert}; COMMIT")).await?;
        } else {
            self.control.query(&format!("{reset}{insert}; COMMIT")).await?;
        }
        self.control.query("RESET SESSION AUTHORIZATION; RESET ALL").await?;
        Ok(())
    }
}

/// How much it returned in rows.
async fn run(control: &mut OwnConnection, shipped: &Shipped, settles: bool) -> Result<usize, BackendError> {
    if settles {
        let role = shipped.role.replace('\'', "''");
        control.query(&format!("SET LOCAL SESSION AUTHORIZATION '{role}'; {}", shipped.settings)).await?;
    }
    let control = control.exchange();
    if shipped.is_extended {
        let out = &mut control.output;
        encode::parse_raw(out, b"", &shipped.text, &shipped.types);
        encode::message(out, frontend::tag::BIND, |body| {
            body.extend_from_slice(&[0, 0]);
            body.extend_from_slice(&shipped.values);
        });
        encode::execute(out, b"", 0);
        encode::sync(out);
    } else if shipped.types == COPY_MARK {
        encode_copy(&mut control.output, &shipped.text, &shipped.values);
    } else {
        encode::query(&mut control.output, &shipped.text);
    }
    control.flush().await?;
    let (mut rows_bytes, mut error) = (0, None);
    loop {
        let (kind, total) = control.message().await?;
        match kind {
            tag::DATA_ROW => rows_bytes += total,
            tag::ERROR_RESPONSE if error.is_none() => {
                error = Some(BackendError::Server(control.input.data()[frame::HEADER_BYTES..total].to_vec()));
            }
            _ => {}
        }
        control.input.consume(total);
        if kind == tag::READY_FOR_QUERY {
            return error.map_or(Ok(rows_bytes), Err);
        }
    }
}
