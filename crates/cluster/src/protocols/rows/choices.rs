//! The decisions in which the protocols of the family differ.
//!
//! Choices are features. The switches of [`super::Rules`] are none: tests turn a rule off to see that a checker notices, and
//! no protocol works without one. A protocol is a constant of this type in a file of its own
//! ([`super::super::gargamel::GARGAMEL`]); a choice has a field here when there is code that asks for it.

use super::Rules;
use super::stamped::Stamped;
use crate::parts::order::Ordering;
use crate::parts::order::predicted::{Predicted, Waits};
use crate::parts::stamps::{Guards, Mode};

/// The decisions of one protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choices {
    /// Its name on the command line and in reports.
    pub name: &'static str,
    /// How conflicting transactions are made to wait for each other.
    pub order: Order,
    /// Where update transactions begin.
    pub home: HomePolicy,
    /// Where a transaction is executed that is known as a whole.
    pub perform: Perform,
    /// What reads outside of update transactions see.
    pub see: See,
    /// What happens to transactions that lose a conflict before their client has seen anything of them.
    pub retry: Retry,
    /// How long a transaction that is known as a whole waits before it fails, in microseconds ([`super::PATIENCE_US`]).
    pub patience_us: u64,
}

impl Choices {
    /// Whether a read may run at any replica that has what it needs, so that sessions can place some by themselves.
    pub fn places_reads_by_load(self) -> bool {
        self.see == See::Fresh && matches!(self.home, HomePolicy::ConflictThenLoad | HomePolicy::Anchor)
    }
}

/// How conflicting transactions are ordered before they are certified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Each statement locks what it may write. A transaction stands in a chain only if its client asks for that.
    Statements,
    /// Transactions that are known as a whole stand in chains by this rule; the others lock statement by statement.
    Chains(Rule),
    /// All transactions run in the order of their stamps; those that do not conflict run side by side.
    Stamps(Mode),
    /// Certification alone decides.
    Nothing,
}

impl Order {
    /// The part that does it, without any transaction.
    pub(super) fn ordering(self, rules: &Rules) -> Ordering {
        match self {
            Self::Statements | Self::Chains(_) => {
                let waits = Waits { of_merges: rules.merges_wait, of_splits: rules.splits_wait };
                Ordering::Predicted(Box::new(Predicted::new(waits)))
            }
            // Stamps have a component of their own, which also needs to hear of messages, alarms and replicas.
            Self::Stamps(_) | Self::Nothing => Ordering::Nothing,
        }
    }

    /// The component that orders by stamps.
    pub(super) fn stamped(self, rules: &Rules) -> Option<Stamped> {
        let Self::Stamps(mode) = self else { return None };
        let guards = Guards {
            older_are_waited_for: rules.older_are_waited_for,
            younger_are_undone: rules.younger_are_undone,
            appends_are_ordered: rules.appends_are_ordered,
        };
        Some(Stamped::new(mode, guards))
    }

    /// When two transactions that are known as a whole follow each other; `None` if no transaction waits.
    pub(super) fn rule(self) -> Option<Rule> {
        match self {
            Self::Statements => Some(Rule::WriteWrite),
            Self::Chains(rule) => Some(rule),
            Self::Stamps(_) => Some(Rule::ReadWrite),
            Self::Nothing => None,
        }
    }

    /// Whether all transactions that are known as a whole wait for those before them, in chains or by stamps, without being asked
    /// for it.
    pub fn chains_all(self) -> bool {
        matches!(self, Self::Chains(_) | Self::Stamps(_))
    }

    /// Whether a transaction that runs may have to run again after an older one ([`crate::event::Effect::RunAgain`]).
    pub fn recalls(self) -> bool {
        matches!(self, Self::Stamps(_))
    }
}

/// When two transactions that are known as a whole have to follow each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// What one writes the other writes (Gargamel II-A: "transactions conflict iff their write-sets intersect").
    WriteWrite,
    /// What one writes the other writes or reads, so the order of the log is a serial order of both. The paper leaves it open
    /// (section VII: "to provide higher isolation levels").
    ReadWrite,
    /// Always (IV-B: "classifying all update transactions as mutually-conflicting").
    AllUpdates,
}

/// Where an update transaction begins that may begin anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HomePolicy {
    /// At the end of the chain of those that it conflicts with, else where the last of them ran, else by load.
    ConflictThenLoad,
    /// Replica after replica. Reads take turns, too.
    InTurn,
    /// At the anchor.
    Anchor,
    /// At the replica to which its session is connected, and so do reads. The probability to connect to a replica is inversely
    /// proportional to its load ([`crate::parts::local_replicas`]).
    LocalReplica,
    /// In the group of its kind, by load, and so do reads. Kinds form groups whose tables together fit into this memory of
    /// one replica (`rows/memory_groups.rs`). What has no kind goes by load to any replica.
    ByMemory {
        /// The memory of one replica.
        memory_bytes: u64,
    },
}

impl HomePolicy {
    /// Whether sessions have to tell the kind of what they begin.
    pub fn asks_kinds(self) -> bool {
        matches!(self, Self::ByMemory { .. })
    }
}

/// Where a transaction is executed that is known as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Perform {
    /// At its home. The other replicas apply its record.
    Home,
    /// At each replica that holds all that it touches. Under [`Order::Stamps`] only.
    AllHolders,
}

/// What reads see that are outside of update transactions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum See {
    /// Everything that was acknowledged before they began.
    Fresh,
    /// A prefix of the version order that may be old, whatever the replica has at the moment (Gargamel section III: "Read only
    /// transactions are never delayed, they can read stale values").
    Local,
}

/// What happens to a transaction that loses a conflict before its client has seen anything of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Retry {
    /// It runs again, unseen by its client.
    Unseen,
    /// Its client is told (40001), as in the papers, where clients send it again.
    Tell,
}
