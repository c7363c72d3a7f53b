//! Members of etcd for tests: started on free ports of the loopback, killed by their process ids when the value is dropped.
//!
//! `scripts/etcd` builds the program. A test that needs it fails with a sentence that says so, instead of passing unseen:
//!
//! ```no_run
//! let etcd = etcdserver::Etcd::start(3);
//! println!("{:?}", etcd.urls());
//! etcd.kill(0); // kill -9
//! etcd.restart(0);
//! ```
//!
//! Invariant: a member keeps its data, its name and its ports over [`Etcd::kill`] and [`Etcd::restart`].
//!
//! Not here: what is written to etcd.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Names the program, if it is not the one that `scripts/etcd` has built.
const PROGRAM_VARIABLE: &str = "ONECOPY_TEST_ETCD";
/// How long a member may take to start. Only a test that fails waits for it.
const PATIENCE: Duration = Duration::from_mins(1);
const PAUSE: Duration = Duration::from_millis(20);
/// How often a start is tried with other ports, because another process took one meanwhile.
const ATTEMPTS: u32 = 5;
/// Asks a member for its own number and the leader's.
const STATUS: &str =
    "POST /v3/maintenance/status HTTP/1.0\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}";
/// Quick elections, so that a test that kills the leader is short.
const HEARTBEAT_MS: u32 = 50;
const ELECTION_MS: u32 = 500;

/// The members of one etcd.
#[derive(Debug)]
pub struct Etcd {
    folder: PathBuf,
    options: Vec<String>,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    client: u16,
    peer: u16,
    process: Mutex<Option<Child>>,
}

impl Etcd {
    /// Starts so many members, and waits until they are a cluster.
    #[must_use]
    pub fn start(members: usize) -> Self {
        Self::start_with(members, &[])
    }

    /// The same with further options for each member.
    #[must_use]
    pub fn start_with(members: usize, options: &[&str]) -> Self {
        for _ in 0..ATTEMPTS {
            let etcd = Self::on_free_ports(members, options);
            (0..members).for_each(|member| etcd.spawn(member));
            if (0..members).all(|member| etcd.becomes_healthy(member)) {
                return etcd;
            }
        }
        panic!("etcd does not start, after {ATTEMPTS} attempts")
    }

    fn on_free_ports(members: usize, options: &[&str]) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("onecopy-etcd-{}-{n}", std::process::id()));
        fs::create_dir(&folder).expect("the folder of a test can be made");
        // All are bound before the first is released, so no two are the same.
        let bound: Vec<TcpListener> = (0..2 * members)
            .map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free"))
            .collect();
        let port =
            |listener: &TcpListener| listener.local_addr().expect("a bound listener has an address").port();
        let members = bound
            .chunks(2)
            .map(|pair| Member { client: port(&pair[0]), peer: port(&pair[1]), process: Mutex::new(None) })
            .collect();
        Self { folder, options: options.iter().map(|&option| option.to_owned()).collect(), members }
    }

    /// The addresses for clients, in the order of the members.
    pub fn urls(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("http://127.0.0.1:{}", member.client)).collect()
    }

    /// The ports for clients, in the order of the members.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.members.iter().map(|member| member.client)
    }

    /// The member that leads, if one says so of itself.
    pub fn leader(&self) -> Option<usize> {
        self.members.iter().position(|member| {
            let status = ask(member.client, STATUS).unwrap_or_default();
            let number = |name: &str| {
                let (_, rest) = status.split_once(&format!("\"{name}\":\""))?;
                rest.split_once('"').map(|(number, _)| number.to_owned())
            };
            number("leader").is_some_and(|leader| leader != "0" && Some(leader) == number("member_id"))
        })
    }

    /// The process id of a member that runs.
    pub fn pid(&self, member: usize) -> Option<u32> {
        self.process(member).as_ref().map(Child::id)
    }

    /// Ends a member with kill -9.
    pub fn kill(&self, member: usize) {
        if let Some(mut process) = self.process(member).take() {
            // It may have ended by itself.
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops a member without ending it (SIGSTOP), or lets it go on.
    pub fn freeze(&self, member: usize, is_frozen: bool) {
        let signal = if is_frozen { Signal::STOP } else { Signal::CONT };
        if let Some(pid) = self.pid(member).and_then(|pid| Pid::from_raw(pid.cast_signed())) {
            kill_process(pid, signal).expect("a member that runs takes signals");
        }
    }

    /// Starts a killed member again, with its data.
    pub fn restart(&self, member: usize) {
        self.spawn(member);
        assert!(self.becomes_healthy(member), "member {member} of etcd comes back; {}", self.said(member));
    }

    /// Starts all killed members again; alone, one might not find a majority.
    pub fn restart_all(&self) {
        let gone: Vec<usize> = (0..self.members.len()).filter(|&member| self.pid(member).is_none()).collect();
        for &member in &gone {
            self.spawn(member);
        }
        for member in gone {
            assert!(
                self.becomes_healthy(member),
                "member {member} of etcd comes back; {}",
                self.said(member)
            );
        }
    }

    fn process(&self, member: usize) -> MutexGuard<'_, Option<Child>> {
        self.members[member].process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn spawn(&self, member: usize) {
        let Member { client, peer, .. } = self.members[member];
        let (client, peer) = (format!("http://127.0.0.1:{client}"), format!("http://127.0.0.1:{peer}"));
        let all: Vec<String> = (self.members.iter().enumerate())
            .map(|(n, member)| format!("m{n}=http://127.0.0.1:{}", member.peer))
            .collect();
        let said = File::options().create(true).append(true).open(self.log(member));
        let said = said.expect("the log of a member can be written");
        let child = Command::new(program())
            .args(["--name", &format!("m{member}"), "--data-dir"])
            .arg(self.folder.join(format!("m{member}")))
            .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
            .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &all.join(","), "--initial-cluster-state", "new"])
            .args(["--heartbeat-interval", &HEARTBEAT_MS.to_string()])
            .args(["--election-timeout", &ELECTION_MS.to_string()])
            .args(["--log-level", "warn"])
            .args(&self.options)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(said)
            .spawn()
            .expect("etcd can be run");
        *self.process(member) = Some(child);
    }

    /// Waits for the member; false if it has ended instead.
    fn becomes_healthy(&self, member: usize) -> bool {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let has_ended = match self.process(member).as_mut() {
                Some(process) => process.try_wait().expect("a child can be asked").is_some(),
                None => true,
            };
            if has_ended {
                return false;
            }
            if is_healthy(self.members[member].client) {
                return true;
            }
            thread::sleep(PAUSE);
        }
        false
    }

    fn log(&self, member: usize) -> PathBuf {
        self.folder.join(format!("m{member}.log"))
    }

    fn said(&self, member: usize) -> String {
        fs::read_to_string(self.log(member)).unwrap_or_default()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|member| self.kill(member));
        // A temporary folder that stays is no reason to fail.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Whether the member says that a majority of the members has a leader.
fn is_healthy(port: u16) -> bool {
    ask(port, "GET /health HTTP/1.0\r\n\r\n").is_some_and(|answer| answer.contains("\"true\""))
}

/// The answer to a request over a connection of its own.
fn ask(port: u16, request: &str) -> Option<String> {
    let mut stream = TcpStream::connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// The program of etcd.
fn program() -> PathBuf {
    if let Some(path) = std::env::var_os(PROGRAM_VARIABLE) {
        return path.into();
    }
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| repository.join("target"), PathBuf::from);
    let path = target.join("etcd/etcd");
    assert!(
        path.is_file(),
        "{} is missing; run scripts/etcd, or name another etcd by {PROGRAM_VARIABLE}",
        path.display()
    );
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_back_and_nothing_stays() {
        let etcd = Etcd::start(1);
        let folder = etcd.folder.clone();
        assert_eq!(etcd.leader(), Some(0));
        etcd.kill(0);
        assert!(!is_healthy(etcd.members[0].client));
        etcd.restart(0);
        let pid = etcd.pid(0).unwrap();
        drop(etcd);
        assert!(!folder.exists());
        assert!(rustix::process::test_kill_process(Pid::from_raw(pid.cast_signed()).unwrap()).is_err());
    }
}
