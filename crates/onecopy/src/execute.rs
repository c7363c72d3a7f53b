//! Stage *execute*: runs a statement where its transaction is.
//!
//! [`statement`] begins transactions and runs statements inside them, [`autocommit`] runs a transaction that is one
//! statement, [`transparent_retry`] undoes and repeats a statement before its client has seen anything of it. Statements
//! with ways of their own: [`ddl`], [`passwords`], [`explain_routing`].

pub(crate) mod anchor;
pub(crate) mod autocommit;
pub(crate) mod ddl;
pub(crate) mod explain_routing;
pub(crate) mod passwords;
pub(crate) mod read_first;
pub(crate) mod statement;
pub(crate) mod transparent_retry;

use crate::commit::Committer;
use crate::connect::Connector;
use crate::drive::Driver;
use crate::link::Link;
use crate::place::Placer;
use crate::propagate::Recorder;
use crate::transaction::open::OpenTransaction;
use crate::transaction::view::View;

/// Runs statements where the open transaction is.
pub(crate) struct Executor<'a> {
    pub(crate) link: &'a mut Link,
    pub(crate) txn: &'a mut OpenTransaction,
}

impl Executor<'_> {
    pub(crate) fn view(&self) -> View<'_> {
        View { link: self.link, txn: self.txn }
    }

    pub(crate) fn connector(&mut self) -> Connector<'_> {
        Connector { link: self.link, txn: self.txn }
    }

    pub(crate) fn driver(&mut self) -> Driver<'_> {
        Driver { link: self.link, txn: self.txn }
    }

    pub(crate) fn recorder(&mut self) -> Recorder<'_> {
        Recorder { link: self.link, txn: self.txn }
    }

    pub(crate) fn committer(&mut self) -> Committer<'_> {
        Committer { link: self.link, txn: self.txn }
    }

    pub(crate) fn placer(&mut self) -> Placer<'_> {
        Placer { link: self.link, txn: self.txn }
    }
}
