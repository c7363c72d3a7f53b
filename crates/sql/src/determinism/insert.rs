//! INSERT: values, the defaults of columns that are left out, ON CONFLICT.
//!
//! A default that gives each replica its own value is written out: the column is added to the list, and a constant to
//! each row. That is possible where the rows are given one by one.

use pg_query::NodeEnum;
use pg_query::protobuf::{InsertStmt, Node, OnConflictAction, OnConflictClause, SelectStmt};

use super::change::sets;
use super::query::Use;
use super::rewrite::{Bind, Evaluate, Fragment};
use super::scope::{Item, Scope};
use super::target::Event;
use super::tokens::Place;
use super::walk::Walk;
use super::{Determinism, Why, default_determinism};
use crate::catalogue::{Column, ColumnDefault, Table};
use crate::name::Name;

/// The expression in place of a default.
enum Filling {
    /// The default may stay.
    Same,
    /// An expression and what has to be evaluated for it; indexes begin at 0.
    Written(Vec<Fragment>, Vec<Evaluate>),
}

impl<'a> Walk<'a> {
    pub(super) fn insert(&mut self, insert: &InsertStmt) {
        let outer_names = self.with_names.len();
        self.with(insert.with_clause.as_ref());
        let table =
            insert.relation.as_ref().and_then(|relation| self.change_target(relation, &Event::Insert));
        self.expressions(&insert.cols);
        let columns = table.and_then(|table| listed(insert, table));
        match insert.select_stmt.as_deref().map(|node| &node.node) {
            None => self.leave_out(table, &[]),
            Some(Some(NodeEnum::SelectStmt(select))) => {
                self.count();
                if is_values(select) {
                    self.values(insert, select, table, columns.as_deref());
                } else {
                    self.select(select, Use::Stored);
                    match (table, columns) {
                        (Some(table), Some(columns)) if !insert.cols.is_empty() => {
                            self.leave_out(Some(table), &columns);
                        }
                        // How many columns a query has is not known, so any of them may be left out.
                        _ => self.leave_out(table, &[]),
                    }
                    if insert.on_conflict_clause.is_some() && !select.from_clause.is_empty() {
                        self.note(Why::ConflictOrder);
                    }
                }
            }
            Some(_) => self.note(Why::NotUnderstood("the source of an INSERT")),
        }
        self.conflict(insert, table);
        self.returning(insert.returning_clause.as_ref(), table, insert.relation.as_ref());
        self.with_names.truncate(outer_names);
    }

    /// The defaults of all columns but these are evaluated by every replica.
    pub(super) fn leave_out(&mut self, table: Option<&Table>, given: &[usize]) {
        let Some(table) = table else { return };
        for (index, column) in table.columns.iter().enumerate() {
            if !given.contains(&index) {
                self.default_stays(column);
            }
        }
    }

    /// A default is evaluated by every replica for itself.
    pub(super) fn default_stays(&mut self, column: &Column) {
        match self.filling(column) {
            Ok(Filling::Same) => {}
            Ok(Filling::Written(..)) => {
                let why = match &column.default {
                    ColumnDefault::Sequence(name) => Why::Sequence(name.clone()),
                    _ => Why::OwnValue,
                };
                self.note(Why::Default(column.name.clone(), Box::new(why)));
            }
            Err(why) => self.note(Why::Default(column.name.clone(), Box::new(why))),
        }
    }

    fn filling(&self, column: &Column) -> Result<Filling, Why> {
        match &column.default {
            _ if column.generated => Ok(Filling::Same),
            ColumnDefault::None | ColumnDefault::Constant(_) => Ok(Filling::Same),
            ColumnDefault::Sequence(name) if column.identity_always => Err(Why::Sequence(name.clone())),
            ColumnDefault::Sequence(name) => {
                let expression = format!("pg_catalog.nextval({})", regclass(name));
                let evaluate = Evaluate { expression, type_name: "int8", start: 0, end: 0 };
                let value = Fragment::Bound(Bind::Value(0), "::pg_catalog.int8".to_owned());
                Ok(Filling::Written(vec![value], vec![evaluate]))
            }
            ColumnDefault::Expression(text) => match default_determinism(text, self.catalogue) {
                Ok(Determinism::Deterministic) => Ok(Filling::Same),
                Ok(Determinism::AfterRewrite(rewrite)) => {
                    let (fragments, evaluate) = rewrite.into_fragments(0);
                    Ok(Filling::Written(fragments, evaluate))
                }
                Ok(Determinism::No(mut reasons)) => Err(if reasons.is_empty() {
                    Why::NotUnderstood("a default")
                } else {
                    reasons.swap_remove(0)
                }),
                Err(_) => Err(Why::NotUnderstood("a default")),
            },
        }
    }

    /// Rows given one by one: each value is evaluated once.
    fn values(
        &mut self,
        insert: &InsertStmt,
        select: &SelectStmt,
        table: Option<&'a Table>,
        columns: Option<&[usize]>,
    ) {
        self.scopes.push(Scope::default());
        let mut width = 0;
        for row in &select.values_lists {
            self.count();
            let Some(NodeEnum::List(row)) = &row.node else { continue };
            width = width.max(row.items.len());
            for (index, value) in row.items.iter().enumerate() {
                self.once = true;
                self.expression(value);
                self.once = false;
                if let Some(NodeEnum::SetToDefault(default)) = &value.node {
                    let column = columns.and_then(|columns| columns.get(index).copied());
                    self.written_default(table, column, default.location);
                }
            }
        }
        self.scopes.pop();
        let (Some(table), Some(columns)) = (table, columns) else { return };
        let given = columns.get(..width.min(columns.len())).unwrap_or_default();
        let left_out: Vec<usize> = (0..table.columns.len()).filter(|index| !given.contains(index)).collect();
        self.write_out(insert, table, &left_out);
    }

    /// The word DEFAULT in a row.
    fn written_default(&mut self, table: Option<&Table>, column: Option<usize>, location: i32) {
        let Some(column) = table.zip(column).and_then(|(table, column)| table.columns.get(column)) else {
            self.note(Why::NotUnderstood("the word DEFAULT"));
            return;
        };
        match self.filling(column) {
            Ok(Filling::Same) => {}
            Ok(Filling::Written(fragments, evaluate)) => {
                let place = usize::try_from(location).ok().and_then(|start| self.tokens()?.single(start));
                match place {
                    Some(place) => self.fill(place, "", fragments, evaluate),
                    None => self.note(Why::NotUnderstood("the word DEFAULT")),
                }
            }
            Err(why) => self.note(Why::Default(column.name.clone(), Box::new(why))),
        }
    }

    /// Adds the columns whose defaults differ to the list of columns and to each row.
    fn write_out(&mut self, insert: &InsertStmt, table: &Table, left_out: &[usize]) {
        let mut differing: Vec<usize> = Vec::new();
        for &index in left_out {
            match self.filling(&table.columns[index]) {
                Ok(Filling::Same) => {}
                Ok(Filling::Written(..)) => differing.push(index),
                Err(why) => {
                    self.note(Why::Default(table.columns[index].name.clone(), Box::new(why)));
                    return;
                }
            }
        }
        let Some(&last) = differing.last() else { return };
        let start = insert.relation.as_ref().and_then(|relation| usize::try_from(relation.location).ok());
        let lists = start.and_then(|start| self.tokens()?.insert_lists(start));
        let Some(lists) = lists.filter(|lists| lists.columns.is_some() != insert.cols.is_empty()) else {
            self.note(Why::NotUnderstood("the lists of an INSERT"));
            return;
        };
        if let Some(at) = lists.columns {
            let mut names = String::new();
            for &index in &differing {
                names.push_str(", ");
                names.push_str(&quoted(&table.columns[index].name));
            }
            self.replace(Place { start: at, end: at }, vec![Fragment::Text(names)]);
        } else {
            // Without a list, columns are filled in their order: what lies between is given its default by name.
            differing = left_out.iter().copied().filter(|&index| index <= last).collect();
        }
        for at in lists.rows {
            for &index in &differing {
                let place = Place { start: at, end: at };
                match self.filling(&table.columns[index]) {
                    Ok(Filling::Written(fragments, evaluate)) => {
                        self.fill(place, ", ", fragments, evaluate);
                    }
                    _ => self.replace(place, vec![Fragment::Text(", DEFAULT".to_owned())]),
                }
            }
        }
    }

    /// Puts a default's expression at a place, behind a separator.
    fn fill(&mut self, place: Place, before: &str, fragments: Vec<Fragment>, evaluate: Vec<Evaluate>) {
        let first = self.evaluate.len();
        let mut all = vec![Fragment::Text(format!("{before}("))];
        all.extend(fragments.into_iter().map(|fragment| match fragment {
            Fragment::Bound(Bind::Value(index), cast) => Fragment::Bound(Bind::Value(first + index), cast),
            other => other,
        }));
        all.push(Fragment::Text(")".to_owned()));
        self.evaluate.extend(evaluate.into_iter().map(|evaluate| Evaluate {
            start: place.start,
            end: place.end,
            ..evaluate
        }));
        self.replace(place, all);
    }

    /// ON CONFLICT.
    fn conflict(&mut self, insert: &InsertStmt, table: Option<&'a Table>) {
        let Some(clause) = insert.on_conflict_clause.as_deref() else { return };
        let alias = insert.relation.as_ref().map(target_name).unwrap_or_default();
        let items = [alias, "excluded".to_owned()].map(|name| Item { name, table });
        self.scopes.push(Scope { items: items.into_iter().collect(), ..Scope::default() });
        self.conflict_parts(clause, table);
        self.scopes.pop();
    }

    fn conflict_parts(&mut self, clause: &OnConflictClause, table: Option<&Table>) {
        if let Some(infer) = &clause.infer {
            for element in &infer.index_elems {
                self.count();
                if let Some(NodeEnum::IndexElem(element)) = &element.node {
                    self.optional(element.expr.as_deref());
                }
            }
            self.optional(infer.where_clause.as_deref());
        }
        sets(self, &clause.target_list, table);
        self.optional(clause.where_clause.as_deref());
        let known = matches!(
            OnConflictAction::try_from(clause.action),
            Ok(OnConflictAction::OnconflictNothing | OnConflictAction::OnconflictUpdate)
        );
        if !known {
            self.note(Why::NotUnderstood("ON CONFLICT"));
        }
    }
}

/// The name under which a target is in sight.
pub(super) fn target_name(relation: &pg_query::protobuf::RangeVar) -> String {
    relation.alias.as_ref().map_or_else(|| relation.relname.clone(), |alias| alias.aliasname.clone())
}

/// The columns of an INSERT in the order of its values; `None` if one of them is not known.
fn listed(insert: &InsertStmt, table: &Table) -> Option<Vec<usize>> {
    if insert.cols.is_empty() {
        return Some((0..table.columns.len()).collect());
    }
    columns_named(&insert.cols, table)
}

/// The columns that a list of targets names.
pub(super) fn columns_named(targets: &[Node], table: &Table) -> Option<Vec<usize>> {
    let columns = targets.iter().map(|target| match &target.node {
        Some(NodeEnum::ResTarget(target)) => {
            table.columns.iter().position(|column| column.name == target.name)
        }
        _ => None,
    });
    columns.collect()
}

/// Whether a query is a list of rows and nothing else.
fn is_values(select: &SelectStmt) -> bool {
    let plain =
        select.with_clause.is_none() && select.sort_clause.is_empty() && select.locking_clause.is_empty();
    let all = select.limit_count.is_none() && select.limit_offset.is_none();
    !select.values_lists.is_empty() && plain && all
}

fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// A sequence's name as an argument of `nextval`.
fn regclass(name: &Name) -> String {
    let schema = name.schema.as_deref().map_or_else(String::new, |schema| format!("{}.", quoted(schema)));
    let text = format!("{schema}{}", quoted(&name.name)).replace('\'', "''");
    let escape = if text.contains('\\') { "E" } else { "" };
    format!("{escape}'{}'::pg_catalog.regclass", text.replace('\\', "\\\\"))
}
