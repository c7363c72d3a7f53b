//! Protocol `centralised-writes`: one replica, the anchor, executes all updates, one after another; reads run anywhere (Gargamel
//! IV-B: "serialises all update transactions at a single worker in order to avoid wasted work. It can be considered as an
//! idealized version of Ganymed").
//!
//! Transactions that are known as a whole stand in one chain ([`Rule::AllUpdates`]). Those that are not lock statement by statement
//! at the anchor, where PostgreSQL's own locks order them.
//!
//! Guarantee: each transaction at the level that it asked for, as in [`super::onecopy`].

use super::rows::{Choices, HomePolicy, Order, PATIENCE_US, Perform, Retry, Rule, See};

/// One chain at the anchor.
pub const CENTRALISED_WRITES: Choices = Choices {
    name: "centralised-writes",
    order: Order::Chains(Rule::AllUpdates),
    home: HomePolicy::Anchor,
    perform: Perform::Home,
    see: See::Fresh,
    retry: Retry::Unseen,
    patience_us: PATIENCE_US,
};
