//! Views, functions, triggers, rules and policies: what runs without being written in a statement.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    CreateFunctionStmt, CreatePolicyStmt, CreateTableAsStmt, CreateTrigStmt, DefElem, FunctionParameter,
    FunctionParameterMode, Node, ObjectType, RangeVar, RuleStmt, TypeName, ViewStmt,
};

use super::column::text_of;
use super::relation::made;
use super::types::type_of;
use super::{DEFAULT_SCHEMA, Reader};
use crate::ast_scan::{AstScan, names_in, strings_in};
use crate::builtin::{self, Builtin};
use crate::catalogue::{
    Argument, ArgumentMode, Body, Function, HeadTypes, Policy, Returns, Rule, Timing, Trigger,
    ViewDefinition, Volatility,
};
use crate::classify::relation_name;
use crate::name::Name;
use crate::parser;

/// Bits of a trigger's events and timing, as the server keeps them.
mod bits {
    pub(super) const BEFORE: i32 = 2;
    pub(super) const INSERT: i32 = 4;
    pub(super) const DELETE: i32 = 8;
    pub(super) const UPDATE: i32 = 16;
    pub(super) const TRUNCATE: i32 = 32;
    pub(super) const INSTEAD: i32 = 64;
}

impl Reader {
    /// CREATE VIEW.
    pub(super) fn view(&mut self, view: &ViewStmt) {
        self.defined(view.view.as_ref(), view.query.as_deref(), false);
    }

    /// CREATE MATERIALIZED VIEW. The columns of CREATE TABLE AS cannot be known here.
    pub(super) fn table_as(&mut self, statement: &CreateTableAsStmt) {
        let relation = statement.into.as_ref().and_then(|into| into.rel.as_ref());
        if ObjectType::try_from(statement.objtype) == Ok(ObjectType::ObjectMatview) {
            self.defined(relation, statement.query.as_deref(), true);
            return;
        }
        if let Some(relation) = relation {
            self.other_relation(&made(relation));
        }
        self.leave_out("the columns of a table that is made by a query");
    }

    fn defined(&mut self, relation: Option<&RangeVar>, query: Option<&Node>, materialized: bool) {
        let (Some(relation), Some(query)) = (relation, query) else { return };
        let name = made(relation);
        let definition = query.node.clone().and_then(parser::statement_text);
        if definition.is_none() {
            self.leave_out("the query of a view");
        }
        self.contents.views.push(ViewDefinition {
            schema: name.schema.unwrap_or_default(),
            name: name.name,
            definition: definition.unwrap_or_default(),
            materialized,
            ..ViewDefinition::default()
        });
    }

    /// CREATE FUNCTION and CREATE PROCEDURE.
    pub(super) fn function(&mut self, create: &CreateFunctionStmt) {
        let Some(name) = Name::from_parts(names_in(&create.funcname)) else {
            self.leave_out("a function's name");
            return;
        };
        let parameters: Vec<&FunctionParameter> = create
            .parameters
            .iter()
            .filter_map(|node| match &node.node {
                Some(NodeEnum::FunctionParameter(parameter)) => Some(&**parameter),
                _ => None,
            })
            .collect();
        let return_type = create.return_type.as_ref();
        let types = parameters.iter().filter_map(|parameter| parameter.arg_type.as_ref()).chain(return_type);
        let defaults: Vec<String> =
            parameters.iter().filter_map(|parameter| parameter.defexpr.as_deref()).map(text_of).collect();
        let table = parameters.iter().any(|one| one.mode == FunctionParameterMode::FuncParamTable as i32);
        self.contents.user_functions.push(name.name.clone());
        self.contents.functions.push(Function {
            schema: name.schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned()),
            name: name.name,
            volatility: volatility(&create.options),
            body: body(create),
            arguments: parameters.iter().map(|parameter| argument(parameter)).collect(),
            returns: returns(create),
            returns_set: table || return_type.is_some_and(|of| of.setof),
            defaults: defaults.join(", "),
            settings: options(&create.options, "set").filter_map(setting_name).collect(),
            types: types.map(head_type).max().unwrap_or_default(),
        });
    }

    /// CREATE TRIGGER.
    pub(super) fn trigger(&mut self, create: &CreateTrigStmt) {
        let Some(function) = Name::from_parts(names_in(&create.funcname)) else { return };
        let on = |bit: i32| create.events & bit != 0;
        let condition = create.when_clause.as_deref().map(AstScan::of).unwrap_or_default();
        let own_operators = condition.operators.iter().any(|name| !name.may_be_built_in());
        let trigger = Trigger {
            name: create.trigname.clone(),
            timing: match create.timing {
                timing if timing & bits::INSTEAD != 0 => Timing::InsteadOf,
                timing if timing & bits::BEFORE != 0 => Timing::Before,
                _ => Timing::After,
            },
            on_insert: on(bits::INSERT),
            on_update: on(bits::UPDATE),
            on_delete: on(bits::DELETE),
            on_truncate: on(bits::TRUNCATE),
            each_row: create.row,
            function,
            enabled: true,
            deferrable: create.deferrable,
            condition_runs_code: own_operators || !condition.functions.is_empty(),
        };
        self.contents.has_deferrable |= create.deferrable;
        let Some(name) = create.relation.as_ref().map(relation_name) else { return };
        if let Some(at) = self.relations.find(&name) {
            self.relations.building[at].table.triggers.push(trigger);
        } else if let Some(view) = self.view_named(&name) {
            view.triggers.push(trigger);
        } else {
            self.leave_out(format!("no table {name}"));
        }
    }

    /// CREATE RULE.
    pub(super) fn rule(&mut self, create: &RuleStmt) {
        let rule = Rule {
            name: create.rulename.clone(),
            definition: parser::statement_text(NodeEnum::RuleStmt(Box::new(create.clone())))
                .unwrap_or_default(),
        };
        let Some(name) = create.relation.as_ref().map(relation_name) else { return };
        if let Some(at) = self.relations.find(&name) {
            self.relations.building[at].table.rules.push(rule);
        } else if let Some(view) = self.view_named(&name) {
            view.rules.push(rule);
        } else {
            self.leave_out(format!("no table {name}"));
        }
    }

    /// CREATE POLICY.
    pub(super) fn policy(&mut self, create: &CreatePolicyStmt) {
        let expressions = [&create.qual, &create.with_check].into_iter().flatten();
        let policy = Policy {
            name: create.policy_name.clone(),
            expressions: expressions.map(|expression| text_of(expression)).collect(),
        };
        let Some(name) = create.table.as_ref().map(relation_name) else { return };
        match self.relations.find(&name) {
            Some(at) => self.relations.building[at].table.policies.push(policy),
            None => self.leave_out(format!("no table {name}")),
        }
    }

    fn view_named(&mut self, name: &Name) -> Option<&mut ViewDefinition> {
        let fits = |view: &ViewDefinition| {
            view.name == name.name && name.schema.as_ref().is_none_or(|schema| *schema == view.schema)
        };
        self.contents.views.iter_mut().find(|view| fits(view))
    }
}

/// The arguments of the options of a name.
fn options<'a>(nodes: &'a [Node], name: &'a str) -> impl Iterator<Item = &'a DefElem> {
    nodes.iter().filter_map(move |node| match &node.node {
        Some(NodeEnum::DefElem(option)) if option.defname == name => Some(&**option),
        _ => None,
    })
}

fn volatility(nodes: &[Node]) -> Volatility {
    let word = options(nodes, "volatility").flat_map(|option| strings_in(&option.arg)).next();
    match word.as_deref() {
        Some("immutable") => Volatility::Immutable,
        Some("stable") => Volatility::Stable,
        _ => Volatility::Volatile,
    }
}

/// The code, as far as there is a text of it in a language that is read.
fn body(create: &CreateFunctionStmt) -> Body {
    let language = options(&create.options, "language").flat_map(|option| strings_in(&option.arg)).next();
    let text = options(&create.options, "as").flat_map(|option| strings_in(&option.arg)).next();
    match (language.as_deref(), text) {
        (Some("sql"), Some(text)) => Body::Sql(text),
        (Some("plpgsql"), Some(text)) => Body::PlPgSql(text),
        _ => match create.sql_body.as_deref().and_then(|body| body.node.as_ref()) {
            Some(NodeEnum::ReturnStmt(value)) => match value.returnval.as_deref() {
                Some(value) => Body::Sql(format!("SELECT {}", text_of(value))),
                None => Body::Unknown,
            },
            Some(NodeEnum::List(lists)) => atomic(&lists.items).map_or(Body::Unknown, Body::Sql),
            _ => Body::Unknown,
        },
    }
}

/// BEGIN ATOMIC .. END: lists of statements.
fn atomic(lists: &[Node]) -> Option<String> {
    let mut texts = Vec::new();
    for list in lists {
        match &list.node {
            Some(NodeEnum::List(list)) => texts.push(atomic(&list.items)?),
            Some(statement) => texts.push(parser::statement_text(statement.clone())?),
            None => {}
        }
    }
    Some(texts.join("; "))
}

fn argument(parameter: &FunctionParameter) -> Argument {
    let mode = match FunctionParameterMode::try_from(parameter.mode) {
        Ok(FunctionParameterMode::FuncParamOut) => ArgumentMode::Out,
        Ok(FunctionParameterMode::FuncParamInout) => ArgumentMode::InOut,
        Ok(FunctionParameterMode::FuncParamTable) => ArgumentMode::Table,
        Ok(FunctionParameterMode::FuncParamVariadic) => ArgumentMode::Variadic,
        _ => ArgumentMode::In,
    };
    let type_oid = parameter.arg_type.as_ref().filter(|of| !of.pct_type).map_or(0, |of| type_of(of).oid);
    Argument { name: parameter.name.clone(), mode, type_oid }
}

fn returns(create: &CreateFunctionStmt) -> Returns {
    if create.is_procedure {
        return Returns::Procedure;
    }
    let name = create.return_type.as_ref().and_then(|of| names_in(&of.names).pop());
    match name.as_deref() {
        Some("void") => Returns::Void,
        Some("trigger") => Returns::Trigger,
        _ => Returns::Value,
    }
}

fn head_type(of: &TypeName) -> HeadTypes {
    match Name::from_parts(names_in(&of.names)) {
        Some(name) if name.name == "trigger" => HeadTypes::BuiltIn,
        Some(name) if name.may_be_built_in() => match builtin::type_name(&name.name) {
            Builtin::Harmless => HeadTypes::BuiltIn,
            Builtin::Catalogue => HeadTypes::Objects,
            Builtin::Unknown => HeadTypes::Coded,
        },
        _ => HeadTypes::Coded,
    }
}

/// The setting of a function's SET clause.
fn setting_name(option: &DefElem) -> Option<String> {
    match option.arg.as_deref().map(|node| &node.node) {
        Some(Some(NodeEnum::VariableSetStmt(set))) => Some(set.name.to_ascii_lowercase()),
        _ => None,
    }
}
