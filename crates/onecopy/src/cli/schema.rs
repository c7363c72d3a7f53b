//! Reads a file of definitions, for commands that need no server.

use std::path::Path;

use sql::{Catalogue, Schema};

use super::error::{CommandError, ErrorInText};
use crate::terminal::Progress;

/// The catalogue of a file of definitions. Says which of them are not understood.
pub(super) fn read_schema(file: &Path, progress: &Progress) -> Result<Catalogue, CommandError> {
    let text = std::fs::read_to_string(file)
        .map_err(|source| CommandError::Unreadable { path: file.to_owned(), source })?;
    let schema = Schema::from_ddl(&text).map_err(|error| {
        let at = error.position(&text, true);
        CommandError::Schema { path: file.to_owned(), error: ErrorInText::new(&text, error.to_string(), at) }
    })?;
    for left_out in &schema.left_out {
        progress.say(format_args!(
            "{}:{}: not understood, {}: {}",
            file.display(),
            left_out.line,
            left_out.why,
            left_out.statement
        ));
    }
    Ok(schema.catalogue())
}
