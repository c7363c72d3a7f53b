//! Expressions: every kind of node that may stand in one, each with all of its parts.

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AExpr, AExprKind, AIndirection, CaseExpr, ColumnRef, Node, ResTarget, SubLink, SubLinkType, TypeCast,
    TypeName, a_const,
};

use super::walk::Walk;
use super::{Why, clock};
use crate::ast_scan::names_in;
use crate::builtin::{self, Builtin, SYSTEM_COLUMNS};
use crate::catalogue::Volatility;
use crate::name::Name;

impl Walk<'_> {
    pub(super) fn optional(&mut self, node: Option<&Node>) {
        if let Some(node) = node {
            self.expression(node);
        }
    }

    pub(super) fn expressions<'n>(&mut self, nodes: impl IntoIterator<Item = &'n Node>) {
        for node in nodes {
            self.expression(node);
        }
    }

    /// Visits an expression with all its parts.
    pub(super) fn expression(&mut self, node: &Node) {
        let Some(node) = &node.node else { return };
        self.count();
        match node {
            NodeEnum::ColumnRef(column) => self.column_reference(column),
            NodeEnum::ParamRef(parameter) => self.parameter(*parameter),
            NodeEnum::AConst(constant) => {
                if let Some(a_const::Val::Sval(text)) = &constant.val
                    && clock::may_read_clock(&text.sval)
                {
                    self.note(Why::ClockWord);
                }
            }
            NodeEnum::AExpr(operator) => self.operator(operator),
            NodeEnum::TypeCast(cast) => self.cast(cast),
            NodeEnum::FuncCall(call) => self.call(call),
            NodeEnum::SqlvalueFunction(value) => self.sql_value(value),
            NodeEnum::SubLink(link) => self.sub_link(link),
            NodeEnum::CaseExpr(case) => self.case(case),
            NodeEnum::AIndirection(indirection) => self.indirection(indirection),
            NodeEnum::ResTarget(target) => self.target(target),
            NodeEnum::BoolExpr(list) => self.expressions(&list.args),
            NodeEnum::CoalesceExpr(list) => self.expressions(&list.args),
            NodeEnum::MinMaxExpr(list) => self.expressions(&list.args),
            NodeEnum::RowExpr(list) => self.expressions(&list.args),
            NodeEnum::AArrayExpr(list) => self.expressions(&list.elements),
            NodeEnum::List(list) => self.expressions(&list.items),
            NodeEnum::GroupingFunc(list) => self.expressions(&list.args),
            NodeEnum::NullTest(test) => self.optional(test.arg.as_deref()),
            NodeEnum::BooleanTest(test) => self.optional(test.arg.as_deref()),
            NodeEnum::CollateClause(collate) => self.optional(collate.arg.as_deref()),
            NodeEnum::NamedArgExpr(named) => self.optional(named.arg.as_deref()),
            NodeEnum::MultiAssignRef(reference) => {
                // Each column of a multiple assignment holds the whole source; it is one node in the tree's text.
                self.optional(reference.source.as_deref());
            }
            NodeEnum::SortBy(sort) => {
                if let Some(name) = Name::from_parts(names_in(&sort.use_op)) {
                    self.operator_name(&name);
                }
                self.optional(sort.node.as_deref());
            }
            NodeEnum::GroupingSet(set) => self.expressions(&set.content),
            NodeEnum::CurrentOfExpr(_) => self.note(Why::Cursor),
            // Which value stands for a column's default is known where the target is.
            NodeEnum::SetToDefault(_) => {}
            _ => self.note(Why::NotUnderstood("an expression")),
        }
    }

    fn target(&mut self, target: &ResTarget) {
        self.indices(&target.indirection);
        self.optional(target.val.as_deref());
    }

    fn column_reference(&mut self, column: &ColumnRef) {
        let fields = names_in(&column.fields);
        let Some(name) = fields.last() else { return };
        if SYSTEM_COLUMNS.contains(&name.as_str()) {
            self.note(Why::SystemColumn(name.clone()));
        }
        // A qualified name that is no column may be a call in functional notation.
        if fields.len() > 1 && self.column(&fields).is_none() {
            self.functional_notation(name);
        }
    }

    fn functional_notation(&mut self, name: &str) {
        if self.catalogue.is_user_function(name) {
            self.note(Why::UserFunction(Name::bare(name)));
        }
        let volatility = self.catalogue.builtin_volatility(name);
        let harmful = volatility.is_some_and(|volatility| volatility != Volatility::Immutable);
        if harmful || volatility.is_some() && builtin::function(name) != Builtin::Harmless {
            self.note(Why::Function(Name::bare(name)));
        }
    }

    /// Subscripts and fields.
    fn indices(&mut self, indirection: &[Node]) {
        for part in indirection {
            match &part.node {
                Some(NodeEnum::AIndices(indices)) => {
                    self.count();
                    self.optional(indices.lidx.as_deref());
                    self.optional(indices.uidx.as_deref());
                }
                Some(NodeEnum::String(field)) => {
                    if SYSTEM_COLUMNS.contains(&field.sval.as_str()) {
                        self.note(Why::SystemColumn(field.sval.clone()));
                    }
                    self.functional_notation(&field.sval);
                }
                _ => {}
            }
        }
    }

    fn indirection(&mut self, indirection: &AIndirection) {
        self.optional(indirection.arg.as_deref());
        self.indices(&indirection.indirection);
    }

    fn case(&mut self, case: &CaseExpr) {
        self.optional(case.arg.as_deref());
        for when in &case.args {
            if let Some(NodeEnum::CaseWhen(when)) = &when.node {
                self.count();
                self.optional(when.expr.as_deref());
                self.optional(when.result.as_deref());
            }
        }
        self.optional(case.defresult.as_deref());
    }

    fn operator(&mut self, operator: &AExpr) {
        let parts = names_in(&operator.name);
        let special = AExprKind::try_from(operator.kind);
        match special {
            Ok(
                AExprKind::AexprBetween
                | AExprKind::AexprNotBetween
                | AExprKind::AexprBetweenSym
                | AExprKind::AexprNotBetweenSym,
            ) => {
                for name in ["<", "<=", ">", ">="] {
                    self.operator_name(&Name::bare(name));
                }
            }
            Ok(AExprKind::Undefined) | Err(_) => self.note(Why::NotUnderstood("an operator")),
            Ok(_) => match Name::from_parts(parts) {
                Some(name) => self.operator_name(&name),
                None => self.note(Why::NotUnderstood("an operator's name")),
            },
        }
        self.optional(operator.lexpr.as_deref());
        self.optional(operator.rexpr.as_deref());
    }

    fn operator_name(&mut self, name: &Name) {
        if !name.may_be_built_in() || self.catalogue.is_user_operator(&name.name) {
            self.note(Why::UserOperator(name.clone()));
        }
    }

    fn cast(&mut self, cast: &TypeCast) {
        let name = cast.type_name.as_ref().and_then(|of| self.type_name(of));
        let Some(argument) = cast.arg.as_deref() else { return };
        let constant = match &argument.node {
            Some(NodeEnum::AConst(constant)) => Some(constant),
            _ => None,
        };
        let Some(name) = name else {
            self.expression(argument);
            return;
        };
        if let Some(constant) = constant
            && !builtin::reads_clock(name.name.trim_start_matches('_'))
            && let Some(a_const::Val::Sval(_)) = &constant.val
        {
            // The constant's type is known, and it has no clock.
            self.count();
            return;
        }
        self.expression(argument);
        if constant.is_none() {
            self.becomes_clock_type(&name, argument);
        }
    }

    /// A value becomes a value of a type: if that is a date or time, it must not be a text that is not known.
    pub(super) fn becomes_clock_type(&mut self, name: &Name, argument: &Node) {
        // Parameters are for the caller to look at; see `Determinism`.
        let looked_at = matches!(argument.node, Some(NodeEnum::ParamRef(_)));
        let clocked = builtin::reads_clock(name.name.trim_start_matches('_')) || name.name == "record";
        if clocked && !looked_at && !self.kind(argument).is_no_text() {
            self.note(Why::ClockCast(name.clone()));
        }
    }

    /// Looks at a type that a cast names.
    pub(super) fn type_name(&mut self, of: &TypeName) -> Option<Name> {
        self.expressions(&of.typmods);
        if of.setof || of.pct_type {
            self.note(Why::NotUnderstood("a type taken from a column"));
            return None;
        }
        let Some(name) = Name::from_parts(names_in(&of.names)) else {
            self.note(Why::NotUnderstood("a type's name"));
            return None;
        };
        let plain = name.may_be_built_in()
            && builtin::type_name(&name.name) == Builtin::Harmless
            && !(name.schema.is_none() && self.catalogue.is_user_type(&name.name));
        if !plain {
            self.note(Why::Type(name.clone()));
        }
        Some(name)
    }

    fn sub_link(&mut self, link: &SubLink) {
        if let Some(name) = Name::from_parts(names_in(&link.oper_name)) {
            self.operator_name(&name);
        }
        self.optional(link.testexpr.as_deref());
        let once = std::mem::take(&mut self.once);
        if let Some(query) = link.subselect.as_deref() {
            match SubLinkType::try_from(link.sub_link_type) {
                Ok(SubLinkType::ExistsSublink) => self.existence(query),
                Ok(SubLinkType::ArraySublink) => self.array(query),
                Ok(
                    SubLinkType::AllSublink
                    | SubLinkType::AnySublink
                    | SubLinkType::RowcompareSublink
                    | SubLinkType::ExprSublink
                    | SubLinkType::MultiexprSublink,
                ) => self.query(query),
                _ => self.note(Why::NotUnderstood("a sub-query")),
            }
        }
        self.once = once;
    }
}
