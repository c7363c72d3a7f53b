//! Several nodes in a box: the real machine of take-over, ledgers, rosters, leases (of terms and versions) and core, between a chair, links and servers.
//!
//! A world of its own, because its subject is terms and not statements: each session has one row, and servers show versions and nothing
//! else. Nodes are killed, stopped and woken, cut off from the chair, from each other in one direction or both, or from a server; links
//! are reset; the chair has no leader for a while, and answers of it get lost. Clocks run 5 % fast or slow.
//!
//! The judge wants: no read misses what was shown before it began (under `middle-r`: what its session has seen or committed before), each request is in the log once if its client was told so, and every
//! client of a living node is served in the end, so no outcome stays unknown.

mod chair;
mod clients;
mod faults;
mod judge;
mod leading;
mod leases;
pub mod mutants;
mod servers;
mod world;

use cluster::nodes::Rules;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows::{self, Choices};

/// The rules, one switch each.
#[derive(Clone, Copy, Debug)]
pub struct Switches {
    /// The protocol of the core.
    pub protocol: Choices,
    /// Its rules.
    pub rows: rows::Rules,
    /// The rules of the pure parts.
    pub nodes: Rules,
    /// An append compares the chair.
    pub appends_compare: bool,
    /// A new leader applies nothing before it has fenced.
    pub fenced_before_applied: bool,
    /// Incarnations begin with the term.
    pub incarnations_tell_terms: bool,
    /// The backends of a lost node are ended.
    pub backends_of_the_lost_end: bool,
    /// An append without an answer is sent again under the same key.
    pub retries_keep_the_key: bool,
    /// A server that comes back is brought up to what the core knows as durable, not to the end of the log.
    pub replay_ends_at_what_is_noted: bool,
}

impl Default for Switches {
    fn default() -> Self {
        Self {
            protocol: ONECOPY,
            rows: rows::Rules::default(),
            nodes: Rules::default(),
            appends_compare: true,
            fenced_before_applied: true,
            incarnations_tell_terms: true,
            backends_of_the_lost_end: true,
            retries_keep_the_key: true,
            replay_ends_at_what_is_noted: true,
        }
    }
}

/// Runs a seed. Returns what is wrong, and the trace if it was asked for.
pub fn run_seed(seed: u64, switches: Switches, is_traced: bool) -> (Vec<String>, Vec<String>) {
    // A failed assertion of the core is a finding, too.
    let run = std::panic::catch_unwind(|| world::World::new(seed, switches, is_traced).run());
    run.unwrap_or_else(|cause| (vec![format!("a check of the core fails: {}", text_of(&*cause))], Vec::new()))
}

fn text_of(cause: &(dyn std::any::Any + Send)) -> &str {
    let text = cause.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| cause.downcast_ref::<&str>().copied()).unwrap_or("no text")
}
