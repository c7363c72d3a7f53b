//! The judgement of a run.
//!
//! The search for the shortest cycle takes the square of what comes after it, so a long history with one fault would
//! take hours. So it is cut by rows first: a piece has only what was done to lists that were in use at about the same
//! time. Leaving rows out of a history never makes it wrong. Only when all pieces are clean the whole is judged, which
//! is quick when it is clean, too.

use sim::check::{Allowed, Finding, Judgement};
use sim::history::{History, Seen, Statement, Transaction};

/// A violation, and the part of the history that shows it.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) findings: Vec<Finding>,
    pub(super) shown_by: History,
}

/// Judges a history in which `keys` lists are in use at a time, numbered in order; if it is clean, says what is allowed in it.
pub(super) fn condemn(
    history: &History,
    keys: u32,
    judge: &dyn Fn(&History) -> Judgement,
) -> Result<Allowed, Verdict> {
    let rows = history.finals.iter().map(|seen| seen.row).max().unwrap_or_default();
    for first in (0..=rows).step_by(keys as usize) {
        let piece = part(history, &|row| (first..first.saturating_add(2 * keys)).contains(&row));
        let findings = judge(&piece).findings;
        if !findings.is_empty() {
            return Err(Verdict { findings, shown_by: piece });
        }
    }
    let Judgement { findings, allowed } = judge(history);
    if findings.is_empty() { Ok(allowed) } else { Err(Verdict { findings, shown_by: history.clone() }) }
}

/// The part of a history about some rows.
fn part(history: &History, is_in: &dyn Fn(u32) -> bool) -> History {
    let seen = |all: &[Seen]| all.iter().filter(|seen| is_in(seen.row)).cloned().collect::<Vec<_>>();
    let concerns = |statement: &Statement| {
        let looks = statement.reads.iter().chain(&statement.locked).chain(&statement.latest);
        looks.map(|seen| seen.row).chain(statement.writes.iter().map(|write| write.row)).any(is_in)
    };
    // Statements that show nothing of it stay: the first one of a transaction takes its snapshot.
    let cut = |statement: &Statement| Statement {
        reads: seen(&statement.reads),
        latest: seen(&statement.latest),
        locked: seen(&statement.locked),
        writes: statement.writes.iter().filter(|write| is_in(write.row)).cloned().collect(),
        scans: Vec::new(),
        ..*statement
    };
    let transactions = history.transactions.iter().filter(|t| t.statements.iter().any(concerns));
    let transactions =
        transactions.map(|t| Transaction { statements: t.statements.iter().map(cut).collect(), ..t.clone() });
    History { transactions: transactions.collect(), finals: seen(&history.finals), total: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sim::check::{Anomaly, Promise, Sessions, judge};
    use sim::history::{Level, Outcome, Write};

    fn single(at: u64, reads: &[(u32, &[u64])], writes: &[(u32, u64)]) -> Transaction {
        let statement = Statement {
            begin_us: at,
            end_us: at + 1,
            reads: reads.iter().map(|(row, list)| Seen { row: *row, list: list.to_vec() }).collect(),
            writes: writes
                .iter()
                .map(|(row, element)| Write { row: *row, element: *element, ..Write::default() })
                .collect(),
            ..Statement::default()
        };
        Transaction {
            session: 0,
            level: Level::ReadCommitted,
            outcome: Outcome::Committed,
            finish_us: at,
            end_us: at + 1,
            statements: vec![statement],
        }
    }

    fn history(of: Vec<Transaction>) -> History {
        let finals = [(0, vec![10]), (1, vec![11]), (6, vec![60])];
        let finals = finals.map(|(row, list)| Seen { row, list }).to_vec();
        History { transactions: of, finals, total: None }
    }

    #[test]
    fn a_piece_shows_a_stale_read_and_the_whole_what_spans_pieces() {
        let writes =
            || vec![single(1, &[], &[(0, 10)]), single(3, &[], &[(1, 11)]), single(5, &[], &[(6, 60)])];
        assert_eq!(
            condemn(&history(writes()), 2, &|history| judge(history, Promise::AsAsked)).unwrap(),
            Allowed::default()
        );

        let mut stale = writes();
        stale.push(single(8, &[(6, &[])], &[]));
        let verdict =
            condemn(&history(stale.clone()), 2, &|history| judge(history, Promise::AsAsked)).unwrap_err();
        assert_eq!(verdict.findings[0].anomaly, Anomaly::StaleRead);
        assert_eq!(verdict.shown_by.transactions.len(), 2);
        let old = Promise::OldSnapshots(Sessions::Apart);
        assert_eq!(condemn(&history(stale), 2, &|history| judge(history, old)).unwrap().stale_reads, 1);

        // Row 6 was written after row 0; rows as far apart are in no piece together.
        let mut skewed = writes();
        skewed[0].end_us = 20;
        skewed[2].end_us = 20;
        let mut reader = single(1, &[(0, &[10]), (6, &[])], &[]);
        let mut other = single(1, &[(0, &[]), (6, &[60])], &[]);
        for reader in [&mut reader, &mut other] {
            reader.statements[0].end_us = 20;
        }
        skewed.extend([reader, other]);
        let verdict = condemn(&history(skewed), 2, &|history| judge(history, Promise::AsAsked)).unwrap_err();
        assert_eq!(verdict.shown_by.transactions.len(), 5, "{:?}", verdict.findings);
    }
}
