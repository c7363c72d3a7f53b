//! A PostgreSQL server for one test: created in a temporary folder, and removed with the value.

use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::backend::{Address, Connection, OwnConnection, Served};

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(super) struct Server {
    folder: PathBuf,
    account: Option<(u32, u32)>,
}

impl Server {
    pub(super) fn start() -> Self {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("onecopy-agent-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        // The server refuses to run as root.
        let account = if rustix::process::geteuid().is_root() { account() } else { None };
        if let Some((user, group)) = account {
            chown(&folder, Some(user), Some(group)).unwrap();
        }
        let server = Self { folder, account };
        server.run("initdb", &["-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "--no-sync"]);
        let settings = format!(
            "listen_addresses=''\nunix_socket_directories='{}'\nfsync=off\nmax_connections=30\njit=off\n",
            server.folder.display()
        );
        std::fs::write(server.data().join("postgresql.auto.conf"), settings).unwrap();
        server.run("pg_ctl", &["-w", "-l", server.folder.join("log").to_str().unwrap(), "start"]);
        server
    }

    /// Kills the server as a crash would, and starts it again.
    pub(super) fn crash(&self) {
        self.run("pg_ctl", &["-w", "-m", "immediate", "stop"]);
        self.run("pg_ctl", &["-w", "-l", self.folder.join("log").to_str().unwrap(), "start"]);
    }

    pub(super) fn address(&self) -> Address {
        Address::Unix { socket_dir: self.folder.clone(), port: 5432 }
    }

    pub(super) fn seal(&self) -> crate::security::seal::Seal {
        crate::security::seal::Seal::of(&commitlog::FileRegister::in_folder(&self.folder)).unwrap()
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) async fn connect(&self, options: &str) -> Connection {
        let parameters = [("user", "postgres"), ("database", "postgres"), ("options", options)];
        Connection::open(&self.address(), &crate::security::scram::Secret::None, &parameters).await.unwrap()
    }

    /// A connection of Onecopy's own.
    pub(super) async fn own(&self, options: &str) -> OwnConnection {
        let more = [("options", options)];
        OwnConnection::open(&self.address(), &Served::of_new_servers(), &more).await.unwrap()
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.output(program, arguments);
        assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn output(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(binaries().join(program));
        command.arg("-D").arg(self.data()).args(arguments).current_dir(&self.folder);
        // pg_ctl's child must not keep our pipes open.
        let (out, err) = (self.folder.join("out"), self.folder.join("err"));
        command.stdout(std::fs::File::create(&out).unwrap()).stderr(std::fs::File::create(&err).unwrap());
        if let Some((user, group)) = self.account {
            command.uid(user).gid(group);
        }
        let status = command.status().unwrap();
        Output { status, stdout: Vec::new(), stderr: std::fs::read(err).unwrap() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.output("pg_ctl", &["-w", "-m", "immediate", "stop"]);
        // A file that cannot be removed only fills the temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Uid and gid of an account that a server may run as.
fn account() -> Option<(u32, u32)> {
    let accounts = std::fs::read_to_string("/etc/passwd").unwrap();
    ["postgres", "nobody"].iter().find_map(|name| {
        let line = accounts.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2).map(|field| field.parse().ok());
        Some((fields.next()??, fields.next()??))
    })
}

/// The folder of the server's programs: from the environment, the newest one installed, or the PATH.
fn binaries() -> PathBuf {
    if let Some(folder) = std::env::var_os("ONECOPY_PG_BIN") {
        return folder.into();
    }
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let newest =
        installed.map(|entry| entry.path().join("bin")).filter(|bin| bin.join("initdb").exists()).max();
    newest.unwrap_or_else(|| Path::new("").to_owned())
}
