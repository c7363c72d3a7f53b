//! The address at which a server or a node of a test listens.

/// The port, database and settings of a connection.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// On the loopback.
    pub port: u16,
    /// The database.
    pub database: &'static str,
    /// Settings for the session, as in `PGOPTIONS`.
    pub options: Option<&'static str>,
}
