//! Processor time, read from /proc before and after a run.
//!
//! A process counts with all its threads. A server of many processes counts with its children, those that have ended
//! and were waited for included; so a run's backends are in the difference although they are gone. The machine's busy
//! time shows how much other processes used. If that is much, the run is doubtful.

use std::fs;
use std::iter::Sum;
use std::ops::Sub;
use std::time::Duration;

use testbed::fault::Fault;

/// The pause before a reading, in which backends of the run before end and are waited for.
pub(crate) const SETTLE: Duration = Duration::from_millis(250);

/// Processor time used up to some moment, user and system together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ticks(u64);

impl Ticks {
    /// In microseconds.
    pub(crate) fn micros(self) -> f64 {
        self.0 as f64 * 1e6 / rustix::param::clock_ticks_per_second() as f64
    }
}

/// The processor time of all processes at one moment, or between two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    /// The process in between.
    pub(crate) middleware: Ticks,
    /// All servers.
    pub(crate) servers: Ticks,
    /// This process.
    pub(crate) own: Ticks,
    /// This process and the errands that it waited for, clients above all.
    ours: Ticks,
    machine: Ticks,
}

impl Reading {
    /// At this moment; servers are named by their first processes.
    pub(crate) fn take(middleware: Option<u32>, servers: &[u32]) -> Result<Self, Fault> {
        Ok(Self {
            middleware: middleware.map_or_else(|| Ok(Ticks::default()), of_process)?,
            servers: Ticks(of_families(servers)?.into_iter().map(|Ticks(ticks)| ticks).sum()),
            own: of_process(std::process::id())?,
            ours: of_ourselves()?,
            machine: of_machine()?,
        })
    }

    /// How much of the machine's processors strangers used in a time of that length, from 0 to 1.
    pub(crate) fn strangers(&self, length: Duration) -> f64 {
        let known = [self.middleware, self.servers, self.ours].into_iter().map(Ticks::micros).sum::<f64>();
        let cores = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        ((self.machine.micros() - known) / (length.as_secs_f64() * 1e6 * cores)).clamp(0.0, 1.0)
    }
}

impl Sum for Ticks {
    fn sum<I: Iterator<Item = Self>>(ticks: I) -> Self {
        Self(ticks.map(|Self(ticks)| ticks).sum())
    }
}

impl Sub for Reading {
    type Output = Self;

    /// The time used since an earlier reading.
    fn sub(self, earlier: Self) -> Self {
        Self {
            middleware: self.middleware - earlier.middleware,
            servers: self.servers - earlier.servers,
            own: self.own - earlier.own,
            ours: self.ours - earlier.ours,
            machine: self.machine - earlier.machine,
        }
    }
}

impl Sub for Ticks {
    type Output = Self;

    /// The time since an earlier reading.
    fn sub(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

/// The time that a process has used.
pub(crate) fn of_process(pid: u32) -> Result<Ticks, Fault> {
    Ok(Ticks(Process::read(pid)?.own))
}

/// The time that a process, its children and its former children have used.
pub(crate) fn of_family(pid: u32) -> Result<Ticks, Fault> {
    Ok(of_families(&[pid])?[0])
}

/// The same for several, in one look at all processes.
pub(crate) fn of_families(parents: &[u32]) -> Result<Vec<Ticks>, Fault> {
    let with_reaped = |process: &Process| process.own + process.reaped;
    let parent = |pid: &u32| Process::read(*pid).map(|process| Ticks(with_reaped(&process)));
    let mut sums: Vec<Ticks> = parents.iter().map(parent).collect::<Result<_, _>>()?;
    for (_, process) in processes()? {
        if let Some(place) = parents.iter().position(|pid| *pid == process.parent) {
            sums[place].0 += with_reaped(&process);
        }
    }
    Ok(sums)
}

/// The time that this process and the finished programs that it started have used.
pub(crate) fn of_ourselves() -> Result<Ticks, Fault> {
    let process = Process::read(std::process::id())?;
    Ok(Ticks(process.own + process.reaped))
}

/// The busy time of all processors of the machine, time taken by a host included.
pub(crate) fn of_machine() -> Result<Ticks, Fault> {
    let text = fs::read_to_string("/proc/stat").map_err(Fault::system("read /proc/stat"))?;
    machine_busy(&text).ok_or_else(|| Fault::Unreadable { what: "the processors' time".into(), said: text })
}

/// A process and its children.
pub(crate) fn family(pid: u32) -> Result<Vec<u32>, Fault> {
    Ok([pid].into_iter().chain(children(pid)?.into_iter().map(|(child, _)| child)).collect())
}

/// The child of that name.
pub(crate) fn child_named(pid: u32, name: &str) -> Result<Option<u32>, Fault> {
    Ok(children(pid)?.into_iter().find(|(_, child)| child.name == name).map(|(pid, _)| pid))
}

fn children(pid: u32) -> Result<Vec<(u32, Process)>, Fault> {
    Ok(processes()?.filter(|(_, process)| process.parent == pid).collect())
}

/// All that there are.
fn processes() -> Result<impl Iterator<Item = (u32, Process)>, Fault> {
    let entries = fs::read_dir("/proc").map_err(Fault::system("read /proc (this needs Linux)"))?;
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    // A process that ends while we look is not there any more.
    Ok(pids.filter_map(|pid: u32| Some((pid, Process::read(pid).ok()?))))
}

/// One line of /proc/PID/stat.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    name: String,
    parent: u32,
    own: u64,
    reaped: u64,
}

impl Process {
    fn read(pid: u32) -> Result<Self, Fault> {
        let text = fs::read_to_string(format!("/proc/{pid}/stat"))
            .map_err(Fault::system(format!("read the processor time of process {pid}")))?;
        Self::parse(&text)
            .ok_or_else(|| Fault::Unreadable { what: "the processor time of a process".into(), said: text })
    }

    fn parse(line: &str) -> Option<Self> {
        // The name is in brackets and may hold blanks and brackets itself.
        let (head, tail) = line.rsplit_once(')')?;
        let fields: Vec<&str> = tail.split_whitespace().collect();
        let number = |at: usize| fields.get(at)?.parse::<u64>().ok();
        Some(Self {
            name: head.split_once('(')?.1.to_owned(),
            parent: u32::try_from(number(1)?).ok()?,
            own: number(11)? + number(12)?,
            reaped: number(13)? + number(14)?,
        })
    }
}

/// user + nice + system + irq + softirq + steal of the line for all processors.
fn machine_busy(text: &str) -> Option<Ticks> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    let mut number = || fields.next()?.parse::<u64>().ok();
    let (user, nice, system, _idle, _wait) = (number()?, number()?, number()?, number()?, number()?);
    Some(Ticks(user + nice + system + number()? + number()? + number()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_a_process_is_read_whatever_its_name() {
        let line = "12 (a) b (c) S 7 1 1 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 1 0 5";
        let process = Process { name: "a) b (c".into(), parent: 7, own: 120, reaped: 7 };
        assert_eq!(Process::parse(line), Some(process));
        assert_eq!(Process::parse("12 (a) S 7 1"), None);
    }

    #[test]
    fn idle_processors_are_not_busy() {
        assert_eq!(machine_busy("cpu  1 2 4 1000 2000 8 16 32 0 0\ncpu0 1"), Some(Ticks(63)));
        assert_eq!(machine_busy("cpu0 1 2 3 4 5 6 7 8"), None);
    }

    #[test]
    fn work_is_seen() {
        let before = of_ourselves().unwrap();
        let machine = of_machine().unwrap();
        let mut sum = 0_u64;
        while (of_process(std::process::id()).unwrap() - before).micros() < 50_000.0 {
            sum = std::hint::black_box(sum + 1);
        }
        assert!((of_machine().unwrap() - machine).micros() >= 30_000.0);
        assert!(of_family(std::process::id()).is_ok());
    }
}
