//! The protocols that a node can be started with, by name, and the settings that change one.
//!
//! Example: `--protocol gargamel --rule read-write` makes transactions wait for those that write what they read, too.

use std::fmt;
use std::time::Duration;

use cluster::protocols::centralised_writes::CENTRALISED_WRITES;
use cluster::protocols::conflict_aware::CONFLICT_AWARE;
use cluster::protocols::eager::EAGER;
use cluster::protocols::fr_c::FR_C;
use cluster::protocols::fr_l::FR_L;
use cluster::protocols::gargamel::GARGAMEL;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::round_robin::ROUND_ROBIN;
use cluster::protocols::rows::{self, Order, Rule, See};
use cluster::protocols::shipping;
use cluster::protocols::vr_l::VR_L;

/// How a node keeps its replicas equal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Propagation {
    /// It captures the rows that a transaction changes, and applies them at the other replicas, by this protocol.
    Rows(rows::Choices),
    /// It sends statements to all replicas, in the order of this scheduler.
    Statements(shipping::Choices),
}

/// The protocols that propagate rows.
const OF_ROWS: [rows::Choices; 4] = [ONECOPY, GARGAMEL, ROUND_ROBIN, CENTRALISED_WRITES];

/// The protocols that ship statements.
pub(crate) const OF_STATEMENTS: [shipping::Choices; 5] = [EAGER, FR_L, FR_C, VR_L, CONFLICT_AWARE];

/// The names of all protocols, the default first.
pub(crate) const NAMES: [&str; 9] = [
    ONECOPY.name,
    GARGAMEL.name,
    ROUND_ROBIN.name,
    CENTRALISED_WRITES.name,
    EAGER.name,
    FR_L.name,
    FR_C.name,
    VR_L.name,
    CONFLICT_AWARE.name,
];

/// The values of `rule`: the protocol's own, and those that `gargamel` can have instead.
pub(crate) const RULES: [&str; 3] = [OWN, "write-write", "read-write"];

/// The values of `see`.
pub(crate) const SIGHTS: [&str; 2] = ["fresh", "local"];

/// The protocol decides.
const OWN: &str = "own";

/// A protocol and a setting that do not go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProtocolError {
    /// There is no protocol of this name.
    Unknown,
    /// Only `gargamel` has a rule to choose.
    HasNoRule {
        /// The protocol.
        protocol: &'static str,
    },
    /// A protocol that ships statements has no stale reads.
    SeesFresh {
        /// The protocol.
        protocol: &'static str,
    },
}

impl fmt::Display for ProtocolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => write!(f, "there is no such protocol; there are {}", NAMES.join(", ")),
            Self::HasNoRule { protocol } => {
                write!(f, "\"rule\" is for protocol {}, and this is {protocol}: leave it out", GARGAMEL.name)
            }
            Self::SeesFresh { protocol } => {
                write!(f, "reads of protocol {protocol} are always fresh: leave \"see\" out")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}

/// The protocol of this name, with a rule of [`RULES`], a sight of [`SIGHTS`], and the patience of its chains.
pub(crate) fn named(
    name: &str,
    (rule, see): (&str, &str),
    patience: Duration,
) -> Result<Propagation, ProtocolError> {
    let rule = match rule {
        "write-write" => Some(Rule::WriteWrite),
        "read-write" => Some(Rule::ReadWrite),
        _ => None,
    };
    let see = if see == "local" { See::Local } else { See::Fresh };
    if let Some(mut choices) = OF_ROWS.into_iter().find(|choices| choices.name == name) {
        if let Some(rule) = rule {
            if choices != GARGAMEL {
                return Err(ProtocolError::HasNoRule { protocol: choices.name });
            }
            choices.order = Order::Chains(rule);
        }
        choices.see = see;
        choices.patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        return Ok(Propagation::Rows(choices));
    }
    let choices = OF_STATEMENTS.into_iter().find(|choices| choices.name == name);
    let choices = choices.ok_or(ProtocolError::Unknown)?;
    match (rule, see) {
        (Some(_), _) => Err(ProtocolError::HasNoRule { protocol: choices.name }),
        (None, See::Local) => Err(ProtocolError::SeesFresh { protocol: choices.name }),
        (None, See::Fresh) => Ok(Propagation::Statements(choices)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(3);

    #[test]
    fn every_name_is_a_protocol_and_settings_that_do_not_fit_are_refused() {
        for name in NAMES {
            let by_rows = matches!(named(name, (OWN, "fresh"), PATIENCE), Ok(Propagation::Rows(_)));
            assert_eq!(by_rows, OF_ROWS.iter().any(|choices| choices.name == name), "{name}");
            assert_eq!(named(name, (OWN, "local"), PATIENCE).is_ok(), by_rows, "{name}");
            assert_eq!(
                named(name, ("read-write", "fresh"), PATIENCE).is_ok(),
                name == GARGAMEL.name,
                "{name}"
            );
        }
        assert_eq!(NAMES.len(), OF_ROWS.len() + OF_STATEMENTS.len());
        let Ok(Propagation::Rows(choices)) = named("gargamel", ("read-write", "local"), PATIENCE) else {
            panic!("gargamel has rules, and stale reads");
        };
        assert_eq!((choices.order, choices.see), (Order::Chains(Rule::ReadWrite), See::Local));
        assert_eq!(choices.patience_us, 3_000_000);
        assert_eq!(named("galera", (OWN, "fresh"), PATIENCE).unwrap_err(), ProtocolError::Unknown);
    }
}
