//! The trace of a run: one line for each step, with its stage.

use std::fmt;

/// The subject of a line: a stage of a transaction (docs/explanation/design.md, section 2), or the world around it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// A client's request reaches its session.
    Accept,
    /// The core waits with a transaction or orders it.
    Order,
    /// The core has chosen the replica where it runs.
    Place,
    /// A server executes a statement.
    Execute,
    /// Log append, COMMIT and refresh.
    Propagate,
    /// The client gets its reply.
    Acknowledge,
    /// A node or replica starts, stops or recovers.
    Recover,
    /// A fault of the plan.
    Fault,
    /// A violation.
    Found,
}

/// The lines so far; none unless the trace was requested.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    is_on: bool,
    lines: Vec<String>,
}

impl Trace {
    /// An empty trace.
    pub fn new(is_on: bool) -> Self {
        Self { is_on, lines: Vec::new() }
    }

    /// Adds a line, if the trace was requested.
    pub fn say(&mut self, at_us: u64, stage: Stage, text: impl FnOnce() -> String) {
        if self.is_on {
            let stage = format!("{stage:?}").to_lowercase();
            self.lines.push(format!("{at_us:>9} {stage:<11} {}", text()));
        }
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.lines.iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}
