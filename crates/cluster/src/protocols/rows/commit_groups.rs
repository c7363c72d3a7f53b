//! Commit groups: versions of one home that stand next to each other in the log are committed there together.
//!
//! If each COMMIT is sent when the one before is acknowledged, round trips add up: with a server 0.5 ms away a home did 475
//! transactions a second, and 996 with groups (benchmarks/README.md, "Servers at a distance"). The transactions of a group are
//! disjoint, since one that overlaps an unacknowledged one is not appended ([`crate::parts::in_flight`]), so their order does
//! not matter to them. It matters to readers: if home shows the second one first, and another replica the first one, two
//! readers see histories that exclude each other (a long fork; `DESIGN` section 3 and the spec's finding, "disjoint neighbours
//! together"). So:
//!
//! - A group is one refresh at every other replica. Then no other replica shows a part of it, and the order in which home
//!   shows its versions is the only one.
//! - Home does not put versions into one group that some replica has shown apart already, or is about to.
//! - All transactions of a group have finished before the first is appended, so before any is answered. Otherwise one could
//!   have begun after another had been answered, and a reader that sees only the former contradicts real time. So nothing is
//!   appended at a home that has versions whose COMMIT could not be sent yet.
//! - A SERIALIZABLE transaction is in no group. It may not have seen the writes of the next version, so it comes before that
//!   one in every serial order. A reader that sees the next version without it would come both before and after it.
//! - A transaction that the agent applies as one of its own, such as a schema change, is in no group either.
//!
//! These rules also make groups form: transactions that finish while a home has unsent COMMITs wait, and are then appended next
//! to each other. So do transactions that finish while a record is on its way to the log, as they would in the log's own
//! queue. Versions of one home then stand next to each other, and replicas switch between COMMITs and refreshes less often.
//!
//! A home that crashes among the COMMITs of a group may have any of them ([`super::COMMITS_TOGETHER_MAX`]). Its replica driver
//! applies the missing ones before the home serves again, so no reader sees a part.
//!
//! DESIGN section 5 foresees another way: send no statement that reads more than a row until the whole group is acknowledged.
//! That would stop the readers of a busy home for most of the time, while refreshes in batches cost nothing.
//!
//! A replica that comes up may have a part of a group, and its batches may end inside a group that was forgotten meanwhile. So
//! it shows nothing before it has all versions that were durable when it came up ([`Replica::floor`]).
//!
//! Invariant: no other replica serves reads while its last version is inside a commit group.
//!
//! [`Replica::floor`]: crate::parts::replica::Replica::floor

use super::{Assigned, COMMITS_TOGETHER_MAX, Out, REFRESH_BYTES_MAX, Rows};
use crate::event::{Effect, Level};
use crate::ids::{SessionId, Version};
use crate::parts::in_flight::Place;
use crate::record::SealedBody;

/// Larger records are in no group, since a whole group has to fit into one refresh.
const GROUPED_BYTES_MAX: usize = 16 << 10;

impl Rows {
    /// Whether a transaction that finishes at this home waits, so that it is appended next to others.
    pub(super) fn waits_for_group(&self, home: usize) -> bool {
        if self.stamped.is_some() {
            return false;
        }
        self.last > self.index.last() || (self.homes[home].unsent > 0 && self.rules.unsent_are_waited_for)
    }

    /// Appends transactions that need not wait any more, home by home, beginning with the home of the last version.
    pub(super) fn append_ready(&mut self, out: &mut Out<'_>) {
        let (count, last_home) = (self.replicas.len(), self.last_home);
        let home_of = |session: &SessionId| {
            self.transactions.get(session).map_or(last_home, |transaction| transaction.home)
        };
        let can_go = |(_, session): &&(Place, SessionId)| !self.waits_for_group(home_of(session));
        let mut ready: Vec<(Place, SessionId)> = self.ready.iter().filter(can_go).copied().collect();
        // The sort is stable: transactions of one home stay in the order in which they finished.
        ready.sort_by_key(|(_, session)| (home_of(session) + count - last_home) % count);
        for entry in ready {
            self.ready.remove(&entry);
            self.append_or_group(false, entry.1, out);
        }
    }

    /// Whether a transaction may be in a commit group.
    pub(super) fn can_be_grouped(&self, level: Level, body: &SealedBody) -> bool {
        // What a replica has performed it commits alone.
        (level != Level::Serializable || !self.rules.serializable_alone)
            && self.stamped.is_none()
            && !body.writes_everything()
            && !body.is_spilled()
            && body.len_bytes() <= GROUPED_BYTES_MAX
    }

    /// Sends the COMMITs of a group to its home: of this version, and of those after it that may share its group.
    pub(super) fn commit_group(&mut self, index: usize, first: Version, out: &mut Out<'_>) {
        let limit = self.index.last().min(Version(first.0 + COMMITS_TOGETHER_MAX - 1));
        let mut upto = first;
        while upto < limit && self.may_share_group(index, upto) {
            upto = upto.next();
        }
        self.homes[index].unsent -= (upto.0 - first.0 + 1) as usize;
        for (version, assigned) in self.versions.range_mut(first..=upto) {
            assigned.group_end = upto;
            out.effects.push(Effect::Commit { session: assigned.session, version: *version });
        }
        self.replicas[index].sent_commits(out.now, upto);
    }

    /// Whether the version after this one may share its group.
    fn may_share_group(&self, index: usize, version: Version) -> bool {
        let (Some(one), Some(next)) = (self.versions.get(&version), self.versions.get(&version.next()))
        else {
            return false;
        };
        let is_apart = one.is_shown_apart && self.rules.shown_apart_part;
        next.home == Some(index) && one.can_be_grouped && next.can_be_grouped && !is_apart
    }

    /// The last version of a refresh that begins with this one: before the next version of the replica's own, and not inside a
    /// group.
    pub(super) fn end_of_batch(&self, index: usize, first: Version) -> Version {
        let limit = self.index.last().min(Version(first.0 + self.refresh_versions_max - 1));
        let mut bytes = 0;
        let performs = |assigned: &Assigned| {
            self.stamped.as_ref().is_some_and(|one| one.performers.performs(index, assigned.identity))
        };
        let beyond = self.versions.range(first..=limit).find(|(version, assigned)| {
            bytes += assigned.bytes;
            let is_own = assigned.home == Some(index) || performs(assigned);
            **version > first && (is_own || bytes > REFRESH_BYTES_MAX)
        });
        let end = beyond.map_or(limit, |(version, _)| Version(version.0 - 1));
        match self.versions.get(&end) {
            Some(last) if self.rules.commit_groups_stay_whole => last.group_end,
            _ => end,
        }
    }

    /// A replica shows this version without the next one, or is about to, and is not its home.
    pub(super) fn shown_apart_after(&mut self, version: Version) {
        if let Some(assigned) = self.versions.get_mut(&version) {
            assigned.is_shown_apart = true;
        }
    }
}
