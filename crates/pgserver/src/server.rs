//! One PostgreSQL server: its process, from start to end.
//!
//! The server is a child process in a process group of its own, and its output goes to a file. So it does not depend on the
//! node: if the node is killed the server goes on, and the next node that uses the folder ends it first ([`leftover`]). It
//! counts as started when it accepts a session, which is after PostgreSQL's own crash recovery. The port is kept from start
//! to start. It changes only when another program has it, and only while the node does not know it yet
//! ([`Server::keep_port`]).
//!
//! Nothing is restarted here: the owner of a [`Server`] learns through [`Server::exited`] that it ended, and decides.

mod error;

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::NoTls;

use super::account::Account;
use super::locate::Binaries;
use super::output::Output;
use super::{folder, leftover, settings, sockets, swap};
use crate::progress::Progress;

pub use error::{DataFault, Ending, ServerError};

/// How long a server may take until it accepts sessions; crash recovery of a large database takes minutes.
const START: Duration = Duration::from_mins(10);
/// After so long the user is told that the server is waited for.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a server may take to end its sessions and write out its pages. Commits are durable in the log, so a server that
/// takes longer may as well stop at once.
const FAST_STOP: Duration = Duration::from_secs(10);
/// How long an immediate stop may take.
const IMMEDIATE_STOP: Duration = Duration::from_secs(10);
/// How long one attempt at a session may take.
const KNOCK: Duration = Duration::from_secs(5);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(25);
/// How often a start is tried again after a cause that passes.
const ATTEMPTS: u32 = 20;
/// The pause before it is tried again.
const AGAIN: Duration = Duration::from_millis(500);

/// The part that all servers of a cluster share.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    /// The folder of the cluster.
    pub(crate) folder: PathBuf,
    /// The folder of the sockets.
    pub(crate) sockets: PathBuf,
    /// The programs.
    pub(crate) binaries: Binaries,
    /// The account that runs them.
    pub(crate) account: Account,
    /// Where the search for a free port begins.
    pub(crate) port_start: u16,
    /// Gets lines of progress.
    pub(crate) progress: Arc<dyn Progress>,
}

/// A PostgreSQL server that this process runs.
#[derive(Debug)]
pub struct Server {
    /// `replica-1` and so on.
    pub name: String,
    /// Where it can be reached over TCP.
    pub host: String,
    /// The port, over TCP and as part of the socket's name; settled by [`Server::start`].
    pub port: u16,
    /// The folder of its Unix socket.
    pub socket_dir: PathBuf,
    number: u16,
    /// Others know the port, so it does not change any more.
    keeps_port: bool,
    site: Site,
    output: Output,
    process: Option<Child>,
}

impl Server {
    /// A server of the cluster, not started yet.
    pub(super) fn new(number: u16, site: Site) -> Self {
        Self {
            name: folder::replica(number),
            host: "127.0.0.1".to_owned(),
            port: settings::last_port(&site.folder, number).unwrap_or_default(),
            socket_dir: site.sockets.clone(),
            number,
            keeps_port: false,
            output: Output::new(site.folder.join(format!("server-{number}.log"))),
            site,
            process: None,
        }
    }

    /// Starts the server and waits until it accepts sessions. Processes that still run in its data folder are ended first.
    pub async fn start(&mut self) -> Result<(), ServerError> {
        assert!(self.process.is_none(), "a server is started when it does not run");
        let mut attempt = 1;
        loop {
            let cleared = self.clear_the_way().await;
            self.choose_port()?;
            cleared?;
            self.check_data()?;
            self.spawn()?;
            let error = match self.wait_until_ready().await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            self.stop().await;
            if !error.passes() || attempt == ATTEMPTS {
                return Err(error);
            }
            attempt += 1;
            sleep(AGAIN).await;
        }
    }

    /// Stops the server: first fast, so that its pages are written out, and if that takes too long, immediately. Does nothing
    /// if it does not run.
    pub async fn stop(&mut self) {
        let Some(process) = &mut self.process else { return };
        for (signal, patience) in
            [(Signal::INT, FAST_STOP), (Signal::QUIT, IMMEDIATE_STOP), (Signal::KILL, IMMEDIATE_STOP)]
        {
            // The number is that of our child until we have waited for it.
            if let Some(pid) = process.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
                let _ = kill_process(pid, signal);
            }
            if timeout(patience, process.wait()).await.is_ok() {
                break;
            }
            tracing::warn!(server = self.name, ?signal, "the server does not stop, asking harder");
        }
        self.process = None;
        // Backends that outlive a postmaster which was killed; the next start looks again.
        if let Err(error) = leftover::end(&self.data(), &self.site.account).await {
            tracing::warn!(server = self.name, %error, "the server may have left processes behind");
        }
    }

    /// Waits until the server ends by itself, keeping its log file within bounds meanwhile. Never returns while there
    /// is no process to wait for.
    pub async fn exited(&mut self) -> Ending {
        let Some(process) = &mut self.process else { return std::future::pending().await };
        let ending = self.output.until_end(process, &self.name).await;
        self.process = None;
        ending
    }

    /// Makes the folder for a copy of another server's data, empty and beside the own data folder. The server goes on.
    pub fn begin_copy(&self) -> Result<PathBuf, ServerError> {
        let into = swap::begin(&self.data()).map_err(ServerError::Swap)?;
        self.site
            .account
            .give(&into)
            .map_err(|error| self.io(format!("give {} away", into.display()), error))?;
        Ok(into)
    }

    /// Writes the copy out to the disk and marks it as complete; nothing else changes yet.
    pub async fn complete_copy(&self) -> Result<(), ServerError> {
        let data = self.data();
        tokio::task::spawn_blocking(move || swap::complete(&data))
            .await
            .map_err(|error| self.io("complete the copy".to_owned(), io::Error::other(error)))?
            .map_err(ServerError::Swap)
    }

    /// Puts the copy in the place of the data folder. The server is stopped, and not started again.
    pub async fn take_copy(&mut self) -> Result<(), ServerError> {
        self.stop().await;
        let data = self.data();
        tokio::task::spawn_blocking(move || swap::replace(&data))
            .await
            .map_err(|error| self.io("take the copy".to_owned(), io::Error::other(error)))?
            .map_err(ServerError::Swap)
    }

    /// The number in its name.
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The file with its output.
    pub fn log_path(&self) -> &Path {
        self.output.path()
    }

    /// The account that its files belong to.
    pub fn account(&self) -> &Account {
        &self.site.account
    }

    /// The number of the server's process, while it runs.
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().and_then(Child::id)
    }

    /// Whether its process is there.
    pub fn is_running(&self) -> bool {
        self.process.is_some()
    }

    /// From now on others know the port: the server waits for it rather than move to another one.
    pub fn keep_port(&mut self) {
        self.keeps_port = true;
    }

    fn data(&self) -> PathBuf {
        self.site.folder.join(&self.name)
    }

    /// Whether a server can be started on its data folder at all.
    fn check_data(&self) -> Result<(), ServerError> {
        let (path, expected) = (self.data(), self.site.binaries.release.major);
        let found = folder::examine(&path, expected);
        match found.map_err(|error| self.io(format!("read {}", path.display()), error))? {
            None => Ok(()),
            Some(fault) => Err(ServerError::Data { name: self.name.clone(), path, fault }),
        }
    }

    async fn clear_the_way(&mut self) -> Result<(), ServerError> {
        let data = self.data();
        let ended = leftover::end(&data, &self.site.account)
            .await
            .map_err(|error| self.io(format!("end what still runs in {}", data.display()), error))?;
        if ended > 0 {
            self.site
                .progress
                .say(format_args!("{} still ran from an earlier time and was stopped", self.name));
        }
        if self.port != 0 {
            sockets::clear(&self.socket_dir, self.port)
                .map_err(|error| self.io(format!("clear {}", self.socket_dir.display()), error))?;
        }
        Ok(())
    }

    /// Settles the port, unless it has one that is free.
    pub(super) fn choose_port(&mut self) -> Result<(), ServerError> {
        if self.port != 0 && settings::is_free(self.port) {
            return Ok(());
        }
        if self.keeps_port {
            return Err(ServerError::PortTaken { name: self.name.clone(), port: self.port });
        }
        let free = settings::free_port(self.number, self.site.port_start)
            .ok_or_else(|| ServerError::NoPort(self.name.clone()))?;
        if self.port != 0 {
            let (name, taken) = (&self.name, self.port);
            self.site
                .progress
                .say(format_args!("{name} moves to port {free}: another program has port {taken}"));
        }
        self.port = free;
        Ok(())
    }

    fn spawn(&mut self) -> Result<(), ServerError> {
        settings::write(&self.site.folder, self.number, self.port).map_err(|error| {
            self.io(format!("write the settings in {}", self.site.folder.display()), error)
        })?;
        let streams = self.output.open().and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) =
            streams.map_err(|error| self.io(format!("write {}", self.output.path().display()), error))?;
        let program = self.site.binaries.postgres();
        let mut command = Command::from(self.site.account.command(&program, &self.data()));
        command
            .arg("-D")
            .arg(self.data())
            .args(settings::arguments(&self.site.folder, self.number, self.port, &self.socket_dir))
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr);
        let child = command.spawn().map_err(|error| self.cannot_run(&program, error))?;
        self.process = Some(child);
        Ok(())
    }

    /// Says which folder is closed to the account, if that is why the program did not run.
    fn cannot_run(&self, program: &Path, error: io::Error) -> ServerError {
        let account = &self.site.account;
        match account.stopped_at(&self.data()).or_else(|| account.stopped_at(program)) {
            Some(at) if error.kind() == io::ErrorKind::PermissionDenied => {
                self.io(format!("run as {account}, who may not enter {}", at.display()), error)
            }
            _ => self.io(format!("run {}", program.display()), error),
        }
    }

    async fn wait_until_ready(&mut self) -> Result<(), ServerError> {
        let mut door = tokio_postgres::Config::new();
        door.host_path(&self.socket_dir)
            .port(self.port)
            .user("postgres")
            .dbname("postgres")
            .connect_timeout(KNOCK);
        let begun = Instant::now();
        let mut step = None;
        loop {
            let last = match timeout(KNOCK, door.connect(NoTls)).await {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => error
                    .as_db_error()
                    .map_or_else(|| error.to_string(), |answer| answer.message().to_owned()),
                Err(_) => "no answer".to_owned(),
            };
            let process = self.process.as_mut().expect("it was spawned before the wait");
            if let Ok(status) = timeout(PAUSE, process.wait()).await {
                self.process = None;
                let ending = Ending { status: status.ok(), last_words: self.output.last_words() };
                let (name, log) = (self.name.clone(), self.output.path().to_owned());
                return Err(ServerError::Ended { name, ending, log });
            }
            if begun.elapsed() > START {
                let (name, log) = (self.name.clone(), self.output.path().to_owned());
                return Err(ServerError::Silent { name, last, log });
            }
            if begun.elapsed() > PATIENCE && step.is_none() {
                step = Some(self.site.progress.step(format!("waiting for {}: {last}", self.name)));
            }
        }
    }

    fn io(&self, doing: String, error: io::Error) -> ServerError {
        ServerError::Io { name: self.name.clone(), doing, error }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Whoever gives a running server up cannot wait for it, but leaves it on its way out.
        if let Some(pid) = self.process_id().and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, Signal::INT);
        }
    }
}
