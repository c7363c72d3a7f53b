//! The programs of PostgreSQL, and onecopy's own commands, run to their end.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

/// No program of a test runs longer.
const ENDS_WITHIN: Duration = Duration::from_mins(2);

/// The folder with PostgreSQL's programs: named by the environment, or the newest installed.
pub(crate) fn pg_bin() -> PathBuf {
    if let Some(folder) = std::env::var_os("ONECOPY_TEST_PG_BIN") {
        return folder.into();
    }
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().filter_map(Result::ok);
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path().join("bin"))))
        .filter(|(version, folder)| (14..=18).contains(version) && folder.join("postgres").exists())
        .collect();
    found.sort();
    let on_path = || {
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path).find(|folder| folder.join("postgres").exists())
    };
    found.pop().map(|(_, folder)| folder).or_else(on_path).expect("PostgreSQL 14-18 is installed")
}

/// A program of PostgreSQL's: from its folder, or else from the path.
pub(crate) fn program(name: &str) -> PathBuf {
    let beside = pg_bin().join(name);
    if beside.exists() { beside } else { Path::new(name).to_owned() }
}

/// Whether a client program is as new as the server; if not, says which part of the test is skipped.
pub(crate) fn is_new_enough(name: &str, else_left_out: &str) -> bool {
    let major = |path: PathBuf| {
        let output = std::process::Command::new(path).arg("--version").output().ok()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let number = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?;
        number.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u32>().ok()
    };
    let (ours, servers) = (major(program(name)), major(program("postgres")));
    let is_new_enough = ours.is_some() && ours >= servers;
    if !is_new_enough {
        super::folder::say(&format!(
            "skipped: {else_left_out}: {name} is of {ours:?}, the server of {servers:?}"
        ));
    }
    is_new_enough
}

/// A psql that reads no start-up file and asks nothing.
pub(crate) fn psql_command(port: u16) -> Command {
    let mut command = Command::new(program("psql"));
    command.args(["-X", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres", "-d", "postgres"]);
    command.env("LC_ALL", "C.UTF-8").env("PAGER", "cat").env_remove("PGOPTIONS");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// An interactive psql with a terminal of its own, whose keyboard is the standard input.
pub(crate) fn psql_at_terminal(port: u16) -> Command {
    let psql = program("psql");
    let line = format!("{} -X -n -h 127.0.0.1 -p {port} -U postgres -d postgres", psql.display());
    let mut command = Command::new("script");
    command.args(["-q", "-e", "-c", &line, "/dev/null"]).env("LC_ALL", "C.UTF-8").env("PAGER", "cat");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command
}

/// Runs a script through psql.
pub(crate) async fn psql(port: u16, script: &str) -> Output {
    let mut child = psql_command(port).spawn().expect("psql can be run");
    let mut input = child.stdin.take().expect("it is piped");
    let _ = input.write_all(script.as_bytes()).await;
    drop(input);
    finish("psql", child.wait_with_output()).await
}

/// Runs scripts through psql at both ports; the outputs must be identical.
pub(crate) async fn assert_same(ours: u16, theirs: u16, scripts: &[(&str, &str)]) {
    let mut different = Vec::new();
    for (name, script) in scripts {
        let (ours, theirs) = tokio::join!(psql(ours, script), psql(theirs, script));
        if text(&ours) != text(&theirs) {
            different.push(format!(
                "=== {name}\n--- onecopy:\n{}\n--- PostgreSQL:\n{}",
                text(&ours),
                text(&theirs)
            ));
        }
    }
    assert!(different.is_empty(), "{}", different.join("\n"));
}

/// Runs pgbench, which must not fail.
pub(crate) async fn pgbench(port: u16, arguments: &[&str]) -> String {
    let mut command = Command::new(program("pgbench"));
    command
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"])
        .args(arguments)
        .arg("postgres");
    let output = finish("pgbench", command.stdin(Stdio::null()).kill_on_drop(true).output()).await;
    assert!(output.status.success(), "pgbench {arguments:?}: {}", text(&output));
    text(&output)
}

/// The number that stands behind a title in pgbench's report.
fn reported(report: &str, title: &str) -> u64 {
    let line = report.lines().find_map(|line| line.strip_prefix(title)?.strip_prefix(": "));
    let line = line.unwrap_or_else(|| panic!("no `{title}` in:\n{report}"));
    let digits: String = line.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().unwrap_or_else(|_| panic!("no number behind `{title}` in:\n{report}"))
}

/// The number of transactions that pgbench says were done, none of which may have failed.
pub(crate) fn done_without_failure(report: &str) -> u64 {
    // Before version 15 pgbench had no retries and no such line; a client that failed was aborted.
    if report.contains("number of failed transactions") {
        assert_eq!(reported(report, "number of failed transactions"), 0, "{report}");
    }
    assert!(!report.contains("ERROR") && !report.contains("aborted"), "{report}");
    let done = reported(report, "number of transactions actually processed");
    assert!(done > 0, "{report}");
    done
}

/// Runs a command of onecopy.
pub(crate) async fn onecopy(arguments: &[&str]) -> Output {
    finish("onecopy", command(env!("CARGO_BIN_EXE_onecopy"), arguments).output()).await
}

/// A program that is given nothing to read, and ends with the test.
pub(crate) fn command(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// All that a program printed.
pub(crate) fn text(output: &Output) -> String {
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    format!("{} ({})\n{err}", out, output.status)
}

/// Waits for a program to end, but not for ever.
pub(crate) async fn finish(name: &str, end: impl Future<Output = std::io::Result<Output>>) -> Output {
    let output = tokio::time::timeout(ENDS_WITHIN, end).await;
    let output = output.unwrap_or_else(|_| panic!("{name} did not end within {ENDS_WITHIN:?}"));
    output.unwrap_or_else(|error| panic!("{name} cannot be run: {error}"))
}
