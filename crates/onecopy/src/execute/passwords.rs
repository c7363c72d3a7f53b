//! Replaces passwords in statements about roles by verifiers, before any server or the log gets the text.
//!
//! Otherwise each server would choose a salt of its own. Then the verifiers of a role would differ between servers,
//! and the proof of a client would fit only one of them. The log would hold the password, too.

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
                let work = Work::Query { sql: &hidden, position_offset, stand_in_values: None };
                self.ddl(statement, &hidden, work, alone).await
            }
        }
    }
}

/// The text of a statement about roles with verifiers in place of its passwords; `None` if it has no password. The
/// verifiers are the same at each server and cannot be used to log in.
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
        // PostgreSQL, too, accepts a hash as it is.
        if scram::Verifier::parse(&password.text).is_some() || is_md5(&password.text) {
            continue;
        }
        // PostgreSQL treats an empty password as none, and says so in a notice.
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

/// PostgreSQL's own test for an MD5 hash.
fn is_md5(text: &str) -> bool {
    text.len() == 35
        && text.strip_prefix("md5").is_some_and(|rest| rest.bytes().all(|b| b.is_ascii_hexdigit()))
}
