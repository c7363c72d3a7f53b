//! Replaces object ids of the answering server in descriptions by those of the anchor ([`crate::database::oid_map`]).

use wire::oids::{self, Kind};
use wire::{frame, sqlstate};

use super::Relay;
use crate::error::{Fault, Refusal};

impl Relay<'_> {
    /// Replaces the ids in the description after the run. If some are unknown, returns them and changes nothing.
    pub(crate) fn rename(&mut self, tag: u8, total: usize) -> Result<Vec<(Kind, u32)>, Fault> {
        let Some(names) = &self.server.oids.names else { return Ok(Vec::new()) };
        let malformed = |_| Fault::Lost(self.server.replica);
        let body = &mut self.server.connection.input.data_mut()[self.run..self.run + total];
        let body = &mut body[frame::HEADER_BYTES..];
        let canonical = |kind, oid| match names.pairs.canonical(kind, oid) {
            None if self.nameless.contains(&(kind, oid)) => Some(0),
            found => found,
        };
        let mut unknown = Vec::new();
        oids::visit(tag, body, |kind, oid| {
            if canonical(kind, oid).is_none() {
                unknown.push((kind, oid));
            }
            oid
        })
        .map_err(malformed)?;
        if unknown.is_empty() {
            oids::visit(tag, body, |kind, oid| canonical(kind, oid).unwrap_or(oid)).map_err(malformed)?;
        }
        Ok(unknown)
    }

    /// Asks the servers for canonical ids. A column of a relation that stays unknown counts as computed.
    pub(crate) async fn learn(&mut self, wanted: Vec<(Kind, u32)>) -> Result<(), Fault> {
        let lost = Fault::Lost(self.server.replica);
        let Some(names) = &mut self.server.oids.names else { return Err(lost) };
        let Ok(found) = names.source.learn(&wanted).await else { return Err(lost) };
        names.pairs = names.source.pairs();
        if found {
            return Ok(());
        }
        if let Some((_, oid)) = wanted.iter().find(|(kind, _)| *kind == Kind::Type) {
            return Err(Fault::Refused(Refusal::plain(
                sqlstate::INTERNAL_ERROR,
                format!("type {oid} of replica {} is not known at the anchor", self.server.replica.0 + 1),
            )));
        }
        self.nameless = wanted;
        Ok(())
    }
}
