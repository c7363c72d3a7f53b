//! Development tasks, run as `cargo xtask TASK`.
//!
//! A task is here because cargo itself cannot do it. Each is a module, or a program of another crate that this one
//! starts with all optimizations; this file only maps names to them.

mod cargo;
mod house;
mod syntax;
mod test_files;
mod tidy;
mod tree;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// The commands of the program of `conformance`.
const CHECKS: [&str; 6] = ["check-live", "classify", "differential", "predict", "rolling", "soundness"];

const USAGE: &str = "usage: cargo xtask TASK

tasks:
  test            builds and runs all tests, three files at a time
  tidy            check the rules of the house (see CONTRIBUTING.md)
  tidy --update   the same, and lower the numbers in xtask/ratchet.toml where code has shrunk
  house           print import circles, large types and vague signatures of a crate, `house --crate NAME`;
                  with `--edges` also which names every file uses of which other file
  bench ..        benchmarks, `bench run PLAN` above all; `bench help` tells more
  bench contention ..  how often clients have to begin again, beside one PostgreSQL
  check-live ..   real servers under load, judged as the simulator judges; `check-live --help` tells more
  check-live --nodes 3 ..  several nodes that are killed, hung and cut off, `--strikes all --seconds 600`
  chaos ..        the same while everything fails that can, `chaos --seconds 600 --seed S`
  rolling ..      several nodes restarted in turn under load, `rolling --nodes 3 --clients 32 --seconds 120`
  differential .. random transactions through onecopy and on one server, `differential --schemas N --seed S`
  soundness ..    pairs of statements on a real server, `soundness --pairs N --seed S`; `soundness --help` tells more
  predict ..      how much of a transaction is known at its first statement; needs no server
  classify ..     what it costs to know a statement; needs no server
  sim --hashes    whether clients and log still see what `crates/sim/hashes.txt` says; `--write` renews the file
  sim ..          the simulator, `sim --seeds N` or `sim --seed S --trace`; `sim --help` tells more";

#[expect(clippy::print_stdout, reason = "this is where a task tells a person how it went")]
fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["test"] => test_files::run(repository()),
        ["tidy"] => tidy::run(repository()),
        ["tidy", "--update"] => tidy::update(repository()),
        ["house", rest @ ..] => house::run(repository(), rest),
        ["bench", "contention", rest @ ..] => {
            return run_crate("bench", &[&["run", "crates/bench/plans/contention.toml"], rest].concat());
        }
        ["bench", rest @ ..] if is_check(rest) => return run_crate("conformance", rest),
        ["bench", rest @ ..] => return run_crate("bench", rest),
        ["sim", "--hashes", "--write"] => write_hashes(),
        ["sim", rest @ ..] => {
            let commit = commit();
            return run_crate("sim", &[&["--commit", &commit], rest].concat());
        }
        ["chaos", rest @ ..] => {
            return run_crate("conformance", &[&["check-live", "--chaos"], rest].concat());
        }
        check if is_check(check) => return run_crate("conformance", check),
        _ => Err(USAGE.to_owned()),
    };
    let (text, code) = match outcome {
        Ok(text) => (text, ExitCode::SUCCESS),
        Err(text) => (text, ExitCode::FAILURE),
    };
    println!("{text}");
    code
}

/// Whether these words are a command of the program of `conformance`.
fn is_check(words: &[&str]) -> bool {
    words.first().is_some_and(|word| CHECKS.contains(word))
}

/// The commit that is checked out; the simulator prints it with a failure.
fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(repository()).args(arguments).output().ok()?;
        let text = String::from_utf8(output.stdout).ok().filter(|_| output.status.success())?;
        Some(text.trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short", "HEAD"]) else { return "unknown".to_owned() };
    let is_changed = git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| !s.is_empty());
    if is_changed { format!("{commit} with changes") } else { commit }
}

/// Runs the program of a crate, built with all optimizations. It prints its own results.
#[expect(clippy::print_stdout, reason = "this is where a task tells a person how it went")]
fn run_crate(name: &str, arguments: &[&str]) -> ExitCode {
    let mut command = cargo::command(repository());
    command.args(["run", "--release", "--package", name, "--"]).args(arguments);
    match command.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            println!("cannot run cargo: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes the table of hashes as the simulator prints it; the simulator itself touches no files.
fn write_hashes() -> Result<String, String> {
    const FILE: &str = "crates/sim/hashes.txt";
    let mut command = cargo::command(repository());
    command.stderr(Stdio::inherit());
    command.args(["run", "--release", "--package", "sim", "--", "--hashes", "--write"]);
    let output = command.output().map_err(|error| format!("cannot run cargo: {error}"))?;
    if !output.status.success() {
        return Err("the simulator failed, the table is as it was".to_owned());
    }
    let path = repository().join(FILE);
    std::fs::write(&path, &output.stdout).map_err(|error| format!("cannot write {FILE}: {error}"))?;
    Ok(format!("{FILE} is written; name the changed decision in the subject of the commit"))
}

/// The folder of the workspace.
fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this crate lies in a folder of the workspace")
}
