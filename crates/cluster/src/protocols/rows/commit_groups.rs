//! Versions of one home that stand next to each other in the log are committed there together.
//!
//! One COMMIT after another, each sent when the one before is acknowledged, is a chain: with a server a round trip of 0.5 ms
//! away it bounded a home to 475 transactions a second, and 996 are done since (benchmarks/README.md, "Servers at a distance").
//! Neighbours are disjoint, since what overlaps one that is not acknowledged is not appended ([`crate::parts::in_flight`]), so
//! their order says nothing to them. It does to others: if home shows the second one first, and another replica the first one,
//! two readers see histories that exclude each other (a long fork; `DESIGN` section 3 and the spec's finding, "disjoint
//! neighbours together"). So:
//!
//! - What home commits together is one refresh, with all of it, at every other replica. Then no other replica shows one of
//!   them without the rest, and the order in which home shows them is the order that there is.
//! - Home does not put together what some replica has shown apart already, or is about to.
//! - All of them had finished before the first was appended, so before any was answered. Else who sees one that began after
//!   another had ended, and not that other one, sees what real time excludes. So nothing is appended at a home that has
//!   versions whose COMMIT could not be sent yet.
//! - A SERIALIZABLE transaction is alone. It may not have seen what the next version wrote, so it comes before that in every
//!   serial order; whoever sees the next version without it would be before it as well, and after.
//! - Nor is one that the agent applies as a transaction of its own, such as a schema change.
//!
//! Neighbours are made by that: what finishes meanwhile would have to wait at its home later. What finishes while something is
//! on its way to the log waits as well, as it would in the log's own queue, and gets its place beside others of its home. So a
//! replica has to stop less often, too.
//!
//! A home that crashes in the midst may have any of them ([`super::COMMITS_TOGETHER_MAX`]). Its keeper applies those that are
//! missing before it serves again; nobody was there to see them.
//!
//! DESIGN section 5 foresees a guard instead, which sends nothing that reads more than a row until all are acknowledged. It
//! would stop the readers of a busy home for most of the time; that the others refresh in batches costs nothing.
//!
//! A replica that comes up may have some of what home is committing together, and its batches may end among neighbours that
//! were forgotten meanwhile. So it shows nothing before it has all that was durable when it came up ([`Replica::floor`]).
//!
//! Invariant: between two versions that home commits together, no other replica shows what it has.
//!
//! [`Replica::floor`]: crate::parts::replica::Replica::floor

use super::{COMMITS_TOGETHER_MAX, Out, REFRESH_BYTES_MAX, Rows};
use crate::event::{Effect, Level};
use crate::ids::{SessionId, Version};
use crate::parts::in_flight::Place;
use crate::record::SealedBody;

/// Larger ones are alone: all neighbours have to fit into one refresh.
const GROUPED_BYTES_MAX: usize = 16 << 10;

impl Rows {
    /// Whether what finishes at this home waits for others, to be their neighbour.
    pub(super) fn waits_for_group(&self, home: usize) -> bool {
        self.last > self.index.last() || (self.homes[home].unsent > 0 && self.rules.unsent_are_waited_for)
    }

    /// Appends those that need not wait any more, home by home, beginning with the one whose version is the last.
    pub(super) fn append_ready(&mut self, out: &mut Out<'_>) {
        let (count, last_home) = (self.replicas.len(), self.last_home);
        let home_of = |session: &SessionId| {
            self.transactions.get(session).map_or(last_home, |transaction| transaction.home)
        };
        let can_go = |(_, session): &&(Place, SessionId)| !self.waits_for_group(home_of(session));
        let mut ready: Vec<(Place, SessionId)> = self.ready.iter().filter(can_go).copied().collect();
        // Among those of one home the order of finishing stays.
        ready.sort_by_key(|(_, session)| (home_of(session) + count - last_home) % count);
        for entry in ready {
            self.ready.remove(&entry);
            self.append_or_group(false, entry.1, out);
        }
    }

    /// Whether home may commit it together with others.
    pub(super) fn can_be_grouped(&self, level: Level, body: &SealedBody) -> bool {
        (level != Level::Serializable || !self.rules.serializable_alone)
            && !body.writes_everything()
            && !body.is_spilled()
            && body.len_bytes() <= GROUPED_BYTES_MAX
    }

    /// Sends the COMMIT of a version to its home, and of those after it that can go with it.
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

    /// Whether the version after this one can be committed together with it.
    fn may_share_group(&self, index: usize, version: Version) -> bool {
        let (Some(one), Some(next)) = (self.versions.get(&version), self.versions.get(&version.next()))
        else {
            return false;
        };
        let is_apart = one.is_shown_apart && self.rules.shown_apart_part;
        next.home == Some(index) && one.can_be_grouped && next.can_be_grouped && !is_apart
    }

    /// Where a refresh ends that begins with this version: before the replica's own next version, and not among neighbours.
    pub(super) fn end_of_batch(&self, index: usize, first: Version) -> Version {
        let limit = self.index.last().min(Version(first.0 + self.refresh_versions_max - 1));
        let mut bytes = 0;
        let beyond = self.versions.range(first..=limit).find(|(version, assigned)| {
            bytes += assigned.bytes;
            **version > first && (assigned.home == Some(index) || bytes > REFRESH_BYTES_MAX)
        });
        let end = beyond.map_or(limit, |(version, _)| Version(version.0 - 1));
        match self.versions.get(&end) {
            Some(last) if self.rules.commit_groups_stay_whole => last.group_end,
            _ => end,
        }
    }

    /// A replica that is not its home shows this version, or is about to, and not the next one.
    pub(super) fn shown_apart_after(&mut self, version: Version) {
        if let Some(assigned) = self.versions.get_mut(&version) {
            assigned.is_shown_apart = true;
        }
    }
}
