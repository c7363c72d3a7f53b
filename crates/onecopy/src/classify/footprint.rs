//! What statements need of the core before they run: what they read, and what they may write.
//!
//! Example: `UPDATE t SET v = 1 WHERE id = 7` reads and may write the row of `t` whose primary key is 7.
//!
//! Both come from a statement's accesses, with the values of its constants and parameters put in. What is *read* is known
//! by any unique key, since a written row claims its values of all of them, or else by the smallest groups that hold it
//! ([`sql::accesses::groups`]), since a written row tells its groups, too. What may be *written* is known by the primary
//! key, or else by groups. Of rows that are only read the columns count, too: a change of other columns changes nothing for
//! the statement. Values of unique keys that are taken are exclusive, parents of references shared. What is not known
//! stands for its table, or for everything.
//!
//! Two statements may know one row by different things, and have to conflict. A statement that knows the row by its primary
//! key claims its groups as far as it knows them; by a grouping that it does not know it claims the group of *all* rows. A
//! statement that claims groups by a grouping shares that one. So it conflicts with statements that do not know the group
//! of their rows, and not with those that claim other groups by the same grouping.
//!
//! What may be written is a forecast: it makes a statement wait for transactions of other homes instead of failing. What
//! was written is certified by the captured rows ([`crate::writeset::claims`]). So values that only the rows tell, such as
//! the one that an update frees, are left out here. What is read is no forecast: a statement that needs too little is stale.

use std::hash::{Hash, Hasher};

use cluster::claims::{Claims, Footprint, is_definitions};
use cluster::ids::TableId;
use rustc_hash::FxHasher;
use sql::accesses::{
    self, Access, Accesses, Claim, ColumnSet, Columns, KeyDigest, Rows, Strength, Value, is_keyed,
};
use sql::{Catalogue, Table};

/// More rows than this are read as their tables.
pub(crate) const ROWS_READ_MAX: usize = 1_000;

/// What a bounded statement reads, what it looks at while it writes included.
pub(crate) fn footprint(touched: &Accesses, catalogue: &Catalogue) -> Footprint {
    let mut found = Footprint::default();
    for access in &touched.reads {
        let columns = match access.columns {
            Columns::Some(set) => Some(columns_of(&access.rows, set)),
            Columns::All => None,
        };
        read(&RowsRead { table: access.table, rows: &access.rows, columns }, catalogue, &mut found);
    }
    // A row that is written or locked has to be the last one.
    for write in touched.writes.iter().filter(|write| !write.new) {
        read(&RowsRead { table: write.table, rows: &write.rows, columns: None }, catalogue, &mut found);
    }
    for lock in &touched.locks {
        read(&RowsRead { table: lock.table, rows: &lock.rows, columns: None }, catalogue, &mut found);
    }
    // A statement that only removes rows looks at nothing but those.
    let takes = touched.writes.iter().any(|write| write.new || write.columns != Columns::All);
    for claim in touched.claims.iter().filter(|_| takes) {
        found.add(&looked_up(claim, catalogue));
    }
    settle(&mut found);
    found
}

/// What a claim looks at: whether there is a row with this key.
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

/// With the columns that the rows are known by: a change of those makes other rows of them.
fn columns_of(rows: &Rows, read: ColumnSet) -> ColumnSet {
    let Rows::AnyOf(matches) = rows else { return read };
    let known = matches.iter().flat_map(accesses::Match::equalities).map(|equality| equality.column);
    known.fold(read, ColumnSet::with)
}

/// Rows of a table that a statement looks at.
struct RowsRead<'a> {
    table: TableId,
    rows: &'a Rows,
    /// The columns that count; `None` for all.
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
    // By one key all of the rows are known.
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

/// Takes out what is said twice.
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

/// The values of a claim that another row could have, too: not those that a sequence is about to give, nor NULL. `None`
/// when some are not known.
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

/// What a bounded statement may write, lock or rely on. `own` is a number that no other transaction has.
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

/// The tables that a statement writes, but for new rows that meet nothing.
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
            // Its keys are among the claims, where they are known. This one meets claims of the whole table.
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
    // New references to rows that go wait, which takes their keys.
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

/// What a lock of rows claims, before and after it is taken: a row that is locked is not among those that are captured.
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
    // New references to what is locked for changes wait, too.
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

/// For rows that are claimed by groups of one grouping.
fn claim_beside(rows: &Rows, table: &Table, grouping: usize, claims: &mut Claims) {
    claims.shared.push((table.id, accesses::any_group(table, grouping)));
    write_beside(rows, table, Some(grouping), claims);
}

/// The groups that rows are in, but by one grouping.
fn write_beside(rows: &Rows, table: &Table, but: Option<usize>, claims: &mut Claims) {
    let groups = accesses::groups_beside(rows, table, but);
    claims.groups.extend(groups.into_iter().map(|group| (table.id, group)));
}

/// The digests of rows by their primary key; `None` where not all are known.
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

/// New rows of such a table meet no others of it, but the parents that they refer to.
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
