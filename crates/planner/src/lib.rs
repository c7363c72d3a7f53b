//! Which groups of columns of an application can live on servers of their own: its *data services*.
//!
//! The method is that of Zhou Wei et al., "Service-oriented data denormalization for scalable web applications" (WWW
//! 2008), sections 3 and 4. [`plan`] takes an [`Application`] and goes four steps, each a module:
//!
//! 1. `clusters`: what a transaction, an atomic set or a single statement must find in one place stays together (4.1);
//! 2. `read_only`: columns that nothing updates are split by the reads that use them (4.3.1);
//! 3. `reads`: a read over several services is rewritten, or gets copies of columns, or merges them (4.2);
//! 4. `hosting`: each service is replicated, or partitioned by a key with shares of what is counted down (5).
//!
//! Example: `UPDATE item SET i_stock = i_stock - $2 WHERE i_id = $1` in a transaction with orders, and `UPDATE item SET
//! i_cost = $2 WHERE i_id = $1` alone, make two services: `item(i_id, i_stock)` lives with `orders`, `item(i_id, i_cost)`
//! elsewhere.
//!
//! Invariants: no transaction spans two services, every column of every table is in one, and the same application gives
//! the same plan, in whatever order its parts are given. Non-goals: moving data, and hosting the services.

mod application;
mod blame;
mod boundaries_file;
mod builtin;
mod clusters;
mod column;
mod decision;
mod draft;
mod expectation;
mod hosting;
mod layout;
mod picture;
mod plan;
mod read_only;
mod reads;
mod report;
mod rewrite;
mod services_file;
mod settle;
mod step_text;
mod transactions_file;

pub use application::{Application, ApplicationError, Query, Unit, UnitKind};
pub use blame::{Blame, Culprit};
pub use boundaries_file::{Boundaries, BoundariesError, Texts};
pub use builtin::{BUILTIN, Builtin, builtin};
pub use clusters::{Graph, Joint, Reason};
pub use column::{Column, Group};
pub use expectation::{Comparison, Expectation};
pub use hosting::{Hosting, Partitioned};
pub use picture::picture;
pub use plan::{Plan, Service, plan};
pub use reads::{Answer, Copy, Merge};
pub use report::report;
pub use rewrite::{Feed, Rewritten, Step, Unsplit};
pub use services_file::{rewritten_file, services_file};
pub use transactions_file::{Interaction, Malformed, Sent, Transactions};
