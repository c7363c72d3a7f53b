//! Other texts for schema changes that cannot travel, or run, as they were sent.
//!
//! An added column whose default is stable (`now()`) has one value in all rows that were there, which the home keeps in
//! its catalogue. Everywhere else the column is added with that constant as its default, and is given its real default
//! afterwards. That takes PostgreSQL's parser and its inverse; a statement that does not come back from the two as it
//! was is not rewritten.

use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, ColumnDef, ConstrType, DropBehavior, KeywordKind, Node,
    ParseResult, RawStmt, Token,
};
use pg_query::{DeparseOptions, FingerprintOptions, NodeEnum};

use crate::ast_scan::AstScan;
use crate::parser::{self, Parsed, with_deep_stack};

/// The word that means the role which has logged in.
const SESSION_USER: &str = "session_user";

/// The one value that an added column has in all rows that were there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frozen {
    /// The column.
    pub column: String,
    /// An expression of constants that gives the value.
    pub value: String,
}

/// The text of an ALTER TABLE that adds these columns with constants, and gives them their real defaults afterwards.
pub fn freeze_defaults(text: &str, standard_conforming_strings: bool, frozen: &[Frozen]) -> Option<String> {
    with_deep_stack(|| freeze(text, standard_conforming_strings, frozen))
}

fn freeze(text: &str, conforming: bool, frozen: &[Frozen]) -> Option<String> {
    let mut tree = only(text, conforming)?;
    let faithful = parser::deparse(&tree, DeparseOptions::default())?;
    let same = |text: &str| parser::fingerprint(text, FingerprintOptions::FULL_RELNAME);
    // The deparser writes strings in the conforming way.
    if conforming && same(text)? != same(&faithful)? {
        return None;
    }
    let statement = altered(&mut tree)?;
    let mut after = Vec::new();
    for command in &mut statement.cmds {
        let Some(NodeEnum::AlterTableCmd(command)) = &mut command.node else { return None };
        if command.subtype != AlterTableType::AtAddColumn as i32 {
            continue;
        }
        let Some(NodeEnum::ColumnDef(column)) = &mut command.def.as_mut()?.node else { return None };
        if let Some(frozen) = frozen.iter().find(|frozen| frozen.column == column.colname) {
            after.push(real_default(column, constant(&frozen.value)?));
        }
    }
    if after.len() != frozen.len() {
        return None;
    }
    let cmds = after.into_iter().map(node).collect();
    let second = AlterTableStmt { cmds, ..statement.clone() };
    let first = parser::deparse(&tree, DeparseOptions::default())?;
    let second = parser::deparse(&whole(NodeEnum::AlterTableStmt(second)), DeparseOptions::default())?;
    Some(format!("{first}; {second}"))
}

/// Puts a constant in the place of a column's default; the command that undoes it.
fn real_default(column: &mut ColumnDef, constant: Node) -> AlterTableCmd {
    let mut real = column.raw_default.replace(Box::new(constant.clone()));
    for constraint in &mut column.constraints {
        if let Some(NodeEnum::Constraint(constraint)) = &mut constraint.node
            && constraint.contype == ConstrType::ConstrDefault as i32
        {
            column.raw_default = None;
            real = constraint.raw_expr.replace(Box::new(constant.clone()));
        }
    }
    if real.is_none() {
        // The default is the domain's: the parser knows defaults as constraints only.
        column.raw_default = None;
        column.constraints.insert(
            0,
            wrapped(NodeEnum::Constraint(Box::new(pg_query::protobuf::Constraint {
                contype: ConstrType::ConstrDefault as i32,
                raw_expr: Some(Box::new(constant)),
                ..Default::default()
            }))),
        );
    }
    AlterTableCmd {
        subtype: AlterTableType::AtColumnDefault as i32,
        name: column.colname.clone(),
        def: real,
        behavior: DropBehavior::DropRestrict as i32,
        ..AlterTableCmd::default()
    }
}

fn constant(value: &str) -> Option<Node> {
    let tree = only(&format!("SELECT {value}"), true)?;
    let Some(NodeEnum::SelectStmt(mut select)) = tree.stmts.into_iter().next()?.stmt?.node else {
        return None;
    };
    match select.target_list.pop()?.node {
        Some(NodeEnum::ResTarget(target)) => target.val.map(|value| *value),
        _ => None,
    }
}

/// The tree of a text that is one statement.
fn only(text: &str, conforming: bool) -> Option<ParseResult> {
    match parser::parse(text, conforming) {
        Ok(Parsed::Trees(stmts)) if stmts.len() == 1 => Some(ParseResult { version: 0, stmts }),
        _ => None,
    }
}

fn altered(tree: &mut ParseResult) -> Option<&mut AlterTableStmt> {
    match &mut tree.stmts.first_mut()?.stmt.as_mut()?.node {
        Some(NodeEnum::AlterTableStmt(statement)) => Some(statement),
        _ => None,
    }
}

fn wrapped(inner: NodeEnum) -> Node {
    Node { node: Some(inner) }
}

fn node(command: AlterTableCmd) -> Node {
    wrapped(NodeEnum::AlterTableCmd(Box::new(command)))
}

fn whole(statement: NodeEnum) -> ParseResult {
    let statement = RawStmt { stmt: Some(Box::new(wrapped(statement))), ..RawStmt::default() };
    ParseResult { version: 0, stmts: vec![statement] }
}

/// The text of CREATE INDEX, DROP INDEX or DETACH PARTITION without its CONCURRENTLY; every other character keeps its
/// place.
pub fn without_concurrently(text: &str) -> Option<String> {
    let tokens = parser::scan(text)?;
    let keyword = |token: &&pg_query::protobuf::ScanToken| {
        token.token == Token::Concurrently as i32 && token.keyword_kind != KeywordKind::NoKeyword as i32
    };
    // A column may have that name in double quotes only, which is no keyword; a function could have it, further on. For a
    // partition the word comes last.
    let detaches = tokens.iter().any(|token| token.token == Token::Detach as i32);
    let found = if detaches { tokens.iter().rfind(keyword) } else { tokens.iter().find(keyword) }?;
    let (start, end) = (usize::try_from(found.start).ok()?, usize::try_from(found.end).ok()?);
    let mut plain = text.to_owned();
    plain.replace_range(start..end, &" ".repeat(end - start));
    Some(plain)
}

/// The text of a schema change with this role in the place of SESSION_USER, wherever that stands for a role: elsewhere the
/// session's user is another one. `None` if the places cannot be found.
pub fn name_session_user(text: &str, standard_conforming_strings: bool, user: &str) -> Option<String> {
    with_deep_stack(|| {
        let tree = only(text, standard_conforming_strings)?;
        let mut places = AstScan::of(tree.stmts.first()?).session_users;
        places.sort_unstable();
        let mut named = text.to_owned();
        for place in places.into_iter().rev() {
            let start = usize::try_from(place).ok()?;
            let word = start..start.checked_add(SESSION_USER.len())?;
            if !named.get(word.clone())?.eq_ignore_ascii_case(SESSION_USER) {
                return None;
            }
            named.replace_range(word, &format!("\"{}\"", user.replace('"', "\"\"")));
        }
        Some(named)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frozen(text: &str, columns: &[&str]) -> Option<String> {
        let frozen: Vec<Frozen> = columns
            .iter()
            .map(|column| Frozen { column: (*column).to_owned(), value: "'7'::int".to_owned() })
            .collect();
        freeze_defaults(text, true, &frozen)
    }

    #[test]
    fn a_default_is_a_constant_first() {
        assert_eq!(
            frozen("ALTER TABLE s.t ADD COLUMN c int DEFAULT f() NOT NULL, ADD d text", &["c"]).unwrap(),
            "ALTER TABLE s.t ADD COLUMN c int DEFAULT '7'::int NOT NULL, ADD COLUMN d text; \
             ALTER TABLE s.t ALTER COLUMN c SET DEFAULT f()"
        );
    }

    #[test]
    fn the_default_of_a_domain_is_dropped_again() {
        assert_eq!(
            frozen("ALTER TABLE ONLY t ADD c stamped", &["c"]).unwrap(),
            "ALTER TABLE ONLY t ADD COLUMN c stamped DEFAULT '7'::int; \
             ALTER TABLE ONLY t ALTER COLUMN c DROP DEFAULT"
        );
    }

    #[test]
    fn what_does_not_fit_is_left_alone() {
        assert_eq!(frozen("ALTER TABLE t ADD c int DEFAULT f()", &["d"]), None);
        assert_eq!(frozen("CREATE TABLE t ()", &[]), None);
        assert_eq!(frozen("ALTER TABLE t ADD c int; SELECT 1", &["c"]), None);
    }

    #[test]
    fn session_user_becomes_a_name_where_it_is_a_role() {
        for (text, named) in [
            ("GRANT ALL ON t TO SESSION_USER", "GRANT ALL ON t TO \"a\"\"b\""),
            (
                "grant x to Session_User, CURRENT_USER granted by session_user",
                "grant x to \"a\"\"b\", CURRENT_USER granted by \"a\"\"b\"",
            ),
            (
                "/* ä SESSION_USER */ ALTER TABLE \"session_user\" OWNER TO session_user",
                "/* ä SESSION_USER */ ALTER TABLE \"session_user\" OWNER TO \"a\"\"b\"",
            ),
            (
                "CREATE POLICY p ON t TO session_user USING (who = session_user)",
                "CREATE POLICY p ON t TO \"a\"\"b\" USING (who = session_user)",
            ),
            ("CREATE SCHEMA AUTHORIZATION session_user", "CREATE SCHEMA AUTHORIZATION \"a\"\"b\""),
            (
                "REASSIGN OWNED BY current_role TO session_user",
                "REASSIGN OWNED BY current_role TO \"a\"\"b\"",
            ),
            (
                "ALTER DEFAULT PRIVILEGES FOR ROLE session_user GRANT SELECT ON TABLES TO session_user",
                "ALTER DEFAULT PRIVILEGES FOR ROLE \"a\"\"b\" GRANT SELECT ON TABLES TO \"a\"\"b\"",
            ),
            ("GRANT ALL ON t TO \"session_user\"", "GRANT ALL ON t TO \"session_user\""),
        ] {
            assert_eq!(name_session_user(text, true, "a\"b").as_deref(), Some(named));
        }
    }

    #[test]
    fn concurrently_goes_and_the_rest_stays() {
        for (text, plain) in [
            ("CREATE INDEX CONCURRENTLY i ON t (a)", "CREATE INDEX              i ON t (a)"),
            (
                "drop index concurrently if exists \"concurrently\"",
                "drop index              if exists \"concurrently\"",
            ),
            (
                "/* CONCURRENTLY */ CREATE UNIQUE INDEX concurrently ON t (lower('CONCURRENTLY'))",
                "/* CONCURRENTLY */ CREATE UNIQUE INDEX              ON t (lower('CONCURRENTLY'))",
            ),
            (
                "ALTER TABLE p DETACH PARTITION x CONCURRENTLY",
                "ALTER TABLE p DETACH PARTITION x             ",
            ),
        ] {
            assert_eq!(without_concurrently(text).as_deref(), Some(plain));
        }
        assert_eq!(without_concurrently("CREATE INDEX i ON t (a)"), None);
    }
}
