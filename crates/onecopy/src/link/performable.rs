//! The transactions of this thread's sessions that other replicas may perform, with all that it takes to execute them there.
//!
//! Example: a session of role `joe` with `work_mem = '1GB'` is about to begin `UPDATE account SET .. WHERE id = 7`. Until that
//! transaction is over, its messages, the settings, and the proof of joe's password are here.
//!
//! Invariant: what is here belongs to one nonce, which the core gives back in the identity. So an execution that begins late never takes
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
pub(crate) struct Performable {
    /// The isolation inside the server.
    pub(crate) isolation: Isolation,
    /// Its only statement.
    pub(crate) work: OwnedWork,
    pub(crate) settings: Settings,
    pub(crate) secret: Secret,
}

/// One that is open or about to begin.
#[derive(Debug)]
struct Prepared {
    /// Not known yet of one that is about to begin.
    nonce: Option<Nonce>,
    performable: Rc<Performable>,
}

/// The transactions that are open or about to begin, by session.
#[derive(Debug, Default)]
pub(crate) struct Performables {
    all: RefCell<BTreeMap<SessionId, Prepared>>,
}

impl Performables {
    /// The session is about to begin a transaction.
    pub(crate) fn prepare(&self, session: SessionId, performable: Performable) {
        let prepared = Prepared { nonce: None, performable: Rc::new(performable) };
        self.all.borrow_mut().insert(session, prepared);
    }

    /// The session begins its transaction, perhaps not for the first time.
    pub(crate) fn begin(&self, session: SessionId, begun: Nonce) {
        if let Some(prepared) = self.all.borrow_mut().get_mut(&session) {
            prepared.nonce = Some(begun);
        }
    }

    /// Whether the session's transaction can be performed elsewhere.
    pub(crate) fn has(&self, session: SessionId) -> bool {
        self.all.borrow().contains_key(&session)
    }

    /// The session's transaction is over.
    pub(crate) fn remove(&self, session: SessionId) {
        self.all.borrow_mut().remove(&session);
    }

    /// A transaction, if it is open.
    pub(crate) fn of(&self, session: SessionId, identity: Identity) -> Option<Rc<Performable>> {
        let all = self.all.borrow();
        let Prepared { nonce, performable } = all.get(&session)?;
        (*nonce == Some(identity.nonce)).then(|| Rc::clone(performable))
    }
}
