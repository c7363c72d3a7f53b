//! Chains: transactions that may conflict follow each other, and the others run side by side.
//!
//! Gargamel (Cincilla, Monnet, Shapiro: "boosting DBMS performance by parallelising write transactions", ICPADS 2012), section
//! II-B and figure 2: "T is queued after all the transactions with which it might conflict; if no conflicts are predicted, T
//! starts a new queue." A transaction comes with its claims, and becomes a [`Link`]. It is ready when all its predecessors are
//! over, so two that conflict never run at the same time, and none has to be aborted.
//!
//! ```text
//!   (a) t1      (b) t1-t3     (c) t1\         (d) t1\    /t4
//!       t2          t2               t3               t3
//!                                 t2/             t2/    \t5
//!     starts       extends        merges          t5 splits (t4 had extended)
//! ```
//!
//! A link is behind its *nearest* predecessors only: those behind which another predecessor stands already are left out. So
//! each step costs O(log n) for each claim and each nearest predecessor, however long the line behind a row is.
//!
//! A link may be over before it is ready: its client gave up, or its session ended. Its successors then look for their
//! predecessors anew. Nothing that conflicts with an earlier link becomes ready by that.
//!
//! Invariant: for two links that are not over and whose claims conflict, the later one is behind the earlier one, directly or
//! through others. The predecessors of a link are always those that it would find if it came now with the same number.
//!
//! Not here: where a link runs. [`Chains::place`] notes the worker that the caller chose. The paper does not say on which
//! worker a merged queue goes on. The worker of the predecessor that ended last is a good choice, since the write-sets of the
//! others have had more time to arrive there; [`Chains::over`] returns what each end makes ready. Not here either: what a link saw of transactions that were
//! over before it came (section III iv: a worker "does not start an update transaction until it has received the updates of
//! preceding transactions"), which is [`super::version_index`]'s. The number of links is bounded by the caller: each belongs
//! to a transaction of a session.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use crate::claims::Claims;
use crate::parts::claim_index::{ClaimIndex, Owner};

/// A transaction in the chains, numbered from 1 in the order of arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Link(pub u64);

impl Owner for Link {
    const FIRST: Self = Self(0);
}

/// The name of a chain: its first link.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ChainId(pub Link);

/// What a transaction did to the chains when it came (section II-B, figure 2).
///
/// A tail is a link that no other one stands behind. Where predecessors are tails and others at once, the tails decide: the
/// transaction goes on with the chain of the last tail, and waits for all its predecessors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Arrival {
    /// It conflicts with no link: a new chain (figure 2 a).
    Starts,
    /// One predecessor is a tail: the transaction goes behind it in its chain (figure 2 b).
    Extends,
    /// Several predecessors are tails: their chains become one, that of the last tail (figure 2 c).
    Merges,
    /// No predecessor is a tail: a new chain, beside what stands behind them already (figure 2 d).
    Splits,
}

/// One chain, to be shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Chain<W> {
    /// Its name.
    pub id: ChainId,
    /// The worker of its first link that is not over, if one was chosen.
    pub worker: Option<W>,
    /// The links that are not over, in order.
    pub links: Vec<Link>,
}

#[derive(Debug)]
struct Place<W> {
    claims: Claims,
    chain: ChainId,
    predecessors: BTreeSet<Link>,
    successors: BTreeSet<Link>,
    worker: Option<W>,
}

/// All chains. `W` names workers.
#[derive(Debug)]
pub struct Chains<W> {
    entered: u64,
    index: ClaimIndex<Link>,
    places: BTreeMap<Link, Place<W>>,
    lines: BTreeMap<ChainId, BTreeSet<Link>>,
}

impl<W> Default for Chains<W> {
    fn default() -> Self {
        Self { entered: 0, index: ClaimIndex::default(), places: BTreeMap::new(), lines: BTreeMap::new() }
    }
}

impl<W: Copy + Ord + Debug> Chains<W> {
    /// A transaction comes: it goes behind every link that is not over and whose claims conflict with these.
    pub fn enter(&mut self, claims: Claims) -> (Link, Arrival) {
        self.entered += 1;
        let link = Link(self.entered);
        let predecessors = self.index.nearest_before(link, &claims);
        let is_tail = |at: &&Link| self.places.get(at).is_some_and(|place| place.successors.is_empty());
        let tails = predecessors.iter().filter(is_tail).count();
        let tail = predecessors.iter().rev().find(is_tail).and_then(|at| self.places.get(at));
        let chain = tail.map_or(ChainId(link), |place| place.chain);
        let arrival = match tails {
            0 if predecessors.is_empty() => Arrival::Starts,
            0 => Arrival::Splits,
            1 => Arrival::Extends,
            _ => Arrival::Merges,
        };
        self.index.insert(link, &claims);
        self.lines.entry(chain).or_default().insert(link);
        self.stand_behind(link, &predecessors);
        let successors = BTreeSet::new();
        self.places.insert(link, Place { claims, chain, predecessors, successors, worker: None });
        (link, arrival)
    }

    /// Whether all predecessors of a link are over. A link that is over is not ready.
    pub fn is_ready(&self, link: Link) -> bool {
        self.places.get(&link).is_some_and(|place| place.predecessors.is_empty())
    }

    /// The nearest predecessors of a link that are not over.
    pub fn predecessors(&self, link: Link) -> &BTreeSet<Link> {
        const NONE: &BTreeSet<Link> = &BTreeSet::new();
        self.places.get(&link).map_or(NONE, |place| &place.predecessors)
    }

    /// The last link to come that this one conflicts with, if it is not over. Which one's *work* ends last is unknown here.
    pub fn last_predecessor(&self, link: Link) -> Option<Link> {
        self.predecessors(link).last().copied()
    }

    /// The last link that is not over and conflicts with these claims: what a transaction would be behind if it came now.
    pub fn behind(&self, claims: &Claims) -> Option<Link> {
        self.index.last_before(Link(self.entered + 1), claims)
    }

    /// Notes the worker that the caller chose for a link.
    pub fn place(&mut self, link: Link, worker: W) {
        if let Some(place) = self.places.get_mut(&link) {
            place.worker = Some(worker);
        }
    }

    /// The worker of a link that is not over, if one was chosen.
    pub fn worker(&self, link: Link) -> Option<W> {
        self.places.get(&link)?.worker
    }

    /// The chain of a link that is not over.
    pub fn chain(&self, link: Link) -> Option<ChainId> {
        Some(self.places.get(&link)?.chain)
    }

    /// A transaction is committed, rolled back, or has given up before its turn. Returns the links that are ready because of
    /// that, in order.
    pub fn over(&mut self, link: Link) -> Vec<Link> {
        let Some(place) = self.places.remove(&link) else { return Vec::new() };
        self.index.remove(link, &place.claims);
        for before in &place.predecessors {
            if let Some(before) = self.places.get_mut(before) {
                before.successors.remove(&link);
            }
        }
        if let Some(line) = self.lines.get_mut(&place.chain) {
            line.remove(&link);
            if line.is_empty() {
                self.lines.remove(&place.chain);
            }
        }
        let mut ready = Vec::new();
        for successor in place.successors {
            if place.predecessors.is_empty() {
                self.forget(successor, link);
            } else {
                self.look_anew(successor);
            }
            if self.is_ready(successor) {
                ready.push(successor);
            }
        }
        ready
    }

    /// All chains, in the order of their names.
    pub fn chains(&self) -> Vec<Chain<W>> {
        let shown = |(id, line): (&ChainId, &BTreeSet<Link>)| Chain {
            id: *id,
            worker: line.first().and_then(|head| self.worker(*head)),
            links: line.iter().copied().collect(),
        };
        self.lines.iter().map(shown).collect()
    }

    /// The number of links that are not over.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether all links are over.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A predecessor that had none of its own is over, so nothing is left before it.
    fn forget(&mut self, link: Link, over: Link) {
        if let Some(place) = self.places.get_mut(&link) {
            place.predecessors.remove(&over);
        }
    }

    /// A predecessor gave up before its turn, and this link may have stood behind others only through it.
    fn look_anew(&mut self, link: Link) {
        let Some(place) = self.places.get_mut(&link) else { return };
        let now = self.index.nearest_before(link, &place.claims);
        let former = std::mem::replace(&mut place.predecessors, now.clone());
        for before in former.difference(&now) {
            if let Some(before) = self.places.get_mut(before) {
                before.successors.remove(&link);
            }
        }
        self.stand_behind(link, &now);
    }

    fn stand_behind(&mut self, link: Link, predecessors: &BTreeSet<Link>) {
        for before in predecessors {
            if let Some(before) = self.places.get_mut(before) {
                before.successors.insert(link);
            }
        }
    }
}

#[cfg(test)]
mod tests;
