//! A client's statement as it travels where statements travel instead of rows (conflict-aware scheduling, section 5.3).

use serde::{Deserialize, Serialize};

use crate::placement::ReplicaSet;

/// A statement that has the same effect wherever it runs, with all that its meaning depends on.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Shipped {
    /// The role that runs it.
    pub role: String,
    /// Statements that put the settings into force on which its meaning depends.
    pub settings: String,
    /// The text, with everything that could differ between replicas made constant.
    pub text: Vec<u8>,
    /// It came by the extended protocol, so that there may be parameters.
    pub is_extended: bool,
    /// The declared types of parameters, as in a Parse message; types of users are not among them.
    pub types: Vec<u8>,
    /// The formats and values of parameters, as in a Bind message.
    pub values: Vec<u8>,
    /// The replicas that run it, if these are not all.
    pub holders: Option<ReplicaSet>,
}
