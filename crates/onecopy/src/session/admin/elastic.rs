//! SHOW ELASTIC and SHOW COST.

use std::time::{Duration, SystemTime};

use cluster::ids::ReplicaId;
use cluster::parts::elastic::{Sample, Standing};

use crate::calendar;
use crate::coordinator::Leader;
use crate::coordinator::elasticity::{Decided, Usage};
use crate::elastic::load;

/// One row for each member, then one for each of the last decisions, the newest first.
pub(super) fn elastic(leader: &Leader) -> Vec<Vec<String>> {
    let elasticity = &leader.elasticity;
    let loads = elasticity.loads();
    let members = leader.replicas();
    let members = members.iter().map(|status| {
        let name = name(leader, Some(status.replica));
        let state = match load::standing(leader, status) {
            Standing::Anchor => "anchor",
            Standing::Serving => "serving",
            Standing::Away => "away",
            Standing::Parked => "parked",
        };
        let share = |of: fn(&Sample) -> u32| {
            let sample = loads.get(&status.replica);
            sample.map_or_else(String::new, |sample| format!("{:.2}", f64::from(of(sample)) / 1e3))
        };
        let (busy, queued) = (share(|sample| sample.busy_permille), share(|sample| sample.queued_permille));
        [String::new(), name, state.to_owned(), busy, queued, String::new(), String::new(), String::new()]
    });
    let decisions = elasticity.decisions().into_iter().map(|decided| {
        let Decided { at, change, replica, reason, outcome } = decided;
        let outcome = if outcome.is_empty() { "under way".to_owned() } else { outcome };
        let name = name(leader, replica);
        let [state, busy, queued] = [(); 3].map(|()| String::new());
        [calendar::shown(at.into()), name, state, busy, queued, change.word().to_owned(), reason, outcome]
    });
    members.chain(decisions).map(Vec::from).collect()
}

/// The usage since the start of the node, and since the folder of the cluster was made.
pub(super) fn cost(leader: &Leader) -> Vec<Vec<String>> {
    let elasticity = &leader.elasticity;
    let price = elasticity.price_per_hour();
    let row = |(since, usage): (&str, Usage)| {
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(usage.began_s);
        let cost = price.map(|price| price * usage.replica_hours());
        let each = |count: u64| match cost {
            Some(cost) if count > 0 => format!("{:.6}", cost * 1e3 / count as f64),
            _ => String::new(),
        };
        vec![
            since.to_owned(),
            calendar::shown(began.into()),
            format!("{:.4}", usage.replica_hours()),
            usage.commits.to_string(),
            usage.transactions.to_string(),
            cost.map_or_else(String::new, |cost| format!("{cost:.6}")),
            each(usage.commits),
            each(usage.transactions),
        ]
    };
    [("start", elasticity.since_start()), ("boot", elasticity.since_boot())].map(row).into()
}

fn name(leader: &Leader, replica: Option<ReplicaId>) -> String {
    replica.map_or_else(String::new, |replica| leader.seats[replica].name.clone())
}
