//! From statements and replies to what the core is told (reads, the record's body, claims) and what the history keeps.

use cluster::claims::Claims;
use cluster::event::Reads;
use cluster::ids::TableId;
use cluster::record::{RecordBuilder, SealedBody, Statement};

use crate::history::{self, Scan, Seen, Write};
use crate::program::{Frame, Program};
use crate::rules::Rules;
use crate::schema::{self, CHILDREN, Key, PARENTS, Row, UNIQUE};
use crate::server::{Answer, Change, Op};

/// The body of the record. Every change is an update here, because a row that is gone keeps its list.
pub(crate) fn body(changes: &[Change], has_ddl: bool) -> SealedBody {
    let mut builder = RecordBuilder::new();
    if has_ddl {
        let statement = Statement {
            text: "CREATE OR REPLACE VIEW v".to_owned(),
            role: "client".to_owned(),
            search_path: "public".to_owned(),
            settings: Vec::new(),
        };
        builder.push_statement(&statement).expect("a statement is far smaller than the limit of a record");
    }
    for Change { key, old, new } in changes {
        builder
            .push_update(key.table_id(), &old.encode(*key), &new.encode(*key))
            .expect("a few rows are far smaller than the limit of a record");
    }
    builder.seal()
}

/// What it wrote, claimed, or may have locked.
pub(crate) fn claims(changes: &[Change], locked: &[Key], is_unbounded: bool, rules: &Rules) -> Claims {
    if is_unbounded && rules.unknown_claims_everything {
        return Claims::everything();
    }
    let mut claims = Claims::default();
    for key in changes.iter().map(|change| change.key) {
        if key.is_tied() && rules.tied_tables_claimed {
            for table in group_of(key) {
                claims.tables.push(Key { table: *table, row: 0 }.table_id());
            }
        } else {
            claims.rows.push((key.table_id(), u64::from(key.row)));
        }
    }
    if rules.locked_rows_claimed {
        claims.tables.extend(locked.iter().map(|key| key.table_id()));
    }
    claims.rows.sort_unstable();
    claims.rows.dedup();
    claims.tables.sort();
    claims.tables.dedup();
    claims
}

/// The tables that constraints tie together.
fn group_of(key: Key) -> &'static [u8] {
    if key.table == UNIQUE { &[UNIQUE] } else { &[PARENTS, CHILDREN] }
}

/// Where in its transaction a statement stands.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Its number, from 0.
    pub(crate) at: usize,
    /// The snapshot that the transaction keeps, if it keeps one, is taken.
    pub(crate) has_snapshot: bool,
    /// Not every replica holds everything.
    pub(crate) is_partial: bool,
}

/// What the core is told that a statement reads.
///
/// Where not every replica holds everything, the first statement of a transaction also chooses where the later ones
/// run, so it cannot be bounded by its own tables; the later ones are still told, because a replica may lack them.
pub(crate) fn classify(program: &Program, place: Place, view_changes: usize, rules: &Rules) -> Reads {
    let statement = &program.statements[place.at];
    let is_first = place.at == 0 && program.frame != Frame::Autocommit;
    if place.is_partial && is_first {
        return Reads::All;
    }
    let is_snapshot = program.keeps_snapshot() && program.frame != Frame::Autocommit;
    if is_snapshot && place.has_snapshot && !place.is_partial {
        // Nothing newer is seen anyway.
        return Reads::Tables([].into());
    }
    let outlives = is_snapshot && !place.has_snapshot;
    if statement.is_unknown
        || (outlives && rules.snapshot_needs_all)
        || (!statement.is_read() && rules.writes_need_all)
    {
        return Reads::All;
    }
    let mut tables: Vec<TableId> = statement
        .ops
        .iter()
        .filter_map(|op| match op {
            Op::ReadView => Some(TableId(u32::from(schema::view_target(view_changes)))),
            Op::Read(key)
            | Op::Lock(key)
            | Op::Update(key)
            | Op::Insert(key)
            | Op::Delete(key)
            | Op::Move(key, _) => Some(key.table_id()),
            Op::Scan(table) => Some(TableId(u32::from(*table))),
            Op::Total => Some(TableId(u32::from(schema::ACCOUNTS))),
            Op::Put(..) | Op::Savepoint | Op::RollbackTo => None,
        })
        .collect();
    tables.sort();
    tables.dedup();
    Reads::Tables(tables.into())
}

/// Writes into the history what the client can tell from the reply.
pub(crate) fn note(statement: &mut history::Statement, answer: &Answer) {
    let seen = |(key, row): &(Key, Row)| Seen { row: key.number(), list: row.list.clone() };
    statement.reads = answer.reads.iter().map(seen).collect();
    statement.latest = answer.latest.iter().map(seen).collect();
    statement.locked = answer.locked.iter().map(seen).collect();
    statement.scans = answer.scans.iter().map(|(table, found)| scan(*table, found)).collect();
    statement.total = answer.total;
    statement.moves = answer.changes.iter().any(|change| change.key.table == schema::ACCOUNTS);
    let write = |change: &Change| Write {
        row: change.key.number(),
        element: *change.new.list.last().expect("a change appends an element"),
        base: Some(change.old.list.clone()),
        is_gone: !change.new.present,
    };
    statement.writes = answer.changes.iter().map(write).collect();
}

/// A statement of which the client knows nothing but that it sent it.
pub(crate) fn blank(of: &history::Statement) -> history::Statement {
    history::Statement { begin_us: of.begin_us, is_control: of.is_control, ..Default::default() }
}

/// A client sees only the rows that are there.
fn scan(table: u8, found: &[(Key, Row)]) -> Scan {
    let seen = |(key, row): &(Key, Row)| Seen { row: key.number(), list: row.list.clone() };
    Scan { of: schema::rows_of(table).map(Key::number).collect(), found: found.iter().map(seen).collect() }
}
