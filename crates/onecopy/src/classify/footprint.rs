//! The reads and possible writes of statements, for the core, before the statements run.
//!
//! Example: `UPDATE t SET v = 1 WHERE id = 7` reads and may write the row of `t` whose primary key is 7.
//!
//! Both come from a statement's accesses, with the values of its constants and parameters put in. *Reads* are
//! identified by any unique key, since a written row claims its values of all unique keys. Otherwise the smallest
//! groups that hold the rows identify them ([`sql::accesses::groups`]), since a written row tells its groups, too.
//! Possible *writes* are identified by the primary key, or else by groups. For rows that are only read the columns
//! count, too: a change of other columns changes nothing for the statement. Values of unique keys that a statement
//! takes are exclusive claims; parents of references are shared claims. Where rows are not known, the whole table
//! stands for them, or everything.
//!
//! Two statements may identify one row by different properties, and have to conflict. A statement that knows the row by
//! its primary key claims its groups, too, as far as it knows them. For a grouping that it does not know, it claims the
//! group of *all* rows. A statement that claims groups of a grouping also takes the group of all rows, shared. So it
//! conflicts with statements that do not know the group of their rows. It does not conflict with statements that claim
//! other groups of the same grouping.
//!
//! Possible writes are a forecast: it makes a statement wait for transactions of other homes instead of failing. The
//! captured rows certify the actual writes ([`crate::writeset::claims`]). So the forecast omits values that only the
//! rows tell, such as the value that an update frees. Reads are no forecast: a statement that announces too few reads
//! may see stale rows.

use std::hash::{Hash, Hasher};

use cluster::claims::{Claims, Footprint, is_definitions};
use cluster::ids::TableId;
use rustc_hash::FxHasher;
use sql::accesses::{
    self, Access, Accesses, Claim, ColumnSet, Columns, KeyDigest, Rows, Strength, Value, is_keyed,
};
use sql::{Catalogue, Table};

/// A statement that reads more rows than this reads their whole tables.
pub(crate) const ROWS_READ_MAX: usize = 1_000;

/// The reads of a bounded statement, including those that its writes make.
pub(crate) fn footprint(touched: &Accesses, catalogue: &Catalogue) -> Footprint {
    let mut found = Footprint::default();
    for access in &touched.reads {
        let columns = match access.columns {
            Columns::Some(set) => Some(columns_of(&access.rows, set)),
            Columns::All => None,
        };
        read(&RowsRead { table: access.table, rows: &access.rows, columns }, catalogue, &mut found);
    }
    // A statement has to write or lock the newest version of a row.
    for write in touched.writes.iter().filter(|write| !write.new) {
        read(&RowsRead { table: write.table, rows: &write.rows, columns: None }, catalogue, &mut found);
    }
    for lock in &touched.locks {
        read(&RowsRead { table: lock.table, rows: &lock.rows, columns: None }, catalogue, &mut found);
    }
    // A statement that only removes rows looks at no others.
    let takes = touched.writes.iter().any(|write| write.new || write.columns != Columns::All);
    for claim in touched.claims.iter().filter(|_| takes) {
        found.add(&looked_up(claim, catalogue));
    }
    settle(&mut found);
    found
}

/// The read behind a claim: whether a row with this key exists.
fn looked_up(claim: &Claim, catalogue: &Catalogue) -> Footprint {
    let Some(table) = catalogue.table(claim.table) else {
        return Footprint { tables: vec![claim.table], ..Footprint::default() };
    };
    let key = table.keys.get(claim.key);
    let columns = key.map(|key| (table.id, key.columns.iter().copied().collect())).into_iter().collect();
    match values(claim, table) {
        Some(digests) => {
            let rows = digests.iter().map(|digest| (digest.table, digest.row())).collect();
            Footprint { rows, columns, ..Footprint::default() }
        }
        None => Footprint { tables: vec![table.id], columns, ..Footprint::default() },
    }
}

/// Adds the columns that identify the rows: a change of these columns changes which rows match.
fn columns_of(rows: &Rows, read: ColumnSet) -> ColumnSet {
    let Rows::AnyOf(matches) = rows else { return read };
    let known = matches.iter().flat_map(accesses::Match::equalities).map(|equality| equality.column);
    known.fold(read, ColumnSet::with)
}

struct RowsRead<'a> {
    table: TableId,
    rows: &'a Rows,
    /// The columns that matter; `None` for all.
    columns: Option<ColumnSet>,
}

fn read(read: &RowsRead<'_>, catalogue: &Catalogue, found: &mut Footprint) {
    let RowsRead { table, rows, columns } = *read;
    if rows.is_none() {
        return;
    }
    let mut more =
        Footprint { columns: columns.map(|set| (table, set)).into_iter().collect(), ..Footprint::default() };
    read_rows(table, rows, catalogue, &mut more);
    found.add(&more);
}

fn read_rows(table: TableId, rows: &Rows, catalogue: &Catalogue, found: &mut Footprint) {
    let digests = catalogue.table(table).map(|known| digests_of(table, rows, known)).unwrap_or_default();
    // One key identifies all of the rows.
    if let Some(key) = digests.first().map(|digest| digest.key) {
        let by_key = digests.iter().filter(|digest| digest.key == key);
        found.rows.extend(by_key.map(|digest| (table, digest.row())));
        return;
    }
    match catalogue.table(table).and_then(|known| accesses::groups(rows, known)) {
        Some(groups) => found.rows.extend(groups.numbers.into_iter().map(|group| (table, group))),
        None => found.tables.push(table),
    }
}

/// Sorts and removes duplicates. Replaces too many rows by their tables.
pub(crate) fn settle(found: &mut Footprint) {
    if found.rows.len() > ROWS_READ_MAX {
        let of_tables = found.rows.extract_if(.., |(table, _)| !is_definitions(*table));
        found.tables.extend(of_tables.map(|(table, _)| table));
    }
    found.tables.sort_unstable();
    found.tables.dedup();
    let Footprint { tables, rows, .. } = found;
    rows.retain(|(table, _)| tables.binary_search(table).is_err());
    rows.sort_unstable();
    rows.dedup();
}

fn digests_of(table: TableId, rows: &Rows, known: &Table) -> Vec<KeyDigest> {
    let access = Access { table, columns: Columns::All, rows: rows.clone(), new: false };
    accesses::digests(&access, known)
}

/// The values of a claim that another row could have, too. Excludes NULL and values that a sequence is about to give.
/// `None` when some values are not known.
pub(crate) fn values(claim: &Claim, table: &Table) -> Option<Vec<KeyDigest>> {
    let nulls_meet = table.keys.get(claim.key).is_none_or(|key| key.nulls_not_distinct);
    let is_lone = |one: &accesses::Match| {
        one.equalities().iter().any(|equality| match equality.value {
            Value::Fresh => true,
            Value::Null => !nulls_meet,
            _ => false,
        })
    };
    let Rows::AnyOf(matches) = &claim.rows else { return None };
    let met: Vec<accesses::Match> = matches.iter().filter(|one| !is_lone(one)).cloned().collect();
    Claim { rows: Rows::AnyOf(met.into()), ..claim.clone() }.digests(table)
}

/// The rows and tables that a bounded statement may write, lock or rely on. `own` is a number that no other transaction
/// has.
pub(crate) fn forecast(touched: &Accesses, own: u64, catalogue: &Catalogue) -> Claims {
    let mut claims = Claims::default();
    for write in &touched.writes {
        let Some(table) = catalogue.table(write.table) else { return Claims::everything() };
        write_rows(write, table, own, catalogue, &mut claims);
    }
    for lock in &touched.locks {
        let Some(table) = catalogue.table(lock.table) else { return Claims::everything() };
        lock_rows(&lock.rows, lock.strength, table, catalogue, &mut claims);
    }
    for claim in &touched.claims {
        let Some(table) = catalogue.table(claim.table) else { return Claims::everything() };
        claim_values(claim, table, catalogue, &mut claims);
    }
    claims.tables.sort_unstable();
    claims.tables.dedup();
    let Claims { rows, shared, groups, tables, .. } = &mut claims;
    for list in [rows, shared, groups] {
        list.retain(|(table, _)| tables.binary_search(table).is_err());
        list.sort_unstable();
        list.dedup();
    }
    claims
}

/// The claims on what a statement reads, as if it locked that for share.
pub(crate) fn relied_on(touched: &Accesses, catalogue: &Catalogue) -> Claims {
    let mut claims = Claims::default();
    for access in &touched.reads {
        let Some(table) = catalogue.table(access.table) else { return Claims::everything() };
        lock_rows(&access.rows, Strength::Share, table, catalogue, &mut claims);
    }
    claims
}

/// The tables that a statement writes. Omits tables where it only adds rows that conflict with nothing.
pub(crate) fn written_whole(touched: &Accesses, catalogue: &Catalogue) -> Vec<TableId> {
    let meets = |write: &&Access| {
        let is_alone = |table| write.new && meets_nothing(table);
        !write.rows.is_none() && !catalogue.table(write.table).is_some_and(is_alone)
    };
    touched.writes.iter().filter(meets).map(|write| write.table).collect()
}

fn write_rows(write: &Access, table: &Table, own: u64, catalogue: &Catalogue, claims: &mut Claims) {
    if write.rows.is_none() {
        return;
    }
    if write.new {
        if is_keyed(table) || meets_parents_alone(table, catalogue) {
            // The claims hold the row's keys, where these are known. This claim conflicts with claims of the whole
            // table.
            claims.rows.push((table.id, own_hash(own, table.id)));
            write_beside(&write.rows, table, None, claims);
        } else {
            claims.tables.push(table.id);
        }
        return;
    }
    if let Some(digests) = by_primary_key(&write.rows, table) {
        claims.rows.extend(digests.iter().map(|digest| (table.id, digest.row())));
        write_beside(&write.rows, table, None, claims);
        return;
    }
    // New references to rows that are deleted or change their keys have to wait. That requires the keys of these rows.
    let sets = |key: &usize| match write.columns {
        Columns::All => true,
        Columns::Some(set) => table.keys[*key].columns.iter().any(|at| set.contains(*at)),
    };
    let goes = accesses::referenced_keys(table, catalogue).is_none_or(|keys| keys.iter().any(sets));
    match accesses::groups(&write.rows, table).filter(|_| !goes) {
        Some(groups) => {
            claims.rows.extend(groups.numbers.iter().map(|group| (table.id, *group)));
            claim_beside(&write.rows, table, groups.grouping, claims);
        }
        None => claims.tables.push(table.id),
    }
}

/// The claims of a lock on rows, before and after it is taken: capture does not see rows that are only locked.
pub(crate) fn lock_rows(
    rows: &Rows,
    strength: Strength,
    table: &Table,
    catalogue: &Catalogue,
    claims: &mut Claims,
) {
    if rows.is_none() {
        return;
    }
    // New references to rows that are locked for changes wait, too.
    let is_shared = strength == Strength::Share;
    let referenced = if is_shared { Some(Vec::new()) } else { accesses::referenced_keys(table, catalogue) };
    let Some(referenced) = referenced else {
        claims.tables.push(table.id);
        return;
    };
    if let Some(digests) = by_primary_key(rows, table) {
        let all = digests_of(table.id, rows, table);
        if !referenced.iter().all(|key| all.iter().any(|digest| digest.key == *key)) {
            claims.tables.push(table.id);
            return;
        }
        let list = if is_shared { &mut claims.shared } else { &mut claims.rows };
        list.extend(digests.iter().map(|digest| (table.id, digest.row())));
        let referenced = all.iter().filter(|digest| referenced.contains(&digest.key));
        claims.rows.extend(referenced.map(|digest| (table.id, digest.reference())));
        write_beside(rows, table, None, claims);
        return;
    }
    match accesses::groups(rows, table).filter(|_| referenced.is_empty()) {
        Some(groups) => {
            let list = if is_shared { &mut claims.shared } else { &mut claims.rows };
            list.extend(groups.numbers.iter().map(|group| (table.id, *group)));
            claim_beside(rows, table, groups.grouping, claims);
        }
        None => claims.tables.push(table.id),
    }
}

/// Completes the claims of rows that are claimed by groups of one grouping.
fn claim_beside(rows: &Rows, table: &Table, grouping: usize, claims: &mut Claims) {
    claims.shared.push((table.id, accesses::any_group(table, grouping)));
    write_beside(rows, table, Some(grouping), claims);
}

/// Claims the groups of the rows, except by the grouping `but`.
fn write_beside(rows: &Rows, table: &Table, but: Option<usize>, claims: &mut Claims) {
    let groups = accesses::groups_beside(rows, table, but);
    claims.groups.extend(groups.into_iter().map(|group| (table.id, group)));
}

/// The digests of rows by their primary key; `None` if some are not known.
fn by_primary_key(rows: &Rows, table: &Table) -> Option<Vec<KeyDigest>> {
    if !is_keyed(table) {
        return None;
    }
    let primary = |digest: &KeyDigest| table.keys[digest.key].primary;
    let digests: Vec<_> = digests_of(table.id, rows, table).into_iter().filter(primary).collect();
    (!digests.is_empty()).then_some(digests)
}

fn claim_values(claim: &Claim, table: &Table, catalogue: &Catalogue, claims: &mut Claims) {
    let Some(digests) = values(claim, table) else { return };
    if !claim.exclusive {
        claims.shared.extend(digests.iter().map(|digest| (table.id, digest.reference())));
        return;
    }
    if !is_keyed(table) {
        return;
    }
    claims.rows.extend(digests.iter().map(|digest| (table.id, digest.row())));
    let is_referenced =
        accesses::referenced_keys(table, catalogue).is_none_or(|keys| keys.contains(&claim.key));
    if is_referenced {
        claims.rows.extend(digests.iter().map(|digest| (table.id, digest.reference())));
    }
}

/// New rows of such a table conflict with nothing.
pub(crate) fn meets_nothing(table: &Table) -> bool {
    table.primary_key.is_empty() && !table.other_unique && !table.foreign_keys && !table.user_triggers
}

/// New rows of such a table conflict with no other rows of it, but with the parents that they refer to.
pub(crate) fn meets_parents_alone(table: &Table, catalogue: &Catalogue) -> bool {
    let has_key = !table.primary_key.is_empty() || table.other_unique;
    !has_key && !table.user_triggers && catalogue.knows_references(table)
}

pub(crate) fn own_hash(own: u64, table: TableId) -> u64 {
    let mut hasher = FxHasher::default();
    (own, table).hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests;
