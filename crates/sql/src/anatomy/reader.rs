//! Names in scopes, and the walk over expressions.

use std::collections::BTreeSet;

use pg_query::NodeEnum;
use pg_query::protobuf::{AExprKind, ColumnRef, FuncCall, Node, RangeVar, SubLink};

use super::expression::{Expression, children, names};
use super::model::{Anatomy, ColumnPlace, Equal, Equality, Mention, NoAnatomy, PlainSelect, StatementKind};
use crate::ast_scan::strings_in;
use crate::catalogue::{Catalogue, Relation, Table};
use crate::classify::relation_name;

/// Functions of PostgreSQL that reckon rows together.
const AGGREGATES: [&str; 21] = [
    "any_value",
    "array_agg",
    "avg",
    "bit_and",
    "bit_or",
    "bool_and",
    "bool_or",
    "count",
    "every",
    "json_agg",
    "jsonb_agg",
    "json_object_agg",
    "jsonb_object_agg",
    "max",
    "min",
    "range_agg",
    "stddev",
    "string_agg",
    "sum",
    "variance",
    "xmlagg",
];

/// What a FROM clause has under one name.
pub(super) struct Entry {
    pub(super) alias: String,
    pub(super) source: Source,
}

pub(super) enum Source {
    /// A table, by its mention.
    Table(usize),
    /// A sub-query with these columns, which are accounted for within it.
    Query(Vec<String>),
}

/// Makes the anatomy of one statement.
pub(super) struct Reader<'a> {
    pub(super) catalogue: &'a Catalogue,
    pub(super) relations: Vec<Mention>,
    pub(super) scopes: Vec<Vec<Entry>>,
    pub(super) output: BTreeSet<ColumnPlace>,
    pub(super) deciding: BTreeSet<ColumnPlace>,
    pub(super) equalities: Vec<Equality>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(catalogue: &'a Catalogue) -> Self {
        Self {
            catalogue,
            relations: Vec::new(),
            scopes: Vec::new(),
            output: BTreeSet::new(),
            deciding: BTreeSet::new(),
            equalities: Vec::new(),
        }
    }

    /// What was gathered, of a statement that writes nothing so far.
    pub(super) fn anatomy(&mut self, kind: StatementKind, plain: Option<PlainSelect>) -> Anatomy {
        let deciding = std::mem::take(&mut self.deciding);
        Anatomy {
            kind,
            relations: std::mem::take(&mut self.relations),
            output: std::mem::take(&mut self.output),
            deciding,
            written: Vec::new(),
            grows: None,
            equalities: std::mem::take(&mut self.equalities),
            limit: None,
            plain,
        }
    }

    /// The table of a mention.
    pub(super) fn table(&self, relation: usize) -> Option<&'a Table> {
        self.catalogue.table(self.relations.get(relation)?.table)
    }

    /// Adds a table to the innermost scope.
    pub(super) fn mention(&mut self, relation: &RangeVar) -> Result<usize, NoAnatomy> {
        let name = relation_name(relation);
        let unknown = || NoAnatomy::Relation(name.to_string());
        let mut found = self.catalogue.named(name.schema.as_deref(), &name.name);
        let (Some(Relation::Table(table)), None) = (found.next(), found.next()) else {
            return Err(unknown());
        };
        let alias = match &relation.alias {
            Some(alias) if !alias.colnames.is_empty() => {
                return Err(NoAnatomy::Construct("an alias with names of columns".to_owned()));
            }
            Some(alias) => alias.aliasname.clone(),
            None => name.name.clone(),
        };
        let index = self.relations.len();
        self.relations.push(Mention { table: table.id, alias: alias.clone() });
        if let Some(scope) = self.scopes.last_mut() {
            scope.push(Entry { alias, source: Source::Table(index) });
        }
        Ok(index)
    }

    /// An expression with its columns; sub-queries in it are read, too.
    pub(super) fn expression(&mut self, node: &Node) -> Result<Expression, NoAnatomy> {
        let mut expression = Expression {
            node: node.clone(),
            places: Vec::new(),
            inner: BTreeSet::new(),
            has_query: false,
            has_aggregate: false,
        };
        let mut node = node.clone();
        self.walk(&mut node, &mut expression)?;
        Ok(expression)
    }

    fn walk(&mut self, node: &mut Node, expression: &mut Expression) -> Result<(), NoAnatomy> {
        let Some(node) = &mut node.node else { return Ok(()) };
        match node {
            NodeEnum::ColumnRef(column) => expression.places.extend(self.resolve(column)?),
            NodeEnum::FuncCall(call) => self.call(call, expression)?,
            NodeEnum::SubLink(link) => self.sub_query(link, expression)?,
            _ => {}
        }
        children(node)?.into_iter().try_for_each(|child| self.walk(child, expression))
    }

    fn call(&mut self, call: &FuncCall, expression: &mut Expression) -> Result<(), NoAnatomy> {
        let parts = names(&call.funcname);
        let name = parts.last().cloned().unwrap_or_default();
        if self.catalogue.is_user_function(&name) {
            return Err(NoAnatomy::Construct(format!("the user's function {name}()")));
        }
        expression.has_aggregate |= call.agg_star || AGGREGATES.contains(&name.as_str());
        if matches!(name.as_str(), "nextval" | "currval" | "setval") {
            let sequence = strings_in(&call.args).into_iter().next().unwrap_or_default();
            let place = self.drawn(&sequence).ok_or_else(|| {
                NoAnatomy::Construct(format!("the sequence `{sequence}`, which no column draws from,"))
            })?;
            expression.inner.insert(place);
        }
        Ok(())
    }

    /// The column that draws from a sequence, as a column of a mention of its own: values go where their rows go.
    fn drawn(&mut self, sequence: &str) -> Option<ColumnPlace> {
        let (schema, name) = sequence.split_once('.').unwrap_or(("public", sequence));
        let &(table, column) = self.catalogue.drawn_from(schema, name).first()?;
        let alias = self.catalogue.table(table)?.name.clone();
        let relation = self.relations.len();
        self.relations.push(Mention { table, alias });
        let place = ColumnPlace { relation, column };
        self.deciding.insert(place);
        Some(place)
    }

    fn sub_query(&mut self, link: &SubLink, expression: &mut Expression) -> Result<(), NoAnatomy> {
        expression.has_query = true;
        let query = link.subselect.as_deref().and_then(|node| node.node.as_ref());
        let Some(NodeEnum::SelectStmt(select)) = query else {
            return Err(NoAnatomy::Construct("a sub-query other than SELECT".to_owned()));
        };
        let (output, deciding) = (std::mem::take(&mut self.output), std::mem::take(&mut self.deciding));
        let outer = std::mem::take(&mut self.equalities);
        self.query(select)?;
        expression.inner.extend(self.output.iter().chain(&self.deciding).copied());
        self.deciding = deciding;
        self.deciding.extend(&expression.inner);
        self.output = output;
        self.equalities = outer;
        Ok(())
    }

    /// The column that a name stands for; `None` for a column of a sub-query.
    pub(super) fn resolve(&self, column: &ColumnRef) -> Result<Option<ColumnPlace>, NoAnatomy> {
        let parts = names(&column.fields);
        let unknown = || NoAnatomy::Column(parts.join("."));
        if parts.len() != column.fields.len() {
            return Err(NoAnatomy::Construct("a star within an expression".to_owned()));
        }
        let (alias, name) = match parts.as_slice() {
            [name] => (None, name),
            [alias, name] | [_, alias, name] => (Some(alias), name),
            _ => return Err(unknown()),
        };
        for scope in self.scopes.iter().rev() {
            let entries = scope.iter().filter(|entry| alias.is_none_or(|alias| *alias == entry.alias));
            let mut found = entries.filter(|entry| self.has_column(entry, name));
            match (found.next(), found.next()) {
                (None, _) => {}
                (Some(entry), None) => return Ok(self.place(entry, name)),
                _ => return Err(unknown()),
            }
        }
        Err(unknown())
    }

    fn has_column(&self, entry: &Entry, name: &str) -> bool {
        match &entry.source {
            Source::Table(_) => self.place(entry, name).is_some(),
            Source::Query(columns) => columns.iter().any(|column| column == name),
        }
    }

    fn place(&self, entry: &Entry, name: &str) -> Option<ColumnPlace> {
        let Source::Table(relation) = entry.source else { return None };
        let column = self.table(relation)?.columns.iter().position(|column| column.name == name)?;
        Some(ColumnPlace { relation, column })
    }

    /// Reads a condition: all its columns decide.
    pub(super) fn condition(&mut self, node: &Node) -> Result<Vec<super::model::Conjunct>, NoAnatomy> {
        let mut conjuncts = Vec::new();
        self.conjuncts(node, &mut conjuncts)?;
        for conjunct in &conjuncts {
            self.deciding.extend(conjunct.expression.columns());
            if let super::model::Says::Equal(equality) = &conjunct.says {
                self.equalities.push(equality.clone());
            }
        }
        Ok(conjuncts)
    }

    fn conjuncts(&mut self, node: &Node, into: &mut Vec<super::model::Conjunct>) -> Result<(), NoAnatomy> {
        if let Some(NodeEnum::BoolExpr(expression)) = &node.node
            && expression.boolop() == pg_query::protobuf::BoolExprType::AndExpr
        {
            return expression.args.iter().try_for_each(|arg| self.conjuncts(arg, into));
        }
        let expression = self.expression(node)?;
        let says = self.says(node)?;
        into.push(super::model::Conjunct { expression, says });
        Ok(())
    }

    fn says(&self, node: &Node) -> Result<super::model::Says, NoAnatomy> {
        use super::model::Says;
        let Some(NodeEnum::AExpr(expression)) = &node.node else { return Ok(Says::Other) };
        let (Some(left), Some(right)) = (&expression.lexpr, &expression.rexpr) else {
            return Ok(Says::Other);
        };
        if strings_in(&expression.name) != ["="] {
            return Ok(Says::Other);
        }
        let left_column = self.plain_column(left)?;
        match (expression.kind(), left_column, &right.node) {
            (AExprKind::AexprOp, Some(column), _) => Ok(match self.equal(right)? {
                Some(to) => Says::Equal(Equality { column, to }),
                None => Says::Other,
            }),
            (AExprKind::AexprOp, None, _) => Ok(match (self.plain_column(right)?, self.equal(left)?) {
                (Some(column), Some(to)) => Says::Equal(Equality { column, to }),
                _ => Says::Other,
            }),
            (AExprKind::AexprIn, Some(column), Some(NodeEnum::List(list))) => {
                let columns = list.items.iter().map(|item| self.plain_column(item));
                let columns: Option<Vec<_>> = columns.collect::<Result<Vec<_>, _>>()?.into_iter().collect();
                Ok(columns.map_or(Says::Other, |columns| Says::OneOf(column, columns)))
            }
            _ => Ok(Says::Other),
        }
    }

    fn plain_column(&self, node: &Node) -> Result<Option<ColumnPlace>, NoAnatomy> {
        match &node.node {
            Some(NodeEnum::ColumnRef(column)) => self.resolve(column),
            _ => Ok(None),
        }
    }

    pub(super) fn equal(&self, node: &Node) -> Result<Option<Equal>, NoAnatomy> {
        Ok(match &node.node {
            Some(NodeEnum::ColumnRef(column)) => self.resolve(column)?.map(Equal::Column),
            Some(NodeEnum::ParamRef(parameter)) => u32::try_from(parameter.number).ok().map(Equal::Parameter),
            Some(NodeEnum::AConst(constant)) if !constant.isnull => Some(Equal::Constant),
            Some(NodeEnum::TypeCast(cast)) => match cast.arg.as_deref() {
                Some(arg) => self.equal(arg)?.filter(|equal| !matches!(equal, Equal::Column(_))),
                None => None,
            },
            _ => None,
        })
    }
}
