//! Which (sub)transaction wrote which rows of the record.
//!
//! An exception block in PL/pgSQL rolls back rows whose notices were sent before. Each notice carries the
//! (sub)transaction that wrote its row. At the end Onecopy asks the server which of them aborted
//! ([`crate::propagate::subtransactions`]).

use cluster::record::Span;

/// Most runs. Each begins where another subtransaction wrote.
const RUNS_MAX: usize = 100_000;

/// Consecutive rows of the same (sub)transaction, or of several if no exception block can concern them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// The lower half of its transaction id.
    pub(crate) xid: u32,
    /// Its first element.
    pub(crate) from: u64,
    /// The element after its last.
    pub(crate) to: u64,
    /// Contains a deletion, whose id may be a multixact.
    pub(crate) has_deletes: bool,
    /// Contains rows from inside a function, trigger or cascade, which an exception block may have rolled back.
    pub(crate) is_nested: bool,
    /// Contains rows of several subtransactions, none of them nested.
    is_mixed: bool,
}

/// All runs of a record, in order.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    all: Vec<Run>,
    has_nested: bool,
}

impl Runs {
    /// Adds new elements, which `xid` wrote.
    pub(crate) fn add(&mut self, span: Span, xid: u32, is_nested: bool, is_delete: bool) {
        let Span { from, to } = span;
        self.has_nested |= is_nested;
        if let Some(run) = self.all.last_mut().filter(|run| run.to == from) {
            let same = run.xid == xid && !(run.is_mixed && is_nested);
            if same || (!run.is_nested && !is_nested) {
                run.is_mixed |= !same;
                run.is_nested |= is_nested;
                run.has_deletes |= is_delete;
                (run.xid, run.to) = (xid, to);
                return;
            }
        }
        self.all.push(Run { xid, from, to, has_deletes: is_delete, is_nested, is_mixed: false });
    }

    /// Drops the runs from this element on.
    pub(crate) fn forget_from(&mut self, from: u64) {
        self.all.retain(|run| run.from < from);
        if let Some(last) = self.all.last_mut() {
            last.to = last.to.min(from);
        }
    }

    /// Whether any row was ever written inside a function, trigger or cascade, dropped rows included.
    pub(crate) fn has_nested(&self) -> bool {
        self.has_nested
    }

    /// The runs that an exception block may have rolled back.
    pub(crate) fn nested(&self) -> impl Iterator<Item = &Run> + Clone {
        self.all.iter().filter(|run| run.is_nested)
    }

    /// Whether there are too many runs to ask the server about.
    pub(crate) fn are_too_many(&self) -> bool {
        self.has_nested && self.all.len() > RUNS_MAX
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(runs: &Runs) -> Vec<(u32, u64, u64)> {
        runs.all.iter().map(|run| (run.xid, run.from, run.to)).collect()
    }

    #[test]
    fn rows_outside_of_functions_are_one_run() {
        let mut runs = Runs::default();
        runs.add(Span { from: 0, to: 1 }, 7, false, false);
        runs.add(Span { from: 1, to: 2 }, 8, false, true);
        assert_eq!(pieces(&runs), [(8, 0, 2)]);
        assert!(!runs.has_nested() && runs.nested().next().is_none());
    }

    #[test]
    fn nested_rows_are_told_apart_by_their_subtransaction() {
        let mut runs = Runs::default();
        runs.add(Span { from: 0, to: 1 }, 7, true, false);
        runs.add(Span { from: 1, to: 2 }, 7, true, true);
        runs.add(Span { from: 2, to: 3 }, 8, true, false);
        assert_eq!(pieces(&runs), [(7, 0, 2), (8, 2, 3)]);
        assert!(runs.nested().next().is_some_and(|run| run.has_deletes));
    }

    #[test]
    fn a_mixed_run_takes_no_nested_rows() {
        let mut runs = Runs::default();
        runs.add(Span { from: 0, to: 1 }, 7, false, false);
        runs.add(Span { from: 1, to: 2 }, 8, false, false);
        runs.add(Span { from: 2, to: 3 }, 8, true, false);
        assert_eq!(pieces(&runs), [(8, 0, 2), (8, 2, 3)]);
    }

    #[test]
    fn a_record_that_is_cut_keeps_the_runs_before_the_cut() {
        let mut runs = Runs::default();
        runs.add(Span { from: 0, to: 4 }, 7, true, false);
        runs.add(Span { from: 4, to: 6 }, 8, true, false);
        runs.forget_from(3);
        assert_eq!(pieces(&runs), [(7, 0, 3)]);
        assert!(runs.has_nested());
    }
}
