//! Servers that outlived the node that started them.
//!
//! When a node is killed, its PostgreSQL servers go on; when a postmaster is killed, its backends may go on. Both still use
//! the files, and such a backend could still commit. So they must be gone before the files are used anew. They are recognised
//! by their program, `postgres` or `initdb`, and by their working folder, which is the data folder of the server for
//! postmaster, backends and initdb alike. The process number in `postmaster.pid` alone proves nothing, since numbers are
//! used again after a restart of the machine.
//!
//! Needs `/proc`, that is Linux. In a container root may not look at the working folders of other accounts' processes.
//! Then a process of the servers' account does it, which may look at its own.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;
use std::{fs, io};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tokio::time::{Instant, sleep};

use super::account::Account;

/// How long a postmaster may take to end its sessions and write out its pages.
const FAST: Duration = Duration::from_secs(30);
/// How long an immediate stop may take.
const IMMEDIATE: Duration = Duration::from_secs(10);
/// How long the system may take to clear a killed process away.
const KILLED: Duration = Duration::from_secs(10);
/// How often it is looked whether they are gone.
const PAUSE: Duration = Duration::from_millis(20);

const PROGRAMS: [&str; 2] = ["postgres", "initdb"];
const PID_FILE: &str = "postmaster.pid";
/// Its arguments are a folder and process numbers. It prints the numbers of processes with that working folder.
const ASK: &str = r#"data=$1; shift
for pid; do [ "$(cd -P "/proc/$pid/cwd" 2>/dev/null && pwd -P)" = "$data" ] && echo "$pid"; done; true"#;

/// Ends the processes that still run in the data folder of a server, gently first. Returns their number.
pub(crate) async fn end(data: &Path, account: &Account) -> io::Result<usize> {
    let found = running_in(data, account)?;
    if let Some(postmaster) = postmaster(data).filter(|pid| found.contains(pid)) {
        signal(postmaster, Signal::INT);
        if !gone(data, account, FAST).await? {
            signal(postmaster, Signal::QUIT);
            gone(data, account, IMMEDIATE).await?;
        }
    }
    let deadline = Instant::now() + KILLED;
    loop {
        let rest = running_in(data, account)?;
        if rest.is_empty() {
            break;
        }
        if Instant::now() > deadline {
            return Err(io::Error::other(format!("process {} does not end", rest[0].as_raw_nonzero())));
        }
        for pid in rest {
            signal(pid, Signal::KILL);
        }
        sleep(PAUSE).await;
    }
    forget_stale_number(data)?;
    Ok(found.len())
}

/// Removes a `postmaster.pid` if another program has its number by now: PostgreSQL would take that program for its
/// predecessor and refuse to start. PostgreSQL handles all other leftover files itself.
fn forget_stale_number(data: &Path) -> io::Result<()> {
    match postmaster(data) {
        Some(pid) if test_kill_process(pid).is_ok() => fs::remove_file(data.join(PID_FILE)),
        _ => Ok(()),
    }
}

/// The process number in `postmaster.pid`.
fn postmaster(data: &Path) -> Option<Pid> {
    let text = fs::read_to_string(data.join(PID_FILE)).ok()?;
    process(text.lines().next()?)
}

/// A process number. The file of a server without sessions, as initdb runs it, has a negative one.
fn process(text: &str) -> Option<Pid> {
    text.trim().parse().ok().filter(|&number: &i32| number > 0).and_then(Pid::from_raw)
}

/// Kills whatever still runs in the data folder of a server that is being made, without ceremony: there is nothing in
/// it yet. Blocks for as long as that takes.
pub(crate) fn kill(data: &Path, account: &Account) -> io::Result<()> {
    let deadline = std::time::Instant::now() + KILLED;
    loop {
        let rest = running_in(data, account)?;
        if rest.is_empty() || std::time::Instant::now() > deadline {
            return Ok(());
        }
        for pid in rest {
            signal(pid, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The processes of PostgreSQL with the working folder `data`.
fn running_in(data: &Path, account: &Account) -> io::Result<Vec<Pid>> {
    let Ok(data) = fs::canonicalize(data) else { return Ok(Vec::new()) };
    let (mut found, mut unclear) = (Vec::new(), Vec::new());
    for entry in fs::read_dir("/proc")? {
        // A process may end while we look at it: then it is none of ours any more.
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(process) else { continue };
        let name = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        if !PROGRAMS.contains(&name.trim_end()) {
            continue;
        }
        match fs::read_link(entry.path().join("cwd")) {
            Ok(folder) if folder == data => found.push(pid),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => unclear.push(pid),
            _ => {}
        }
    }
    if !unclear.is_empty() && matches!(account, Account::Other { .. }) {
        found.extend(ask(&data, &unclear, account)?);
    }
    Ok(found)
}

/// Those of the processes that the account sees in the folder.
fn ask(data: &Path, unclear: &[Pid], account: &Account) -> io::Result<Vec<Pid>> {
    let output = account
        .command(Path::new("/bin/sh"), Path::new("/"))
        .args(["-c", ASK, "sh"])
        .arg(data)
        .args(unclear.iter().map(|pid| pid.as_raw_nonzero().to_string()))
        .stdin(Stdio::null())
        .output()?;
    let told = String::from_utf8_lossy(&output.stdout);
    Ok(told.lines().filter_map(process).collect())
}

async fn gone(data: &Path, account: &Account, patience: Duration) -> io::Result<bool> {
    let deadline = Instant::now() + patience;
    while !running_in(data, account)?.is_empty() {
        if Instant::now() > deadline {
            return Ok(false);
        }
        sleep(PAUSE).await;
    }
    Ok(true)
}

fn signal(pid: Pid, signal: Signal) {
    // It fails only when the process is gone already, which is what we want.
    let _ = kill_process(pid, signal);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[tokio::test]
    async fn a_number_of_another_program_is_forgotten_and_a_dead_one_left() {
        let scratch = Scratch::new();
        let file = scratch.path().join(PID_FILE);
        // Our own number: alive, and not a PostgreSQL in that folder.
        fs::write(&file, format!("{}\n/somewhere\n", std::process::id())).unwrap();
        assert_eq!(end(scratch.path(), &Account::Own).await.unwrap(), 0);
        assert!(!file.exists());

        let mut child = std::process::Command::new("true").spawn().unwrap();
        let number = child.id();
        child.wait().unwrap();
        fs::write(&file, format!("{number}\n")).unwrap();
        assert_eq!(end(scratch.path(), &Account::Own).await.unwrap(), 0);
        assert!(file.exists());

        for odd in ["not a number", "", "-17", "0", "99999999999"] {
            fs::write(&file, odd).unwrap();
            assert_eq!(end(scratch.path(), &Account::Own).await.unwrap(), 0);
            assert!(file.exists(), "{odd:?}");
        }
    }

    #[tokio::test]
    async fn other_programs_in_the_folder_are_left_alone() {
        let scratch = Scratch::new();
        let mut child =
            std::process::Command::new("sleep").arg("60").current_dir(scratch.path()).spawn().unwrap();
        assert_eq!(end(scratch.path(), &Account::Own).await.unwrap(), 0);
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[tokio::test]
    async fn a_missing_folder_has_no_processes() {
        assert_eq!(end(Path::new("/nonexistent/onecopy"), &Account::Own).await.unwrap(), 0);
    }
}
