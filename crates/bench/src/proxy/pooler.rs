//! PgBouncer before the plain server, as is usual today.
//!
//! It pools transactions, which is its usual way. Before release 1.21 it cannot do that for clients with prepared
//! statements; those get a database that pools sessions, which is less work for it, and the report says so.

use std::path::PathBuf;
use std::time::Duration;
use std::{env, fmt};

use rustix::process::Signal;
use testbed::account::Account;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::postgres::{Binaries, Plain, free_port};
use testbed::program::{self, Program};
use testbed::scratch::Scratch;

use super::identity::{self, Identity};
use crate::pgbench::PROVEN;

/// Where Debian puts it; an ordinary user does not have that on PATH.
const SYSTEM: &str = "/usr/sbin";
/// The first release that pools transactions of prepared statements.
const PREPARES: (u16, u16) = (1, 21);
/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(10);

/// How much it may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Size {
    /// Server connections that transactions share; where sessions are pooled, each client can have one.
    pub(crate) servers: u32,
    /// Clients.
    pub(crate) clients: u32,
}

/// The proofs that it asks of clients.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard<'a> {
    /// Its certificate, for clients that use TLS.
    pub(crate) identity: &'a Identity,
    /// The stored verifier of the role that has a password.
    pub(crate) verifier: &'a str,
}

/// A running PgBouncer.
#[derive(Debug)]
pub(crate) struct Pooler {
    program: Program,
    release: Release,
    /// Where clients connect.
    pub(crate) endpoint: Endpoint,
    /// Where clients with prepared statements connect.
    pub(crate) prepared_endpoint: Endpoint,
}

impl Pooler {
    /// Starts it, if it is installed.
    pub(crate) fn start(
        binaries: &Binaries,
        account: Account,
        plain: &Plain,
        size: Size,
        guard: Option<Guard<'_>>,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Option<Self>, Fault> {
        let Some(pgbouncer) = installed("pgbouncer") else { return Ok(None) };
        let mut ask = program::command(&pgbouncer);
        let said =
            program::run("pgbouncer", ask.arg("--version"), &scratch.path("pgbouncer.log"), interrupt)?;
        let release = Release::parse(&said)
            .ok_or_else(|| Fault::Unreadable { what: "the release of PgBouncer".into(), said })?;
        let port = free_port()?;
        let (users, asks) = asked(guard, scratch)?;
        let prepares = if release.prepares() { "max_prepared_statements = 200\n" } else { "" };
        let server = format!("host={} port={} dbname=postgres", plain.sockets.display(), plain.endpoint.port);
        let settings = format!(
            "[databases]\npostgres = {server}\nsessions = {server} pool_mode=session pool_size={}\n\
             [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
             {asks}auth_file = {}\npool_mode = transaction\n{prepares}\
             default_pool_size = {}\nmax_client_conn = {}\n",
            size.clients,
            users.display(),
            size.servers,
            size.clients,
        );
        let mut command = program::command(pgbouncer);
        command.arg(scratch.file("pgbouncer.ini", &settings)?).current_dir(scratch.top());
        account.runs(&mut command);
        let log = scratch.path("pgbouncer.log");
        let mut program = Program::start("pgbouncer", &mut command, log, Signal::INT, STOP)?;
        let endpoint = Endpoint { port, database: "postgres", options: None };
        let pool = if release.prepares() { "postgres" } else { "sessions" };
        let prepared_endpoint = Endpoint { database: pool, ..endpoint.clone() };
        binaries.wait_for(&mut program, &endpoint, scratch, interrupt)?;
        Ok(Some(Self { program, release, endpoint, prepared_endpoint }))
    }

    /// Whether it pools transactions of clients with prepared statements, too.
    pub(crate) fn pools_prepared(&self) -> bool {
        self.release.prepares()
    }

    /// Its process.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }
}

impl fmt::Display for Pooler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PgBouncer {}, pooling transactions", self.release.text)?;
        if !self.release.prepares() {
            write!(f, " (this release pools sessions when statements are prepared)")?;
        }
        Ok(())
    }
}

/// The file of its users, and the settings that say what is asked of them.
fn asked(guard: Option<Guard<'_>>, scratch: &Scratch) -> Result<(PathBuf, String), Fault> {
    let everybody = "\"postgres\" \"\"\n";
    let Some(Guard { identity, verifier }) = guard else {
        return Ok((scratch.file("users.txt", everybody)?, "auth_type = trust\n".to_owned()));
    };
    let users = scratch.file("users.txt", &format!("{everybody}\"{}\" \"{verifier}\"\n", PROVEN.0))?;
    let rules = scratch.file("pgbouncer_hba.conf", &identity::rules())?;
    let settings = format!(
        "auth_type = hba\nauth_hba_file = {}\nclient_tls_sslmode = allow\nclient_tls_cert_file = {}\n\
         client_tls_key_file = {}\n",
        rules.display(),
        identity.certificate.display(),
        identity.key.display(),
    );
    Ok((users, settings))
}

/// A program of that name, if it is installed.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders = env::split_paths(&path).chain([PathBuf::from(SYSTEM)]);
    folders.find_map(|folder| Some(folder.join(name)).filter(|program| program.is_file()))
}

/// A release of PgBouncer.
#[derive(Debug, PartialEq, Eq)]
struct Release {
    number: (u16, u16),
    text: String,
}

impl Release {
    fn parse(said: &str) -> Option<Self> {
        let text = said.lines().next()?.strip_prefix("PgBouncer ")?.trim();
        let mut parts = text.split('.').map(str::parse::<u16>);
        let number = (parts.next()?.ok()?, parts.next()?.ok()?);
        Some(Self { number, text: text.to_owned() })
    }

    fn prepares(&self) -> bool {
        self.number >= PREPARES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_told_apart() {
        let old = Release::parse("PgBouncer 1.18.0\nlibevent 2.1\n").unwrap();
        assert_eq!((old.text.as_str(), old.prepares()), ("1.18.0", false));
        assert!(Release::parse("PgBouncer 1.21.0").unwrap().prepares());
        assert_eq!(Release::parse("pgpool 4"), None);
    }
}
