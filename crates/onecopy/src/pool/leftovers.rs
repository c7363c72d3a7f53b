//! State that a session may have left on its connections, which only the server knows: the parts of the next question to
//! the server ([`crate::connect::leftovers`]).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use cluster::ids::Version;
use sql::Statement;

use crate::local::pins::Pins;

/// The most statements that are analysed again.
const CODE_MAX: usize = 100;

/// The parts of the next question beyond those of every question.
#[derive(Debug, Default)]
pub(crate) struct Inquiry {
    /// Custom settings whose value is not known.
    pub(crate) names: BTreeSet<String>,
    /// Code of users ran that may have set any of them.
    pub(crate) hides: bool,
    /// Statements that may have run such code, or were analysed with an old catalogue.
    pub(crate) code: Vec<Arc<Statement>>,
    /// Reasons to keep the connection, whatever the server reports.
    pub(crate) forced: Pins,
}

impl Inquiry {
    pub(crate) fn take_code(&mut self, code: &[Arc<Statement>]) {
        self.hides |= self.code.len() + code.len() > CODE_MAX;
        if !self.hides {
            self.code.extend(code.iter().map(Arc::clone));
        }
    }
}

/// Whether the database has functions that could change settings without a report, and as of which schema change.
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
