//! SELECT, VALUES, set operations, WITH and FROM.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    Alias, JoinExpr, JoinType, LimitOption, LockClauseStrength, LockingClause, Node, RangeFunction,
    RangeSubselect, SelectStmt, SetOperation, WithClause,
};

use super::expression::{Builder, column_ref};
use super::{Body, Join, Locking, Output, Query, Select, Source, Unforeseen, Uses, WithQuery};
use crate::accesses::Strength;
use crate::classify::relation_name;

impl Builder<'_> {
    /// A query of any kind.
    pub(super) fn query(&mut self, node: &NodeEnum) -> Result<Query, Unforeseen> {
        let (with, body) = match node {
            NodeEnum::SelectStmt(select) => return self.select_query(select),
            NodeEnum::InsertStmt(insert) => {
                (insert.with_clause.as_ref(), Body::Insert(self.insert(insert)?.into()))
            }
            NodeEnum::UpdateStmt(update) => {
                (update.with_clause.as_ref(), Body::Update(self.update(update)?.into()))
            }
            NodeEnum::DeleteStmt(delete) => {
                (delete.with_clause.as_ref(), Body::Delete(self.delete(delete)?.into()))
            }
            NodeEnum::MergeStmt(merge) => {
                (merge.with_clause.as_ref(), Body::Merge(self.merge(merge)?.into()))
            }
            _ => return Err(Unforeseen),
        };
        let (recursive, with) = self.with(with)?;
        Ok(Query { recursive, with, body })
    }

    fn select_query(&mut self, select: &SelectStmt) -> Result<Query, Unforeseen> {
        let (recursive, with) = self.with(select.with_clause.as_ref())?;
        let body = match select.op() {
            SetOperation::SetopNone | SetOperation::Undefined => {
                // What windows an inner SELECT has is its own affair.
                let outer = std::mem::take(&mut self.windowed);
                let made = self.select(select)?;
                self.windowed = outer;
                Body::Select(Box::new(made))
            }
            SetOperation::SetopUnion | SetOperation::SetopIntersect | SetOperation::SetopExcept => {
                let mut side = |side: &Option<Box<SelectStmt>>| {
                    self.select_query(side.as_deref().ok_or(Unforeseen)?).map(Box::new)
                };
                let (left, right) = (side(&select.larg)?, side(&select.rarg)?);
                let mut uses = Uses::default();
                self.ends(select, &mut uses)?;
                // ORDER BY sees the columns of the result only.
                uses.columns.clear();
                if !select.locking_clause.is_empty() {
                    return Err(Unforeseen);
                }
                Body::Combined { left, right, uses }
            }
        };
        Ok(Query { recursive, with, body })
    }

    fn with(&mut self, clause: Option<&WithClause>) -> Result<(bool, Vec<WithQuery>), Unforeseen> {
        let Some(clause) = clause else { return Ok((false, Vec::new())) };
        let with = clause.ctes.iter().map(|node| {
            let Some(NodeEnum::CommonTableExpr(with)) = &node.node else { return Err(Unforeseen) };
            if with.search_clause.is_some() || with.cycle_clause.is_some() {
                return Err(Unforeseen);
            }
            let query = with.ctequery.as_deref().and_then(|node| node.node.as_ref()).ok_or(Unforeseen)?;
            Ok(WithQuery {
                name: with.ctename.clone(),
                columns: strings(&with.aliascolnames)?,
                query: self.query(query)?,
            })
        });
        Ok((clause.recursive, with.collect::<Result<_, _>>()?))
    }

    /// ORDER BY, LIMIT and OFFSET.
    fn ends(&mut self, select: &SelectStmt, uses: &mut Uses) -> Result<(), Unforeseen> {
        self.expressions(&select.sort_clause, uses)?;
        self.optional(select.limit_count.as_deref(), uses)?;
        self.optional(select.limit_offset.as_deref(), uses)
    }

    fn select(&mut self, select: &SelectStmt) -> Result<Select, Unforeseen> {
        if select.into_clause.is_some() {
            return Err(Unforeseen);
        }
        let from = self.sources(&select.from_clause)?;
        let mut uses = Uses::default();
        let condition = self.condition(select.where_clause.as_deref(), &mut uses)?;
        self.expressions(&select.target_list, &mut uses)?;
        self.expressions(&select.values_lists, &mut uses)?;
        // Of DISTINCT without ON the list holds one empty node.
        self.expressions(&select.distinct_clause, &mut uses)?;
        self.expressions(&select.group_clause, &mut uses)?;
        self.optional(select.having_clause.as_deref(), &mut uses)?;
        self.expressions(&select.window_clause, &mut uses)?;
        self.ends(select, &mut uses)?;
        let distinct_on = select.distinct_clause.iter().any(|node| node.node.is_some());
        let groups: Option<Vec<_>> =
            select.group_clause.iter().map(|node| column_ref(node.node.as_ref()?)).collect();
        let transparent = select.limit_count.is_none()
            && select.limit_offset.is_none()
            && matches!(select.limit_option(), LimitOption::Default | LimitOption::Undefined)
            && !distinct_on
            && !self.windowed
            && select.locking_clause.is_empty()
            && groups.is_some();
        let grouped = if select.group_clause.is_empty() { None } else { Some(groups.unwrap_or_default()) };
        let locking = select.locking_clause.iter().map(locking).collect::<Result<_, _>>()?;
        // Grouping sets put NULLs in the place of what is grouped by.
        let is_given = grouped.is_none() || select.group_clause.iter().all(is_column);
        let outputs = if select.values_lists.is_empty() {
            let outputs = select.target_list.iter().map(|node| self.output(node, is_given));
            outputs.collect::<Result<_, _>>()?
        } else {
            self.columns_of_values(&select.values_lists)?
        };
        Ok(Select { from, condition, uses, outputs, transparent, grouped, locking })
    }

    fn output(&self, node: &Node, is_given: bool) -> Result<Output, Unforeseen> {
        let Some(NodeEnum::ResTarget(target)) = &node.node else { return Err(Unforeseen) };
        let value = target.val.as_deref().ok_or(Unforeseen)?;
        let column = column_ref(value.node.as_ref().ok_or(Unforeseen)?);
        match column {
            Some(star) if star.name.is_none() => Ok(Output::Star(star)),
            column => {
                let own = column.as_ref().and_then(|column| column.name.clone());
                // The server makes up other names, which cannot be told apart from here.
                let name = if target.name.is_empty() { own.unwrap_or_default() } else { target.name.clone() };
                let given = self.given(value).filter(|_| is_given);
                Ok(Output::Column { name, column, given })
            }
        }
    }

    fn columns_of_values(&self, rows: &[Node]) -> Result<Vec<Output>, Unforeseen> {
        let rows = rows.iter().map(|row| match &row.node {
            Some(NodeEnum::List(row)) => Ok(row.items.as_slice()),
            _ => Err(Unforeseen),
        });
        let rows: Vec<&[Node]> = rows.collect::<Result<_, _>>()?;
        let column = |at: usize| {
            let mut given = rows.iter().map(|row| self.given(row.get(at)?));
            let first = given.next().flatten();
            let given = given.fold(first, |one, other| one?.or(other?));
            Output::Column { name: format!("column{}", at + 1), column: None, given }
        };
        Ok((0..rows.first().map_or(0, |row| row.len())).map(column).collect())
    }

    pub(super) fn sources(&mut self, nodes: &[Node]) -> Result<Vec<Source>, Unforeseen> {
        nodes.iter().map(|node| self.source(node)).collect()
    }

    pub(super) fn source(&mut self, node: &Node) -> Result<Source, Unforeseen> {
        match node.node.as_ref().ok_or(Unforeseen)? {
            NodeEnum::RangeVar(relation) => {
                if relation.alias.as_ref().is_some_and(|alias| !alias.colnames.is_empty()) {
                    return Err(Unforeseen);
                }
                let name = relation_name(relation);
                self.name(&name);
                Ok(Source::Relation { name, alias: alias(relation.alias.as_ref()) })
            }
            NodeEnum::RangeSubselect(sub) => self.sub_select(sub),
            NodeEnum::RangeFunction(function) => self.function(function),
            NodeEnum::JoinExpr(join) => self.join(join),
            // What a sample has depends on where rows lie, so on all of them.
            _ => Err(Unforeseen),
        }
    }

    fn sub_select(&mut self, sub: &RangeSubselect) -> Result<Source, Unforeseen> {
        let query = sub.subquery.as_deref().and_then(|node| node.node.as_ref()).ok_or(Unforeseen)?;
        let columns = sub.alias.as_ref().map_or(Ok(Vec::new()), |alias| strings(&alias.colnames))?;
        let query = Box::new(self.query(query)?);
        Ok(Source::Query { query, alias: alias(sub.alias.as_ref()), columns, lateral: sub.lateral })
    }

    fn function(&mut self, function: &RangeFunction) -> Result<Source, Unforeseen> {
        if let Some(unnest) = self.unnest(function)? {
            return Ok(unnest);
        }
        let mut uses = Uses::default();
        // Each is a list of the call and of its column definitions, which name types only.
        for call in &function.functions {
            let Some(NodeEnum::List(list)) = &call.node else { return Err(Unforeseen) };
            self.optional(list.items.first(), &mut uses)?;
        }
        let alias = alias(function.alias.as_ref()).or_else(|| function_name(&function.functions));
        Ok(Source::Other { uses, alias })
    }

    fn join(&mut self, join: &JoinExpr) -> Result<Source, Unforeseen> {
        if join.alias.is_some() || join.join_using_alias.is_some() {
            return Err(Unforeseen);
        }
        let kind = match join.jointype() {
            _ if join.is_natural => Join::Natural,
            JoinType::JoinInner => Join::Inner,
            JoinType::JoinLeft => Join::Left,
            JoinType::JoinRight => Join::Right,
            JoinType::JoinFull => Join::Full,
            _ => return Err(Unforeseen),
        };
        let left = self.source(join.larg.as_deref().ok_or(Unforeseen)?)?;
        let right = self.source(join.rarg.as_deref().ok_or(Unforeseen)?)?;
        let mut uses = Uses::default();
        let condition = self.condition(join.quals.as_deref(), &mut uses)?;
        let using = strings(&join.using_clause)?;
        Ok(Source::Join { kind, sides: Box::new([left, right]), condition, using, uses })
    }
}

fn is_column(node: &Node) -> bool {
    matches!(node.node, Some(NodeEnum::ColumnRef(_)))
}

fn locking(node: &Node) -> Result<Locking, Unforeseen> {
    let Some(NodeEnum::LockingClause(clause)) = &node.node else { return Err(Unforeseen) };
    let strength = match LockingClause::strength(clause) {
        LockClauseStrength::LcsForkeyshare | LockClauseStrength::LcsForshare => Strength::Share,
        _ => Strength::Update,
    };
    let of = clause.locked_rels.iter().map(|node| match &node.node {
        Some(NodeEnum::RangeVar(relation)) => Ok(relation.relname.clone()),
        _ => Err(Unforeseen),
    });
    Ok(Locking { strength, of: of.collect::<Result<_, _>>()? })
}

fn alias(alias: Option<&Alias>) -> Option<String> {
    alias.map(|alias| alias.aliasname.clone())
}

/// The name of the only function, which is its alias unless there is another.
fn function_name(functions: &[Node]) -> Option<String> {
    let [Node { node: Some(NodeEnum::List(list)) }] = functions else { return None };
    match &list.items.first()?.node {
        Some(NodeEnum::FuncCall(call)) => strings(&call.funcname).ok()?.pop(),
        _ => None,
    }
}

/// A list of names.
pub(super) fn strings(nodes: &[Node]) -> Result<Vec<String>, Unforeseen> {
    let text = |node: &Node| match &node.node {
        Some(NodeEnum::String(text)) => Ok(text.sval.clone()),
        _ => Err(Unforeseen),
    };
    nodes.iter().map(text).collect()
}
