//! From a syntax tree to a [`Statement`].
//!
//! The kind of a statement is read off its topmost node; everything else off the scan of what the tree contains.
//! A kind that is not known is refused, since nothing could be promised about it.

use std::sync::Arc;

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CopyStmt, CreateTableAsStmt, DeclareCursorStmt, DiscardMode, DoStmt, ExplainStmt, LockWaitPolicy, Node,
    ObjectType, PrepareStmt, RangeVar, SelectStmt,
};

use crate::ast_scan::{AstScan, strings_in};
use crate::body;
use crate::ddl;
use crate::definition::Scope;
use crate::name::{Name, SYSTEM_SCHEMA, TEMPORARY_SCHEMA};
use crate::refusal::{self, Refusal, refused};
use crate::setting;
use crate::statement::{CopyDirection, DdlFacts, Discard, Maintenance, Opaque, RowEffect, Statement, Verb};
use crate::system_catalogue::is_catalogue;

/// Schemas that hold our own objects.
pub(crate) const OWN_SCHEMAS: [&str; 2] = ["onecopy", "onecopy_capture"];

/// Built-in functions that change large objects.
const LARGE_OBJECT_FUNCTIONS: [&str; 14] = [
    "lo_creat",
    "lo_create",
    "lo_export",
    "lo_from_bytea",
    "lo_import",
    "lo_lseek",
    "lo_lseek64",
    "lo_open",
    "lo_put",
    "lo_truncate",
    "lo_truncate64",
    "lo_unlink",
    "loread",
    "lowrite",
];

/// The option bit of DECLARE CURSOR that means WITH HOLD.
const CURSOR_HOLD: i32 = 0x20;

/// What a query tells about itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Inside {
    /// It is the whole statement.
    Nothing,
    /// It stands in another statement, so that a modification is one inside.
    Statement,
}

/// Classifies one statement.
pub(crate) fn classify(node: &Node) -> Statement {
    let Some(node) = &node.node else { return Statement::of(refused(refusal::UNKNOWN_KIND)) };
    query(node)
        .or_else(|| wrapping(node))
        .or_else(|| session(node))
        .or_else(|| utility(node))
        .unwrap_or_else(|| ddl::classify(node))
}

/// What a scan found in expressions that stand by themselves, as if they were selected.
pub(crate) fn classify_expression(mut scan: AstScan) -> Statement {
    if scan.into {
        scan.stranger = Some("IntoClause");
    }
    filled(Verb::Select, scan, Inside::Statement)
}

/// SELECT, INSERT, UPDATE, DELETE, MERGE.
fn query(node: &NodeEnum) -> Option<Statement> {
    let verb = match node {
        NodeEnum::SelectStmt(select) => return Some(self::select(select)),
        NodeEnum::InsertStmt(_) => Verb::Insert,
        NodeEnum::UpdateStmt(_) => Verb::Update,
        NodeEnum::DeleteStmt(_) => Verb::Delete,
        NodeEnum::MergeStmt(_) => Verb::Merge,
        _ => return None,
    };
    Some(filled(verb, AstScan::of(node), Inside::Nothing))
}

fn select(select: &SelectStmt) -> Statement {
    let scan = AstScan::of(select);
    if scan.into {
        let relation = select.into_clause.as_ref().and_then(|into| into.rel.as_ref());
        return made_from_query(relation, scan, "SelectStmt", RowEffect::Made);
    }
    let modifies_inside = scan.modifies;
    let mut statement = filled(Verb::Select, scan, Inside::Nothing);
    statement.modifies_inside |= modifies_inside;
    statement.settings = setting::setting_calls(select);
    statement.nowait = select.locking_clause.iter().any(is_nowait);
    statement
}

fn is_nowait(node: &Node) -> bool {
    matches!(&node.node, Some(NodeEnum::LockingClause(locking))
        if locking.wait_policy() == LockWaitPolicy::LockWaitError)
}

/// A statement of a kind, with everything the scan found in it.
fn filled(verb: Verb, scan: AstScan, inside: Inside) -> Statement {
    if let Some(refusal) = refusal_of(&scan) {
        return Statement::of(refused(refusal));
    }
    let reads: Vec<Name> = scan.reads.into_iter().collect();
    let writes: Vec<Name> = scan.writes.into_iter().collect();
    // FOR UPDATE names aliases, so every relation of the statement counts as locked.
    let row_locks = if scan.locking { reads.clone() } else { Vec::new() };
    Statement {
        reads,
        with_names: scan.with_names.into_iter().collect(),
        transaction_time: scan.fleeting.tells_time || scan.functions.iter().any(tells_transaction_time),
        fleeting: scan.fleeting,
        writes,
        row_locks,
        functions: scan.functions.into_iter().collect(),
        operators: scan.operators.into_iter().collect(),
        types: scan.types.into_iter().collect(),
        column_names: scan.column_names.into_iter().collect(),
        modifies_inside: scan.modifies && inside == Inside::Statement,
        system_columns: scan.system_columns,
        fills_defaults: scan.fills_defaults,
        opaque: scan.stranger.map(Opaque::Node),
        ..Statement::of(verb)
    }
}

/// Whether a function of the server's own tells when the transaction began; `age` does if it has one argument.
fn tells_transaction_time(name: &Name) -> bool {
    matches!(name.name.as_str(), "now" | "transaction_timestamp" | "age")
}

/// What a query calls or writes that is not offered.
fn refusal_of(scan: &AstScan) -> Option<Refusal> {
    let own = |name: &Name| name.schema.as_deref().is_some_and(|schema| OWN_SCHEMAS.contains(&schema));
    let system = |name: &Name| match &name.schema {
        Some(schema) => schema == SYSTEM_SCHEMA,
        None => is_catalogue(&name.name),
    };
    if scan.writes.iter().any(own) {
        return Some(refusal::OWN_SCHEMA);
    }
    if scan.writes.iter().any(system) {
        return Some(refusal::SYSTEM_CATALOGUE);
    }
    scan.functions.iter().find_map(|name| {
        if name.may_be_built_in() && LARGE_OBJECT_FUNCTIONS.contains(&name.name.as_str()) {
            Some(refusal::LARGE_OBJECT)
        } else if name.name == "dblink" || name.name.starts_with("dblink_") {
            Some(refusal::DBLINK)
        } else {
            None
        }
    })
}

/// SELECT INTO, CREATE TABLE AS and CREATE MATERIALIZED VIEW.
fn made_from_query(
    relation: Option<&RangeVar>,
    scan: AstScan,
    tag: &'static str,
    rows: impl Fn(Name) -> RowEffect,
) -> Statement {
    let Some(relation) = relation else { return Statement::of(refused(refusal::UNKNOWN_KIND)) };
    if scan.unlogged {
        return Statement::of(refused(refusal::UNLOGGED));
    }
    if scan.schemas.iter().any(|schema| OWN_SCHEMAS.contains(&schema.as_str())) {
        return Statement::of(refused(refusal::OWN_SCHEMA));
    }
    let temporary = is_temporary(relation);
    let rows = if temporary { RowEffect::Same } else { rows(relation_name(relation)) };
    let relations: Vec<Name> = scan.made.iter().cloned().collect();
    // Every replica fills a materialized view for itself, so no other transaction may write meanwhile.
    let scope = match rows {
        RowEffect::Made(_) => Scope::made(relations.iter().map(|name| name.name.clone()).collect()),
        _ => Scope::Anything,
    };
    let facts = DdlFacts { temporary, tag, relations, rows, concurrently: false, scope };
    filled(Verb::Ddl(facts), scan, Inside::Statement)
}

/// Whether a relation that is being made, or is named, is a temporary one for certain.
pub(crate) fn is_temporary(relation: &RangeVar) -> bool {
    relation.relpersistence == "t" || relation.schemaname == TEMPORARY_SCHEMA
}

/// Statements around another one.
fn wrapping(node: &NodeEnum) -> Option<Statement> {
    match node {
        NodeEnum::ExplainStmt(statement) => Some(explain(statement)),
        NodeEnum::CopyStmt(statement) => Some(copy(statement)),
        NodeEnum::DeclareCursorStmt(statement) => Some(declare(statement)),
        NodeEnum::PrepareStmt(statement) => Some(prepare(statement)),
        NodeEnum::CreateTableAsStmt(statement) => Some(create_table_as(statement)),
        _ => None,
    }
}

/// A statement around another: it has all that the other has.
fn around(verb: Verb, inner: Statement) -> Statement {
    let modifies = matches!(inner.verb, Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge);
    Statement {
        verb,
        modifies_inside: inner.modifies_inside || modifies,
        inner: Some(Arc::new(inner.clone())),
        ..inner
    }
}

fn inner_of(query: Option<&Node>) -> Statement {
    query.map_or_else(|| Statement::of(refused(refusal::UNKNOWN_KIND)), classify)
}

fn explain(statement: &ExplainStmt) -> Statement {
    if setting::switched_on(&statement.options, "routing") {
        return Statement::of(Verb::ExplainRouting);
    }
    let analyze = setting::switched_on(&statement.options, "analyze");
    let inner = inner_of(statement.query.as_deref());
    if analyze && matches!(inner.verb, Verb::Refused { .. }) {
        return inner;
    }
    if analyze && matches!(&inner.verb, Verb::Ddl(facts) if !facts.temporary) {
        return Statement::of(refused(refusal::TABLE_AS));
    }
    around(Verb::Explain { analyze }, inner)
}

fn prepare(statement: &PrepareStmt) -> Statement {
    let inner = inner_of(statement.query.as_deref());
    if matches!(inner.verb, Verb::Refused { .. }) {
        return inner;
    }
    let mut types = AstScan::default();
    types.add(&statement.argtypes);
    let mut whole = around(Verb::Prepare { name: statement.name.clone() }, inner);
    whole.types.extend(types.types);
    whole
}

fn declare(statement: &DeclareCursorStmt) -> Statement {
    let inner = inner_of(statement.query.as_deref());
    if matches!(inner.verb, Verb::Refused { .. }) {
        return inner;
    }
    let hold = statement.options & CURSOR_HOLD != 0;
    around(Verb::DeclareCursor { name: statement.portalname.clone(), hold }, inner)
}

fn copy(statement: &CopyStmt) -> Statement {
    if statement.is_program || !statement.filename.is_empty() {
        return Statement::of(refused(refusal::SERVER_FILE));
    }
    let mut scan = AstScan::default();
    if let Some(query) = &statement.query {
        scan.add(query);
        if scan.into {
            return Statement::of(refused(refusal::TABLE_AS));
        }
    }
    if let Some(condition) = &statement.where_clause {
        scan.add(condition);
    }
    let table = statement.relation.as_ref().map(relation_name);
    let direction = if statement.is_from { CopyDirection::From } else { CopyDirection::To };
    if let Some(table) = &table {
        match direction {
            CopyDirection::From => scan.writes.insert(table.clone()),
            CopyDirection::To => scan.reads.insert(table.clone()),
        };
    }
    let freeze = setting::switched_on(&statement.options, "freeze");
    let columns = statement.attlist.len();
    let binary = setting::has_value(&statement.options, "format", "binary");
    filled(Verb::Copy { table, direction, stdio: true, freeze, columns, binary }, scan, Inside::Statement)
}

fn create_table_as(statement: &CreateTableAsStmt) -> Statement {
    let relation = statement.into.as_ref().and_then(|into| into.rel.as_ref());
    let mut scan = AstScan::of(statement);
    let query = statement.query.as_deref().and_then(|query| query.node.as_ref());
    if matches!(query, Some(NodeEnum::ExecuteStmt(_))) {
        scan.stranger = Some("ExecuteStmt");
    } else if let Some(query) = query.filter(|_| relation.is_some_and(is_temporary)) {
        // Others can see what the query does, and nothing else.
        scan.stranger = AstScan::of(query).stranger;
    }
    let is_view = ObjectType::try_from(statement.objtype) == Ok(ObjectType::ObjectMatview);
    let is_empty = statement.into.as_ref().is_some_and(|into| into.skip_data);
    made_from_query(relation, scan, "CreateTableAsStmt", |name| match (is_view, is_empty) {
        (true, true) => RowEffect::Same,
        (true, false) => RowEffect::Viewed(name),
        (false, _) => RowEffect::Made(name),
    })
}

/// A relation's name as it was written.
pub(crate) fn relation_name(relation: &RangeVar) -> Name {
    let schema = (!relation.schemaname.is_empty()).then(|| relation.schemaname.clone());
    Name { schema, name: relation.relname.clone() }
}

/// Statements about transactions, settings and the session itself.
fn session(node: &NodeEnum) -> Option<Statement> {
    let verb = match node {
        NodeEnum::TransactionStmt(statement) => setting::transaction(statement),
        NodeEnum::VariableSetStmt(statement) => setting::set(statement),
        NodeEnum::VariableShowStmt(statement) => Verb::Show(statement.name.to_ascii_lowercase()),
        NodeEnum::ConstraintsSetStmt(_) => Verb::SetConstraints,
        NodeEnum::DiscardStmt(statement) => match DiscardMode::try_from(statement.target) {
            Ok(DiscardMode::DiscardPlans) => Verb::Discard(Discard::Plans),
            Ok(DiscardMode::DiscardSequences) => Verb::Discard(Discard::Sequences),
            Ok(DiscardMode::DiscardTemp) => Verb::Discard(Discard::Temporary),
            Ok(DiscardMode::DiscardAll | DiscardMode::Undefined) | Err(_) => Verb::Discard(Discard::All),
        },
        NodeEnum::ExecuteStmt(statement) => {
            let mut scan = AstScan::default();
            scan.add(&statement.params);
            return Some(filled(Verb::Execute { name: statement.name.clone() }, scan, Inside::Statement));
        }
        NodeEnum::DeallocateStmt(statement) => {
            Verb::Deallocate((!statement.isall).then(|| statement.name.clone()))
        }
        NodeEnum::FetchStmt(_) => Verb::Fetch,
        NodeEnum::ClosePortalStmt(_) => Verb::ClosePortal,
        NodeEnum::ListenStmt(_) => Verb::Listen,
        NodeEnum::UnlistenStmt(_) => Verb::Unlisten,
        NodeEnum::NotifyStmt(_) => Verb::Notify,
        _ => return None,
    };
    Some(Statement::of(verb))
}

/// The source of a DO block in PL/pgSQL.
fn block(statement: &DoStmt) -> Option<String> {
    let mut source = None;
    for option in &statement.args {
        let Some(NodeEnum::DefElem(option)) = &option.node else { return None };
        let value = strings_in(&option.arg).into_iter().next()?;
        match option.defname.as_str() {
            "as" => source = Some(value),
            "language" if value == "plpgsql" => {}
            _ => return None,
        }
    }
    source
}

/// LOCK, TRUNCATE, DO, CALL and maintenance.
fn utility(node: &NodeEnum) -> Option<Statement> {
    match node {
        NodeEnum::LockStmt(statement) => {
            let mut scan = AstScan::default();
            scan.add(&statement.relations);
            let row_locks = scan.reads.into_iter().collect();
            Some(Statement { row_locks, nowait: statement.nowait, ..Statement::of(Verb::Lock) })
        }
        NodeEnum::TruncateStmt(statement) => {
            let mut scan = AstScan::default();
            scan.add(&statement.relations);
            scan.writes = std::mem::take(&mut scan.reads);
            Some(filled(Verb::Truncate, scan, Inside::Nothing))
        }
        NodeEnum::DoStmt(statement) => {
            let block = block(statement).and_then(|source| body::block(&source)).map(Arc::new);
            Some(Statement { block, ..Statement::of(Verb::Do) })
        }
        NodeEnum::CallStmt(statement) => {
            let mut scan = AstScan::default();
            scan.add(&statement.funccall);
            Some(filled(Verb::Call, scan, Inside::Nothing))
        }
        NodeEnum::VacuumStmt(statement) => {
            let kind = if statement.is_vacuumcmd { Maintenance::Vacuum } else { Maintenance::Analyze };
            let mut scan = AstScan::default();
            scan.add(&statement.rels);
            Some(filled(Verb::Maintenance(kind), scan, Inside::Nothing))
        }
        NodeEnum::CheckPointStmt(_) => Some(Statement::of(Verb::Maintenance(Maintenance::Checkpoint))),
        _ => None,
    }
}
