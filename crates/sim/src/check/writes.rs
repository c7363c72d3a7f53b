//! Every acknowledged write is there at the end, once, whole, and directly after the write that it was based on.
//!
//! A write whose COMMIT was acknowledged is in its row at the end. Of a transaction all writes are there, or none. No
//! rolled-back or unknown write is there.

use super::{Anomaly, Finding, Index};
use crate::history::{History, Outcome, Seen, Transaction};

pub(super) fn check(history: &History, index: &Index) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |anomaly, text: String| findings.push(Finding { anomaly, text });
    for row in &history.finals {
        check_final(row, history, index, &mut find);
    }
    for (number, transaction) in history.transactions.iter().enumerate() {
        check_writes(number, transaction, index, &mut find);
    }
    findings
}

fn check_final(row: &Seen, history: &History, index: &Index, find: &mut impl FnMut(Anomaly, String)) {
    let Seen { row, list } = row;
    for (place, element) in list.iter().enumerate() {
        if index.places[element] != (*row, place) {
            find(Anomaly::AppliedTwice, format!("{element} is in row {row} twice: {list:?}"));
        }
        match index.writers.get(element).map(|t| history.transactions[*t].outcome) {
            None => find(
                Anomaly::AppliedTwice,
                format!("{element} in row {row} belongs to no transaction: it ran twice"),
            ),
            Some(Outcome::Aborted) => {
                find(Anomaly::AbortedRead, format!("{element} in row {row} is of an aborted transaction"));
            }
            Some(_) if index.undone.contains(element) => {
                find(Anomaly::AbortedRead, format!("{element} in row {row} was rolled back to a savepoint"));
            }
            Some(_) => {}
        }
    }
}

fn check_writes(
    number: usize,
    transaction: &Transaction,
    index: &Index,
    find: &mut impl FnMut(Anomaly, String),
) {
    if transaction.outcome == Outcome::Aborted {
        return;
    }
    let is_partly_there = index.is_in_effect[number];
    for write in transaction.writes() {
        let Some((row, place)) = index.places.get(&write.element).copied() else {
            if transaction.outcome == Outcome::Committed || is_partly_there {
                let over = write.base.as_ref().and_then(|base| index.list(write.row).get(base.len()));
                let (anomaly, how) = match over {
                    Some(over) => (Anomaly::LostUpdate, format!("{over} stands in its place")),
                    None if is_partly_there => {
                        (Anomaly::TornCommit, "other writes of it are there".to_owned())
                    }
                    None => (Anomaly::LostCommit, "nothing stands in its place".to_owned()),
                };
                find(anomaly, format!("T{number}'s {} of row {} is gone: {how}", write.element, write.row));
            }
            continue;
        };
        let before = &index.list(row)[..place];
        if write.base.as_deref().is_some_and(|base| base != before) {
            let text =
                format!("T{number}'s {} was based on {:?}, not on {before:?}", write.element, write.base);
            find(Anomaly::LostUpdate, text);
        }
    }
}
