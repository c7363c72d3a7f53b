//! The properties of the machine and the build that belong to a result.

use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The circumstances of a run. What cannot be found out is said to be unknown: a result is still a result.
#[derive(Debug)]
pub struct Circumstances {
    cores: usize,
    processor: String,
    kernel: String,
    date: String,
    commit: String,
}

impl Circumstances {
    /// As they are now; `repository` is where the sources lie.
    pub fn now(repository: &Path) -> Self {
        let unknown = || "unknown".to_owned();
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let model = cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_else(|_| unknown());
        let mut date = Command::new("date");
        let mut git = Command::new("git");
        Self {
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            processor: model.map_or_else(unknown, |(_, model)| model.trim().to_owned()),
            kernel: kernel.trim().to_owned(),
            date: first_line(date.args(["-u", "+%F"])).unwrap_or_else(unknown),
            commit: first_line(git.current_dir(repository).args(["describe", "--always", "--dirty"]))
                .unwrap_or_else(unknown),
        }
    }
}

impl fmt::Display for Circumstances {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, processor, kernel, date, commit } = self;
        write!(f, "{date}, commit {commit}, {cores} cores ({processor}), Linux {kernel}")
    }
}

fn first_line(command: &mut Command) -> Option<String> {
    let output = command.output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    text.lines().next().map(str::to_owned)
}
