//! What the configuration says of one of several nodes.

use std::path::PathBuf;
use std::time::Duration;

use crate::backend::Served;
use crate::config::log::{EtcdPlace, PeersPlace};
use crate::config::placement::PlacementRules;
use crate::config::protocol::Propagation;
use crate::config::{ElasticConfig, Replica};
use crate::local::limits::Limits;

/// What the configuration says of one of several nodes.
pub(in crate::node) struct Settings {
    pub(in crate::node) folder: PathBuf,
    pub(in crate::node) served: Served,
    pub(in crate::node) replicas: Vec<Replica>,
    pub(in crate::node) start_patience: Duration,
    pub(in crate::node) place: EtcdPlace,
    pub(in crate::node) peers: PeersPlace,
    pub(in crate::node) propagation: Propagation,
    pub(in crate::node) new_tables: PlacementRules,
    pub(in crate::node) elastic: ElasticConfig,
    pub(in crate::node) limits: Limits,
}
