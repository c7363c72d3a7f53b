//! Mending the order of capture.
//!
//! A statement that changes several rows fires their triggers at its end, row by row. When a user's trigger for the
//! first row changes the second one as well, that inner statement fires its own triggers at once: its change of the
//! second row is reported before the outer one, though it was made after. Replayed as reported, the row would end with
//! the older value. But each update says what it found and what it left, so the changes of one key are links of a
//! chain: here they are put in the chain's order, within the places that they took together.
//!
//! Links are compared as bytes, which is sound inside one record: all its images come from one server. What does not
//! link stays where it was, and the replica will object. Tables without a primary key are left alone.

use std::collections::VecDeque;

use indexmap::IndexMap;

use super::{RefreshError, RefreshTable};
use crate::record::Change;

/// Puts the changes that one record makes to one table in the order in which they were made.
pub(super) fn mend(table: &RefreshTable, changes: &mut [Change<'_>]) -> Result<(), RefreshError> {
    let all_new = || changes.iter().all(|change| matches!(change, Change::Insert { .. }));
    if changes.len() < 2 || table.primary_key.is_empty() || all_new() {
        return Ok(());
    }
    let mut places: IndexMap<Vec<Option<&[u8]>>, Vec<usize>> = IndexMap::new();
    for (at, change) in changes.iter().enumerate() {
        let Some(image) = found(change).or_else(|| left(change)) else { continue };
        places.entry(table.key_of(image)?).or_default().push(at);
    }
    let mut moves = Vec::new();
    for own in places.into_values().filter(|own| own.len() > 1) {
        let order = chained(changes, &own);
        moves.extend(
            own.iter().zip(order).filter(|(place, from)| *place != from).map(|(&p, f)| (p, changes[f])),
        );
    }
    for (place, change) in moves {
        changes[place] = change;
    }
    Ok(())
}

/// The places of one key's changes in the order of the chain.
fn chained(changes: &[Change<'_>], own: &[usize]) -> VecDeque<usize> {
    let mut chain = VecDeque::from([own[0]]);
    let mut first = found(&changes[own[0]]);
    let mut last = left(&changes[own[0]]);
    let mut loose: Vec<usize> = Vec::new();
    for &at in &own[1..] {
        if found(&changes[at]) == last {
            chain.push_back(at);
            last = left(&changes[at]);
            while let Some(next) = loose.iter().position(|&at| found(&changes[at]) == last) {
                let at = loose.remove(next);
                chain.push_back(at);
                last = left(&changes[at]);
            }
        } else if left(&changes[at]) == first {
            chain.push_front(at);
            first = found(&changes[at]);
        } else {
            loose.push(at);
        }
    }
    chain.extend(loose);
    chain
}

/// The image that a change found; None when there was no row.
fn found<'a>(change: &Change<'a>) -> Option<&'a [u8]> {
    match change {
        Change::Update { old, .. } | Change::Delete { old } => Some(old),
        Change::Insert { .. } | Change::Truncate => None,
    }
}

/// The image that a change left; None when the row is gone.
fn left<'a>(change: &Change<'a>) -> Option<&'a [u8]> {
    match change {
        Change::Update { new, .. } | Change::Insert { new } => Some(new),
        Change::Delete { .. } | Change::Truncate => None,
    }
}
