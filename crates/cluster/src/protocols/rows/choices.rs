//! The decisions in which the protocols of the family differ.
//!
//! Choices are features. The switches of [`super::Rules`] are none: tests turn a rule off to see that a checker notices, and
//! no protocol works without one.
//!
//! A choice has a field here when there is code that asks for it, so today there is the order alone, and it has one value.
//! The type stands all the same: each instance is built with the name of its protocol, and a second protocol is a constant
//! beside [`super::super::onecopy::ONECOPY`] and a variant here. To come, with the protocols that need them:
//!
//! - `Order`: chains of conflicting transactions (Gargamel); timestamps (preventive replication); none at all,
//!   where certification alone decides.
//! - `place`: where a transaction begins; today at the end of the chain of those that it conflicts with, else by load.
//! - `see`: whether a read waits for what it needs, as today, or may be stale.
//! - `perform`: whether only the home executes a transaction, as today, or every replica that holds all of it.
//! - `retry`: whether a whole transaction that loses is run again, and when; today its session is told.

use crate::parts::order::Ordering;
use crate::parts::order::lock_table::LockTable;

/// The decisions of one protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// How conflicting transactions of different homes are made to wait for each other.
    pub order: Order,
}

/// How conflicting transactions of different homes are ordered before they are certified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Each statement locks what it may write.
    Statements,
}

impl Order {
    /// The part that does it, without any transaction.
    pub(super) fn ordering(self) -> Ordering {
        match self {
            Self::Statements => Ordering::Statements(LockTable::default()),
        }
    }
}
