//! Runs the test files of the workspace, three at a time.
//!
//! Most test files start servers and wait for them longer than they compute, so three at a time take less than cargo's one
//! after the other. The output of a file is printed when the file has ended. The run goes on after a failure and names
//! every file that failed at the end.
//!
//! Non-goal: choosing single tests; use `cargo test`.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::cargo;

/// How many files run at a time.
const AT_ONCE: usize = 3;

/// Where the tests of other crates look for `onecopy`.
const ONECOPY: &str = "ONECOPY_TEST_PROGRAM";

/// A test file, built by cargo.
struct Program {
    /// The folder of its crate; the program runs there.
    folder: PathBuf,
    /// The crate and the file.
    name: String,
    path: PathBuf,
}

/// What cargo has built.
struct Built {
    tests: VecDeque<Program>,
    /// The program that the tests of other crates start, too.
    onecopy: PathBuf,
}

/// The result of one test file.
struct Outcome {
    name: String,
    took: Duration,
    has_failed: bool,
}

/// Builds and runs all test files and the examples in the documentation. Returns the slow ones; the error names those that
/// failed.
pub(crate) fn run(repository: &Path) -> Result<String, String> {
    let Built { tests, onecopy } = build(repository)?;
    let programs = Mutex::new(tests);
    let outcomes = Mutex::new(Vec::new());
    let results: Vec<Result<(), String>> = std::thread::scope(|scope| {
        let work = || run_some(&programs, &onecopy, &outcomes);
        let threads: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|_| Err("a thread is lost".into())))
            .collect()
    });
    results.into_iter().collect::<Result<(), String>>()?;
    let status = cargo::command(repository).args(["test", "--workspace", "--doc", "--quiet"]).status();
    if !status.map_err(|error| format!("cannot run cargo: {error}"))?.success() {
        return Err("an example in the documentation fails".to_owned());
    }
    judge(outcomes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn build(repository: &Path) -> Result<Built, String> {
    let mut command = cargo::command(repository);
    command.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let output =
        command.stderr(Stdio::inherit()).output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the tests cannot be built".to_owned());
    }
    let text = String::from_utf8(output.stdout).map_err(|error| format!("cargo says {error}"))?;
    let tests: VecDeque<Program> = text.lines().filter_map(program).collect();
    if tests.is_empty() {
        return Err("cargo has built no tests".to_owned());
    }
    let onecopy = text.lines().find_map(onecopy).ok_or("cargo has not built onecopy")?;
    Ok(Built { tests, onecopy })
}

/// The path of `onecopy`, if the message of cargo reports it.
fn onecopy(message: &str) -> Option<PathBuf> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_program = message["profile"]["test"] == false && message["target"]["name"] == "onecopy";
    message["executable"].as_str().filter(|_| is_program).map(PathBuf::from)
}

/// The test program that a message of cargo reports, if it reports one.
fn program(message: &str) -> Option<Program> {
    let message: serde_json::Value = serde_json::from_str(message).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let folder = manifest.parent()?.to_owned();
    let file = Path::new(message["target"]["src_path"].as_str()?);
    let file = file.strip_prefix(&folder).unwrap_or(file).display();
    let name = format!("{} {file}", folder.file_name()?.to_str()?);
    Some(Program { folder, name, path: path.into() })
}

fn run_some(
    programs: &Mutex<VecDeque<Program>>,
    onecopy: &Path,
    outcomes: &Mutex<Vec<Outcome>>,
) -> Result<(), String> {
    loop {
        let next = programs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        let Some(Program { folder, name, path }) = next else { return Ok(()) };
        let started = Instant::now();
        let mut command = Command::new(path);
        command.current_dir(&folder).env("CARGO_MANIFEST_DIR", &folder).env(ONECOPY, onecopy);
        let output = command.output().map_err(|error| format!("cannot run {name}: {error}"))?;
        let took = started.elapsed();
        show(&name, took, &[&output.stdout[..], &output.stderr]);
        let has_failed = !output.status.success();
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(Outcome { name, took, has_failed });
    }
}

#[expect(clippy::print_stdout, reason = "this is where a task tells a person how it went")]
fn show(name: &str, took: Duration, output: &[&[u8]]) {
    let output: String = output.iter().map(|part| String::from_utf8_lossy(part)).collect();
    println!("---- {name}, {:.0} s\n{output}", took.as_secs_f64());
}

fn judge(mut outcomes: Vec<Outcome>) -> Result<String, String> {
    outcomes.sort_by_key(|outcome| std::cmp::Reverse(outcome.took));
    let failed: Vec<&str> =
        outcomes.iter().filter(|outcome| outcome.has_failed).map(|outcome| outcome.name.as_str()).collect();
    if !failed.is_empty() {
        return Err(format!("these test files fail:\n  {}", failed.join("\n  ")));
    }
    let slow = outcomes.iter().take(5).map(|one| format!("{} {:.0} s", one.name, one.took.as_secs_f64()));
    Ok(format!("{} test files pass; the slowest: {}", outcomes.len(), slow.collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_tests_are_told_from_others() {
        let message = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/a/crates/b/Cargo.toml\",\
                 \"target\":{{\"src_path\":\"/a/crates/b/tests/c.rs\"}},\"profile\":{{\"test\":{test}}},\
                 \"executable\":{executable}}}"
            )
        };
        let found = program(&message(true, "\"/a/target/c-1\"")).unwrap();
        assert_eq!((found.name.as_str(), found.folder.as_path()), ("b tests/c.rs", Path::new("/a/crates/b")));
        assert!(program(&message(false, "\"/a/target/c\"")).is_none());
        assert!(program(&message(true, "null")).is_none());
        assert!(program("{\"reason\":\"build-finished\",\"success\":true}").is_none());
        assert!(onecopy(&message(false, "\"/a/target/c\"")).is_none(), "it is another program");
        let ours =
            message(false, "\"/a/onecopy\"").replace("\"src_path\"", "\"name\":\"onecopy\",\"src_path\"");
        assert_eq!(onecopy(&ours).unwrap(), Path::new("/a/onecopy"));
    }

    #[test]
    fn one_that_fails_is_enough() {
        let outcome =
            |name: &str, has_failed| Outcome { name: name.to_owned(), took: Duration::ZERO, has_failed };
        assert!(judge(vec![outcome("a", false), outcome("b", false)]).is_ok());
        assert!(judge(vec![outcome("a", false), outcome("b", true)]).unwrap_err().ends_with("\n  b"));
    }
}
