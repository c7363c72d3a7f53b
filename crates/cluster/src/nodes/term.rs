//! Take-over: when a node claims the chair, leads, serves, follows and steps down (design 1.5).
//!
//! The chair is one key that each append to the log compares. A claim ends the term before: nothing more of that term
//! can be appended. So the chair alone keeps two leaders apart, and everything here is about time: a leader that is
//! lost is replaced soon, one that works is left alone, and no two of them serve at once.
//!
//! ```text
//!             beat of a leader                 silence, or a broken link
//!  Looking ---------------------> Following ----------------------------> Asking
//!     ^   <- reads the chair                                                |  no node that answers hears the leader
//!     |                                                                     v
//!     |  the chair is another's                                          Waiting: by rank
//!     +-------------------------------------------------------+             |
//!     |                                                       |             v
//!  StepDown <--- InOffice: Opening -> Fencing -> Serving <-- Claiming <-- reads the chair
//! ```
//!
//! - A node gives its leader up when it hears no beat for [`Timing::leader_deadline_us`], when the link is broken, or when the beats say
//!   that the leader has confirmed nothing for that long: *a leader cut off from the chair must not look healthy*.
//! - It asks the others first. If one that answers hears the leader, it does not claim (a cut in one direction). Ranks stagger claims.
//! - A node that hears no other node at all, and finds in the chair a leader that it never heard, takes itself for the one that is cut off. It
//!   is patient before it claims, and more so each time (2.4 s to 30 s): else a leader that others cannot hear, and the one that they
//!   have chosen, would take the chair from each other every second.
//! - A leader resigns when it has confirmed nothing for 2 D.
//! - A new leader *serves nothing* until the leases of the former one are over, counted from the answer to its claim, or until all
//!   nodes have joined and all replicas are fenced. A version that the former leader never knew durable, shown by this one, would
//!   be missed by a read that the former one still lets run.
//!
//! - A leader that is to *hand over* ends its term first, and then tells the other node, which claims without waiting for silence or for votes. If that
//!   one is lost, the others notice as ever.
//!
//! Inputs carry what happened; time is an argument. The driver says [`Input::Tick`] at least every quarter of a beat.
//!
//! Invariant: a node that has lost the chair, or cannot know, gives no [`Output::Serve`].

mod messages;

use std::collections::BTreeSet;

use super::{Rules, Timing};
use crate::ids::{Epoch, NodeId, Nonce};
use crate::time::Time;

pub use messages::{Holder, Input, Output, Reading, Why};

/// How far a leader has come.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Office {
    Opening,
    Fencing { is_fenced: bool, joined: BTreeSet<NodeId> },
    Serving,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum State {
    /// No leader is known. The chair is read now and then.
    Looking { read_at: Time, is_reading: bool },
    /// A leader is followed. Until it is heard, only the chair has told of it.
    Following { leader: NodeId, epoch: Epoch, heard: Time, hearing: Hearing },
    /// The leader of the last term seems lost, and the others are asked.
    Asking { round: u64, until: Time, silent: BTreeSet<NodeId> },
    /// No node hears the leader: others may claim first.
    Waiting { until: Time },
    /// The chair is read before the claim.
    Reading { since: Time },
    /// The claim is made.
    Claiming { since: Time },
    /// This node leads.
    InOffice { epoch: Epoch, claimed: Time, renewed: Time, office: Office, confirming: Option<Time> },
}

/// Whether the leader that is followed was ever heard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Hearing {
    Heard,
    /// Not yet.
    Unheard,
    /// No other node was heard either, so this one is patient.
    Alone,
}

/// The patience of a node that hears no other one, in deadlines of a leader: at first, and at most.
const PATIENCE_MIN: u64 = 4;
const PATIENCE_MAX: u64 = 50;

/// The node that this machine is for.
#[derive(Clone, Debug)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// All other nodes.
    pub others: BTreeSet<NodeId>,
    /// Drawn at its start.
    pub nonce: Nonce,
}

/// The machine of one node.
#[derive(Debug)]
pub struct Term {
    member: Member,
    timing: Timing,
    rules: Rules,
    state: State,
    /// The last term that was heard of.
    epoch: Epoch,
    /// Its leader, if it is known and another node.
    given_up: Option<NodeId>,
    /// The leader that was given up although it was never heard.
    unheard: Option<(NodeId, Epoch)>,
    /// How patient this node is when it is alone, in deadlines.
    patience: u64,
    rounds: u64,
    beat_at: Time,
}

impl Term {
    /// A node that has just started.
    ///
    /// ```
    /// use std::collections::BTreeSet;
    /// use cluster::ids::{Epoch, NodeId, Nonce};
    /// use cluster::nodes::term::{Input, Member, Output, Reading, Term};
    /// use cluster::nodes::{Rules, Timing};
    /// use cluster::time::Time;
    ///
    /// let member = Member { node: NodeId(0), others: BTreeSet::new(), nonce: Nonce(5) };
    /// let mut term = Term::new(member, Timing::default(), Rules::default(), Time { us: 0 });
    /// let mut step = |us, input| term.handle(Time { us }, input);
    /// let at = |us| Time { us };
    /// let empty = Some(Reading::default());
    /// assert_eq!(step(0, Input::Tick), [Output::ReadChair { sent: at(0) }]);
    /// // No node has ever led, and there is no other node to be asked.
    /// assert_eq!(step(10, Input::Read { sent: at(0), reading: empty }), []);
    /// assert_eq!(step(20, Input::Tick), [Output::ReadChair { sent: at(20) }]);
    /// let claim = Output::Claim { sent: at(30), expected: 0, epoch: Epoch(1) };
    /// assert_eq!(step(30, Input::Read { sent: at(20), reading: empty }), [claim]);
    /// let won = Input::Claimed { sent: at(30), epoch: Some(Epoch(1)) };
    /// assert_eq!(step(40, won)[0], Output::Lead { epoch: Epoch(1) });
    /// step(50, Input::Opened);
    /// // All nodes have joined, and all replicas are fenced: no other lease is left.
    /// assert!(matches!(step(60, Input::Fenced)[..], [Output::Serve { .. }]));
    /// ```
    pub fn new(member: Member, timing: Timing, rules: Rules, now: Time) -> Self {
        let state = State::Looking { read_at: now, is_reading: false };
        let (epoch, beat_at) = (Epoch(0), now);
        let (given_up, unheard, patience) = (None, None, PATIENCE_MIN);
        Self { member, timing, rules, state, epoch, given_up, unheard, patience, rounds: 0, beat_at }
    }

    /// Takes what has happened, and returns what is to be done, in this order.
    pub fn handle(&mut self, now: Time, input: Input) -> Vec<Output> {
        let mut out = Vec::new();
        if matches!(input, Input::Beat { .. } | Input::Asked { .. } | Input::Voted { .. }) {
            self.patience = PATIENCE_MIN;
        }
        match input {
            Input::Tick => {}
            Input::Beat { from, epoch, unconfirmed_us } => {
                self.beaten(now, (from, epoch), unconfirmed_us, &mut out);
            }
            Input::Unlinked(node) => self.unlinked(now, node, &mut out),
            Input::Asked { from, epoch, round } => {
                let hears = self.hears(now, epoch);
                out.push(Output::Vote { to: from, round, hears });
            }
            Input::Voted { from, round, hears } => self.voted(now, (from, round), hears),
            Input::Read { sent, reading } => self.read(now, sent, reading, &mut out),
            Input::Claimed { sent, epoch } => self.claimed(now, sent, epoch, &mut out),
            Input::Confirmed { sent, is_ours } => self.confirmed(now, sent, is_ours, &mut out),
            Input::Opened => self.opened(),
            Input::Fenced => self.fenced(),
            Input::Joined(node) => self.joined(node),
            Input::HandOver { to } => self.hand_over(now, to, &mut out),
            Input::Yielded { from, epoch } => self.yielded(now, (from, epoch), &mut out),
        }
        self.tick(now, &mut out);
        out
    }

    /// The term that this node leads, if it does.
    pub fn leads(&self) -> Option<Epoch> {
        match self.state {
            State::InOffice { epoch, .. } => Some(epoch),
            _ => None,
        }
    }

    /// The leader that this node follows, if it does.
    pub fn follows(&self) -> Option<(NodeId, Epoch)> {
        match self.state {
            State::Following { leader, epoch, .. } => Some((leader, epoch)),
            _ => None,
        }
    }

    /// Whether the leader of this term, or a later one, is heard here.
    fn hears(&self, now: Time, asked: Epoch) -> bool {
        let limit = self.timing.leader_deadline_us;
        match &self.state {
            State::Following { epoch, heard, .. } => *epoch >= asked && now.since_us(*heard) < limit,
            State::InOffice { epoch, renewed, .. } => *epoch >= asked && now.since_us(*renewed) < limit,
            _ => false,
        }
    }

    fn beaten(
        &mut self,
        now: Time,
        (from, epoch): (NodeId, Epoch),
        unconfirmed_us: u64,
        out: &mut Vec<Output>,
    ) {
        let is_silence =
            self.rules.beats_tell_of_the_chair && unconfirmed_us >= self.timing.leader_deadline_us;
        if epoch < self.epoch {
            return;
        }
        if is_silence {
            let is_followed = matches!(&self.state, State::Following { leader, epoch: followed, .. }
                if (*leader, *followed) == (from, epoch));
            if is_followed {
                self.give_up(now, out);
            }
            return;
        }
        match &mut self.state {
            State::Following { leader, epoch: followed, heard, hearing }
                if (*leader, *followed) == (from, epoch) =>
            {
                (*heard, *hearing) = (now, Hearing::Heard);
                // One to which the lead was handed over has it now.
                self.epoch = epoch;
            }
            State::InOffice { epoch: own, .. } if epoch <= *own => {}
            State::InOffice { .. } => {
                out.push(Output::StepDown(Why::Replaced));
                self.follow(now, Hearing::Heard, (from, epoch), out);
            }
            State::Following { .. } => {
                out.push(Output::Leave);
                self.follow(now, Hearing::Heard, (from, epoch), out);
            }
            _ => self.follow(now, Hearing::Heard, (from, epoch), out),
        }
    }

    fn follow(
        &mut self,
        now: Time,
        hearing: Hearing,
        (leader, epoch): (NodeId, Epoch),
        out: &mut Vec<Output>,
    ) {
        self.epoch = epoch;
        self.given_up = None;
        self.state = State::Following { leader, epoch, heard: now, hearing };
        out.push(Output::Follow { leader, epoch });
    }

    fn unlinked(&mut self, now: Time, node: NodeId, out: &mut Vec<Output>) {
        if matches!(self.state, State::Following { leader, .. } if leader == node) {
            self.give_up(now, out);
        }
    }

    /// The leader seems lost.
    fn give_up(&mut self, now: Time, out: &mut Vec<Output>) {
        self.unheard = None;
        if let State::Following { leader, epoch, hearing, .. } = self.state {
            self.given_up = Some(leader);
            self.unheard = Some((leader, epoch)).filter(|_| hearing == Hearing::Unheard);
            if hearing == Hearing::Alone {
                self.patience = (self.patience * 2).min(PATIENCE_MAX);
            }
            out.push(Output::Leave);
        }
        self.ask(now, out);
    }

    fn ask(&mut self, now: Time, out: &mut Vec<Output>) {
        self.rounds += 1;
        let until = now.after_us(self.timing.beat_us);
        self.state = State::Asking { round: self.rounds, until, silent: self.member.others.clone() };
        if !self.member.others.is_empty() {
            out.push(Output::Ask { epoch: self.epoch, round: self.rounds });
        }
    }

    fn voted(&mut self, now: Time, (from, of): (NodeId, u64), hears: bool) {
        let State::Asking { round, silent, .. } = &mut self.state else { return };
        if *round != of {
            return;
        }
        silent.remove(&from);
        if hears {
            self.look(now);
        }
    }

    /// No claim for now: the leader is heard elsewhere, or the chair could not be used.
    fn look(&mut self, now: Time) {
        let read_at = now.after_us(self.timing.beat_us);
        self.state = State::Looking { read_at, is_reading: false };
    }

    fn read(&mut self, now: Time, sent: Time, reading: Option<Reading>, out: &mut Vec<Output>) {
        let is_before_claim = match &self.state {
            State::Looking { is_reading: true, .. } => false,
            State::Reading { .. } => true,
            _ => return,
        };
        let Some(Reading { revision, holder }) = reading else {
            self.look(now);
            return;
        };
        let epoch = holder.map_or(Epoch(0), |holder| holder.epoch);
        if let Some(Holder { node, nonce, .. }) = holder
            && epoch > self.epoch
        {
            if (node, nonce) == (self.member.node, self.member.nonce) {
                // A claim of ours whose answer was lost.
                self.lead(now, sent, epoch, out);
            } else if node == self.member.node {
                // A former run of this node: it is lost.
                self.epoch = epoch;
                self.ask(now, out);
            } else {
                self.follow(now, Hearing::Unheard, (node, epoch), out);
            }
        } else if is_before_claim {
            self.state = State::Claiming { since: now };
            out.push(Output::Claim { sent: now, expected: revision, epoch: epoch.next() });
        } else {
            // The leader of the chair was given up before, or there was none.
            self.ask(now, out);
        }
    }

    fn claimed(&mut self, now: Time, sent: Time, epoch: Option<Epoch>, out: &mut Vec<Output>) {
        match (epoch, &self.state) {
            (Some(epoch), State::Claiming { .. }) if epoch > self.epoch => self.lead(now, sent, epoch, out),
            // The answer came late. A later claim would have been heard of.
            (Some(epoch), State::Following { epoch: followed, .. }) if epoch > *followed => {
                out.push(Output::Leave);
                self.lead(now, sent, epoch, out);
            }
            (None, State::Claiming { .. }) => self.state = State::Looking { read_at: now, is_reading: false },
            // Else the chair tells when it is read.
            _ => {}
        }
    }

    fn lead(&mut self, now: Time, sent: Time, epoch: Epoch, out: &mut Vec<Output>) {
        self.epoch = epoch;
        self.given_up = None;
        self.beat_at = now;
        let office = Office::Opening;
        self.state = State::InOffice { epoch, claimed: now, renewed: sent, office, confirming: None };
        out.push(Output::Lead { epoch });
    }

    fn confirmed(&mut self, now: Time, sent: Time, is_ours: Option<bool>, out: &mut Vec<Output>) {
        let State::InOffice { renewed, confirming, .. } = &mut self.state else { return };
        if *confirming == Some(sent) {
            *confirming = None;
        }
        match is_ours {
            Some(true) => *renewed = (*renewed).max(sent),
            Some(false) => self.step_down(now, Why::Replaced, out),
            None => {}
        }
    }

    fn opened(&mut self) {
        if let State::InOffice { office: office @ Office::Opening, .. } = &mut self.state {
            *office = Office::Fencing { is_fenced: false, joined: BTreeSet::new() };
        }
    }

    fn fenced(&mut self) {
        if let State::InOffice { office: Office::Fencing { is_fenced, .. }, .. } = &mut self.state {
            *is_fenced = true;
        }
    }

    fn joined(&mut self, node: NodeId) {
        if let State::InOffice { office: Office::Fencing { joined, .. }, .. } = &mut self.state {
            joined.insert(node);
        }
    }

    /// The other node is followed before it has the chair, for as long as it may be silent.
    fn hand_over(&mut self, now: Time, to: NodeId, out: &mut Vec<Output>) {
        let State::InOffice { epoch, office: Office::Serving, .. } = self.state else { return };
        if !self.member.others.contains(&to) {
            return;
        }
        let next = epoch.next();
        out.extend([
            Output::StepDown(Why::HandedOver),
            Output::Yield { to, epoch },
            Output::Follow { leader: to, epoch: next },
        ]);
        self.state = State::Following { leader: to, epoch: next, heard: now, hearing: Hearing::Heard };
    }

    fn yielded(&mut self, now: Time, from: (NodeId, Epoch), out: &mut Vec<Output>) {
        if matches!(self.state, State::Following { leader, epoch, .. } if (leader, epoch) == from) {
            out.extend([Output::Leave, Output::ReadChair { sent: now }]);
            self.state = State::Reading { since: now };
        }
    }

    fn step_down(&mut self, now: Time, why: Why, out: &mut Vec<Output>) {
        out.push(Output::StepDown(why));
        self.state = State::Looking { read_at: now, is_reading: false };
    }

    /// What is due at this time.
    fn tick(&mut self, now: Time, out: &mut Vec<Output>) {
        match &mut self.state {
            State::Looking { read_at, is_reading } if now >= *read_at => {
                // If no answer comes at all, it is read again.
                *read_at = now.after_us(self.timing.leader_deadline_us);
                *is_reading = true;
                out.push(Output::ReadChair { sent: now });
            }
            State::Following { heard, hearing, .. } => {
                let deadlines = if *hearing == Hearing::Alone { self.patience } else { 1 };
                if now.since_us(*heard) >= self.timing.leader_deadline_us * deadlines {
                    self.give_up(now, out);
                }
            }
            State::Asking { until, silent, .. } if silent.is_empty() || now >= *until => {
                let is_alone = !silent.is_empty() && *silent == self.member.others;
                if let Some(unheard) = self.unheard.take().filter(|_| is_alone) {
                    self.follow(now, Hearing::Alone, unheard, out);
                    return;
                }
                let until = now.after_us(self.stagger_us());
                self.state = State::Waiting { until };
            }
            State::Waiting { until } if now >= *until => {
                self.state = State::Reading { since: now };
                out.push(Output::ReadChair { sent: now });
            }
            State::Reading { since } | State::Claiming { since }
                if now.since_us(*since) >= self.timing.leader_deadline_us =>
            {
                self.look(now);
            }
            State::InOffice { .. } => self.hold_office(now, out),
            _ => {}
        }
    }

    /// The node with the lowest number claims first.
    fn stagger_us(&self) -> u64 {
        let given_up = self.given_up;
        let before = |other: &&NodeId| **other < self.member.node && Some(**other) != given_up;
        self.member.others.iter().filter(before).count() as u64 * self.timing.beat_us
    }

    fn hold_office(&mut self, now: Time, out: &mut Vec<Output>) {
        let State::InOffice { epoch, claimed, renewed, office, confirming } = &mut self.state else { return };
        let unconfirmed_us = now.since_us(*renewed);
        if unconfirmed_us >= self.timing.resigns_after_us() {
            self.step_down(now, Why::Unconfirmed, out);
            return;
        }
        if now >= self.beat_at {
            self.beat_at = now.after_us(self.timing.beat_us);
            out.push(Output::Beat { epoch: *epoch, unconfirmed_us });
            let is_due =
                confirming.is_none_or(|sent| now.since_us(sent) >= self.timing.confirms_again_after_us());
            if is_due && unconfirmed_us >= self.timing.beat_us {
                *confirming = Some(now);
                out.push(Output::Confirm { sent: now });
            }
        }
        if let Office::Fencing { is_fenced, joined } = office {
            let is_over =
                now.since_us(*claimed) >= self.timing.lease_is_over_us() || !self.rules.leases_run_out;
            let is_whole = *is_fenced && *joined == self.member.others;
            if is_over || is_whole {
                *office = Office::Serving;
                out.push(Output::Serve { renewed: *renewed });
            }
        }
    }
}

#[cfg(test)]
mod tests;
