//! Commands of the admin database that change what replicas there are, or whether one may serve.
//!
//! A rebuild goes on when the client that asked for it goes away; whoever waits for it hears every second how far it is.

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use wire::{encode, sqlstate};

use super::check;
use super::client::Client;
use super::fault::Refusal;
use crate::hub::Hub;
use crate::rebuild::{self, RebuildError};

/// How often a waiting client hears how far it is.
const NOTICE_EVERY: Duration = Duration::from_secs(1);

/// What can be ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Compare all that are up, and put those in quarantine that differ.
    Check,
    /// Give a replica the data of another one.
    Rebuild(String),
}

/// The order in a statement; `None` when it is something else. Words are in any case, a name is as it is written.
pub(super) fn parse(sql: &[u8]) -> Option<Order> {
    let text = String::from_utf8_lossy(sql).into_owned();
    let words: Vec<&str> = text.trim_end_matches([';', ' ', '\n', '\t']).split_whitespace().collect();
    let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
    match (upper.as_slice(), words.as_slice()) {
        (["CHECK", "REPLICAS"], _) => Some(Order::Check),
        (["REBUILD", "REPLICA", _], [.., name]) => Some(Order::Rebuild(name.trim_matches('"').to_owned())),
        _ => None,
    }
}

impl Order {
    /// The command tag.
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Check => "CHECK",
            Self::Rebuild(_) => "REBUILD",
        }
    }

    /// The columns of its answer.
    pub(super) fn columns(&self) -> &'static str {
        match self {
            Self::Check => check::COLUMNS,
            Self::Rebuild(_) => "replica donor megabytes version",
        }
    }
}

/// Carries an order out.
pub(super) async fn run(
    hub: &Arc<Hub>,
    order: &Order,
    client: &mut Client,
) -> Result<Vec<Vec<String>>, Refusal> {
    match order {
        Order::Check => check::run(hub).await,
        Order::Rebuild(name) => {
            let replica = named(hub, name)?;
            let mut task = tokio::spawn(rebuild::run(Arc::clone(hub), replica));
            let rebuilt = loop {
                tokio::select! {
                    ended = &mut task => break ended,
                    () = tokio::time::sleep(NOTICE_EVERY) => tell_stage(hub, replica, client).await,
                }
            };
            let failed = |text: String| Refusal::plain(sqlstate::INTERNAL_ERROR, text);
            let rebuilt = rebuilt.map_err(|error| failed(format!("the rebuild broke off: {error}")))?;
            let rebuilt = rebuilt.map_err(|error| refusal(name, &error))?;
            let megabytes = (rebuilt.bytes >> 20).to_string();
            Ok(vec![vec![name.clone(), rebuilt.donor, megabytes, rebuilt.version.to_string()]])
        }
    }
}

/// The replica of this name.
fn named(hub: &Hub, name: &str) -> Result<ReplicaId, Refusal> {
    let found = hub.seats.iter().position(|seat| seat.name == name);
    found.and_then(|index| u16::try_from(index).ok()).map(ReplicaId).ok_or_else(|| {
        Refusal::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("there is no replica \"{name}\""),
            "SHOW REPLICAS tells their names.",
        )
    })
}

async fn tell_stage(hub: &Hub, replica: ReplicaId, client: &mut Client) {
    if let Some(stage) = hub.stage(replica) {
        encode::notice(&mut client.out, "NOTICE", sqlstate::SUCCESS, &stage.to_string(), None);
        if client.flush().await.is_err() {
            tracing::debug!("the client that asked for the rebuild has gone");
        }
    }
}

fn refusal(name: &str, error: &RebuildError) -> Refusal {
    let message = format!("replica \"{name}\" cannot be rebuilt: {error}");
    let state = sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE;
    match error {
        RebuildError::Underway => Refusal::new(state, message, "SHOW REPLICAS tells how far it is."),
        RebuildError::NotOurs => Refusal::new(
            sqlstate::FEATURE_NOT_SUPPORTED,
            message,
            "Only servers of `onecopy up` are rebuilt in place.",
        ),
        RebuildError::NoDonor => Refusal::new(
            state,
            message,
            "SHOW REPLICAS tells the state of each; wait until another one is up.",
        ),
        RebuildError::Failed(_) | RebuildError::Stuck(_) => Refusal::new(
            state,
            message,
            "When the cause is removed, run REBUILD REPLICA again. Until then the replica serves nothing.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_words_in_any_case_and_a_name_as_it_is_written() {
        assert_eq!(parse(b"rebuild  Replica replica-2 ;\n"), Some(Order::Rebuild("replica-2".into())));
        assert_eq!(parse(b"REBUILD REPLICA \"Big One\""), None);
        assert_eq!(parse(b"REBUILD REPLICA \"One\""), Some(Order::Rebuild("One".into())));
        assert_eq!(parse(b"check replicas;"), Some(Order::Check));
        assert_eq!(parse(b"REBUILD REPLICA"), None);
        assert_eq!(parse(b"SHOW REPLICAS"), None);
    }
}
