//! The claims of statements and changed rows, as the binary's sessions report them to the core.
//!
//! A transaction claims its first rows by their keys, up to a limit ([`cluster::claims::ROW_CLAIMS_MAX`] in the binary, few
//! here). Each further row claims its table, and the tables that it refers to. Further inserts claim their table apart from
//! the rest, as held by home ([`Claimed::is_held`]).

use std::collections::BTreeMap;

use cluster::claims::{ANY_DEFINITION, Claimed, Claims, Footprint, definitions};
use cluster::ids::TableId;

use crate::history::Level;
use crate::program::{Program, Statement};
use crate::rules::Rules;
use crate::schema::{DATABASE, Key, PARENTS, VIEW_NAME};
use crate::server::{Change, Op};

/// Digests of claims other than rows start here: unique values, and keys of parents as foreign keys use them.
const UNIQUE_VALUES: u64 = 1_000;
const PARENT_KEYS: u64 = 2_000;
pub(super) const GROUPS: u64 = 3_000;
const ANY_GROUP: u64 = 4_000;

/// A lock without a change.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Locked {
    /// SELECT FOR UPDATE.
    Row(Key),
    /// LOCK TABLE.
    Table(u8),
    /// A schema change has replaced the view's definition.
    View,
}

/// The changes and locks of a transaction, or of part of it, each with its turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done<'a> {
    /// Changed rows.
    pub(crate) changes: &'a [(u32, Change)],
    /// Locks.
    pub(crate) locked: &'a [(u32, Locked)],
    /// Changed rows beyond this number claim their tables.
    pub(crate) row_claims_max: usize,
}

/// The claims of a changed row: the row, its unique value, its own key if others may refer to it, and the key of the row
/// that it refers to.
fn claim(key: Key, comes_or_goes: bool, claims: &mut Claims, rules: &Rules) {
    claims.rows.push((key.table_id(), u64::from(key.row)));
    if let Some(group) = key.group().filter(|_| rules.groups_told) {
        claims.groups.push((key.table_id(), GROUPS + u64::from(group)));
    }
    if !rules.constraints_claimed {
        return;
    }
    if let Some(value) = key.unique_value() {
        claims.rows.push((key.table_id(), UNIQUE_VALUES + u64::from(value.row)));
    }
    if key.table == PARENTS && comes_or_goes {
        claims.rows.push((key.table_id(), PARENT_KEYS + u64::from(key.row)));
    }
    if let Some(parent) = key.parent().filter(|_| comes_or_goes && rules.references_claimed) {
        claims.shared.push((parent.table_id(), PARENT_KEYS + u64::from(parent.row)));
    }
}

impl Done<'_> {
    /// How many row claims the changes make, if none claims its table instead.
    fn row_claims(&self, rules: &Rules) -> usize {
        let mut all = Claims::default();
        self.changes
            .iter()
            .for_each(|(_, change)| claim(change.key, change.comes_or_goes(), &mut all, rules));
        all.rows.len() + all.shared.len()
    }

    /// Whether the statement uses a definition that its own transaction has replaced; no catalogue has that yet.
    pub(crate) fn redefines(&self, statement: &Statement, rules: &Rules) -> bool {
        let has_defined = self.locked.iter().any(|(_, locked)| matches!(locked, Locked::View));
        has_defined && rules.own_changes_count && statement.ops.contains(&Op::ReadView)
    }

    /// Whether the statement may exceed the limit of row claims.
    fn becomes_long(&self, statement: &Statement, rules: &Rules) -> bool {
        let mut all = Claims::default();
        let so_far = self.row_claims(rules);
        let written = statement.ops.iter().filter_map(Op::changes);
        written.into_iter().any(|key| {
            let is_full = so_far + all.rows.len() + all.shared.len() >= self.row_claims_max;
            claim(key, true, &mut all, rules);
            is_full
        })
    }
}

/// All claims of a transaction by turn; everything from the first unbounded turn on.
pub(crate) fn claims(done: Done<'_>, unbounded: Option<u32>, turns_run: u32, rules: &Rules) -> Vec<Claimed> {
    let mut turns: BTreeMap<u32, Claims> = BTreeMap::new();
    let mut held: BTreeMap<TableId, u32> = BTreeMap::new();
    let mut rows = 0;
    for (turn, change) in done.changes {
        let claims = turns.entry(*turn).or_default();
        let before = claims.rows.len() + claims.shared.len();
        let is_held = change.comes_or_goes() && change.new.present || !rules.inserts_alone_are_held;
        if rows < done.row_claims_max {
            claim(change.key, change.comes_or_goes(), claims, rules);
        } else {
            let table = change.key.table_id();
            if is_held {
                held.entry(table).or_insert(*turn);
            } else {
                claims.tables.push(table);
            }
            let parent = change.key.parent().filter(|_| change.comes_or_goes());
            claims.tables.extend(parent.map(Key::table_id));
        }
        rows += claims.rows.len() + claims.shared.len() - before;
    }
    for (turn, locked) in done.locked {
        let claims = turns.entry(*turn).or_default();
        match locked {
            Locked::Row(key) if rules.locked_rows_claimed => claim(*key, true, claims, rules),
            Locked::Table(table) if rules.locked_tables_claimed => {
                claims.tables.push(DATABASE.table(u32::from(*table)));
            }
            Locked::View => {
                claims.rows.push((definitions(DATABASE), ANY_DEFINITION));
                if rules.definitions_claimed {
                    claims.rows.push((definitions(DATABASE), VIEW_NAME));
                }
            }
            Locked::Row(_) | Locked::Table(_) => {}
        }
    }
    if let Some(turn) = unbounded.filter(|_| rules.unknown_claims_everything) {
        turns.entry(turn).or_default().everything = true;
    }
    let turns = turns.into_iter().filter(|(_, claims)| !claims.is_empty()).map(|(turn, mut claims)| {
        for list in [&mut claims.rows, &mut claims.groups] {
            list.sort_unstable();
            list.dedup();
        }
        claims.tables.sort_unstable();
        claims.tables.dedup();
        (turn, false, claims)
    });
    let held = held.into_iter().map(|(table, turn)| {
        let claims = Claims { tables: vec![table], ..Claims::default() };
        (turn, true, claims)
    });
    let last = turns_run.saturating_sub(1);
    let of_turn = |(turn, is_held, claims)| {
        let turn = if rules.turns_told { turn } else { last };
        Claimed { turn, is_held, claims }
    };
    turns.chain(held).map(of_turn).collect()
}

/// The predicted writes of a statement. They are tables instead of rows if the program is known by tables only, or if the
/// transaction may exceed the limit of row claims with it.
pub(crate) fn wants(program: &Program, at: usize, done: Done<'_>, rules: &Rules) -> Claims {
    let statement = &program.statements[at];
    let mut claims = Claims::default();
    if statement.is_unknown || done.redefines(statement, rules) {
        return Claims::everything();
    }
    let is_long = done.becomes_long(statement, rules);
    if program.is_unpredicted && (!is_long || done.changes.is_empty()) {
        return claims;
    }
    for op in &statement.ops {
        match op {
            Op::Update(key) | Op::Delete(key) | Op::Lock(key) if key.group().is_some() => {
                claim_in_group(*key, program.is_grouped, &mut claims);
            }
            Op::Update(key) | Op::Move(key, _) => claim(*key, false, &mut claims, rules),
            Op::Lock(key) | Op::Insert(key) | Op::Delete(key) => claim(*key, true, &mut claims, rules),
            Op::LockTable(table) => claims.tables.push(DATABASE.table(u32::from(*table))),
            Op::ReadView if rules.definitions_claimed => {
                claims.shared.push((definitions(DATABASE), VIEW_NAME));
            }
            Op::Read(key) if program.level == Level::Serializable => claim(*key, false, &mut claims, rules),
            _ => {}
        }
    }
    if statement.is_ddl && rules.definitions_claimed {
        claims.rows.push((definitions(DATABASE), VIEW_NAME));
    }
    if program.is_coarse || is_long { claims.widened() } else { claims }
}

/// The predicted writes of a transaction when it begins.
pub(crate) fn foreseen(program: &Program, done: Done<'_>, rules: &Rules) -> Claims {
    let mut all = Claims::default();
    (0..program.statements.len()).for_each(|at| all.add(&wants(program, at, done, rules)));
    all
}

/// Whether all that a program does is known before it begins.
pub(crate) fn is_known(program: &Program, row_claims_max: usize) -> bool {
    let mut all = Claims::default();
    let changed = program.statements.iter().flat_map(|statement| &statement.ops).filter_map(Op::changes);
    changed.for_each(|key| claim(key, true, &mut all, &Rules::default()));
    let is_long = all.rows.len() + all.shared.len() >= row_claims_max;
    let is_bounded = |statement: &Statement| !statement.is_unknown && !statement.is_ddl;
    !program.is_unpredicted && !is_long && program.statements.iter().all(is_bounded)
}

/// The claims on what is read, as if it was locked for share. A group that is read meets rows of which only the key is known.
pub(super) fn relied_on(reads: &Footprint) -> Claims {
    let is_group = |(_, number): &&(TableId, u64)| (GROUPS..ANY_GROUP).contains(number);
    let any_group = reads.rows.iter().filter(is_group).map(|(table, _)| (*table, ANY_GROUP));
    Claims {
        shared: reads.rows.iter().copied().chain(any_group).collect(),
        tables: reads.tables.clone(),
        ..Claims::default()
    }
}

/// Claims a row of a grouped table, by its group or by its key.
fn claim_in_group(key: Key, is_grouped: bool, claims: &mut Claims) {
    let row = |number| (key.table_id(), number);
    if let Some(group) = key.group().filter(|_| is_grouped) {
        claims.rows.push(row(GROUPS + u64::from(group)));
        claims.shared.push(row(ANY_GROUP));
    } else {
        claims.rows.push(row(u64::from(key.row)));
        claims.groups.push(row(ANY_GROUP));
    }
}
