//! `onecopy up` with one replica, and `onecopy serve` before one server.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::postgres::{Binaries, Plain, free_port};
use testbed::program::{self, Program};
use testbed::scratch::Scratch;

use crate::cpu;

/// How long it may take to stop in good order, its server included.
const STOP: Duration = Duration::from_mins(2);

/// A running node.
#[derive(Debug)]
pub(super) struct Node {
    program: Option<Program>,
    /// Where clients connect.
    pub(super) endpoint: Endpoint,
    /// Where the replica itself listens.
    pub(super) replica: Endpoint,
    /// The first process of the replica.
    pub(super) postmaster: u32,
    data: PathBuf,
}

impl Node {
    /// Makes and starts it with more arguments; its files are under this name.
    pub(super) fn start(
        onecopy: &Path,
        name: &str,
        more: &[&str],
        binaries: &Binaries,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let endpoint = Endpoint { port: free_port()?, database: "postgres", options: None };
        let data = scratch.path(name);
        let mut command = program::command(onecopy);
        command.args(["up", "--replicas", "1", "--port", &endpoint.port.to_string()]);
        command.arg("--pg-bin").arg(binaries.folder()).arg("--data").arg(&data).args(more);
        let log = scratch.path(&format!("{name}.log"));
        let mut program = Program::start("onecopy up", &mut command, log, Signal::TERM, STOP)?;
        binaries.wait_for(&mut program, &endpoint, scratch, interrupt)?;

        let admin = Endpoint { database: "onecopy", ..endpoint.clone() };
        let shown = binaries.ask(&admin, "SHOW REPLICAS", scratch, interrupt)?;
        let port = shown.split('\t').nth(2).and_then(|port| port.parse().ok());
        let port =
            port.ok_or_else(|| Fault::Unreadable { what: "the replica's port".into(), said: shown.clone() })?;
        let postmaster = cpu::child_named(program.pid(), "postgres")?
            .ok_or_else(|| Fault::Missing("onecopy runs no server as its child".into()))?;
        let replica = Endpoint { port, ..endpoint.clone() };
        Ok(Self { program: Some(program), endpoint, replica, postmaster, data })
    }

    /// Puts one before a server that runs already, with these lines of configuration.
    pub(super) fn serve(
        onecopy: &Path,
        name: &str,
        server: &Plain,
        settings: &str,
        binaries: &Binaries,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let endpoint = Endpoint { port: free_port()?, ..server.endpoint.clone() };
        let data = scratch.path(&format!("{name}-data"));
        let sockets = server.sockets.display().to_string().replace('/', "%2F");
        let text = format!(
            "listen = \"127.0.0.1:{}\"\ndata = \"{}\"\n{settings}\n[[replica]]\nurl = \"postgresql://{sockets}:{}\"\n",
            endpoint.port,
            data.display(),
            server.endpoint.port
        );
        let mut command = program::command(onecopy);
        command.args(["serve", "--config"]).arg(scratch.file(&format!("{name}.toml"), &text)?);
        let log = scratch.path(&format!("{name}.log"));
        let mut program = Program::start("onecopy serve", &mut command, log, Signal::TERM, STOP)?;
        binaries.wait_for(&mut program, &endpoint, scratch, interrupt)?;
        let replica = server.endpoint.clone();
        Ok(Self { program: Some(program), endpoint, replica, postmaster: server.pid(), data })
    }

    /// Its process.
    pub(super) fn pid(&self) -> u32 {
        self.program.as_ref().map_or(0, Program::pid)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.program.take());
        // If onecopy did not stop in good order, its server has outlived it. The process number may be that of another program
        // by now, but then it does not live in our folder.
        let home = fs::read_link(format!("/proc/{}/cwd", self.postmaster));
        let ours = home.is_ok_and(|home| home.starts_with(&self.data));
        let pid = i32::try_from(self.postmaster).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| ours) {
            let _ = kill_process(pid, Signal::QUIT);
        }
    }
}
