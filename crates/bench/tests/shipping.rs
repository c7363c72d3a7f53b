//! The schedulers that ship statements, on real servers: what clients saw could be one PostgreSQL's, for each of the five;
//! and without its locks none of it could. One cluster serves them all, one after the other.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A node over the servers of a folder, which is stopped when it is dropped.
struct Node(Child);

impl Node {
    fn start(onecopy: &Path, data: &Path, port: u16, protocol: &str, rule_off: &str) -> Self {
        let mut child = Command::new(onecopy)
            .args(["up", "--replicas", "3", "--port", &port.to_string(), "--protocol", protocol, "--data"])
            .arg(data)
            .env("ONECOPY_TEST_RULE_OFF", rule_off)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("onecopy was built");
        let said = child.stdout.take().expect("it is piped");
        let node = Self(child);
        let is_ready =
            BufReader::new(said).lines().map_while(Result::ok).any(|line| line.contains("psql -h"));
        assert!(is_ready, "{protocol} does not serve");
        node
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw).expect("a process has a number");
        kill_process(pid, Signal::TERM).expect("it runs");
        self.0.wait().expect("it can be waited for");
    }
}

/// A folder that is removed.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn judge(port: u16, protocol: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_onecopy-bench"))
        .args(["check-live", "--seconds", "2", "--protocol", protocol, "--port", &port.to_string()])
        .output()
        .expect("the program is built for the test")
}

#[test]
fn a_history_could_be_that_of_one_server() {
    let built = Command::new(env!("CARGO")).args(["build", "--quiet", "--package", "onecopy"]).status();
    assert!(built.expect("cargo runs").success(), "onecopy is built");
    let programs = Path::new(env!("CARGO_BIN_EXE_onecopy-bench")).parent().expect("it is in a folder");
    let onecopy = programs.join("onecopy");
    let folder = Folder(std::env::temp_dir().join(format!("onecopy-shipping-{}", std::process::id())));
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("there is a free port");
    let port = listener.local_addr().expect("it has an address").port();
    drop(listener);
    for protocol in ["eager", "fr-l", "fr-c", "vr-l", "conflict-aware"] {
        let _node = Node::start(&onecopy, &folder.0, port, protocol, "");
        let output = judge(port, protocol);
        let said = [output.stdout, output.stderr].concat();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&said));
    }
    let _node = Node::start(&onecopy, &folder.0, port, "conflict-aware", "locks_wait");
    let output = judge(port, "conflict-aware");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(
        !output.status.success() && said.contains("WRONG"),
        "locks that do not wait are not noticed: {said}"
    );
}
