//! A transaction reads no rolled-back, partial or lost write, and it reads its own writes.
//!
//! Each list that a transaction saw, without its own writes, must be a prefix of the list at the end.

use super::{Anomaly, Finding, Index};
use crate::history::{Element, History, Outcome, Seen, Transaction};

pub(super) fn check(history: &History, index: &Index) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |anomaly, text: String| findings.push(Finding { anomaly, text });
    for (number, transaction) in history.transactions.iter().enumerate() {
        for (place, statement) in transaction.statements.iter().enumerate() {
            if statement.end_us == 0 {
                continue;
            }
            let found = statement.scans.iter().flat_map(|scan| &scan.found);
            let looks = statement.reads.iter().chain(&statement.latest).chain(&statement.locked).chain(found);
            for seen in looks {
                check_seen(number, seen, history, index, &mut find);
                let writes_here = statement.writes.iter().any(|write| write.row == seen.row);
                if !writes_here {
                    check_own(number, transaction, place, seen, index, &mut find);
                }
            }
        }
    }
    findings
}

/// The transaction sees exactly its own writes so far, without those that it rolled back.
fn check_own(
    number: usize,
    transaction: &Transaction,
    place: usize,
    seen: &Seen,
    index: &Index,
    find: &mut impl FnMut(Anomaly, String),
) {
    let before = transaction.statements[..place].iter();
    let valid = before.filter(|s| s.undone_by.is_none_or(|by| by > place)).flat_map(|s| &s.writes);
    let valid: Vec<Element> = valid.filter(|w| w.row == seen.row).map(|w| w.element).collect();
    if let Some(last) = valid.last().filter(|last| seen.list.last() != Some(last)) {
        let text = format!("T{number} wrote {last} to row {} and read {:?}", seen.row, seen.list);
        find(Anomaly::OwnWriteMissed, text);
    }
    let own = &seen.list[index.without_own(number, &seen.list).len()..];
    if let Some(gone) = own.iter().find(|element| index.undone.contains(element) && !valid.contains(element))
    {
        let text = format!("T{number} rolled {gone} back and read {:?} of row {}", seen.list, seen.row);
        find(Anomaly::AbortedRead, text);
    }
}

fn check_seen(
    number: usize,
    seen: &Seen,
    history: &History,
    index: &Index,
    find: &mut impl FnMut(Anomaly, String),
) {
    let list = index.without_own(number, &seen.list);
    let end = index.list(seen.row);
    let (row, who) = (seen.row, format!("T{number} read {:?}", seen.list));
    if let Some(gone) = list.iter().find(|e| !index.places.contains_key(e)) {
        let writer = index.writers.get(gone).map(|writer| history.transactions[*writer].outcome);
        let is_lost = matches!(writer, Some(Outcome::Committed | Outcome::Unknown));
        let anomaly =
            if is_lost && !index.undone.contains(gone) { Anomaly::LostCommit } else { Anomaly::AbortedRead };
        find(anomaly, format!("{who} of row {row}: {gone} is not there at the end, {end:?}"));
        return;
    }
    if !end.starts_with(list) {
        find(Anomaly::LostUpdate, format!("{who} of row {row}, which is no beginning of {end:?}"));
        return;
    }
    let writer = |element: Option<&u64>| element.and_then(|e| index.writers.get(e));
    let next = writer(end.get(list.len()));
    if next.is_some() && next == writer(list.last()) && next != Some(&number) {
        find(Anomaly::IntermediateRead, format!("{who} of row {row}, in the middle of T{next:?}"));
    }
}
