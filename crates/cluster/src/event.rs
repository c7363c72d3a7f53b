//! The language of the cluster's state machine: typed events go in, typed effects come out. No bytes and no SQL.
//!
//! The driver (the binary, or the simulator) feeds one [`Event`] at a time, in the order in which things happened to
//! it, and carries out the [`Effect`]s in the order given. Each effect states its ordering duty. The promises of
//! DESIGN section 3 rest on these duties and on nothing else that the driver does.

mod abort_cause;
mod needs;
mod parties;
mod stamped;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};

use crate::claims::{Claimed, Claims, ColumnSet};
use crate::ids::{CrewId, Identity, Incarnation, Nonce, ReplicaId, SessionId, TableId, Version};
use crate::placement::{Copies, ReplicaSet, Touches};
use crate::record::SealedBody;
use crate::time::Time;

pub use abort_cause::{AbortCause, Rival};
pub use needs::{Foreseen, Home, Kind, Level, Needs, Reads, Whole};
pub use stamped::{Digest, Message, Performance, Role, Stamp};

/// An input of the state machine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Event {
    /// A session wants to run a statement that only reads, outside of an update transaction.
    Read {
        /// The session.
        session: SessionId,
        /// Its reads.
        reads: Reads,
        /// What must be held where it runs.
        touches: Touches,
        /// The replica where it must run, because its transaction is open there.
        at: Option<ReplicaId>,
        /// Expected time at the replica.
        cost_us: u32,
        /// The replica where the session was last, as in [`Needs`].
        near: Option<ReplicaId>,
        /// Version of the DDL that the session's catalogue reflects.
        catalogue: Version,
        /// Its kind, as in [`Needs`].
        kind: Option<Box<Kind>>,
    },
    /// A session wants to begin an update transaction and to run its first statement.
    Begin {
        /// The session.
        session: SessionId,
        /// Its isolation level.
        level: Level,
        /// The random part of its identity. Clients do not know it, so they cannot forge the identity.
        nonce: Nonce,
        /// The replicas where it may run.
        home: Home,
        /// The needs of its first statement.
        needs: Needs,
        /// What is known of its later statements.
        foreseen: Foreseen,
    },
    /// A session wants to run another statement of its update transaction.
    Statement {
        /// The session.
        session: SessionId,
        /// The needs of the statement.
        needs: Needs,
    },
    /// A statement of an open update transaction has written rows that were not among its [`Needs::writes`]. The transaction
    /// wants to reserve them now, which fails if another one has them. [`Effect::LateReservation`] answers at once, unless the
    /// transaction is over.
    ReserveLate {
        /// The session.
        session: SessionId,
        /// The claims of its last statement.
        claims: Claims,
        /// The claims of its last statement that home holds for it: see [`Claimed::is_held`].
        held: Claims,
    },
    /// The statement that an [`Effect::Execute`] let run has ended, well or not.
    Executed {
        /// The session.
        session: SessionId,
    },
    /// The lock LSN that home drew in the statement that inserted the identity, said just before [`Event::Finish`]; or
    /// another one, drawn because of [`Effect::DrawLockLsn`]. [`crate::parts::lock_lsns`] says what it shows.
    LockLsn {
        /// The session.
        session: SessionId,
        /// The number.
        lsn: u64,
    },
    /// All statements are done and the identity is inserted at home: order the record.
    Finish {
        /// The session.
        session: SessionId,
        /// The captured changes.
        body: Box<SealedBody>,
        /// The claims of its statements, in their order: what they wrote, relied on, or may have locked.
        claims: Vec<Claimed>,
        /// Tables whose rows were only updated, with the columns that changed.
        changed: Vec<(TableId, ColumnSet)>,
        /// At SERIALIZABLE, its reads.
        reads: Reads,
    },
    /// A refresh waits for a lock of the session's transaction. Unless its record is appended, the transaction is rolled back.
    BlocksApply {
        /// The session.
        session: SessionId,
        /// The replica of the refresh.
        replica: ReplicaId,
        /// The set of connections that this is about.
        incarnation: Incarnation,
    },
    /// The lock waits inside the servers, as they have reported a while ago. The core looks for deadlocks. A wait counts only
    /// when two reports in a row have it.
    ServerWaits {
        /// Pairs of a session that waits and one that it waits for.
        edges: Vec<(SessionId, SessionId)>,
    },
    /// The update transaction is over at its home without a record: it was rolled back, or it wrote nothing.
    End {
        /// The session.
        session: SessionId,
    },
    /// The update transaction was let begin, but its session has to wait for a connection to its home first. The transaction
    /// is over, so no other waits for it. Until the session's next event it counts as load there, so that others begin elsewhere.
    Yield {
        /// The session.
        session: SessionId,
    },
    /// Home has acknowledged the COMMIT that an [`Effect::Commit`] asked for.
    Committed {
        /// The session.
        session: SessionId,
    },
    /// The session no longer wants what it waits for.
    GiveUp {
        /// The session.
        session: SessionId,
    },
    /// The session has ended. It has nothing open, and says nothing more.
    Closed {
        /// The session.
        session: SessionId,
    },
    /// The open update transaction can only be rolled back: it needs no locks any more.
    Failed {
        /// The session.
        session: SessionId,
    },
    /// A statement of an open update transaction is not to run after all. The transaction goes on.
    Withdraw {
        /// The session.
        session: SessionId,
    },
    /// Every record up to this version is durable in the log.
    Logged {
        /// The last durable version.
        upto: Version,
    },
    /// A replica serves: its former connections are gone and its applied set was read after that.
    ReplicaUp {
        /// The replica.
        replica: ReplicaId,
        /// Its new set of connections.
        incarnation: Incarnation,
        /// The replica has every version up to this one, and none after it.
        applied: Version,
    },
    /// A connection on which something depends was lost, or a COMMIT of a logged record was not acknowledged.
    ReplicaLost {
        /// The replica.
        replica: ReplicaId,
        /// The set of connections that this is about.
        incarnation: Incarnation,
    },
    /// A replica does not answer as it should, or does so again: reads go elsewhere if they can.
    Suspect {
        /// The replica.
        replica: ReplicaId,
        /// The set of connections that this is about.
        incarnation: Incarnation,
        /// Whether it is suspected now.
        is_suspect: bool,
    },
    /// This replica was lost so long ago that, if it is the anchor, another one is to take its place.
    TakeOver {
        /// The replica that was lost.
        from: ReplicaId,
    },
    /// A replica cannot apply a record. It serves nothing until it is rebuilt.
    Diverged {
        /// The replica.
        replica: ReplicaId,
    },
    /// A replica that was in quarantine has the data of another one now, and may come up again.
    Rebuilt {
        /// The replica.
        replica: ReplicaId,
    },
    /// A new replica is a member from now on. Its number is new, or that of a replica that has left. Until
    /// [`Event::Rebuilt`] it has no data, and is treated as in quarantine.
    Joined {
        /// The replica.
        replica: ReplicaId,
    },
    /// A replica is no longer a member.
    Left {
        /// The replica.
        replica: ReplicaId,
    },
    /// A replica is to take no new transactions and reads, or may take them again. The anchor gives its role up. Nothing
    /// happens if no other replica is up that can take what this one serves.
    Drained {
        /// The replica.
        replica: ReplicaId,
        /// Whether it is drained from now on.
        is_drained: bool,
    },
    /// Other replicas hold a table, or parts of it, from now on. Those that are new or left out are down at this moment: each new one
    /// has the rows of all versions that it has applied, and nothing is read any more at one that is left out. A table may be split, or
    /// be whole again, while all are up, if no replica holds more or less by that. One that gets a part later has applied all versions of
    /// before the split, since their rows tell no parts.
    Placed {
        /// The table.
        table: TableId,
        /// Its holders. If none are given, replicas that have yet to join will hold it, too, provided that every present one does.
        copies: Option<Copies>,
    },
    /// Updates of a table begin at these replicas from now on, as long as one of them can; at any holder if none are given.
    Mastered {
        /// The table.
        table: TableId,
        /// The replicas.
        masters: ReplicaSet,
    },
    /// A refresh was committed.
    Applied {
        /// The replica.
        replica: ReplicaId,
        /// The set of connections that this is about.
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
        /// The session.
        session: SessionId,
    },
    /// The session of [`Event::Hold`] lets the replicas go on.
    Release {
        /// The session.
        session: SessionId,
    },
    /// The time of the last [`Effect::WakeAt`] has come.
    WakeUp,
    /// A message of [`Effect::Send`] arrives. Those of one replica to another arrive in the order in which they were sent.
    Arrived {
        /// The sender.
        from: ReplicaId,
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: Message,
    },
    /// The digest of all that the session's transaction has changed, said just before [`Event::Finish`]. Without it the executions
    /// of other replicas do not count.
    Digest {
        /// The session.
        session: SessionId,
        /// The digest.
        digest: Digest,
    },
    /// As [`Effect::RunAgain`] asked, home has rolled the transaction back, or will before it executes anything more of it.
    Undone {
        /// The session.
        session: SessionId,
    },
    /// What has become of an execution that [`Effect::Perform`] asked for.
    Performed {
        /// The replica.
        replica: ReplicaId,
        /// The transaction.
        identity: Identity,
        /// The number of the execution.
        attempt: u64,
        /// What has become of it.
        performance: Performance,
    },
    /// A node is lost, or its link was broken: nothing more comes from these sessions, and their connections to servers are not theirs
    /// any more. What they wait for and what they have open is over, also what had finished without being appended. What was appended
    /// stays; a home that is not known to have committed it is lost.
    NodeLost {
        /// The sessions of the node.
        crew: CrewId,
    },
    /// A session has lost its leader, or its link, after [`Event::Finish`], and asks what became of its transaction. The driver has
    /// looked the identity up in the log: among what this leader has read or appended, and after [`Event::NodeLost`] of the session's
    /// former crew. [`Effect::Acknowledge`] and [`Effect::HomeLost`] answer once the version is durable, or [`Effect::Abort`].
    Outcome {
        /// The session.
        session: SessionId,
        /// What the log says.
        found: Found,
    },
}

/// What the log says of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Found {
    /// It has its record, with this version.
    At(Version),
    /// It has every version that could be the transaction's, and its record is not among them.
    Nowhere,
    /// It was trimmed beyond where the record may have been.
    Forgotten,
}

impl Found {
    /// Of a record that comes after a version, in a log that began with `first_retained` once it was searched.
    pub fn of(version: Option<Version>, after: Version, first_retained: Version) -> Self {
        match version {
            Some(version) => Self::At(version),
            None if first_retained > after.next() => Self::Forgotten,
            None => Self::Nowhere,
        }
    }
}

/// An output of the state machine: the driver has to do this.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Effect {
    /// Send the session's statement, on a connection of this incarnation and no other.
    Execute {
        /// The session.
        session: SessionId,
        /// The replica where it runs.
        replica: ReplicaId,
        /// The set of connections to use.
        incarnation: Incarnation,
        /// The identity of the update transaction that begins with this statement, if one does.
        identity: Option<Identity>,
        /// The replica has every version up to this one, so the statement sees at least these.
        applied: Version,
    },
    /// The answer to [`Event::ReserveLate`].
    LateReservation {
        /// The session.
        session: SessionId,
        /// The transaction that has the rows, or had them first. The statement then has to be undone, which frees them at home,
        /// and has to ask again with these rows among its needs. `None`: the rows are reserved.
        rival: Option<Rival>,
    },
    /// The session's catalogue is older than the DDL that is visible: classify the statement again with the present one.
    Reclassify {
        /// The session.
        session: SessionId,
    },
    /// Append to the log, after all earlier appends. Nothing but COMMIT may follow at its home.
    Append {
        /// The version of the record.
        version: Version,
        /// The identity of its transaction.
        identity: Identity,
        /// Its content.
        body: Box<SealedBody>,
    },
    /// A transaction that seems to have locked after this one has finished before it. Draw another lock LSN on the
    /// transaction's own connection and say [`Event::LockLsn`]. If home still answers there, the transaction has lost no lock.
    DrawLockLsn {
        /// The session.
        session: SessionId,
    },
    /// The record is durable: answer the client.
    Acknowledge {
        /// The session.
        session: SessionId,
        /// Its version.
        version: Version,
    },
    /// Send COMMIT at home now; it is this version's turn there.
    Commit {
        /// The session.
        session: SessionId,
        /// Its version.
        version: Version,
    },
    /// The home is lost after the append: close that connection; the log decides, and the record is applied from it.
    HomeLost {
        /// The session.
        session: SessionId,
    },
    /// Nothing of the transaction was logged and nothing will be: give up its connection, and answer the client with 40001.
    Abort {
        /// The session.
        session: SessionId,
        /// The cause.
        cause: AbortCause,
    },
    /// Apply these versions as one transaction. All are durable.
    Apply {
        /// The replica.
        replica: ReplicaId,
        /// The set of connections to use.
        incarnation: Incarnation,
        /// First version.
        from: Version,
        /// Last version.
        upto: Version,
    },
    /// End all connections to the replica, wait until its backends are gone, read its applied set, report it up.
    Reset {
        /// The replica.
        replica: ReplicaId,
    },
    /// Read the catalogue at the anchor, then say [`Event::CatalogueLoaded`] with this version.
    LoadCatalogue {
        /// The anchor.
        replica: ReplicaId,
        /// The DDL that it must reflect.
        version: Version,
    },
    /// This replica is the anchor from now on. Everything that was open at the former one is over.
    Anchor {
        /// The replica.
        replica: ReplicaId,
    },
    /// All replicas that are up stand at this version until [`Event::Release`].
    Held {
        /// The session that asked for it.
        session: SessionId,
        /// The version.
        version: Version,
    },
    /// Say [`Event::WakeUp`] at this time, and not at the one of an earlier such effect, if that is still to come.
    WakeAt {
        /// The time.
        at: Time,
    },
    /// Bring the message to its receiver, after all that was sent before from the one to the other: [`Event::Arrived`].
    Send {
        /// The sender.
        from: ReplicaId,
        /// The receiver.
        to: ReplicaId,
        /// The message.
        message: Message,
    },
    /// Execute all statements of the session's transaction on a connection of its own, insert the identity, do all that COMMIT
    /// would check, and say [`Event::Performed`]. The client sees nothing of it. An earlier execution of the transaction there
    /// has to be rolled back before.
    Perform {
        /// The replica.
        replica: ReplicaId,
        /// The set of connections to use.
        incarnation: Incarnation,
        /// The session, which knows the statements.
        session: SessionId,
        /// The transaction.
        identity: Identity,
        /// The number of this execution.
        attempt: u64,
    },
    /// Send COMMIT for an execution that was performed, then say [`Event::Applied`] with this version. It is durable, and it is its
    /// turn there. If the COMMIT fails, or its connection is lost: [`Event::ReplicaLost`].
    CommitPerformed {
        /// The replica.
        replica: ReplicaId,
        /// The set of connections that this is about.
        incarnation: Incarnation,
        /// The transaction.
        identity: Identity,
        /// The version of its record.
        version: Version,
    },
    /// Roll an execution back that [`Effect::Perform`] asked for. No reply is needed.
    UndoPerformed {
        /// The replica.
        replica: ReplicaId,
        /// The transaction.
        identity: Identity,
        /// The number of the execution.
        attempt: u64,
    },
    /// An older transaction goes first. If the client has seen nothing of this one, roll it back at home, forget what it did, and say
    /// [`Event::Undone`]; another [`Effect::Execute`] lets its first statement run again. Otherwise fail with 40001, and say
    /// [`Event::End`].
    RunAgain {
        /// The session.
        session: SessionId,
    },
}
