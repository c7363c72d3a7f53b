//! A plain PostgreSQL to compare with.

use super::folder::{self, Folder};
use super::{connect, programs};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

const READY_WITHIN: Duration = Duration::from_mins(3);

/// A running server.
pub(crate) struct Plain {
    pub(crate) port: u16,
    child: Child,
    folder: Folder,
}

impl Plain {
    /// Makes and starts a server.
    pub(crate) async fn start() -> Self {
        let folder = Folder::new("plain");
        folder::give_away(folder.path());
        let data = folder.path().join("data");
        let made = as_account(Command::new(programs::program("initdb")))
            .args(["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "-D"])
            .arg(&data)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "initdb: {}", programs::text(&made));
        Self::run(folder).await
    }

    /// Stops the server as a crash would. Nothing listens on its port then.
    pub(crate) fn stop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        folder::end_processes_in(self.folder.path());
    }

    /// Starts it again on its port.
    pub(crate) async fn start_again(&mut self) {
        self.child = spawn(&self.folder, self.port);
        self.is_ready().await;
    }

    /// Makes and starts a copy of this server, as PostgreSQL's own program makes them.
    pub(crate) async fn copy(&self) -> Self {
        let folder = Folder::new("plain");
        folder::give_away(folder.path());
        let made = as_account(Command::new(programs::program("pg_basebackup")))
            .args(["-U", "postgres", "-h", "127.0.0.1", "--no-sync", "-c", "fast", "-p"])
            .args([&self.port.to_string(), "-D"])
            .arg(folder.path().join("data"))
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(made.status.success(), "pg_basebackup: {}", programs::text(&made));
        Self::run(folder).await
    }

    async fn run(folder: Folder) -> Self {
        let port = folder::free_port();
        let plain = Self { port, child: spawn(&folder, port), folder };
        plain.is_ready().await;
        plain
    }

    async fn is_ready(&self) {
        let deadline = Instant::now() + READY_WITHIN;
        while connect("127.0.0.1", self.port, "postgres").await.is_err() {
            assert!(Instant::now() < deadline, "the server beside does not start");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Its data folder.
    pub(crate) fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    pub(crate) async fn client(&self) -> Client {
        connect("127.0.0.1", self.port, "postgres").await.unwrap()
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        // The folder, dropped after this, ends the server's other processes.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn spawn(folder: &Folder, port: u16) -> Child {
    as_account(Command::new(programs::program("postgres")))
        .arg("-D")
        .arg(folder.path().join("data"))
        .args(["-p", &port.to_string(), "-c", "listen_addresses=127.0.0.1", "-c", "fsync=off", "-k"])
        .arg(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn as_account(mut command: Command) -> Command {
    if let Some((user, group)) = folder::account() {
        command.uid(user).gid(group);
    }
    command
}
