//! Whether a statement of an update transaction may run away from the anchor.
//!
//! It may if all that it does is bounded and means the same on every replica: known rows of known tables, whose values carry
//! no numbers that differ between servers, without schema changes, cursors or notifications. Rows that draw from sequences
//! may be written where ranges of these are lent to ([`draws`]).

use std::collections::BTreeSet;

use crate::access::{Access, Because, Claims, Routing};
use crate::builtin;
use crate::catalogue::{Catalogue, ColumnDefault, Draws, SequenceId, TableId};
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
        Verb::Select
        | Verb::Insert
        | Verb::Update
        | Verb::Delete
        | Verb::Merge
        | Verb::Copy { .. }
        | Verb::Call
        | Verb::Do => {}
        // Its plan is made where the rest of the transaction runs.
        Verb::Explain { analyze: false } if explains_rows(statement) => {}
        _ => return false,
    }
    let (Some(reads), Some(writes)) = (&routing.reads, &routing.writes) else { return false };
    let is_alike =
        |id: &TableId| catalogue.table(*id).is_some_and(|table| !table.user_types && !table.coded_types);
    statement.settings.is_empty()
        && !statement.calls("setval")
        && routing.claims != Claims::Everything
        && (routing.asks_draws
            || !matches!(routing.access, Access::Anchor(Because::Unknown | Because::Catalogue)))
        && !(is_binary && routing.user_types)
        && reads.iter().chain(writes).all(is_alike)
        && (!routing.fills_defaults || writes.iter().all(|id| draws_what_is_known(*id, catalogue)))
        // Its rows come once, however many there are.
        && (!matches!(statement.verb, Verb::Copy { .. }) || draws(routing, catalogue).is_empty())
}

fn explains_rows(statement: &Statement) -> bool {
    let is_of_rows =
        |verb: &Verb| matches!(verb, Verb::Select | Verb::Insert | Verb::Update | Verb::Delete | Verb::Merge);
    statement.inner.as_deref().is_some_and(|inner| is_of_rows(&inner.verb))
}

/// Which sequences a statement may draw from, if all of them are known: those of the tables that it may write, unless
/// it cannot compute a default there.
pub fn draws(routing: &Routing, catalogue: &Catalogue) -> BTreeSet<SequenceId> {
    if !routing.fills_defaults {
        return BTreeSet::new();
    }
    let of = |id: &TableId| match catalogue.draws(*id) {
        Some(Draws::From(ids)) => ids.as_slice(),
        Some(Draws::FromSome) | None => &[],
    };
    routing.writes.iter().flatten().flat_map(of).copied().collect()
}

/// A catalogue that was read from a schema's text knows defaults only.
fn draws_what_is_known(id: TableId, catalogue: &Catalogue) -> bool {
    let draws = |default: &ColumnDefault| matches!(default, ColumnDefault::Sequence(_));
    let by_default = |table: &crate::Table| table.columns.iter().any(|column| draws(&column.default));
    match catalogue.draws(id) {
        None => !catalogue.table(id).is_some_and(by_default),
        Some(Draws::From(_)) => true,
        Some(Draws::FromSome) => false,
    }
}

/// Whether a statement only asks what the session has drawn from sequences last: it can be asked where that was, beside
/// whatever else is open.
pub fn only_asks_draws(statement: &Statement, catalogue: &Catalogue) -> bool {
    let asks = |name: &crate::Name| {
        let known = builtin::asks_draws(&name.name) || name.name == "pg_get_serial_sequence";
        known && name.may_be_built_in() && !catalogue.is_user_function(&name.name)
    };
    statement.verb == Verb::Select
        && statement.opaque.is_none()
        && statement.functions.iter().any(|name| builtin::asks_draws(&name.name))
        && statement.functions.iter().all(asks)
        && statement.types.iter().all(crate::Name::may_be_built_in)
        && statement.settings.is_empty()
        && [&statement.reads, &statement.writes, &statement.row_locks, &statement.operators]
            .iter()
            .all(|names| names.is_empty())
}
