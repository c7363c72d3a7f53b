//! Names of transactions, runs and statements.

use cluster::ids::{CrewId, SessionId};
use cluster::protocols::shipping::{Operation, SequenceNumber, StatementId, Transaction};

const NUMBER_BITS: u32 = 32;
const STATEMENT_BITS: u32 = 40;

/// A transaction over all terms: term and number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Identity(pub(super) u64);

impl Identity {
    pub(super) fn of(term: u64, number: SequenceNumber) -> Self {
        Self(term << NUMBER_BITS | number.0)
    }

    pub(super) fn term(self) -> u64 {
        self.0 >> NUMBER_BITS
    }

    pub(super) fn number(self) -> SequenceNumber {
        SequenceNumber(self.0 & ((1 << NUMBER_BITS) - 1))
    }
}

/// A replica from one join to its loss. Incarnations of different terms differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Run {
    pub(super) replica: usize,
    pub(super) incarnation: u64,
}

impl Run {
    /// That of a replica before it joins a term.
    pub(super) fn first(replica: usize, term: u64) -> Self {
        Self { replica, incarnation: term << NUMBER_BITS }
    }
}

/// A node from one start to its end.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Process {
    pub(super) node: usize,
    pub(super) life: u64,
}

/// Gives a statement a name of its own for each time that a session sends it.
pub(super) fn named(operation: Operation, attempt: u64) -> Operation {
    let statement = StatementId(attempt << STATEMENT_BITS | operation.statement.0);
    Operation { statement, ..operation }
}

/// The statement that has this name.
pub(super) fn statement_of(name: StatementId) -> StatementId {
    StatementId(name.0 & ((1 << STATEMENT_BITS) - 1))
}

/// A transaction as the leader names it.
pub(super) fn of_crew(transaction: Transaction, crew: CrewId) -> Transaction {
    match transaction {
        Transaction::Single(session) => Transaction::Single(SessionId::of(crew, session.counter())),
        Transaction::Numbered(_) => transaction,
    }
}

/// A transaction as its node names it.
pub(super) fn at_node(transaction: Transaction) -> Transaction {
    match transaction {
        Transaction::Single(session) => Transaction::Single(SessionId(session.counter())),
        Transaction::Numbered(_) => transaction,
    }
}
