//! The times that the paper does not state: one choice for all figures, made before the first run.
//!
//! The paper gives Max + epsilon, the rates and the mix. It gives neither the time of a transaction nor that of a message. These come
//! from its results:
//!
//! - *Queries.* 128 clients get 800 queries a second from 16 nodes and 1,500 from 32, whatever the rate of updates. At 16 nodes eight
//!   clients share a node, which does 50 a second: 20 ms of processor each. At 32 nodes four clients get 47 a second: with 33 ms at
//!   the client's side, a queue of one server gives just that (mean value analysis).
//! - *Updates* must therefore use something else than the processor: a disk. Alone on it, 87 ms each give 87 / (1 - 0.435) = 154 ms at
//!   5 updates a second, which is 354 ms after 200 ms of waiting, and 669 ms at 10: the paper's 400 and 800 by the basic
//!   algorithm.
//! - *A refresh transaction* has the writes without the reads, and no planning: 0.3 of an update.
//! - *Messages* are short on a network of 1 Gb/s, while Spread takes about a millisecond. Clocks of one cluster differ by as much.
//! - *Hold*: "the second message is received before the first message has been processed", about 2 ms later (6.5).
//!
//! Invariant: no value here depends on the figure, the number of nodes, or the configuration.

/// Times of the model.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Calibration {
    /// Mean time of an update on a disk; exponential.
    pub update_us: f64,
    /// Mean time of a refresh transaction on a disk; exponential.
    pub refresh_us: f64,
    /// Mean time of a query on a processor; exponential.
    pub query_us: f64,
    /// The time between an answer and the client's next query, both messages included.
    pub client_side_us: u64,
    /// Mean time of a message between two nodes, or from a node to itself; exponential.
    pub message_us: f64,
    /// The most that a clock differs from the right time.
    pub skew_us: u64,
    /// The least time between the arrival of a transaction and its start.
    pub hold_us: u64,
    /// Table 1: Max + epsilon.
    pub wait_us: u64,
}

/// The choice.
pub const CALIBRATION: Calibration = Calibration {
    update_us: 87_000.0,
    refresh_us: 0.3 * 87_000.0,
    query_us: 20_000.0,
    client_side_us: 33_000,
    message_us: 1_200.0,
    skew_us: 1_000,
    hold_us: 2_000,
    wait_us: 200_000,
};
