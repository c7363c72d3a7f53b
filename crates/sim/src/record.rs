//! From statements and replies to what the core is told (reads, the record's body, claims) and what the history keeps.

use cluster::claims::Claims;
use cluster::event::Reads;
use cluster::ids::TableId;
use cluster::record::{RecordBuilder, SealedBody, Statement};

use crate::history::{self, Seen, Write};
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

/// What the core is told that a statement reads.
///
/// Where not every replica holds everything, the first statement of a transaction also chooses where the later ones
/// run, so it cannot be bounded by its own tables.
pub(crate) fn classify(
    program: &Program,
    at: usize,
    view_changes: usize,
    rules: &Rules,
    is_partial: bool,
) -> Reads {
    let statement = &program.statements[at];
    let is_first = at == 0 && program.frame != Frame::Autocommit;
    if is_partial && is_first {
        return Reads::All;
    }
    let outlives = program.keeps_snapshot() && is_first;
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
            Op::Read(key) | Op::Lock(key) | Op::Update(key) | Op::Insert(key) | Op::Delete(key) => {
                Some(key.table_id())
            }
            Op::Put(..) => None,
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
    let write = |change: &Change| Write {
        row: change.key.number(),
        element: *change.new.list.last().expect("a change appends an element"),
        base: Some(change.old.list.clone()),
    };
    statement.writes = answer.changes.iter().map(write).collect();
}
