//! A process that `onecopy up` runs beside its PostgreSQL servers: a member of etcd, or a node.
//!
//! As a server does, it has a process group and a log file of its own, and goes on if `onecopy up` is killed. The next start on the same
//! folder ends it first. It recognises such a process by the program's first arguments, which hold a path in the data folder.
//!
//! Needs `/proc`, that is Linux.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use pgserver::{Ending, Output};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child as Process, Command};
use tokio::time::{Instant, sleep, timeout};

use super::error::NodesError;

/// How long a leftover may take to end by itself.
const LEFTOVER_STOP: Duration = Duration::from_secs(10);
/// How long a killed process may take to disappear.
const KILLED: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A program with its arguments.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub(super) program: PathBuf,
    /// The first arguments: no other process has them.
    pub(super) own: Vec<OsString>,
    pub(super) more: Vec<OsString>,
    /// Names of variables that it must not see begin so.
    pub(super) hidden: fn(&str) -> bool,
}

/// Where a process works, and where its output goes.
#[derive(Clone, Debug)]
pub(super) struct ChildPlace {
    pub(super) folder: PathBuf,
    pub(super) log: PathBuf,
}

/// A process that is restarted when it ends.
#[derive(Debug)]
pub(super) struct Child {
    pub(super) name: String,
    recipe: Recipe,
    folder: PathBuf,
    /// How long it may take to stop before it is killed.
    patience: Duration,
    output: Output,
    process: Option<Process>,
}

impl Child {
    /// A process that works in this folder. It is not started.
    pub(super) fn new(name: String, recipe: Recipe, at: ChildPlace, patience: Duration) -> Self {
        let ChildPlace { folder, log } = at;
        Self { name, recipe, folder, patience, output: Output::new(log), process: None }
    }

    pub(super) fn log(&self) -> PathBuf {
        self.output.path().to_owned()
    }

    /// Ends what an earlier `onecopy up` has left. Returns whether something was there.
    pub(super) async fn end_leftover(&self) -> Result<bool, NodesError> {
        let look = || self.leftovers().map_err(|source| self.file("look for processes of", source));
        let found = look()?;
        for (signal, patience) in [(Signal::TERM, LEFTOVER_STOP), (Signal::KILL, KILLED)] {
            look()?.into_iter().for_each(|pid| {
                // It may have ended meanwhile.
                let _ = kill_process(pid, signal);
            });
            let deadline = Instant::now() + patience;
            while !look()?.is_empty() && Instant::now() < deadline {
                sleep(PAUSE).await;
            }
        }
        if look()?.is_empty() {
            Ok(!found.is_empty())
        } else {
            Err(self.file("end the processes of", io::Error::other("they go on")))
        }
    }

    pub(super) fn spawn(&mut self) -> Result<(), NodesError> {
        let streams = self.output.open().and_then(|file| Ok((file.try_clone()?, file)));
        let (stdout, stderr) = streams.map_err(|source| NodesError::File {
            path: self.output.path().to_owned(),
            doing: "write",
            source,
        })?;
        let Recipe { program, own, more, hidden } = &self.recipe;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(hidden)) {
            command.env_remove(name);
        }
        let spawned = command
            .args(own)
            .args(more)
            .current_dir(&self.folder)
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(stdout)
            .stderr(stderr)
            .spawn();
        self.process = Some(spawned.map_err(|source| NodesError::NotRun {
            name: self.name.clone(),
            program: program.clone(),
            source,
        })?);
        Ok(())
    }

    /// Waits until the process ends. Never returns while there is none.
    pub(super) async fn exited(&mut self) -> Ending {
        let Some(process) = &mut self.process else { return std::future::pending().await };
        let ending = self.output.until_end(process, &self.name).await;
        self.process = None;
        ending
    }

    /// Asks the process to stop.
    pub(super) fn ask_to_stop(&self) {
        self.signal(Signal::TERM);
    }

    /// Waits until it has stopped, and kills it if that takes too long.
    pub(super) async fn stopped(&mut self) {
        let Some(process) = &mut self.process else { return };
        if timeout(self.patience, process.wait()).await.is_err() {
            tracing::warn!(child = self.name, "it does not stop, and is killed");
            // It may have ended meanwhile.
            let _ = process.start_kill();
            let _ = process.wait().await;
        }
        self.process = None;
    }

    fn signal(&self, signal: Signal) {
        // The number is that of our child until we have waited for it.
        let id = self.process.as_ref().and_then(Process::id);
        if let Some(pid) = id.and_then(|id| Pid::from_raw(id.cast_signed())) {
            let _ = kill_process(pid, signal);
        }
    }

    /// The processes that have its own arguments.
    fn leftovers(&self) -> io::Result<Vec<Pid>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            // A process may end while we look at it.
            let Ok(entry) = entry else { continue };
            let number = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok());
            let Some(pid) = number.and_then(Pid::from_raw) else { continue };
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            if begins_with(&line, &self.recipe.own) {
                found.push(pid);
            }
        }
        Ok(found)
    }

    fn file(&self, doing: &'static str, source: io::Error) -> NodesError {
        NodesError::File { path: self.folder.clone(), doing, source }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.ask_to_stop();
    }
}

/// Whether these are the first arguments of a process, behind its name.
fn begins_with(command_line: &[u8], own: &[OsString]) -> bool {
    let mut words = command_line.split(|byte| *byte == 0).skip(1);
    own.iter().all(|argument| words.next() == Some(argument.as_bytes()))
}

/// Makes a folder that only this account may enter, unless it is there.
pub(super) fn make_folder(path: &Path) -> Result<(), NodesError> {
    owner_only::make_folder(path).map_err(|source| NodesError::File {
        path: path.to_owned(),
        doing: "create",
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_process_with_all_of_its_own_arguments_is_its_leftover() {
        let own: Vec<OsString> = ["--data-dir", "/d/etcd/1"].map(Into::into).into();
        assert!(begins_with(b"/bin/etcd\0--data-dir\0/d/etcd/1\0--name\0m\0", &own));
        for other in ["etcd\0--data-dir\0/d/etcd/11\0", "vi\0/d/etcd/1\0", "etcd\0--data-dir", ""] {
            assert!(!begins_with(other.as_bytes(), &own), "{other:?}");
        }
    }
}
