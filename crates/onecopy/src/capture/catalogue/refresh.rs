//! The applier's view of captured tables.

use cluster::refresh::{Form, RefreshColumn, RefreshTable, RefreshTables, Written};
use sql::DatabaseId;

use super::rows::{Row, SHAPE, boolean, by_relation, number, text};
use super::sandbox;
use super::tables::{COLUMNS, TABLES, key_of, marked};
use crate::backend::{BackendError, OwnConnection};
use crate::capture::quoting::quoted;

/// Reads every captured table for the applier, in the open transaction if there is one. Only the applier changes a
/// replica's schema.
pub(crate) async fn load_refresh_tables(
    connection: &mut OwnConnection,
    database: DatabaseId,
) -> Result<RefreshTables, BackendError> {
    let tables = connection.query(TABLES).await?;
    let columns = connection.query(COLUMNS).await?;
    let columns = by_relation(&columns)?;
    let (sandboxes, paths) = (sandbox::load(connection).await?, sandbox::load_paths(connection).await?);
    let sandboxes = by_relation(&sandboxes)?;
    let mut found = RefreshTables::default();
    for row in &tables {
        let oid = text(row, 0)?;
        let own = columns.get(oid).map_or(&[][..], Vec::as_slice);
        let runs_code = boolean(row, 8)? || !marked(own, 15)?.is_empty();
        let sandbox = sandboxes.get(oid).map(|staged| sandbox::of(own, staged)).transpose()?;
        found.insert(RefreshTable {
            id: database.table(number(row, 1)?),
            name: format!("{}.{}", quoted(text(row, 2)?), quoted(text(row, 3)?)),
            columns: own.iter().map(|column| refresh_column(column)).collect::<Result<_, _>>()?,
            primary_key: key_of(own)?,
            key_is_deferrable: !marked(own, 14)?.is_empty(),
            other_unique: marked(own, 13)?,
            code_path: if runs_code || sandbox.is_some() { paths.get(oid).cloned() } else { None },
            sandbox,
        });
    }
    Ok(found)
}

fn refresh_column(row: &Row) -> Result<RefreshColumn, BackendError> {
    let (schema, operator) = text(row, 8)?.rsplit_once('.').ok_or(SHAPE)?;
    let array_oid: u32 = number(row, 7)?;
    let form = if boolean(row, 12)? { Form::Text } else { Form::Binary };
    Ok(RefreshColumn {
        name: quoted(text(row, 1)?),
        type_oid: number(row, 2)?,
        array_oid: (array_oid != 0 && form == Form::Binary).then_some(array_oid),
        form,
        equals: format!("OPERATOR({schema}.{operator})"),
        written: match (boolean(row, 4)?, boolean(row, 5)?) {
            (true, _) => Written::Never,
            (false, true) => Written::AtInsert,
            (false, false) => Written::Always,
        },
    })
}
