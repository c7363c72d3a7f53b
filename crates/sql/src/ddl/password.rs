//! The place of the password in a statement about a role.
//!
//! Each server would hash the password with a salt of its own, and the log would hold it in clear. So before the
//! statement is ordered, the session puts the verifier that servers keep in its place, and that travels.

use std::ops::Range;

use pg_query::NodeEnum;
use pg_query::protobuf::Token;

use crate::parser::{self, Parsed, with_deep_stack};

/// A password that a statement says.
#[derive(Clone, PartialEq, Eq)]
pub struct Password {
    /// The password.
    pub text: String,
    /// The constant that says it, in the statement's text.
    pub place: Range<usize>,
}

impl std::fmt::Debug for Password {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a password at {:?}", self.place)
    }
}

/// The passwords that a CREATE ROLE or ALTER ROLE says, in the order of the text. `None` if there may be one that
/// cannot be found, as in a constant that only means something without `standard_conforming_strings`.
pub fn passwords(text: &str, standard_conforming_strings: bool) -> Option<Vec<Password>> {
    with_deep_stack(|| find(text, standard_conforming_strings))
}

fn find(text: &str, conforming: bool) -> Option<Vec<Password>> {
    let Parsed::Trees(mut trees) = parser::parse(text, conforming).ok()? else { return None };
    let options = match trees.pop()?.stmt?.node? {
        NodeEnum::CreateRoleStmt(statement) => statement.options,
        NodeEnum::AlterRoleStmt(statement) => statement.options,
        _ => return Some(Vec::new()),
    };
    let tokens = parser::scan(text)?;
    let constants = [Token::Sconst as i32, Token::Usconst as i32];
    let mut found = Vec::new();
    for option in options {
        let Some(NodeEnum::DefElem(option)) = option.node else { continue };
        if option.defname != "password" {
            continue;
        }
        // PASSWORD NULL has none.
        let Some(NodeEnum::String(said)) = option.arg.and_then(|arg| arg.node) else { continue };
        let token = tokens
            .iter()
            .find(|token| token.start >= option.location && constants.contains(&token.token))
            .and_then(|token| Some(usize::try_from(token.start).ok()?..usize::try_from(token.end).ok()?));
        found.push(Password { text: said.sval, place: token? });
    }
    found.sort_by_key(|password| password.place.start);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_found_where_they_stand() {
        for (text, said) in [
            ("CREATE ROLE a LOGIN PASSWORD 'it''s'", &[("it's", "'it''s'")][..]),
            (
                "/* 'x' */ ALTER USER \"PASSWORD 'x'\" ENCRYPTED PASSWORD E'a\\'b' VALID UNTIL 'infinity'",
                &[("a'b", "E'a\\'b'")],
            ),
            ("CREATE USER a CONNECTION LIMIT 3 PASSWORD $$x$$", &[("x", "$$x$$")]),
            ("ALTER ROLE a PASSWORD NULL", &[]),
            ("ALTER ROLE a SET work_mem = '1MB'", &[]),
            ("CREATE ROLE a", &[]),
            ("CREATE TABLE password (password text DEFAULT 'x')", &[]),
        ] {
            let found = passwords(text, true).unwrap();
            let found: Vec<(&str, &str)> = found
                .iter()
                .map(|password| (password.text.as_str(), &text[password.place.clone()]))
                .collect();
            assert_eq!(found, said, "{text}");
        }
        assert_eq!(passwords("CREATE ROLE a PASSWORD 'a\\'b'", false), None);
        let shown = format!("{:?}", passwords("CREATE ROLE a PASSWORD 'secret'", true).unwrap());
        assert!(!shown.contains("secret"), "{shown}");
    }
}
