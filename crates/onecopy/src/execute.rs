//! Stage *execute*: runs a statement where its transaction is.
//!
//! [`statement`] begins transactions and runs statements inside them, [`autocommit`] runs a transaction that is one
//! statement, [`transparent_retry`] undoes and repeats a statement before its client has seen anything of it. Statements
//! with ways of their own: [`ddl`], [`passwords`], [`explain_routing`].

pub(crate) mod autocommit;
pub(crate) mod ddl;
pub(crate) mod explain_routing;
pub(crate) mod passwords;
pub(crate) mod statement;
pub(crate) mod transparent_retry;
