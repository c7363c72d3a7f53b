//! The nodes whose sessions the scheduler of a term serves over links, and the schema that they have to know.
//!
//! Locks are chosen by the catalogue of a node. So after a change of the schema, a transaction begins only by a catalogue that has it,
//! and the change is acknowledged when every node has it.

use std::collections::BTreeMap;

use cluster::ids::{CrewId, Epoch};

use super::crew_statements::CrewStatements;
use crate::coordinator::scheduler_messages::ToCrew;

/// The lower bits of a generation count the changes of one term, and the term is above them. So a node's catalogue, which only takes
/// later generations, takes the first one of any later term, however many changes a term has announced that were rolled back.
const CHANGES_BITS: u32 = 32;

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
    /// The statements that they have.
    pub(crate) statements: CrewStatements,
    /// What is to be said to them as soon as the present change is made.
    pub(crate) mail: Vec<(CrewId, ToCrew)>,
    /// The generation of the schema that each has.
    crews: BTreeMap<CrewId, u64>,
    schema: Schema,
    /// The generation that was told to be known by all.
    known: u64,
}

impl LinkedCrews {
    /// Crews will join in this term.
    pub(crate) fn begin(&mut self, epoch: Epoch) {
        self.schema = Schema::Known(u64::from(epoch.0) << CHANGES_BITS);
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

    /// A crew has the schema of this generation.
    pub(crate) fn note_known_schema(&mut self, crew: CrewId, generation: u64) {
        if let Some(known) = self.crews.get_mut(&crew) {
            *known = generation.max(*known);
        }
        self.tell_known_schema();
    }

    /// Tells all crews what all of them have, if that is more than before.
    pub(crate) fn tell_known_schema(&mut self) {
        let generation = self.crews.values().copied().min().unwrap_or_default();
        if generation > self.known {
            self.known = generation;
            self.tell_all(|| ToCrew::SchemaKnown { generation });
        }
    }

    /// Tells all crews.
    pub(crate) fn tell_all(&mut self, message: impl Fn() -> ToCrew) {
        self.mail.extend(self.crews.keys().map(|crew| (*crew, message())));
    }

    /// Every replica has the change of the schema, so the nodes read it. `false` if there was none.
    pub(crate) fn finish_change(&mut self) -> bool {
        let Schema::Changing(before) = self.schema else { return false };
        let generation = before + 1;
        self.schema = Schema::Known(generation);
        self.tell_all(|| ToCrew::Schema { generation });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_term_has_later_generations() {
        let mut crews = LinkedCrews::default();
        crews.begin(Epoch(4));
        for _ in 0..1_000 {
            crews.change_schema();
            assert!(crews.finish_change());
        }
        let mut next = LinkedCrews::default();
        next.begin(Epoch(5));
        assert!(next.generation() > crews.generation());
    }
}
