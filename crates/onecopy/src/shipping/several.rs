//! Statements shipped by several nodes: the scheduler is at the leader, the sessions and what runs for them at each node.
//!
//! ```text
//! session -> RemoteScheduler --link--> Shipping: scheduler, proxies, log
//!    lanes  <------------------------------'
//! ```
//!
//! The paper replicates the scheduler's state by messages (section 5); the other schedulers take over from their records. Here the log on
//! etcd is that record: a decision is in it before any replica is told to commit, and so before anyone hears of it. So a new leader
//! begins with what the log has, every replica is rolled forward from it, and numbers begin anew in the new term. What was open ends,
//! and a commit under way gets its true outcome. Gained: one round of messages less for each beginning and each end. Lost:
//! transactions that are open at a living node do not outlive the leader, which the paper's do.
//!
//! | file | holds |
//! |---|---|
//! | `crews`, `linked_crews`, `crew_statements` | the scheduler's end |
//! | `remote`, `remote_state`, `remote_slots`, `link_lanes` | the sessions' end |
//! | `catalogue` | each node reads the schema when it has changed |
//! | `kind` | a node of this kind, and what the rest of the node asks of it |

mod catalogue;
pub(crate) mod crew_statements;
mod crews;
mod kind;
mod link_lanes;
pub(crate) mod linked_crews;
mod remote;
mod remote_slots;
mod remote_state;

pub(crate) use kind::ShippingOfSeveral;
