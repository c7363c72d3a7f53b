//! A connection of Onecopy's own: logged in as its superuser, with settings under which its statements mean one thing.
//!
//! Example: `SELECT 1 FROM pg_namespace` on a client's connection may read a table of that name in the client's search path,
//! so such statements pass [`super::assert_qualified`]. On a connection of this type the search path is `pg_catalog`,
//! whatever ALTER DATABASE and ALTER ROLE have set, so statements name objects plainly.

use std::time::Duration;

use wire::backend::tag;
use wire::frame;

use super::error::BackendError;
use super::process::Process;
use super::{Address, Connection, Rows, Served};

/// How long a log-in may take. A server that hangs takes the connection and never answers.
const LOG_IN_MAX: Duration = Duration::from_secs(30);

/// The settings with which every connection of Onecopy's own begins.
const OPTIONS: &str = "-c search_path=pg_catalog,pg_temp -c standard_conforming_strings=on -c quote_all_identifiers=off -c array_nulls=on";

/// A connection of Onecopy's own.
#[derive(Debug)]
pub(crate) struct OwnConnection(Connection);

impl OwnConnection {
    /// Connects and logs in. `more` are further start-up parameters; its `options` are added to ours.
    pub(crate) async fn open(
        address: &Address,
        served: &Served,
        more: &[(&str, &str)],
    ) -> Result<Self, BackendError> {
        let (more, rest): (Vec<_>, Vec<_>) = more.iter().partition(|(name, _)| *name == "options");
        let options: Vec<&str> = std::iter::once(OPTIONS).chain(more.iter().map(|(_, it)| *it)).collect();
        let options = options.join(" ");
        let own = [
            ("user", served.superuser.as_str()),
            ("database", served.database.as_str()),
            ("options", options.as_str()),
        ];
        let parameters = [&own, rest.as_slice()].concat();
        let opening = Connection::open(address, &served.secret, &parameters);
        tokio::time::timeout(LOG_IN_MAX, opening).await.unwrap_or_else(|_| Err(silent())).map(Self)
    }

    /// Runs statements to their end and returns all their rows. The first error is returned, after the server is ready for
    /// the next statement.
    pub(crate) async fn query(&mut self, sql: &str) -> Result<Rows, BackendError> {
        self.0.simple(sql).await
    }

    /// The first column of the rows, without NULLs.
    pub(crate) async fn query_column(&mut self, sql: &str) -> Result<Vec<String>, BackendError> {
        let rows = self.query(sql).await?;
        Ok(rows.into_iter().filter_map(|row| row.into_iter().next().flatten()).collect())
    }

    /// Waits until the idle connection ends, so that the loss of a server is known before the next question to it.
    pub(crate) async fn lost(&mut self) -> BackendError {
        let Self(connection) = self;
        loop {
            match connection.message().await {
                Err(error) => return error,
                Ok((tag, total)) => {
                    let body = &connection.input.data()[frame::HEADER_BYTES..total];
                    let error = (tag == tag::ERROR_RESPONSE).then(|| BackendError::Server(body.to_vec()));
                    connection.input.consume(total);
                    if let Some(error) = error {
                        return error;
                    }
                }
            }
        }
    }

    /// The server process at the other end.
    pub(crate) fn process(&self) -> &Process {
        &self.0.process
    }

    /// For exchanges other than simple queries: COPY, pipelines, waiting for the end of the connection.
    pub(crate) fn exchange(&mut self) -> &mut Connection {
        &mut self.0
    }
}

fn silent() -> BackendError {
    let text = format!("the server accepts no login: no answer within {} s", LOG_IN_MAX.as_secs());
    BackendError::Io(std::io::Error::new(std::io::ErrorKind::TimedOut, text))
}
