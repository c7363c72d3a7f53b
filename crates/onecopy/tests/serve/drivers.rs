//! Promise: applications get from Onecopy what they get from PostgreSQL with every driver: TLS, passwords, prepared
//! statements, transactions, errors, COPY, cancelled statements and pools.
//!
//! Each program of `tests/drivers` prints what it saw. The test skips a driver with a message if its language is not on this
//! machine. In CI a language without its driver is an error.

use std::path::{Path, PathBuf};
use std::time::Instant;

use tokio::process::Command;

use super::cluster::folder::{Folder, say};
use super::cluster::plain::Plain;
use super::cluster::programs;
use super::cluster::served::Setup;
use super::cluster::{connect, run, value};
use super::login::{PASSWORD, Servers, certify, encrypt};

/// The drivers that `scripts/drivers` fetches.
fn fetched() -> PathBuf {
    let program = std::env::current_exe().expect("a test is a file");
    let target = program.ancestors().nth(3).expect("tests lie in target/debug/deps");
    target.join("drivers")
}

/// A driver's application: its name, the program that its language needs, and how it is started.
fn applications() -> Vec<(&'static str, &'static str, Command)> {
    let (here, fetched) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drivers"), fetched());
    let python = |script: &str| {
        let mut command = Command::new(fetched.join("python/bin/python"));
        command.arg(here.join(script));
        command
    };
    let mut node = Command::new("node");
    node.arg(here.join("node_app.js"))
        .env("NODE_PATH", fetched.join("node/node_modules"))
        .env("NODE_NO_WARNINGS", "1");
    let mut jdbc = Command::new("java");
    jdbc.arg("-cp").arg(fetched.join("jdbc/postgresql-42.7.4.jar")).arg(here.join("Jdbc.java"));
    vec![
        ("psycopg", "python", python("psycopg_app.py")),
        ("asyncpg", "python", python("asyncpg_app.py")),
        ("node-postgres", "node", node),
        ("pgx", "pgx", Command::new(fetched.join("pgx/app"))),
        ("pgjdbc", "jdbc", jdbc),
    ]
}

/// Whether a driver can be tried. In CI only a language that is not there is an excuse.
fn is_there(driver: &str, package: &str) -> bool {
    if fetched().join(format!("{package}.done")).exists() {
        return true;
    }
    say(&format!("skipped: {driver}; scripts/drivers fetches it where its language is installed"));
    let language = ["python3", "npm", "go", "mvn"][["python", "node", "pgx", "jdbc"]
        .iter()
        .position(|name| *name == package)
        .expect("these are the packages")];
    let path = std::env::var_os("PATH").unwrap_or_default();
    let has_language = std::env::split_paths(&path).any(|folder| folder.join(language).is_file());
    assert!(std::env::var_os("CI").is_none() || !has_language, "{driver} was not fetched in CI");
    false
}

/// The output of an application.
async fn said(command: &mut Command, port: u16, root: &Path) -> String {
    command
        .envs([("PGHOST", "localhost"), ("PGUSER", "app"), ("PGDATABASE", "postgres"), ("LC_ALL", "C.UTF-8")])
        .envs([("PGPASSWORD", PASSWORD), ("PGSSLMODE", "verify-full"), ("HOME", "/nowhere")])
        .env("PGPORT", port.to_string())
        .env("PGSSLROOTCERT", root)
        .stdin(std::process::Stdio::null())
        .kill_on_drop(true);
    programs::text(&programs::finish("an application", command.output()).await)
}

#[tokio::test]
async fn applications_see_what_they_see_on_postgresql() {
    let servers = Servers::start().await;
    let plain = Plain::start().await;
    let beside = plain.client().await;
    run(&beside, "CREATE ROLE app LOGIN PASSWORD 'it''s a secret'; GRANT CREATE ON SCHEMA public TO app")
        .await;
    encrypt(&plain, &beside).await;
    let setup = Setup::new(&[], "");
    let shown = setup.folder.path().display();
    certify(setup.folder.path(), "node");
    let more = format!(
        "hba = [\"hostssl postgres app all scram-sha-256\", \"host all postgres 127.0.0.1/32 trust\"]\n\
         tls_certificate_file = \"{shown}/node.crt\"\ntls_key_file = \"{shown}/node.key\"\n{}",
        Servers::password_file(&setup)
    );
    setup.write_urls(&servers.urls(), &more);
    let node = setup.serve(&[]).await;
    let admin = connect("127.0.0.1", setup.port, "onecopy").await.unwrap();
    let work = Folder::new("drivers");
    let root = work.path().join("plain.crt");
    std::fs::copy(plain.data().join("server.crt"), &root).unwrap();
    let mut tried = 0;
    for (driver, package, mut command) in applications() {
        if !is_there(driver, package) {
            continue;
        }
        let begun = Instant::now();
        let ours = said(&mut command, setup.port, &setup.folder.path().join("node.crt")).await;
        let through = begun.elapsed();
        let begun = Instant::now();
        let theirs = said(&mut command, plain.port, &root).await;
        say(&format!("{driver}: {through:.1?}, directly {:.1?}", begun.elapsed()));
        assert!(theirs.contains("exit status: 0"), "{driver} on PostgreSQL:\n{theirs}");
        assert_eq!(ours, theirs, "{driver}");
        tried += 1;
    }
    say(&format!("{tried} drivers see the same"));
    assert_ne!(value(&admin, "VERIFY").await, "");
    node.stop();
}
