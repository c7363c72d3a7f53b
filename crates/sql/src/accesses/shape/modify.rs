//! INSERT, UPDATE, DELETE and MERGE.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CmdType, DeleteStmt, FuncCall, InsertStmt, MergeMatchKind, MergeStmt, MergeWhenClause, MultiAssignRef,
    Node, OnConflictAction, OnConflictClause, OverridingKind, RangeVar, ResTarget, ReturningClause,
    UpdateStmt,
};

use super::expression::{Builder, column_ref};
use super::query::strings;
use super::{
    Assignment, Delete, Insert, Merge, MergeAction, NewRows, OnConflict, Target, Term, Unforeseen, Update,
    Uses, Values,
};
use crate::accesses::MAX_MATCHES;
use crate::classify::relation_name;
use crate::name::Name;

impl Builder<'_> {
    pub(super) fn insert(&mut self, insert: &InsertStmt) -> Result<Insert, Unforeseen> {
        let mut uses = Uses::default();
        let columns = self.insert_columns(&insert.cols, &mut uses)?;
        let select = insert.select_stmt.as_deref().and_then(|node| node.node.as_ref());
        let values = match select {
            None => Values::Rows(vec![Vec::new()]),
            Some(NodeEnum::SelectStmt(select)) if is_values(select) => {
                let mut rows = Vec::with_capacity(select.values_lists.len());
                for row in &select.values_lists {
                    let Some(NodeEnum::List(row)) = &row.node else { return Err(Unforeseen) };
                    self.expressions(&row.items, &mut uses)?;
                    rows.push(row.items.iter().map(|item| self.term(item)).collect());
                }
                if rows.len() > MAX_MATCHES { Values::Many } else { Values::Rows(rows) }
            }
            Some(query) => Values::Query(Box::new(self.query(query)?)),
        };
        let ignores_identity = insert.r#override() == OverridingKind::OverridingUserValue;
        let new = NewRows { columns, values, ignores_identity };
        let conflict =
            insert.on_conflict_clause.as_deref().map(|clause| self.on_conflict(clause)).transpose()?;
        self.returning(insert.returning_clause.as_ref(), &mut uses)?;
        Ok(Insert { target: target(insert.relation.as_ref())?, new, conflict, uses })
    }

    /// The columns of an INSERT. One of which only a part is given gets an empty name: no value is known for it.
    fn insert_columns(&mut self, nodes: &[Node], uses: &mut Uses) -> Result<Vec<String>, Unforeseen> {
        let mut columns = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Some(NodeEnum::ResTarget(column)) = &node.node else { return Err(Unforeseen) };
            self.expressions(&column.indirection, uses)?;
            columns.push(if column.indirection.is_empty() { column.name.clone() } else { String::new() });
        }
        Ok(columns)
    }

    fn on_conflict(&mut self, clause: &OnConflictClause) -> Result<OnConflict, Unforeseen> {
        let mut uses = Uses::default();
        let mut columns = None;
        if let Some(infer) = &clause.infer {
            self.optional(infer.where_clause.as_deref(), &mut uses)?;
            let mut plain = Some(Vec::new());
            for node in &infer.index_elems {
                let Some(NodeEnum::IndexElem(element)) = &node.node else { return Err(Unforeseen) };
                self.optional(element.expr.as_deref(), &mut uses)?;
                let is_plain =
                    element.expr.is_none() && element.collation.is_empty() && element.opclass.is_empty();
                match &mut plain {
                    Some(plain) if is_plain => plain.push(element.name.clone()),
                    _ => plain = None,
                }
            }
            columns = plain.filter(|plain| !plain.is_empty());
        }
        let update = match clause.action() {
            OnConflictAction::OnconflictUpdate => Some(self.assignments(&clause.target_list, &mut uses)?),
            _ => None,
        };
        self.optional(clause.where_clause.as_deref(), &mut uses)?;
        Ok(OnConflict { columns, update, uses })
    }

    pub(super) fn update(&mut self, update: &UpdateStmt) -> Result<Update, Unforeseen> {
        let mut uses = Uses::default();
        let from = self.sources(&update.from_clause)?;
        let condition = self.condition(update.where_clause.as_deref(), &mut uses)?;
        let set = self.assignments(&update.target_list, &mut uses)?;
        let mut returning = Uses::default();
        self.returning(update.returning_clause.as_ref(), &mut returning)?;
        Ok(Update { target: target(update.relation.as_ref())?, from, condition, set, uses, returning })
    }

    pub(super) fn delete(&mut self, delete: &DeleteStmt) -> Result<Delete, Unforeseen> {
        let mut uses = Uses::default();
        let from = self.sources(&delete.using_clause)?;
        let condition = self.condition(delete.where_clause.as_deref(), &mut uses)?;
        self.returning(delete.returning_clause.as_ref(), &mut uses)?;
        Ok(Delete { target: target(delete.relation.as_ref())?, from, condition, uses })
    }

    pub(super) fn merge(&mut self, merge: &MergeStmt) -> Result<Merge, Unforeseen> {
        let mut uses = Uses::default();
        let source = self.source(merge.source_relation.as_deref().ok_or(Unforeseen)?)?;
        let condition = self.condition(merge.join_condition.as_deref(), &mut uses)?;
        let (mut beyond_source, mut beyond_target) = (false, false);
        let mut actions = Vec::new();
        for node in &merge.merge_when_clauses {
            let Some(NodeEnum::MergeWhenClause(clause)) = &node.node else { return Err(Unforeseen) };
            match clause.match_kind() {
                MergeMatchKind::MergeWhenMatched => {}
                MergeMatchKind::MergeWhenNotMatchedBySource => beyond_source = true,
                MergeMatchKind::MergeWhenNotMatchedByTarget => beyond_target = true,
                MergeMatchKind::Undefined => return Err(Unforeseen),
            }
            self.optional(clause.condition.as_deref(), &mut uses)?;
            actions.extend(self.merge_action(clause, &mut uses)?);
        }
        self.returning(merge.returning_clause.as_ref(), &mut uses)?;
        let target = target(merge.relation.as_ref())?;
        Ok(Merge { target, source, condition, beyond_source, beyond_target, actions, uses })
    }

    fn merge_action(
        &mut self,
        clause: &MergeWhenClause,
        uses: &mut Uses,
    ) -> Result<Option<MergeAction>, Unforeseen> {
        Ok(match clause.command_type() {
            CmdType::CmdNothing => None,
            CmdType::CmdDelete => Some(MergeAction::Delete),
            CmdType::CmdUpdate => Some(MergeAction::Update(self.assignments(&clause.target_list, uses)?)),
            CmdType::CmdInsert => {
                let columns = self.insert_columns(&clause.target_list, uses)?;
                self.expressions(&clause.values, uses)?;
                let row = clause.values.iter().map(|value| self.term(value)).collect();
                let ignores_identity = clause.r#override() == OverridingKind::OverridingUserValue;
                let values = Values::Rows(vec![row]);
                Some(MergeAction::Insert(NewRows { columns, values, ignores_identity }))
            }
            _ => return Err(Unforeseen),
        })
    }

    fn assignments(&mut self, nodes: &[Node], uses: &mut Uses) -> Result<Vec<Assignment>, Unforeseen> {
        self.expressions(nodes, uses)?;
        let mut found = Vec::with_capacity(nodes.len());
        for node in nodes {
            let Some(NodeEnum::ResTarget(target)) = &node.node else { return Err(Unforeseen) };
            found.push(Assignment { column: target.name.clone(), value: self.assigned(target) });
        }
        Ok(found)
    }

    fn assigned(&self, target: &ResTarget) -> Term {
        let value = target.val.as_deref();
        match value.map(|value| (&value.node, value)) {
            _ if !target.indirection.is_empty() => Term::Other,
            Some((Some(NodeEnum::MultiAssignRef(assign)), _)) => self.part_of_row(assign),
            Some((_, value)) => self.term(value),
            None => Term::Other,
        }
    }

    /// `(a, b) = (1, 2)`: the parser repeats the row for each column.
    fn part_of_row(&self, assign: &MultiAssignRef) -> Term {
        let Some(Some(NodeEnum::RowExpr(row))) = assign.source.as_deref().map(|source| &source.node) else {
            return Term::Other;
        };
        let at = usize::try_from(assign.colno).ok().and_then(|number| number.checked_sub(1));
        at.and_then(|at| row.args.get(at)).map_or(Term::Other, |value| self.term(value))
    }

    fn term(&self, node: &Node) -> Term {
        if let Some(operand) = self.operand(node) {
            return Term::Operand(operand);
        }
        match &node.node {
            Some(NodeEnum::SetToDefault(_)) => Term::Default,
            Some(NodeEnum::FuncCall(call)) => called(call).map_or(Term::Other, Term::Called),
            Some(column) => column_ref(column).map_or(Term::Other, Term::Column),
            None => Term::Other,
        }
    }

    fn returning(&mut self, clause: Option<&ReturningClause>, uses: &mut Uses) -> Result<(), Unforeseen> {
        let Some(clause) = clause else { return Ok(()) };
        if !clause.options.is_empty() {
            return Err(Unforeseen);
        }
        self.expressions(&clause.exprs, uses)
    }
}

/// The function of a call that is nothing but its name.
fn called(call: &FuncCall) -> Option<Name> {
    let plain = FuncCall { funcname: call.funcname.clone(), location: call.location, ..FuncCall::default() };
    let is_plain = *call == FuncCall { funcformat: call.funcformat, ..plain };
    is_plain.then(|| Name::from_parts(strings(&call.funcname).ok()?)).flatten()
}

fn is_values(select: &pg_query::protobuf::SelectStmt) -> bool {
    !select.values_lists.is_empty()
        && select.with_clause.is_none()
        && select.sort_clause.is_empty()
        && select.limit_count.is_none()
        && select.limit_offset.is_none()
}

fn target(relation: Option<&RangeVar>) -> Result<Target, Unforeseen> {
    let relation = relation.ok_or(Unforeseen)?;
    let alias = relation.alias.as_ref().map(|alias| alias.aliasname.clone());
    Ok(Target { name: relation_name(relation), alias })
}
