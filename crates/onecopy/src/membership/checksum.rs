//! Checksums that show whether replicas hold the same.
//!
//! A table's checksum is its number of rows and a sum of hashes of the rows' text. The sum does not depend on the order
//! of the rows. For the schema, each kind of object is hashed as the text by which the server would create it again, so
//! no object identifier gets in. Roles are compared with their attributes, memberships, settings and passwords.
//!
//! A superuser's connection computes them, so it must not run users' code. A row becomes text by the output functions
//! of its types, never by a cast, which the owner of a table can define for its rows.
//!
//! Checksums are comparable only between snapshots of the same version. The caller has to hold the replicas there.

use std::collections::BTreeMap;

use cluster::ids::PartId;
use cluster::placement::Share;

use super::comparison::Checksums;
use crate::backend::{BackendError, OwnConnection, Rows};
use crate::capture::quoting::quoted;
use crate::capture::shares::{SharedTable, Shares, a_row_sql};

/// Settings that the text of values and definitions depends on.
const PIN_TEXT: &str = "SET LOCAL search_path = pg_catalog; SET LOCAL row_security = off; \
    SET LOCAL DateStyle = 'ISO, YMD'; SET LOCAL IntervalStyle = postgres; SET LOCAL TimeZone = 'UTC'; \
    SET LOCAL extra_float_digits = 3; SET LOCAL bytea_output = hex; SET LOCAL xmlbinary = base64; \
    SET LOCAL statement_timeout = 0; SET LOCAL quote_all_identifiers = off";

/// Tables that hold rows, as schema and name.
const TABLES: &str = "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
    WHERE c.relkind IN ('r', 'm') AND c.relispopulated AND c.relpersistence <> 't' \
    AND n.nspname NOT IN ('pg_catalog', 'information_schema', 'onecopy', 'onecopy_capture') ORDER BY 1, 2";

/// Kinds of objects, each with a query of the texts that define them.
const SCHEMA: &[(&str, &str)] = &[
    (
        "relations",
        "SELECT format('%I.%I %s%s%s%s %s %s %s %s', n.nspname, c.relname, c.relkind, c.relpersistence, c.relrowsecurity, \
         c.relispopulated, c.relowner::regrole, @RELATION_RIGHTS@, c.reloptions, CASE WHEN c.relkind IN ('v', 'm') THEN pg_get_viewdef(c.oid) END) \
         FROM pg_class c JOIN users n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' AND c.relkind <> 't'",
    ),
    (
        "columns",
        "SELECT format('%I.%I.%I %s %s %s%s %s %s %s', n.nspname, c.relname, a.attname, row_number() OVER \
         (PARTITION BY c.oid ORDER BY a.attnum), format_type(a.atttypid, a.atttypmod), a.attidentity, a.attgenerated, \
         a.attnotnull, pg_get_expr(d.adbin, d.adrelid), @COLUMN_RIGHTS@) \
         FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN users n ON n.oid = c.relnamespace \
         LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum \
         WHERE a.attnum > 0 AND NOT a.attisdropped AND c.relkind IN ('r', 'p', 'v', 'm', 'c') AND c.relpersistence <> 't'",
    ),
    (
        "constraints",
        "SELECT format('%I.%s %I %s', n.nspname, CASE WHEN k.conrelid <> 0 THEN k.conrelid::regclass::text \
         ELSE k.contypid::regtype::text END, k.conname, pg_get_constraintdef(k.oid)) \
         FROM pg_constraint k JOIN users n ON n.oid = k.connamespace LEFT JOIN pg_class c ON c.oid = k.conrelid \
         WHERE c.relpersistence IS DISTINCT FROM 't'",
    ),
    (
        "indexes",
        "SELECT format('%s %s', pg_get_indexdef(c.oid), i.indisvalid) FROM pg_class c \
         JOIN users n ON n.oid = c.relnamespace JOIN pg_index i ON i.indexrelid = c.oid WHERE c.relpersistence <> 't'",
    ),
    (
        "triggers",
        "SELECT format('%s %s', pg_get_triggerdef(t.oid), t.tgenabled) FROM pg_trigger t \
         JOIN pg_class c ON c.oid = t.tgrelid JOIN users n ON n.oid = c.relnamespace \
         WHERE NOT t.tgisinternal AND c.relpersistence <> 't'",
    ),
    (
        "rules and policies",
        "SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class \
         JOIN users n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't' \
         UNION ALL SELECT format('%I %s %s %s %s %s %s', p.polname, p.polrelid::regclass, p.polcmd, p.polpermissive, \
         p.polroles::regrole[], pg_get_expr(p.polqual, p.polrelid), pg_get_expr(p.polwithcheck, p.polrelid)) FROM pg_policy p",
    ),
    (
        "functions",
        "SELECT format('%s %s %s %s', p.oid::regprocedure, p.proowner::regrole, @FUNCTION_RIGHTS@, \
         CASE WHEN p.prokind <> 'a' THEN pg_get_functiondef(p.oid) END) \
         FROM pg_proc p JOIN users n ON n.oid = p.pronamespace",
    ),
    (
        "types",
        "SELECT format('%s %s %s', t.oid::regtype, t.typtype, (SELECT string_agg(e.enumlabel, ',' ORDER BY e.enumsortorder) \
         FROM pg_enum e WHERE e.enumtypid = t.oid)) FROM pg_type t JOIN users n ON n.oid = t.typnamespace \
         LEFT JOIN pg_class c ON c.oid = t.typrelid WHERE c.relpersistence IS DISTINCT FROM 't'",
    ),
    (
        "sequences",
        "SELECT format('%s %s %s %s %s %s %s', s.seqrelid::regclass, s.seqtypid::regtype, s.seqstart, s.seqincrement, \
         s.seqmax, s.seqmin, s.seqcycle) FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid \
         JOIN users n ON n.oid = c.relnamespace WHERE c.relpersistence <> 't'",
    ),
];

/// The SQL for rights, by the words that stand for them above. Equal rights may have been given in another order, or be
/// left out where they are the defaults.
const RIGHTS: [(&str, &str); 3] = [
    (
        "@RELATION_RIGHTS@",
        "COALESCE(c.relacl, acldefault(CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::\"char\", c.relowner))",
    ),
    ("@FUNCTION_RIGHTS@", "COALESCE(p.proacl, acldefault('f', p.proowner))"),
    ("@COLUMN_RIGHTS@", "a.attacl"),
];

/// Replaces those words in a query.
fn with_rights(query: &str) -> String {
    RIGHTS.iter().fold(query.to_owned(), |query, (word, rights)| {
        let sorted = format!(
            "(SELECT string_agg(i::text, ' ' ORDER BY i::text COLLATE \"C\") FROM unnest({rights}) AS i)"
        );
        query.replace(word, &sorted)
    })
}

/// Passwords have to be equal: a client's proof of a password at one server must open the others, too.
pub(crate) const PASSWORDS: &str = "passwords of roles";

/// Objects that all databases of a server share, with their queries.
const SHARED: &[(&str, &str)] = &[
    (
        "roles",
        "SELECT format('%s %s%s%s%s%s%s%s %s %s %s', rolname, rolsuper, rolinherit, rolcreaterole, rolcreatedb, rolcanlogin, \
         rolreplication, rolbypassrls, rolconnlimit, COALESCE(rolvaliduntil, 'infinity'), \
         (SELECT string_agg(DISTINCT format('%s %s', g.rolname, m.admin_option), ',') FROM pg_auth_members m \
          JOIN pg_roles g ON g.oid = m.roleid WHERE m.member = r.oid)) FROM pg_roles r WHERE rolname !~ '^pg_'",
    ),
    (
        "settings of roles",
        "SELECT format('%s %s', r.rolname, setting) FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole, \
         unnest(s.setconfig) AS setting WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))",
    ),
    (PASSWORDS, "SELECT format('%s %s', rolname, rolpassword) FROM pg_authid WHERE rolpassword IS NOT NULL"),
];

/// The schemas whose objects are compared.
const USERS: &str = "WITH users AS (SELECT oid, nspname FROM pg_namespace WHERE nspname !~ '^pg_' \
    AND nspname NOT IN ('information_schema', 'onecopy', 'onecopy_capture'))";

/// The checksum of rows: their number, and the sum of their hashes.
const SUM: &str =
    "format('%s rows, %s', count(*), sum(hashtextextended(textin(record_out(onecopy_row.*)), 0)::numeric))";
/// Its value for no rows.
const NO_ROWS: &str = "0 rows, ";

/// A table's checksum, by its name in quotes.
pub(crate) fn checksum_sql(table: &str) -> String {
    format!("SELECT {SUM} FROM ONLY {table} AS onecopy_row")
}

/// Computes the checksums of everything that the replica holds: of tables, of each part of those that are split, and of each kind of
/// schema object. The connection is a superuser's, in a transaction that has the snapshot to look at.
pub(crate) async fn checksums(
    connection: &mut OwnConnection,
    shares: &Shares,
) -> Result<Checksums, BackendError> {
    let shared = shares.of(&connection.query(shares.numbering.tables_sql()).await?)?;
    connection.query(PIN_TEXT).await?;
    let mut found = Checksums::default();
    for table in &shared {
        if let Some(split) = &table.split {
            let sql =
                format!("SELECT {}, {SUM} FROM ONLY {} AS onecopy_row GROUP BY 1", split.part, table.name);
            note_parts(&connection.query(&sql).await?, table, split.count, &mut found)?;
        } else {
            let name = format!("table {}", table.name);
            if !connection.query(&a_row_sql(&table.name, "true")).await?.is_empty() {
                found.planted.insert(name.clone());
            }
            found.not_held.insert(name);
        }
    }
    for row in connection.query(TABLES).await? {
        let [Some(schema), Some(table)] = row.as_slice() else { return Err(SHAPE) };
        let table = format!("{}.{}", quoted(schema), quoted(table));
        if shared.iter().all(|shared| shared.name != table) {
            found.sums.insert(format!("table {table}"), one(connection, &checksum_sql(&table)).await?);
        }
    }
    found.sums.append(&mut schema_checksums(connection).await?);
    for (kind, query) in SHARED {
        found.sums.insert((*kind).to_owned(), lines_checksum(connection, query).await?);
    }
    Ok(found)
}

/// Notes the checksums of a table that is split, by part.
fn note_parts(
    rows: &Rows,
    table: &SharedTable,
    count: u8,
    found: &mut Checksums,
) -> Result<(), BackendError> {
    let mut sums = BTreeMap::new();
    for row in rows {
        let [Some(part), Some(sum)] = row.as_slice() else { return Err(SHAPE) };
        sums.insert(part.parse::<u8>().map_err(|_| SHAPE)?, sum.clone());
    }
    for part in (0..count).map(PartId) {
        let name = format!("part {part} of table {}", table.name);
        let sum = sums.remove(&part.0);
        let is_held = match table.share {
            Share::All => true,
            Share::Parts(held) => held.contains(part),
            Share::Nothing => false,
        };
        if is_held {
            found.sums.insert(name, sum.unwrap_or_else(|| NO_ROWS.to_owned()));
        } else {
            found.planted.extend(sum.map(|_| name.clone()));
            found.not_held.insert(name);
        }
    }
    Ok(())
}

/// The checksums of each kind of schema object, under the same conditions.
pub(crate) async fn schema_checksums(
    connection: &mut OwnConnection,
) -> Result<BTreeMap<String, String>, BackendError> {
    connection.query(PIN_TEXT).await?;
    let mut sums = BTreeMap::new();
    let may_be_lent = !connection.query(SEQUENCES_LENT).await?.is_empty();
    for (kind, query) in SCHEMA {
        let query = with_rights(query);
        let query = if may_be_lent { query.replace(PLAIN_BOUNDS, OWN_BOUNDS) } else { query };
        sums.insert(format!("schema: {kind}"), lines_checksum(connection, &query).await?);
    }
    Ok(sums)
}

/// The checksum of a query's lines, in no order.
async fn lines_checksum(connection: &mut OwnConnection, query: &str) -> Result<String, BackendError> {
    let sql = format!(
        "{USERS} SELECT format('%s objects, %s', count(*), md5(string_agg(line, E'\\n' ORDER BY line COLLATE \"C\"))) \
         FROM ({query}) AS lines(line)"
    );
    one(connection, &sql).await
}

/// Finds out whether the server records leases of sequences. If it does, `OWN_BOUNDS` yields the bounds of the schema.
const SEQUENCES_LENT: &str = "SELECT 1 WHERE to_regclass('onecopy_capture.leased') IS NOT NULL";
const PLAIN_BOUNDS: &str = "FROM pg_sequence s ";
const OWN_BOUNDS: &str = "FROM (SELECT q.seqrelid, q.seqtypid, q.seqstart, q.seqincrement, q.seqcycle, \
    COALESCE(l.greatest, q.seqmax) AS seqmax, COALESCE(l.least, q.seqmin) AS seqmin FROM pg_sequence q \
    LEFT JOIN (onecopy_capture.sequences o JOIN onecopy_capture.leased l ON l.sequence = o.id) \
    ON o.relation = q.seqrelid) s ";

const SHAPE: BackendError = BackendError::Protocol("an answer about checksums of an unexpected shape");

async fn one(connection: &mut OwnConnection, sql: &str) -> Result<String, BackendError> {
    let rows = connection.query(sql).await?;
    rows.into_iter().next().and_then(|mut row| row.pop()).flatten().ok_or(SHAPE)
}
