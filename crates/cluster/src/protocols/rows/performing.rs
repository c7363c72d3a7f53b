//! Replicas that perform a transaction of another home, and commit that instead of applying the record.
//!
//! Preventive replication, section 4.2: each node that holds all that a transaction touches executes it. Here the execution stays
//! open until the turn of the version comes at the replica:
//!
//! ```text
//!   the digest of what was performed there is the home's   COMMIT                              Effect::CommitPerformed
//!   it differs, or the execution has failed                rolled back, the record is applied  Effect::UndoPerformed, Apply
//!   it has not ended                                       waited for, for a while             [`PERFORMER_PATIENCE_US`]
//! ```
//!
//! So the log decides what a replica shows, and a wrong execution costs time only. A performer gives way at once to a refresh, or to
//! a statement of another transaction, that waits for one of its locks.
//!
//! Invariants: what is performed commits in its turn, when its record is durable, and only with the rows of the record. No replica
//! shows a record twice, because an execution that does not commit is rolled back before the record is applied.
//!
//! Not here: which replica performs what, and when ([`super::stamped`]).

use std::collections::BTreeMap;

use super::apply_batching::Alarm;
use super::{Out, Rows};
use crate::event::{Digest, Effect, Performance};
use crate::ids::{Identity, ReplicaId, Version};
use crate::parts::stamps::Stamp;
use crate::protocols::StampCounts;
use crate::time::Time;

/// How long the turn of a version waits at a replica for an execution of its transaction that has not ended. It may wait for a lock
/// of a transaction that waits for the version.
pub const PERFORMER_PATIENCE_US: u64 = 10_000;

/// How far the execution of a performer has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    Running,
    Done(Digest),
}

/// An execution at a replica that is not the home of its transaction.
#[derive(Debug)]
struct Performer {
    stamp: Stamp,
    attempt: u64,
    progress: Progress,
}

/// What becomes of a version in its turn at a replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum OwnTurn {
    /// The replica commits what it has performed.
    Commits,
    /// Its execution has not ended.
    Waits,
    /// It takes the record.
    TakesRecord,
}

/// The executions at all replicas.
#[derive(Debug, Default)]
pub(super) struct Performers {
    all: BTreeMap<(usize, Identity), Performer>,
    attempts: u64,
    /// By replica, a version that waits for its performer, and since when.
    turns: BTreeMap<usize, (Version, Time)>,
    pub(super) counts: StampCounts,
}

impl Performers {
    /// A replica begins an execution. Returns its number.
    pub(super) fn begin(&mut self, replica: usize, identity: Identity, stamp: Stamp) -> u64 {
        self.attempts += 1;
        let performer = Performer { stamp, attempt: self.attempts, progress: Progress::Running };
        self.all.insert((replica, identity), performer);
        self.attempts
    }

    /// Whether the replica has an execution of the transaction.
    pub(super) fn performs(&self, replica: usize, identity: Identity) -> bool {
        self.all.contains_key(&(replica, identity))
    }

    /// Whether the replica waits for an execution before it shows its next version.
    pub(super) fn is_awaited(&self, replica: usize, next: Version) -> bool {
        self.turns.get(&replica).is_some_and(|(version, _)| *version == next)
    }

    /// Takes the execution of a replica away. Returns the effect that rolls it back, if there is one.
    pub(super) fn dismiss(&mut self, replica: usize, identity: Identity) -> Option<Effect> {
        let Performer { attempt, .. } = self.all.remove(&(replica, identity))?;
        let replica = ReplicaId(u16::try_from(replica).expect("below the number of a replica"));
        Some(Effect::UndoPerformed { replica, identity, attempt })
    }

    /// The replica is lost, with all executions there.
    pub(super) fn lost(&mut self, replica: usize) {
        self.all.retain(|(at, _), _| *at != replica);
        self.turns.remove(&replica);
    }

    /// Since when the turn of this version has waited at a replica.
    fn turn(&mut self, replica: usize, version: Version, now: Time) -> Time {
        let turn = self.turns.entry(replica).or_insert((version, now));
        if turn.0 != version {
            *turn = (version, now);
        }
        turn.1
    }
}

impl Rows {
    /// What a replica does in the turn of a version: it commits what it has performed, if that is what the record says.
    pub(super) fn own_turn(&mut self, index: usize, version: Version, out: &mut Out<'_>) -> OwnTurn {
        let (Some(stamped), Some(assigned)) = (&mut self.stamped, self.versions.get(&version)) else {
            return OwnTurn::TakesRecord;
        };
        let (identity, expected) = (assigned.identity, assigned.digest);
        let performers = &mut stamped.performers;
        let Some(Performer { progress, .. }) = performers.all.get(&(index, identity)) else {
            performers.turns.remove(&index);
            return OwnTurn::TakesRecord;
        };
        let is_alike = |digest| Some(digest) == expected || !self.rules.digests_are_compared;
        match *progress {
            Progress::Done(digest) if is_alike(digest) => {
                performers.all.remove(&(index, identity));
                performers.turns.remove(&index);
                performers.counts.performed += 1;
                let replica = &mut self.replicas[index];
                let (id, incarnation) = (replica.id, replica.incarnation);
                out.effects.push(Effect::CommitPerformed { replica: id, incarnation, identity, version });
                replica.sent_refresh(out.now, version);
                return OwnTurn::Commits;
            }
            Progress::Done(_) => performers.counts.differed += 1,
            Progress::Running => {
                let since = performers.turn(index, version, out.now);
                let until = Time { us: since.us.saturating_add(PERFORMER_PATIENCE_US) };
                if until > out.now {
                    self.set_alarm(Alarm::OwnTurn(index), until, out);
                    return OwnTurn::Waits;
                }
                performers.counts.outrun += 1;
            }
        }
        performers.turns.remove(&index);
        self.take_record(index, identity, out);
        OwnTurn::TakesRecord
    }

    /// What has become of an execution at a replica that is not the home of its transaction.
    pub(super) fn performed(
        &mut self,
        index: usize,
        identity: Identity,
        attempt: u64,
        performance: Performance,
        out: &mut Out<'_>,
    ) {
        let Some(stamped) = &mut self.stamped else { return };
        let performer = stamped.performers.all.get_mut(&(index, identity));
        let Some(performer) = performer.filter(|performer| performer.attempt == attempt) else { return };
        match performance {
            Performance::Done(digest) => {
                performer.progress = Progress::Done(digest);
                let steps = stamped.instance.performed(index, performer.stamp);
                stamped.steps.extend(steps);
            }
            Performance::Failed => {
                stamped.performers.counts.failed += 1;
                let stamp = performer.stamp;
                stamped.performers.all.remove(&(index, identity));
                let steps = stamped.instance.gives_up(index, stamp);
                stamped.steps.extend(steps);
            }
            Performance::Blocks => {
                stamped.performers.counts.failed += 1;
                self.take_record(index, identity, out);
            }
        }
        self.advance(index, out);
    }

    /// The replica gives its execution up, and applies the record in its turn.
    fn take_record(&mut self, index: usize, identity: Identity, out: &mut Out<'_>) {
        let Some(stamped) = &mut self.stamped else { return };
        let Some(Performer { stamp, .. }) = stamped.performers.all.get(&(index, identity)) else { return };
        let stamp = *stamp;
        out.effects.extend(stamped.performers.dismiss(index, identity));
        let steps = stamped.instance.gives_up(index, stamp);
        stamped.steps.extend(steps);
    }
}
