//! A share of the processors for each server, so that one machine behaves like several small ones.
//!
//! A server's first process and what it has started are put into a control group; what they start later is born there.
//! The kernel keeps the share to about 5 % (measured); what varies is the work per second of processor. A server that
//! has used its share stands still until the period is over, so latencies are quoted with the period. Only servers are
//! limited: clients and whatever stands between are not. Needs root and a writable hierarchy, of version 1 or 2.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use testbed::fault::Fault;

use crate::cpu;

/// Where control groups are mounted.
const V1: &str = "/sys/fs/cgroup/cpu";
const V2: &str = "/sys/fs/cgroup";
/// How much a server is preferred over others on the machine, so that it has its share when it needs it.
const SHARES: &str = "20000";
/// The same in version 2, where 100 is usual and 10,000 the most.
const WEIGHT: &str = "2000";

/// The share of the processors that servers may use.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Limit {
    /// Processors.
    pub(crate) cores: f64,
    /// Over which it is counted.
    pub(crate) period_ms: u32,
}

impl Limit {
    /// A server's share, as the kernel takes it.
    pub(crate) fn given(self) -> f64 {
        self.quota_us() as f64 / self.period_us() as f64
    }

    fn period_us(self) -> u64 {
        u64::from(self.period_ms) * 1_000
    }

    fn quota_us(self) -> u128 {
        // The kernel takes no less than a millisecond.
        Duration::from_millis(u64::from(self.period_ms)).mul_f64(self.cores).as_micros().max(1_000)
    }
}

/// Control groups of one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The control group of one server; gone when it is dropped, if nothing lives in it any more.
#[derive(Debug)]
pub(crate) struct Group {
    folder: PathBuf,
    version: Version,
}

impl Group {
    /// Makes a group of that name.
    pub(crate) fn new(name: &str) -> Result<Self, Fault> {
        let version = version(Path::new(V2)).ok_or_else(|| {
            Fault::Missing("cores_per_server needs control groups with the controller `cpu`".into())
        })?;
        let above = if version == Version::One { V1 } else { V2 };
        let folder = Path::new(above).join(format!("onecopy-bench-{}-{name}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| {
            Fault::Missing(format!("cores_per_server needs root and writable control groups: {error}"))
        })?;
        let group = Self { folder, version };
        match version {
            Version::One => group.write("cpu.shares", SHARES)?,
            Version::Two => group.write("cpu.weight", WEIGHT)?,
        }
        Ok(group)
    }

    /// Puts a server in, with all that it has started so far.
    pub(crate) fn take(&self, postmaster: u32) -> Result<(), Fault> {
        // A process that is started between two looks is found by the second one.
        for _ in 0..2 {
            for pid in cpu::family(postmaster)? {
                let written = fs::write(self.folder.join("cgroup.procs"), pid.to_string());
                let is_there = Path::new(&format!("/proc/{pid}")).exists();
                written
                    .or_else(|error| if is_there { Err(error) } else { Ok(()) })
                    .map_err(Fault::system(format!("put process {pid} into {}", self.folder.display())))?;
            }
        }
        Ok(())
    }

    /// Lets its processes use that much, or as much as there is.
    pub(crate) fn limit(&self, limit: Option<Limit>) -> Result<(), Fault> {
        match (self.version, limit) {
            (Version::One, None) => self.write("cpu.cfs_quota_us", "-1"),
            (Version::One, Some(limit)) => {
                // A period is refused when the former quota would be more than it allows.
                self.write("cpu.cfs_quota_us", "-1")?;
                self.write("cpu.cfs_period_us", &limit.period_us().to_string())?;
                self.write("cpu.cfs_quota_us", &limit.quota_us().to_string())
            }
            (Version::Two, None) => self.write("cpu.max", "max"),
            (Version::Two, Some(limit)) => {
                self.write("cpu.max", &format!("{} {}", limit.quota_us(), limit.period_us()))
            }
        }
    }

    fn write(&self, file: &str, text: &str) -> Result<(), Fault> {
        let path = self.folder.join(file);
        fs::write(&path, text).map_err(Fault::system(format!("write {text} to {}", path.display())))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // A folder that stays empty behind is not worth a failure; its processes are gone with their server.
        let _ = fs::remove_dir(&self.folder);
    }
}

fn version(root: &Path) -> Option<Version> {
    if Path::new(V1).join("cpu.cfs_quota_us").exists() {
        return Some(Version::One);
    }
    let controllers = fs::read_to_string(root.join("cgroup.subtree_control")).unwrap_or_default();
    controllers.split_whitespace().any(|word| word == "cpu").then_some(Version::Two)
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn shares_are_counted_in_the_period() {
        let limit = Limit { cores: 0.1, period_ms: 20 };
        assert_eq!((limit.period_us(), limit.quota_us()), (20_000, 2_000));
        let least = Limit { cores: 0.01, period_ms: 20 };
        assert!(least.quota_us() == 1_000 && (least.given() - 0.05).abs() < 1e-9);
    }

    #[test]
    fn a_server_in_a_group_is_held_to_its_share() {
        // Where no control group can be made, the report must say so.
        let group = match Group::new("test") {
            Ok(group) => group,
            Err(fault) => return assert!(matches!(fault, Fault::Missing(why) if why.contains("root"))),
        };
        group.limit(Some(Limit { cores: 0.1, period_ms: 20 })).unwrap();
        let mut busy = Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        group.take(busy.id()).unwrap();
        let (begin, before) = (Instant::now(), cpu::of_process(busy.id()).unwrap());
        thread::sleep(Duration::from_secs(2));
        let used = (cpu::of_process(busy.id()).unwrap() - before).micros() / 1e6;
        let share = used / begin.elapsed().as_secs_f64();
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(share < 0.2, "{share}");
    }
}
