//! Why our value differs from the paper's, for the statements that the default setting does not meet.
//!
//! The page `docs/explanation/protocols/gargamel.md` has the arithmetic. The reasons were written after the runs; the bounds in
//! [`super::stated`] were not changed by them.

use super::stated::Quantity;

/// The reason in one sentence, for what is known not to be met by default.
pub fn reason(quantity: Quantity) -> Option<&'static str> {
    use Quantity as Q;
    let reason = match quantity {
        Q::PenaltyOverRoundRobin | Q::PenaltyOverTashkent | Q::ResponseOverRivals => {
            "Payments of a warehouse are serial in every system, and Gargamel's lines also wait for each other, so it ends last"
        }
        Q::SpreadOfSpeedUp => {
            "Tashkent+'s durations are 10 % shorter (1.11), and Gargamel's lines wait for each other (1.13)"
        }
        Q::SpreadOfCostAtLowRate => {
            "at 10/s a warehouse's Payments take 28 % of the time already, so rivals repeat 52 of 280 transactions"
        }
        Q::FalsePositives => {
            "0.043 % is the share of two Payments among all pairs; Delivery with Payment is 0.34 %, and queues hold mostly Payments"
        }
        _ => return None,
    };
    Some(reason)
}
