//! Whether a statement would mean something else under another search path.
//!
//! Statements of Onecopy's own run on connections of clients, where the client has chosen the search path, and roles that
//! are not trusted may have made functions, operators and types in a schema of it: PostgreSQL takes the best match of all
//! schemas, not the first (CVE-2018-1058). A name with its schema means one thing only. So each relation, function,
//! operator, type and collation must have one, and what PostgreSQL looks up without a way to say a schema is not used:
//! IN, BETWEEN, LIKE, CASE with an argument, JOIN .. USING, IS DISTINCT FROM, `= ANY` of a subquery without OPERATOR.
//!
//! The tree is looked at in whole, as JSON, so no kind of node is forgotten. Not looked into are texts that name something,
//! as in `'x'::pg_catalog.regclass`.

use std::collections::BTreeSet;

use pg_query::protobuf::RawStmt;
use serde_json::{Map, Value};

use crate::parser::{Parsed, parse, with_deep_stack};

/// Statements that name nothing by themselves.
const STATEMENTS: [&str; 13] = [
    "SelectStmt",
    "InsertStmt",
    "UpdateStmt",
    "DeleteStmt",
    "LockStmt",
    "TransactionStmt",
    "VariableSetStmt",
    "VariableShowStmt",
    "ConstraintsSetStmt",
    "DiscardStmt",
    "DeallocateStmt",
    "ExecuteStmt",
    "RawStmt",
];

/// Lists that are the name of something which is found by the search path.
const NAMES: [&str; 8] =
    ["funcname", "name", "oper_name", "use_op", "collname", "opclass", "collation", "method"];

/// What a text names without saying the schema, or by syntax that cannot say it; empty if there is nothing of that kind.
#[must_use]
pub fn unqualified(text: &str) -> Vec<String> {
    with_deep_stack(|| match parse(text, true) {
        Ok(Parsed::Trees(trees)) => {
            let mut search = Search::default();
            for tree in &trees {
                search.statement(tree);
            }
            search.found
        }
        Ok(Parsed::TooDeep) => vec!["a text that is too deep".to_owned()],
        Err(error) => vec![error.message],
    })
}

#[derive(Default)]
struct Search {
    with_names: BTreeSet<String>,
    found: Vec<String>,
}

impl Search {
    fn statement(&mut self, tree: &RawStmt) {
        match serde_json::to_value(tree) {
            Ok(tree) => {
                self.note_with_names(&tree);
                self.look_at(&tree);
            }
            Err(error) => self.found.push(error.to_string()),
        }
    }

    /// Names that WITH gives.
    fn note_with_names(&mut self, tree: &Value) {
        match tree {
            Value::Object(fields) => {
                self.with_names.extend(fields.get("ctename").and_then(Value::as_str).map(str::to_owned));
                fields.values().for_each(|value| self.note_with_names(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.note_with_names(item)),
            _ => {}
        }
    }

    fn look_at(&mut self, tree: &Value) {
        match tree {
            Value::Object(fields) => {
                self.node(fields);
                fields.values().for_each(|value| self.look_at(value));
            }
            Value::Array(items) => items.iter().for_each(|item| self.look_at(item)),
            _ => {}
        }
    }

    fn node(&mut self, fields: &Map<String, Value>) {
        if let (Some(schema), Some(Value::String(name))) = (fields.get("schemaname"), fields.get("relname"))
            && schema == ""
            && !self.with_names.contains(name)
        {
            self.found.push(format!("relation {name}"));
        }
        if fields.contains_key("typmods") {
            self.list("names", fields);
        }
        for name in NAMES {
            self.list(name, fields);
        }
        for (kind, inner) in fields {
            let has = |field: &str| {
                inner.get(field).is_some_and(|value| !value.is_null() && *value != Value::Array(Vec::new()))
            };
            let is_hidden = match kind.as_str() {
                "CaseExpr" => has("arg"),
                "JoinExpr" => has("using_clause") || inner.get("is_natural") == Some(&Value::Bool(true)),
                "SubLink" => has("testexpr") && !has("oper_name"),
                _ => false,
            };
            if is_hidden {
                self.found.push(format!("an operator of {kind}"));
            }
            if kind.ends_with("Stmt") && inner.is_object() && !STATEMENTS.contains(&kind.as_str()) {
                self.found.push(format!("a statement of kind {kind}"));
            }
        }
    }

    /// A field that is a name in parts, if it is there.
    fn list(&mut self, field: &str, fields: &Map<String, Value>) {
        let Some(Value::Array(parts)) = fields.get(field) else { return };
        let parts: Vec<&str> = parts.iter().filter_map(word).collect();
        if let [name] = parts.as_slice() {
            self.found.push(format!("{field} {name}"));
        }
    }
}

/// The string in a node that is one.
fn word(node: &Value) -> Option<&str> {
    node.get("node")?.get("String")?.get("sval")?.as_str()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_search_path_could_change_is_found() {
        for (text, found) in [
            ("SELECT 1 FROM pg_class", "relation pg_class"),
            ("SELECT count(*) FROM pg_catalog.pg_class", "funcname count"),
            ("SELECT 1 WHERE 1 = 1", "name ="),
            ("SELECT -x FROM pg_catalog.pg_class", "name -"),
            ("SELECT 'a'::text", "names text"),
            ("SELECT CAST('a' AS text[])", "names text"),
            ("SELECT 1 WHERE 1 IN (1, 2)", "name ="),
            ("SELECT 1 WHERE 1 NOT IN (1, 2)", "name <>"),
            ("SELECT 1 WHERE 1 BETWEEN 1 AND 2", "name BETWEEN"),
            ("SELECT 1 WHERE 'a' LIKE 'b'", "name ~~"),
            ("SELECT 1 WHERE 'a' IS DISTINCT FROM 'b'", "name ="),
            ("SELECT NULLIF(1, 2)", "name ="),
            ("SELECT CASE 1 WHEN 2 THEN 3 END", "an operator of CaseExpr"),
            ("SELECT 1 WHERE 1 IN (SELECT 1)", "an operator of SubLink"),
            ("SELECT 1 WHERE 1 = ANY (SELECT 1)", "oper_name ="),
            ("SELECT 1 FROM a.b JOIN c.d USING (e)", "an operator of JoinExpr"),
            ("SELECT 1 FROM a.b NATURAL JOIN c.d", "an operator of JoinExpr"),
            ("SELECT 1 FROM a.b ORDER BY c USING <", "use_op <"),
            ("SELECT 'a' COLLATE \"C\"", "collname C"),
            ("SELECT x FROM pg_catalog.unnest('{}'::pg_catalog.int4[]) AS x, now()", "funcname now"),
            ("INSERT INTO applied VALUES (1)", "relation applied"),
            ("UPDATE a.b SET c = now()", "funcname now"),
            ("CREATE TABLE a.b (c pg_catalog.int4)", "a statement of kind CreateStmt"),
            ("nonsense", "syntax error at or near \"nonsense\""),
        ] {
            assert!(unqualified(text).iter().any(|it| it == found), "{text}: {:?}", unqualified(text));
        }
    }

    #[test]
    fn what_it_could_not_change_is_not() {
        for text in [
            "BEGIN; SET LOCAL a.b = 'c'; RESET ALL; DISCARD ALL; SAVEPOINT x; ROLLBACK TO x; COMMIT",
            "SET CONSTRAINTS ALL IMMEDIATE",
            "WITH w AS (SELECT 1 AS x) SELECT w.x::bigint, current_user, COALESCE(x, -5) FROM w",
            "SELECT pg_catalog.count(*) FROM pg_catalog.pg_class c JOIN a.b ON c.oid OPERATOR(pg_catalog.=) b.oid \
             WHERE EXISTS (SELECT FROM a.b) AND c.oid OPERATOR(pg_catalog.=) ANY (ARRAY[1, 2]) ORDER BY 1 DESC",
            "SELECT 1 WHERE 1 OPERATOR(pg_catalog.=) ANY (SELECT 1)",
            "SELECT CASE WHEN true THEN 1 END, x IS NULL, NOT x FROM a.b UNION ALL SELECT 1, true, false",
            "INSERT INTO a.b (c) VALUES ($1) RETURNING pg_catalog.now()",
            "SELECT 'a' COLLATE pg_catalog.\"C\", 'b'::pg_catalog.text[]",
        ] {
            assert_eq!(unqualified(text), [""; 0], "{text}");
        }
    }
}
