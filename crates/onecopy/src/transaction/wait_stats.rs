//! How an update transaction away from the anchor divides its time between waiting for other homes and work.
//!
//! See `learned/strains.rs` for what is concluded from it. The client's own time counts for neither.

use std::time::Duration;

use cluster::event::Home;
use cluster::ids::ReplicaId;
use sql::TemplateId;
use tokio::time::Instant;

use super::reasons::Reason;
use crate::session::Session;

/// Of the transaction that is open, or of the last one.
#[derive(Debug, Default)]
pub(crate) struct Strain {
    /// With what it begins; none where nothing is to be learned from it.
    template: Option<TemplateId>,
    /// Who was the anchor when it began: who waited for another one to take its place says nothing about homes.
    anchor: ReplicaId,
    waited: Duration,
    worked: Duration,
}

impl Strain {
    /// It has waited for its place since then.
    pub(crate) fn waited(&mut self, since: Instant) {
        self.waited += since.elapsed();
    }

    /// A server has worked for it since then.
    pub(crate) fn worked(&mut self, since: Instant) {
        self.worked += since.elapsed();
    }
}

impl Session {
    /// An update transaction begins.
    pub(crate) fn begin_strain(&mut self, template: Option<TemplateId>) {
        self.strain = Strain { template, anchor: self.anchor(), ..Strain::default() };
    }

    /// The home that was wished for, or the anchor if that has turned out to be better.
    pub(crate) fn eased(&self, home: Home, template: Option<TemplateId>) -> (Home, Reason) {
        if template.is_some_and(|template| self.hub().learned.stays(template)) {
            (Home::Anchor, Reason::Waits)
        } else {
            (home, Reason::Chosen)
        }
    }

    /// The update transaction has ended, well or not.
    pub(crate) fn note_strain(&mut self) {
        let Strain { template, anchor, waited, worked } = std::mem::take(&mut self.strain);
        if anchor == self.anchor()
            && self.last_home != anchor
            && let Some(template) = template
        {
            self.hub().learned.note_strain(template, waited, worked);
        }
    }
}
