//! Statements that change rows, and those that make a table from a query.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CmdType, CopyStmt, CreateTableAsStmt, DeleteStmt, DropBehavior, MergeStmt, MergeWhenClause, Node,
    RangeVar, ReturningClause, TruncateStmt, UpdateStmt,
};

use super::Why;
use super::insert::{columns_named, target_name};
use super::query::Use;
use super::scope::{Item, Scope, Sight};
use super::target::{Event, key_order};
use super::walk::Walk;
use crate::ast_scan::names_in;
use crate::catalogue::Table;
use crate::classify::relation_name;
use crate::name::Name;

/// Types that read the clock, by their OIDs: date, time, timestamp, timestamptz, timetz.
const CLOCK_OIDS: [u32; 5] = [1082, 1083, 1114, 1184, 1266];

impl<'a> Walk<'a> {
    /// Visits a whole statement.
    pub(super) fn statement(&mut self, root: &NodeEnum) {
        match root {
            NodeEnum::SelectStmt(select) => {
                self.count();
                self.pass_over(&select.into_clause);
                self.select(select, Use::Rows);
            }
            NodeEnum::CreateTableAsStmt(statement) => {
                self.count();
                self.table_as(statement);
            }
            NodeEnum::AlterTableStmt(statement) => self.schema_change(root, statement),
            other => self.change(other),
        }
    }

    /// Visits a statement that changes rows, also as a part of another.
    pub(super) fn change(&mut self, change: &NodeEnum) {
        if !matches!(
            change,
            NodeEnum::InsertStmt(_)
                | NodeEnum::UpdateStmt(_)
                | NodeEnum::DeleteStmt(_)
                | NodeEnum::MergeStmt(_)
                | NodeEnum::CopyStmt(_)
                | NodeEnum::TruncateStmt(_)
        ) {
            self.pass_over(change);
            self.note(Why::Kind);
            return;
        }
        self.count();
        match change {
            NodeEnum::InsertStmt(insert) => self.insert(insert),
            NodeEnum::UpdateStmt(update) => self.update(update),
            NodeEnum::DeleteStmt(delete) => self.delete(delete),
            NodeEnum::MergeStmt(merge) => self.merge(merge),
            NodeEnum::CopyStmt(copy) => self.copy(copy),
            NodeEnum::TruncateStmt(truncate) => self.truncate(truncate),
            _ => {}
        }
    }

    fn table_as(&mut self, statement: &CreateTableAsStmt) {
        self.pass_over(&statement.into);
        let query = statement.query.as_deref().and_then(|query| query.node.as_ref());
        if let Some(NodeEnum::SelectStmt(select)) = query {
            self.count();
            self.select(select, Use::Rows);
        } else {
            self.pass_over(&statement.query);
            self.note(Why::NotUnderstood("the query of a new table"));
        }
    }

    /// Brings a target into sight as the first relation.
    fn open(&mut self, relation: Option<&RangeVar>, table: Option<&'a Table>) {
        let name = relation.map(target_name).unwrap_or_default();
        self.scopes.push(Scope { items: vec![Item { name, table }], ..Scope::default() });
    }

    fn update(&mut self, update: &UpdateStmt) {
        let outer_names = self.with_names.len();
        self.with(update.with_clause.as_ref());
        let relation = update.relation.as_ref();
        let target = relation.map(relation_name);
        let known = target.and_then(|name| self.only_table(&name));
        let columns: Option<BTreeSet<usize>> = known
            .and_then(|table| columns_named(&update.target_list, table))
            .map(|columns| columns.into_iter().collect());
        let event = Event::Update(columns.clone().unwrap_or_default());
        let table = relation.and_then(|relation| self.change_target(relation, &event));
        if table.is_some() && columns.is_none() {
            self.note(Why::NotUnderstood("a column that is set"));
        }
        self.open(relation, table);
        self.from(&update.from_clause, update.where_clause.as_deref(), 1);
        let (one_row, one_match) = self.matches(update);
        if !one_match {
            self.note(Why::SeveralMatches);
        }
        if let (Some(table), Some(columns)) = (table, &columns)
            && !one_row
            && let Err(why) = key_order(table, columns)
        {
            self.note(why);
        }
        self.once = one_row;
        sets(self, &update.target_list, table);
        self.once = false;
        self.optional(update.where_clause.as_deref());
        self.scopes.pop();
        self.returning_among(
            update.returning_clause.as_ref(),
            table,
            relation,
            update.from_clause.is_empty(),
        );
        self.with_names.truncate(outer_names);
    }

    /// Whether at most one row is changed, and whether each changed row has at most one match in FROM that matters.
    fn matches(&self, update: &UpdateStmt) -> (bool, bool) {
        let Some(scope) = self.scopes.last() else { return (false, false) };
        let nothing = BTreeSet::new();
        let one_row = scope.is_one_row(&nothing);
        let given_target = scope.determined(&BTreeSet::from([0]), &nothing);
        let one_match = given_target.len() == scope.items.len();
        (one_row, one_match || !update.target_list.iter().any(|target| self.looks_beyond(target)))
    }

    /// Whether a new value may depend on a relation other than the target.
    fn looks_beyond(&self, value: &Node) -> bool {
        let any = |nodes: &[Node]| nodes.iter().any(|node| self.looks_beyond(node));
        let one = |node: Option<&Node>| node.is_some_and(|node| self.looks_beyond(node));
        match &value.node {
            None
            | Some(
                NodeEnum::AConst(_)
                | NodeEnum::ParamRef(_)
                | NodeEnum::SqlvalueFunction(_)
                | NodeEnum::SetToDefault(_),
            ) => false,
            Some(NodeEnum::ColumnRef(column)) => {
                let sight = self.scopes.last().map(|scope| scope.column(&names_in(&column.fields)));
                !matches!(sight, Some(Sight::Column(found)) if found.item == 0)
            }
            Some(NodeEnum::ResTarget(target)) => !target.indirection.is_empty() || one(target.val.as_deref()),
            Some(NodeEnum::AExpr(operator)) => {
                one(operator.lexpr.as_deref()) || one(operator.rexpr.as_deref())
            }
            Some(NodeEnum::TypeCast(cast)) => one(cast.arg.as_deref()),
            Some(NodeEnum::FuncCall(call)) => any(&call.args),
            Some(NodeEnum::BoolExpr(list)) => any(&list.args),
            Some(NodeEnum::CoalesceExpr(list)) => any(&list.args),
            Some(_) => true,
        }
    }

    fn only_table(&self, name: &Name) -> Option<&'a Table> {
        let mut found = self.catalogue.named(name.schema.as_deref(), &name.name);
        match (found.next(), found.next()) {
            (Some(crate::catalogue::Relation::Table(table)), None) => Some(table),
            _ => None,
        }
    }

    fn delete(&mut self, delete: &DeleteStmt) {
        let outer_names = self.with_names.len();
        self.with(delete.with_clause.as_ref());
        let relation = delete.relation.as_ref();
        let table = relation.and_then(|relation| self.change_target(relation, &Event::Delete));
        self.open(relation, table);
        self.from(&delete.using_clause, delete.where_clause.as_deref(), 1);
        self.optional(delete.where_clause.as_deref());
        self.scopes.pop();
        self.returning_among(
            delete.returning_clause.as_ref(),
            table,
            relation,
            delete.using_clause.is_empty(),
        );
        self.with_names.truncate(outer_names);
    }

    fn merge(&mut self, merge: &MergeStmt) {
        let outer_names = self.with_names.len();
        self.with(merge.with_clause.as_ref());
        let relation = merge.relation.as_ref();
        let clauses: Vec<&MergeWhenClause> = merge
            .merge_when_clauses
            .iter()
            .filter_map(|node| match &node.node {
                Some(NodeEnum::MergeWhenClause(clause)) => Some(&**clause),
                _ => None,
            })
            .collect();
        let known = relation.and_then(|relation| self.only_table(&relation_name(relation)));
        let set: Option<BTreeSet<usize>> = known.and_then(|table| {
            let updates = clauses.iter().filter(|clause| command(clause) == Some(CmdType::CmdUpdate));
            let columns: Option<Vec<Vec<usize>>> =
                updates.map(|clause| columns_named(&clause.target_list, table)).collect();
            columns.map(|columns| columns.into_iter().flatten().collect())
        });
        let table = relation.and_then(|relation| {
            self.change_target(relation, &Event::Update(set.clone().unwrap_or_default()))
        });
        let deletes = clauses.iter().any(|clause| command(clause) == Some(CmdType::CmdDelete));
        let inserts = clauses.iter().any(|clause| command(clause) == Some(CmdType::CmdInsert));
        if let Some(table) = table {
            if deletes {
                self.actions(table, &Event::Delete, &mut BTreeSet::new());
            }
            match &set {
                Some(set) => {
                    if let Err(why) = key_order(table, set) {
                        self.note(why);
                    }
                }
                None => self.note(Why::NotUnderstood("a column that is set")),
            }
            if deletes && inserts {
                self.note(Why::KeyOrder(table.name.clone()));
            }
        }
        self.open(relation, table);
        let source = merge.source_relation.as_deref().map_or(&[][..], std::slice::from_ref);
        self.from(source, merge.join_condition.as_deref(), 1);
        self.optional(merge.join_condition.as_deref());
        for clause in clauses {
            self.merge_clause(clause, table);
        }
        self.scopes.pop();
        self.returning_among(merge.returning_clause.as_ref(), table, relation, false);
        self.with_names.truncate(outer_names);
    }

    fn merge_clause(&mut self, clause: &MergeWhenClause, table: Option<&'a Table>) {
        self.count();
        self.optional(clause.condition.as_deref());
        sets(self, &clause.target_list, table);
        self.expressions(&clause.values);
        match command(clause) {
            Some(CmdType::CmdInsert) => {
                let named = table.and_then(|table| {
                    if clause.target_list.is_empty() {
                        Some((0..clause.values.len()).collect())
                    } else {
                        columns_named(&clause.target_list, table)
                    }
                });
                let mut given: Vec<usize> = named.unwrap_or_default();
                // A value may be the word DEFAULT.
                let is_default = |index: usize| {
                    clause.values.get(index).is_none_or(|v| matches!(v.node, Some(NodeEnum::SetToDefault(_))))
                };
                let mut index = 0;
                given.retain(|_| {
                    index += 1;
                    !is_default(index - 1)
                });
                self.leave_out(table, &given);
            }
            Some(CmdType::CmdUpdate | CmdType::CmdDelete | CmdType::CmdNothing) => {}
            _ => self.note(Why::NotUnderstood("a part of MERGE")),
        }
    }

    fn copy(&mut self, copy: &CopyStmt) {
        if !copy.is_from || copy.is_program || !copy.filename.is_empty() {
            self.note(Why::Kind);
        }
        self.pass_over(&copy.query);
        self.pass_over(&copy.options);
        self.pass_over(&copy.attlist);
        let table = copy.relation.as_ref().and_then(|relation| self.change_target(relation, &Event::Insert));
        let names = names_in(&copy.attlist);
        if let Some(table) = table {
            let given: Vec<usize> = (0..table.columns.len())
                .filter(|&index| names.is_empty() || names.contains(&table.columns[index].name))
                .collect();
            self.leave_out(Some(table), &given);
            for index in given {
                let column = &table.columns[index];
                if CLOCK_OIDS.contains(&column.type_oid)
                    || super::kind::Kind::of_column(column) == super::kind::Kind::Unknown
                {
                    self.note(Why::ClockCast(Name::bare(format!("column {}", column.name))));
                }
            }
        }
        if crate::ast_scan::strings_in(&copy.options).iter().any(|text| text == "default") {
            self.note(Why::NotUnderstood("the option DEFAULT of COPY"));
        }
        self.open(copy.relation.as_ref(), table);
        self.optional(copy.where_clause.as_deref());
        self.scopes.pop();
    }

    fn truncate(&mut self, truncate: &TruncateStmt) {
        let cascade = truncate.behavior == DropBehavior::DropCascade as i32;
        for relation in &truncate.relations {
            self.count();
            if let Some(NodeEnum::RangeVar(relation)) = &relation.node {
                self.change_target(relation, &Event::Truncate { cascade });
                if truncate.restart_seqs {
                    self.note(Why::Sequence(Name::bare(format!("of {}", relation.relname))));
                }
            }
        }
    }

    /// RETURNING of an INSERT.
    pub(super) fn returning(
        &mut self,
        clause: Option<&ReturningClause>,
        table: Option<&'a Table>,
        relation: Option<&RangeVar>,
    ) {
        self.returning_among(clause, table, relation, true);
    }

    /// RETURNING, with nothing but the target in sight if so.
    fn returning_among(
        &mut self,
        clause: Option<&ReturningClause>,
        table: Option<&'a Table>,
        relation: Option<&RangeVar>,
        alone: bool,
    ) {
        let Some(clause) = clause else { return };
        self.pass_over(&clause.options);
        let name = relation.map(target_name).unwrap_or_default();
        let mut items = vec![Item { name, table: table.filter(|_| alone) }];
        if !alone {
            items.push(Item { name: String::new(), table: None });
        }
        self.scopes.push(Scope { items, ..Scope::default() });
        self.outputs(&clause.exprs);
        self.scopes.pop();
    }
}

/// SET: new values of columns.
pub(super) fn sets(walk: &mut Walk<'_>, targets: &[Node], table: Option<&Table>) {
    for node in targets {
        walk.expression(node);
        let Some(NodeEnum::ResTarget(target)) = &node.node else { continue };
        match target.val.as_deref().map(|value| &value.node) {
            Some(Some(NodeEnum::SetToDefault(_))) => {
                let column =
                    table.and_then(|table| table.columns.iter().find(|column| column.name == target.name));
                match column {
                    Some(column) => walk.default_stays(column),
                    None => walk.note(Why::NotUnderstood("the word DEFAULT")),
                }
            }
            Some(Some(NodeEnum::MultiAssignRef(reference))) => {
                if let Some(NodeEnum::RowExpr(row)) =
                    reference.source.as_deref().and_then(|row| row.node.as_ref())
                    && row.args.iter().any(|value| matches!(value.node, Some(NodeEnum::SetToDefault(_))))
                {
                    walk.note(Why::NotUnderstood("the word DEFAULT in a row"));
                }
            }
            _ => {}
        }
    }
}

fn command(clause: &MergeWhenClause) -> Option<CmdType> {
    CmdType::try_from(clause.command_type).ok()
}
