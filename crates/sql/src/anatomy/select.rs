//! SELECT: FROM, the SELECT list, and what bounds the answer.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    ColumnRef, JoinExpr, JoinType, LimitOption, Node, ResTarget, SelectStmt, SetOperation, SortBy as Sort,
    SortByDir, SortByNulls, a_const,
};

use super::expression::{Expression, kind, names};
use super::model::{
    Anatomy, ColumnPlace, Conjunct, Limit, NoAnatomy, PlainSelect, SortBy, SortKey, StatementKind, Target,
};
use super::reader::{Entry, Reader, Source};

/// The answer of a query, for who uses it as a relation.
pub(super) struct Read {
    pub(super) names: Vec<String>,
    plain: Option<PlainSelect>,
    limit: Option<Limit>,
}

fn construct<T>(what: &str) -> Result<T, NoAnatomy> {
    Err(NoAnatomy::Construct(what.to_owned()))
}

impl Reader<'_> {
    /// The statement itself.
    pub(super) fn outermost(&mut self, select: &SelectStmt) -> Result<Anatomy, NoAnatomy> {
        let read = self.query(select)?;
        let mut anatomy = self.anatomy(StatementKind::Read, read.plain);
        anatomy.limit = read.limit;
        Ok(anatomy)
    }

    /// A query in a scope of its own.
    pub(super) fn query(&mut self, select: &SelectStmt) -> Result<Read, NoAnatomy> {
        if select.with_clause.is_some() {
            return construct("WITH");
        }
        match select.op() {
            SetOperation::SetopNone | SetOperation::Undefined => {
                self.scopes.push(Vec::new());
                let read = self.select(select);
                self.scopes.pop();
                read
            }
            _ => self.combined(select),
        }
    }

    /// UNION and its kin: rows of both sides are compared, so everything decides.
    fn combined(&mut self, select: &SelectStmt) -> Result<Read, NoAnatomy> {
        let (Some(left), Some(right)) = (&select.larg, &select.rarg) else {
            return construct("a set operation");
        };
        let read = self.query(left)?;
        self.query(right)?;
        self.deciding.extend(std::mem::take(&mut self.output));
        self.equalities.clear();
        let limit = select.limit_count.as_deref().map(limit_of);
        Ok(Read { names: read.names, plain: None, limit })
    }

    fn select(&mut self, select: &SelectStmt) -> Result<Read, NoAnatomy> {
        refuse(select)?;
        let mut conjuncts = Vec::new();
        let mut inner = true;
        for node in &select.from_clause {
            inner &= self.source(node, &mut conjuncts)?;
        }
        let tables_only = self.scopes.last().is_some_and(|scope| {
            !scope.is_empty() && scope.iter().all(|entry| matches!(entry.source, Source::Table(_)))
        });
        if let Some(node) = select.where_clause.as_deref() {
            conjuncts.extend(self.condition(node)?);
        }
        let targets = self.targets(&select.target_list)?;
        let distinct = self.distinct(select, &targets)?;
        let grouping = self.grouping(select, &targets)?;
        let having = select.having_clause.as_deref().map(|node| self.expression(node)).transpose()?;
        if let Some(having) = &having {
            self.deciding.extend(having.columns());
        }
        let order = self.order(&select.sort_clause, &targets)?;
        let limit = select.limit_count.as_deref().map(|node| self.expression(node)).transpose()?;
        let offset = select.limit_offset.as_deref().map(|node| self.expression(node)).transpose()?;
        for target in &targets {
            let columns = target.expression.columns();
            if target.expression.has_aggregate || distinct {
                self.deciding.extend(columns);
            } else {
                self.output.extend(columns);
            }
        }
        let chosen = limit.is_some() || offset.is_some();
        for key in &order {
            let expression = match &key.by {
                SortBy::Target(at) => &targets[*at].expression,
                SortBy::Expression(expression) => &**expression,
            };
            let into = if chosen { &mut self.deciding } else { &mut self.output };
            into.extend(expression.columns());
        }
        let shown = targets.iter().map(|target| target.name.clone()).collect();
        let bound = select.limit_count.as_deref().map(limit_of);
        // A sub-query would not lock what the query does.
        let locks = !select.locking_clause.is_empty();
        let is_plain =
            inner && tables_only && !locks && !distinct && having.is_none() && self.is_resolved(&targets);
        let relations = self.scopes.last().into_iter().flatten().filter_map(|entry| match entry.source {
            Source::Table(relation) => Some(relation),
            Source::Query(_) => None,
        });
        let relations = relations.collect();
        let plain = PlainSelect { relations, conjuncts, targets, grouping, order, limit, offset };
        Ok(Read { names: shown, plain: is_plain.then_some(plain), limit: bound })
    }

    /// Whether the SELECT list has no sub-queries, whose columns could not be renamed.
    #[expect(clippy::unused_self, reason = "it reads with the others")]
    fn is_resolved(&self, targets: &[Target]) -> bool {
        targets.iter().all(|target| !target.expression.has_query)
    }

    /// An item of FROM. False if rows of one side may stay although they have no partner.
    pub(super) fn source(&mut self, node: &Node, conjuncts: &mut Vec<Conjunct>) -> Result<bool, NoAnatomy> {
        match &node.node {
            Some(NodeEnum::RangeVar(relation)) => self.mention(relation).map(|_| true),
            Some(NodeEnum::JoinExpr(join)) => self.join(join, conjuncts),
            Some(NodeEnum::RangeSubselect(sub)) => {
                if sub.lateral {
                    return construct("LATERAL");
                }
                let query = sub.subquery.as_deref().and_then(|node| node.node.as_ref());
                let (Some(NodeEnum::SelectStmt(select)), Some(alias)) = (query, &sub.alias) else {
                    return construct("a sub-query in FROM without an alias");
                };
                if !alias.colnames.is_empty() {
                    return construct("an alias with names of columns");
                }
                // It must not see its neighbours.
                let scope = self.scopes.pop().unwrap_or_default();
                let read = self.query(select);
                self.scopes.push(scope);
                let columns = read?.names;
                self.deciding.extend(std::mem::take(&mut self.output));
                self.equalities.clear();
                if let Some(scope) = self.scopes.last_mut() {
                    scope.push(Entry { alias: alias.aliasname.clone(), source: Source::Query(columns) });
                }
                Ok(true)
            }
            Some(other) => construct(&kind(other)),
            None => construct("an empty FROM item"),
        }
    }

    fn join(&mut self, join: &JoinExpr, conjuncts: &mut Vec<Conjunct>) -> Result<bool, NoAnatomy> {
        if join.is_natural || !join.using_clause.is_empty() {
            return construct("NATURAL JOIN or USING");
        }
        if join.alias.is_some() {
            return construct("a join with an alias");
        }
        let (Some(left), Some(right)) = (&join.larg, &join.rarg) else {
            return construct("a join of one side");
        };
        let mut inner = self.source(left, conjuncts)?;
        inner &= self.source(right, conjuncts)?;
        let is_inner = join.jointype() == JoinType::JoinInner;
        if let Some(node) = join.quals.as_deref() {
            let before = self.equalities.len();
            conjuncts.extend(self.condition(node)?);
            if !is_inner {
                // Of a row without a partner, the condition is not true.
                self.equalities.truncate(before);
            }
        }
        Ok(inner && is_inner)
    }

    pub(super) fn targets(&mut self, nodes: &[Node]) -> Result<Vec<Target>, NoAnatomy> {
        let mut targets = Vec::new();
        for node in nodes {
            let Some(NodeEnum::ResTarget(target)) = &node.node else { return construct("the SELECT list") };
            match target.val.as_deref().and_then(|value| value.node.as_ref()) {
                Some(NodeEnum::ColumnRef(column)) if is_star(column) => self.star(column, &mut targets)?,
                _ => targets.push(self.target(target)?),
            }
        }
        Ok(targets)
    }

    fn target(&mut self, target: &ResTarget) -> Result<Target, NoAnatomy> {
        let Some(value) = target.val.as_deref() else { return construct("the SELECT list") };
        let expression = self.expression(value)?;
        let own = match &value.node {
            Some(NodeEnum::ColumnRef(column)) => names(&column.fields).pop(),
            Some(NodeEnum::FuncCall(call)) => names(&call.funcname).pop(),
            _ => None,
        };
        let given = Some(target.name.clone()).filter(|name| !name.is_empty());
        let name = given.or(own).unwrap_or_else(|| "?column?".to_owned());
        Ok(Target { name, expression, from_star: false })
    }

    fn star(&mut self, star: &ColumnRef, targets: &mut Vec<Target>) -> Result<(), NoAnatomy> {
        let alias = names(&star.fields).pop();
        let scope = self.scopes.last().map(Vec::as_slice).unwrap_or_default();
        let entries: Vec<&Entry> =
            scope.iter().filter(|entry| alias.as_ref().is_none_or(|alias| *alias == entry.alias)).collect();
        if entries.is_empty() {
            return Err(NoAnatomy::Relation(alias.unwrap_or_else(|| "*".to_owned())));
        }
        for entry in entries {
            let columns: Vec<(String, Option<ColumnPlace>)> = match &entry.source {
                Source::Query(columns) => columns.iter().map(|name| (name.clone(), None)).collect(),
                Source::Table(relation) => {
                    let columns =
                        self.table(*relation).map(|table| table.columns.as_slice()).unwrap_or_default();
                    let place = |column| Some(ColumnPlace { relation: *relation, column });
                    columns.iter().enumerate().map(|(at, column)| (column.name.clone(), place(at))).collect()
                }
            };
            for (name, place) in columns {
                let field = |part: &str| {
                    let text = pg_query::protobuf::String { sval: part.to_owned() };
                    Node { node: Some(NodeEnum::String(text)) }
                };
                let column = ColumnRef { fields: vec![field(&entry.alias), field(&name)], location: 0 };
                let expression = Expression {
                    node: Node { node: Some(NodeEnum::ColumnRef(column)) },
                    places: place.into_iter().collect(),
                    inner: std::collections::BTreeSet::default(),
                    has_query: false,
                    has_aggregate: false,
                };
                targets.push(Target { name, expression, from_star: true });
            }
        }
        Ok(())
    }

    /// Whether equal rows are shown once; what they are compared by decides.
    fn distinct(&mut self, select: &SelectStmt, targets: &[Target]) -> Result<bool, NoAnatomy> {
        for node in select.distinct_clause.iter().filter(|node| node.node.is_some()) {
            if named_target(node, targets).is_none() {
                let expression = self.expression(node)?;
                self.deciding.extend(expression.columns());
            }
        }
        Ok(!select.distinct_clause.is_empty())
    }

    fn grouping(&mut self, select: &SelectStmt, targets: &[Target]) -> Result<Vec<Expression>, NoAnatomy> {
        let mut grouping = Vec::new();
        for node in &select.group_clause {
            // A name is a column of FROM before it is one of the SELECT list; a number is one of the list.
            let expression = match (&node.node, named_target(node, targets)) {
                (Some(NodeEnum::GroupingSet(_)), _) => return construct("GROUPING SETS, CUBE or ROLLUP"),
                (Some(NodeEnum::ColumnRef(column)), at) => match (self.resolve(column), at) {
                    (Err(_), Some(at)) => targets[at].expression.clone(),
                    _ => self.expression(node)?,
                },
                (_, Some(at)) => targets[at].expression.clone(),
                _ => self.expression(node)?,
            };
            self.deciding.extend(expression.columns());
            grouping.push(expression);
        }
        Ok(grouping)
    }

    fn order(&mut self, nodes: &[Node], targets: &[Target]) -> Result<Vec<SortKey>, NoAnatomy> {
        let mut keys = Vec::new();
        for node in nodes {
            let Some(NodeEnum::SortBy(sort)) = &node.node else { return construct("ORDER BY") };
            let Some(inner) = sort.node.as_deref() else { return construct("ORDER BY") };
            let by = match named_target(inner, targets) {
                Some(at) => SortBy::Target(at),
                None => SortBy::Expression(Box::new(self.expression(inner)?)),
            };
            keys.push(SortKey { by, suffix: suffix(sort)? });
        }
        Ok(keys)
    }
}

fn refuse(select: &SelectStmt) -> Result<(), NoAnatomy> {
    if select.into_clause.is_some() {
        return construct("SELECT INTO");
    }
    if !select.window_clause.is_empty() {
        return construct("WINDOW");
    }
    if !select.values_lists.is_empty() {
        return construct("VALUES as a query");
    }
    if matches!(select.limit_option(), LimitOption::WithTies) {
        return construct("WITH TIES");
    }
    Ok(())
}

fn is_star(column: &ColumnRef) -> bool {
    column.fields.last().is_some_and(|field| matches!(field.node, Some(NodeEnum::AStar(_))))
}

/// The item of the SELECT list that a name without a qualifier, or a number, stands for.
fn named_target(node: &Node, targets: &[Target]) -> Option<usize> {
    match node.node.as_ref()? {
        NodeEnum::ColumnRef(column) => match names(&column.fields).as_slice() {
            [name] => targets.iter().position(|target| target.name == *name),
            _ => None,
        },
        NodeEnum::AConst(constant) => match &constant.val {
            Some(a_const::Val::Ival(number)) => {
                let at = usize::try_from(number.ival).ok()?.checked_sub(1)?;
                (at < targets.len()).then_some(at)
            }
            _ => None,
        },
        _ => None,
    }
}

fn suffix(sort: &Sort) -> Result<String, NoAnatomy> {
    let direction = match sort.sortby_dir() {
        SortByDir::SortbyDesc => " DESC",
        SortByDir::SortbyUsing => return construct("ORDER BY .. USING"),
        _ => "",
    };
    let nulls = match sort.sortby_nulls() {
        SortByNulls::SortbyNullsFirst => " NULLS FIRST",
        SortByNulls::SortbyNullsLast => " NULLS LAST",
        _ => "",
    };
    Ok(format!("{direction}{nulls}"))
}

fn limit_of(node: &Node) -> Limit {
    match &node.node {
        Some(NodeEnum::AConst(constant)) => match &constant.val {
            Some(a_const::Val::Ival(number)) => {
                u64::try_from(number.ival).map_or(Limit::Computed, Limit::Rows)
            }
            // Zero is what the decoder leaves out.
            None if !constant.isnull => Limit::Rows(0),
            _ => Limit::Computed,
        },
        _ => Limit::Computed,
    }
}
