//! A plain PostgreSQL server beside the one that is compared with it.
//!
//! A comparison is fair when both servers are alike, so nothing is written down twice here: what the replica reads from
//! its configuration files, its locale and whether it has data checksums are asked for and given to the plain server.

use std::env;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::process::Signal;

use crate::account::Account;
use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::interrupt::Interrupt;
use crate::program::{self, Program};
use crate::scratch::Scratch;

/// The programs that a benchmark uses.
const PROGRAMS: [&str; 4] = ["postgres", "initdb", "psql", "pgbench"];
/// Names the folder of the programs, as for onecopy.
const VARIABLE: &str = "ONECOPY_PG_BIN";
/// How long a server may take until it lets a session in.
const START: Duration = Duration::from_mins(1);
/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(30);
/// Settings that differ between servers.
const OWN: &str = "('port', 'listen_addresses', 'unix_socket_directories', 'unix_socket_permissions', \
                   'config_file', 'hba_file', 'ident_file', 'data_directory', 'external_pid_file')";

/// The folder of PostgreSQL's programs.
#[derive(Clone, Debug)]
pub struct Binaries(PathBuf);

impl Binaries {
    /// The folder that is named, else the newest release with all programs, else what is on PATH.
    pub fn find(named: Option<&Path>) -> Result<Self, Fault> {
        let named = named.map(Path::to_owned).or_else(|| env::var_os(VARIABLE).map(PathBuf::from));
        let candidates = match named {
            Some(folder) => vec![folder],
            None => pgserver::program_folders(),
        };
        let complete = |folder: &PathBuf| PROGRAMS.iter().all(|program| folder.join(program).is_file());
        candidates.into_iter().find(complete).map(Self).ok_or_else(|| {
            Fault::Missing(format!(
                "{} are not together in a folder: name it by --pg-bin",
                PROGRAMS.join(", ")
            ))
        })
    }

    /// One of the programs.
    pub fn program(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.0
    }

    /// Asks a server; columns are separated by tabs.
    pub fn ask(
        &self,
        endpoint: &Endpoint,
        query: &str,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<String, Fault> {
        self.ask_all(endpoint, &[query], scratch, interrupt)
    }

    /// The same with several queries of one session, each by itself.
    pub fn ask_all(
        &self,
        endpoint: &Endpoint,
        queries: &[&str],
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<String, Fault> {
        let mut psql = program::command(self.program("psql"));
        psql.args([
            "-XAtq",
            "-F",
            "\t",
            "-h",
            "127.0.0.1",
            "-p",
            &endpoint.port.to_string(),
            "-U",
            "postgres",
        ]);
        psql.args(queries.iter().flat_map(|query| ["-c", query])).arg(endpoint.database);
        program::run("psql", &mut psql, &scratch.path("psql.log"), interrupt)
    }

    /// Waits until a server lets a session in.
    pub fn wait_for(
        &self,
        program: &mut Program,
        endpoint: &Endpoint,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<(), Fault> {
        program.wait_until(START, interrupt, || match self.ask(endpoint, "SELECT 1", scratch, interrupt) {
            Ok(_) => Ok(true),
            Err(Fault::Program { .. }) => Ok(false),
            Err(fault) => Err(fault),
        })
    }
}

/// Where no system takes the ports of clients from, and no cluster those of its servers.
const PORTS: Range<u16> = 10_000..20_000;

/// A port that is free now, another one each time.
pub fn free_port() -> Result<u16, Fault> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let first = std::process::id();
    let mut outcome = Err(std::io::Error::from(std::io::ErrorKind::AddrInUse));
    for _ in PORTS {
        let n = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = PORTS.start + (n % PORTS.len() as u32) as u16;
        outcome = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map(|_| port);
        if outcome.is_ok() {
            break;
        }
    }
    outcome.map_err(Fault::system("find a free port"))
}

/// Settings that two servers must share.
#[derive(Clone, Debug)]
pub struct Likeness {
    version: String,
    locale: String,
    checksums: bool,
    settings: Vec<(String, String)>,
}

impl Likeness {
    /// That of a running server.
    pub fn of(
        binaries: &Binaries,
        endpoint: &Endpoint,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let ask = |query: &str| binaries.ask(endpoint, query, scratch, interrupt);
        let facts =
            ask("SELECT current_setting('server_version'), datcollate, current_setting('data_checksums') \
             FROM pg_database WHERE datname = current_database()")?;
        let settings = ask(&format!(
            "SELECT name, current_setting(name) FROM pg_settings \
             WHERE source = 'configuration file' AND name NOT IN {OWN} ORDER BY name"
        ))?;
        let unreadable =
            |said: &str| Fault::Unreadable { what: "the replica's settings".into(), said: said.into() };
        let [version, locale, checksums] = facts.trim_end().split('\t').collect::<Vec<_>>()[..] else {
            return Err(unreadable(&facts));
        };
        let pairs = settings.lines().map(|line| line.split_once('\t').ok_or_else(|| unreadable(line)));
        let pairs = pairs.map(|pair| pair.map(|(name, value)| (name.to_owned(), value.to_owned())));
        Ok(Self {
            version: version.to_owned(),
            locale: locale.to_owned(),
            checksums: checksums == "on",
            settings: pairs.collect::<Result<_, _>>()?,
        })
    }

    /// A server that only looks at statements.
    pub fn bare() -> Self {
        let settings = vec![("fsync".to_owned(), "off".to_owned())];
        Self { version: String::new(), locale: "C".to_owned(), checksums: false, settings }
    }

    /// Settings of servers that have no other server to take them from.
    pub fn usual() -> Self {
        let locale = "C".to_owned();
        let settings = vec![("max_connections".to_owned(), "300".to_owned())];
        Self { version: String::new(), locale, checksums: false, settings }
    }

    /// The same with one more setting, which wins over a former one of that name.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The release of the servers.
    pub fn version(&self) -> &str {
        &self.version
    }
}

/// A server without anything of ours.
#[derive(Debug)]
pub struct Plain {
    program: Program,
    /// Where its socket is.
    pub sockets: PathBuf,
    /// Where to connect.
    pub endpoint: Endpoint,
}

impl Plain {
    /// Makes and starts a server like the other one.
    pub fn start(
        binaries: &Binaries,
        account: Account,
        likeness: &Likeness,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        Self::start_named("plain", binaries, account, likeness, scratch, interrupt)
    }

    /// The same as one of several.
    pub fn start_named(
        name: &str,
        binaries: &Binaries,
        account: Account,
        likeness: &Likeness,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let data = scratch.folder(name, account)?;
        let mut initdb = program::command(binaries.program("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync", "-D"]).arg(&data);
        initdb.arg(format!("--locale={}", likeness.locale)).current_dir(&data);
        if likeness.checksums {
            initdb.arg("--data-checksums");
        }
        account.runs(&mut initdb);
        program::run("initdb", &mut initdb, &scratch.path("initdb.log"), interrupt)?;
        Self::start_on(name, binaries, account, likeness, scratch, interrupt)
    }

    /// Starts a server whose data is there already, in the folder of that name.
    pub fn start_on(
        name: &str,
        binaries: &Binaries,
        account: Account,
        likeness: &Likeness,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let (data, sockets) = (scratch.path(name), scratch.folder(&format!("{name}-sockets"), account)?);
        let endpoint = Endpoint { port: free_port()?, database: "postgres", options: None };
        let mut postgres = program::command(binaries.program("postgres"));
        postgres.arg("-D").arg(&data).current_dir(&data);
        for (name, value) in &likeness.settings {
            postgres.args(["-c", &format!("{name}={value}")]);
        }
        postgres.args(["-c", &format!("port={}", endpoint.port), "-c", "listen_addresses=127.0.0.1", "-c"]);
        postgres.arg(format!("unix_socket_directories={}", sockets.display()));
        account.runs(&mut postgres);
        let log = scratch.path(&format!("{name}.log"));
        let mut program = Program::start("postgres", &mut postgres, log, Signal::INT, STOP)?;
        binaries.wait_for(&mut program, &endpoint, scratch, interrupt)?;
        Ok(Self { program, sockets, endpoint })
    }

    /// Its first process.
    pub fn pid(&self) -> u32 {
        self.program.pid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_lacks_a_program_is_refused() {
        let scratch = Scratch::new().unwrap();
        for program in &PROGRAMS[1..] {
            scratch.file(program, "").unwrap();
        }
        assert!(matches!(Binaries::find(Some(scratch.top())), Err(Fault::Missing(_))));
        scratch.file(PROGRAMS[0], "").unwrap();
        assert_eq!(Binaries::find(Some(scratch.top())).unwrap().folder(), scratch.top());
    }
}
