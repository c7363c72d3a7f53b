//! One kept answer: the reply of a server, and what it depends on.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::event::Reads;
use cluster::ids::{TableId, Version};
use cluster::parts::lock_queues::Mode;
use cluster::protocols::c_jdbc::message::Tables;
use cluster::protocols::c_jdbc::query_cache::Moment;
use wire::backend::tag;
use wire::frame::next_frame;

/// A longer reply is not kept.
pub(crate) const ANSWER_BYTES_MAX: usize = 64 << 10;

/// What an answer depends on, in the terms of the one who says whether it is still the answer.
#[derive(Debug)]
pub(crate) enum Basis {
    /// Rows are captured, and the core says it.
    Rows {
        /// What the statement read.
        reads: Reads,
        /// The version of the data that it is the answer of.
        as_of: Version,
        /// The version of the catalogue by which the statement was analysed.
        generation: Version,
    },
    /// Statements are shipped, and the scheduler of C-JDBC says it.
    Writes {
        /// The tables that the statement read.
        tables: Tables,
        /// None of them had been written when so many writes had their numbers.
        since: Moment,
    },
}

/// A reply, and what it depends on.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Row description if there was one, rows, command tag: whole messages.
    pub(crate) body: Box<[u8]>,
    /// What it depends on.
    pub(crate) basis: Basis,
    /// The template of the statement.
    pub(crate) template: u64,
    /// The durable version at which it was found valid last.
    checked: AtomicU64,
}

impl Answer {
    /// An answer that nobody has asked for again.
    pub(crate) fn new(body: Box<[u8]>, basis: Basis, template: u64) -> Self {
        Self { body, basis, template, checked: AtomicU64::new(0) }
    }

    /// Whether it was found valid when this was the durable version. Version 0 has nothing to ask about.
    pub(crate) fn is_checked_at(&self, durable: Version) -> bool {
        self.checked.load(Ordering::Acquire) == durable.0 && durable != Version::ZERO
    }

    /// It is valid at this durable version, or was so later.
    pub(crate) fn note_checked(&self, durable: Version) {
        self.checked.fetch_max(durable.0, Ordering::AcqRel);
    }

    /// Approximate memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        const TABLE: usize = size_of::<TableId>();
        let basis = match &self.basis {
            Basis::Rows { reads: Reads::Tables(tables), .. } => tables.len() * TABLE,
            Basis::Rows { reads: Reads::Rows(rows), .. } => {
                let pairs = rows.rows.len() + rows.columns.len();
                rows.tables.len() * TABLE + pairs * size_of::<(TableId, u64)>()
            }
            Basis::Rows { reads: Reads::Catalogue | Reads::All, .. } => 0,
            Basis::Writes { tables, .. } => tables.len() * size_of::<(TableId, Mode)>(),
        };
        size_of::<Self>() + self.body.len() + basis
    }
}

/// The part of a reply that is kept: row description, rows and command tag. None if the reply has anything else in it, such
/// as a notice, an error, or a changed setting.
pub(crate) fn body_of(reply: &[u8]) -> Option<&[u8]> {
    let mut rest = reply;
    skip(&mut rest, tag::PARSE_COMPLETE);
    skip(&mut rest, tag::BIND_COMPLETE);
    let body = rest;
    skip(&mut rest, tag::ROW_DESCRIPTION);
    while skip(&mut rest, tag::DATA_ROW) {}
    (skip(&mut rest, tag::COMMAND_COMPLETE) && rest.is_empty()).then_some(body)
}

/// Whether two answers have the same rows. A statement may leave their order open.
pub(crate) fn is_same(one: &[u8], other: &[u8]) -> bool {
    one == other || messages(one) == messages(other)
}

fn messages(body: &[u8]) -> Vec<&[u8]> {
    let mut rest = body;
    let mut found = Vec::new();
    while let Ok(Some(frame)) = next_frame(rest) {
        found.push(frame.bytes);
        rest = &rest[frame.bytes.len()..];
    }
    found.sort_unstable();
    found
}

/// Takes a message off the front, if it is of this kind.
fn skip(rest: &mut &[u8], tag: u8) -> bool {
    match next_frame(rest) {
        Ok(Some(frame)) if frame.tag == tag => {
            *rest = &rest[frame.bytes.len()..];
            true
        }
        _ => false,
    }
}
