//! Schema changes: which travel as ordered statements, and which are refused.
//!
//! A schema change runs on every replica, in version order, as the text that the client sent. That is sound only if it
//! does the same everywhere: it must not depend on what lies outside the transaction, and must leave our own objects
//! alone. Where it computes values of rows, [`crate::RowEffect`] says so; if [`crate::determinism()`] cannot prove that they
//! are the same everywhere, the session lets the home's values travel.
//! What cannot be seen here (a function called by an index) is deterministic by PostgreSQL's own rules or is left to
//! the checksums.

mod password;
mod scope;
mod texts;
mod values;

pub use password::{Password, passwords};
pub use texts::{Frozen, freeze_defaults, name_session_user, without_concurrently};

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, CreateSchemaStmt, Node, ObjectType, PartitionBoundSpec,
    RangeVar, RefreshMatViewStmt, ReindexObjectType,
};

use crate::ast_scan::{AstScan, names_in, strings_in};
use crate::builtin::OBJECT_ID_TYPES;
use crate::classify::{OWN_SCHEMAS, is_temporary, relation_name};
use crate::name::{Name, TEMPORARY_SCHEMA};
use crate::refusal::{self, Refusal, refused};
use crate::setting;
use crate::statement::{DdlFacts, Maintenance, RowEffect, Statement, Verb};

/// How the names of our own triggers begin.
const OWN_TRIGGER: &str = "!onecopy";

/// Extensions whose functions act outside the transaction, or on large objects.
const HARMFUL_EXTENSIONS: [&str; 6] = ["adminpack", "dblink", "file_fdw", "lo", "pg_cron", "postgres_fdw"];

/// Classifies a schema change, and refuses each kind of statement that no other module has taken.
pub(crate) fn classify(node: &NodeEnum) -> Statement {
    let scan = AstScan::of(node);
    if let Some(refusal) = refusal_of(node, &scan) {
        return Statement::of(refused(refusal));
    }
    if let Some(kind) = maintenance(node) {
        return Statement::of(Verb::Maintenance(kind));
    }
    let Some(tag) = tag(node) else { return Statement::of(refused(refusal::UNKNOWN_KIND)) };
    let mut relations: Vec<Name> = scan.reads.union(&scan.writes).chain(&scan.made).cloned().collect();
    relations.extend(match node {
        NodeEnum::DropStmt(drop) => listed(drop.remove_type, &drop.objects.iter().collect::<Vec<_>>()),
        NodeEnum::CommentStmt(comment) => listed(comment.objtype, comment.object.as_deref().as_slice()),
        NodeEnum::SecLabelStmt(label) => listed(label.objtype, label.object.as_deref().as_slice()),
        _ => Vec::new(),
    });
    relations.sort();
    relations.dedup();
    let named_temporary = !relations.is_empty()
        && relations.iter().all(|name| name.schema.as_deref() == Some(TEMPORARY_SCHEMA))
        && matches!(node, NodeEnum::AlterTableStmt(_) | NodeEnum::DropStmt(_) | NodeEnum::IndexStmt(_));
    let temporary = made(node).is_some_and(is_temporary) || named_temporary;
    let (rows, concurrently, scope) = (row_effect(node), is_concurrent(node), scope::of(node));
    Statement {
        functions: scan.functions.into_iter().collect(),
        operators: scan.operators.into_iter().collect(),
        ..Statement::of(Verb::Ddl(DdlFacts { temporary, tag, relations, rows, concurrently, scope }))
    }
}

fn row_effect(node: &NodeEnum) -> RowEffect {
    match node {
        NodeEnum::AlterTableStmt(statement) => values::altered(statement),
        NodeEnum::RefreshMatViewStmt(RefreshMatViewStmt {
            skip_data: false, relation: Some(view), ..
        }) => RowEffect::Viewed(relation_name(view)),
        _ => RowEffect::Same,
    }
}

/// Whether a statement that can as well run plainly asks to be run in several transactions of its own. (REFRESH
/// MATERIALIZED VIEW CONCURRENTLY runs in one.)
fn is_concurrent(node: &NodeEnum) -> bool {
    match node {
        NodeEnum::IndexStmt(statement) => statement.concurrent,
        NodeEnum::DropStmt(statement) => statement.concurrent,
        NodeEnum::AlterTableStmt(statement) => statement.cmds.iter().any(|command| match &command.node {
            Some(NodeEnum::AlterTableCmd(command)) => matches!(
                command.def.as_ref().and_then(|definition| definition.node.as_ref()),
                Some(NodeEnum::PartitionCmd(part)) if part.concurrent
            ),
            _ => false,
        }),
        _ => false,
    }
}

/// The relation that a statement makes.
fn made(node: &NodeEnum) -> Option<&RangeVar> {
    match node {
        NodeEnum::CreateStmt(statement) => statement.relation.as_ref(),
        NodeEnum::ViewStmt(statement) => statement.view.as_ref(),
        NodeEnum::CreateSeqStmt(statement) => statement.sequence.as_ref(),
        _ => None,
    }
}

/// The relations among objects that are named by lists of strings; what hangs on a table counts as that table.
fn listed(object_type: i32, objects: &[&Node]) -> Vec<Name> {
    let within_table = match ObjectType::try_from(object_type) {
        Ok(
            ObjectType::ObjectTable
            | ObjectType::ObjectView
            | ObjectType::ObjectIndex
            | ObjectType::ObjectSequence
            | ObjectType::ObjectMatview
            | ObjectType::ObjectForeignTable,
        ) => false,
        Ok(
            ObjectType::ObjectTrigger
            | ObjectType::ObjectRule
            | ObjectType::ObjectPolicy
            | ObjectType::ObjectColumn
            | ObjectType::ObjectTabconstraint,
        ) => true,
        _ => return Vec::new(),
    };
    let names = objects.iter().filter_map(|object| {
        let mut parts = names_in(object);
        if within_table {
            parts.pop();
        }
        Name::from_parts(parts)
    });
    names.collect()
}

/// Work that each replica does for itself.
fn maintenance(node: &NodeEnum) -> Option<Maintenance> {
    match node {
        // It changes no contents, so each replica may do it when it likes.
        NodeEnum::ReindexStmt(statement) if setting::switched_on(&statement.params, "concurrently") => {
            Some(Maintenance::Reindex)
        }
        NodeEnum::ReindexStmt(statement) => match ReindexObjectType::try_from(statement.kind) {
            Ok(ReindexObjectType::ReindexObjectIndex | ReindexObjectType::ReindexObjectTable) => None,
            _ => Some(Maintenance::Reindex),
        },
        NodeEnum::ClusterStmt(statement) if statement.relation.is_none() => Some(Maintenance::Cluster),
        _ => None,
    }
}

/// Why a statement is refused, if it is.
fn refusal_of(node: &NodeEnum, scan: &AstScan) -> Option<Refusal> {
    if touches_own(node, scan) {
        return Some(refusal::OWN_SCHEMA);
    }
    if scan.unlogged {
        return Some(refusal::UNLOGGED);
    }
    let sets = matches!(node, NodeEnum::AlterRoleSetStmt(_) | NodeEnum::AlterDatabaseSetStmt(_));
    if scan.clock_words && !sets {
        return Some(refusal::CLOCK_CONSTANT);
    }
    by_kind(node).or_else(|| by_content(node))
}

/// Whether one of our own schemas or triggers is named.
fn touches_own(node: &NodeEnum, scan: &AstScan) -> bool {
    if scan.schemas.iter().any(|schema| OWN_SCHEMAS.contains(&schema.as_str())) {
        return true;
    }
    let names_schemas = match node {
        NodeEnum::CreateSchemaStmt(_) | NodeEnum::AlterObjectSchemaStmt(_) => true,
        NodeEnum::DropStmt(statement) => is_schema(statement.remove_type),
        NodeEnum::RenameStmt(statement) => is_schema(statement.rename_type),
        NodeEnum::AlterOwnerStmt(statement) => is_schema(statement.object_type),
        NodeEnum::GrantStmt(statement) => is_schema(statement.objtype),
        _ => false,
    };
    let names_triggers = matches!(
        node,
        NodeEnum::CreateTrigStmt(_)
            | NodeEnum::DropStmt(_)
            | NodeEnum::RenameStmt(_)
            | NodeEnum::AlterObjectDependsStmt(_)
            | NodeEnum::AlterTableStmt(_)
    );
    (names_schemas || names_triggers)
        && strings_in(node).iter().any(|text| {
            names_schemas && OWN_SCHEMAS.contains(&text.as_str())
                || names_triggers && text.starts_with(OWN_TRIGGER)
        })
}

fn is_schema(object_type: i32) -> bool {
    ObjectType::try_from(object_type) == Ok(ObjectType::ObjectSchema)
}

fn is_database(object_type: i32) -> bool {
    ObjectType::try_from(object_type) == Ok(ObjectType::ObjectDatabase)
}

/// Kinds that are refused whatever they say.
fn by_kind(node: &NodeEnum) -> Option<Refusal> {
    match node {
        NodeEnum::CreatedbStmt(_)
        | NodeEnum::DropdbStmt(_)
        | NodeEnum::AlterDatabaseStmt(_)
        | NodeEnum::AlterDatabaseRefreshCollStmt(_) => Some(refusal::DATABASE),
        NodeEnum::AlterSystemStmt(_) => Some(refusal::ALTER_SYSTEM),
        NodeEnum::CreateTableSpaceStmt(_)
        | NodeEnum::DropTableSpaceStmt(_)
        | NodeEnum::AlterTableSpaceOptionsStmt(_)
        | NodeEnum::AlterTableMoveAllStmt(_) => Some(refusal::TABLESPACE),
        NodeEnum::CreateFdwStmt(_)
        | NodeEnum::AlterFdwStmt(_)
        | NodeEnum::CreateForeignServerStmt(_)
        | NodeEnum::AlterForeignServerStmt(_)
        | NodeEnum::CreateForeignTableStmt(_)
        | NodeEnum::CreateUserMappingStmt(_)
        | NodeEnum::AlterUserMappingStmt(_)
        | NodeEnum::DropUserMappingStmt(_)
        | NodeEnum::ImportForeignSchemaStmt(_) => Some(refusal::FOREIGN),
        NodeEnum::CreatePublicationStmt(_)
        | NodeEnum::AlterPublicationStmt(_)
        | NodeEnum::CreateSubscriptionStmt(_)
        | NodeEnum::AlterSubscriptionStmt(_)
        | NodeEnum::DropSubscriptionStmt(_) => Some(refusal::LOGICAL_REPLICATION),
        NodeEnum::CreateEventTrigStmt(_) | NodeEnum::AlterEventTrigStmt(_) => Some(refusal::EVENT_TRIGGER),
        NodeEnum::LoadStmt(_) => Some(refusal::LOAD),
        _ => None,
    }
}

/// Kinds that are refused for what they say.
fn by_content(node: &NodeEnum) -> Option<Refusal> {
    match node {
        NodeEnum::DropStmt(statement) => match ObjectType::try_from(statement.remove_type) {
            Ok(ObjectType::ObjectEventTrigger) => Some(refusal::EVENT_TRIGGER),
            _ => None,
        },
        NodeEnum::RenameStmt(statement) => is_database(statement.rename_type).then_some(refusal::DATABASE),
        NodeEnum::AlterOwnerStmt(statement) => match ObjectType::try_from(statement.object_type) {
            Ok(ObjectType::ObjectDatabase) => Some(refusal::DATABASE),
            Ok(ObjectType::ObjectLargeobject) => Some(refusal::LARGE_OBJECT),
            _ => None,
        },
        NodeEnum::CreateExtensionStmt(statement) => {
            HARMFUL_EXTENSIONS.contains(&statement.extname.as_str()).then_some(refusal::EXTENSION)
        }
        NodeEnum::AlterTableStmt(statement) => alter_table(statement),
        NodeEnum::CreateStmt(statement) => statement.partbound.as_ref().and_then(computed_bound),
        NodeEnum::CreateSchemaStmt(statement) => schema_elements(statement),
        _ => sets_what_replication_needs(node).then_some(refusal::REPLICATION_SETTING),
    }
}

/// Whether a function, role or database is given a setting that replication depends on.
fn sets_what_replication_needs(node: &NodeEnum) -> bool {
    match node {
        NodeEnum::CreateFunctionStmt(statement) => {
            setting::attributes_unsettle_replication(&statement.options)
        }
        NodeEnum::AlterFunctionStmt(statement) => {
            setting::attributes_unsettle_replication(&statement.actions)
        }
        NodeEnum::AlterRoleSetStmt(statement) => {
            statement.setstmt.as_ref().is_some_and(setting::unsettles_sessions)
        }
        NodeEnum::AlterDatabaseSetStmt(statement) => {
            statement.setstmt.as_ref().is_some_and(setting::unsettles_sessions)
        }
        _ => false,
    }
}

/// CREATE SCHEMA can hold other statements.
fn schema_elements(statement: &CreateSchemaStmt) -> Option<Refusal> {
    let elements = statement.schema_elts.iter().filter_map(|element| element.node.as_ref());
    elements.map(|element| refusal_of(element, &AstScan::of(element))).find_map(|refusal| refusal)
}

fn alter_table(statement: &AlterTableStmt) -> Option<Refusal> {
    // A composite type has no rows of its own and no triggers.
    let commands = statement.cmds.iter().filter_map(|command| match &command.node {
        Some(NodeEnum::AlterTableCmd(command)) => Some(command),
        _ => None,
    });
    commands.map(|command| alter_table_command(command)).find_map(|refusal| refusal)
}

fn alter_table_command(command: &AlterTableCmd) -> Option<Refusal> {
    match AlterTableType::try_from(command.subtype) {
        Ok(
            AlterTableType::AtEnableTrigAll
            | AlterTableType::AtDisableTrigAll
            | AlterTableType::AtEnableTrigUser
            | AlterTableType::AtDisableTrigUser,
        ) => Some(refusal::TRIGGERS),
        Ok(
            AlterTableType::AtEnableAlwaysTrig
            | AlterTableType::AtEnableReplicaTrig
            | AlterTableType::AtEnableAlwaysRule
            | AlterTableType::AtEnableReplicaRule,
        ) => Some(refusal::FIRE_ON_APPLY),
        Ok(AlterTableType::AtSetUnLogged) => Some(refusal::UNLOGGED),
        Ok(_) => match command.def.as_ref().and_then(|definition| definition.node.as_ref()) {
            Some(NodeEnum::PartitionCmd(part)) => part.bound.as_ref().and_then(computed_bound),
            _ => None,
        },
        Err(_) => Some(refusal::UNKNOWN_KIND),
    }
}

/// The bounds of a partition are computed when it is made, by each replica at its own time. A cast to `regclass` or its kin
/// gives each replica another object id.
fn computed_bound(bound: &PartitionBoundSpec) -> Option<Refusal> {
    let scan = AstScan::of(bound);
    let computes = scan.sql_values || !scan.functions.is_empty();
    let is_object_id = |name: &Name| OBJECT_ID_TYPES.contains(&name.name.as_str());
    (computes || scan.types.iter().any(is_object_id)).then_some(refusal::COMPUTED_BOUND)
}

macro_rules! tags {
    ($($kind:ident)*) => {
        /// PostgreSQL's name of a schema change's node.
        fn tag(node: &NodeEnum) -> Option<&'static str> {
            match node {
                $(NodeEnum::$kind(_) => Some(stringify!($kind)),)*
                _ => None,
            }
        }
    };
}

tags! {
    AlterCollationStmt AlterDatabaseSetStmt AlterDefaultPrivilegesStmt AlterDomainStmt AlterEnumStmt
    AlterExtensionContentsStmt AlterExtensionStmt AlterFunctionStmt AlterObjectDependsStmt AlterObjectSchemaStmt
    AlterOpFamilyStmt AlterOperatorStmt AlterOwnerStmt AlterPolicyStmt AlterRoleSetStmt AlterRoleStmt AlterSeqStmt
    AlterStatsStmt AlterTableStmt AlterTsconfigurationStmt AlterTsdictionaryStmt AlterTypeStmt ClusterStmt CommentStmt
    CompositeTypeStmt CreateAmStmt CreateCastStmt CreateConversionStmt CreateDomainStmt CreateEnumStmt
    CreateExtensionStmt CreateFunctionStmt CreateOpClassStmt CreateOpFamilyStmt CreatePlangStmt CreatePolicyStmt
    CreateRangeStmt CreateRoleStmt CreateSchemaStmt CreateSeqStmt CreateStatsStmt CreateStmt CreateTransformStmt
    CreateTrigStmt DefineStmt DropOwnedStmt DropRoleStmt DropStmt GrantRoleStmt GrantStmt IndexStmt ReassignOwnedStmt
    RefreshMatViewStmt ReindexStmt RenameStmt RuleStmt SecLabelStmt ViewStmt
}
