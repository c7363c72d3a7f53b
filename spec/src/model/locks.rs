//! Lock queues, row locks inside the servers, and the cycles that end a wait.

use super::*;

impl Model {
    pub(super) fn level(&self, t: usize) -> Level {
        self.sc.programs[t].level
    }

    /// Lock-table classes of the next statement: exclusive, shared.
    pub(super) fn lock_classes(&self, t: usize, i: usize) -> (Mask, Mask) {
        let p = &self.sc.programs[t];
        let a = &self.access[t][i];
        if p.unknown || a.writes | a.locks == 0 {
            return (0, 0);
        }
        let on = if p.level.snapshot() { self.rules.lock_snapshot_writes } else { self.rules.lock_writes };
        if !on {
            return (0, 0);
        }
        let x = a.writes | if self.rules.lock_only_is_write { a.locks } else { 0 };
        let s = a.claims | if p.level == Level::Auto && self.rules.lock_auto_reads { a.reads } else { 0 };
        (x, s & !x)
    }

    pub(super) fn lock_conflict(t: &Txn, x: Mask, sh: Mask) -> bool {
        t.lock_x & (x | sh) != 0 || t.lock_s & x != 0
    }

    /// Grants waiting requests in order.
    pub(super) fn grant(&self, s: &mut State) {
        let mut i = 0;
        while i < s.waiting.len() {
            let t = s.waiting[i] as usize;
            if self.lock_blockers(s, t).is_empty() {
                let (x, sh) = self.lock_classes(t, s.txns[t].statement as usize);
                s.txns[t].lock_x |= x;
                s.txns[t].lock_s |= sh & !s.txns[t].lock_x;
                s.waiting.remove(i);
                self.ready(s, t);
            } else {
                i += 1;
            }
        }
    }

    pub(super) fn lock_blockers(&self, s: &State, t: usize) -> Vec<usize> {
        let (x, sh) = self.lock_classes(t, s.txns[t].statement as usize);
        let mut b: Vec<usize> = (0..self.sc.programs.len()).filter(|&o| o != t && Self::lock_conflict(&s.txns[o], x, sh)).collect();
        for &o in s.waiting.iter().take_while(|&&o| o as usize != t) {
            let (ox, os) = self.lock_classes(o as usize, s.txns[o as usize].statement as usize);
            if ox & (x | sh) != 0 || os & x != 0 {
                b.push(o as usize);
            }
        }
        b
    }

    pub fn ready(&self, s: &mut State, t: usize) {
        let a = self.access[t][s.txns[t].statement as usize];
        let level = self.level(t);
        let first = s.txns[t].statement == 0;
        let mut need = 0;
        let wide = level.snapshot() && self.rules.snapshot_needs_all || self.sc.programs[t].unknown;
        if !level.snapshot() || first {
            let locks = if self.rules.lock_only_is_write { a.locks } else { 0 };
            // a read that is locked but not certified is part of the write
            let locked_reads = if self.rules.lock_auto_reads && level == Level::Auto && a.writes != 0 { a.reads } else { 0 };
            for &l in s.log.iter() {
                let l_txn = &s.txns[l as usize];
                let touches = self.conflicts(l_txn, a.writes | locks, a.reads | a.locks | a.claims);
                let write = self.rules.writer_needs_assigned
                    && !level.snapshot()
                    && !self.sc.programs[t].unknown
                    && self.conflicts(l_txn, a.writes | locks, a.claims | locked_reads);
                if (s.marked & (1 << l) != 0 && (touches || wide)) || write {
                    need |= 1 << l;
                }
            }
        }
        if self.is_homed(t) && first {
            need |= s.caught_up;
        }
        s.txns[t].need = need;
        s.txns[t].phase = Phase::Ready;
    }

    pub(super) fn end_locks(&self, s: &mut State, t: usize) {
        s.txns[t].lock_x = 0;
        s.txns[t].lock_s = 0;
        if let Some(i) = s.waiting.iter().position(|&w| w as usize == t) {
            s.waiting.remove(i);
        }
        self.grant(s);
    }

    pub fn close(&self, s: &mut State, t: usize) {
        let x = &mut s.txns[t];
        x.open = false;
        x.row_x = 0;
        x.row_s = 0;
    }

    /// Rolled back with a code that a client retries; a single statement is run again unseen.
    pub fn abort(&self, s: &mut State, t: usize) {
        self.close(s, t);
        let x = &mut s.txns[t];
        x.bases = Default::default();
        x.writes = 0;
        x.claims = 0;
        x.reads = 0;
        x.snapshot = None;
        x.need = 0;
        x.lock_lsn = 0;
        if let Some(i) = s.finished.iter().position(|&f| f as usize == t) {
            s.finished.remove(i);
        }
        s.suspected &= !(1 << t);
        self.append_ready(s);
        let x = &mut s.txns[t];
        if self.level(t) == Level::Auto && x.tries < 1 {
            x.tries += 1;
            x.seen = Default::default();
            x.statement = 0;
            x.home = None;
            x.phase = Phase::WaitLock;
            self.end_locks(s, t);
            s.waiting.push(t as u8);
            self.grant(s);
        } else {
            x.phase = Phase::Aborted;
            self.end_locks(s, t);
        }
    }

    pub(super) fn finished(p: Phase) -> bool {
        matches!(p, Phase::Committed | Phase::ReadDone | Phase::Aborted | Phase::Unknown)
    }

    /// Statements whose visible state has to be a prefix.
    pub(super) fn guarded(&self, s: &State, t: usize) -> bool {
        let i = s.txns[t].statement as usize;
        let a = &self.access[t][i];
        let snapshot = self.level(t).snapshot() && i == 0;
        match self.rules.guard {
            Guard::None => false,
            Guard::Snapshots => snapshot,
            Guard::Statements => snapshot || (a.reads | a.writes | a.claims | a.locks).count_ones() > 1,
        }
    }

    /// What is applied at r, with what is in flight, is a prefix with at most its end in question.
    pub(super) fn clean(&self, s: &State, r: usize, extra: Mask) -> bool {
        let known = s.replicas[r].known;
        let sent = self.sent(s, r) | extra;
        let list = self.relevant(s, r);
        let n = list.iter().take_while(|&&t| known & (1 << t) != 0).count();
        let open: Vec<usize> = (n..list.len()).filter(|&i| sent & (1 << list[i]) != 0).collect();
        open.is_empty() || open == [n]
    }

    pub(super) fn sent(&self, s: &State, r: usize) -> Mask {
        let x = &s.replicas[r];
        x.flight | x.walled | x.unacked | x.known
    }

    /// Open transactions and refreshes in flight at r whose row locks keep t's next statement waiting.
    pub(super) fn row_blockers(&self, s: &State, t: usize) -> Vec<usize> {
        let r = s.txns[t].home.unwrap();
        let a = &self.access[t][s.txns[t].statement as usize];
        self.row_holders(s, r as usize, t, a.writes | a.locks, a.claims)
    }

    pub(super) fn row_holders(&self, s: &State, r: usize, t: usize, x: Mask, sh: Mask) -> Vec<usize> {
        (0..self.sc.programs.len())
            .filter(|&o| o != t)
            .filter(|&o| {
                let n = &s.txns[o];
                let local = n.open && n.home == Some(r as u8) && (n.row_x & (x | sh) != 0 || n.row_s & x != 0);
                let refresh = (s.replicas[r].flight | s.replicas[r].walled) & (1 << o) != 0 && n.writes & (x | sh) != 0;
                local || refresh
            })
            .collect()
    }

    pub(super) fn in_cycle(&self, s: &State, t: usize) -> bool {
        let n = self.sc.programs.len();
        let mut edges = [0u16; TXNS];
        for a in 0..n {
            let b = match s.txns[a].phase {
                Phase::WaitLock => self.lock_blockers(s, a),
                Phase::Sent if self.rules.deadlock == Deadlock::Both => self.row_blockers(s, a),
                _ => vec![],
            };
            for x in b {
                edges[a] |= 1 << x;
            }
        }
        let mut reach = edges[t];
        loop {
            let next = (0..n).filter(|&i| reach & (1 << i) != 0).fold(reach, |m, i| m | edges[i]);
            if next == reach {
                return reach & (1 << t) != 0;
            }
            reach = next;
        }
    }
}
