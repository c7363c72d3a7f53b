//! Protocol `gargamel`: transactions that may conflict follow each other in a chain, the others run side by side, so no update
//! is aborted (Cincilla, Monnet, Shapiro: Gargamel: boosting DBMS performance by parallelising write transactions, 2012).
//!
//! ```text
//! CALL payment(w = 1)     chain 1 on replica a   o--o--o          extend (II-B, figure 2 b)
//! CALL payment(w = 2)     chain 2 on replica b   o                new    (2 a)
//! CALL payment(w = 1, customer of 2)             o  behind both   merge  (2 c): on b, once a's write-set is there
//! ```
//!
//! A transaction is *known* if all that it may write is known before it begins: a single statement, statements that came together,
//! a call whose procedure can be bounded, a declared profile. It waits until those that it may conflict with are over, begins at
//! the replica of the last of them, and begins there only when their write-sets are visible (III iv). Its write-set is its
//! record in the log, applied elsewhere in the background.
//!
//! Deviations from the paper:
//! - Write-sets are applied in the order of versions, not in causal order. That is stronger: no two readers see two writes in
//!   different orders. A link of a chain may wait for write-sets before those that it needs.
//! - Transactions that are not known lock statement by statement, as in [`super::onecopy`], and certification stays underneath.
//!   It never fails a known transaction ([`super::Protocol::known_misjudged`] counts, the simulator requires 0).
//! - Two transactions conflict by the rows that PostgreSQL locks. The paper compares columns, so by its Table II a New-Order and
//!   a Payment of one district do not conflict, although both update one row of `district`.
//! - Reads see everything acknowledged ([`See::Fresh`]), unless the operator chooses the paper's stale reads ([`See::Local`]).
//!
//! Guarantee: parallel snapshot isolation as claimed; in fact snapshot isolation on a prefix of the log, and with fresh reads
//! each transaction at the level that it asked for. With [`Rule::ReadWrite`] the known transactions are serializable in the order
//! of the log.

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, Rule, See};

/// Chains by write-write conflicts.
pub const GARGAMEL: Choices = Choices {
    name: "gargamel",
    order: Order::Chains(Rule::WriteWrite),
    home: HomePolicy::ConflictThenLoad,
    perform: Perform::Home,
    see: See::Fresh,
    retry: Retry::Unseen,
    patience_us: PATIENCE_US,
};
