//! From a seed to a verdict.

use crate::check::{self, Finding};
use crate::dice::Dice;
use crate::history::History;
use crate::program::Plan;
use crate::rules::Rules;
use crate::trace::Trace;
use crate::world::World;

/// What became of one seed.
#[derive(Debug)]
pub struct Verdict {
    /// What is wrong; empty when all is well.
    pub findings: Vec<Finding>,
    /// What clients did and saw.
    pub history: History,
    /// How many things happened.
    pub happenings: u64,
    /// The simulated time at the end.
    pub end_us: u64,
    /// The story, if it was asked for.
    pub trace: Trace,
}

/// Runs the plan that the seed draws.
pub fn run_seed(seed: u64, rules: Rules, is_traced: bool) -> Verdict {
    run_plan(Plan::draw(&mut Dice::new(seed)), rules, seed, is_traced)
}

/// Runs a plan with the chances of a seed.
pub fn run_plan(plan: Plan, rules: Rules, seed: u64, is_traced: bool) -> Verdict {
    let report = World::new(plan, rules, !seed, is_traced).run();
    let mut findings = report.findings;
    if findings.is_empty() {
        findings = check::judge(&report.history);
    }
    Verdict {
        findings,
        history: report.history,
        happenings: report.happenings,
        end_us: report.end_us,
        trace: report.trace,
    }
}
