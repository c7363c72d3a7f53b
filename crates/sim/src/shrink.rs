//! Shrinks a failing run: removes clients, programs, statements, ops and faults while the anomaly still shows.
//!
//! Each removal shifts all later random draws. So a smaller plan is run with many seeds, and it is kept if one of them
//! shows the same anomaly.

use crate::check::Anomaly;
use crate::program::Plan;
use crate::rules::Rules;
use crate::run;

/// With how many seeds a smaller plan is tried.
const TRIES: u64 = 200;

/// A plan and the seed with which it fails.
#[derive(Clone, Debug)]
pub struct Small {
    /// The shrunk plan.
    pub plan: Plan,
    /// The seed with which it fails.
    pub seed: u64,
}

/// Shrinks a plan until no single removal keeps the anomaly.
pub fn shrink(plan: Plan, rules: Rules, seed: u64, anomaly: Anomaly) -> Small {
    let mut small = Small { plan, seed };
    while let Some(smaller) = candidates(&small.plan).into_iter().find_map(|p| fails(p, rules, seed, anomaly))
    {
        small = smaller;
    }
    small
}

fn fails(plan: Plan, rules: Rules, seed: u64, anomaly: Anomaly) -> Option<Small> {
    let shows = |seed: &u64| {
        let verdict = run::run_plan(plan.clone(), rules, *seed, false);
        verdict.findings.first().is_some_and(|finding| finding.anomaly == anomaly)
    };
    let found = (seed..seed + TRIES).find(shows)?;
    Some(Small { plan, seed: found })
}

/// Every plan with one part less, the largest parts first.
fn candidates(plan: &Plan) -> Vec<Plan> {
    let mut smaller = Vec::new();
    let mut without = |cut: &dyn Fn(&mut Plan)| {
        let mut plan = plan.clone();
        cut(&mut plan);
        smaller.push(plan);
    };
    for client in 0..plan.sessions.len() {
        without(&|plan| drop(plan.sessions.remove(client)));
    }
    for fault in 0..plan.faults.len() {
        without(&|plan| {
            plan.faults.remove(fault);
        });
    }
    for (client, programs) in plan.sessions.iter().enumerate() {
        for (place, program) in programs.iter().enumerate() {
            without(&|plan| drop(plan.sessions[client].remove(place)));
            let statements = &program.statements;
            for number in (0..statements.len()).filter(|_| statements.len() > 1) {
                without(&|plan| drop(plan.sessions[client][place].statements.remove(number)));
            }
            for (number, statement) in statements.iter().enumerate() {
                for op in (0..statement.ops.len()).filter(|_| statement.ops.len() > 1) {
                    without(&|plan| drop(plan.sessions[client][place].statements[number].ops.remove(op)));
                }
            }
        }
    }
    smaller
}
