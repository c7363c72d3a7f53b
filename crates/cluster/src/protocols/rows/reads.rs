//! Reads outside of update transactions: the version that each needs, and the replica that serves it.

use super::{HomePolicy, Out, Rows, See};
use crate::event::{AbortCause, Effect, Reads};
use crate::ids::{ReplicaId, SessionId, Version};
use crate::parts::balancer::Wish;
use crate::parts::replica::{Offer, Turn};
use crate::placement::{ReplicaSet, Touches};

impl Rows {
    /// The version that a statement needs. If its catalogue is out of date, its tables are not known, and it needs all.
    pub(super) fn need(&self, reads: &Reads, catalogue: Version) -> Version {
        let stale = self.rules.catalogue_is_fresh && catalogue < self.index.last_ddl();
        let need = match reads {
            _ if !self.rules.reads_wait => Version::ZERO,
            Reads::Tables(_) | Reads::Rows(_) if stale => self.index.last(),
            _ if self.choices.see == See::Local => Version::ZERO,
            reads => self.index.need(reads),
        };
        if self.rules.durable_is_needed { need } else { need.min(self.replicas[self.anchor].applied) }
    }

    pub(super) fn read(
        &mut self,
        session: SessionId,
        reads: &Reads,
        at: Option<ReplicaId>,
        out: &mut Out<'_>,
    ) -> Option<Version> {
        let stale = self.rules.catalogue_is_fresh && out.catalogue < self.index.last_ddl();
        if at.is_none() && stale && matches!(reads, Reads::Tables(_) | Reads::Rows(_)) {
            if self.catalogue >= Some(self.index.last_ddl()) {
                out.effects.push(Effect::Reclassify { session });
            } else {
                self.unclassified.push(session);
            }
            return None;
        }
        Some(self.need(reads, out.catalogue))
    }

    /// What a session has to know to place a read at a replica without asking: it takes reads, holds all, and reads choose by load.
    pub(super) fn offered(&self, replica: ReplicaId) -> Option<Offer> {
        let replica = self.replicas.get(usize::from(replica.0))?;
        let takes = replica.shows(Version::ZERO) && !replica.is_suspect && !replica.is_drained;
        let may_be_chosen = self.choices.places_reads_by_load() && takes && !self.placement.is_partial();
        may_be_chosen.then_some(Offer {
            incarnation: replica.incarnation,
            applied: replica.applied,
            load_us: replica.outstanding_us,
        })
    }

    /// The replicas that may serve it: the holders of what it touches; for the catalogues, the anchor.
    pub(super) fn eligible(&self, reads: &Reads, touches: &Touches, at: Option<ReplicaId>) -> ReplicaSet {
        let holders = match reads {
            Reads::Catalogue if at.is_none() => ReplicaSet::EMPTY.with(self.replicas[self.anchor].id),
            Reads::Catalogue => return at.map_or(ReplicaSet::EMPTY, |r| ReplicaSet::EMPTY.with(r)),
            _ => self.placement.holders_of(touches),
        };
        at.map_or(holders, |replica| ReplicaSet::EMPTY.with(replica).and(holders))
    }

    pub(super) fn place_read(
        &mut self,
        session: SessionId,
        (need, near): (Version, Option<ReplicaId>),
        turn: Turn,
        out: &mut Out<'_>,
    ) {
        // A transaction goes on at the replica where it is open, also if that is drained.
        let eligible = if turn.is_bound {
            turn.eligible
        } else {
            self.grouped(session, self.taking(turn.eligible), out.now)
        };
        let is_free = !turn.is_bound && !turn.is_catalogue && self.rules.reads_stay_local;
        let local = if is_free { self.local_home(session, eligible) } else { None };
        let chosen = if self.choices.home == HomePolicy::InTurn {
            self.take_turn(eligible)
        } else {
            let wish = Wish { eligible, need, cost_us: turn.cost_us, near };
            local.or_else(|| self.balancer.choose(&self.replicas, wish))
        };
        match chosen {
            Some(index) => {
                // The catalogues alone show no rows.
                let shows_rows = !turn.is_catalogue && self.rules.reads_stay_local;
                let need = if shows_rows { need.max(self.session_needs(session, index)) } else { need };
                self.replicas[index].reads += 1;
                self.wait_at(index, session, need, turn, out);
            }
            None if turn.is_bound => out.effects.push(Effect::Abort { session, cause: AbortCause::HomeLost }),
            None => self.stranded.push((need, session, turn)),
        }
    }
}
