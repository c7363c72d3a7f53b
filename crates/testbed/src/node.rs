//! `onecopy up` with several replicas, whose servers can be killed.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use crate::endpoint::Endpoint;
use crate::fault::Fault;
use crate::interrupt::Interrupt;
use crate::postgres::{Binaries, free_port};
use crate::program::{self, Program};
use crate::scratch::Scratch;

/// How many replicas there are.
pub const REPLICAS: u64 = 3;
/// How long it may take to stop in good order, its servers included.
const STOP: Duration = Duration::from_mins(1);

/// A running node.
#[derive(Debug)]
pub struct Node {
    program: Option<Program>,
    /// Where clients connect.
    pub port: u16,
    data: PathBuf,
    replicas: u64,
    log: PathBuf,
    words: Vec<OsString>,
    placement: Option<String>,
    message_us: Option<String>,
    rule_off: Option<String>,
}

/// Distinguishes nodes on the same machine.
#[derive(Clone, Copy, Debug)]
pub struct Shape<'a> {
    /// The name of its folder.
    pub name: &'a str,
    /// Another folder for its data, which may be there already.
    pub folder: Option<&'a Path>,
    /// How many replicas it has.
    pub replicas: u64,
    /// Further words for `onecopy up`.
    pub arguments: &'a [String],
    /// Where new tables are held (`ONECOPY_TEST_PLACEMENT`): everywhere, or as these words say.
    pub placement: Option<&'a str>,
    /// The mean delay of messages between its agents (`ONECOPY_TEST_MESSAGE_US`); without it they take no time.
    pub message_us: Option<u32>,
    /// A rule of its protocol that is off (`ONECOPY_TEST_RULE_OFF`).
    pub rule_off: Option<&'a str>,
}

/// The variable that says where new tables are held.
const PLACEMENT: &str = "ONECOPY_TEST_PLACEMENT";
/// The variable that says how long messages between agents take.
const MESSAGE: &str = "ONECOPY_TEST_MESSAGE_US";
/// The variable that switches a rule off.
const RULE_OFF: &str = "ONECOPY_TEST_RULE_OFF";

impl Node {
    /// Makes and starts one of the usual shape.
    pub fn start(
        onecopy: &Path,
        binaries: &Binaries,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let shape = Shape {
            name: "onecopy",
            folder: None,
            replicas: REPLICAS,
            arguments: &[],
            placement: None,
            message_us: None,
            rule_off: None,
        };
        Self::start_shaped(shape, onecopy, binaries, scratch, interrupt)
    }

    /// Makes and starts one.
    pub fn start_shaped(
        shape: Shape<'_>,
        onecopy: &Path,
        binaries: &Binaries,
        scratch: &Scratch,
        interrupt: &Interrupt,
    ) -> Result<Self, Fault> {
        let endpoint = Endpoint { port: free_port()?, database: "postgres", options: None };
        let data = shape.folder.map_or_else(|| scratch.path(shape.name), Path::to_owned);
        let numbers = (shape.replicas.to_string(), endpoint.port.to_string());
        let mut words: Vec<OsString> =
            vec![onecopy.into(), "up".into(), "--replicas".into(), numbers.0.into()];
        words.extend(["--port".into(), numbers.1.into(), "--pg-bin".into(), binaries.folder().into()]);
        words.extend(["--data".into(), data.clone().into()]);
        words.extend(shape.arguments.iter().map(OsString::from));
        let log = scratch.path(&format!("{}.log", shape.name));
        let (replicas, placement) = (shape.replicas, shape.placement.map(str::to_owned));
        let message_us = shape.message_us.map(|us| us.to_string());
        let rule_off = shape.rule_off.map(str::to_owned);
        let port = endpoint.port;
        let mut node =
            Self { program: None, port, data, replicas, log, words, placement, message_us, rule_off };
        node.run()?;
        if let Some(program) = &mut node.program {
            binaries.wait_for(program, &endpoint, scratch, interrupt)?;
        }
        Ok(node)
    }

    fn run(&mut self) -> Result<(), Fault> {
        let mut command = program::command(&self.words[0]);
        command.args(&self.words[1..]).envs(self.placement.iter().map(|placement| (PLACEMENT, placement)));
        command.envs(self.message_us.iter().map(|us| (MESSAGE, us)));
        command.envs(self.rule_off.iter().map(|rule| (RULE_OFF, rule)));
        let program = Program::start("onecopy up", &mut command, self.log.clone(), Signal::TERM, STOP)?;
        self.program = Some(program);
        Ok(())
    }

    /// Kills it at once; its servers live on.
    pub fn kill(&mut self) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw);
        // It is dead when it has been waited for, which dropping it does.
        let _ = pid.map(|pid| kill_process(pid, Signal::KILL));
        drop(self.program.take());
    }

    /// Starts it after it was killed; clients wait for it by themselves.
    pub fn start_again(&mut self, interrupt: &Interrupt) -> Result<(), Fault> {
        interrupt.check()?;
        self.run()
    }

    /// The folder of its data.
    pub fn data(&self) -> &Path {
        &self.data
    }
}

impl Node {
    /// Its process.
    pub fn pid(&self) -> u32 {
        self.program.as_ref().map_or(0, Program::pid)
    }
}

/// A replica's server.
#[derive(Clone, Copy, Debug)]
pub struct Server {
    /// Its first process.
    pub pid: u32,
    /// Where it listens.
    pub port: u16,
}

/// The server of a replica, if it runs.
pub fn server(data: &Path, replica: u64) -> Option<Server> {
    server_in(&data.join(format!("replica-{replica}")))
}

/// The server whose data are in this folder, if it runs.
pub fn server_in(folder: &Path) -> Option<Server> {
    let text = fs::read_to_string(folder.join("postmaster.pid")).ok()?;
    let mut lines = text.lines();
    let pid = lines.next()?.trim().parse().ok()?;
    // After it: the folder, when it was started, the port.
    let port = lines.nth(2)?.trim().parse().ok()?;
    Some(Server { pid, port })
}

/// Its Unix socket.
pub fn socket_of(folder: &Path) -> Option<PathBuf> {
    let text = fs::read_to_string(folder.join("postmaster.pid")).ok()?;
    let mut lines = text.lines().skip(3);
    let (port, sockets) = (lines.next()?.trim(), lines.next()?.trim());
    Some(Path::new(sockets).join(format!(".s.PGSQL.{port}")))
}

/// The processes that work in the folder or below it.
pub fn working_in(folder: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| {
        let pid: u32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let home = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
        home.starts_with(folder).then_some(pid)
    });
    processes.collect()
}

/// Signals every process that works in the folder or below it; returns how many there were.
pub fn signal_all(folder: &Path, signal: Signal) -> usize {
    let processes = working_in(folder);
    for pid in processes.iter().filter_map(|pid| Pid::from_raw(i32::try_from(*pid).ok()?)) {
        // One that has ended meanwhile needs no signal.
        let _ = kill_process(pid, signal);
    }
    processes.len()
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.program.take());
        // If onecopy did not stop in good order, its servers have outlived it.
        (1..=self.replicas).for_each(|replica| {
            signal_server(&self.data, replica, Signal::QUIT);
        });
    }
}

/// Kills the first process of a replica's server at once; whether there was one.
pub fn kill_server(data: &Path, replica: u64) -> bool {
    signal_server(data, replica, Signal::KILL)
}

fn signal_server(data: &Path, replica: u64, signal: Signal) -> bool {
    let folder = data.join(format!("replica-{replica}"));
    let text = fs::read_to_string(folder.join("postmaster.pid")).unwrap_or_default();
    let Some(raw) = text.lines().next().and_then(|line| line.trim().parse::<i32>().ok()) else {
        return false;
    };
    // Another process may have this number by now, but then its folder is not ours.
    let is_ours = fs::read_link(format!("/proc/{raw}/cwd")).is_ok_and(|home| home.starts_with(data));
    Pid::from_raw(raw).filter(|_| is_ours).is_some_and(|pid| kill_process(pid, signal).is_ok())
}
