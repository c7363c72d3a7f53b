//! What the paper states in its text, and when our simulation meets it.
//!
//! Each line has a quantity, the paper's value, and the bounds within which ours counts as the same. The table was written before the
//! simulation ran for the first time, and does not change with its results. These rules gave the bounds:
//!
//! - a response time, a ratio or a share: within a quarter of the stated one;
//! - queries a second: within a tenth, since the calibration comes from them;
//! - "better by about 15 %": within 7.5 percentage points, half of what is claimed;
//! - "constant", "does not increase anymore": within 10 %; "whatever": within 5 %;
//! - "almost twice": 1.75 to 2; "less": less;
//! - "below", "at most": as it says;
//! - a delay in ms: within 10, a twentieth of Max + epsilon.
//!
//! The text of section 6.3 names figure 13 (a) as that of PR, and those of 6.4 and 6.5 name (a) as that of FR. The response times of
//! 400 and 800 ms are taken as those of FR. Numbers that only curves show are not judged.

/// A quantity that a run of all figures measures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Quantity {
    /// Response time with 5 warehouses, FR, mean over the numbers of nodes.
    ResponseAt5,
    /// The same with 10.
    ResponseAt10,
    /// The second divided by the first.
    ResponseOfTwice,
    /// Response time over the numbers of nodes: largest divided by smallest, the worst number of warehouses, FR.
    SpreadFull,
    /// The same with PR.
    SpreadPartial,
    /// Response time with 10 warehouses: PR divided by FR.
    PartialOverFull,
    /// Messages of PR divided by what the text says.
    Messages,
    /// Queries a second of 16 nodes, FR.
    QueriesOf16,
    /// Queries a second of 32 nodes, FR.
    QueriesOf32,
    /// The second divided by the first.
    QueriesOfTwice,
    /// Queries a second of 32 nodes over the numbers of warehouses: largest divided by smallest, FR.
    QueriesWhateverRate,
    /// Queries a second of 64 nodes divided by those of 48, FR.
    QueriesBeyond48,
    /// Queries a second of 32 nodes: PR divided by FR.
    QueriesPartialOverFull,
    /// The share of messages that are unordered, FR, the largest over the numbers of nodes.
    Unordered,
    /// The share of transactions that are aborted, likewise.
    Aborted,
    /// The share of unordered messages that abort something, likewise.
    Aborting,
    /// The share of unordered messages, mean over the numbers of nodes: PR divided by FR.
    UnorderedPartialOverFull,
    /// The delay of transactions of 50 ms.
    DelayOf50,
    /// How far the delay is from Max + epsilon - t at most, for transactions up to 200 ms.
    DelayLaw,
    /// The delay of transactions of more than 200 ms, the largest.
    DelayBeyond200,
    /// Max + epsilon without the delay of the longest transactions.
    Gain,
}

/// A statement of the paper.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Stated {
    /// What is measured.
    pub quantity: Quantity,
    /// The section and figure.
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

const fn quarter(stated: f64) -> (f64, f64) {
    (stated * 0.75, stated * 1.25)
}

const fn tenth(stated: f64) -> (f64, f64) {
    (stated * 0.9, stated * 1.1)
}

const fn around(stated: f64, by: f64) -> (f64, f64) {
    (stated - by, stated + by)
}

const CONSTANT: (f64, f64) = (1.0, 1.1);
const WHATEVER: (f64, f64) = (1.0, 1.05);
const NO_MORE: (f64, f64) = (0.9, 1.1);
const ALMOST_TWICE: (f64, f64) = (1.75, 2.0);
const LESS: (f64, f64) = (0.0, 0.999);
const NEAR_ZERO_MS: (f64, f64) = (0.0, 10.0);

const SCALE_UP: &str = "6.3 fig. 13";
const SPEED_UP: &str = "6.4 fig. 14";
const MESSAGES: &str = "6.5 fig. 15";
const DELAY: &str = "6.5 fig. 16";

/// Every number and comparison in the text.
pub const STATED: [Stated; 21] = {
    use Quantity as Q;
    [
        line(Q::ResponseAt5, SCALE_UP, "response time with 5 warehouses, ms", "400", quarter(400.0)),
        line(Q::ResponseAt10, SCALE_UP, "response time with 10 warehouses, ms", "800", quarter(800.0)),
        line(Q::ResponseOfTwice, SCALE_UP, "response time, 10 / 5 warehouses", "2", quarter(2.0)),
        line(Q::SpreadFull, SCALE_UP, "response time over nodes, FR, largest / least", "constant", CONSTANT),
        line(
            Q::SpreadPartial,
            SCALE_UP,
            "response time over nodes, PR, largest / least",
            "constant",
            CONSTANT,
        ),
        line(
            Q::PartialOverFull,
            SCALE_UP,
            "response time with 10 warehouses, PR / FR",
            "0.85",
            around(0.85, 0.075),
        ),
        line(Q::Messages, "6.3", "messages of PR / (n able + 2 n others)", "1", around(1.0, 0.001)),
        line(Q::QueriesOf16, SPEED_UP, "queries/s of 16 nodes", "800", tenth(800.0)),
        line(Q::QueriesOf32, SPEED_UP, "queries/s of 32 nodes", "1500", tenth(1_500.0)),
        line(Q::QueriesOfTwice, SPEED_UP, "queries/s, 32 / 16 nodes", "almost twice", ALMOST_TWICE),
        line(
            Q::QueriesWhateverRate,
            SPEED_UP,
            "queries/s of 32 nodes, over warehouses, largest / least",
            "whatever",
            WHATEVER,
        ),
        line(Q::QueriesBeyond48, SPEED_UP, "queries/s, 64 / 48 nodes", "no increase", NO_MORE),
        line(Q::QueriesPartialOverFull, SPEED_UP, "queries/s of 32 nodes, PR / FR", "0.5", quarter(0.5)),
        line(Q::Unordered, MESSAGES, "unordered messages, share, FR", "below 0.05", (0.0, 0.05)),
        line(Q::Aborted, MESSAGES, "aborted transactions, share, FR", "at most 0.01", (0.0, 0.01)),
        line(Q::Aborting, MESSAGES, "unordered messages that abort, share, FR", "at most 0.2", (0.0, 0.2)),
        line(Q::UnorderedPartialOverFull, MESSAGES, "unordered messages, share, PR / FR", "lower", LESS),
        line(Q::DelayOf50, DELAY, "delay of transactions of 50 ms, ms", "150", around(150.0, 10.0)),
        line(Q::DelayLaw, DELAY, "delay up to 200 ms, off from 200 - t, most, ms", "0", NEAR_ZERO_MS),
        line(Q::DelayBeyond200, DELAY, "delay beyond 200 ms, most, ms", "almost zero", NEAR_ZERO_MS),
        line(Q::Gain, DELAY, "gain of the longest transactions, ms", "200", around(200.0, 10.0)),
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
            assert!((line.least..=line.most).contains(&stated), "{line:?}");
        }
    }
}
