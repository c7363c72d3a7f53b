//! Statements: their snapshot, their effect, and their certification.

use super::*;

impl Model {
    pub(super) fn set_base(&self, s: &mut State, t: usize, i: usize, base: Mask) {
        let level = self.level(t);
        let a = self.access[t][i];
        let base = if self.rules.base_is_set {
            base
        } else {
            // everything up to the highest applied number
            let n = s.log.iter().rposition(|&l| base & (1 << l) != 0).map_or(0, |p| p + 1);
            s.log[..n].iter().fold(0, |m, &l| m | 1 << l)
        };
        // a transaction snapshot has one base, from its first statement
        let base = if level.snapshot() && i > 0 { s.txns[t].bases[0].base } else { base };
        let locks = if self.rules.lock_only_is_write { a.locks } else { 0 };
        let claims: Mask = !15;
        let (writes, reads) = match level {
            Level::Auto if a.writes == 0 => (0, 0),
            Level::Auto | Level::ReadCommitted => {
                let w = a.writes | locks;
                let r = if level == Level::Auto && self.rules.certify_auto_reads { a.reads } else { 0 };
                if self.rules.certify_all_writes {
                    (w, a.claims | r)
                } else {
                    (w & claims, a.claims | r)
                }
            }
            _ => {
                let w = a.writes | locks;
                let r = if level == Level::Serializable && self.rules.certify_reads { a.reads } else { 0 };
                if self.rules.certify_snapshot_writes {
                    (w, a.claims | r)
                } else {
                    (w & claims, a.claims | r)
                }
            }
        };
        s.txns[t].bases.push(Base { base, writes, reads });
    }

    pub(super) fn execute(&self, s: &mut State, t: usize) {
        let level = self.level(t);
        let i = s.txns[t].statement as usize;
        let r = s.txns[t].home.unwrap() as usize;
        let now = s.replicas[r].visible;
        if !self.rules.base_at_send {
            let x = &s.replicas[r];
            let base = x.known | x.unacked | x.flight | x.walled;
            self.set_base(s, t, i, base);
        }
        if level.snapshot() && s.txns[t].snapshot.is_none() {
            s.txns[t].snapshot = Some(now.len() as u8);
        }
        let mut view = now;
        if let Some(n) = s.txns[t].snapshot {
            view.truncate(n as usize);
        }
        let program = &self.sc.programs[t].statements[i];
        let a = self.access[t][i];
        let own = s.txns[t].writes;
        let here_now = |s: &State, k: usize| {
            if own & (1 << k) != 0 {
                self.op_of(t, k) != Op::Delete
            } else {
                self.present(s, &now, k)
            }
        };
        for k in 0..4 {
            if program.reads & (1 << k) != 0 && own & (1 << k) == 0 {
                let value = self.value(s, &view, k);
                s.txns[t].seen.push(Seen { statement: i as u8, key: k as u8, value, kind: Kind::Read });
            }
        }
        let mut failed = false;
        let mut nothing = false;
        for &(k, op) in &program.ops {
            let value = self.value(s, &now, k);
            if level.snapshot() && value != self.value(s, &view, k) {
                // "could not serialize access due to concurrent update"
                return self.abort(s, t);
            }
            s.txns[t].seen.push(Seen { statement: i as u8, key: k as u8, value, kind: Kind::Base });
            let mut claims: Mask = 0;
            let here = self.present_after(value, k);
            match op {
                Op::Insert => {
                    failed |= here;
                    for g in &self.sc.unique {
                        if g & (1 << k) != 0 {
                            claims |= g & !(1 << k);
                        }
                    }
                    for o in 0..4 {
                        failed |= claims & (1 << o) != 0 && here_now(s, o);
                    }
                    for &(c, p) in &self.sc.foreign {
                        if c == k {
                            claims |= 1 << p;
                            failed |= !here_now(s, p);
                        }
                    }
                }
                Op::Delete => {
                    nothing |= !here;
                    for &(c, p) in &self.sc.foreign {
                        if p == k && here {
                            claims |= 1 << c;
                            failed |= here_now(s, c);
                        }
                    }
                }
                Op::Update => nothing |= !here,
                Op::Lock => {}
            }
            for o in 0..4 {
                if claims & (1 << o) != 0 && own & (1 << o) == 0 && s.txns[t].seen.len() < 12 {
                    let value = self.value(s, &now, o);
                    s.txns[t].seen.push(Seen { statement: i as u8, key: o as u8, value, kind: Kind::Claim });
                }
            }
        }
        if failed {
            // 23505 or 23503: the client has seen what these reads say
            self.close(s, t);
            s.txns[t].writes = 0;
            s.txns[t].claims = 0;
            s.txns[t].phase = if level == Level::Auto { Phase::ReadDone } else { Phase::Aborted };
            if level == Level::Auto {
                s.done |= 1 << t;
            }
            return self.end_locks(s, t);
        }
        let x = &mut s.txns[t];
        if !nothing {
            if a.writes | a.locks != 0 {
                x.open = true;
                x.row_x |= a.writes | a.locks;
                x.row_s |= a.claims;
                x.writes |= a.writes;
                x.claims |= a.claims;
            }
        }
        if level == Level::Serializable || level == Level::Auto && a.writes != 0 {
            x.reads |= a.reads;
        }
        x.statement += 1;
        if level == Level::ReadCommitted && a.writes | a.locks == 0 {
            s.done |= 1 << statement_node(t, i);
        }
        let last = i + 1 == self.sc.programs[t].statements.len();
        if last && self.rules.one_home && s.txns[t].writes != 0 {
            self.draw_lock_lsn(s, t);
        }
        s.txns[t].phase = if last { Phase::Finish } else { Phase::Idle };
        if last && level == Level::Auto && s.txns[t].writes == 0 {
            self.certify(s, t);
        }
    }

    pub(super) fn certify(&self, s: &mut State, t: usize) {
        if s.txns[t].writes == 0 {
            self.close(s, t);
            s.txns[t].phase = Phase::ReadDone;
            s.done |= 1 << t;
            return self.end_locks(s, t);
        }
        if self.rules.one_home {
            return self.finish(s, t);
        }
        let bases = s.txns[t].bases;
        for b in bases.iter() {
            for &l in s.log.iter() {
                if b.base & (1 << l) == 0 && l as usize != t && self.conflicts(&s.txns[l as usize], b.writes, b.reads) {
                    return self.abort(s, t);
                }
            }
        }
        if s.log.contains(&(t as u8)) {
            s.broken = Some("one transaction has two versions");
            return;
        }
        s.log.push(t as u8);
        s.txns[t].phase = Phase::Assigned;
        self.end_locks(s, t);
    }
}
