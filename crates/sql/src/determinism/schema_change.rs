//! Values that ALTER TABLE gives to rows that are there.
//!
//! Adding a column, or changing its type, writes every row of a table without a captured change. Each expression is
//! walked like one of a statement about rows; whatever else the statement says concerns no values. A generated column
//! counts as the same everywhere: PostgreSQL takes immutable expressions only, and computes them wherever a row is
//! written. What the names alone can say is `ddl::values`' affair.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, Constraint, Node, TypeName,
};

use super::Why;
use super::scope::{Item, Scope};
use super::walk::Walk;
use crate::catalogue::{Relation, Table};
use crate::classify::relation_name;
use crate::name::Name;
use crate::schema::FIRST_USER_OID;

impl<'a> Walk<'a> {
    /// Visits the values that an ALTER TABLE computes; `root` is the whole of it.
    pub(super) fn schema_change(&mut self, root: &NodeEnum, alter: &AlterTableStmt) {
        self.pass_over(root);
        let table = alter.relation.as_ref().and_then(|relation| self.altered(&relation_name(relation)));
        let name = alter.relation.as_ref().map(|relation| relation.relname.clone()).unwrap_or_default();
        for node in &alter.cmds {
            let Some(NodeEnum::AlterTableCmd(command)) = &node.node else { continue };
            match AlterTableType::try_from(command.subtype) {
                Ok(AlterTableType::AtAddColumn) => {
                    // A default sees no column.
                    self.scopes.push(Scope::default());
                    self.added(command);
                    self.scopes.pop();
                }
                Ok(AlterTableType::AtAlterColumnType) => {
                    let items = vec![Item { name: name.clone(), table }];
                    self.scopes.push(Scope { items, ..Scope::default() });
                    self.retyped(command, &name, table);
                    self.scopes.pop();
                }
                Ok(_) => {}
                Err(_) => self.note(Why::NotUnderstood("a part of ALTER TABLE")),
            }
        }
    }

    /// The table whose columns an expression means; of a parent one that is below it, whose columns of the same names have
    /// the same types. `None` if that is not known, or if a column of any of them may run code of its own.
    fn altered(&self, name: &Name) -> Option<&'a Table> {
        let catalogue = self.catalogue;
        let mut schemas =
            catalogue.named(name.schema.as_deref(), &name.name).filter_map(|relation| match relation {
                Relation::Table(table) => Some(table.schema.as_str()),
                Relation::Parent(parent) => Some(parent.schema.as_str()),
                Relation::View(_) | Relation::Other => None,
            });
        let schema = schemas.next()?;
        let is_one = schemas.all(|other| other == schema);
        let ids = catalogue.tables_named(name).filter(|_| is_one)?;
        let tables: Option<Vec<&Table>> = ids.iter().map(|id| catalogue.table(*id)).collect();
        let tables = tables?;
        tables.iter().all(|table| !table.coded_types).then(|| tables.first().copied()).flatten()
    }

    fn added(&mut self, command: &AlterTableCmd) {
        let Some(column) = defined(command) else {
            self.note(Why::NotUnderstood("a column"));
            return;
        };
        // A serial draws from a sequence, and a domain has a default of its own: both are types that are not built in.
        let of = self.type_beside(column.type_name.as_ref());
        let constraints = column.constraints.iter().filter_map(|node| match &node.node {
            Some(NodeEnum::Constraint(constraint)) => Some(constraint),
            _ => None,
        });
        for constraint in constraints {
            match ConstrType::try_from(constraint.contype) {
                Ok(ConstrType::ConstrIdentity) => self.note(Why::Sequence(Name::bare(&column.colname))),
                Ok(ConstrType::ConstrDefault) => self.given(default_of(constraint), of.as_ref()),
                Ok(_) => {}
                Err(_) => self.note(Why::NotUnderstood("a constraint")),
            }
        }
        self.given(column.raw_default.as_deref(), of.as_ref());
    }

    fn retyped(&mut self, command: &AlterTableCmd, name: &str, table: Option<&Table>) {
        let Some(column) = defined(command) else {
            self.note(Why::NotUnderstood("a column"));
            return;
        };
        let of = self.type_beside(column.type_name.as_ref());
        if table.is_none() {
            self.note(Why::UserTypes(name.to_owned()));
        }
        if let Some(using) = column.raw_default.as_deref() {
            self.given(Some(using), of.as_ref());
            return;
        }
        // The old value is cast, by code that is known only for types that come with the server.
        let old = table.and_then(|table| table.columns.iter().find(|column| column.name == command.name));
        if old.is_none_or(|column| column.type_oid >= FIRST_USER_OID) {
            self.note(Why::UserTypes(name.to_owned()));
        }
    }

    /// A value of a type, which is a part of what has been passed over.
    fn given(&mut self, value: Option<&Node>, of: Option<&Name>) {
        let Some(value) = value else { return };
        self.take_back(value);
        self.expression(value);
        if let Some(of) = of
            && !super::walk::is_plain_constant(value)
        {
            self.becomes_clock_type(of, value);
        }
    }

    /// A type, which is a part of what has been passed over.
    fn type_beside(&mut self, of: Option<&TypeName>) -> Option<Name> {
        let Some(of) = of else {
            self.note(Why::NotUnderstood("a type"));
            return None;
        };
        for modifier in &of.typmods {
            self.take_back(modifier);
        }
        self.type_name(of)
    }
}

fn default_of(constraint: &Constraint) -> Option<&Node> {
    constraint.raw_expr.as_deref()
}

fn defined(command: &AlterTableCmd) -> Option<&ColumnDef> {
    match command.def.as_ref()?.node.as_ref()? {
        NodeEnum::ColumnDef(column) => Some(column),
        _ => None,
    }
}
