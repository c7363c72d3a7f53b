//! Calls: what a function depends on, what can be put in its place.

use pg_query::NodeEnum;
use pg_query::protobuf::{FuncCall, Node, SqlValueFunction, SqlValueFunctionOp, a_const};

use super::rewrite::{Bind, Evaluate, Fragment};
use super::walk::Walk;
use super::{SHIPPED_SETTINGS, Why, aggregate};
use crate::ast_scan::names_in;
use crate::builtin::{self, Builtin};
use crate::catalogue::Volatility;
use crate::name::Name;

/// Stable functions that depend on nothing but their arguments and the shipped settings; sorted.
const BY_SETTINGS: [&str; 50] = [
    "array_to_json",
    "array_to_string",
    "concat",
    "concat_ws",
    "date_add",
    "date_part",
    "date_subtract",
    "date_trunc",
    "extract",
    "format",
    "generate_series",
    "isfinite",
    "json_build_array",
    "json_build_object",
    "json_object",
    "json_to_tsvector",
    "jsonb_build_array",
    "jsonb_build_object",
    "jsonb_object",
    "jsonb_path_exists_tz",
    "jsonb_path_match_tz",
    "jsonb_path_query_array_tz",
    "jsonb_path_query_first_tz",
    "jsonb_path_query_tz",
    "jsonb_to_tsvector",
    "make_interval",
    "make_timestamptz",
    "num_nonnulls",
    "num_nulls",
    "overlaps",
    "phraseto_tsquery",
    "plainto_tsquery",
    "quote_ident",
    "quote_literal",
    "quote_nullable",
    "row_to_json",
    "timezone",
    "to_char",
    "to_date",
    "to_json",
    "to_jsonb",
    "to_number",
    "to_timestamp",
    "to_tsquery",
    "to_tsvector",
    "ts_headline",
    "tstzrange",
    "websearch_to_tsquery",
    "xml_is_well_formed",
    "xmlcomment",
];

/// Volatile functions whose value can be obtained in advance, with its type: those without arguments, and `nextval`.
const TO_EVALUATE: [(&str, &str); 7] = [
    ("clock_timestamp", "timestamptz"),
    ("gen_random_uuid", "uuid"),
    ("nextval", "int8"),
    ("random", "float8"),
    ("timeofday", "text"),
    ("uuidv4", "uuid"),
    ("uuidv7", "uuid"),
];

/// The cast of an instant that gives a time word's value; `None` for words that are not about time.
pub(super) fn clock_cast(op: i32, typmod: i32) -> Option<String> {
    const INSTANT: &str = "::pg_catalog.timestamptz";
    let to = match SqlValueFunctionOp::try_from(op) {
        Ok(SqlValueFunctionOp::SvfopCurrentDate) => "::pg_catalog.date",
        Ok(SqlValueFunctionOp::SvfopCurrentTime) => "::pg_catalog.timetz",
        Ok(SqlValueFunctionOp::SvfopCurrentTimestamp) => "",
        Ok(SqlValueFunctionOp::SvfopLocaltime) => "::pg_catalog.time",
        Ok(SqlValueFunctionOp::SvfopLocaltimestamp) => "::pg_catalog.timestamp",
        Ok(SqlValueFunctionOp::SvfopCurrentTimeN) => {
            return Some(format!("{INSTANT}::pg_catalog.timetz({typmod})"));
        }
        Ok(SqlValueFunctionOp::SvfopCurrentTimestampN) => return Some(format!("{INSTANT}({typmod})")),
        Ok(SqlValueFunctionOp::SvfopLocaltimeN) => {
            return Some(format!("{INSTANT}::pg_catalog.time({typmod})"));
        }
        Ok(SqlValueFunctionOp::SvfopLocaltimestampN) => {
            return Some(format!("{INSTANT}::pg_catalog.timestamp({typmod})"));
        }
        _ => return None,
    };
    Some(format!("{INSTANT}{to}"))
}

/// Whether a call is one that a rewrite replaces, so that an unnamed column would lose its name.
pub(super) fn is_replaced(node: &Node) -> Option<String> {
    match &node.node {
        Some(NodeEnum::FuncCall(call)) => {
            let name = names_in(&call.funcname).pop()?;
            let replaced = is_transaction_time(&name)
                || name == "statement_timestamp"
                || TO_EVALUATE.iter().any(|(volatile, _)| *volatile == name);
            replaced.then_some(name)
        }
        Some(NodeEnum::SqlvalueFunction(value)) => {
            clock_cast(value.op, value.typmod)?;
            let name = match SqlValueFunctionOp::try_from(value.op) {
                Ok(SqlValueFunctionOp::SvfopCurrentDate) => "current_date",
                Ok(SqlValueFunctionOp::SvfopCurrentTime | SqlValueFunctionOp::SvfopCurrentTimeN) => {
                    "current_time"
                }
                Ok(SqlValueFunctionOp::SvfopLocaltime | SqlValueFunctionOp::SvfopLocaltimeN) => "localtime",
                Ok(SqlValueFunctionOp::SvfopLocaltimestamp | SqlValueFunctionOp::SvfopLocaltimestampN) => {
                    "localtimestamp"
                }
                _ => "current_timestamp",
            };
            Some(name.to_owned())
        }
        _ => None,
    }
}

fn is_transaction_time(name: &str) -> bool {
    matches!(name, "now" | "transaction_timestamp")
}

impl Walk<'_> {
    /// CURRENT_TIMESTAMP, CURRENT_USER and the like.
    pub(super) fn sql_value(&mut self, value: &SqlValueFunction) {
        if let Some(cast) = clock_cast(value.op, value.typmod) {
            self.put(value.location, Bind::Transaction, cast);
            return;
        }
        let by_role = matches!(
            SqlValueFunctionOp::try_from(value.op),
            Ok(SqlValueFunctionOp::SvfopCurrentRole
                | SqlValueFunctionOp::SvfopCurrentUser
                | SqlValueFunctionOp::SvfopUser
                | SqlValueFunctionOp::SvfopCurrentCatalog
                | SqlValueFunctionOp::SvfopCurrentSchema)
        );
        // The session's user is not the role that statements run under.
        if !by_role {
            self.note(Why::Setting("session_authorization".to_owned()));
        }
    }

    /// A call with its arguments.
    pub(super) fn call(&mut self, call: &FuncCall) {
        let Some(name) = Name::from_parts(names_in(&call.funcname)) else {
            self.note(Why::NotUnderstood("a function's name"));
            return;
        };
        if !name.may_be_built_in() || self.catalogue.is_user_function(&name.name) {
            self.note(Why::UserFunction(name.clone()));
        } else if aggregate::is_any(&name.name) {
            self.aggregate(&name, call);
        } else if call.over.is_some()
            || call.agg_filter.is_some()
            || !call.agg_order.is_empty()
            || call.agg_distinct
        {
            self.note(Why::AggregateOrder(name.clone()));
        } else if self.replaced(&name, call) {
            return;
        } else {
            self.scalar(&name, call);
        }
        self.expressions(&call.args);
        self.expressions(&call.agg_order);
        self.optional(call.agg_filter.as_deref());
        if let Some(window) = &call.over {
            self.window_parts(window);
        }
    }

    /// Puts something else in place of a call, if that can be done. Its arguments are counted then.
    fn replaced(&mut self, name: &Name, call: &FuncCall) -> bool {
        let bare = name.name.as_str();
        let no_arguments = call.args.is_empty();
        if no_arguments && (is_transaction_time(bare) || bare == "statement_timestamp") {
            let bind = if is_transaction_time(bare) { Bind::Transaction } else { Bind::Statement };
            self.put(call.location, bind, "::pg_catalog.timestamptz".to_owned());
            return true;
        }
        let type_name = TO_EVALUATE.iter().find(|(volatile, _)| *volatile == bare).map(|(_, of)| *of);
        let Some(type_name) = type_name.filter(|_| self.once) else { return false };
        let constants = if bare == "nextval" { is_constant_call(call) } else { no_arguments };
        if !constants || self.catalogue.builtin_volatility(bare).is_none() {
            return false;
        }
        self.count_constants(&call.args);
        let place = usize::try_from(call.location).ok().and_then(|start| self.tokens()?.call(start));
        let Some(place) = place else {
            self.note(Why::NotUnderstood("the place of a call"));
            return true;
        };
        if self.is_replaced_at(place) {
            return true;
        }
        let expression = self.subject.text[place.start..place.end].to_owned();
        let bind = Bind::Value(self.evaluate.len());
        self.evaluate.push(Evaluate { expression, type_name, start: place.start, end: place.end });
        self.replace(place, vec![Fragment::Bound(bind, format!("::pg_catalog.{type_name}"))]);
        true
    }

    /// Puts an instant in place of what begins at a location.
    fn put(&mut self, location: i32, bind: Bind, cast: String) {
        let place = usize::try_from(location).ok().and_then(|start| self.tokens()?.call(start));
        match place {
            Some(place) => self.replace(place, vec![Fragment::Bound(bind, cast)]),
            None => self.note(Why::NotUnderstood("the place of a call")),
        }
    }

    /// The arguments of a call that is evaluated elsewhere: constants and casts of them.
    fn count_constants(&mut self, nodes: &[Node]) {
        for node in nodes {
            self.count();
            if let Some(NodeEnum::TypeCast(cast)) = &node.node {
                self.count_constants(cast.arg.as_deref().map_or(&[], std::slice::from_ref));
            }
        }
    }

    /// A function that is neither an aggregate nor replaced.
    fn scalar(&mut self, name: &Name, call: &FuncCall) {
        let bare = name.name.as_str();
        if builtin::type_name(bare) == Builtin::Harmless && call.args.len() == 1 {
            // A cast in functional notation.
            self.becomes_clock_type(name, &call.args[0]);
        }
        if bare == "nextval" || bare == "setval" {
            self.note(Why::Sequence(sequence_name(call)));
            return;
        }
        if bare == "current_setting" {
            self.setting(name, call);
            return;
        }
        let sound = match self.catalogue.builtin_volatility(bare) {
            Some(Volatility::Immutable) => builtin::function(bare) == Builtin::Harmless,
            // The worst of all functions of that name: those of a type have its settings as well.
            Some(Volatility::Stable) => {
                BY_SETTINGS.binary_search(&bare).is_ok()
                    || matches!(bare, "current_schema" | "current_database" | "current_user")
                    || builtin::type_name(bare) == Builtin::Harmless
                    || bare == "age" && call.args.len() == 2
            }
            Some(Volatility::Volatile) | None => false,
        };
        if !sound {
            self.note(Why::Function(name.clone()));
        }
    }

    /// `current_setting` of a setting that travels with the statement.
    fn setting(&mut self, name: &Name, call: &FuncCall) {
        let constant = call.args.first().and_then(|node| match &node.node {
            Some(NodeEnum::AConst(constant)) => match &constant.val {
                Some(a_const::Val::Sval(text)) => Some(text.sval.to_ascii_lowercase()),
                _ => None,
            },
            _ => None,
        });
        match constant {
            Some(setting) if SHIPPED_SETTINGS.contains(&setting.as_str()) => {}
            Some(setting) => self.note(Why::Setting(setting)),
            None => self.note(Why::Function(name.clone())),
        }
    }
}

/// Whether all arguments are constants, or constants with a cast.
fn is_constant_call(call: &FuncCall) -> bool {
    call.args.iter().all(|node| match &node.node {
        Some(NodeEnum::AConst(_)) => true,
        Some(NodeEnum::TypeCast(cast)) => {
            let plain = cast.type_name.as_ref().is_some_and(|of| of.typmods.is_empty());
            plain
                && matches!(cast.arg.as_deref().and_then(|arg| arg.node.as_ref()), Some(NodeEnum::AConst(_)))
        }
        _ => false,
    })
}

/// The sequence that a call names, as far as that can be seen.
fn sequence_name(call: &FuncCall) -> Name {
    let mut texts = call.args.first().map(crate::ast_scan::strings_in).unwrap_or_default();
    Name::bare(if texts.is_empty() { "of an unknown name".to_owned() } else { texts.swap_remove(0) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted() {
        assert!(BY_SETTINGS.is_sorted());
    }
}
