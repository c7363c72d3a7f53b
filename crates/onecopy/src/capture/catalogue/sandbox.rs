//! Tables whose rows are applied in a sandbox (`sandbox.sql`), and the search path of their code.

use std::collections::BTreeMap;

use cluster::refresh::{Sandbox, StagedColumn};

use super::rows::{Row, SHAPE, number, text};
use crate::backend::{BackendError, OwnConnection, Rows};

/// The columns of such tables as the sandbox gets them. Creates sandboxes for their owners.
const SANDBOXED: &str = r"
WITH sandboxed AS MATERIALIZED (
    SELECT c.oid, onecopy_capture.sandbox_of(c.relowner)
    FROM onecopy_capture.sandboxed(ARRAY(SELECT tgrelid FROM pg_trigger WHERE tgname = '!onecopy')) AS s(oid)
    JOIN pg_class c ON c.oid = s.oid
)
SELECT s.relation, s.attnum, s.typ, s.type_name, s.array_type, s.before, s.behind
FROM onecopy_capture.staging(ARRAY(SELECT oid FROM sandboxed)) AS s
";

/// Search paths by table. One query for all tables of an owner in a schema.
const PATHS: &str = r"
WITH captured AS MATERIALIZED (
    SELECT c.oid, c.relowner, n.nspname
    FROM pg_trigger g JOIN pg_class c ON c.oid = g.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE g.tgname = '!onecopy'
), kinds AS MATERIALIZED (
    SELECT relowner, nspname, onecopy_capture.code_path(relowner, nspname) AS path
    FROM (SELECT DISTINCT relowner, nspname FROM captured) AS kind
)
SELECT oid, path FROM captured JOIN kinds USING (relowner, nspname)
";

pub(super) async fn load(connection: &mut OwnConnection) -> Result<Rows, BackendError> {
    connection.query(SANDBOXED).await
}

pub(super) async fn load_paths(
    connection: &mut OwnConnection,
) -> Result<BTreeMap<String, String>, BackendError> {
    let rows = connection.query(PATHS).await?;
    rows.iter().map(|row| Ok((text(row, 0)?.to_owned(), text(row, 1)?.to_owned()))).collect()
}

/// The columns in the order of the table's.
pub(super) fn of(columns: &[&Row], staged: &[&Row]) -> Result<Sandbox, BackendError> {
    let mut by_number: BTreeMap<i32, &Row> = BTreeMap::new();
    for row in staged {
        by_number.insert(number(row, 1)?, row);
    }
    let column = |column: &&Row| {
        let row = by_number.get(&number(column, 11)?).ok_or(SHAPE)?;
        let array_oid: u32 = number(row, 4)?;
        let before = text(row, 5)?.to_owned();
        Ok(StagedColumn {
            type_oid: number(row, 2)?,
            type_name: text(row, 3)?.to_owned(),
            array_oid: (array_oid != 0).then_some(array_oid),
            is_read_inside: before.contains("onecopy.read_as("),
            before,
            behind: text(row, 6)?.to_owned(),
        })
    };
    Ok(Sandbox { columns: columns.iter().map(column).collect::<Result<_, BackendError>>()? })
}
