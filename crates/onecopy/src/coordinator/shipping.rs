//! What the rest of a node asks of the scheduler that ships statements, where it has one instead of capturing rows.

use std::any::Any;
use std::pin::Pin;

use cluster::ids::{SessionId, Version};

/// The scheduler of a node that ships statements.
pub(crate) trait ShipsStatements: Any + Send + Sync {
    /// Begins nothing more, and waits until nothing is under way; the version that all replicas have then.
    fn hold(&self, session: SessionId) -> Pin<Box<dyn Future<Output = Version> + Send + '_>>;

    /// Ends what `hold` began.
    fn give_everything_back(&self, session: SessionId);
}
