//! The catalogue that statements are classified with, and whether it may be out of date.

use std::sync::Arc;
use std::time::Duration;

use cluster::Cluster;
use cluster::event::Event;
use cluster::ids::{DatabaseId, Version};
use sql::Catalogue;

use super::Coordinator;

impl Coordinator {
    /// Whether a conclusion from a catalogue of this generation may be out of date. Rows that were written after a schema
    /// change are captured after it is durable, so for them the answer is exact.
    pub(crate) fn is_outdated(&self, generation: Version) -> bool {
        generation < self.last_ddl()
    }

    /// Whether a schema change after this version may have defined anew what is mentioned in a database.
    pub(crate) fn redefines(&self, since: Version, database: DatabaseId, mentioned: &[u64]) -> bool {
        self.core(|core| core.redefines(since, database, mentioned))
    }

    /// Whether a schema change after this version may have taken back what replicas were lent of sequences.
    pub(crate) fn voids_lent(&self, since: Version) -> bool {
        self.core(|core| core.voids_lent(since))
    }

    /// The last durable version that may have changed the schema.
    pub(crate) fn last_ddl(&self) -> Version {
        self.core(Cluster::last_ddl)
    }

    /// The catalogue, once it reflects every schema change that is durable now; none if that takes too long.
    pub(crate) async fn fresh_catalogue(&self) -> Option<Arc<Catalogue>> {
        const PAUSE: Duration = Duration::from_millis(2);
        const PAUSES_MAX: u32 = 15_000;
        for _ in 0..PAUSES_MAX {
            let catalogue = self.database.catalogue();
            if !self.is_outdated(Version(catalogue.generation())) {
                return Some(catalogue);
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// Takes a newer catalogue, which reflects all DDL up to its generation.
    pub(crate) fn set_catalogue(&self, catalogue: Catalogue) {
        let version = Version(catalogue.generation());
        if self.database.take_catalogue(catalogue) {
            self.handle(Event::CatalogueLoaded { version });
        }
    }
}
