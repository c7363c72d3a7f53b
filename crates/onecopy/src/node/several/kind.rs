//! The kinds of node that there can be several of: those that propagate rows, and those that ship numbered statements.

use std::sync::Arc;

use cluster::Cluster;
use cluster::ids::{ReplicaId, Version};
use cluster::placement::Placement;
use tokio::task::JoinHandle;

use super::settings::Settings;
use crate::config::log::LogPlaceError;
use crate::config::protocol::Propagation;
use crate::coordinator::Coordinator;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::plan::Term;
use crate::link::node_kind::ServesClients;
use crate::node::NodeError;
use crate::rows::Rows;
use crate::shipping::{ShippingOfSeveral, ShippingOptions};

/// The kind of one of several nodes.
#[derive(Clone)]
pub(super) enum SeveralKind {
    Rows(Arc<Rows>),
    Statements(Arc<ShippingOfSeveral>),
}

/// What a term begins with.
pub(super) struct Beginning<'a> {
    pub(super) members: &'a [ReplicaId],
    pub(super) anchor: ReplicaId,
    pub(super) placement: Placement,
    pub(super) term: Term,
    /// No later version may have changed the schema.
    pub(super) schema: Version,
}

impl SeveralKind {
    pub(super) fn of(settings: &Settings) -> Result<Self, NodeError> {
        match &settings.propagation {
            Propagation::Rows(choices) => {
                let rows = Rows::from_environment(*choices, settings.new_tables.clone())?;
                Ok(Self::Rows(Arc::new(rows)))
            }
            Propagation::Statements(choices) => {
                let options = ShippingOptions::new(settings.limits.pooling.is_shared, *choices);
                let options = options.map_err(OpenError::kind)?;
                Ok(Self::Statements(Arc::new(ShippingOfSeveral::new(options))))
            }
            Propagation::CJdbc(_) => Err(NodeError::LogPlace(LogPlaceError::Protocol)),
        }
    }

    /// The same, for sessions.
    pub(super) fn serves(&self) -> Arc<dyn ServesClients> {
        match self {
            Self::Rows(rows) => Arc::clone(rows) as Arc<_>,
            Self::Statements(shipping) => Arc::clone(shipping) as Arc<_>,
        }
    }

    /// The sessions of this process have this in common. Returns the task that serves them, if there is one.
    pub(super) fn attach(&self, coordinator: &Arc<Coordinator>) -> Option<JoinHandle<()>> {
        match self {
            Self::Rows(_) => None,
            Self::Statements(shipping) => Some(shipping.attach(coordinator)),
        }
    }

    /// A term of this node begins. Returns its core, if this kind of node has one.
    pub(super) fn begin(&self, beginning: Beginning<'_>) -> Result<Option<Cluster>, OpenError> {
        let Beginning { members, anchor, placement, term, schema } = beginning;
        match self {
            Self::Rows(rows) => rows.core(members, anchor, placement, term, schema).map(Some),
            Self::Statements(shipping) => {
                shipping.begin(members, term).map_err(OpenError::kind)?;
                Ok(None)
            }
        }
    }

    /// A term of this node is over.
    pub(super) fn end(&self) {
        if let Self::Statements(shipping) = self {
            shipping.end();
        }
    }
}
