//! The protocols that a node can be started with, by name, and the settings that change one.
//!
//! Example: `--protocol gargamel --rule read-write` makes transactions wait for those that write what they read, too.

use std::fmt;
use std::time::Duration;

use cluster::parts::stamps::Start;
use cluster::protocols::c_jdbc;
use cluster::protocols::centralised_writes::CENTRALISED_WRITES;
use cluster::protocols::conflict_aware::CONFLICT_AWARE;
use cluster::protocols::eager::EAGER;
use cluster::protocols::fr_c::FR_C;
use cluster::protocols::fr_l::FR_L;
use cluster::protocols::gargamel::GARGAMEL;
use cluster::protocols::middle_r::MIDDLE_R;
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::preventive::{self, PREVENTIVE};
use cluster::protocols::round_robin::ROUND_ROBIN;
use cluster::protocols::rows::{self, HomePolicy, Order, Perform, Rule, See};
use cluster::protocols::shipping;
use cluster::protocols::tashkent_plus::{MEMORY_BYTES, TASHKENT_PLUS};
use cluster::protocols::vr_l::VR_L;

use super::c_jdbc::{C_JDBC, CJdbcWords, DEFAULTS};
use super::kinds::{Kind, Value};
use super::value_error::ValueError;

/// How a node keeps its replicas equal.
#[derive(Clone, Debug)]
pub(crate) enum Propagation {
    /// It captures the rows that a transaction changes, and applies them at the other replicas, by this protocol.
    Rows(rows::Choices),
    /// It sends statements to all replicas, in the order of this scheduler.
    Statements(shipping::Choices),
    /// It sends statements to all replicas, each when it comes, with these choices of C-JDBC.
    CJdbc(c_jdbc::Choices),
}

/// The protocols that propagate rows.
const OF_ROWS: [rows::Choices; 7] =
    [ONECOPY, GARGAMEL, ROUND_ROBIN, TASHKENT_PLUS, CENTRALISED_WRITES, PREVENTIVE, MIDDLE_R];

/// The protocols that ship statements.
pub(crate) const OF_STATEMENTS: [shipping::Choices; 5] = [EAGER, FR_L, FR_C, VR_L, CONFLICT_AWARE];

/// The names of all protocols, the default first.
pub(crate) const NAMES: [&str; 13] = [
    ONECOPY.name,
    GARGAMEL.name,
    ROUND_ROBIN.name,
    TASHKENT_PLUS.name,
    CENTRALISED_WRITES.name,
    PREVENTIVE.name,
    MIDDLE_R.name,
    EAGER.name,
    FR_L.name,
    FR_C.name,
    VR_L.name,
    CONFLICT_AWARE.name,
    C_JDBC,
];

/// The values of `rule`: the protocol's own, and those that `gargamel` can have instead.
pub(crate) const RULES: [&str; 3] = [OWN, "write-write", "read-write"];

/// The values of `see`: the protocol's own, which is `fresh` but under `middle-r`, and those that it can have instead.
pub(crate) const SIGHTS: [&str; 3] = [OWN, "fresh", "local"];

/// The values of `start`.
pub(crate) const STARTS: [&str; 2] = ["on-arrival", "ordered"];

/// The values of `perform`.
pub(crate) const PERFORMERS: [&str; 2] = ["holders", "home"];

/// The values of `message_max`.
pub(super) const MESSAGE_MAX: Kind = Kind::Duration(0, 60_000);

/// The default of `message_max`.
pub(super) const MESSAGE_MAX_DEFAULT: &str = "2ms";

/// The values of `memory`.
pub(super) const MEMORY: Kind = Kind::Size(1 << 20, 1 << 50);

/// The default of `memory`.
pub(crate) const MEMORY_DEFAULT: &str = "1GB";

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
    /// Only `tashkent+` makes groups by memory.
    HasNoGroups {
        /// The protocol.
        protocol: &'static str,
    },
    /// Only `preventive` orders by the times of submission.
    HasNoStamps {
        /// The protocol.
        protocol: &'static str,
    },
    /// Only `c-jdbc` has levels, early responses, a query cache and a balancer.
    HasNoLevels {
        /// The protocol.
        protocol: &'static str,
    },
    /// The weights of replicas are no list of numbers, or do not go with the balancer.
    Weights,
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
            Self::HasNoGroups { protocol } => write!(
                f,
                "\"memory\" is for protocol {}, and this is {protocol}: leave it out",
                TASHKENT_PLUS.name
            ),
            Self::HasNoStamps { protocol } => write!(
                f,
                "\"start\", \"message_max\" and \"perform\" are for protocol {}, and this is {protocol}: leave them out",
                PREVENTIVE.name
            ),
            Self::HasNoLevels { protocol } => write!(
                f,
                "\"transaction_level\", \"early_response\", \"query_cache\", \"balancer\" and those that belong to them are for \
                 protocol {C_JDBC}, and this is {protocol}: leave them out"
            ),
            Self::Weights => f.write_str(
                "\"balancer_weights\" goes with \"balancer\" = weighted alone, and is a number for each replica, such as 3,1,1",
            ),
            Self::SeesFresh { protocol } => {
                write!(f, "reads of protocol {protocol} are always fresh: leave \"see\" out")
            }
        }
    }
}

impl std::error::Error for ProtocolError {}

/// The bytes of a value of `memory`.
pub(crate) fn memory(text: &str) -> Result<u64, ValueError> {
    match MEMORY.parse(text)? {
        Value::Number(bytes) => Ok(bytes),
        other => unreachable!("a size is a number: {other:?}"),
    }
}

/// The settings that change a protocol of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjustments<'a> {
    /// One of [`RULES`].
    pub(crate) rule: &'a str,
    /// One of [`SIGHTS`].
    pub(crate) see: &'a str,
    /// The memory of a replica; its default goes with any protocol.
    pub(crate) memory_bytes: u64,
    /// How long transactions wait in chains.
    pub(crate) patience: Duration,
    /// One of [`STARTS`].
    pub(crate) start: &'a str,
    /// How long after its submission a transaction is ordered.
    pub(crate) message_max: Duration,
    /// One of [`PERFORMERS`].
    pub(crate) perform: &'a str,
    /// Those of `c-jdbc`.
    pub(crate) c_jdbc: CJdbcWords<'a>,
}

impl Adjustments<'_> {
    /// Whether those that only `preventive` has are left at their defaults.
    fn are_without_stamps(self) -> bool {
        let (start, perform) = (STARTS[0], PERFORMERS[0]);
        (self.start, self.perform) == (start, perform)
            && self.message_max == Duration::from_micros(preventive::WAIT_US)
    }
}

/// The protocol of this name, adjusted.
pub(crate) fn named(name: &str, adjustments: Adjustments<'_>) -> Result<Propagation, ProtocolError> {
    let Adjustments { rule, see, memory_bytes, patience, .. } = adjustments;
    let rule = match rule {
        "write-write" => Some(Rule::WriteWrite),
        "read-write" => Some(Rule::ReadWrite),
        _ => None,
    };
    let see = match see {
        "fresh" => Some(See::Fresh),
        "local" => Some(See::Local),
        _ => None,
    };
    if name == C_JDBC {
        check_shipping(C_JDBC, rule.is_some(), see, adjustments)?;
        return adjustments.c_jdbc.choices().map(Propagation::CJdbc);
    }
    if adjustments.c_jdbc != DEFAULTS {
        let protocol = NAMES.into_iter().find(|known| *known == name).ok_or(ProtocolError::Unknown)?;
        return Err(ProtocolError::HasNoLevels { protocol });
    }
    if let Some(mut choices) = OF_ROWS.into_iter().find(|choices| choices.name == name) {
        if let Some(rule) = rule {
            if choices != GARGAMEL {
                return Err(ProtocolError::HasNoRule { protocol: choices.name });
            }
            choices.order = Order::Chains(rule);
        }
        match &mut choices.home {
            HomePolicy::ByMemory { memory_bytes: bytes } => *bytes = memory_bytes,
            _ if memory_bytes != MEMORY_BYTES => {
                return Err(ProtocolError::HasNoGroups { protocol: choices.name });
            }
            _ => {}
        }
        if let Order::Stamps(mode) = &mut choices.order {
            mode.start = if adjustments.start == STARTS[1] { Start::Ordered } else { Start::OnArrival };
            mode.wait_us = u64::try_from(adjustments.message_max.as_micros()).unwrap_or(u64::MAX);
            choices.perform =
                if adjustments.perform == PERFORMERS[1] { Perform::Home } else { Perform::AllHolders };
        } else if !adjustments.are_without_stamps() {
            return Err(ProtocolError::HasNoStamps { protocol: choices.name });
        }
        choices.see = see.unwrap_or(choices.see);
        choices.patience_us = u64::try_from(patience.as_micros()).unwrap_or(u64::MAX);
        return Ok(Propagation::Rows(choices));
    }
    let choices = OF_STATEMENTS.into_iter().find(|choices| choices.name == name);
    let choices = choices.ok_or(ProtocolError::Unknown)?;
    check_shipping(choices.name, rule.is_some(), see, adjustments)?;
    Ok(Propagation::Statements(choices))
}

/// Refuses what no protocol that ships statements has.
fn check_shipping(
    protocol: &'static str,
    has_rule: bool,
    see: Option<See>,
    adjustments: Adjustments<'_>,
) -> Result<(), ProtocolError> {
    match see {
        _ if has_rule => Err(ProtocolError::HasNoRule { protocol }),
        _ if adjustments.memory_bytes != MEMORY_BYTES => Err(ProtocolError::HasNoGroups { protocol }),
        _ if !adjustments.are_without_stamps() => Err(ProtocolError::HasNoStamps { protocol }),
        Some(See::Local) => Err(ProtocolError::SeesFresh { protocol }),
        Some(See::Fresh) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::parts::stamps::Mode;

    const PLAIN: Adjustments<'static> = Adjustments {
        rule: OWN,
        see: OWN,
        memory_bytes: MEMORY_BYTES,
        patience: Duration::from_secs(3),
        start: "on-arrival",
        message_max: Duration::from_micros(preventive::WAIT_US),
        perform: "holders",
        c_jdbc: DEFAULTS,
    };

    #[test]
    fn every_name_is_a_protocol_and_settings_that_do_not_fit_are_refused() {
        for name in NAMES {
            let tried = |change: fn(&mut Adjustments<'_>)| {
                let mut adjustments = PLAIN;
                change(&mut adjustments);
                named(name, adjustments)
            };
            let by_rows = matches!(named(name, PLAIN), Ok(Propagation::Rows(_)));
            assert_eq!(by_rows, OF_ROWS.iter().any(|choices| choices.name == name), "{name}");
            assert_eq!(tried(|one| one.see = "local").is_ok(), by_rows, "{name}");
            assert_eq!(tried(|one| one.rule = "read-write").is_ok(), name == GARGAMEL.name, "{name}");
            let has_groups = tried(|one| one.memory_bytes = 64 << 20);
            assert_eq!(has_groups.is_ok(), name == TASHKENT_PLUS.name, "{name}");
            for change in [
                (|one| one.start = "ordered") as fn(&mut Adjustments<'_>),
                |one| one.message_max = Duration::from_millis(200),
                |one| one.perform = "home",
            ] {
                assert_eq!(tried(change).is_ok(), name == PREVENTIVE.name, "{name}");
            }
            for change in [
                (|one| one.c_jdbc.level = "optimistic") as fn(&mut Adjustments<'_>),
                |one| one.c_jdbc.respond = "first",
                |one| one.c_jdbc.balancer = "round-robin",
                |one| one.c_jdbc.cache = "table",
                |one| one.c_jdbc.cache_bytes = 1 << 20,
            ] {
                assert_eq!(tried(change).is_ok(), name == C_JDBC, "{name}");
            }
            if let Err(error) = has_groups {
                assert_eq!(error, ProtocolError::HasNoGroups { protocol: name });
            }
        }
        assert_eq!(NAMES.len(), OF_ROWS.len() + OF_STATEMENTS.len() + 1);
        let local = Adjustments { rule: "read-write", see: "local", ..PLAIN };
        let Ok(Propagation::Rows(choices)) = named("gargamel", local) else {
            panic!("gargamel has rules, and stale reads");
        };
        assert_eq!((choices.order, choices.see), (Order::Chains(Rule::ReadWrite), See::Local));
        assert_eq!(choices.patience_us, 3_000_000);
        let small = Adjustments { memory_bytes: 64 << 20, ..PLAIN };
        let Ok(Propagation::Rows(choices)) = named("tashkent+", small) else {
            panic!("tashkent+ takes the memory of a replica");
        };
        assert_eq!(choices.home, HomePolicy::ByMemory { memory_bytes: 64 << 20 });
        let basic = Adjustments {
            start: "ordered",
            message_max: Duration::from_millis(200),
            perform: "home",
            ..PLAIN
        };
        let Ok(Propagation::Rows(choices)) = named("preventive", basic) else {
            panic!("preventive has two ways to start, and its own Max");
        };
        assert_eq!(
            choices.order,
            Order::Stamps(Mode { start: Start::Ordered, wait_us: 200_000, skew_us: 0 })
        );
        assert_eq!(choices.perform, Perform::Home);
        assert_eq!(named("galera", PLAIN).unwrap_err(), ProtocolError::Unknown);
        assert_eq!(memory(MEMORY_DEFAULT), Ok(MEMORY_BYTES), "the protocol's own");
        assert!(memory("1kB").is_err() && memory("plenty").is_err());
    }

    #[test]
    fn reads_are_fresh_unless_the_protocol_or_the_operator_says_otherwise() {
        for (see, of_onecopy, of_middle_r) in [
            (OWN, See::Fresh, See::Local),
            ("fresh", See::Fresh, See::Fresh),
            ("local", See::Local, See::Local),
        ] {
            for (name, expected) in [("onecopy", of_onecopy), ("middle-r", of_middle_r)] {
                let Ok(Propagation::Rows(choices)) = named(name, Adjustments { see, ..PLAIN }) else {
                    panic!("{name} propagates rows");
                };
                assert_eq!(choices.see, expected, "{name} with see = {see}");
            }
        }
    }
}
