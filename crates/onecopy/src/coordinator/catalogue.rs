//! The catalogue that classifies statements, and whether it may be out of date.

use std::sync::Arc;
use std::time::Duration;

use cluster::event::Event;
use cluster::ids::Version;
use sql::Catalogue;

use super::Coordinator;

impl Coordinator {
    /// The catalogue, once it reflects every schema change that is durable now; `None` if that takes too long.
    pub(crate) async fn fresh_catalogue(&self) -> Option<Arc<Catalogue>> {
        const PAUSE: Duration = Duration::from_millis(2);
        const PAUSES_MAX: u32 = 15_000;
        for _ in 0..PAUSES_MAX {
            let catalogue = self.database.catalogue();
            if !self.view.is_outdated(Version(catalogue.generation())) {
                return Some(catalogue);
            }
            tokio::time::sleep(PAUSE).await;
        }
        None
    }

    /// Takes a catalogue, which reflects all DDL up to its generation, unless there is a newer one.
    pub(crate) fn set_catalogue(&self, catalogue: Catalogue) {
        let version = Version(catalogue.generation());
        self.database.take_catalogue(catalogue);
        // The present one reflects all that this one does.
        self.core.tell(Event::CatalogueLoaded { version });
    }
}
