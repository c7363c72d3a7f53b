//! The statements under way that sessions of other nodes have, by the names that the scheduler has given to them.
//!
//! Their nodes have the texts. Of a write this node has what its log keeps, also to complete it if the other node is lost.

use std::collections::BTreeMap;

use cluster::ids::{CrewId, SessionId};
use cluster::protocols::shipping::{Kind, StatementId};
use cluster::record::Shipped;
use sql::TemplateId;

use crate::coordinator::scheduler_messages::StatementNumber;

/// A statement of another node.
#[derive(Debug)]
pub(crate) struct CrewStatement {
    pub(crate) session: SessionId,
    /// The number that its node has given to it.
    pub(crate) number: StatementNumber,
    pub(crate) kind: Kind,
    pub(crate) template: TemplateId,
    pub(crate) logged: Vec<Shipped>,
    pub(crate) bytes: usize,
}

/// Statements by name, and by the numbers of their nodes.
#[derive(Debug, Default)]
pub(crate) struct CrewStatements {
    all: BTreeMap<StatementId, CrewStatement>,
    names: BTreeMap<(CrewId, StatementNumber), StatementId>,
    bytes: usize,
}

impl CrewStatements {
    /// The size of all statements together.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn get(&self, statement: StatementId) -> Option<&CrewStatement> {
        self.all.get(&statement)
    }

    /// The name of a statement that the node of a crew has numbered.
    pub(crate) fn named(&self, crew: CrewId, number: StatementNumber) -> Option<StatementId> {
        self.names.get(&(crew, number)).copied()
    }

    pub(crate) fn insert(&mut self, name: StatementId, statement: CrewStatement) {
        self.bytes += statement.bytes;
        self.names.insert((statement.session.crew(), statement.number), name);
        self.all.insert(name, statement);
    }

    /// Drops a statement that no replica needs any more.
    pub(crate) fn remove(&mut self, name: StatementId) {
        if let Some(gone) = self.all.remove(&name) {
            self.bytes -= gone.bytes;
            self.names.remove(&(gone.session.crew(), gone.number));
        }
    }
}

/// The bytes of what the log keeps of a statement.
pub(crate) fn bytes_of(logged: &[Shipped]) -> usize {
    logged.iter().map(|one| one.text.len() + one.values.len() + one.types.len() + one.settings.len()).sum()
}
