//! Passwords in statements about roles: replaced by what servers keep of them, before anybody sees the text.
//!
//! Each server would draw a salt of its own. Then a role's verifier would differ from one to the next, and what a client
//! has proven to us would open only the one whose verifier we checked it against; and our log would hold the password.

use std::sync::Arc;

use sql::{Statement, Verb};
use wire::sqlstate;

use crate::error::{Fault, Refusal};
use crate::execute::Executor;
use crate::relay::Ended;
use crate::relay::work::Work;
use crate::security::scram;

impl Executor<'_> {
    /// Runs a schema change without the passwords that are in it.
    pub(crate) async fn ddl_without_passwords(
        &mut self,
        statement: &Arc<Statement>,
        text: &[u8],
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        let hidden = match (&statement.verb, work) {
            (Verb::Ddl(facts), Work::Query { position_offset, .. }) => {
                without_passwords(facts.tag, text, self.link.settings.noted.conforming)?
                    .map(|hidden| (hidden, position_offset))
            }
            _ => None,
        };
        match hidden {
            None => self.ddl(statement, text, work, alone).await,
            Some((hidden, position_offset)) => {
                let work = Work::Query { sql: &hidden, position_offset, told: None };
                self.ddl(statement, &hidden, work, alone).await
            }
        }
    }
}

/// The text of a statement about roles with what servers keep of a password in the place of each password: the same at
/// each of them, and nothing that can be used to log in. `None` if there is none in it.
fn without_passwords(tag: &str, text: &[u8], conforming: bool) -> Result<Option<Vec<u8>>, Fault> {
    if !matches!(tag, "CreateRoleStmt" | "AlterRoleStmt") {
        return Ok(None);
    }
    let found =
        std::str::from_utf8(text).ok().and_then(|text| Some((text, sql::passwords(text, conforming)?)));
    let Some((text, passwords)) = found else {
        let hint = "Write the password in plain quotes, or as a SCRAM-SHA-256 verifier.";
        return Err(Refusal::unsupported("a password in this form", hint).into());
    };
    let mut hidden = text.to_owned();
    for password in passwords.into_iter().rev() {
        // PostgreSQL, too, takes what is no password any more as it is.
        if scram::Verifier::parse(&password.text).is_some() || is_md5(&password.text) {
            continue;
        }
        // An empty password is none, as PostgreSQL says in a notice.
        if password.text.is_empty() {
            continue;
        }
        let verifier = scram::Verifier::of_password(&password.text).map_err(|error| {
            Refusal::plain(sqlstate::INTERNAL_ERROR, format!("no random number: {error}"))
        })?;
        hidden.replace_range(password.place, &format!("'{verifier}'"));
    }
    Ok((hidden != text).then(|| hidden.into_bytes()))
}

/// PostgreSQL's own test of what it takes for such a hash.
fn is_md5(text: &str) -> bool {
    text.len() == 35
        && text.strip_prefix("md5").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()))
}
