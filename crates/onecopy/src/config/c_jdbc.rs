//! The settings of the protocol `c-jdbc`.
//!
//! Example: `--protocol c-jdbc --transaction-level optimistic --early-response first --balancer weighted --balancer-weights 3,1`.

use std::collections::BTreeMap;

use cluster::ids::ReplicaId;
use cluster::protocols::c_jdbc::balancer::Balance;
use cluster::protocols::c_jdbc::early_response::Respond;
use cluster::protocols::c_jdbc::query_cache::Granularity;
use cluster::protocols::c_jdbc::{Choices, Level, Rules};

use super::kinds::Kind;
use super::protocol::ProtocolError;
use super::settings::Setting;

/// The name of the protocol.
pub(crate) const C_JDBC: &str = "c-jdbc";

/// The values of `transaction_level`, the default first.
pub(crate) const LEVELS: [&str; 3] = ["pessimistic", "optimistic", "pass-through"];

/// The values of `early_response`, the default first.
pub(crate) const RESPONSES: [&str; 3] = ["all", "majority", "first"];

/// The values of `balancer`, the default first.
pub(crate) const BALANCERS: [&str; 3] = ["least-pending", "round-robin", "weighted"];

/// The values of `query_cache`, the default first.
pub(crate) const CACHES: [&str; 3] = ["off", "table", "database"];

/// The values of `query_cache_size`.
const CACHE_SIZE: Kind = Kind::Size(1 << 20, 1 << 40);

/// The default of `query_cache_size`, in megabytes and as a word.
pub(crate) const CACHE_MB: u32 = 64;
const CACHE_SIZE_DEFAULT: &str = "64MB";

/// The largest weight of a replica.
const WEIGHT_MAX: u32 = 1_000_000;

/// The settings of the protocol, as words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CJdbcWords<'a> {
    /// One of [`LEVELS`].
    pub(crate) level: &'a str,
    /// One of [`RESPONSES`].
    pub(crate) respond: &'a str,
    /// One of [`BALANCERS`].
    pub(crate) balancer: &'a str,
    /// A weight for each replica, in their order, separated by commas; empty but for `weighted`.
    pub(crate) weights: &'a str,
    /// One of [`CACHES`].
    pub(crate) cache: &'a str,
    /// The size of the query cache, if there is one.
    pub(crate) cache_bytes: u64,
}

/// The defaults, which go with any protocol.
pub(crate) const DEFAULTS: CJdbcWords<'static> = CJdbcWords {
    level: LEVELS[0],
    respond: RESPONSES[0],
    balancer: BALANCERS[0],
    weights: "",
    cache: CACHES[0],
    cache_bytes: (CACHE_MB as u64) << 20,
};

/// Its row in the table of settings.
pub(super) const TRANSACTION_LEVEL: Setting = Setting {
    name: "transaction_level",
    flag: "transaction-level",
    kind: Kind::Word(&LEVELS),
    default: DEFAULTS.level,
    can_reload: false,
    about: "Which statements wait for which under protocol `c-jdbc`: those that share a table with a writer \
            (`pessimistic`), writers of one table (`optimistic`), or those that the servers let wait (`pass-through`).",
};

/// Its row in the table of settings.
pub(super) const EARLY_RESPONSE: Setting = Setting {
    name: "early_response",
    flag: "early-response",
    kind: Kind::Word(&RESPONSES),
    default: DEFAULTS.respond,
    can_reload: false,
    about: "The replicas that must have executed a write or the end of a transaction before its client is answered, under \
            protocol `c-jdbc`.",
};

/// Its row in the table of settings.
pub(super) const BALANCER: Setting = Setting {
    name: "balancer",
    flag: "balancer",
    kind: Kind::Word(&BALANCERS),
    default: DEFAULTS.balancer,
    can_reload: false,
    about: "The replica of a read under protocol `c-jdbc`: that with the fewest requests it has not answered \
            (`least-pending`), the next one (`round-robin`), or the next one by weights (`weighted`).",
};

/// Its row in the table of settings.
pub(super) const BALANCER_WEIGHTS: Setting = Setting {
    name: "balancer_weights",
    flag: "balancer-weights",
    kind: Kind::OptionalText,
    default: DEFAULTS.weights,
    can_reload: false,
    about: "The share of reads of each replica, in the order of the replicas, for `balancer = weighted`: numbers \
            separated by commas, such as `3,1,1`. A replica with 0 gets reads only if no other can.",
};

/// Its row in the table of settings.
pub(super) const QUERY_CACHE: Setting = Setting {
    name: "query_cache",
    flag: "query-cache",
    kind: Kind::Word(&CACHES),
    default: DEFAULTS.cache,
    can_reload: false,
    about: "Whether answers of reads outside transactions are kept and given again under protocol `c-jdbc`: until a table \
            that they read is written (`table`), or any table is (`database`). No answer is stale, at any level.",
};

/// Its row in the table of settings.
pub(super) const QUERY_CACHE_SIZE: Setting = Setting {
    name: "query_cache_size",
    flag: "query-cache-size",
    kind: CACHE_SIZE,
    default: CACHE_SIZE_DEFAULT,
    can_reload: false,
    about: "Size of the answers that `query_cache` keeps. Those that are asked for least are forgotten first.",
};

impl CJdbcWords<'_> {
    /// What a write makes obsolete of kept answers, if answers are kept.
    fn granularity(self) -> Option<Granularity> {
        match self.cache {
            "table" => Some(Granularity::Table),
            "database" => Some(Granularity::Database),
            _ => None,
        }
    }

    /// The size of the query cache; 0 if there is none.
    pub(crate) fn cache_bytes(self) -> u64 {
        self.granularity().map_or(0, |_| self.cache_bytes)
    }

    /// The choices of the scheduler.
    pub(crate) fn choices(self) -> Result<Choices, ProtocolError> {
        let level = match self.level {
            "pass-through" => Level::PassThrough,
            "optimistic" => Level::Optimistic,
            _ => Level::Pessimistic,
        };
        let respond = match self.respond {
            "first" => Respond::First,
            "majority" => Respond::Majority,
            _ => Respond::All,
        };
        let is_weighted = self.balancer == BALANCERS[2];
        if is_weighted == self.weights.is_empty() {
            return Err(ProtocolError::Weights);
        }
        let balance = match self.balancer {
            "round-robin" => Balance::RoundRobin,
            "weighted" => Balance::Weighted(weights(self.weights).ok_or(ProtocolError::Weights)?),
            _ => Balance::LeastPending,
        };
        Ok(Choices { level, respond, balance, cache: self.granularity(), rules: Rules::default() })
    }
}

/// The weights by replica; `None` if the text is no list of them.
fn weights(text: &str) -> Option<BTreeMap<ReplicaId, u32>> {
    let each = text.split(',').map(|word| word.trim().parse().ok().filter(|weight| *weight <= WEIGHT_MAX));
    (0..).map(ReplicaId).zip(each).map(|(replica, weight)| Some((replica, weight?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::kinds::Value;

    #[test]
    fn words_become_choices() {
        let plain = DEFAULTS.choices().unwrap();
        assert_eq!(
            (plain.level, plain.respond, plain.balance),
            (Level::Pessimistic, Respond::All, Balance::LeastPending)
        );
        assert_eq!((plain.cache, DEFAULTS.cache_bytes()), (None, 0));
        assert_eq!(CACHE_SIZE.parse(CACHE_SIZE_DEFAULT), Ok(Value::Number(DEFAULTS.cache_bytes)));
        let words = CJdbcWords {
            level: "pass-through",
            respond: "first",
            balancer: "weighted",
            weights: "3, 0",
            cache: "database",
            ..DEFAULTS
        };
        assert_eq!(words.cache_bytes(), DEFAULTS.cache_bytes);
        let chosen = words.choices().unwrap();
        let weights = BTreeMap::from([(ReplicaId(0), 3), (ReplicaId(1), 0)]);
        assert_eq!((chosen.level, chosen.respond), (Level::PassThrough, Respond::First));
        assert_eq!((chosen.balance, chosen.cache), (Balance::Weighted(weights), Some(Granularity::Database)));
    }

    #[test]
    fn weights_are_a_list_of_numbers_and_go_with_weighted_alone() {
        for (balancer, weights) in [
            ("weighted", ""),
            ("weighted", "1,x"),
            ("weighted", "2000000"),
            ("weighted", "1,"),
            ("round-robin", "1,1"),
        ] {
            let words = CJdbcWords { balancer, weights, ..DEFAULTS };
            assert_eq!(words.choices(), Err(ProtocolError::Weights), "{balancer} {weights}");
        }
    }
}
