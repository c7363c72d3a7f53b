//! The names that a schema change defines anew, by its text: see [`crate::definition`].
//!
//! Named are the relations whose definition it changes, not those that it only looks at (the tables of a view, a table that is
//! made LIKE another one). A kind of statement that is not listed here concerns anything. So does CREATE SCHEMA, which can
//! change what names mean (a schema called as its role comes first in most search paths), and whatever goes with CASCADE.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, CreateSeqStmt, CreateStmt,
    DropBehavior, DropStmt, Node, ObjectType, RangeVar, RenameStmt,
};

use super::listed;
use crate::ast_scan::{AstScan, names_in};
use crate::classify::relation_name;
use crate::definition::{Changes, Scope};

/// PostgreSQL shortens longer names.
const NAME_BYTES_MAX: usize = 63;

/// Types that give a column a sequence of its own.
const SERIAL_TYPES: [&str; 6] = ["bigserial", "serial", "serial2", "serial4", "serial8", "smallserial"];

/// The names that the statement defines anew.
pub(super) fn of(node: &NodeEnum) -> Scope {
    let changed = |relation: Option<&RangeVar>| {
        Scope::these(Changes {
            tables: relation.into_iter().map(relation_name).collect(),
            ..Changes::default()
        })
    };
    match node {
        NodeEnum::CreateStmt(statement) => created(statement).map_or(Scope::Anything, Scope::these),
        NodeEnum::ViewStmt(statement) => made(statement.view.as_ref()),
        NodeEnum::CreateSeqStmt(statement) if !is_owned(statement) => made(statement.sequence.as_ref()),
        NodeEnum::AlterTableStmt(statement) => altered(statement).map_or(Scope::Anything, Scope::these),
        NodeEnum::IndexStmt(statement) => changed(statement.relation.as_ref()),
        NodeEnum::CreateTrigStmt(statement) if statement.constrrel.is_none() => {
            changed(statement.relation.as_ref())
        }
        NodeEnum::CreateFunctionStmt(statement) => {
            let functions = names_in(&statement.funcname).pop().into_iter().collect();
            Scope::these(Changes { functions, ..Changes::default() })
        }
        NodeEnum::CreateEnumStmt(statement) => types(names_in(&statement.type_name).pop()),
        NodeEnum::CompositeTypeStmt(statement) => {
            types(statement.typevar.as_ref().map(|name| name.relname.clone()))
        }
        NodeEnum::DropStmt(statement) => dropped(statement),
        NodeEnum::RenameStmt(statement) => renamed(statement).map_or(Scope::Anything, Scope::these),
        // No conclusion rests on any of these.
        NodeEnum::CommentStmt(_)
        | NodeEnum::GrantStmt(_)
        | NodeEnum::GrantRoleStmt(_)
        | NodeEnum::AlterDefaultPrivilegesStmt(_)
        | NodeEnum::CreateRoleStmt(_)
        | NodeEnum::AlterRoleStmt(_)
        | NodeEnum::AlterRoleSetStmt(_)
        | NodeEnum::DropRoleStmt(_)
        | NodeEnum::AlterDatabaseSetStmt(_) => Scope::nothing(),
        _ => Scope::Anything,
    }
}

fn made(relation: Option<&RangeVar>) -> Scope {
    Scope::made(relation.into_iter().map(|relation| relation.relname.clone()).collect())
}

fn types(name: Option<String>) -> Scope {
    name.map_or(Scope::Anything, |name| Scope::these(Changes { types: vec![name], ..Changes::default() }))
}

/// Whether a sequence is to belong to a column of a table.
fn is_owned(statement: &CreateSeqStmt) -> bool {
    let is_owner = |option: &Node| matches!(&option.node, Some(NodeEnum::DefElem(option)) if option.defname == "owned_by");
    statement.options.iter().any(is_owner)
}

fn created(statement: &CreateStmt) -> Option<Changes> {
    let is_part = !statement.inh_relations.is_empty() || statement.partbound.is_some();
    let relation = statement.relation.as_ref().filter(|_| !is_part && statement.of_typename.is_none())?;
    let mut changes = Changes { made: vec![relation.relname.clone()], ..Changes::default() };
    let elements = statement.table_elts.iter().chain(&statement.constraints);
    for element in elements.filter_map(|element| element.node.as_ref()) {
        match element {
            NodeEnum::ColumnDef(column) => add_column(column, &relation.relname, &mut changes)?,
            NodeEnum::Constraint(constraint) => {
                changes.referenced.extend(constraint.pktable.as_ref().map(relation_name));
            }
            // With its identity columns it gets sequences of their names.
            NodeEnum::TableLikeClause(_) => {}
            _ => return None,
        }
    }
    Some(changes)
}

/// A new column may come with a sequence, and refer to a table.
fn add_column(column: &ColumnDef, table: &str, changes: &mut Changes) -> Option<()> {
    let constraints = column.constraints.iter().filter_map(|constraint| match &constraint.node {
        Some(NodeEnum::Constraint(constraint)) => Some(&**constraint),
        _ => None,
    });
    let mut is_drawing = column.type_name.as_ref().is_some_and(|name| {
        names_in(&name.names).last().is_some_and(|name| SERIAL_TYPES.contains(&name.as_str()))
    });
    for constraint in constraints {
        is_drawing |= ConstrType::try_from(constraint.contype) == Ok(ConstrType::ConstrIdentity);
        changes.referenced.extend(constraint.pktable.as_ref().map(relation_name));
    }
    if is_drawing {
        let sequence = format!("{table}_{}_seq", column.colname);
        changes.made.push(Some(sequence).filter(|name| name.len() <= NAME_BYTES_MAX)?);
    }
    Some(())
}

fn altered(statement: &AlterTableStmt) -> Option<Changes> {
    if ObjectType::try_from(statement.objtype) != Ok(ObjectType::ObjectTable) {
        return None;
    }
    let relation = statement.relation.as_ref()?;
    let mut changes = Changes { tables: vec![relation_name(relation)], ..Changes::default() };
    for command in &statement.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &command.node else { return None };
        alter(command, &relation.relname, &mut changes)?;
    }
    Some(changes)
}

fn alter(command: &AlterTableCmd, table: &str, changes: &mut Changes) -> Option<()> {
    use AlterTableType as Kind;
    if is_cascade(command.behavior) {
        return None;
    }
    match Kind::try_from(command.subtype).ok()? {
        Kind::AtAddColumn => {
            let definition = command.def.as_ref().and_then(|definition| definition.node.as_ref());
            let Some(NodeEnum::ColumnDef(column)) = definition else { return None };
            add_column(column, table, changes)?;
        }
        // What foreign keys refer to.
        Kind::AtAddConstraint => changes.referenced.extend(AstScan::of(command).reads),
        Kind::AtDropConstraint => changes.with_relatives = true,
        Kind::AtDropColumn => (changes.with_relatives, changes.drops_sequences) = (true, true),
        Kind::AtColumnDefault
        | Kind::AtDropNotNull
        | Kind::AtSetNotNull
        | Kind::AtSetStatistics
        | Kind::AtSetOptions
        | Kind::AtResetOptions
        | Kind::AtSetStorage
        | Kind::AtSetRelOptions
        | Kind::AtResetRelOptions => {}
        _ => return None,
    }
    Some(())
}

fn dropped(statement: &DropStmt) -> Scope {
    if is_cascade(statement.behavior) {
        return Scope::Anything;
    }
    let objects: Vec<&Node> = statement.objects.iter().collect();
    let named = listed(statement.remove_type, &objects);
    if named.len() != objects.len() {
        return Scope::Anything;
    }
    let changes = match ObjectType::try_from(statement.remove_type) {
        Ok(ObjectType::ObjectTable) => Changes { tables: named, drops_sequences: true, ..Changes::default() },
        Ok(ObjectType::ObjectIndex) => Changes { indexes: named, ..Changes::default() },
        Ok(ObjectType::ObjectTrigger) => Changes { tables: named, ..Changes::default() },
        _ => return Scope::Anything,
    };
    Scope::these(Changes { with_relatives: true, ..changes })
}

fn renamed(statement: &RenameStmt) -> Option<Changes> {
    let relation = statement.relation.as_ref()?;
    let made =
        match (ObjectType::try_from(statement.rename_type), ObjectType::try_from(statement.relation_type)) {
            (Ok(ObjectType::ObjectTable), _) => vec![statement.newname.clone()],
            (Ok(ObjectType::ObjectColumn), Ok(ObjectType::ObjectTable)) => Vec::new(),
            _ => return None,
        };
    Some(Changes { made, tables: vec![relation_name(relation)], ..Changes::default() })
}

fn is_cascade(behavior: i32) -> bool {
    DropBehavior::try_from(behavior) == Ok(DropBehavior::DropCascade)
}
