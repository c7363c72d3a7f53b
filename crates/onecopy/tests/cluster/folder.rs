//! A temporary folder, and the processes that live in it.
//!
//! Every process of a PostgreSQL server has its data folder as working directory, and the programs that create such a folder
//! have its path as an argument. A test finds its processes by that, whichever program started them. It cannot end a process
//! of another test, because no other folder has that name.

use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const ENDED_WITHIN: Duration = Duration::from_secs(30);

/// A new folder under the system's one for temporary things; gone when dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(purpose: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("onecopy-test-{}-{n}-{purpose}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        Self(path.canonicalize().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        end_processes_in(&self.0);
        if let Err(error) = std::fs::remove_dir_all(&self.0) {
            say(&format!("{} stays: {error}", self.0.display()));
        }
    }
}

/// Outside of the ports that systems give to clients, and clusters to their servers.
const PORTS: Range<u16> = 10_000..20_000;

/// A free TCP port of the loopback, another one at each call. It is not one that the system chooses: the system could give that
/// port to an outgoing connection as soon as it is free.
pub(crate) fn free_port() -> u16 {
    static NEXT: LazyLock<AtomicU32> =
        LazyLock::new(|| AtomicU32::new(getrandom::u32().expect("the system has random numbers")));
    let candidate = || PORTS.start + (NEXT.fetch_add(1, Ordering::Relaxed) % PORTS.len() as u32) as u16;
    let is_free = |port: &u16| TcpListener::bind(("127.0.0.1", *port)).is_ok();
    (0..PORTS.len()).map(|_| candidate()).find(is_free).expect("a port is free")
}

/// The user and group that PostgreSQL can run as, if we are root, which it refuses.
pub(crate) fn account() -> Option<(u32, u32)> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    let find = |name: &str| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    };
    find("postgres").or_else(|| find("nobody"))
}

/// Gives a folder to the account that servers run as.
pub(crate) fn give_away(path: &Path) {
    if let Some((user, group)) = account() {
        chown(path, Some(user), Some(group)).unwrap();
    }
}

/// The processes that work in the folder or below it, or were told of it when they were started.
pub(crate) fn processes_in(folder: &Path) -> Vec<i32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let process = |entry: std::io::Result<std::fs::DirEntry>| {
        let id: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
        let works_there =
            std::fs::read_link(format!("/proc/{id}/cwd")).is_ok_and(|home| home.starts_with(folder));
        let arguments = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        (works_there || names(&arguments, folder)).then_some(id)
    };
    entries.filter_map(process).filter(|id| *id != std::process::id().cast_signed()).collect()
}

/// Whether one of the arguments, each with a zero at its end, contains the path of the folder, or one below it.
fn names(arguments: &[u8], folder: &Path) -> bool {
    let path = folder.as_os_str().as_bytes();
    let found = |at: usize| matches!(arguments.get(at + path.len()), None | Some(0 | b'/' | b'"' | b'\''));
    arguments.windows(path.len()).enumerate().any(|(at, window)| window == path && found(at))
}

/// The process that a data folder's `postmaster.pid` names.
pub(crate) fn postmaster(data: &Path) -> Option<i32> {
    let text = std::fs::read_to_string(data.join("postmaster.pid")).ok()?;
    text.lines().next()?.trim().parse().ok()
}

pub(crate) fn pid(id: i32) -> Pid {
    Pid::from_raw(id).expect("no process has the id 0")
}

/// Signals a process; a process that has ended already is no failure.
pub(crate) fn kill(id: i32, signal: Signal) {
    let _ = kill_process(pid(id), signal);
}

/// Ends the processes of the folder and waits for their end.
pub(crate) fn end_processes_in(folder: &Path) {
    let deadline = Instant::now() + ENDED_WITHIN;
    loop {
        let processes = processes_in(folder);
        if processes.is_empty() || Instant::now() > deadline {
            break;
        }
        for process in processes {
            kill(process, Signal::KILL);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prints a line beside the test's outcome.
#[allow(clippy::print_stderr, reason = "a test talks to the person who runs it")]
pub(crate) fn say(text: &str) {
    eprintln!("{text}");
}
