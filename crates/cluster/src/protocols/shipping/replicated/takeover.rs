//! The eldest scheduler decides about the transactions of one that has failed (section 5.3.1).

use std::collections::{BTreeSet, VecDeque};

use super::{ReplicatedOutput, ReplicatedScheduler, Shared};
use crate::protocols::shipping::message::{SchedulerId, SequenceNumber};
use crate::protocols::shipping::peer_message::{Decision, ToPeer};
use crate::protocols::shipping::sequencer::Sequencer;

/// A take-over, if one is under way.
#[derive(Debug, Default)]
pub(super) struct Takeover {
    /// The number of schedulers that have failed.
    view: u64,
    /// Those that have not said yet that they know this view.
    missing: BTreeSet<SchedulerId>,
    /// The highest number that any of them has heard of.
    highest: SequenceNumber,
    /// Those that were ahead: the view, and the number that they have heard of.
    early: Vec<(SchedulerId, u64, SequenceNumber)>,
    /// Schedulers that have asked for a number meanwhile.
    postponed: VecDeque<SchedulerId>,
}

impl Takeover {
    pub(super) fn is_under_way(&self) -> bool {
        !self.missing.is_empty()
    }

    pub(super) fn postpone(&mut self, asks: SchedulerId) {
        self.postponed.push_back(asks);
    }
}

impl ReplicatedScheduler {
    /// A scheduler has failed. All others hear of failures in the same order.
    pub fn scheduler_lost(&mut self, failed: SchedulerId, out: &mut Vec<ReplicatedOutput>) {
        let Some(at) = self.living.iter().position(|other| *other == failed) else { return };
        self.living.remove(at);
        self.takeover.view += 1;
        self.takeover.postponed.retain(|asks| *asks != failed);
        let view = self.takeover.view;
        let eldest = self.eldest();
        if eldest == self.id {
            let unheard = |other: &SchedulerId| {
                !self.takeover.early.iter().any(|(from, of, _)| from == other && *of == view)
            };
            self.takeover.missing = self.others().filter(unheard).collect();
            self.takeover.highest = self.seen.highest();
            let heard = self.takeover.early.iter().filter(|(_, of, _)| *of == view);
            let heard = heard.map(|(_, _, highest)| *highest).max().unwrap_or_default();
            self.takeover.highest = self.takeover.highest.max(heard);
            self.takeover.early.retain(|(_, of, _)| *of > view);
            if !self.rules.views_are_awaited {
                self.takeover.missing.clear();
            }
        } else {
            out.push(ReplicatedOutput::ToPeer(eldest, ToPeer::Viewed(view, self.seen.highest())));
        }
        if at == 0 {
            // The sequencer is gone, and the questions to it.
            let asked = self.unnumbered.len();
            (0..asked).for_each(|_| {
                if eldest == self.id {
                    self.takeover.postpone(eldest);
                } else {
                    out.push(ReplicatedOutput::ToPeer(eldest, ToPeer::AskNumber));
                }
            });
        }
        let numbers: Vec<SequenceNumber> = self.shared.keys().copied().collect();
        for number in numbers {
            if let Some((_, missing)) = self.shared.get_mut(&number) {
                missing.remove(&failed);
            }
            self.go_on(number, out);
        }
        self.take_over_if_viewed(out);
    }

    /// Another scheduler knows of a view.
    pub(super) fn viewed(
        &mut self,
        from: SchedulerId,
        view: u64,
        highest: SequenceNumber,
        out: &mut Vec<ReplicatedOutput>,
    ) {
        if view > self.takeover.view {
            self.takeover.early.push((from, view, highest));
            return;
        }
        if view == self.takeover.view && self.takeover.missing.remove(&from) {
            self.takeover.highest = self.takeover.highest.max(highest);
            self.take_over_if_viewed(out);
        }
    }

    fn take_over_if_viewed(&mut self, out: &mut Vec<ReplicatedOutput>) {
        if self.eldest() != self.id || self.takeover.is_under_way() {
            return;
        }
        // No one who lives has begun them: they were given to one that has failed.
        let unseen = (self.seen.upto.0 + 1..=self.takeover.highest.0).map(SequenceNumber);
        let gaps: Vec<SequenceNumber> = unseen.filter(|number| !self.seen.above.contains(number)).collect();
        let is_filling = self.rules.gaps_are_filled;
        for number in gaps.into_iter().filter(|_| is_filling) {
            self.adopt(number, Decision::Abort, out);
        }
        let lost = |coordinator: &SchedulerId| !self.living.contains(coordinator);
        let orphans: Vec<SequenceNumber> = self
            .remote
            .iter()
            .filter(|(_, remote)| lost(&remote.coordinator))
            .map(|(number, _)| *number)
            .collect();
        for number in orphans {
            match self.remote.remove(&number).and_then(|remote| remote.decision) {
                Some(decided @ Decision::Commit(..)) if self.rules.decided_is_redone => {
                    self.adopt(number, decided, out);
                }
                _ if self.rules.undecided_is_undone => self.adopt(number, Decision::Abort, out),
                _ => {}
            }
        }
        if self.sequencer.is_none() {
            let back = u64::from(!self.rules.sequencer_goes_on);
            let last = SequenceNumber(self.seen.highest().0.saturating_sub(back));
            self.sequencer = Some(Sequencer::restarted(last));
        }
        for asks in std::mem::take(&mut self.takeover.postponed) {
            self.give_number(asks, out);
        }
    }

    fn adopt(&mut self, number: SequenceNumber, decision: Decision, out: &mut Vec<ReplicatedOutput>) {
        self.seen.insert(number);
        self.scheduler.hear_of(number);
        let message = ToPeer::End(number, decision.clone());
        self.share(number, Shared::Adopted(decision), &message, out);
    }
}
