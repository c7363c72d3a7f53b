//! A catalogue from the text of a schema, without a server.
//!
//! It serves tests, and `onecopy explain`, which classifies statements before there is a cluster. The text is written by
//! `pg_dump --schema-only` or by hand: CREATE TABLE, INDEX, VIEW, FUNCTION and their kin, in an order that a server would
//! take. Object numbers are made up; built-in functions are those of PostgreSQL 15.
//!
//! Invariant: each statement that was not understood is in [`Schema::left_out`], so that a conclusion can be shown with
//! its limits. Non-goals: checking the schema, search paths (an unqualified name is made in `public`), DROP.

mod code;
mod column;
mod constraint;
mod relation;
mod types;

use std::collections::BTreeMap;

use pg_query::NodeEnum;
use pg_query::protobuf::{DefineStmt, Node, ObjectType, RawStmt};

use crate::ast_scan::{AstScan, names_in};
use crate::catalogue::{Catalogue, ColumnDefault, Contents, Draws, SequenceId, Table, TableId, Volatility};
use crate::lexer::{self, Span};
use crate::name::Name;
use crate::parser::{self, Parsed};
use crate::script::SyntaxError;
use crate::setting;
use relation::Relations;
pub(crate) use types::FIRST_USER_OID;

/// Where unqualified names are made.
const DEFAULT_SCHEMA: &str = "public";

/// How much of a statement is shown when it is left out.
const SHOWN_BYTES: usize = 80;

/// The contents of a text of DDL.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Schema {
    /// The catalogue's contents.
    pub contents: Contents,
    /// Statements, or parts of them, that were not understood.
    pub left_out: Vec<LeftOut>,
}

/// A statement that was not understood, wholly or in part.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeftOut {
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// How it begins.
    pub statement: String,
    /// What is missing.
    pub why: String,
}

impl Schema {
    /// Reads the text of a schema.
    ///
    /// # Errors
    /// If PostgreSQL's parser does not accept it.
    pub fn from_ddl(text: &str) -> Result<Self, SyntaxError> {
        let mut reader = Reader::default();
        let text = &reader.without_commands(text);
        parser::with_deep_stack(move || {
            let Parsed::Trees(trees) = parser::parse(text, true)? else {
                return Err(SyntaxError::new("the schema is nested too deeply"));
            };
            for tree in &trees {
                reader.place(text, tree);
                if let Some(node) = tree.stmt.as_deref().and_then(|statement| statement.node.as_ref()) {
                    reader.statement(node);
                }
            }
            Ok(reader.finish())
        })
    }

    /// The catalogue of these contents.
    pub fn catalogue(self) -> Catalogue {
        Catalogue::new(self.contents)
    }
}

/// What was read so far.
#[derive(Default)]
struct Reader {
    contents: Contents,
    relations: Relations,
    left_out: Vec<LeftOut>,
    /// Users' collations: whether equality is that of bytes.
    collations: BTreeMap<String, bool>,
    /// The statement being read.
    line: usize,
    statement: String,
}

impl Reader {
    /// The text without lines that are commands of psql, of which dumps have some. Every other byte keeps its place.
    fn without_commands(&mut self, text: &str) -> String {
        let lines = text.split_inclusive('\n').enumerate().map(|(index, line)| {
            if !line.starts_with('\\') {
                return line.to_owned();
            }
            if !line.starts_with("\\restrict") && !line.starts_with("\\unrestrict") {
                self.line = index + 1;
                line.trim_end().clone_into(&mut self.statement);
                self.leave_out("a command of psql");
            }
            line.chars().map(|c| if c == '\n' { "\n".to_owned() } else { " ".repeat(c.len_utf8()) }).collect()
        });
        lines.collect()
    }

    fn place(&mut self, text: &str, tree: &RawStmt) {
        let start = usize::try_from(tree.stmt_location).unwrap_or(0).min(text.len());
        let length = usize::try_from(tree.stmt_len).unwrap_or(0);
        let end = if length == 0 { text.len() } else { text.len().min(start + length) };
        let Span { start, end } = lexer::trimmed(text.as_bytes(), Span { start, end });
        self.line = 1 + text[..start].matches('\n').count();
        let mut end = end.min(start + SHOWN_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text[start..end].lines().next().unwrap_or_default().clone_into(&mut self.statement);
    }

    fn leave_out(&mut self, why: impl Into<String>) {
        self.left_out.push(LeftOut { line: self.line, statement: self.statement.clone(), why: why.into() });
    }

    fn statement(&mut self, node: &NodeEnum) {
        match node {
            NodeEnum::CreateStmt(create) => self.table(create),
            NodeEnum::AlterTableStmt(alter) => self.alter(alter),
            NodeEnum::IndexStmt(index) => self.index(index),
            NodeEnum::ViewStmt(view) => self.view(view),
            NodeEnum::CreateTableAsStmt(statement) => self.table_as(statement),
            NodeEnum::CreateSeqStmt(sequence) => self.sequence(sequence),
            NodeEnum::CreateFunctionStmt(function) => self.function(function),
            NodeEnum::CreateTrigStmt(trigger) => self.trigger(trigger),
            NodeEnum::RuleStmt(rule) => self.rule(rule),
            NodeEnum::CreatePolicyStmt(policy) => self.policy(policy),
            NodeEnum::CreateEnumStmt(kind) => self.user_type(&kind.type_name),
            NodeEnum::CreateDomainStmt(kind) => self.user_type(&kind.domainname),
            NodeEnum::CreateRangeStmt(kind) => self.user_type(&kind.type_name),
            NodeEnum::CompositeTypeStmt(kind) => {
                self.contents.user_types.extend(kind.typevar.as_ref().map(|name| name.relname.clone()));
            }
            NodeEnum::CreateCastStmt(_) => self.contents.has_user_casts = true,
            NodeEnum::DefineStmt(define) => self.define(define),
            NodeEnum::CreateSchemaStmt(schema) => {
                for element in schema.schema_elts.iter().filter_map(|element| element.node.as_ref()) {
                    self.statement(element);
                }
                if !schema.schema_elts.is_empty() {
                    self.leave_out("elements of a schema are made in public");
                }
            }
            _ if has_no_part(node) => {}
            _ => self.leave_out("this kind of statement"),
        }
    }

    fn user_type(&mut self, names: &[Node]) {
        self.contents
            .user_types
            .extend(names.iter().map(names_in).filter_map(|mut parts| parts.pop()).next_back());
    }

    /// CREATE AGGREGATE, OPERATOR, TYPE and the like.
    fn define(&mut self, define: &DefineStmt) {
        let Some(name) = Name::from_parts(names_in(&define.defnames)) else {
            self.leave_out("a name");
            return;
        };
        match ObjectType::try_from(define.kind) {
            Ok(ObjectType::ObjectAggregate) => self.contents.user_functions.push(name.name),
            // Which operands it takes is not looked at, so it counts as one that could be chosen for built-in ones.
            Ok(ObjectType::ObjectOperator) => self.contents.user_operators.push(name.name),
            Ok(ObjectType::ObjectType) => self.contents.user_types.push(name.name),
            Ok(ObjectType::ObjectCollation) => {
                let says = |node: &Node| matches!(&node.node, Some(NodeEnum::DefElem(option)) if option.defname == "deterministic");
                let deterministic = !define.definition.iter().any(says)
                    || setting::switched_on(&define.definition, "deterministic");
                self.collations.insert(name.name, deterministic);
            }
            Ok(
                ObjectType::ObjectTsconfiguration
                | ObjectType::ObjectTsdictionary
                | ObjectType::ObjectTsparser
                | ObjectType::ObjectTstemplate,
            ) => {}
            _ => self.leave_out("what is defined"),
        }
    }

    fn finish(mut self) -> Schema {
        let functions = &self.contents.user_functions;
        let runs_code = |name: &Name| !name.may_be_built_in() || functions.contains(&name.name);
        let Relations { tables, parents, .. } = std::mem::take(&mut self.relations).finish(&runs_code);
        self.contents.drawing = drawing(&tables);
        self.contents.tables = tables;
        self.contents.parents = parents;
        self.contents.generation = 1;
        self.contents.builtin_functions = builtin_functions();
        Schema { contents: self.contents, left_out: self.left_out }
    }
}

/// What tables draw from by their defaults, the sequences numbered as they are met.
fn drawing(tables: &[Table]) -> Vec<(TableId, Draws)> {
    let mut numbers: BTreeMap<&Name, SequenceId> = BTreeMap::new();
    let mut found = Vec::new();
    for table in tables {
        let mut from = Vec::new();
        for column in &table.columns {
            if let ColumnDefault::Sequence(name) = &column.default {
                let next = table.id.database.sequence(u32::try_from(numbers.len()).unwrap_or(u32::MAX));
                from.push(*numbers.entry(name).or_insert(next));
            }
        }
        if !from.is_empty() {
            found.push((table.id, Draws::From(from)));
        }
    }
    found
}

/// Statements that change nothing which a catalogue holds: rights, comments, settings, rows.
fn has_no_part(node: &NodeEnum) -> bool {
    let harmless_query = || matches!(node, NodeEnum::SelectStmt(_)) && !AstScan::of(node).into;
    matches!(
        node,
        NodeEnum::VariableSetStmt(_)
            | NodeEnum::CommentStmt(_)
            | NodeEnum::GrantStmt(_)
            | NodeEnum::GrantRoleStmt(_)
            | NodeEnum::AlterOwnerStmt(_)
            | NodeEnum::AlterSeqStmt(_)
            | NodeEnum::AlterDefaultPrivilegesStmt(_)
            | NodeEnum::CreateRoleStmt(_)
            | NodeEnum::AlterRoleStmt(_)
            | NodeEnum::CreateStatsStmt(_)
            | NodeEnum::SecLabelStmt(_)
            | NodeEnum::TransactionStmt(_)
            | NodeEnum::InsertStmt(_)
            | NodeEnum::CopyStmt(_)
            | NodeEnum::VacuumStmt(_)
    ) || harmless_query()
}

/// The functions of PostgreSQL 15 by name, each with the worst volatility of that name.
fn builtin_functions() -> Vec<(String, Volatility)> {
    let mut volatility = Volatility::Volatile;
    let mut functions = Vec::new();
    for word in include_str!("schema/builtin_functions.txt").split_whitespace() {
        match word {
            "immutable:" => volatility = Volatility::Immutable,
            "stable:" => volatility = Volatility::Stable,
            "volatile:" => volatility = Volatility::Volatile,
            name => functions.push((name.to_owned(), volatility)),
        }
    }
    functions
}

#[cfg(test)]
mod tests;
