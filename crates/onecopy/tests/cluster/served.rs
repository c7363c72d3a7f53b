//! `onecopy serve` in front of servers that the test has made.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process};

use super::folder::{self, Folder};
use super::plain::Plain;
use super::{connect, programs};

/// No step takes longer.
pub(crate) const WITHIN: Duration = Duration::from_mins(2);

/// A folder with a configuration over these servers.
pub(crate) struct Setup {
    pub(crate) folder: Folder,
    pub(crate) port: u16,
}

impl Setup {
    /// Servers, and more lines of configuration.
    pub(crate) fn new(servers: &[&Plain], more: &str) -> Self {
        let setup = Self { folder: Folder::new("serve"), port: folder::free_port() };
        let ports: Vec<u16> = servers.iter().map(|server| server.port).collect();
        setup.write(&ports, more);
        setup
    }

    /// Writes the configuration. Local clients are trusted, unless `more` has other rules.
    pub(crate) fn write(&self, servers: &[u16], more: &str) {
        let trust = if more.contains("hba") { "" } else { "hba = \"host all all 127.0.0.1/32 trust\"" };
        let urls: Vec<String> = servers.iter().map(|port| format!("postgresql://127.0.0.1:{port}")).collect();
        self.write_urls(&urls, &format!("{more}\n{trust}"));
    }

    /// The same, with these URLs and no rules but those in `more`.
    pub(crate) fn write_urls(&self, urls: &[String], more: &str) {
        let patience = if more.contains("start_patience") { "" } else { "start_patience = \"2s\"\n" };
        let health = if more.contains("health_deadline") { "" } else { "health_deadline = \"60s\"" };
        let mut text = format!(
            "listen = \"127.0.0.1:{}\"\ndata = \"{}\"\n{patience}{more}\n{health}\n",
            self.port,
            self.folder.path().join("data").display()
        );
        for url in urls {
            text.push_str(&format!("[[replica]]\nurl = \"{url}\"\n"));
        }
        std::fs::write(self.file(), text).unwrap();
    }

    /// The file.
    pub(crate) fn file(&self) -> String {
        self.folder.path().join("onecopy.toml").display().to_string()
    }

    /// Starts a node, and waits until a client is let in.
    pub(crate) async fn serve(&self, environment: &[(&str, &str)]) -> Node {
        // A full pipe without a reader would block the node.
        let path = self.folder.path().join("said");
        let file = File::options().create(true).append(true).open(&path).unwrap();
        let mut node = self.spawn(environment, Stdio::from(file));
        node.said = Some(path);
        self.await_service(node).await
    }

    /// Starts a node with its output there. Does not wait until it accepts clients.
    pub(crate) fn spawn(&self, environment: &[(&str, &str)], stderr: Stdio) -> Node {
        let mut command = Command::new(env!("CARGO_BIN_EXE_onecopy"));
        command.args(["serve", "--config", &self.file()]).envs(environment.iter().copied());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr).spawn().unwrap();
        Node { child, said: None }
    }

    /// Starts a node with its output there, and waits until it accepts a client.
    pub(crate) async fn serve_and_say(&self, environment: &[(&str, &str)], stderr: Stdio) -> Node {
        self.await_service(self.spawn(environment, stderr)).await
    }

    async fn await_service(&self, mut node: Node) -> Node {
        let deadline = Instant::now() + WITHIN;
        // A node that asks for a password serves, too.
        while connect("127.0.0.1", self.port, "postgres").await.is_err_and(|error| !is_about_log_in(&error)) {
            let ended = node.child.try_wait().unwrap().is_some();
            assert!(!ended && Instant::now() < deadline, "it does not serve: {}", node.words());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        node
    }

    /// Starts a node that cannot serve; returns its output.
    pub(crate) async fn refused(&self) -> String {
        let output = programs::onecopy(&["serve", "--config", &self.file()]).await;
        assert!(!output.status.success(), "{}", programs::text(&output));
        programs::text(&output)
    }
}

/// A node that runs.
pub(crate) struct Node {
    child: Child,
    /// The file of its output, if there is one.
    said: Option<PathBuf>,
}

impl Node {
    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(folder::pid(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Stops it as a service manager does.
    pub(crate) fn stop(mut self) {
        self.signal(Signal::TERM);
        let status = self.ended();
        assert!(status.success(), "{status}: {}", self.words());
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let deadline = Instant::now() + WITHIN;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not stop");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Its output, if it is captured.
    pub(crate) fn stderr(&mut self) -> ChildStderr {
        self.child.stderr.take().unwrap()
    }

    /// Its output, once it has ended.
    fn words(&mut self) -> String {
        drop(self.child.kill());
        let mut text = String::new();
        self.child.stderr.take().map(|mut from| from.read_to_string(&mut text));
        self.said.as_ref().map_or(text, |path| std::fs::read_to_string(path).unwrap_or_default())
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Whether a node was there that rejected the client.
fn is_about_log_in(error: &tokio_postgres::Error) -> bool {
    format!("{error:?}").contains("password missing")
        || error.code().is_some_and(|code| code.code().starts_with("28"))
}
