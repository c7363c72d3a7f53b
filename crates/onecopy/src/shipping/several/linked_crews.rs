//! The nodes whose sessions the scheduler of a term serves over links, and the schema that they have to know.
//!
//! Locks are chosen by the catalogue of a node. So after a change of the schema, a transaction begins only by a catalogue that has it,
//! and the change is acknowledged when every node has it.

use std::collections::BTreeMap;

use cluster::ids::CrewId;

use super::messages::ToCrew;
use crate::shipping::state::SchedulerState;

/// Where the schema of the cluster is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Schema {
    /// The node is alone, and its catalogue says it.
    #[default]
    InCatalogue,
    /// Catalogues of this generation have it.
    Known(u64),
    /// A session has changed it, but not every replica has ended that transaction. The generation was this one.
    Changing(u64),
}

/// The crews of a scheduler.
#[derive(Debug, Default)]
pub(crate) struct LinkedCrews {
    /// The generation of the schema that each has.
    crews: BTreeMap<CrewId, u64>,
    schema: Schema,
    /// The generation that was told to be known by all.
    known: u64,
}

impl LinkedCrews {
    /// Crews will join, and know the schema by this generation at first.
    pub(crate) fn begin(&mut self, generation: u64) {
        self.schema = Schema::Known(generation);
    }

    /// The generation of catalogues that have the present schema; `None` if the node is alone.
    pub(crate) fn generation(&self) -> Option<u64> {
        match self.schema {
            Schema::InCatalogue => None,
            Schema::Known(generation) | Schema::Changing(generation) => Some(generation),
        }
    }

    pub(crate) fn is_changing_schema(&self) -> bool {
        matches!(self.schema, Schema::Changing(_))
    }

    /// A session has changed the schema.
    pub(crate) fn change_schema(&mut self) {
        if let Schema::Known(generation) = self.schema {
            self.schema = Schema::Changing(generation);
        }
    }

    pub(crate) fn join(&mut self, crew: CrewId) {
        self.crews.insert(crew, 0);
    }

    pub(crate) fn leave(&mut self, crew: CrewId) {
        self.crews.remove(&crew);
    }
}

impl SchedulerState {
    /// A crew has the schema of this generation.
    pub(in crate::shipping) fn note_known_schema(&mut self, crew: CrewId, generation: u64) {
        if let Some(known) = self.crews.crews.get_mut(&crew) {
            *known = generation.max(*known);
        }
        self.tell_known_schema();
    }

    /// Tells all crews what all of them have, if that is more than before.
    pub(in crate::shipping) fn tell_known_schema(&mut self) {
        let generation = self.crews.crews.values().copied().min().unwrap_or_default();
        if generation > self.crews.known {
            self.crews.known = generation;
            self.tell_crews(|| ToCrew::SchemaKnown { generation });
        }
    }

    /// Tells all crews.
    pub(in crate::shipping) fn tell_crews(&mut self, message: impl Fn() -> ToCrew) {
        self.mail.extend(self.crews.crews.keys().map(|crew| (*crew, message())));
    }

    /// Once every replica has a change of the schema, the nodes read it, and others may begin transactions again.
    pub(in crate::shipping) fn tell_new_schema(&mut self) {
        if let Schema::Changing(before) = self.crews.schema
            && self.is_idle()
        {
            let generation = before + 1;
            self.crews.schema = Schema::Known(generation);
            self.exclusive = None;
            self.tell_crews(|| ToCrew::Schema { generation });
        }
    }
}
