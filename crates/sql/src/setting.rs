//! Statements about transactions and settings: what they say, with values as PostgreSQL would store them.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AConst, DefElem, FuncCall, Node, SelectStmt, TransactionStmt, TransactionStmtKind, VariableSetKind,
    VariableSetStmt, a_const,
};

use crate::ast_scan::{number_in, strings_in};
use crate::refusal::{self, refused};
use crate::statement::{Isolation, SetValue, SettingCall, TransactionOptions, Verb};

/// Settings whose values are lists of identifiers, each quoted by itself.
const IDENTIFIER_LISTS: [&str; 6] = [
    "local_preload_libraries",
    "search_path",
    "session_preload_libraries",
    "shared_preload_libraries",
    "temp_tablespaces",
    "unix_socket_directories",
];

/// Settings that replication depends on, beside our own. Capture, the connections for reads, the reading of the
/// servers' messages, and that an index entry which fits at one replica fits at all, each rely on one of them.
const REPLICATION_DEPENDS_ON: [&str; 6] = [
    "backtrace_functions",
    "client_encoding",
    "default_toast_compression",
    "default_transaction_read_only",
    "lc_messages",
    "session_replication_role",
];

/// What our own settings begin with.
const OWN_PREFIX: &str = "onecopy.";

/// Those of our own that roles and databases may begin with.
const OF_SESSIONS: [&str; 3] = ["onecopy.home", "onecopy.ordering", "onecopy.sequences"];

/// BEGIN, COMMIT and their kin.
pub(crate) fn transaction(statement: &TransactionStmt) -> Verb {
    let name = || statement.savepoint_name.clone();
    let chain = statement.chain;
    match TransactionStmtKind::try_from(statement.kind) {
        Ok(TransactionStmtKind::TransStmtBegin | TransactionStmtKind::TransStmtStart) => {
            Verb::Begin(options(&statement.options))
        }
        Ok(TransactionStmtKind::TransStmtCommit) => Verb::Commit { chain },
        Ok(TransactionStmtKind::TransStmtRollback) => Verb::Rollback { chain },
        Ok(TransactionStmtKind::TransStmtSavepoint) => Verb::Savepoint(name()),
        Ok(TransactionStmtKind::TransStmtRelease) => Verb::Release(name()),
        Ok(TransactionStmtKind::TransStmtRollbackTo) => Verb::RollbackTo(name()),
        Ok(
            TransactionStmtKind::TransStmtPrepare
            | TransactionStmtKind::TransStmtCommitPrepared
            | TransactionStmtKind::TransStmtRollbackPrepared,
        ) => refused(refusal::TWO_PHASE),
        Ok(TransactionStmtKind::Undefined) | Err(_) => refused(refusal::UNKNOWN_KIND),
    }
}

/// SET and RESET in all their forms.
pub(crate) fn set(statement: &VariableSetStmt) -> Verb {
    let name = statement.name.to_ascii_lowercase();
    let local = statement.is_local;
    match VariableSetKind::try_from(statement.kind) {
        Ok(VariableSetKind::VarSetValue) => {
            let value = value(&name, &statement.args);
            Verb::Set { name, value, local }
        }
        Ok(VariableSetKind::VarSetDefault) => Verb::Set { name, value: SetValue::Default, local },
        Ok(VariableSetKind::VarSetCurrent) => Verb::Set { name, value: SetValue::Current, local },
        Ok(VariableSetKind::VarReset) => Verb::Reset(Some(name)),
        Ok(VariableSetKind::VarResetAll) => Verb::Reset(None),
        Ok(VariableSetKind::VarSetMulti) => match name.as_str() {
            "transaction" => Verb::SetTransaction(options(&statement.args)),
            "session characteristics" => Verb::SetSessionCharacteristics(options(&statement.args)),
            _ => refused(refusal::SNAPSHOT),
        },
        Ok(VariableSetKind::Undefined) | Err(_) => refused(refusal::UNKNOWN_KIND),
    }
}

/// Whether a definition gives a value to a setting that replication depends on. Taking one away does no harm.
pub(crate) fn unsettles_replication(statement: &VariableSetStmt) -> bool {
    let gives = matches!(
        VariableSetKind::try_from(statement.kind),
        Ok(VariableSetKind::VarSetValue | VariableSetKind::VarSetCurrent)
    );
    let name = statement.name.to_ascii_lowercase();
    gives && (name.starts_with(OWN_PREFIX) || REPLICATION_DEPENDS_ON.contains(&name.as_str()))
}

/// The same of what sessions of a role or database begin with, which may say what it wants of us.
pub(crate) fn unsettles_sessions(statement: &VariableSetStmt) -> bool {
    unsettles_replication(statement) && !OF_SESSIONS.contains(&statement.name.to_ascii_lowercase().as_str())
}

/// Whether one of a function's attributes does that.
pub(crate) fn attributes_unsettle_replication(attributes: &[Node]) -> bool {
    let values = attributes.iter().filter_map(def_elem).filter_map(|element| element.arg.as_deref());
    let mut settings = values.filter_map(|value| match &value.node {
        Some(NodeEnum::VariableSetStmt(statement)) => Some(statement),
        _ => None,
    });
    settings.any(unsettles_replication)
}

/// The options of BEGIN and SET TRANSACTION. The last of a kind holds, as in PostgreSQL.
fn options(nodes: &[Node]) -> TransactionOptions {
    let mut options = TransactionOptions::default();
    for element in nodes.iter().filter_map(def_elem) {
        let Some(arg) = &element.arg else { continue };
        match element.defname.as_str() {
            "transaction_isolation" => options.isolation = isolation(&strings_in(arg)).or(options.isolation),
            "transaction_read_only" => options.read_only = Some(number_in(arg) != 0),
            "transaction_deferrable" => options.deferrable = Some(number_in(arg) != 0),
            _ => {}
        }
    }
    options
}

fn isolation(words: &[String]) -> Option<Isolation> {
    match words.first()?.as_str() {
        "read uncommitted" => Some(Isolation::ReadUncommitted),
        "read committed" => Some(Isolation::ReadCommitted),
        "repeatable read" => Some(Isolation::RepeatableRead),
        "serializable" => Some(Isolation::Serializable),
        _ => None,
    }
}

/// The value of SET, as the text that SHOW would give back.
fn value(name: &str, args: &[Node]) -> SetValue {
    let mut parts = Vec::with_capacity(args.len());
    for arg in args {
        let Some(NodeEnum::AConst(constant)) = &arg.node else { return SetValue::Expression };
        let Some(text) = constant_text(constant) else { return SetValue::Expression };
        parts.push(if IDENTIFIER_LISTS.contains(&name) { quoted(text) } else { text });
    }
    SetValue::Text(parts.join(", "))
}

/// A constant as text; `None` for NULL and for what has no plain text.
fn constant_text(constant: &AConst) -> Option<String> {
    match constant.val.as_ref()? {
        a_const::Val::Ival(number) => Some(number.ival.to_string()),
        a_const::Val::Fval(number) => Some(number.fval.clone()),
        a_const::Val::Boolval(truth) => Some(truth.boolval.to_string()),
        a_const::Val::Sval(text) => Some(text.sval.clone()),
        a_const::Val::Bsval(_) => None,
    }
}

/// An identifier as PostgreSQL would write it. Quoting one that needs no quotes is harmless.
fn quoted(name: String) -> String {
    let starts_plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    let plain =
        starts_plain && name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_');
    if plain { name } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// What set_config calls at the top of a SELECT list would set.
pub(crate) fn setting_calls(select: &SelectStmt) -> Vec<SettingCall> {
    let targets = select.target_list.iter().filter_map(|node| match &node.node {
        Some(NodeEnum::ResTarget(target)) => target.val.as_deref()?.node.as_ref(),
        _ => None,
    });
    targets
        .filter_map(|node| match node {
            NodeEnum::FuncCall(call) => setting_call(call),
            _ => None,
        })
        .collect()
}

fn setting_call(call: &FuncCall) -> Option<SettingCall> {
    if strings_in(&call.funcname).last().map(String::as_str) != Some("set_config") {
        return None;
    }
    let text = |index: usize| match call.args.get(index).and_then(|arg| arg.node.as_ref())? {
        NodeEnum::AConst(constant) => constant_text(constant),
        _ => None,
    };
    let local = match call.args.get(2).and_then(|arg| arg.node.as_ref()) {
        Some(NodeEnum::AConst(constant)) => constant_text(constant).and_then(|text| truth(&text)),
        _ => None,
    };
    Some(SettingCall { name: text(0).map(|name| name.to_ascii_lowercase()), value: text(1), local })
}

/// What PostgreSQL makes of a truth value's text; `None` when it would not take it.
pub(crate) fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "on" | "yes" | "y" | "1" => Some(true),
        "f" | "false" | "off" | "no" | "n" | "0" => Some(false),
        _ => None,
    }
}

/// A node as an option.
pub(crate) fn def_elem(node: &Node) -> Option<&DefElem> {
    match &node.node {
        Some(NodeEnum::DefElem(element)) => Some(element),
        _ => None,
    }
}

/// Whether an option of this name has this value.
pub(crate) fn has_value(options: &[Node], name: &str, value: &str) -> bool {
    let mut named = options.iter().filter_map(def_elem).filter(|element| element.defname == name);
    named.any(|element| {
        element.arg.as_ref().is_some_and(|arg| strings_in(arg).first().is_some_and(|text| text == value))
    })
}

/// Whether an option of this name is switched on: given without a value, or with any value but a clear no.
pub(crate) fn switched_on(options: &[Node], name: &str) -> bool {
    options.iter().filter_map(def_elem).filter(|element| element.defname == name).any(
        |element| match &element.arg {
            None => true,
            Some(arg) => match strings_in(arg).first() {
                Some(text) => truth(text) != Some(false),
                None => number_in(arg) != 0,
            },
        },
    )
}
