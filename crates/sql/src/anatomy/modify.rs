//! INSERT, UPDATE and DELETE.

use pg_query::NodeEnum;
use pg_query::protobuf::{DeleteStmt, InsertStmt, Node, RangeVar, ReturningClause, SelectStmt, UpdateStmt};

use super::model::{Anatomy, Change, ColumnPlace, Equality, NoAnatomy, StatementKind, Written};
use super::reader::Reader;
use crate::ast_scan::strings_in;
use crate::catalogue::TableId;

fn construct<T>(what: &str) -> Result<T, NoAnatomy> {
    Err(NoAnatomy::Construct(what.to_owned()))
}

/// The target in a scope of its own; it is the first mention.
fn target(reader: &mut Reader<'_>, relation: Option<&RangeVar>, with: bool) -> Result<TableId, NoAnatomy> {
    if with {
        return construct("WITH");
    }
    let Some(relation) = relation else { return construct("a statement without a target") };
    reader.scopes.push(Vec::new());
    let mention = reader.mention(relation)?;
    Ok(reader.relations[mention].table)
}

fn column(reader: &Reader<'_>, name: &str) -> Result<usize, NoAnatomy> {
    let columns = reader.table(0).map(|table| table.columns.as_slice()).unwrap_or_default();
    columns.iter().position(|column| column.name == name).ok_or_else(|| NoAnatomy::Column(name.to_owned()))
}

fn returning(reader: &mut Reader<'_>, clause: Option<&ReturningClause>) -> Result<(), NoAnatomy> {
    let Some(clause) = clause else { return Ok(()) };
    if !clause.options.is_empty() {
        return construct("RETURNING WITH");
    }
    for target in reader.targets(&clause.exprs)? {
        reader.output.extend(target.expression.columns());
    }
    Ok(())
}

/// A value that is stored: what it is made of decides.
fn value(reader: &mut Reader<'_>, node: &Node, at: ColumnPlace, equals: bool) -> Result<(), NoAnatomy> {
    let expression = reader.expression(node)?;
    reader.deciding.extend(expression.columns());
    if equals && let Some(to) = reader.equal(node)? {
        reader.equalities.push(Equality { column: at, to });
    }
    Ok(())
}

pub(super) fn insert(reader: &mut Reader<'_>, insert: &InsertStmt) -> Result<Anatomy, NoAnatomy> {
    let table = target(reader, insert.relation.as_ref(), insert.with_clause.is_some())?;
    if insert.on_conflict_clause.is_some() {
        return construct("ON CONFLICT");
    }
    let mut columns = Vec::new();
    for node in &insert.cols {
        let Some(NodeEnum::ResTarget(named)) = &node.node else { return construct("the list of columns") };
        columns.push(column(reader, &named.name)?);
    }
    if columns.is_empty() {
        columns = (0..reader.table(0).map_or(0, |table| table.columns.len())).collect();
    }
    match insert.select_stmt.as_deref().and_then(|node| node.node.as_ref()) {
        Some(NodeEnum::SelectStmt(select)) => rows(reader, select, &columns)?,
        None => {}
        Some(_) => return construct("the source of INSERT"),
    }
    returning(reader, insert.returning_clause.as_ref())?;
    let mut anatomy = reader.anatomy(StatementKind::Insert, None);
    anatomy.grows = Some(table);
    let written = |column| Written { table, column, how: Change::Value };
    anatomy.written = columns.into_iter().map(written).collect();
    Ok(anatomy)
}

fn rows(reader: &mut Reader<'_>, select: &SelectStmt, columns: &[usize]) -> Result<(), NoAnatomy> {
    if select.values_lists.is_empty() {
        // A query of a row of its own must not see the target.
        let scope = reader.scopes.pop().unwrap_or_default();
        let read = reader.query(select);
        reader.scopes.push(scope);
        read?;
        reader.deciding.extend(std::mem::take(&mut reader.output));
        reader.equalities.clear();
        return Ok(());
    }
    let single = select.values_lists.len() == 1;
    for row in &select.values_lists {
        let Some(NodeEnum::List(row)) = &row.node else { return construct("VALUES") };
        for (at, node) in row.items.iter().enumerate() {
            let Some(&column) = columns.get(at) else { return construct("more values than columns") };
            value(reader, node, ColumnPlace { relation: 0, column }, single)?;
        }
    }
    Ok(())
}

pub(super) fn update(reader: &mut Reader<'_>, update: &UpdateStmt) -> Result<Anatomy, NoAnatomy> {
    let table = target(reader, update.relation.as_ref(), update.with_clause.is_some())?;
    from(reader, &update.from_clause)?;
    let mut written = Vec::new();
    for node in &update.target_list {
        let Some(NodeEnum::ResTarget(set)) = &node.node else { return construct("SET") };
        if !set.indirection.is_empty() {
            return construct("SET of a part of a column");
        }
        let Some(node) = set.val.as_deref() else { return construct("SET") };
        let column = column(reader, &set.name)?;
        let place = ColumnPlace { relation: 0, column };
        let how = change(reader, node, place)?;
        value_set(reader, node, place, how)?;
        written.push(Written { table, column, how });
    }
    if let Some(node) = update.where_clause.as_deref() {
        reader.condition(node)?;
    }
    returning(reader, update.returning_clause.as_ref())?;
    let mut anatomy = reader.anatomy(StatementKind::Update, None);
    anatomy.written = written;
    Ok(anatomy)
}

/// The value of an assignment: of `c + value` the column itself is no reason to read anything else.
fn value_set(reader: &mut Reader<'_>, node: &Node, place: ColumnPlace, how: Change) -> Result<(), NoAnatomy> {
    if matches!(node.node, Some(NodeEnum::MultiAssignRef(_))) {
        return construct("SET (..) = (..)");
    }
    value(reader, node, place, false)?;
    if how != Change::Value {
        reader.deciding.insert(place);
    }
    Ok(())
}

fn change(reader: &Reader<'_>, node: &Node, place: ColumnPlace) -> Result<Change, NoAnatomy> {
    let Some(NodeEnum::AExpr(expression)) = &node.node else { return Ok(Change::Value) };
    let operator = strings_in(&expression.name);
    let own = match expression.lexpr.as_deref().and_then(|left| left.node.as_ref()) {
        Some(NodeEnum::ColumnRef(left)) => reader.resolve(left)? == Some(place),
        _ => false,
    };
    let given = match expression.rexpr.as_deref() {
        Some(right) => reader.equal(right)?,
        None => None,
    };
    let is_given = matches!(given, Some(super::model::Equal::Parameter(_) | super::model::Equal::Constant));
    Ok(match operator.first().map(String::as_str) {
        Some("+") if own && is_given => Change::Plus,
        Some("-") if own && is_given => Change::Minus,
        _ => Change::Value,
    })
}

pub(super) fn delete(reader: &mut Reader<'_>, delete: &DeleteStmt) -> Result<Anatomy, NoAnatomy> {
    let table = target(reader, delete.relation.as_ref(), delete.with_clause.is_some())?;
    from(reader, &delete.using_clause)?;
    if let Some(node) = delete.where_clause.as_deref() {
        reader.condition(node)?;
    }
    returning(reader, delete.returning_clause.as_ref())?;
    let mut anatomy = reader.anatomy(StatementKind::Delete, None);
    anatomy.grows = Some(table);
    Ok(anatomy)
}

fn from(reader: &mut Reader<'_>, nodes: &[Node]) -> Result<(), NoAnatomy> {
    let mut conjuncts = Vec::new();
    nodes.iter().try_for_each(|node| reader.source(node, &mut conjuncts).map(drop))
}
