//! Copies Onecopy's own state in a server: the set of applied records, the numbers of its objects, and marks of
//! sequences.

use crate::backend::{BackendError, OwnConnection};
use crate::capture::quoting::quoted;
use crate::coordinator::resync_progress::Transfer;

use super::error::StateError;
use super::rows::pipe;

/// Tables that are the same on every server, row by row.
const ALIKE: [&str; 2] = ["onecopy.applied", "onecopy_capture.marks"];

/// The sequences from which Onecopy draws its own numbers of objects.
const COUNTERS: [&str; 3] =
    ["onecopy_capture.table_numbers", "onecopy_capture.name_numbers", "onecopy_capture.sequence_numbers"];

/// Our numbers of types and relations, with the names of these.
const NAMES: &str = "SELECT o.id, o.is_type, n.nspname, COALESCE(t.typname, c.relname) FROM onecopy_capture.names o \
    LEFT JOIN pg_type t ON o.is_type AND t.oid = o.object LEFT JOIN pg_class c ON NOT o.is_type AND c.oid = o.object \
    JOIN pg_namespace n ON n.oid = COALESCE(t.typnamespace, c.relnamespace)";

const NAMED: &str = "INSERT INTO onecopy_capture.names \
    SELECT f.id, f.is_type, COALESCE(t.oid, c.oid) FROM onecopy_filling.names f \
    LEFT JOIN pg_namespace n ON n.nspname = f.schema_name \
    LEFT JOIN pg_type t ON f.is_type AND t.typnamespace = n.oid AND t.typname = f.name \
    LEFT JOIN pg_class c ON NOT f.is_type AND c.relnamespace = n.oid AND c.relname = f.name";

/// Sequences with the bounds of the schema. If the donor holds a lease on a range, its server has other bounds.
const SEQUENCES: &str = "SELECT s.id, n.nspname, c.relname, s.caches, s.rules, COALESCE(l.least, q.seqmin), \
    COALESCE(l.greatest, q.seqmax), l.sequence IS NOT NULL \
    FROM onecopy_capture.sequences s JOIN pg_class c ON c.oid = s.relation JOIN pg_namespace n ON n.oid = c.relnamespace \
    JOIN pg_sequence q ON q.seqrelid = s.relation LEFT JOIN onecopy_capture.leased l ON l.sequence = s.id";

const NUMBERED: &str = "INSERT INTO onecopy_capture.sequences \
    SELECT f.id, c.oid, f.caches, f.rules FROM onecopy_filling.sequences f \
    LEFT JOIN pg_namespace n ON n.nspname = f.schema_name \
    LEFT JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = f.name AND c.relkind = 'S'";

const BOUNDED: &str = "UPDATE pg_sequence q SET seqmin = f.least, seqmax = f.greatest FROM onecopy_filling.sequences f \
    JOIN onecopy_capture.sequences s ON s.id = f.id WHERE q.seqrelid = s.relation";

/// Moves sequences of which the donor holds a lease to their marks: values up to there may have been given out.
const MARKED: &str = "SELECT setval(s.relation::regclass, least(greatest(m.value, f.least), f.greatest), m.called) \
    FROM onecopy_filling.sequences f JOIN onecopy_capture.sequences s ON s.id = f.id CROSS JOIN LATERAL ( \
    SELECT m.value, m.called FROM onecopy_capture.marks m WHERE m.sequence = f.id ORDER BY m.generation DESC, \
    CASE WHEN m.descends THEN -m.value::numeric ELSE m.value END DESC, m.called DESC LIMIT 1) AS m WHERE f.is_leased";

/// Copies the state. The schema must be there already.
pub(super) async fn copy(donor: &mut OwnConnection, target: &mut OwnConnection) -> Result<(), StateError> {
    let uncounted = Transfer::default();
    target
        .query(
            "CREATE TABLE onecopy_filling.names (id int4, is_type boolean, schema_name name, name name); \
             CREATE TABLE onecopy_filling.sequences (id int4, schema_name name, name name, caches boolean, rules text, \
             least int8, greatest int8, is_leased boolean)",
        )
        .await?;
    for table in ALIKE {
        target.query(&format!("DELETE FROM {table}")).await?;
        let (from, into) = (format!("COPY {table} TO STDOUT"), format!("COPY {table} FROM STDIN"));
        pipe(donor, &from, target, &into, &uncounted).await?;
    }
    for (query, table) in [(NAMES, "names"), (SEQUENCES, "sequences")] {
        let (from, into) =
            (format!("COPY ({query}) TO STDOUT"), format!("COPY onecopy_filling.{table} FROM STDIN"));
        pipe(donor, &from, target, &into, &uncounted).await?;
    }
    // If the server lacks a name, its id is NULL here, and the statement fails.
    for sql in [NAMED, NUMBERED, BOUNDED] {
        target.query(sql).await?;
    }
    positions(donor, target).await?;
    target.query(MARKED).await?;
    target.query("DROP TABLE onecopy_filling.names, onecopy_filling.sequences").await?;
    Ok(())
}

const SHAPE: BackendError = BackendError::Protocol("an answer about sequences of an unexpected shape");

/// Copies the positions of sequences. Sequences are not part of a snapshot: they are copied as they stand at the donor
/// now, which may be further than in the snapshot.
async fn positions(donor: &mut OwnConnection, target: &mut OwnConnection) -> Result<(), BackendError> {
    for counter in COUNTERS {
        position(donor, target, counter).await?;
    }
    for row in donor.query(SEQUENCES).await? {
        let [_, Some(schema), Some(name), _, _, _, _, Some(is_leased)] = row.as_slice() else {
            return Err(SHAPE);
        };
        if is_leased == "t" {
            continue;
        }
        position(donor, target, &format!("{}.{}", quoted(schema), quoted(name))).await?;
    }
    Ok(())
}

async fn position(
    donor: &mut OwnConnection,
    target: &mut OwnConnection,
    name: &str,
) -> Result<(), BackendError> {
    let stands = donor.query(&format!("SELECT last_value, is_called FROM {name}")).await?;
    let [Some(value), Some(called)] = stands.first().map(Vec::as_slice).unwrap_or_default() else {
        return Err(SHAPE);
    };
    let literal = name.replace('\'', "''");
    target.query(&format!("SELECT setval('{literal}', {value}, '{called}')")).await?;
    Ok(())
}
