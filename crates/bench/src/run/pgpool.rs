//! Pgpool-II in native replication mode, a usual way to make several PostgreSQL servers behave as one.
//!
//! Every statement that writes goes to all servers, the first one before the others; reads go to one of them, session by session.
//! Inserts into tables with serial columns lock these tables (`insert_lock`), so that values are alike. There is no commit of
//! all servers or none, no snapshot over them, and no part sees a deadlock between them: a limit on the time of a statement
//! ends those here. Differences afterwards are reported as for every contestant.

use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use rustix::process::Signal;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::postgres::{Likeness, Plain, free_port};
use testbed::program::{self, Program};
use tokio_postgres::Config;

use super::contestant::{Environment, config};
use crate::proxy::pooler::installed;

/// How long a statement waits at most, for locks that others hold on other servers, too.
const STATEMENT_TIMEOUT: &str = "10s";
/// How long it may take to stop.
const STOP: Duration = Duration::from_secs(20);
/// Processes beyond those that clients need; one that has lost its client takes a moment.
const SPARE: u32 = 8;

/// A running Pgpool-II and its servers; it is stopped first.
pub(crate) struct Pgpool {
    program: Program,
    servers: Vec<Plain>,
    /// Where clients connect.
    pub(crate) endpoint: Endpoint,
    /// The release that it reports.
    pub(crate) release: String,
}

impl Pgpool {
    /// Makes and starts it with its servers, if it is installed.
    pub(crate) fn start(
        name: &str,
        servers: u16,
        likeness: &Likeness,
        environment: &Environment<'_>,
    ) -> Result<Option<Self>, Fault> {
        let Environment { binaries, account, scratch, interrupt, .. } = environment;
        let Some(pgpool) = installed("pgpool") else { return Ok(None) };
        let mut ask = program::command(&pgpool);
        let log = scratch.path(&format!("{name}-pgpool.log"));
        // It says so on standard error.
        let said = program::run("pgpool", ask.arg("--version"), &log, interrupt)?;
        let likeness = likeness.clone().with("statement_timeout", STATEMENT_TIMEOUT);
        let start = |number: u16| {
            let folder = format!("{name}-{number}");
            Plain::start_named(&folder, binaries, *account, &likeness, scratch, interrupt)
        };
        let servers: Vec<Plain> = (0..servers).map(start).collect::<Result<_, _>>()?;
        let endpoint = Endpoint { port: free_port()?, database: "postgres", options: None };
        let home = scratch.folder(&format!("{name}-pgpool"), *account)?;
        let text =
            settings(&servers, endpoint.port, free_port()?, &home.display().to_string(), environment.clients);
        let file = scratch.file(&format!("{name}-pgpool.conf"), &text)?;
        let empty = scratch.file(&format!("{name}-pcp.conf"), "")?;
        let mut command = program::command(pgpool);
        command.args(["-n", "-D", "-f"]).arg(file).arg("-F").arg(&empty).arg("-a").arg(&empty);
        account.runs(command.current_dir(home));
        let mut program = Program::start("pgpool", &mut command, log, Signal::INT, STOP)?;
        binaries.wait_for(&mut program, &endpoint, scratch, interrupt)?;
        let release = said.lines().next().unwrap_or_default().trim().to_owned();
        Ok(Some(Self { program, servers, endpoint, release }))
    }

    /// The first one gets every write first.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Plain> {
        self.servers.iter()
    }

    /// Where the servers are, for statements that take as long as they take.
    pub(crate) fn configs(&self) -> Vec<Config> {
        let patient = |server: &Plain| {
            let mut config = config(&server.endpoint);
            config.options("-c statement_timeout=0");
            config
        };
        self.servers.iter().map(patient).collect()
    }

    /// Its first process.
    pub(crate) fn pid(&self) -> u32 {
        self.program.pid()
    }
}

fn settings(servers: &[Plain], port: u16, control: u16, home: &str, clients: u32) -> String {
    let mut text = format!(
        "backend_clustering_mode = 'native_replication'\nlisten_addresses = '127.0.0.1'\nport = {port}\n\
         socket_dir = '{home}'\npcp_listen_addresses = ''\npcp_port = {control}\npcp_socket_dir = '{home}'\n\
         wd_ipc_socket_dir = '{home}'\npid_file_name = '{home}/pid'\nlogdir = '{home}'\npool_passwd = ''\n\
         num_init_children = {}\nmax_pool = 1\nchild_life_time = 0\nload_balance_mode = on\nreplicate_select = off\n\
         insert_lock = on\nfailover_if_affected_tuples_mismatch = off\n",
        clients + SPARE
    );
    for (number, server) in servers.iter().enumerate() {
        let _ = writeln!(
            text,
            "backend_hostname{number} = '{}'\nbackend_port{number} = {}\nbackend_weight{number} = 1",
            server.sockets.display(),
            server.endpoint.port
        );
    }
    text
}

/// Memory of processes: their own, with their parts of shared memory.
pub(crate) fn memory_bytes(pids: &[u32]) -> Result<f64, Fault> {
    let mut sum = 0.0;
    for pid in pids {
        let path = PathBuf::from(format!("/proc/{pid}/smaps_rollup"));
        // One that has ended meanwhile has nothing.
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:"));
        let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
        sum += kilobytes.ok_or_else(|| Fault::Unreadable {
            what: "the memory of a process".into(),
            said: text.clone(),
        })? * 1024.0;
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_is_held_counts() {
        let ours = [std::process::id()];
        let before = memory_bytes(&ours).unwrap();
        let held = vec![1_u8; 64 << 20];
        let after = memory_bytes(&ours).unwrap();
        assert!(before > 0.0 && after > before + 32e6, "{before} {after} {}", held.len());
        assert_eq!(held.iter().map(|byte| usize::from(*byte)).sum::<usize>(), held.len());
    }
}
