//! Sequences on a server: their state, their movement, and the tables that draw from them.
//!
//! A server knows a sequence by an OID, which differs between replicas, and by a name, which can change.
//! `install.sql` gives each permanent sequence a number, in the order of schema changes, so it is the same
//! everywhere. `onecopy.sequences` tells a session the state of the sequences that it has touched, with any role.
//! `move_sequence` moves a sequence and stores the mark.
//!
//! Must run as superuser with `pg_catalog` alone in the search path, except for [`STATES_CALL`].

use cluster::ids::{DatabaseId, ReplicaId};
use cluster::parts::sequences::State;
use cluster::parts::sequences::leases::Range;
use cluster::record::Sequence;
use sql::{Draws, TableId};

use crate::backend::{BackendError, OwnConnection, Rows};

/// Returns the state of the sequences that the transaction has touched, among those in the argument (numbers, or NULL
/// for all).
pub(crate) const STATES_CALL: &str = "onecopy.sequences";

/// Moves the sequences to the states in this answer of [`STATES_CALL`], as far as they exist.
pub(crate) fn put_sql(states: &str) -> String {
    format!("SELECT onecopy_capture.put_sequences('{states}')")
}

/// For each table the sequences that its defaults use, and whether its rows may draw from others: by a default that
/// does not name its sequence, a check or a policy. Defaults of parents count. The query examines expression trees
/// directly, by the OIDs of `nextval`, `setval` and of the casts to smaller integers. Printing the trees would open
/// tables that may be dropped at that moment.
const DRAWS: &str = r"
WITH RECURSIVE family(oid, member) AS (
    SELECT tgrelid, tgrelid FROM pg_trigger WHERE tgname = '!onecopy'
    UNION SELECT family.oid, i.inhparent FROM family JOIN pg_inherits i ON i.inhrelid = family.member
), expression(relation, body) AS (
    SELECT adrelid, adbin::text FROM pg_attrdef
    UNION ALL SELECT conrelid, conbin::text FROM pg_constraint WHERE contype = 'c' AND conrelid <> 0
    UNION ALL SELECT polrelid, concat(polqual, polwithcheck) FROM pg_policy
), drawn(relation, sequence) AS (
    SELECT f.adrelid, d.refobjid FROM pg_depend d JOIN pg_attrdef f ON f.oid = d.objid
    WHERE d.classid = 'pg_attrdef'::regclass AND d.refclassid = 'pg_class'::regclass
    UNION SELECT d.refobjid, d.objid FROM pg_depend d
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.deptype = 'i'
), told AS (
    SELECT family.oid,
        bool_or(EXISTS (SELECT FROM expression e WHERE e.relation = family.member
            AND e.body ~ ':funcid (1574|1576|1765) ' AND e.body !~ concat('^(\{FUNCEXPR :funcid (480|714) [^{}]*)?',
                '\{FUNCEXPR :funcid 1574 [^{}]*\{CONST [^{}]*\}[^{}]*\}[^{}]*\}?$'))) AS others,
        array_agg(DISTINCT s.id) FILTER (WHERE s.id IS NOT NULL) AS ids
    FROM family LEFT JOIN drawn ON drawn.relation = family.member
    LEFT JOIN onecopy_capture.sequences s ON s.relation = drawn.sequence GROUP BY family.oid
)
SELECT split_part(encode(g.tgargs, 'escape'), '\000', 1), others, array_to_string(ids, ' ')
FROM told JOIN pg_trigger g ON g.tgrelid = told.oid AND g.tgname = '!onecopy' WHERE others OR ids IS NOT NULL
";

const MARKS: &str = "SELECT sequence, holder, generation, value, called, descends FROM onecopy_capture.marks \
    ORDER BY sequence, holder";

const SHAPE: BackendError = BackendError::Protocol("a query about sequences returned unexpected columns");

/// Reads which tables draw from which sequences.
pub(crate) async fn load_draws(
    connection: &mut OwnConnection,
    database: DatabaseId,
) -> Result<Vec<(TableId, Draws)>, BackendError> {
    let rows = connection.query(DRAWS).await?;
    rows.iter().map(|row| draws(row, database).ok_or(SHAPE)).collect()
}

fn draws(row: &[Option<String>], database: DatabaseId) -> Option<(TableId, Draws)> {
    let [Some(table), Some(others), ids] = row else { return None };
    let table = database.table(table.parse().ok()?);
    if others == "t" {
        return Some((table, Draws::FromSome));
    }
    let ids = ids.as_deref().unwrap_or_default().split(' ').filter(|id| !id.is_empty());
    let ids = ids.map(|id| id.parse().ok().map(|number| database.sequence(number))).collect::<Option<_>>()?;
    Some((table, Draws::From(ids)))
}

/// Reads the marks of a replica.
pub(crate) async fn load_marks(
    connection: &mut OwnConnection,
    database: DatabaseId,
) -> Result<Vec<Sequence>, BackendError> {
    let rows: Rows = connection.query(MARKS).await?;
    rows.iter().map(|row| mark(row, database).ok_or(SHAPE)).collect()
}

fn mark(row: &[Option<String>], database: DatabaseId) -> Option<Sequence> {
    let [Some(id), Some(holder), Some(generation), Some(value), Some(called), Some(descends)] = row else {
        return None;
    };
    Some(Sequence {
        id: database.sequence(id.parse().ok()?),
        holder: ReplicaId(holder.parse().ok()?),
        generation: generation.parse().ok()?,
        value: value.parse().ok()?,
        called: called == "t",
        descends: descends == "t",
    })
}

/// The call that moves a sequence of the server to a mark.
pub(crate) fn move_call(mark: &Sequence) -> String {
    format!("onecopy_capture.move_sequence({})", arguments(mark))
}

/// The call that stores a mark in the server.
pub(crate) fn keep_call(mark: &Sequence) -> String {
    format!("onecopy_capture.keep_mark({})", arguments(mark))
}

fn arguments(mark: &Sequence) -> String {
    let Sequence { id, holder, generation, value, called, descends } = mark;
    format!("{id}, {holder}, {generation}, '{value}', {called}, {descends}")
}

/// Parses the answer of [`STATES_CALL`].
pub(crate) fn states(answer: &str, database: DatabaseId) -> Option<Vec<State>> {
    answer.split(';').filter(|part| !part.is_empty()).map(|part| state(part, database)).collect()
}

/// Parses the answer of `onecopy_capture.draw_range`: the state after the draw, and the range.
pub(crate) fn drawn_range(answer: &str, database: DatabaseId) -> Option<(State, Range)> {
    let words: Vec<&str> = answer.split(' ').collect();
    let (said, range) = words.split_at_checked(STATE_WORDS)?;
    let [first, last, count] = range else { return None };
    let range = Range { first: first.parse().ok()?, last: last.parse().ok()?, count: count.parse().ok()? };
    Some((state(&said.join(" "), database)?, range))
}

/// Words of the state of one sequence.
const STATE_WORDS: usize = 8;

fn state(part: &str, database: DatabaseId) -> Option<State> {
    let words: Vec<&str> = part.split(' ').collect();
    let [id, value, called, increment, min, max, cycles, start] = words.as_slice() else { return None };
    let state = State {
        id: database.sequence(id.parse().ok()?),
        value: value.parse().ok()?,
        called: *called == "t",
        increment: increment.parse().ok()?,
        min: min.parse().ok()?,
        max: max.parse().ok()?,
        cycles: *cycles == "t",
        start: start.parse().ok()?,
    };
    (state.increment != 0).then_some(state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        assert_eq!(states("", DatabaseId::FIRST), Some(Vec::new()));
        let found =
            states(";3 -7 t -2 -9223372036854775808 -1 f -1;40 1 f 1 1 9 t 1", DatabaseId::FIRST).unwrap();
        assert_eq!(
            (found[0].id, found[0].value, found[0].called, found[0].increment),
            (DatabaseId::FIRST.sequence(3), -7, true, -2)
        );
        assert_eq!((found[0].min, found[1].cycles, found[1].called), (i64::MIN, true, false));
        for bad in ["3", ";1 2 t 0 1 2 f 1", ";1 2 t 1 1 99999999999999999999 f 1"] {
            assert_eq!(states(bad, DatabaseId::FIRST), None, "{bad}");
        }
    }
}
