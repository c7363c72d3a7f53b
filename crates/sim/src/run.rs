//! From a seed to a verdict.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::check::{self, Anomaly, Finding};
use crate::dice::Dice;
use crate::history::{ClientError, History};
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
    /// The errors that clients were sent, in order of time.
    pub errors: Vec<ClientError>,
    /// The bytes of every record that was appended to the log, in order; also of those that a crash tore off.
    pub appended: Vec<u8>,
    /// How many things happened.
    pub happenings: u64,
    /// The simulated time at the end.
    pub end_us: u64,
    /// The story, if it was asked for.
    pub trace: Trace,
}

impl Verdict {
    fn of_panic(cause: &dyn Any) -> Self {
        let said = cause.downcast_ref::<String>().cloned();
        let said = said.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string));
        let text = format!("the core gave up: {}", said.unwrap_or_default());
        Self {
            findings: vec![Finding { anomaly: Anomaly::Order, text }],
            history: History::default(),
            errors: Vec::new(),
            appended: Vec::new(),
            happenings: 0,
            end_us: 0,
            trace: Trace::default(),
        }
    }
}

/// Runs the plan that the seed draws.
pub fn run_seed(seed: u64, rules: Rules, is_traced: bool) -> Verdict {
    run_plan(Plan::draw(&mut Dice::new(seed)), rules, seed, is_traced)
}

/// Runs a plan with the chances of a seed.
pub fn run_plan(plan: Plan, rules: Rules, seed: u64, is_traced: bool) -> Verdict {
    let world = AssertUnwindSafe(|| World::new(plan, rules, !seed, is_traced).run());
    // A failed check of the core is a finding like any other.
    let report = match catch_unwind(world) {
        Ok(report) => report,
        Err(cause) => return Verdict::of_panic(&*cause),
    };
    // What clients can see comes first; what only the inside shows comes after it.
    let mut findings = check::judge(&report.history);
    findings.extend(report.findings);
    Verdict {
        findings,
        history: report.history,
        errors: report.errors,
        appended: report.appended,
        happenings: report.happenings,
        end_us: report.end_us,
        trace: report.trace,
    }
}
