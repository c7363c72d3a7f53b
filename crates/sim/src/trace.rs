//! The story of a run, one line a thing, by the names of the stages.

use std::fmt;

/// What a line is about: the stages of a transaction (DESIGN section 2), and what happens to the world.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// A client's request reaches its session.
    Accept,
    /// What the core makes of it, while it waits or is ordered.
    Order,
    /// The core let it run somewhere.
    Place,
    /// At a server.
    Execute,
    /// Log, COMMIT and refresh.
    Propagate,
    /// The client's reply.
    Acknowledge,
    /// Nodes and replicas that come and go.
    Recover,
    /// Something goes wrong on purpose.
    Fault,
    /// Something is wrong that must not be.
    Found,
}

/// The lines so far; nothing is kept unless it was asked for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Trace {
    is_on: bool,
    lines: Vec<String>,
}

impl Trace {
    /// An empty story.
    pub fn new(is_on: bool) -> Self {
        Self { is_on, lines: Vec::new() }
    }

    /// Adds a line, if anybody wants it.
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
