//! Crashes: the losses of a server or the scheduler, and its state after the restart.

use super::*;

impl Model {
    pub(super) fn crash(&self, s: &mut State, r: usize, keep: usize) {
        s.crashes -= 1;
        if self.rules.one_home && r == crate::home::HOME && self.rules.no_rerun_once_logged {
            self.lose_home(s);
        }
        let old = s.replicas[r].known;
        let x = &mut s.replicas[r];
        x.wal.truncate(keep);
        x.visible = x.wal;
        x.flight = 0;
        x.walled = 0;
        x.unacked = 0;
        x.floor = keep as u8;
        let applied = x.wal.iter().fold(0, |m: Mask, &t| m | 1 << t);
        x.known = if !self.rules.reread_applied {
            old
        } else if self.rules.replay_missing {
            applied
        } else {
            let n = s.log.iter().rposition(|&l| applied & (1 << l) != 0).map_or(0, |p| p + 1);
            s.log[..n].iter().fold(applied, |m, &l| m | 1 << l)
        };
        if let Some(b) = self.integrity_at(s, r) {
            s.broken = Some(b);
        }
        if self.rules.reread_applied && self.rules.ack == Ack::FirstCommit {
            // a COMMIT whose reply was lost is answered by the applied set
            for t in 0..TXNS as u8 {
                if applied & (1 << t) != 0 && s.log.contains(&t) {
                    self.answer(s, t);
                }
            }
        }
        for t in 0..self.sc.programs.len() {
            if s.txns[t].home != Some(r as u8) {
                continue;
            }
            match s.txns[t].phase {
                Phase::Assigned if !self.rules.no_rerun_once_logged && self.level(t) == Level::Auto && s.txns[t].tries < 1 => {
                    let (w, c, rd) = (s.txns[t].writes, s.txns[t].claims, s.txns[t].reads);
                    self.abort(s, t);
                    let x = &mut s.txns[t];
                    (x.writes, x.claims, x.reads) = (w, c, rd);
                }
                Phase::Assigned | Phase::Committed | Phase::Unknown => self.close(s, t),
                Phase::Sent if !self.rules.rebind && !s.txns[t].open && s.txns[t].statement == 0 => {}
                Phase::Sent | Phase::Ready | Phase::Finish | Phase::Idle | Phase::WaitLock
                    if s.txns[t].statement > 0 || s.txns[t].phase == Phase::Sent =>
                {
                    if s.txns[t].statement == 0 {
                        // nothing was answered: placed anew
                        self.close(s, t);
                        let x = &mut s.txns[t];
                        x.home = None;
                        x.bases = Default::default();
                        x.snapshot = None;
                        self.ready(s, t);
                    } else {
                        self.abort(s, t);
                    }
                }
                _ => {}
            }
        }
    }

    pub(super) fn restart(&self, s: &mut State, keep: usize) {
        s.restarts -= 1;
        s.old = Some(s.marked);
        s.is_leased = true;
        s.log.truncate(keep);
        s.durable = keep as u8;
        let logged = self.assigned(s);
        for r in 0..self.sc.holds.len() {
            let x = &mut s.replicas[r];
            if self.rules.restart_fences {
                // old sessions are ended; what reached the WAL is committed
                x.flight = 0;
                let walled = x.walled;
                for t in 0..TXNS as u8 {
                    if walled & (1 << t) != 0 {
                        self.visible(s, r, t);
                    }
                }
            }
            let x = &mut s.replicas[r];
            x.unacked = 0;
            x.known = x.visible.iter().fold(0, |m: Mask, &t| m | 1 << t);
        }
        s.waiting = Default::default();
        s.finished = Default::default();
        s.dead = 0;
        s.suspected = 0;
        s.caught_up = if self.rules.one_home && self.rules.home_catches_up { logged } else { 0 };
        for t in 0..self.sc.programs.len() {
            s.txns[t].lock_lsn = 0;
            let flying = s.replicas.iter().any(|x| (x.flight | x.walled) & (1 << t) != 0);
            let x = &mut s.txns[t];
            x.lock_x = 0;
            x.lock_s = 0;
            if !flying {
                x.open = false;
                x.row_x = 0;
                x.row_s = 0;
            }
            if Self::finished(x.phase) || (x.phase == Phase::Idle && x.statement == 0) {
                continue;
            }
            x.phase = Phase::Unknown;
            let ghost = flying || s.replicas.iter().any(|y| y.visible.contains(&(t as u8)));
            if logged & (1 << t) == 0 && !ghost {
                x.writes = 0;
                x.claims = 0;
                x.reads = 0;
            }
        }
        s.marked = if self.rules.restart_needs_log { logged } else { 0 };
    }
}
