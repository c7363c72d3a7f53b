//! The experiments of the first paper: the points to simulate, and the paper's statements about them.
//!
//! A point is the peak of one mix, protocol, number of replicas, speed and conflict rate. [`cells`] lists the points that
//! the figures need, [`measure`] simulates one, and [`judge`] compares all with every number and ranking in the text.
//! All points share one [`Setting`].

mod bars;
mod crowd;
mod stated;
mod tolerance;

use std::collections::{BTreeMap, BTreeSet};

use super::peak::{self, Peak};
use super::run::{Meter, Outcome, run};
use super::scenario::{Discipline, Front, Protocol, Scenario};
use super::tpcw::{Calibration, Mix, workload};

pub use bars::{Bar, Bars, Group, bars};
pub use crowd::{Crowd, MESSAGE_US, Resources, crowds, judge_resources, resources};
pub use stated::{Line, Value, judge};
pub use tolerance::{
    ROTATION_US, Reliability, Tolerance, bars_of_figure_10, draw_tolerance, judge_tolerance, tolerance,
};

/// Numbers of replicas of figures 11 to 13; those up to 8 are figures 3 to 5.
pub const SIZES: [usize; 10] = [1, 2, 4, 8, 16, 24, 32, 40, 48, 60];
/// Numbers of replicas of figures 15 to 17.
const FEW_SIZES: [usize; 5] = [1, 8, 16, 32, 60];
/// The speeds of figure 15.
const SPEEDS: [u32; 2] = [2, 4];
/// The parts of a split table in figures 16 and 17, for conflict rates of 50, 25, 10, 5 and 1 percent.
const PARTS: [u16; 5] = [2, 4, 10, 20, 100];

/// Figure 14 shows each mix with one replica and with this number: the largest, or where the curve has become flat.
pub const ENDS: [(Mix, usize); 3] = [(Mix::Browsing, 60), (Mix::Shopping, 60), (Mix::Ordering, 16)];

const SECOND_US: u64 = 1_000_000;

/// The parameters that all points share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setting {
    /// The costs of queries.
    pub calibration: Calibration,
    /// How databases divide their time among queries.
    pub discipline: Discipline,
    /// The time of one message.
    pub network_us: u64,
    /// The seed of all random choices.
    pub seed: u64,
}

impl Default for Setting {
    fn default() -> Self {
        Self { calibration: Calibration::C, discipline: Discipline::Queue, network_us: 200, seed: 1 }
    }
}

/// A point.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell {
    /// The mix of interactions.
    pub mix: Mix,
    /// The name of the protocol.
    pub protocol: &'static str,
    /// The number of replicas.
    pub replicas: usize,
    /// The speed-up of the databases.
    pub speed: u32,
    /// The parts of each table: the conflict rate is one in so many.
    pub parts: u16,
}

/// A simulated point.
#[derive(Clone, PartialEq, Debug)]
pub struct Point {
    /// The point.
    pub cell: Cell,
    /// Interactions per second at the peak.
    pub wips: f64,
    /// Browsers at the peak.
    pub clients: usize,
    /// Mean time of an interaction at the peak.
    pub response_ms: f64,
    /// Mean time of a request at the peak.
    pub request_ms: f64,
    /// The part of that time in a database; the rest is waiting.
    pub in_database_ms: f64,
    /// Shares of the databases' time: reads, writes, idle.
    pub shares: [f64; 3],
}

/// All points of a study.
pub type Points = BTreeMap<Cell, Point>;

/// The points that these figures need; those of all figures if none is named. Figures 1 and 2 are drawings, and
/// 10 has bars of its own ([`bars_of_figure_10`]), so they need no points.
pub fn cells(figures: &[u8]) -> Vec<Cell> {
    let mut cells = BTreeSet::new();
    let wanted = |figure: u8| figures.is_empty() || figures.contains(&figure);
    let cell = |mix, protocol: Protocol, replicas, speed, parts| Cell {
        mix,
        protocol: protocol.name(),
        replicas,
        speed,
        parts,
    };
    for (index, mix) in (0..).zip(Mix::ALL) {
        for protocol in Protocol::ALL {
            for size in SIZES {
                let large = wanted(11 + index);
                let small = size <= 8 && wanted(3 + index) || size == 8 && (wanted(6) || wanted(7 + index));
                if large || small {
                    cells.insert(cell(mix, protocol, size, 1, 1));
                }
            }
        }
    }
    let aware = Protocol::Shipping(cluster::protocols::conflict_aware::CONFLICT_AWARE);
    if wanted(14) {
        for (mix, most) in ENDS {
            for protocol in [aware, Protocol::Onecopy] {
                cells.extend([1, most].map(|size| cell(mix, protocol, size, 1, 1)));
            }
        }
    }
    for size in FEW_SIZES {
        if wanted(15) {
            for protocol in [aware, Protocol::Onecopy] {
                cells.insert(cell(Mix::Shopping, protocol, size, 1, 1));
                cells.extend(SPEEDS.map(|speed| cell(Mix::Shopping, protocol, size, speed, 1)));
            }
        }
        for (figure, rival) in [(16, Protocol::ALL[0]), (17, Protocol::ALL[1])] {
            if wanted(figure) {
                for protocol in [aware, rival, Protocol::Onecopy] {
                    cells.insert(cell(Mix::Shopping, protocol, size, 1, 1));
                }
                for parts in PARTS {
                    cells
                        .extend([aware, rival].map(|protocol| cell(Mix::Shopping, protocol, size, 1, parts)));
                }
            }
        }
    }
    cells.into_iter().collect()
}

fn scenario(cell: Cell, setting: Setting) -> Scenario {
    Scenario {
        seed: setting.seed,
        protocol: Protocol::named(cell.protocol).expect("a cell names a protocol of ours"),
        replicas: cell.replicas,
        clients: 1,
        workload: workload(cell.mix, setting.calibration),
        think_us: 7 * SECOND_US,
        network_us: setting.network_us,
        log_us: 0,
        front: Front::default(),
        discipline: setting.discipline,
        speed: cell.speed,
        parts: cell.parts,
        warm_up_us: peak::WARM_UP_US,
        measure_us: SECOND_US,
    }
}

/// Simulates one point.
pub fn measure(cell: Cell, setting: Setting) -> Point {
    let Peak { clients, outcome, .. } = peak::peak(&scenario(cell, setting));
    let (request_ms, in_database_ms) = outcome.mean_request_ms();
    Point {
        cell,
        wips: outcome.wips(),
        clients,
        response_ms: outcome.mean_response_ms(),
        request_ms,
        in_database_ms,
        shares: outcome.shares(cell.replicas),
    }
}

/// The scheduler's own cost, as in table 1.
#[derive(Clone, PartialEq, Debug)]
pub struct SchedulerCost {
    /// The protocol.
    pub protocol: &'static str,
    /// The number of replicas.
    pub replicas: usize,
    /// Interactions per second.
    pub wips: f64,
    /// The scheduler's time for one interaction.
    pub us_per_interaction: f64,
    /// Messages of one interaction.
    pub messages_per_interaction: f64,
    /// The share of one processor at this throughput.
    pub share: f64,
}

/// Measures the scheduler with the shopping mix and enough browsers to keep the replicas nearly busy.
pub fn scheduler_cost(protocol: Protocol, replicas: usize, setting: Setting, meter: Meter) -> SchedulerCost {
    /// The factor on the number of browsers that would keep all replicas busy without conflicts.
    const LOAD: f64 = 0.8;
    let cell = Cell { mix: Mix::Shopping, protocol: protocol.name(), replicas, speed: 1, parts: 1 };
    let mut scenario = scenario(cell, setting);
    scenario.clients = peak::clients(peak::capacity_wips(&scenario) * 7.0 * LOAD);
    scenario.warm_up_us = 40 * SECOND_US;
    scenario.measure_us = 60 * SECOND_US;
    let outcome: Outcome = run(&scenario, Some(meter));
    let interactions = outcome.interactions.max(1) as f64;
    SchedulerCost {
        protocol: protocol.name(),
        replicas,
        wips: outcome.wips(),
        us_per_interaction: outcome.scheduler_ns as f64 / 1e3 / interactions,
        messages_per_interaction: outcome.messages as f64 / interactions,
        share: outcome.scheduler_ns as f64 / 1e3 / outcome.measured_us as f64,
    }
}

/// A figure as lines of points.
#[derive(Clone, PartialEq, Debug)]
pub struct Figure {
    /// Its number in the paper.
    pub number: u8,
    /// Its title.
    pub title: String,
    /// Each line's name and points: replicas and interactions per second.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// The figures with curves over the number of replicas that can be drawn from these points.
pub fn curves(points: &Points) -> Vec<Figure> {
    let line = |name: String, keep: &dyn Fn(&Cell) -> bool| {
        let kept: Vec<(f64, f64)> = points
            .iter()
            .filter(|(cell, _)| keep(cell))
            .map(|(cell, point)| (cell.replicas as f64, point.wips))
            .collect();
        (name, kept)
    };
    let mut figures = Vec::new();
    for (index, mix) in (0..).zip(Mix::ALL) {
        let per_protocol = |most: usize| -> Vec<(String, Vec<(f64, f64)>)> {
            Protocol::ALL
                .into_iter()
                .map(|protocol| {
                    let is_plain = |c: &Cell| c.speed == 1 && c.parts == 1 && c.replicas <= most;
                    line(protocol.name().to_owned(), &|c| {
                        c.mix == mix && c.protocol == protocol.name() && is_plain(c)
                    })
                })
                .collect()
        };
        let title = |most: usize| format!("{} mix, up to {most} replicas", mix.name());
        figures.push(Figure { number: 3 + index, title: title(8), lines: per_protocol(8) });
        figures.push(Figure { number: 11 + index, title: title(60), lines: per_protocol(60) });
    }
    let shopping = |protocol: &'static str, speed: u32, parts: u16| {
        move |c: &Cell| {
            c.mix == Mix::Shopping
                && c.protocol == protocol
                && (c.speed, c.parts) == (speed, parts)
                && FEW_SIZES.contains(&c.replicas)
        }
    };
    let speeds = ["conflict-aware", "onecopy"].into_iter().flat_map(|protocol| {
        [1, 2, 4].map(|speed| line(format!("{protocol} {speed}x"), &shopping(protocol, speed, 1)))
    });
    let lines = speeds.collect();
    figures.push(Figure { number: 15, title: "faster replicas, shopping mix".to_owned(), lines });
    for (number, rival) in [(16, "eager"), (17, "fr-l")] {
        let rates = ["conflict-aware", rival].into_iter().flat_map(|protocol| {
            [1, 10, 100]
                .map(|parts| line(format!("{protocol} {} %", 100 / parts), &shopping(protocol, 1, parts)))
        });
        let mut lines: Vec<_> = rates.collect();
        lines.push(line("onecopy".to_owned(), &shopping("onecopy", 1, 1)));
        let title = format!("conflict rates, shopping mix, against {rival}");
        figures.push(Figure { number, title, lines });
    }
    figures.retain(|figure| figure.lines.iter().any(|(_, points)| points.len() > 1));
    figures.sort_by_key(|figure| figure.number);
    figures
}
