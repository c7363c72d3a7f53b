//! Where a server or a node of ours listens.

/// Where to connect.
#[derive(Clone, Debug)]
pub struct Door {
    /// On the loopback.
    pub port: u16,
    /// The database.
    pub database: &'static str,
    /// Settings for the session, as in `PGOPTIONS`.
    pub options: Option<&'static str>,
}
