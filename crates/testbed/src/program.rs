//! Programs that we start: servers that stay until they are dropped, and errands that are waited for.
//!
//! Each runs in a process group of its own, so that a Ctrl-C on our terminal reaches only us and we can take things
//! down in order. What a program says goes to a file: nothing can block it, and the end of the file explains a failure.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};

use crate::fault::Fault;
use crate::interrupt::Interrupt;

/// How often it is looked whether a program has ended.
const LOOK: Duration = Duration::from_millis(20);
/// How much of what a program said goes into a fault.
const LAST_LINES: usize = 12;
/// Variables of the caller that would change what the programs of PostgreSQL do.
const UNWANTED: [&str; 10] = [
    "PGDATA",
    "PGPORT",
    "PGHOST",
    "PGHOSTADDR",
    "PGUSER",
    "PGDATABASE",
    "PGOPTIONS",
    "PGSERVICE",
    "PGPASSFILE",
    "PGCLIENTENCODING",
];

/// A command free of what the caller's environment would change.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("LC_ALL", "C").stdin(Stdio::null()).process_group(0);
    for name in UNWANTED {
        command.env_remove(name);
    }
    command
}

/// A server of ours; dropping it stops it.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
    stop: Signal,
    patience: Duration,
}

impl Program {
    /// Starts it. `stop` is the signal on which it ends in good order, within `patience`.
    pub fn start(
        name: &'static str,
        command: &mut Command,
        log: PathBuf,
        stop: Signal,
        patience: Duration,
    ) -> Result<Self, Fault> {
        Ok(Self { name, child: spawn(name, command, &log)?, log, stop, patience })
    }

    /// Its process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A fault when it has ended.
    pub fn check(&mut self) -> Result<(), Fault> {
        match self.child.try_wait() {
            Ok(None) => Ok(()),
            Ok(Some(status)) => Err(self.fault(format!("ended ({status})"))),
            Err(error) => Err(Fault::System { doing: format!("wait for {}", self.name), error }),
        }
    }

    /// Waits until `ready`.
    pub fn wait_until(
        &mut self,
        limit: Duration,
        interrupt: &Interrupt,
        mut ready: impl FnMut() -> Result<bool, Fault>,
    ) -> Result<(), Fault> {
        let end = Instant::now() + limit;
        while !ready()? {
            self.check()?;
            if Instant::now() > end {
                return Err(self.fault(format!("is not ready after {} s", limit.as_secs())));
            }
            interrupt.pause(LOOK)?;
        }
        Ok(())
    }

    fn fault(&self, what: String) -> Fault {
        Fault::Program { name: self.name.to_owned(), what, said: last_lines(&self.log) }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The signal is not sent when the process is gone already, because then it was waited for in `ended`.
        if ended(&mut self.child) {
            return;
        }
        let _ = kill_process(Pid::from_child(&self.child), self.stop);
        let end = Instant::now() + self.patience;
        while Instant::now() < end {
            if ended(&mut self.child) {
                return;
            }
            thread::sleep(LOOK);
        }
        // It does not stop properly, so it is killed. A failure of that cannot be reported.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a program to its successful end; what it said.
pub fn run(name: &str, command: &mut Command, log: &Path, interrupt: &Interrupt) -> Result<String, Fault> {
    let mut child = spawn(name, command, log)?;
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) => {}
            Err(error) => return Err(Fault::System { doing: format!("wait for {name}"), error }),
        }
        if let Err(fault) = interrupt.pause(LOOK) {
            // It may have ended by itself just now, which is what we want.
            let _ = child.kill();
            let _ = child.wait();
            return Err(fault);
        }
    };
    if status.success() {
        return fs::read_to_string(log).map_err(Fault::system(format!("read what {name} said")));
    }
    let what = format!("failed ({status})");
    Err(Fault::Program { name: name.to_owned(), what, said: last_lines(log) })
}

fn spawn(name: &str, command: &mut Command, log: &Path) -> Result<Child, Fault> {
    let open = || {
        let file = File::create(log)?;
        Ok((file.try_clone()?, file))
    };
    let (output, errors) = open().map_err(Fault::system(format!("write {}", log.display())))?;
    command.stdout(output).stderr(errors).spawn().map_err(Fault::system(format!("run {name}")))
}

fn ended(child: &mut Child) -> bool {
    matches!(child.try_wait(), Ok(Some(_)))
}

fn last_lines(log: &Path) -> String {
    let Ok(bytes) = fs::read(log) else { return String::new() };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn errands_and_servers() {
        let scratch = Scratch::new().unwrap();
        let (log, interrupt) = (scratch.path("log"), Interrupt::default());
        let said = run("echo", command("echo").arg("hello"), &log, &interrupt).unwrap();
        assert_eq!(said, "hello\n");
        let fault = run("sh", command("sh").args(["-c", "echo no >&2; exit 3"]), &log, &interrupt);
        assert!(matches!(fault, Err(Fault::Program { said, .. }) if said == "no"));

        let patience = Duration::from_secs(10);
        let mut sleeper = command("sleep");
        let mut server =
            Program::start("sleep", sleeper.arg("1000"), log.clone(), Signal::TERM, patience).unwrap();
        server.check().unwrap();
        let pid = Pid::from_child(&server.child);
        drop(server);
        assert!(kill_process(pid, Signal::CONT).is_err(), "it still runs");

        let mut short = Program::start("true", &mut command("true"), log, Signal::TERM, patience).unwrap();
        let fault = short.wait_until(patience, &interrupt, || Ok(false));
        assert!(matches!(fault, Err(Fault::Program { what, .. }) if what.contains("ended")));
    }
}
