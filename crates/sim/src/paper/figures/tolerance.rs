//! Figure 10: what a log and several schedulers cost with 8 replicas (section 8.4).
//!
//! The paper measures this on real disks. "The log is kept per table" (section 5.3), so here a disk turns once for each table that a
//! transaction writes. It serves one transaction at a time, since the paper says nothing of writing several together.

use super::bars::{Bar, Bars, Group};
use super::stated::{Line, Value};
use super::{Cell, Setting, scenario};
use crate::paper::peak;
use crate::paper::scenario::{Disk, Front};
use crate::paper::tpcw::Mix;

/// A disk of 7,200 rotations a minute: when a write of the log ends, the place of the next one has just passed.
pub const ROTATION_US: u64 = 8_333;
/// A difference up to this counts as none, and may lie between the paper's loss and ours.
const NEGLIGIBLE: f64 = 0.05;

/// A bar of figure 10.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Reliability {
    /// Nothing is logged.
    Unreliable,
    /// With a log, and this number of schedulers.
    Reliable(usize),
}

impl Reliability {
    /// All bars, from left to right.
    pub const ALL: [Self; 4] = [Self::Unreliable, Self::Reliable(1), Self::Reliable(2), Self::Reliable(3)];

    /// Its name in the paper.
    pub fn name(self) -> String {
        match self {
            Self::Unreliable => "unreliable".to_owned(),
            Self::Reliable(1) => "reliable".to_owned(),
            Self::Reliable(schedulers) => format!("reliable-{schedulers}"),
        }
    }
}

/// A bar's height.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Tolerance {
    /// The mix.
    pub mix: Mix,
    /// The bar.
    pub reliability: Reliability,
    /// Interactions per second at the peak.
    pub wips: f64,
    /// Browsers at the peak.
    pub clients: usize,
    /// Mean time of an interaction at the peak.
    pub response_ms: f64,
}

/// The bars of figure 10.
pub fn bars_of_figure_10() -> Vec<(Mix, Reliability)> {
    Mix::ALL.into_iter().flat_map(|mix| Reliability::ALL.map(|bar| (mix, bar))).collect()
}

/// Simulates one bar.
pub fn tolerance(mix: Mix, reliability: Reliability, setting: Setting) -> Tolerance {
    let cell = Cell { mix, protocol: "conflict-aware", replicas: 8, speed: 1, parts: 1 };
    let mut scenario = scenario(cell, setting);
    if let Reliability::Reliable(schedulers) = reliability {
        scenario.log_us = ROTATION_US;
        scenario.front = Front { schedulers, message_us: 0, disk: Disk::InTurn };
    }
    let found = peak::peak(&scenario);
    let (wips, response_ms) = (found.outcome.wips(), found.outcome.mean_response_ms());
    Tolerance { mix, reliability, wips, clients: found.clients, response_ms }
}

/// The statements about figure 10 that these bars can judge.
pub fn judge_tolerance(all: &[Tolerance]) -> Vec<Line> {
    let mut lines = Vec::new();
    for (mix, stated) in Mix::ALL.into_iter().zip([0.0, 0.0, 0.16]) {
        let at = |bar| all.iter().find(|one| one.mix == mix && one.reliability == bar).map(|one| one.wips);
        let Some(logged) = at(Reliability::Reliable(1)) else { continue };
        if let Some(unreliable) = at(Reliability::Unreliable) {
            let ours = 1.0 - logged / unreliable;
            lines.push(Line {
                experiment: format!("8.4 {} lost by logging at 8", mix.name()),
                stated: Value::Number(stated),
                ours: Value::Number(ours),
                difference: Some(ours - stated),
                pass: (ours - stated).abs() <= NEGLIGIBLE,
            });
        }
        for schedulers in [2, 3] {
            let Some(several) = at(Reliability::Reliable(schedulers)) else { continue };
            let ours = 1.0 - several / logged;
            lines.push(Line {
                experiment: format!("8.4 {} lost by {schedulers} schedulers instead of one at 8", mix.name()),
                stated: Value::text(format!("<= {NEGLIGIBLE}")),
                ours: Value::Number(ours),
                difference: None,
                pass: ours <= NEGLIGIBLE,
            });
        }
    }
    lines
}

/// Figure 10, if no bar is missing.
pub fn draw_tolerance(all: &[Tolerance]) -> Option<Bars> {
    let group = |mix: Mix| {
        let bar = |(colour, bar): (usize, Reliability)| {
            let found = all.iter().find(|one| one.mix == mix && one.reliability == bar)?;
            Some(Bar { name: String::new(), parts: vec![(colour, found.wips)] })
        };
        let bars: Option<Vec<Bar>> = Reliability::ALL.into_iter().enumerate().map(bar).collect();
        Some(Group { name: mix.name().to_owned(), bars: bars? })
    };
    let groups: Option<Vec<Group>> = Mix::ALL.into_iter().map(group).collect();
    Some(Bars {
        number: 10,
        title: "the cost of a log and of several schedulers, 8 replicas".to_owned(),
        unit: "web interactions per second".to_owned(),
        legend: Reliability::ALL.map(Reliability::name).to_vec(),
        groups: groups?,
    })
}
