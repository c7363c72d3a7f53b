//! What goes into the cluster's state machine and what comes out: typed events and effects, no bytes and no SQL.
//!
//! The driver (the binary, or the simulator) feeds one [`Event`] at a time, in the order in which things happened to
//! it, and carries out the [`Effect`]s in the order given. Each effect states its ordering duty; the promises of
//! DESIGN section 3 rest on these duties and on nothing else that the driver does.

use std::sync::Arc;

use crate::claims::{Claimed, Claims, ColumnSet, Footprint, Meeting};
use crate::ids::{Identity, Incarnation, Nonce, ReplicaId, SessionId, TableId, Version};
use crate::record::SealedBody;
use crate::time::Time;

/// What a statement reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reads {
    /// Exactly these tables.
    Tables(Arc<[TableId]>),
    /// These tables and rows.
    Rows(Arc<Footprint>),
    /// Only the catalogues.
    Catalogue,
    /// Cannot be bounded, or its snapshot outlives the statement: needs every needed version.
    All,
}

/// The isolation level of an update transaction.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Each statement sees what is committed when it begins.
    ReadCommitted,
    /// One snapshot; writes of rows that were written since fail.
    RepeatableRead,
    /// As if it ran alone, in the order of the log.
    Serializable,
}

/// Where an update transaction may have its home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Home {
    /// Only at the anchor: it may do what nobody can bound, or what only the anchor can.
    Anchor,
    /// Anywhere: all that it does is known to be bounded, or was so before.
    Any,
    /// The same, but it draws from sequences: at the anchor as long as that has room, see [`crate::parts::drawing`].
    Drawing {
        /// Where its session drew last.
        last: Option<ReplicaId>,
    },
    /// The same, and the client has asked for this replica: there as long as it is up.
    At(ReplicaId),
}

/// What a statement of an update transaction needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Needs {
    /// What it reads, what it writes included.
    pub reads: Reads,
    /// What it may write, lock or rely on: it waits for the transactions of other homes that do the same. At SERIALIZABLE
    /// also the rows that it reads by key: then it waits for those of its own home, too.
    pub writes: Claims,
    /// Expected time at the replica.
    pub cost_us: u32,
    /// Where the session was last, so that its connection and what the server remembers for it are warm there.
    pub near: Option<ReplicaId>,
    /// Version of the DDL that the session's catalogue reflects.
    pub catalogue: Version,
}

/// Something that happened.
#[derive(Debug)]
pub enum Event {
    /// A session wants to run a statement that only reads, outside of an update transaction.
    Read {
        /// Who.
        session: SessionId,
        /// What it reads.
        reads: Reads,
        /// Where it must run because its transaction is open there.
        at: Option<ReplicaId>,
        /// Expected time at the replica.
        cost_us: u32,
        /// Where the session was last, as in [`Needs`].
        near: Option<ReplicaId>,
        /// Version of the DDL that the session's catalogue reflects.
        catalogue: Version,
    },
    /// A session wants to begin an update transaction and to run its first statement.
    Begin {
        /// Who.
        session: SessionId,
        /// Its isolation.
        level: Level,
        /// Random, unknown to clients: the part of the identity that nobody can forge.
        nonce: Nonce,
        /// Where it may run.
        home: Home,
        /// Of its first statement.
        needs: Needs,
        /// What later ones are likely to write: it is placed by that, too, and waits for nothing because of it.
        foreseen: Claims,
    },
    /// A session wants to run another statement of its update transaction.
    Statement {
        /// Who.
        session: SessionId,
        /// Of the statement.
        needs: Needs,
    },
    /// A statement of an open update transaction has written what was not among [`Needs::writes`]: the transaction wants it
    /// now, if it is nobody else's. Answered at once by [`Effect::LateReservation`], unless the transaction is over.
    ReserveLate {
        /// Who.
        session: SessionId,
        /// What its last statement wrote.
        claims: Claims,
        /// What else it wrote, and home holds for it: see [`Claimed::is_held`].
        held: Claims,
    },
    /// The statement that an [`Effect::Execute`] let run has ended, well or not.
    Executed {
        /// Who.
        session: SessionId,
    },
    /// The number that home drew in the statement that inserted the identity, said just before [`Event::Finish`]; or
    /// another one, drawn because of [`Effect::DrawLockLsn`]. See [`crate::parts::lock_lsns`] for what it is good for.
    LockLsn {
        /// Who.
        session: SessionId,
        /// The number.
        lsn: u64,
    },
    /// All statements are done and the identity is inserted at home: order the record.
    Finish {
        /// Who.
        session: SessionId,
        /// The captured changes.
        body: Box<SealedBody>,
        /// What its statements wrote, claimed or may have locked, in their order.
        claims: Vec<Claimed>,
        /// Tables of which no row came or went, and only these columns of rows were changed.
        changed: Vec<(TableId, ColumnSet)>,
        /// At SERIALIZABLE, what it has read.
        reads: Reads,
    },
    /// A refresh cannot go on because of the session's transaction: unless its record is appended, it is rolled back.
    BlocksApply {
        /// Who.
        session: SessionId,
        /// Where, and on which set of connections.
        replica: ReplicaId,
        /// The set of connections.
        incarnation: Incarnation,
    },
    /// Who waits for whom inside of the servers, as they have said a while ago: deadlocks are looked for. What is to count
    /// has to be told again.
    ServerWaits {
        /// Pairs of one that waits and one it waits for.
        edges: Vec<(SessionId, SessionId)>,
    },
    /// The update transaction is over at its home without a record: rolled back, or it wrote nothing.
    End {
        /// Who.
        session: SessionId,
    },
    /// The update transaction that was let begin has done nothing yet: its session has to wait for a connection to its home.
    /// It is over, so nobody waits for it; but until the session's next event it is load there, and others begin elsewhere.
    Yield {
        /// Who.
        session: SessionId,
    },
    /// Home has acknowledged the COMMIT that an [`Effect::Commit`] asked for.
    Committed {
        /// Who.
        session: SessionId,
    },
    /// The session no longer wants the place it waits for.
    GiveUp {
        /// Who.
        session: SessionId,
    },
    /// The open update transaction can only be rolled back: it needs no locks any more.
    Failed {
        /// Who.
        session: SessionId,
    },
    /// A statement of an open update transaction is not to run after all; the transaction goes on.
    Withdraw {
        /// Who.
        session: SessionId,
    },
    /// Every record up to this version is durable in the log.
    Logged {
        /// The last durable version.
        upto: Version,
    },
    /// A replica serves: its former connections are gone and its applied set was read after that.
    ReplicaUp {
        /// Which.
        replica: ReplicaId,
        /// Its new set of connections.
        incarnation: Incarnation,
        /// It has every version up to this one, and none after it.
        applied: Version,
    },
    /// A connection on which something depends was lost, or a COMMIT of a logged record was not acknowledged.
    ReplicaLost {
        /// Which.
        replica: ReplicaId,
        /// The set of connections that this is about.
        incarnation: Incarnation,
    },
    /// A replica does not answer as it should, or does so again: reads go elsewhere if they can.
    Suspect {
        /// Which.
        replica: ReplicaId,
        /// The set of connections that this is about.
        incarnation: Incarnation,
        /// Whether it is suspected now.
        is_suspect: bool,
    },
    /// This replica was lost so long ago that, if it is the anchor, another one is to take its place.
    TakeOver {
        /// Which was lost.
        from: ReplicaId,
    },
    /// A replica cannot apply a record: it serves nothing until it is rebuilt.
    Diverged {
        /// Which.
        replica: ReplicaId,
    },
    /// A replica that was in quarantine has the data of another one now: it may come up again.
    Rebuilt {
        /// Which.
        replica: ReplicaId,
    },
    /// A new replica is a member from now on; its number was never one, or is that of one that has left. It has no data
    /// yet, which is as in quarantine: [`Event::Rebuilt`] tells when it has.
    Joined {
        /// Which.
        replica: ReplicaId,
    },
    /// A replica is no longer a member.
    Left {
        /// Which.
        replica: ReplicaId,
    },
    /// A replica is to serve nobody new, or may again. One that is the anchor gives its place up. Nothing happens if no
    /// other replica is up that can take what it serves.
    Drained {
        /// Which.
        replica: ReplicaId,
        /// Whether it is drained from now on.
        is_drained: bool,
    },
    /// A refresh was committed.
    Applied {
        /// Where.
        replica: ReplicaId,
        /// On which set of connections.
        incarnation: Incarnation,
        /// Its last version.
        upto: Version,
    },
    /// The sessions' catalogue now reflects all DDL up to this version.
    CatalogueLoaded {
        /// The version.
        version: Version,
    },
    /// A session wants all replicas to stand at one version for a moment.
    Hold {
        /// Who.
        session: SessionId,
    },
    /// The end of what [`Event::Hold`] began.
    Release {
        /// Who.
        session: SessionId,
    },
    /// The time of the last [`Effect::WakeAt`] has come.
    WakeUp,
}

/// Why a session's transaction cannot go on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AbortCause {
    /// The replica where it was open is lost; nothing of it was logged.
    HomeLost,
    /// What it has written or read was written by another transaction meanwhile.
    Conflict(Rival),
    /// It waits for a transaction that waits for it.
    Deadlock(Rival),
}

/// The other side of a conflict, as far as it is known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Rival {
    /// Where they met.
    pub meeting: Option<Meeting>,
    /// The record of the other.
    pub version: Option<Version>,
    /// The session of the other.
    pub session: Option<SessionId>,
}

/// Something to be done.
#[derive(Debug)]
pub enum Effect {
    /// Send the session's statement, on a connection of this incarnation and no other.
    Execute {
        /// Who.
        session: SessionId,
        /// Where.
        replica: ReplicaId,
        /// On which set of connections.
        incarnation: Incarnation,
        /// Of an update transaction that begins with this statement: who it is.
        identity: Option<Identity>,
    },
    /// What [`Event::ReserveLate`] asked for.
    LateReservation {
        /// Who.
        session: SessionId,
        /// Who has it, or had it and was first: the statement has to be undone, which frees it at home, and to be asked for
        /// again with what it wrote among its needs. `None`: it is the transaction's own.
        rival: Option<Rival>,
    },
    /// The session's catalogue is older than the DDL that is visible: classify again with the present one.
    Reclassify {
        /// Who.
        session: SessionId,
    },
    /// Append to the log, after all earlier appends. Nothing but COMMIT may follow at its home.
    Append {
        /// The record's place.
        version: Version,
        /// Whose it is.
        identity: Identity,
        /// What is in it.
        body: Box<SealedBody>,
    },
    /// Something that seems to have come after the transaction has finished before it: draw another number on the
    /// transaction's own connection and say [`Event::LockLsn`]. If home still answers there, no lock has fallen.
    DrawLockLsn {
        /// Who.
        session: SessionId,
    },
    /// The record is durable: answer the client.
    Acknowledge {
        /// Who.
        session: SessionId,
        /// Its version.
        version: Version,
    },
    /// Send COMMIT at home now; it is this version's turn there.
    Commit {
        /// Who.
        session: SessionId,
        /// Its version.
        version: Version,
    },
    /// The home is lost after the append: close that connection; the log decides, and the record is applied from it.
    HomeLost {
        /// Who.
        session: SessionId,
    },
    /// Nothing of the transaction was logged and nothing will be: give up its connection, tell the client 40001.
    Abort {
        /// Who.
        session: SessionId,
        /// Why.
        cause: AbortCause,
    },
    /// Apply these versions as one transaction. All are durable.
    Apply {
        /// Where.
        replica: ReplicaId,
        /// On which set of connections.
        incarnation: Incarnation,
        /// First version.
        from: Version,
        /// Last version.
        upto: Version,
    },
    /// End all connections to the replica, wait until its backends are gone, read its applied set, report it up.
    Reset {
        /// Which.
        replica: ReplicaId,
    },
    /// Read the catalogue at the anchor, then say [`Event::CatalogueLoaded`] with this version.
    LoadCatalogue {
        /// The anchor.
        replica: ReplicaId,
        /// The DDL that it must reflect.
        version: Version,
    },
    /// This replica is the anchor from now on: what was open at the former one is over.
    Anchor {
        /// Which.
        replica: ReplicaId,
    },
    /// All replicas that are up stand at this version until [`Event::Release`].
    Held {
        /// Who asked.
        session: SessionId,
        /// The version.
        version: Version,
    },
    /// Say [`Event::WakeUp`] at this time, and not at the one that was said before, if that is still to come.
    WakeAt {
        /// When.
        at: Time,
    },
}

impl Effect {
    /// Whether it is the answer to what the session has just asked.
    pub fn answers(&self, own: SessionId) -> bool {
        matches!(self, Self::Execute { session, .. } | Self::LateReservation { session, .. } if *session == own)
    }

    /// The session that the effect is for, if it is for one.
    pub fn session(&self) -> Option<SessionId> {
        match *self {
            Self::Execute { session, .. }
            | Self::LateReservation { session, .. }
            | Self::Reclassify { session }
            | Self::DrawLockLsn { session }
            | Self::Acknowledge { session, .. }
            | Self::Commit { session, .. }
            | Self::HomeLost { session }
            | Self::Abort { session, .. }
            | Self::Held { session, .. } => Some(session),
            Self::Append { .. }
            | Self::Apply { .. }
            | Self::Reset { .. }
            | Self::Anchor { .. }
            | Self::WakeAt { .. }
            | Self::LoadCatalogue { .. } => None,
        }
    }
}
