//! The first version of the code: all updates run at one home, its row locks are the only locks, and nothing is certified.
//!
//! Two rules replace certification. A finished transaction waits to be appended while an overlapping one that finished
//! before it is not committed at home. And with its last statement a transaction draws a lock LSN at home, which shows
//! whether another transaction has had its locks afterwards (crates/cluster/src/parts/lock_lsns.rs). Both matter only
//! because the scheduler notices the death of a backend late: its row locks are released, and a waiter continues with the
//! old row.

use crate::model::*;
use crate::rules::*;
use crate::scenario::*;

/// The replica where updates run.
pub const HOME: usize = 0;

impl Model {
    /// Whether this transaction runs at the home: everything but a single read.
    pub fn is_homed(&self, t: usize) -> bool {
        let p = &self.sc.programs[t];
        self.rules.one_home && (p.level != Level::Auto || self.access[t].iter().any(|a| a.writes | a.locks != 0))
    }

    /// SERIALIZABLE transactions run one at a time.
    pub fn has_turn(&self, s: &State, t: usize) -> bool {
        let serial = |o: usize| self.sc.programs[o].level == Level::Serializable;
        let is_open = |o: usize| {
            let x = &s.txns[o];
            match x.phase {
                Phase::Idle => x.statement > 0,
                Phase::Committed | Phase::ReadDone | Phase::Aborted | Phase::Unknown => false,
                _ => true,
            }
        };
        !self.rules.one_home || !serial(t) || !(0..self.sc.programs.len()).any(|o| o != t && serial(o) && is_open(o))
    }

    /// The resources that it wrote, locked or claimed: exclusive, shared.
    fn claimed(&self, t: usize) -> (Mask, Mask) {
        if self.sc.programs[t].unknown {
            return (Mask::MAX, Mask::MAX);
        }
        self.access[t].iter().fold((0, 0), |(x, s), a| (x | a.writes | a.locks, s | a.claims))
    }

    fn overlaps(&self, a: u8, b: u8) -> bool {
        let ((ax, ash), (bx, bsh)) = (self.claimed(a as usize), self.claimed(b as usize));
        ax & (bx | bsh) != 0 || bx & ash != 0
    }

    /// An overlapping transaction has a larger lock LSN, and is in the log or will be before it. So this one may have lost its
    /// locks in between.
    fn is_overtaken(&self, s: &State, t: usize) -> bool {
        let waiting = s.finished.iter().filter(|_| self.rules.waiting_overtake);
        self.rules.overtaken_draws_again
            && s.log.iter().chain(waiting).any(|&o| s.txns[o as usize].lock_lsn > s.txns[t].lock_lsn && self.overlaps(o, t as u8))
    }

    /// With its last statement it draws a lock LSN.
    pub fn draw_lock_lsn(&self, s: &mut State, t: usize) {
        s.last_lock_lsn += 1;
        s.txns[t].lock_lsn = s.last_lock_lsn;
    }

    /// It has drawn another lock LSN. Only a living backend can, so it has held its locks all the time.
    pub fn lock_lsn_drawn_again(&self, s: &mut State, t: usize) {
        s.suspected &= !(1 << t);
        self.append_ready(s);
    }

    /// All its statements are done: it gets its place, and its version once nothing before it overlaps.
    pub fn finish(&self, s: &mut State, t: usize) {
        if self.is_overtaken(s, t) {
            s.suspected |= 1 << t;
        }
        s.finished.push(t as u8);
        s.txns[t].phase = Phase::Queued;
        self.append_ready(s);
    }

    pub fn append_ready(&self, s: &mut State) {
        for i in 0..s.finished.len() {
            let t = s.finished[i];
            let waits = self.rules.overlap_waits && s.finished[..i].iter().any(|&o| self.overlaps(o, t));
            if s.txns[t as usize].phase == Phase::Queued && s.suspected & (1 << t) == 0 && !waits {
                if s.log.contains(&t) {
                    s.broken = Some("one transaction has two versions");
                    return;
                }
                s.log.push(t);
                s.txns[t as usize].phase = Phase::Assigned;
            }
        }
    }

    /// The home has acknowledged the COMMITs of `which`.
    pub fn settle(&self, s: &mut State, which: Mask) {
        while let Some(i) = s.finished.iter().position(|&t| which & (1 << t) != 0) {
            s.finished.remove(i);
        }
        self.append_ready(s);
    }

    /// Backends that can die unnoticed: those with a transaction that is not committed yet.
    pub fn killable(&self, s: &State, t: usize) -> bool {
        let x = &s.txns[t];
        self.rules.one_home
            && s.kills > 0
            && x.open
            && x.home == Some(HOME as u8)
            && s.dead & (1 << t) == 0
            && x.phase != Phase::Sent
            && !s.replicas[HOME].visible.contains(&(t as u8))
    }

    pub fn kill(&self, s: &mut State, t: usize) {
        s.kills -= 1;
        s.dead |= 1 << t;
        s.txns[t].row_x = 0;
        s.txns[t].row_s = 0;
    }

    /// The scheduler learns that a backend has died.
    pub fn notice(&self, s: &mut State, t: usize) {
        match s.txns[t].phase {
            Phase::Idle | Phase::WaitLock | Phase::Ready | Phase::Sent | Phase::Finish => {
                s.dead &= !(1 << t);
                self.abort(s, t);
            }
            _ => self.lose_home(s),
        }
    }

    /// A logged transaction, or one about to be, depends on a lost backend: every connection to the home ends.
    pub fn lose_home(&self, s: &mut State) {
        s.replicas[HOME].flight = 0;
        let finished = s.finished;
        s.finished.truncate(0);
        for t in 0..self.sc.programs.len() {
            if s.txns[t].home != Some(HOME as u8) || !self.is_homed(t) {
                continue;
            }
            let is_dead = s.dead & (1 << t) != 0;
            match s.txns[t].phase {
                Phase::Assigned | Phase::Committed | Phase::Unknown => self.close(s, t),
                Phase::Sent if s.txns[t].statement == 0 => {
                    // nothing was answered: placed anew
                    let x = &mut s.txns[t];
                    x.home = None;
                    x.bases = Default::default();
                    x.snapshot = None;
                    self.ready(s, t);
                }
                Phase::ReadDone | Phase::Aborted => {}
                _ if s.txns[t].statement > 0 && (self.rules.lost_home_aborts || is_dead) => self.abort(s, t),
                _ => {}
            }
        }
        s.dead = 0;
        s.suspected = 0;
        for &t in finished.iter() {
            if s.txns[t as usize].phase == Phase::Queued {
                s.finished.push(t);
            }
        }
        s.txns.iter_mut().for_each(|x| x.lock_lsn = 0);
        if self.rules.home_catches_up {
            s.caught_up = s.log.iter().fold(0, |m, &t| m | 1 << t);
            for t in 0..self.sc.programs.len() {
                if self.is_homed(t) && s.txns[t].phase == Phase::Ready {
                    s.txns[t].need |= s.caught_up;
                }
            }
        }
        self.append_ready(s);
    }
}

/// The rules of the first version.
pub fn one_home(r: &mut Rules) {
    r.one_home = true;
    r.need = Need::Durable;
    r.ack = Ack::Durable;
    r.lock_writes = false;
    r.lock_snapshot_writes = false;
    r.certify_all_writes = false;
    r.certify_snapshot_writes = false;
    r.certify_reads = false;
    r.certify_auto_reads = false;
    r.doom = false;
    r.undo_certified = false;
}
