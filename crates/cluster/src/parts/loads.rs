//! SELF: the load of a replica is the sum of the times of the operations outstanding there.
//!
//! Conflict-aware scheduling, section 4.10: "shortest execution length first". The times are measured beforehand, one a
//! template, and come in with the operation; each reply takes its own away again. Equals take turns.

/// The loads of all replicas, and whose turn it is.
#[derive(Debug)]
pub struct Loads {
    outstanding_us: Vec<u64>,
    /// What others have outstanding there, as far as the replica has told.
    others_us: Vec<u64>,
    last: usize,
}

impl Loads {
    /// Replicas without load.
    pub fn new(replicas: usize) -> Self {
        Self { outstanding_us: vec![0; replicas], others_us: vec![0; replicas], last: 0 }
    }

    /// An operation that takes this long was sent there.
    pub fn add(&mut self, replica: usize, cost_us: u32) {
        self.outstanding_us[replica] += u64::from(cost_us);
    }

    /// It was answered.
    pub fn take(&mut self, replica: usize, cost_us: u32) {
        let load = &mut self.outstanding_us[replica];
        *load = load.saturating_sub(u64::from(cost_us));
    }

    /// The replica tells the sum of the times of all operations that are outstanding there, from all schedulers.
    pub fn tell(&mut self, replica: usize, load_us: u64) {
        self.others_us[replica] = load_us.saturating_sub(self.outstanding_us[replica]);
    }

    /// About how much memory this takes.
    pub fn memory_bytes(&self) -> usize {
        size_of_val(self.outstanding_us.as_slice()) + size_of_val(self.others_us.as_slice())
    }

    /// The sum of the times of the outstanding operations.
    pub fn of(&self, replica: usize) -> u64 {
        self.outstanding_us[replica]
    }

    /// Forgets the outstanding operations of a replica that is lost.
    pub fn clear(&mut self, replica: usize) {
        (self.outstanding_us[replica], self.others_us[replica]) = (0, 0);
    }

    /// The least loaded of the replicas for which `may` says so.
    pub fn least(&mut self, may: impl Fn(usize) -> bool) -> Option<usize> {
        let count = self.outstanding_us.len();
        let turns = (self.last + 1..count).chain(0..=self.last.min(count - 1));
        let mut best: Option<(usize, u64)> = None;
        for replica in turns {
            let load = self.outstanding_us[replica] + self.others_us[replica];
            if best.is_none_or(|(_, least)| load < least) && may(replica) {
                best = Some((replica, load));
            }
        }
        let (replica, _) = best?;
        self.last = replica;
        Some(replica)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 4.10: "the sum of the (apriori measured) execution times of all queries outstanding on that back-end".
    #[test]
    fn section_4_10_the_shortest_length_wins_not_the_shortest_queue() {
        let mut loads = Loads::new(3);
        loads.add(0, 700);
        for replica in [1, 1, 2] {
            loads.add(replica, 10);
        }
        assert_eq!(loads.least(|_| true), Some(2));
        assert_eq!(loads.least(|replica| replica != 2), Some(1), "two short ones are less than one long one");
        loads.take(0, 700);
        assert_eq!(loads.least(|_| true), Some(0));
        assert_eq!(loads.least(|_| false), None);
    }

    #[test]
    fn equals_take_turns() {
        let mut loads = Loads::new(3);
        let turns: Vec<_> = (0..4).filter_map(|_| loads.least(|_| true)).collect();
        assert_eq!(turns, [1, 2, 0, 1]);
    }
}
