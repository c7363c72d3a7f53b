//! From captured changes to what the core is told: the record's body, and the claims.

use cluster::claims::Claims;
use cluster::record::{RecordBuilder, SealedBody, Statement};

use crate::rules::Rules;
use crate::schema::{CHILDREN, Key, PARENTS, UNIQUE};
use crate::server::Change;

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
