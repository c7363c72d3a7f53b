//! A node over running servers: opens the log, core, agents and front end, and closes them again.
//!
//! [`up`] starts servers of its own; [`serve`] is given running ones. Both open a node over them ([`open`]), which
//! then serves clients ([`running`]). The order matters: a record of the new epoch fences the log before anything can
//! read its end.

mod add_replica_error;
mod adopting;
mod clients;
mod error;
mod etcd_check;
mod fenced_log;
mod member_registry;
pub(crate) mod metrics;
mod open;
mod process;
mod running;
pub(crate) mod serve;
mod several;
mod signals;
mod start;
mod succession;
pub(crate) mod systemd;
pub(crate) mod up;

pub(crate) use error::NodeError;

use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows::See;

use crate::config::ElasticConfig;
use crate::config::placement::PlacementRules;
use crate::config::protocol::Propagation;

/// Refuses bounds of replicas where replicas cannot come and go.
fn check_elastic(config: &ElasticConfig, propagation: &Propagation) -> Result<(), NodeError> {
    match (config.replicas, propagation) {
        (Some(_), Propagation::Statements(_) | Propagation::CJdbc(_)) => Err(NodeError::NotElastic),
        _ => Ok(()),
    }
}

/// Refuses a result cache where replicas may answer with less than the latest version.
fn check_cache(bytes_max: u64, propagation: &Propagation) -> Result<(), NodeError> {
    let is_fresh = matches!(propagation, Propagation::Rows(choices)
        if choices.name == ONECOPY.name && choices.see == See::Fresh);
    if bytes_max > 0 && !is_fresh { Err(NodeError::NotCached) } else { Ok(()) }
}

/// Refuses rules for new tables where every replica holds everything.
fn check_placement(rules: &PlacementRules, propagation: &Propagation) -> Result<(), NodeError> {
    match (rules.iter().next(), propagation) {
        (Some(rule), Propagation::Statements(_) | Propagation::CJdbc(_)) => {
            Err(NodeError::NotPlaced { line: rule.line.clone() })
        }
        _ => Ok(()),
    }
}
