//! Stage *execute*: runs statements.
//!
//! [`statement`] begins transactions and runs statements inside them. [`autocommit`] runs a transaction that is one
//! statement; [`staying`] is its short way for reads. [`transparent_retry`] rolls a statement back and retries it before its client has seen any of its reply.
//! These files handle special statements: [`ddl`], [`maintenance`], [`passwords`], [`explain_routing`].

pub(crate) mod anchor;
pub(crate) mod autocommit;
pub(crate) mod ddl;
pub(crate) mod explain_routing;
pub(crate) mod keeping;
pub(crate) mod maintenance;
mod maintenance_error;
pub(crate) mod passwords;
pub(crate) mod read_first;
pub(crate) mod statement;
pub(crate) mod staying;
pub(crate) mod transparent_retry;

use crate::commit::Committer;
use crate::connect::Connector;
use crate::drive::Driver;
use crate::place::Placer;
use crate::propagate::Recorder;
use crate::transaction::stage::stage;

stage! {
    /// Runs statements, in the open transaction or in one of their own.
    Executor calls { connector: Connector, driver: Driver, recorder: Recorder, committer: Committer, placer: Placer }
}
