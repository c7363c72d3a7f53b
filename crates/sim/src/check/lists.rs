//! Every list that anybody saw is a beginning of the list at the end; every write stands where it was based.

use super::{Anomaly, Finding, Index};
use crate::history::{History, Outcome, Seen, Transaction};

pub(super) fn check(history: &History, index: &Index) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut find = |anomaly, text: String| findings.push(Finding { anomaly, text });
    check_finals(history, index, &mut find);
    for (number, transaction) in history.transactions.iter().enumerate() {
        check_writes(number, transaction, index, &mut find);
        check_reads(number, transaction, index, &mut find);
    }
    findings
}

fn check_finals(history: &History, index: &Index, find: &mut impl FnMut(Anomaly, String)) {
    for Seen { row, list } in &history.finals {
        for (place, element) in list.iter().enumerate() {
            if index.places[element] != (*row, place) {
                find(Anomaly::AppliedTwice, format!("{element} is in row {row} twice: {list:?}"));
            }
            match index.writers.get(element).map(|t| history.transactions[*t].outcome) {
                None => find(Anomaly::AppliedTwice, format!("{element} in row {row} is nobody's: run twice")),
                Some(Outcome::Aborted) => {
                    find(
                        Anomaly::AbortedRead,
                        format!("{element} in row {row} is of an aborted transaction"),
                    );
                }
                Some(_) => {}
            }
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
    for write in transaction.statements.iter().flat_map(|s| &s.writes) {
        let Some((row, place)) = index.places.get(&write.element).copied() else {
            if transaction.outcome == Outcome::Committed || index.is_in_effect[number] {
                let over = write.base.as_ref().and_then(|base| index.list(write.row).get(base.len()));
                let (anomaly, how) = match over {
                    Some(over) => (Anomaly::LostUpdate, format!("{over} stands in its place")),
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

fn check_reads(
    number: usize,
    transaction: &Transaction,
    index: &Index,
    find: &mut impl FnMut(Anomaly, String),
) {
    let mut own: Vec<(u32, u64)> = Vec::new();
    for statement in &transaction.statements {
        if statement.end_us != 0 {
            for seen in statement.reads.iter().chain(&statement.latest).chain(&statement.locked) {
                check_seen(number, seen, index, find);
                let last_own = own.iter().rev().find(|(row, _)| *row == seen.row);
                let written_here = statement.writes.iter().any(|write| write.row == seen.row);
                if let Some((_, element)) = last_own.filter(|_| !written_here)
                    && seen.list.last() != Some(element)
                {
                    let text =
                        format!("T{number} wrote {element} to row {} and read {:?}", seen.row, seen.list);
                    find(Anomaly::OwnWriteMissed, text);
                }
            }
        }
        own.extend(statement.writes.iter().map(|write| (write.row, write.element)));
    }
}

fn check_seen(number: usize, seen: &Seen, index: &Index, find: &mut impl FnMut(Anomaly, String)) {
    let list = index.without_own(number, &seen.list);
    let end = index.list(seen.row);
    let (row, who) = (seen.row, format!("T{number} read {:?}", seen.list));
    if let Some(gone) = list.iter().find(|e| !index.places.contains_key(e)) {
        let anomaly =
            if index.writers.contains_key(gone) { Anomaly::LostCommit } else { Anomaly::AbortedRead };
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
