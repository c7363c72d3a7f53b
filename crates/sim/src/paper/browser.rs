//! An emulated browser: it thinks, clicks, and waits for each query of the interaction in turn.
//!
//! Think times are exponential with a limit of ten times the mean, sessions exponential with mean 15 minutes and limit
//! 60 (TPC-W as in section 7.2). When a session ends, the next one starts with its first interaction.

use std::collections::VecDeque;

use cluster::protocols::shipping::{Ending, Kind, Operation, Request, StatementId};

use super::scenario::{Drawn, Scenario, Template, Workload, locks};
use crate::dice::Dice;

const SESSION_MEAN_US: f64 = 900e6;
const SESSION_LIMIT_US: f64 = 3_600e6;
/// How long a browser counts as running when the simulation starts.
const CLICKS_BEFORE: u32 = 50;

/// One browser.
#[derive(Debug)]
pub(crate) struct Browser {
    dice: Dice,
    present: usize,
    session_ends_us: u64,
    requests: VecDeque<Request>,
    clicked_us: u64,
    asked_us: u64,
}

/// Exponential, with a limit.
#[expect(clippy::cast_sign_loss, reason = "the logarithm of a number up to 1 is not positive")]
fn exponential_us(dice: &mut Dice, mean_us: f64, limit_us: f64) -> u64 {
    // 53 random bits, never 0, so the logarithm is finite.
    let u = ((dice.number() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
    (-mean_us * u.ln()).min(limit_us) as u64
}

impl Browser {
    /// A browser in the middle of a session: its first interaction is drawn as if it had run for a while, so that the
    /// simulation starts with a typical mix.
    pub(crate) fn new(seed: u64, workload: &Workload) -> Self {
        let mut dice = Dice::new(seed);
        let present =
            (0..CLICKS_BEFORE).fold(workload.first, |present, _| workload.next.draw(present, &mut dice));
        Self { dice, present, session_ends_us: 0, requests: VecDeque::new(), clicked_us: 0, asked_us: 0 }
    }

    pub(crate) fn think_us(&mut self, scenario: &Scenario) -> u64 {
        exponential_us(&mut self.dice, scenario.think_us as f64, scenario.think_us as f64 * 10.0)
    }

    /// Begins the next interaction.
    pub(crate) fn click(&mut self, now_us: u64, scenario: &Scenario) {
        let workload = &scenario.workload;
        let next = workload.next.draw(self.present, &mut self.dice);
        if next == workload.first && now_us >= self.session_ends_us {
            self.session_ends_us = now_us + exponential_us(&mut self.dice, SESSION_MEAN_US, SESSION_LIMIT_US);
        }
        self.present = next;
        self.clicked_us = now_us;
        let mut dice = Dice::new(self.dice.number());
        let requests = &mut self.requests;
        let mut parts = Dice::new(self.dice.number());
        workload.visit(next, &mut dice, &mut |drawn| {
            let template = |index: usize| &workload.templates[index];
            match drawn {
                Drawn::Single(index) => {
                    let locks = locks(&[template(index)], scenario.parts, &mut parts);
                    let operation = operation(index, template(index));
                    requests.push_back(match operation.kind {
                        Kind::Read => Request::SingleRead(locks, operation),
                        Kind::Write => Request::SingleUpdate(locks, operation),
                    });
                }
                Drawn::Transaction(indices) => {
                    let all: Vec<&Template> = indices.iter().map(|index| template(*index)).collect();
                    requests.push_back(Request::Begin(locks(&all, scenario.parts, &mut parts)));
                    let one = |index: &usize| Request::Execute(operation(*index, template(*index)));
                    requests.extend(indices.iter().map(one));
                    requests.push_back(Request::End(Ending::Commit));
                }
            }
        });
    }

    /// The next request of the interaction; `None` when it is over.
    pub(crate) fn next_request(&mut self, now_us: u64) -> Option<Request> {
        self.asked_us = now_us;
        self.requests.pop_front()
    }

    /// When the interaction and the current request began.
    pub(crate) fn since_us(&self) -> (u64, u64) {
        (self.clicked_us, self.asked_us)
    }
}

fn operation(index: usize, template: &Template) -> Operation {
    Operation { kind: template.kind(), statement: StatementId(index as u64), cost_us: template.cost_us }
}
