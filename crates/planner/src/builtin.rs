//! The applications of the paper, whose files are linked in.

use crate::boundaries_file::Texts;

/// An application whose files are linked in.
#[derive(Clone, Copy, Debug)]
pub struct Builtin {
    /// Its name.
    pub name: &'static str,
    schema: &'static str,
    transactions: &'static str,
    application: &'static str,
    /// The boundaries that the paper draws.
    boundaries: &'static str,
    /// What the paper finds.
    pub expectation: &'static str,
}

macro_rules! builtin {
    ($name:literal) => {
        Builtin {
            name: $name,
            schema: include_str!(concat!("../../testbed/workloads/", $name, "/schema.sql")),
            transactions: include_str!(concat!("../../testbed/workloads/", $name, "/transactions.sql")),
            application: include_str!(concat!("../../testbed/workloads/", $name, "/application.toml")),
            boundaries: include_str!(concat!("../../testbed/workloads/", $name, "/boundaries-paper.toml")),
            expectation: include_str!(concat!("../../testbed/workloads/", $name, "/services-paper.toml")),
        }
    };
}

/// The applications of the paper.
pub const BUILTIN: [Builtin; 3] = [builtin!("tpcw"), builtin!("rubis"), builtin!("rubbos")];

/// The application of this name.
pub fn builtin(name: &str) -> Option<&'static Builtin> {
    BUILTIN.iter().find(|builtin| builtin.name == name)
}

impl Builtin {
    /// Its files, with the paper's boundaries or with its own.
    pub fn texts(&self, boundaries_of_paper: bool) -> Texts {
        Texts {
            schema: self.schema.to_owned(),
            transactions: self.transactions.to_owned(),
            application: Some(self.application.to_owned()),
            boundaries: boundaries_of_paper.then(|| self.boundaries.to_owned()),
        }
    }
}
