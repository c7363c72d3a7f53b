//! The effect of each step on the state.

use super::*;

impl Model {
    pub(super) fn mark(&self, s: &mut State, t: u8) {
        match self.rules.need {
            Need::Acked | Need::Sent => s.marked |= 1 << t,
            _ => {
                for &l in s.log.iter() {
                    s.marked |= 1 << l;
                    if l == t {
                        break;
                    }
                }
            }
        }
    }

    pub(super) fn answer(&self, s: &mut State, t: u8) {
        if s.txns[t as usize].phase == Phase::Assigned {
            s.txns[t as usize].phase = Phase::Committed;
            s.done |= 1 << t;
            s.acked |= 1 << t;
            if self.rules.need != Need::Sent {
                self.mark(s, t);
            }
        }
    }

    pub fn apply(&self, s0: &State, step: Step) -> State {
        let mut st = *s0;
        let s = &mut st;
        match step {
            Step::Issue(t) => {
                let t = t as usize;
                let i = s.txns[t].statement as usize;
                if i == 0 {
                    s.txns[t].begin = s.done;
                }
                if self.level(t) == Level::ReadCommitted {
                    s.txns[t].statement_begin[i] = s.done;
                }
                s.txns[t].phase = Phase::WaitLock;
                s.waiting.push(t as u8);
                self.grant(s);
            }
            Step::Send(t, r) => {
                let t = t as usize;
                let i = s.txns[t].statement as usize;
                s.txns[t].home = Some(r);
                s.txns[t].phase = Phase::Sent;
                if self.rules.base_at_send {
                    let base = s.replicas[r as usize].known;
                    self.set_base(s, t, i, base);
                }
            }
            Step::Old(t, r) => {
                let t = t as usize;
                s.txns[t].begin = s.done;
                s.txns[t].home = Some(r);
                s.txns[t].phase = Phase::Sent;
                self.set_base(s, t, 0, 0);
            }
            Step::LeaseOver => {
                s.is_leased = false;
                if self.rules.old_leader_stops {
                    s.old = None;
                }
            }
            Step::Execute(t) => self.execute(s, t as usize),
            Step::Certify(t) => self.certify(s, t as usize),
            Step::Durable => {
                s.durable = s.log.len() as u8;
                for i in 0..s.log.len() {
                    let t = s.log[i];
                    if self.rules.need == Need::Durable {
                        self.mark(s, t);
                    }
                    if self.rules.ack == Ack::Durable {
                        self.answer(s, t);
                    }
                }
            }
            Step::Commit(r, t, n) => {
                let r = r as usize;
                let list = self.relevant(s, r);
                let p = list.iter().position(|&y| y == t).unwrap();
                for &t in &list[p..p + n as usize] {
                    let local = s.txns[t as usize].open && s.txns[t as usize].home == Some(r as u8);
                    if !local {
                        let w = s.txns[t as usize].writes;
                        for o in self.row_holders(s, r, t as usize, w, 0) {
                            match s.txns[o].phase {
                                Phase::Assigned | Phase::Committed | Phase::Unknown => self.close(s, o),
                                _ => self.abort(s, o),
                            }
                        }
                    }
                    s.replicas[r].flight |= 1 << t;
                    if self.rules.need != Need::Acked {
                        self.mark(s, t);
                    }
                }
            }
            Step::Wal(r, t) => {
                let x = &mut s.replicas[r as usize];
                x.flight &= !(1 << t);
                x.walled |= 1 << t;
                x.wal.push(t);
            }
            Step::Visible(r, t) => {
                let r = r as usize;
                if self.rules.order == Order::Serial {
                    let log = s.log;
                    let flight = s.replicas[r].flight;
                    let mut order: Vec<u8> = log.iter().copied().filter(|&t| flight & (1 << t) != 0).collect();
                    // sent before durable and lost from the log: it commits all the same
                    order.extend((0..TXNS as u8).filter(|&t| flight & (1 << t) != 0 && !log.contains(&t)));
                    for t in order {
                        s.replicas[r].wal.push(t);
                        self.visible(s, r, t);
                    }
                } else {
                    self.visible(s, r, t);
                }
                if let Some(b) = self.integrity_at(s, r) {
                    s.broken = Some(b);
                }
            }
            Step::Learn(r, t) => {
                let r = r as usize;
                let which = if self.rules.order == Order::Serial { s.replicas[r].unacked } else { 1 << t };
                s.replicas[r].unacked &= !which;
                s.replicas[r].known |= which;
                if self.rules.one_home && r == crate::home::HOME {
                    self.settle(s, which);
                }
                if self.rules.ack == Ack::FirstCommit {
                    for i in 0..s.log.len() {
                        let t = s.log[i];
                        if which & (1 << t) != 0 {
                            self.answer(s, t);
                        }
                    }
                }
            }
            Step::Deadlock(t) => {
                // a chosen victim is not run again here, so that the walk ends
                s.txns[t as usize].tries = 1;
                self.abort(s, t as usize);
            }
            Step::DrawLockLsn(t) => self.lock_lsn_drawn_again(s, t as usize),
            Step::Kill(t) => self.kill(s, t as usize),
            Step::Notice(t) => self.notice(s, t as usize),
            Step::Crash(r, keep) => self.crash(s, r as usize, keep as usize),
            Step::Restart(keep) => self.restart(s, keep as usize),
        }
        self.forget(s);
        st
    }

    /// Drops what can no longer matter, so that more states are equal.
    pub(super) fn forget(&self, s: &mut State) {
        for t in 0..self.sc.programs.len() {
            let x = &mut s.txns[t];
            if Self::finished(x.phase) || x.phase == Phase::Assigned {
                x.bases = Default::default();
                x.need = 0;
                x.snapshot = None;
                x.statement = 0;
                if x.phase != Phase::Assigned {
                    x.tries = 0;
                }
                if !x.open && x.phase != Phase::Assigned {
                    x.home = None;
                }
            } else if matches!(x.phase, Phase::Sent | Phase::Finish | Phase::Idle) {
                x.need = 0;
            }
        }
    }

    pub(super) fn visible(&self, s: &mut State, r: usize, t: u8) {
        let x = &mut s.replicas[r];
        x.flight &= !(1 << t);
        x.walled &= !(1 << t);
        x.visible.push(t);
        x.unacked |= 1 << t;
        if s.txns[t as usize].home == Some(r as u8) {
            self.close(s, t as usize);
        }
    }
}
