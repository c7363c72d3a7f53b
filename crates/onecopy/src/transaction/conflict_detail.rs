//! The DETAIL of an error for a client whose transaction was aborted: the other transaction and the key of the
//! conflict.
//!
//! The core knows keys by numbers only. The error names the values of a key where a statement of the client's own
//! transaction has named them ([`sql::accesses::named`]). So no client learns values that it could not read. For other
//! rows, the error names the table.

use std::sync::Arc;

use cluster::claims::Meeting;
use cluster::event::Rival;
use cluster::ids::SessionId;
use sql::Catalogue;
use sql::accesses::{Accesses, named};
use wire::backend::{Fields, tag};
use wire::frame;

use crate::classify::statement_analysis::StatementAnalysis;

/// A transaction keeps the keys of this many statements: of the first ones, and of the last.
const STATEMENTS_MAX: usize = 32;

/// The keys that the statements of the open transaction have named.
#[derive(Debug, Default)]
pub(crate) struct ConflictDetail(pub(crate) Vec<Arc<Accesses>>);

impl ConflictDetail {
    /// A transaction begins with these statements.
    pub(crate) fn begin(&mut self, analysis: &StatementAnalysis) {
        self.forget();
        self.add(analysis);
    }

    /// The transaction goes on with these statements.
    pub(crate) fn add(&mut self, analysis: &StatementAnalysis) {
        if let Some(touched) = &analysis.touched {
            self.0.truncate(STATEMENTS_MAX - 1);
            self.0.push(Arc::clone(touched));
        }
    }

    pub(crate) fn forget(&mut self) {
        self.0.clear();
    }

    /// The keys that the last statement has named.
    pub(crate) fn last(&self) -> Option<Arc<Accesses>> {
        self.0.last().cloned()
    }
}

/// The columns and values of a key, if one of these accesses has named it.
pub(crate) fn key_of<'a>(
    meeting: Meeting,
    mut among: impl Iterator<Item = &'a Arc<Accesses>>,
    catalogue: &Catalogue,
) -> Option<String> {
    let table = catalogue.table(meeting.table)?;
    among.find_map(|touched| named(touched, table, meeting.row?))
}

pub(crate) fn was_first(place: Option<String>, rival: Rival) -> Option<String> {
    let who = match (rival.session, rival.version) {
        (None, None) if place.is_none() => return None,
        (None, _) => "another transaction".to_owned(),
        (Some(session), _) => format!("session {session}"),
    };
    let version = rival.version.map_or_else(String::new, |version| format!(", with version {version}"));
    Some(match place {
        Some(place) => format!("{} was taken first by {who}{version}.", with_capital(&place)),
        None => format!("{} was first{version}.", with_capital(&who)),
    })
}

pub(crate) fn is_held(place: Option<String>, rival: Option<SessionId>) -> Option<String> {
    let place = with_capital(&place?);
    let rival = rival.map_or_else(|| "another one".to_owned(), |session| format!("session {session}"));
    Some(format!("{place} is held by {rival}, or {rival} waits for it before this transaction."))
}

pub(crate) fn waited(place: Option<String>, rival: Option<SessionId>) -> Option<String> {
    let place = place?;
    let rival = rival.map_or_else(|| "another one".to_owned(), |session| format!("session {session}"));
    Some(format!("This transaction waited for {place}, and {rival} waited for this transaction."))
}

/// Adds a DETAIL to the first error after a position in the output, if that error has none.
pub(crate) fn add_detail(out: &mut Vec<u8>, mark: usize, detail: &str) {
    let mut at = mark;
    while let Some(Ok(Some(found))) = out.get(at..).map(frame::next_frame) {
        let (is_error, size) = (found.tag == tag::ERROR_RESPONSE, found.bytes.len());
        if is_error && Fields::new(found.body()).get(b'D').is_none() {
            let field = [b"D", detail.as_bytes(), &[0]].concat();
            // The last byte of the error ends its fields.
            out.splice(at + size - 1..at + size - 1, field.iter().copied());
            let length = u32::try_from(size - 1 + field.len()).unwrap_or(u32::MAX);
            out[at + 1..at + frame::HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
        }
        if is_error {
            return;
        }
        at += size;
    }
}

pub(crate) fn with_capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use cluster::ids::Version;
    use wire::encode;

    use super::*;

    #[test]
    fn as_much_is_told_as_is_known() {
        let key = || Some("key (id)=(7) of table \"t\"".to_owned());
        let rival = |version, session| Rival { meeting: None, version, session };
        let (version, session) = (Some(Version(5)), Some(SessionId(3)));
        let told = |place, rival| was_first(place, rival).unwrap_or_default();
        assert_eq!(
            told(key(), rival(version, session)),
            "Key (id)=(7) of table \"t\" was taken first by session 3, with version 5."
        );
        assert_eq!(
            told(key(), rival(version, None)),
            "Key (id)=(7) of table \"t\" was taken first by another transaction, with version 5."
        );
        assert_eq!(told(None, rival(version, None)), "Another transaction was first, with version 5.");
        assert_eq!(told(None, rival(None, None)), "");
        assert_eq!(waited(None, session), None);
    }

    #[test]
    fn a_detail_is_added_to_an_error_of_a_server() {
        let mut out = b"before".to_vec();
        let mark = out.len();
        encode::command_complete(&mut out, "UPDATE 1");
        encode::error(&mut out, "ERROR", "40001", "lost", None);
        encode::bare(&mut out, tag::NO_DATA);
        for _ in 0..2 {
            add_detail(&mut out, mark, "key (id)=(7)");
        }
        let mut wanted = b"before".to_vec();
        encode::command_complete(&mut wanted, "UPDATE 1");
        let more = (Some("key (id)=(7)"), None);
        let at = wanted.len();
        encode::error_in_detail(&mut wanted, "ERROR", "40001", "lost", more);
        encode::bare(&mut wanted, tag::NO_DATA);
        assert_eq!(out.len(), wanted.len());
        let found = frame::next_frame(&out[at..]).unwrap().unwrap();
        let fields = Fields::new(found.body());
        assert_eq!((fields.get(b'M'), fields.get(b'D')), (Some(&b"lost"[..]), Some(&b"key (id)=(7)"[..])));
        assert_eq!(out[at + found.bytes.len()..], wanted[at + found.bytes.len()..]);
        add_detail(&mut b"E\0\0".to_vec(), 0, "cut off");
    }
}
