//! Promise: a client gets the messages that its transcript shows, in that order, with either pool mode.
//!
//! Each file of `transcripts/` is one case: the client's messages, and below them the server's. A test sends the former
//! and compares the latter. `UPDATE_GOLDEN=1` writes the server's messages anew; read the difference before you commit it.
//! `NAME.session.txt` is a case whose messages differ with shared connections; it runs without them alone.
//!
//! | line | meaning |
//! |---|---|
//! | `# text` | a comment |
//! | `setup SQL` | statements that run before, on a connection of their own; the line shows no answer |
//! | `a> Query "SELECT 1"` | connection `a` sends this message |
//! | `a+ Sync` | the same, in one packet with the line above |
//! | `a< ReadyForQuery Idle` | the answer: written and compared by the test |
//! | `a: until KIND` | read the answer up to a message of this kind. Without such a line: one ReadyForQuery for each Query and Sync of the packet |
//! | `a: waits` | read no answer yet; go on when the statement waits for a lock |
//! | `a: ends` | read the answer up to the end of the connection |
//! | `a: cancel` | send a cancel request for `a`, and wait until it was handled |
//! | `a: start NAME=VALUE ..` | connect with these parameters and show the answer; else a connection is made at its first line |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
#[path = "transcripts/notation.rs"]
mod notation;

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use cluster::raw::Raw;
use cluster::{Cluster, folder, run, script};
use wire::backend::{self, tag};
use wire::encode;

/// The pool mode that gives each session its own server connections.
const SESSION: &str = "session";
const WAITS_WITHIN: Duration = Duration::from_mins(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

#[tokio::test]
async fn with_connections_of_each_session() {
    let is_update = std::env::var_os("UPDATE_GOLDEN").is_some();
    for (path, golden, fresh) in played(SESSION).await {
        if is_update {
            std::fs::write(&path, &fresh).unwrap();
        } else {
            assert_same(&path, &golden, &fresh);
        }
    }
}

#[tokio::test]
async fn with_shared_connections() {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        return;
    }
    for (path, golden, fresh) in played("transaction").await {
        assert_same(&path, &golden, &fresh);
    }
}

/// All cases: path, text, and the text as it is now.
async fn played(pool_mode: &str) -> Vec<(PathBuf, String, String)> {
    let mut cluster = Cluster::start_as(2, &[], &["--pool-mode", pool_mode]).await;
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts");
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        let name = path.file_name().unwrap().to_string_lossy();
        name.ends_with(".txt") && (pool_mode == SESSION || !name.ends_with(".session.txt"))
    });
    paths.sort_unstable();
    let mut played = Vec::new();
    for path in paths {
        let golden = std::fs::read_to_string(&path).unwrap();
        let fresh = Player::new(&cluster, &path).play(&golden).await;
        played.push((path, golden, fresh));
    }
    cluster.verify().await;
    cluster.stop().await;
    played
}

/// The lines with the notices of each reply before the rest of it. Onecopy sends a notice ahead of its reply when the statement
/// takes longer than a pause (`client/notices.rs`), so on a slow machine notices come earlier than the golden file has them.
fn with_notices_first(transcript: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let (mut notices, mut rest) = (Vec::new(), Vec::new());
    for line in transcript.lines() {
        let is_received = line.as_bytes().get(1) == Some(&b'<');
        if is_received && line.contains("< NoticeResponse ") {
            notices.push(line);
        } else {
            rest.push(line);
        }
        if !is_received || line.contains("< ReadyForQuery ") {
            lines.append(&mut notices);
            lines.append(&mut rest);
        }
    }
    lines.extend(notices);
    lines.extend(rest);
    lines
}

fn assert_same(path: &Path, golden: &str, fresh: &str) {
    if with_notices_first(golden) == with_notices_first(fresh) {
        return;
    }
    for (number, (old, new)) in golden.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(old, new, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(golden.lines().count(), fresh.lines().count(), "{}: the number of lines", path.display());
}

#[test]
fn only_the_place_of_notices_may_differ() {
    let golden = "b< ParseComplete\nb< NoticeResponse S=NOTICE\nb< DataRow \"3\"\nb< ReadyForQuery Idle\n";
    let path = Path::new("golden");
    assert_same(
        path,
        golden,
        "b< NoticeResponse S=NOTICE\nb< ParseComplete\nb< DataRow \"3\"\nb< ReadyForQuery Idle\n",
    );
    let differs = |fresh: &str| std::panic::catch_unwind(|| assert_same(path, golden, fresh)).is_err();
    assert!(differs("b< ParseComplete\nb< DataRow \"3\"\nb< ReadyForQuery Idle\n"), "a notice is missing");
    assert!(differs(
        "b< DataRow \"3\"\nb< ParseComplete\nb< NoticeResponse S=NOTICE\nb< ReadyForQuery Idle\n"
    ));
}

/// One case while it runs.
struct Player<'a> {
    cluster: &'a Cluster,
    path: &'a Path,
    connections: BTreeMap<char, Connection>,
    names: notation::Names,
    /// The text as it is now.
    fresh: String,
}

struct Connection {
    raw: Raw,
    pid: i32,
    secret: Vec<u8>,
}

impl<'a> Player<'a> {
    fn new(cluster: &'a Cluster, path: &'a Path) -> Self {
        let (connections, names) = (BTreeMap::new(), notation::Names::new());
        Self { cluster, path, connections, names, fresh: String::new() }
    }

    async fn play(mut self, golden: &str) -> String {
        let lines: Vec<&str> = golden.lines().filter(|line| line.get(1..3) != Some("< ")).collect();
        let (mut packet, mut answers) = (Vec::new(), 0);
        for (index, line) in lines.iter().enumerate() {
            self.write(line);
            let next = lines.get(index + 1).copied().unwrap_or_default();
            if let Some(statements) = line.strip_prefix("setup ") {
                run(&self.cluster.client().await, statements).await;
            } else if let Some((name, message)) = addressed(line, "> ").or_else(|| addressed(line, "+ ")) {
                self.connect(name);
                answers += notation::encode(&mut packet, message);
                if addressed(next, "+ ").is_some() {
                    continue;
                }
                self.connection(name).raw.send(|out| out.append(&mut packet));
                let expected = std::mem::take(&mut answers);
                if addressed(next, ": ").is_none_or(|(of, _)| of != name) {
                    (0..expected).for_each(|_| self.read_until(name, "ReadyForQuery"));
                }
            } else if let Some((name, what)) = addressed(line, ": ") {
                self.follow(name, what).await;
            } else {
                assert!(line.is_empty() || line.starts_with('#'), "not understood: {line}");
            }
        }
        std::mem::take(&mut self.fresh)
    }

    /// Follows a line such as `a: until CopyInResponse`.
    async fn follow(&mut self, name: char, what: &str) {
        match what.split_once(' ').unwrap_or((what, "")) {
            ("until", kind) => self.read_until(name, kind),
            ("ends", "") => while self.read(name).is_some() {},
            ("waits", "") => self.something_waits().await,
            ("cancel", "") => self.cancel(name),
            ("start", parameters) => {
                let parameters: Vec<_> =
                    parameters.split(' ').map(|pair| pair.split_once('=').unwrap()).collect();
                let mut told = self.connect_as(name, &parameters);
                // The order of parameters is not the same in all releases: PostgreSQL 16 has another than 15.
                let first = told.iter().position(|(tag, _)| *tag == tag::PARAMETER_STATUS);
                let count = told.iter().filter(|(tag, _)| *tag == tag::PARAMETER_STATUS).count();
                told[first.unwrap_or_default()..][..count].sort_unstable();
                for (tag, body) in told {
                    self.show(name, tag, &body);
                }
            }
            _ => panic!("not understood: {what}"),
        }
    }

    fn connection(&mut self, name: char) -> &mut Connection {
        self.connections.get_mut(&name).expect("a line before has made the connection")
    }

    fn connect(&mut self, name: char) {
        if !self.connections.contains_key(&name) {
            self.connect_as(name, &[("user", "postgres"), ("database", "postgres")]);
        }
    }

    /// Makes a connection; the messages before ReadyForQuery.
    fn connect_as(&mut self, name: char, parameters: &[(&str, &str)]) -> Vec<(u8, Vec<u8>)> {
        let (raw, told) = Raw::connect_as(self.cluster.port, parameters);
        let key = told.iter().find(|(tag, _)| *tag == tag::BACKEND_KEY_DATA).expect("a key to cancel with");
        let (pid, secret) = backend::backend_key_data(&key.1).unwrap();
        self.names.insert(pid, name);
        self.connections.insert(name, Connection { raw, pid, secret: secret.to_vec() });
        told
    }

    fn read_until(&mut self, name: char, kind: &str) {
        loop {
            let line = self.read(name).unwrap_or_else(|| panic!("{name} ended before {kind}"));
            if line.split(' ').next() == Some(kind) {
                return;
            }
        }
    }

    /// Reads and writes the next message, unless the connection has ended; returns its line, which may be empty.
    fn read(&mut self, name: char) -> Option<String> {
        let (tag, body) = self.connection(name).raw.next_or_end()?;
        Some(self.show(name, tag, &body))
    }

    fn show(&mut self, name: char, tag: u8, body: &[u8]) -> String {
        let line = notation::decode(tag, body, &self.names);
        if let Some(line) = &line {
            self.write(&format!("{name}< {line}"));
        }
        line.unwrap_or_default()
    }

    fn write(&mut self, line: &str) {
        self.fresh.push_str(line);
        self.fresh.push('\n');
    }

    async fn something_waits(&self) {
        let deadline = Instant::now() + WAITS_WITHIN;
        while script::held_up(self.cluster.port).await == 0 {
            assert!(Instant::now() < deadline, "no statement waits");
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Sends a cancel request on a connection of its own, which ends when the request was handled.
    fn cancel(&mut self, name: char) {
        let mut request = Vec::new();
        let Connection { pid, secret, .. } = self.connection(name);
        encode::cancel_request(&mut request, *pid, secret);
        let mut stream = TcpStream::connect(("127.0.0.1", self.cluster.port)).unwrap();
        stream.write_all(&request).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "a cancel request is not answered");
    }
}

impl Drop for Player<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            folder::say(&format!("--- {} came to:\n{}---", self.path.display(), self.fresh));
        }
    }
}

/// The connection of a line, and the text after its mark, as in `a> Sync`.
fn addressed<'a>(line: &'a str, mark: &str) -> Option<(char, &'a str)> {
    let name = line.chars().next().filter(char::is_ascii_lowercase)?;
    Some((name, line[1..].strip_prefix(mark)?))
}
