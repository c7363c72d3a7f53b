//! A scan of a syntax tree for every name in it.
//!
//! The parser's tree has some 270 kinds of nodes, and a hand-written walk forgets one of them sooner or later. The
//! crate `pg_query` derives serde's `Serialize` for all of them, so the scan is a serializer that writes nothing. It
//! sees every field of every node, picks out the few that matter (relations, functions, operators, types, ...), and
//! notes each node that it does not expect. So a new kind of node makes a statement opaque and cannot be missed.
//!
//! Invariant: whatever the shape of the tree, each of its names is in the sets below. The scan knows no structure: code
//! that must know where a name stands (a predicate, a key) walks the typed nodes, with the scan as its check.

mod fields;
mod leaves;

use std::collections::BTreeSet;

use pg_query::protobuf::{RoleSpecType, SqlValueFunctionOp};
use serde::ser::Serialize;

use crate::builtin::SYSTEM_COLUMNS;
use crate::determinism::may_read_clock;
use crate::fleeting::Hints;
use crate::name::Name;
use crate::stand_ins::{is_replaced, is_replaced_relation};
pub(crate) use leaves::{kinds_in, names_in, number_in, strings_in};

/// No tree is deeper: the decoder stops at 100 levels of messages, each of which is at most five levels here.
const MAX_DEPTH: usize = 1000;

/// Kinds of nodes (beside those that [`AstScan::inspect`] looks into) that may stand in a query.
const QUERY_NODES: [&str; 64] = [
    "AArrayExpr",
    "AConst",
    "AIndices",
    "AStar",
    "Alias",
    "BitString",
    "BoolExpr",
    "Boolean",
    "BooleanTest",
    "CaseExpr",
    "CaseWhen",
    "CoalesceExpr",
    "CollateClause",
    "ColumnDef",
    "CteCycleClause",
    "CteSearchClause",
    "CurrentOfExpr",
    "Float",
    "GroupingFunc",
    "GroupingSet",
    "IndexElem",
    "InferClause",
    "Integer",
    "JoinExpr",
    "JsonAggConstructor",
    "JsonArgument",
    "JsonArrayAgg",
    "JsonArrayConstructor",
    "JsonArrayQueryConstructor",
    "JsonBehavior",
    "JsonFormat",
    "JsonFuncExpr",
    "JsonIsPredicate",
    "JsonKeyValue",
    "JsonObjectAgg",
    "JsonObjectConstructor",
    "JsonOutput",
    "JsonParseExpr",
    "JsonReturning",
    "JsonScalarExpr",
    "JsonSerializeExpr",
    "JsonTable",
    "JsonTableColumn",
    "JsonTablePathSpec",
    "JsonValueExpr",
    "List",
    "MergeSupportFunc",
    "MergeWhenClause",
    "MinMaxExpr",
    "MultiAssignRef",
    "NamedArgExpr",
    "NullTest",
    "OnConflictClause",
    "ParamRef",
    "RangeFunction",
    "RangeSubselect",
    "RangeTableFunc",
    "RangeTableFuncCol",
    "ResTarget",
    "ReturningClause",
    "ReturningOption",
    "RowExpr",
    "SetToDefault",
    "String",
];

/// The facts found in a tree.
#[derive(Default, Debug)]
pub(crate) struct AstScan {
    /// Relations that are neither targets nor newly made.
    pub(crate) reads: BTreeSet<Name>,
    /// Targets of INSERT, UPDATE, DELETE and MERGE.
    pub(crate) writes: BTreeSet<Name>,
    /// The tables that SELECT INTO and CREATE TABLE AS make.
    pub(crate) made: BTreeSet<Name>,
    pub(crate) with_names: BTreeSet<String>,
    pub(crate) functions: BTreeSet<Name>,
    /// How often functions are called, and relations read, for which there may be stand-ins.
    pub(crate) replaced_calls: usize,
    pub(crate) replaced_relations: usize,
    pub(crate) operators: BTreeSet<Name>,
    pub(crate) types: BTreeSet<Name>,
    pub(crate) column_names: BTreeSet<String>,
    pub(crate) system_columns: bool,
    /// FOR UPDATE and its kin.
    pub(crate) locking: bool,
    /// INSERT, UPDATE, DELETE or MERGE anywhere.
    pub(crate) modifies: bool,
    /// INTO anywhere.
    pub(crate) into: bool,
    /// CURRENT_TIMESTAMP, CURRENT_USER and the like.
    pub(crate) sql_values: bool,
    /// What makes an answer fleeting.
    pub(crate) fleeting: Hints,
    /// String constants that a date or time type would read off the clock.
    pub(crate) clock_words: bool,
    /// Schemas of relations, and first parts of all dotted names (of functions, types, dropped objects, ...).
    pub(crate) schemas: BTreeSet<String>,
    /// LIMIT and its kin, DISTINCT ON, TABLESAMPLE or a window: rows may be chosen by the order in which they come.
    pub(crate) chooses: bool,
    /// A relation is to be unlogged.
    pub(crate) unlogged: bool,
    /// INSERT, MERGE or DEFAULT anywhere: defaults of columns may be computed.
    pub(crate) fills_defaults: bool,
    /// How many nodes there are, names and the parts of types left out.
    pub(crate) nodes: usize,
    /// Where SESSION_USER stands for a role: bytes from the beginning of the text.
    pub(crate) session_users: Vec<i64>,
    /// A node that no query is known to have.
    pub(crate) stranger: Option<&'static str>,
    /// The next relation is a target, or newly made.
    place: Place,
    /// The present role is given as SESSION_USER.
    names_session_user: bool,
    /// The present call is one of `current_setting`.
    asks_setting: bool,
    depth: usize,
}

/// Whether a value such as CURRENT_USER is a name, and not a time. One that is not known is taken for a time.
fn tells_name(op: i64) -> bool {
    use SqlValueFunctionOp as Op;
    let op = i32::try_from(op).ok().and_then(|op| Op::try_from(op).ok());
    matches!(
        op,
        Some(
            Op::SvfopCurrentRole
                | Op::SvfopCurrentUser
                | Op::SvfopUser
                | Op::SvfopSessionUser
                | Op::SvfopCurrentCatalog
                | Op::SvfopCurrentSchema
        )
    )
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
enum Place {
    #[default]
    Read,
    Target,
    Made,
}

/// The walk ended early. It cannot fail otherwise.
#[derive(Debug)]
pub(crate) struct TooDeep;

impl AstScan {
    /// Counts what a tree contains.
    pub(crate) fn of<T: Serialize + ?Sized>(tree: &T) -> Self {
        let mut scan = Self::default();
        scan.add(tree);
        scan
    }

    /// Adds what another tree contains.
    pub(crate) fn add<T: Serialize + ?Sized>(&mut self, tree: &T) {
        if tree.serialize(&mut *self).is_err() {
            self.note_stranger("depth");
        }
    }

    /// Looks at one field of one node, before the walk goes into it.
    fn inspect<T: Serialize + ?Sized>(&mut self, node: &'static str, field: &'static str, value: &T) {
        match (node, field) {
            ("FuncCall", "funcname") => {
                let name = self.name_of("FuncCall", names_in(value));
                self.replaced_calls += usize::from(name.as_ref().is_some_and(is_replaced));
                self.asks_setting = name.as_ref().is_some_and(|name| name.name == "current_setting");
                self.functions.extend(name);
            }
            ("FuncCall", "args") => self.note_arguments(value),
            ("AExpr", "kind") => self.note_kind(number_in(value)),
            ("AExpr", "name") | ("SubLink", "oper_name") | ("SortBy", "use_op") => {
                self.note_operator(strings_in(value));
            }
            ("TypeName", "names") => {
                let name = self.name_of("TypeName", names_in(value));
                self.types.extend(name);
            }
            ("TypeName", "pct_type") if number_in(value) != 0 => self.note_stranger("TypeName of a column"),
            ("ColumnRef", "fields") => self.note_column(strings_in(value)),
            ("AIndirection", "indirection") => {
                for name in strings_in(value) {
                    self.note_field(name);
                }
            }
            ("CommonTableExpr", "ctename") => self.with_names.extend(strings_in(value)),
            ("SelectStmt", "limit_option") => self.chooses |= number_in(value) > 1,
            ("SelectStmt", "distinct_clause") => {
                self.chooses |= number_in(value) != 0 || !strings_in(value).is_empty();
            }
            ("WindowDef", "refname") => self.chooses = true,
            ("RangeTableSample", "method") => {
                self.chooses = true;
                self.fleeting.samples = true;
                let method = strings_in(value).pop().unwrap_or_default();
                if !matches!(method.as_str(), "bernoulli" | "system") {
                    self.note_stranger("RangeTableSample");
                }
            }
            ("InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt", "relation") => {
                self.modifies = true;
                self.place = Place::Target;
            }
            ("IntoClause", "rel") => {
                self.into = true;
                self.place = Place::Made;
            }
            ("LockingClause", "strength") => self.locking = true,
            ("SqlValueFunction", "op") => {
                self.sql_values = true;
                self.fleeting.tells_time |= !tells_name(number_in(value));
            }
            ("AConst", "val") => self.note_constant(&strings_in(value)),
            ("RoleSpec", "roletype") => {
                self.names_session_user =
                    number_in(value) == i64::from(RoleSpecType::RolespecSessionUser as i32);
            }
            ("RoleSpec", "location") if self.names_session_user => self.session_users.push(number_in(value)),
            ("RangeVar", "relpersistence") => self.unlogged |= strings_in(value) == ["u"],
            (
                _,
                "items" | "objname" | "objects" | "object" | "funcname" | "defnames" | "domainname"
                | "type_name",
            ) => {
                let parts = names_in(value);
                if parts.len() > 1 {
                    self.schemas.extend(parts.into_iter().next());
                }
            }
            _ => {}
        }
    }

    fn note_stranger(&mut self, node: &'static str) {
        self.stranger.get_or_insert(node);
    }

    /// A name from its parts, unless it has more than two of them (a database's name) or none.
    fn name_of(&mut self, node: &'static str, parts: Vec<String>) -> Option<Name> {
        let name = Name::from_parts(parts);
        match &name {
            Some(Name { schema: Some(schema), .. }) => {
                self.schemas.insert(schema.clone());
            }
            Some(_) => {}
            None => self.note_stranger(node),
        }
        name
    }

    /// The operators that stand behind a word.
    fn note_operator(&mut self, parts: Vec<String>) {
        let word = parts.first().map(String::as_str).unwrap_or_default();
        if parts.len() == 1 && word.contains("BETWEEN") {
            self.operators.extend(["<", "<=", ">", ">="].map(Name::bare));
        } else if !parts.is_empty() {
            let name = self.name_of("AExpr", parts);
            self.operators.extend(name);
        }
    }

    /// An expression of a kind that the parser of another version might have.
    fn note_kind(&mut self, kind: i64) {
        let known =
            i32::try_from(kind).is_ok_and(|kind| pg_query::protobuf::AExprKind::try_from(kind).is_ok());
        if !known {
            self.note_stranger("AExpr");
        }
    }

    fn note_column(&mut self, mut parts: Vec<String>) {
        let qualified = parts.len() > 1;
        if let Some(name) = parts.pop() {
            self.system_columns |= SYSTEM_COLUMNS.contains(&name.as_str());
            if qualified {
                self.column_names.insert(name);
            }
        }
    }

    fn note_field(&mut self, name: String) {
        self.system_columns |= SYSTEM_COLUMNS.contains(&name.as_str());
        self.column_names.insert(name);
    }

    /// A date or time type would read such a constant off the clock: `now`, `today 12:00 EST`. Longer texts are prose.
    fn note_constant(&mut self, texts: &[String]) {
        const CLOCK_WORDS: [&str; 4] = ["now", "today", "tomorrow", "yesterday"];
        const MAX_WORDS: usize = 3;
        for text in texts {
            let words: Vec<&str> =
                text.split(|c: char| !c.is_alphabetic()).filter(|word| !word.is_empty()).collect();
            let on_clock =
                words.iter().any(|word| CLOCK_WORDS.iter().any(|clock| word.eq_ignore_ascii_case(clock)));
            self.clock_words |= on_clock && words.len() <= MAX_WORDS;
            self.fleeting.clock_words |= may_read_clock(text);
        }
    }

    /// The arguments of a call: the name of a setting is known if it is a constant.
    fn note_arguments<T: Serialize + ?Sized>(&mut self, arguments: &T) {
        if std::mem::take(&mut self.asks_setting) {
            let name = strings_in(arguments).into_iter().next().filter(|name| name.contains('.'));
            // A server shows the constant of a definition with its type: `current_setting('app.tenant'::text)`.
            let is_constant =
                matches!(kinds_in(arguments), [Some("AConst"), _] | [Some("TypeCast"), Some("AConst")]);
            self.fleeting.asks_server_setting |= name.is_none() || !is_constant;
        }
    }

    /// Enters a node of a kind; a relation needs all its fields at once and is taken by [`Fields::end`].
    fn enter(&mut self, node: &'static str) -> Result<(), TooDeep> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        // These are looked into by `inspect`, or are the queries themselves.
        let known =
            matches!(
                node,
                "RangeVar"
                    | "FuncCall"
                    | "AExpr"
                    | "SubLink"
                    | "SortBy"
                    | "TypeName"
                    | "ColumnRef"
                    | "AIndirection"
                    | "Node"
            ) || matches!(
                node,
                "CommonTableExpr" | "WithClause" | "RangeTableSample" | "IntoClause" | "LockingClause"
            ) || matches!(node, "SqlValueFunction" | "TypeCast" | "WindowDef" | "XmlExpr" | "XmlSerialize")
                || matches!(node, "SelectStmt" | "InsertStmt" | "UpdateStmt" | "DeleteStmt" | "MergeStmt");
        if !known && QUERY_NODES.binary_search(&node).is_err() {
            self.note_stranger(node);
        }
        if matches!(node, "JsonOutput" | "JsonReturning" | "JsonTable" | "RangeTableFunc") {
            self.fleeting.casts.push(node.to_owned());
        }
        self.fills_defaults |= matches!(node, "InsertStmt" | "MergeStmt" | "SetToDefault");
        if matches!(node, "CaseExpr" | "JoinExpr" | "SubLink") {
            self.operators.insert(Name::bare("="));
        }
        Ok(())
    }

    fn take_relation(&mut self, relation: Relation) {
        let Relation { database, schema, name } = relation;
        if !database.is_empty() {
            self.note_stranger("RangeVar in a database");
        }
        if !schema.is_empty() {
            self.schemas.insert(schema.clone());
        }
        let name = Name { schema: (!schema.is_empty()).then_some(schema), name };
        match std::mem::take(&mut self.place) {
            Place::Read => {
                self.replaced_relations += usize::from(is_replaced_relation(&name));
                self.reads.insert(name)
            }
            Place::Target => self.writes.insert(name),
            Place::Made => self.made.insert(name),
        };
    }
}

/// The parts of a relation's name, gathered while its fields go by.
#[derive(Default)]
struct Relation {
    database: String,
    schema: String,
    name: String,
}
