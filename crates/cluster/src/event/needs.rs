//! What statements and transactions need of the replica where they run: what they read, write and touch, and what is foreseen.
//!
//! Example: `UPDATE t SET v = 1 WHERE k = 7` reads and writes one row, touches the table `t`, and is known as a whole.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::claims::{Claims, Footprint};
use crate::ids::{KindId, ReplicaId, TableId, Version};
use crate::placement::Touches;

/// The reads of a statement.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Reads {
    /// Exactly these tables.
    Tables(Arc<[TableId]>),
    /// These tables and rows.
    Rows(Arc<Footprint>),
    /// Only the catalogues.
    Catalogue,
    /// Anything: they cannot be bounded, or the snapshot outlives the statement. The statement needs every needed version.
    All,
}

impl Reads {
    /// All tables that are read, as a whole.
    pub fn touches(&self) -> Touches {
        match self {
            Self::Tables(tables) => Touches::Tables(Arc::clone(tables)),
            Self::Rows(footprint) => Touches::Tables(footprint.all_tables().into()),
            Self::Catalogue => Touches::Tables([].into()),
            Self::All => Touches::Anything,
        }
    }
}

/// The isolation level of an update transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub enum Level {
    /// Each statement sees what is committed when it begins.
    ReadCommitted,
    /// One snapshot; writes of rows that were written since fail.
    RepeatableRead,
    /// As if it ran alone, in the order of the log.
    Serializable,
}

/// Where an update transaction may have its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Home {
    /// Only at the anchor: it may do what cannot be bounded, or what only the anchor can do.
    Anchor,
    /// Anywhere: all that it does is known to be bounded, or such transactions were bounded before.
    Any,
    /// Anywhere, but it draws from sequences: at the anchor as long as that has room, see [`crate::parts::drawing`].
    Drawing {
        /// The replica where its session drew last.
        last: Option<ReplicaId>,
    },
    /// Anywhere, and the client has asked for this replica: there as long as it is up.
    At(ReplicaId),
}

/// The needs of a statement of an update transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Needs {
    /// Its reads, with what it writes.
    pub reads: Reads,
    /// The tables that its home must hold. Of the first statement, also those that are expected of later ones.
    pub touches: Touches,
    /// The claims on all that it may write, lock or rely on. It waits for the transactions of other homes that hold the same.
    /// At SERIALIZABLE the rows that it reads by key are among them, and it waits for those of its own home, too.
    pub writes: Claims,
    /// Expected time at the replica.
    pub cost_us: u32,
    /// The replica where the session was last: its connection and the server's caches are warm there.
    pub near: Option<ReplicaId>,
    /// Version of the DDL that the session's catalogue reflects.
    pub catalogue: Version,
    /// Of the first statement, the kind of its transaction, if the protocol asks for kinds.
    pub kind: Option<Box<Kind>>,
}

/// A kind of transactions with its working set.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Kind {
    /// The kind.
    pub id: KindId,
    /// The tables that it touches, each once, with their sizes in bytes. A size that is not known is 0.
    pub tables: Vec<(TableId, u64)>,
}

/// What is known of a transaction's later statements when it begins.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Foreseen {
    /// The claims that they are likely to make. They count when the home is chosen, and never for waiting.
    Likely(Claims),
    /// All that the transaction does, its first statement included: it can wait for others as a whole.
    Whole(Box<Whole>),
}

impl Default for Foreseen {
    fn default() -> Self {
        Self::Likely(Claims::default())
    }
}

/// All that a transaction does, known before it begins: one statement, or a call, or a declared profile.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Whole {
    /// The claims on all that its statements may write, lock or rely on.
    pub writes: Claims,
    /// The same for all that they may read, as if they locked it for share.
    pub reads: Claims,
    /// It cannot write anything else. If it is only likely to write nothing else, it may fail all the same.
    pub is_sure: bool,
    /// Another replica can execute it, too: its session can tell all its statements, which only change rows.
    pub is_performable: bool,
}

impl Whole {
    /// The claims on what it writes and on what it reads. A table that it reads as a whole counts as written, so two readers
    /// of it wait for each other, too.
    pub fn writes_and_reads(&self) -> Claims {
        let mut claims = self.writes.clone();
        claims.add(&self.reads);
        claims
    }
}
