//! The transactions of this thread's sessions that other replicas may perform, with all that it takes to execute them there.
//!
//! Example: a session of role `joe` with `work_mem = '1GB'` is about to begin `UPDATE account SET .. WHERE id = 7`. Its script has the
//! messages of the statement, the settings, and the proof of joe's password, as long as the transaction is open.
//!
//! Invariant: a script belongs to one nonce, which the core gives back in the identity. So an execution that begins late never takes
//! the next transaction of its session for its own.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::ids::{Identity, Nonce, SessionId};
use sql::Isolation;

use crate::client::settings::Settings;
use crate::relay::work::OwnedWork;
use crate::security::scram::Secret;

/// A transaction as another replica executes it.
#[derive(Debug)]
pub(crate) struct Script {
    /// The isolation inside the server.
    pub(crate) isolation: Isolation,
    /// Its only statement.
    pub(crate) work: OwnedWork,
    pub(crate) settings: Settings,
    pub(crate) secret: Secret,
}

/// The scripts of the open transactions, by session.
#[derive(Debug, Default)]
pub(crate) struct Scripts {
    all: RefCell<BTreeMap<SessionId, (Nonce, Rc<Script>)>>,
}

impl Scripts {
    /// The session is about to begin a transaction with this nonce.
    pub(crate) fn add(&self, session: SessionId, nonce: Nonce, script: &Rc<Script>) {
        self.all.borrow_mut().insert(session, (nonce, Rc::clone(script)));
    }

    /// The session's transaction is over.
    pub(crate) fn remove(&self, session: SessionId) {
        self.all.borrow_mut().remove(&session);
    }

    /// The script of a transaction, if it is open.
    pub(crate) fn of(&self, session: SessionId, identity: Identity) -> Option<Rc<Script>> {
        let all = self.all.borrow();
        let (nonce, script) = all.get(&session)?;
        (*nonce == identity.nonce).then(|| Rc::clone(script))
    }
}
