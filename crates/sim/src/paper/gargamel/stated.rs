//! What the paper states in its text, and when our simulation meets it.
//!
//! Each line has a quantity, the paper's value, and the bounds within which ours counts as the same. The table was written
//! before the simulation ran for the first time, and does not change with its results. These rules gave the bounds:
//!
//! - a ratio or a number of workers: within a quarter of the stated one;
//! - "approximately 20 % lower", "25 % better": within ten percentage points, half of what is claimed;
//! - a share of transactions: within five percentage points;
//! - "indistinguishable": within 5 %; "flat", "the same": within 10 %; "about equal": within 15 %;
//! - "clearly" more: a quarter more; "most": more than half;
//! - "close to zero": at most 5 transactions; "very small": at most a tenth of what the rivals have;
//! - "quickly": within 5 s.
//!
//! Where the text names no rate, the default of Table I counts, 150 transactions a second; "at high load" in the introduction
//! is 200, the high rate of figure 4. Numbers that only curves show are not judged.

/// A quantity that a run of all figures measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quantity {
    /// Throughput at 10/s: the largest of the three systems divided by the smallest.
    SpreadAtLowRate,
    /// Throughput in the first phase at 200/s: Gargamel divided by the better rival.
    AheadAtHighRate,
    /// Throughput at 200/s: the second phase divided by the first, the largest of the three systems.
    SecondPhase,
    /// Maximum throughput of Round-Robin at 300/s divided by that at 150/s.
    RoundRobinBeyond150,
    /// Maximum throughput of Tashkent+ at 300/s divided by that at 150/s.
    TashkentBeyond150,
    /// Maximum throughput at any rate: Gargamel divided by Round-Robin.
    OverRoundRobin,
    /// Maximum throughput at any rate: Gargamel divided by Tashkent+.
    OverTashkent,
    /// The ratio of maximum throughputs (Gargamel, better rival) at a rate divided by that at the rate before, the least from
    /// 50/s on.
    GrowthOfGain,
    /// The most workers of Gargamel that are busy at 250/s.
    BusyAt250,
    /// Maximum throughput of Gargamel at 300/s divided by that at 250/s.
    GargamelBeyond250,
    /// Mean penalty ratio: Gargamel divided by Round-Robin.
    PenaltyOverRoundRobin,
    /// Mean penalty ratio: Gargamel divided by Tashkent+.
    PenaltyOverTashkent,
    /// Gargamel's share of transactions with a penalty ratio of at most 4.
    LightGargamel,
    /// Round-Robin's.
    LightRoundRobin,
    /// Tashkent+'s.
    LightTashkent,
    /// Speed-up: the largest of the three systems divided by the smallest.
    SpreadOfSpeedUp,
    /// Speed-up at 300/s divided by that at 50/s, the largest of the three systems.
    SpeedUpBeyond50,
    /// The most transactions that wait for a worker in Gargamel.
    QueueOfGargamel,
    /// The most transactions that wait for a worker with centralised writes.
    QueueOfCentralised,
    /// When both rivals have had all workers busy, in seconds.
    RivalsSaturatedAfter,
    /// Gargamel's share of workers that are busy, on average over the second phase.
    BusyInSecondPhase,
    /// The most transactions that wait in the first phase at 300/s: Gargamel divided by the rival with fewer.
    QueueAt300,
    /// Busy workers of Tashkent+ at the end of the first phase at 175/s, unbounded.
    TashkentUnbounded,
    /// Busy workers of Gargamel at the end of the first phase at 175/s, unbounded.
    GargamelUnbounded,
    /// Cost at 100/s, unbounded: Tashkent+ divided by Gargamel.
    CostOverGargamel,
    /// Cost at 10/s, unbounded: the largest of the three systems divided by the smallest.
    SpreadOfCostAtLowRate,
    /// Cost of a rival with bounded workers at 300/s divided by that at 150/s, the larger of the two rivals.
    CostBeyond150,
    /// Throughput of updates in the first phase at 200/s: Gargamel divided by the better rival.
    UpdatesOverRivals,
    /// Mean response time of updates at 200/s: Gargamel divided by the better rival.
    ResponseOverRivals,
    /// The share of classifications, pairs of transactions, that predict a conflict where there is none.
    FalsePositives,
}

/// A statement of the paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stated {
    /// What is measured.
    pub quantity: Quantity,
    /// The section or figure.
    pub place: &'static str,
    /// The subject, in words.
    pub what: &'static str,
    /// The paper's value, in its words or as a number.
    pub stated: &'static str,
    /// The least of our values that meets it.
    pub least: f64,
    /// The largest of our values that meets it.
    pub most: f64,
}

const fn line(
    quantity: Quantity,
    place: &'static str,
    what: &'static str,
    stated: &'static str,
    (least, most): (f64, f64),
) -> Stated {
    Stated { quantity, place, what, stated, least, most }
}

/// A quarter around a stated value.
const fn quarter(stated: f64) -> (f64, f64) {
    (stated * 0.75, stated * 1.25)
}

const fn around(stated: f64, by: f64) -> (f64, f64) {
    (stated - by, stated + by)
}

const TEN_POINTS: f64 = 0.10;
const FIVE_POINTS: f64 = 0.05;
const INDISTINGUISHABLE: (f64, f64) = (1.0, 1.05);
const ABOUT_EQUAL: (f64, f64) = (1.0, 1.15);
const FLAT: (f64, f64) = (0.9, 1.1);
const CLEARLY_MORE: (f64, f64) = (1.25, f64::INFINITY);
const CLOSE_TO_ZERO: (f64, f64) = (0.0, 5.0);

/// Every number and comparison in the text.
pub const STATED: [Stated; 30] = {
    use Quantity as Q;
    [
        line(
            Q::SpreadAtLowRate,
            "V-A fig. 3",
            "throughput at 10/s, largest / smallest",
            "indistinguishable",
            INDISTINGUISHABLE,
        ),
        line(
            Q::AheadAtHighRate,
            "V-A fig. 4",
            "phase 1 at 200/s, gargamel / better rival",
            "clearly more",
            CLEARLY_MORE,
        ),
        line(Q::SecondPhase, "V-A fig. 4", "phase 2 / phase 1 at 200/s, largest", "declines", (0.0, 0.999)),
        line(Q::RoundRobinBeyond150, "V-A fig. 5", "round-robin's maximum, 300/s / 150/s", "flat", FLAT),
        line(Q::TashkentBeyond150, "V-A fig. 5", "tashkent+'s maximum, 300/s / 150/s", "flat", FLAT),
        line(Q::OverRoundRobin, "V-A fig. 5", "maximum, gargamel / round-robin", "2", quarter(2.0)),
        line(Q::OverTashkent, "V-A fig. 5", "maximum, gargamel / tashkent+", "2", quarter(2.0)),
        line(
            Q::GrowthOfGain,
            "V-A fig. 5",
            "gain from one rate to the next, least",
            "grows",
            (0.95, f64::INFINITY),
        ),
        line(Q::BusyAt250, "V-A fig. 5", "gargamel's busy workers at 250/s", "all 100", (99.0, 100.0)),
        line(Q::GargamelBeyond250, "V-A fig. 5", "gargamel's maximum, 300/s / 250/s", "no improvement", FLAT),
        line(
            Q::PenaltyOverRoundRobin,
            "V-A fig. 6",
            "penalty ratio, gargamel / round-robin",
            "0.8",
            around(0.8, TEN_POINTS),
        ),
        line(
            Q::PenaltyOverTashkent,
            "V-A fig. 6",
            "penalty ratio, gargamel / tashkent+",
            "0.8",
            around(0.8, TEN_POINTS),
        ),
        line(
            Q::LightGargamel,
            "V-A fig. 7",
            "penalty ratio up to 4, gargamel",
            "0.51",
            around(0.51, FIVE_POINTS),
        ),
        line(
            Q::LightRoundRobin,
            "V-A fig. 7",
            "penalty ratio up to 4, round-robin",
            "0.10",
            around(0.10, FIVE_POINTS),
        ),
        line(
            Q::LightTashkent,
            "V-A fig. 7",
            "penalty ratio up to 4, tashkent+",
            "0.10",
            around(0.10, FIVE_POINTS),
        ),
        line(
            Q::SpreadOfSpeedUp,
            "V-A fig. 8",
            "speed-up, largest / smallest",
            "almost identical",
            ABOUT_EQUAL,
        ),
        line(Q::SpeedUpBeyond50, "V-A fig. 8", "speed-up, 300/s / 50/s, largest", "flat from 50/s", FLAT),
        line(Q::QueueOfGargamel, "V-B fig. 9", "gargamel's queue at 150/s", "close to zero", CLOSE_TO_ZERO),
        line(
            Q::QueueOfCentralised,
            "V-B fig. 9",
            "centralised-writes' queue at 150/s",
            "close to zero",
            CLOSE_TO_ZERO,
        ),
        line(
            Q::RivalsSaturatedAfter,
            "V-B fig. 9",
            "rivals have no free worker after, s",
            "quickly",
            (0.0, 5.0),
        ),
        line(
            Q::BusyInSecondPhase,
            "V-B fig. 9",
            "gargamel's busy workers in phase 2, share",
            "frees most",
            (0.0, 0.5),
        ),
        line(
            Q::QueueAt300,
            "V-B fig. 10",
            "queue at 300/s, gargamel / rival",
            "very small, not none",
            (0.0001, 0.1),
        ),
        line(
            Q::TashkentUnbounded,
            "V-C fig. 11",
            "tashkent+'s workers at 175/s, unbounded",
            "1500",
            quarter(1_500.0),
        ),
        line(
            Q::GargamelUnbounded,
            "V-C fig. 11",
            "gargamel's workers at 175/s, unbounded",
            "< 100",
            (0.0, 99.9),
        ),
        line(
            Q::CostOverGargamel,
            "V-C fig. 12",
            "cost at 100/s, unbounded, tashkent+ / gargamel",
            "25",
            quarter(25.0),
        ),
        line(Q::SpreadOfCostAtLowRate, "V-C fig. 12", "cost at 10/s, largest / smallest", "the same", FLAT),
        line(
            Q::CostBeyond150,
            "V-C fig. 12",
            "rivals' cost, bounded, 300/s / 150/s, larger",
            "the same",
            FLAT,
        ),
        line(
            Q::UpdatesOverRivals,
            "I",
            "updates a second at 200/s, gargamel / better rival",
            "1.75",
            quarter(1.75),
        ),
        line(
            Q::ResponseOverRivals,
            "I",
            "response of updates at 200/s, gargamel / better rival",
            "0.75",
            around(0.75, TEN_POINTS),
        ),
        line(
            Q::FalsePositives,
            "IV-A",
            "classifications that are false positives",
            "0.0004",
            quarter(0.000_4),
        ),
    ]
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_quantity_is_stated_once_with_bounds_in_order() {
        let quantities: BTreeSet<Quantity> = STATED.iter().map(|line| line.quantity).collect();
        assert_eq!(quantities.len(), STATED.len());
        assert!(STATED.iter().all(|line| line.least < line.most));
        let numbers = STATED.iter().filter_map(|line| Some((line, line.stated.parse::<f64>().ok()?)));
        for (line, stated) in numbers {
            assert!((line.least..line.most).contains(&stated), "{line:?}");
        }
    }
}
