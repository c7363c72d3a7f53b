//! The steps and faults that are possible in a state.

use super::*;

impl Model {
    pub(super) fn commit_allowed(&self, s: &State, r: usize, t: u8) -> bool {
        if s.is_leased && self.rules.commits_after_lease {
            return false;
        }
        let list = self.relevant(s, r);
        let Some(i) = list.iter().position(|&x| x == t) else { return false };
        let known = s.replicas[r].known;
        let sent = self.sent(s, r);
        let earlier = &list[..i];
        let order = match self.rules.order {
            Order::Serial => sent & !known == 0 && earlier.iter().all(|&e| known & (1 << e) != 0),
            Order::Pipelined => earlier.iter().all(|&e| sent & (1 << e) != 0),
            Order::Window => earlier.iter().all(|&e| sent & (1 << e) != 0 && (known & (1 << e) != 0 || self.disjoint(s, e, t))),
            Order::Holes => earlier.iter().all(|&e| known & (1 << e) != 0 || self.disjoint(s, e, t)),
        };
        order
            && (self.clean(s, r, 1 << t)
                || !(0..self.sc.programs.len())
                    .any(|o| s.txns[o].phase == Phase::Sent && s.txns[o].home == Some(r as u8) && self.guarded(s, o)))
    }

    pub fn steps(&self, s: &State) -> Vec<Step> {
        let mut v = Vec::with_capacity(16);
        let n = self.sc.programs.len();
        if s.is_leased {
            v.push(Step::LeaseOver);
        }
        for t in 0..n {
            let x = &s.txns[t];
            match x.phase {
                Phase::Idle => {
                    let first = x.statement == 0;
                    if !first || (self.sc.previous(t).map_or(true, |p| Self::finished(s.txns[p].phase)) && self.has_turn(s, t)) {
                        v.push(Step::Issue(t as u8));
                        if let (Some(old), Level::Auto, 0) = (s.old, self.level(t), self.access[t][0].writes) {
                            for r in 0..self.sc.holds.len() {
                                let seen = s.replicas[r].visible.iter().fold(0, |m: Mask, &l| m | 1 << l);
                                if self.at(s, r, old) & !seen == 0 && self.rows(t) & !self.sc.holds[r] == 0 {
                                    v.push(Step::Old(t as u8, r as u8));
                                }
                            }
                        }
                    }
                }
                Phase::Ready if s.is_leased && self.rules.serves_after_lease => {}
                Phase::Ready => {
                    for r in 0..self.sc.holds.len() {
                        if x.home.map_or(true, |h| h as usize == r)
                            && !((self.sc.programs[t].unknown || self.is_homed(t)) && r != 0)
                            && self.rows(t) & !self.sc.holds[r] == 0
                            && self.at(s, r, x.need) & !s.replicas[r].known == 0
                            && (!self.guarded(s, t) || self.clean(s, r, 0))
                        {
                            v.push(Step::Send(t as u8, r as u8));
                        }
                    }
                }
                Phase::Sent => {
                    if self.row_blockers(s, t).is_empty() && s.dead & (1 << t) == 0 {
                        v.push(Step::Execute(t as u8));
                    }
                }
                Phase::Finish => v.push(Step::Certify(t as u8)),
                Phase::Queued if s.suspected & !s.dead & (1 << t) != 0 => v.push(Step::DrawLockLsn(t as u8)),
                _ => {}
            }
            if s.dead & (1 << t) != 0 {
                v.push(Step::Notice(t as u8));
            }
            if matches!(x.phase, Phase::WaitLock | Phase::Sent) && self.rules.deadlock != Deadlock::None && self.in_cycle(s, t) {
                v.push(Step::Deadlock(t as u8));
            }
        }
        if (s.durable as usize) < s.log.len() {
            v.push(Step::Durable);
        }
        for r in 0..self.sc.holds.len() {
            let x = &s.replicas[r];
            let may = if self.rules.durable_before_commit { s.durable as usize } else { s.log.len() };
            for i in 0..may {
                let t = s.log[i];
                if self.sent(s, r) & (1 << t) == 0 && self.commit_allowed(s, r, t) && self.locks_free(s, r, t as usize) {
                    v.push(Step::Commit(r as u8, t, 1));
                    if self.rules.order == Order::Serial {
                        // a batch of refreshes
                        let list = self.relevant(&self.cut(s, may), r);
                        let p = list.iter().position(|&y| y == t).unwrap();
                        let local = |y: u8| s.txns[y as usize].open && s.txns[y as usize].home == Some(r as u8);
                        if p + 1 < list.len() && !local(t) && !local(list[p + 1]) && self.locks_free(s, r, list[p + 1] as usize) {
                            v.push(Step::Commit(r as u8, t, 2));
                        }
                    }
                }
            }
            if self.rules.order == Order::Serial {
                if x.flight != 0 && !(r == crate::home::HOME && x.flight & s.dead != 0) {
                    v.push(Step::Visible(r as u8, 0));
                }
            } else {
                for t in 0..n as u8 {
                    if x.flight & (1 << t) != 0 && self.wal_allowed(s, r, t) {
                        v.push(Step::Wal(r as u8, t));
                    }
                    if x.walled & (1 << t) != 0 {
                        v.push(Step::Visible(r as u8, t));
                    }
                }
            }
            if self.rules.order == Order::Serial {
                if x.unacked != 0 {
                    v.push(Step::Learn(r as u8, 0));
                }
            } else {
                for t in 0..n as u8 {
                    if x.unacked & (1 << t) != 0 {
                        v.push(Step::Learn(r as u8, t));
                    }
                }
            }
        }
        v
    }

    pub fn faults(&self, s: &State) -> Vec<Step> {
        let mut v = vec![];
        v.extend((0..self.sc.programs.len()).filter(|&t| self.killable(s, t)).map(|t| Step::Kill(t as u8)));
        if s.crashes > 0 && !s.log.is_empty() {
            for r in 0..self.sc.holds.len() {
                for keep in s.replicas[r].floor as usize..=s.replicas[r].wal.len() {
                    v.push(Step::Crash(r as u8, keep as u8));
                }
            }
        }
        if s.restarts > 0 && !s.log.is_empty() {
            for keep in s.durable as usize..=s.log.len() {
                v.push(Step::Restart(keep as u8));
            }
        }
        v
    }

    pub(super) fn cut(&self, s: &State, n: usize) -> State {
        let mut c = *s;
        c.log.truncate(n);
        c
    }

    /// A refresh waits for row locks of what is in flight, and of those that may not be rolled back.
    pub(super) fn locks_free(&self, s: &State, r: usize, t: usize) -> bool {
        let x = &s.txns[t];
        if x.open && x.home == Some(r as u8) {
            return true;
        }
        self.row_holders(s, r, t, x.writes, 0).into_iter().all(|o| {
            let certified = matches!(s.txns[o].phase, Phase::Assigned | Phase::Committed | Phase::Unknown);
            let flying = (s.replicas[r].flight | s.replicas[r].walled) & (1 << o) != 0;
            !flying && if certified { self.rules.undo_certified } else { self.rules.doom }
        })
    }

    pub(super) fn wal_allowed(&self, s: &State, r: usize, t: u8) -> bool {
        let p = s.log.iter().position(|&x| x == t).unwrap_or(s.log.len());
        s.log[..p.min(s.log.len())].iter().all(|&e| {
            (s.replicas[r].flight | s.replicas[r].walled) & (1 << e) == 0 || s.txns[e as usize].writes & s.txns[t as usize].writes == 0
        })
    }
}
