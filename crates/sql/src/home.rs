//! Whether a statement of an update transaction may run away from the anchor.
//!
//! It may if all that it does is bounded and means the same on every replica: known rows of known tables, whose values carry
//! no numbers that differ between servers, without sequences, schema changes, cursors or notifications.

use crate::access::{Access, Because, Claims, Routing};
use crate::catalogue::{Catalogue, ColumnDefault, TableId};
use crate::statement::{Statement, Verb};

/// Whether any replica may be its home. `is_binary`: parameters or results may be in binary form.
pub fn may_leave_anchor(
    statement: &Statement,
    routing: &Routing,
    is_binary: bool,
    catalogue: &Catalogue,
) -> bool {
    match &statement.verb {
        // They touch the session or the transaction only, and have the same meaning everywhere.
        Verb::Savepoint(_)
        | Verb::Release(_)
        | Verb::RollbackTo(_)
        | Verb::Set { .. }
        | Verb::Reset(_)
        | Verb::Show(_)
        | Verb::Empty => return true,
        Verb::Select | Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge | Verb::Copy { .. } => {}
        _ => return false,
    }
    let (Some(reads), Some(writes)) = (&routing.reads, &routing.writes) else { return false };
    let is_alike =
        |id: &TableId| catalogue.table(*id).is_some_and(|table| !table.user_types && !table.coded_types);
    statement.settings.is_empty()
        && !statement.calls("setval")
        && routing.claims != Claims::Everything
        && !matches!(routing.access, Access::Anchor(Because::Unknown | Because::Catalogue))
        && !(is_binary && routing.user_types)
        && reads.iter().chain(writes).all(is_alike)
        && writes.iter().all(|id| draws_nothing(*id, catalogue))
}

/// A catalogue that was read from a schema's text knows defaults only.
fn draws_nothing(id: TableId, catalogue: &Catalogue) -> bool {
    let draws = |default: &ColumnDefault| matches!(default, ColumnDefault::Sequence(_));
    let by_default = |table: &crate::Table| table.columns.iter().any(|column| draws(&column.default));
    catalogue.draws(id).is_none() && !catalogue.table(id).is_some_and(by_default)
}
