//! What a session may have left on its connections, and does not know: what the next question to the server has to ask
//! ([`crate::connect::leftovers`]).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::ids::Version;
use sql::Statement;

use super::pins::Pins;

/// Statements that are analysed again, at most.
const CODE_MAX: usize = 100;

/// What the next question has to ask beyond what every one asks.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Settings of the client's own that are set to what we did not see.
    pub(crate) names: BTreeSet<String>,
    /// Code of users ran that may have set any.
    pub(crate) hides: bool,
    /// Statements that may have run such code, unless the catalogue was only out of date.
    pub(crate) code: Vec<Arc<Statement>>,
    /// Why the session keeps its connection whatever the server says.
    pub(crate) forced: Pins,
}

impl Look {
    /// DISCARD ALL: all that was is gone.
    pub(crate) fn forget(&mut self) {
        (self.hides, self.forced) = (false, Pins::default());
        self.code.clear();
        self.names.clear();
    }

    pub(crate) fn take_code(&mut self, code: &[Arc<Statement>]) {
        self.hides |= self.code.len() + code.len() > CODE_MAX;
        if !self.hides {
            self.code.extend(code.iter().map(Arc::clone));
        }
    }
}

/// Whether the database has code that could set what no server tells, and as of which schema change that is known.
#[derive(Debug, Default)]
pub(crate) struct HidingCode(Mutex<Option<(Version, bool)>>);

impl HidingCode {
    pub(crate) fn known(&self, last_ddl: Version) -> Option<bool> {
        let known = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.filter(|(version, _)| *version == last_ddl).map(|(_, is_there)| is_there)
    }

    pub(crate) fn note(&self, last_ddl: Version, is_there: bool) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some((last_ddl, is_there));
    }
}
