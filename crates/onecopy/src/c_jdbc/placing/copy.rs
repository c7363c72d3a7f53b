//! The rows of tables, and the states of their sequences, go from their holders to a new one.

use cluster::ids::{ReplicaId, TableId};
use cluster::placement::Placement;
use sql::{Catalogue, ColumnDefault, Name};
use wire::backend::tag;
use wire::{encode, frame};

use crate::backend::{BackendError, Connection};
use crate::c_jdbc::node::CJdbc;
use crate::capture::quoting::quoted;
use crate::membership::place_table::PlaceError;
use crate::shipping::recovery::connect;
use crate::shipping::replica_run::LeadingHost;

/// No trigger and no foreign key takes part in the copy of a table, and it is on disk when it ends.
pub(super) const SETTINGS: &str =
    "SET session_replication_role = replica; SET synchronous_commit = on; SET row_security = off";

/// Copies tables and the states of their sequences to a replica, in one transaction there.
pub(super) async fn fill(
    node: &CJdbc,
    to: ReplicaId,
    tables: &[TableId],
    former: &Placement,
    catalogue: &Catalogue,
) -> Result<(), PlaceError> {
    if tables.is_empty() {
        return Ok(());
    }
    let mut new = connect(node, to).await?;
    new.query(SETTINGS).await?;
    new.query("BEGIN").await?;
    for table in tables {
        let donor = former.holders_of_all(&[*table]).iter().next().ok_or(PlaceError::NoDonor)?;
        let mut old = connect(node, donor).await?;
        let name = node.leader().table_name(*table);
        new.query(&format!("DELETE FROM ONLY {name}")).await?;
        copy_rows(old.exchange(), new.exchange(), &name).await?;
        for sequence in sequences(*table, catalogue) {
            copy_state(old.exchange(), new.exchange(), &sequence_name(sequence)).await?;
        }
    }
    new.query("COMMIT").await?;
    Ok(())
}

async fn copy_state(old: &mut Connection, new: &mut Connection, sequence: &str) -> Result<(), BackendError> {
    let state = old.simple(&format!("SELECT last_value, is_called FROM {sequence}")).await?;
    let [Some(last), Some(is_called)] = state.first().map_or(&[][..], Vec::as_slice) else {
        return Err(BackendError::Protocol("a sequence did not report its state"));
    };
    let literal = sequence.replace('\'', "''");
    let set = format!("SELECT pg_catalog.setval('{literal}'::pg_catalog.regclass, {last}, '{is_called}')");
    new.simple(&set).await.map(drop)
}

/// The sequences from which the columns of a table draw.
pub(super) fn sequences(table: TableId, catalogue: &Catalogue) -> impl Iterator<Item = &Name> {
    let columns = catalogue.table(table).map_or(&[][..], |table| &table.columns);
    columns.iter().filter_map(|column| match &column.default {
        ColumnDefault::Sequence(name) => Some(name),
        _ => None,
    })
}

fn sequence_name(name: &Name) -> String {
    match &name.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&name.name)),
        None => quoted(&name.name),
    }
}

/// Copies the rows of a table from one server to another, where it is empty.
async fn copy_rows(old: &mut Connection, new: &mut Connection, name: &str) -> Result<(), BackendError> {
    encode::query(&mut old.output, format!("COPY {name} TO STDOUT").as_bytes());
    old.flush().await?;
    encode::query(&mut new.output, format!("COPY {name} FROM STDIN").as_bytes());
    let mut failed = None;
    loop {
        let (kind, total) = old.message().await?;
        let body = &old.input.data()[frame::HEADER_BYTES..total];
        match kind {
            tag::COPY_DATA => encode::copy_data(&mut new.output, body),
            tag::ERROR_RESPONSE => failed = Some(BackendError::Server(body.to_vec())),
            _ => {}
        }
        old.input.consume(total);
        new.flush().await?;
        if kind == tag::READY_FOR_QUERY {
            break;
        }
    }
    if let Some(error) = failed {
        return Err(error);
    }
    encode::copy_done(&mut new.output);
    new.flush().await?;
    new.drain().await.map(drop)
}
