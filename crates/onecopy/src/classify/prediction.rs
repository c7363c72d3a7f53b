//! Whether a statement reserves everything that it will write.
//!
//! A statement reserves what it may write before it runs ([`super::footprint`]). Some writes are known only from the
//! rows: the keys of `INSERT .. SELECT`, the value of `SET u = u + 1`, a reference that comes from another table. After
//! such a statement has run, another transaction may turn out to have been first
//! ([`crate::execute::transparent_retry`]).
//!
//! Values that a statement only frees count as reserved, unless other rows refer to them. A statement that takes such a
//! value at another home finds the row still there.
//!
//! Safety does not depend on this answer, since certification guarantees it. A wrong answer may cost a transaction
//! 40001.

use cluster::claims::Claims;
use sql::Catalogue;
use sql::accesses::{self, Accesses, Claim, Columns};

use super::footprint::values;

/// Whether the forecast covers everything that a statement takes or relies on. `is_one` is false for several statements
/// that are sent together.
pub(crate) fn is_forecast_complete(
    touched: &Accesses,
    forecast: impl FnOnce() -> Claims,
    is_one: bool,
    catalogue: &Catalogue,
) -> bool {
    let takes = touched.writes.iter().any(|write| write.new || write.columns != Columns::All);
    let is_unknown =
        |claim: &Claim| catalogue.table(claim.table).is_none_or(|table| values(claim, table).is_none());
    let is_referenced = |claim: &Claim| {
        let keys = catalogue.table(claim.table).and_then(|table| accesses::referenced_keys(table, catalogue));
        claim.exclusive && keys.is_none_or(|keys| keys.contains(&claim.key))
    };
    // An update has a claim for the value that it frees and one for the value that it takes, if they differ.
    let takes_what_is_known = |claim: &Claim| {
        let is_other = |other: &&Claim| {
            (other.table, other.key, other.exclusive) == (claim.table, claim.key, claim.exclusive)
        };
        is_one && touched.claims.iter().filter(is_other).any(|other| !is_unknown(other))
    };
    let is_unreserved = |claim: &&Claim| {
        is_unknown(claim) && (is_referenced(claim) || (takes && !takes_what_is_known(claim)))
    };
    let mut unreserved = touched.claims.iter().filter(is_unreserved).peekable();
    if unreserved.peek().is_none() {
        return true;
    }
    let forecast = forecast();
    unreserved.all(|claim| forecast.everything || forecast.tables.contains(&claim.table))
}
