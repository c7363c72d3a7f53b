//! Runs one seed or one plan and judges the result.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use cluster::protocols::StampCounts;
use cluster::protocols::rows::{Choices, See};

use crate::check::{self, Allowed, Anomaly, Finding, Promise, Sessions};
use crate::history::{ClientError, History};
use crate::program::Plan;
use crate::rules::Rules;
use crate::trace::Trace;
use crate::world::World;

/// The result of a run, judged.
#[derive(Debug)]
pub struct Verdict {
    /// The violations; empty for a correct run.
    pub findings: Vec<Finding>,
    /// What the promise allows, and how often it showed.
    pub allowed: Allowed,
    /// The operations of clients and their results.
    pub history: History,
    /// The errors that clients were sent, in order of time.
    pub errors: Vec<ClientError>,
    /// The bytes of every record that was appended to the log, in order; also of those that a crash tore off.
    pub appended: Vec<u8>,
    /// The number of agenda entries that were processed.
    pub happenings: u64,
    /// The simulated time at the end.
    pub end_us: u64,
    /// What became of transactions that were ordered by stamps.
    pub stamps: StampCounts,
    /// How often a kept answer was given.
    pub answers_given_again: u64,
    /// The trace; empty unless it was requested.
    pub trace: Trace,
}

impl Verdict {
    fn of_panic(cause: &dyn Any) -> Self {
        let said = cause.downcast_ref::<String>().cloned();
        let said = said.or_else(|| cause.downcast_ref::<&str>().map(ToString::to_string));
        let text = format!("the core gave up: {}", said.unwrap_or_default());
        Self {
            findings: vec![Finding { anomaly: Anomaly::Order, text }],
            allowed: Allowed::default(),
            history: History::default(),
            errors: Vec::new(),
            appended: Vec::new(),
            happenings: 0,
            end_us: 0,
            stamps: StampCounts::default(),
            answers_given_again: 0,
            trace: Trace::default(),
        }
    }
}

/// What a protocol promises by what its reads see. Where they may be stale, every replica still shows a prefix of the version
/// order, so the stronger promise is judged beside the one of Gargamel's paper. A session that is connected to a replica sees no less
/// than before.
fn promises(protocol: Choices) -> &'static [Promise] {
    match protocol.see {
        See::Fresh => &[Promise::AsAsked],
        See::Local if protocol.home.connects_sessions() => &[Promise::OldSnapshots(Sessions::InOrder)],
        See::Local => &[Promise::OldSnapshots(Sessions::Apart), Promise::Parallel(Sessions::Apart)],
    }
}

/// Draws the plan of a seed for the protocol and runs it.
pub fn run_seed(seed: u64, rules: Rules, is_traced: bool) -> Verdict {
    run_plan(Plan::of(seed, rules.protocol), rules, seed, is_traced)
}

/// Runs a plan; the seed decides everything random.
pub fn run_plan(plan: Plan, rules: Rules, seed: u64, is_traced: bool) -> Verdict {
    let world = AssertUnwindSafe(|| World::new(plan, rules, !seed, is_traced).run());
    // A failed assertion of the core is a finding, too.
    let report = match catch_unwind(world) {
        Ok(report) => report,
        Err(cause) => return Verdict::of_panic(&*cause),
    };
    // Violations that clients can see come before those that only the inside shows.
    let (mut findings, mut allowed) = (Vec::new(), Allowed::default());
    for promise in promises(rules.protocol) {
        let judgement = check::judge(&report.history, *promise);
        allowed = judgement.allowed;
        findings.extend(judgement.findings);
    }
    findings.extend(report.findings);
    Verdict {
        findings,
        allowed,
        history: report.history,
        errors: report.errors,
        appended: report.appended,
        happenings: report.happenings,
        end_us: report.end_us,
        stamps: report.stamps,
        answers_given_again: report.answers_given_again,
        trace: report.trace,
    }
}
