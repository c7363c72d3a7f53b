//! Commands of the admin database that add and remove replicas, or change whether one may serve.
//!
//! A rebuild continues when its client goes away. A client that waits gets the progress every second.

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::ReplicaId;
use sql::Name;
use sql::profile::table_names;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use wire::sqlstate;

use super::asker::{Asker, Presence};
use crate::coordinator::Leader;
use crate::coordinator::node_kind::Feature;
use crate::coordinator::requests::{Invitee, RequestError};
use crate::elastic::park;
use crate::elastic::park::{ParkError, Woken};
use crate::error::{Refusal, register_sqlstate};
use crate::membership::check;
use crate::membership::member_error::{MemberError, MemberFailure};
use crate::membership::members;
use crate::membership::place_table;
use crate::membership::resync;
use crate::membership::resync::{RebuildError, ResyncSummary};

/// How often a waiting client gets the progress.
const NOTICE_EVERY: Duration = Duration::from_secs(1);
/// How long DRAIN waits for open transactions at a replica.
const DRAIN_MAX: Duration = Duration::from_mins(1);
/// How often DRAIN checks.
const DRAIN_LOOK: Duration = Duration::from_millis(20);

/// A command about replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// CHECK REPLICAS: compare all replicas that are up, and quarantine those that differ.
    Check,
    /// Give a replica the data of another one.
    Rebuild(String),
    /// Add a replica: at this address, or with a server of our own. It may be told to hold placed tables.
    Add { url: Option<String>, holds: Holds },
    /// Remove a replica.
    Drop(String),
    /// DRAIN: a replica gets no new work.
    Drain(String),
    /// A replica gets work again.
    Undrain(String),
    /// Drain a replica and stop its server.
    Park(String),
    /// Start the server of a parked replica.
    Wake(String),
}

/// Which of the tables that only some replicas hold a new one gets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Holds {
    /// None.
    Others,
    /// These.
    Tables(Vec<Name>),
    /// All of them.
    Everything,
}

/// Reads the order in a statement; `None` if it is no such order. Words may be in any case; a name keeps its case.
pub(crate) fn parse(sql: &[u8]) -> Result<Option<Order>, Refusal> {
    let text = String::from_utf8_lossy(sql).into_owned();
    let (text, holds) = without_holds(text.trim_end_matches([';', ' ', '\n', '\t']))?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
    let order = match (upper.as_slice(), words.as_slice()) {
        (["CHECK", "REPLICAS"], _) => Order::Check,
        (["ADD", "REPLICA"], _) => Order::Add { url: None, holds },
        (["ADD", "REPLICA", _], [.., url]) => Order::Add { url: Some(unquoted(url, '\'')?), holds },
        (["REBUILD", "REPLICA", _], [.., name]) => Order::Rebuild(unquoted(name, '"')?),
        (["DROP", "REPLICA", _], [.., name]) => Order::Drop(unquoted(name, '"')?),
        (["DRAIN", "REPLICA", _], [.., name]) => Order::Drain(unquoted(name, '"')?),
        (["UNDRAIN", "REPLICA", _], [.., name]) => Order::Undrain(unquoted(name, '"')?),
        (["PARK", "REPLICA", _], [.., name]) => Order::Park(unquoted(name, '"')?),
        (["WAKE", "REPLICA", _], [.., name]) => Order::Wake(unquoted(name, '"')?),
        _ => return Ok(None),
    };
    Ok(Some(order))
}

/// Splits `HOLDS a, b` off from the end of ADD REPLICA.
fn without_holds(text: &str) -> Result<(&str, Holds), Refusal> {
    const WORD: &str = " HOLDS ";
    let upper = text.to_ascii_uppercase();
    let Some(at) = upper.find(WORD).filter(|_| upper.trim_start().starts_with("ADD")) else {
        return Ok((text, Holds::Others));
    };
    let tables = text[at + WORD.len()..].trim();
    if tables.eq_ignore_ascii_case("EVERYTHING") {
        return Ok((&text[..at], Holds::Everything));
    }
    let names = table_names(tables).map_err(|error| {
        let hint = "Write HOLDS EVERYTHING, or HOLDS with tables as in PLACE TABLE.";
        Refusal::new(sqlstate::SYNTAX_ERROR, format!("HOLDS cannot be understood: {error}"), hint)
    })?;
    Ok((&text[..at], Holds::Tables(names)))
}

/// A word without its quotes, if it has any.
pub(super) fn unquoted(word: &str, quote: char) -> Result<String, Refusal> {
    let inside = match word.strip_prefix(quote) {
        Some(rest) => rest.strip_suffix(quote),
        None => Some(word),
    };
    match inside {
        Some(inside) if !inside.is_empty() && !inside.contains(['"', '\'']) => Ok(inside.to_owned()),
        _ => Err(Refusal::new(
            sqlstate::SYNTAX_ERROR,
            format!("the quotes do not match in {word}"),
            "Write a replica's name as SHOW REPLICAS has it, plainly or in double quotes, and an address in single quotes.",
        )),
    }
}

impl Order {
    /// The command tag.
    pub(crate) fn tag(&self) -> &'static str {
        match self {
            Self::Check => "CHECK",
            Self::Rebuild(_) => "REBUILD",
            Self::Add { .. } => "ADD",
            Self::Drop(_) => "DROP",
            Self::Drain(_) => "DRAIN",
            Self::Undrain(_) => "UNDRAIN",
            Self::Park(_) => "PARK",
            Self::Wake(_) => "WAKE",
        }
    }

    /// The columns of the order's answer.
    pub(crate) fn columns(&self) -> &'static str {
        match self {
            Self::Check => check::COLUMNS,
            Self::Rebuild(_) | Self::Add { .. } => "replica donor megabytes version",
            Self::Drop(_) => "replica members",
            Self::Drain(_) | Self::Undrain(_) => "replica state",
            Self::Park(_) => "replica version",
            Self::Wake(_) => "replica version donor",
        }
    }
}

/// Carries an order out.
pub(super) async fn run(
    leader: &Arc<Leader>,
    order: &Order,
    asker: &mut Asker<'_>,
) -> Result<Vec<Vec<String>>, Refusal> {
    match order {
        Order::Check => check::run(leader).await,
        Order::Rebuild(name) => {
            leader.kind.check(Feature::Rebuild)?;
            let replica = awake(leader, name, "rebuilt")?;
            if leader.seats[replica].supervisor.get().is_none() {
                if leader.kind.check(Feature::Refill).is_err() {
                    return Err(refusal(name, &RebuildError::NotOurs));
                }
                return refill(leader, name, replica, asker).await;
            }
            let task = tokio::spawn(resync::run(Arc::clone(leader), replica));
            let rebuilt = watched(leader, replica, task, asker).await?;
            rebuilt.map(|rebuilt| rebuilt_row(name, rebuilt)).map_err(|error| refusal(name, &error))
        }
        Order::Add { url, holds } => add(leader, url.as_ref(), holds, asker).await,
        Order::Drop(name) => {
            let replica = named(leader, name)?;
            let refused = |error| member_refusal(&format!("replica \"{name}\" cannot be dropped"), &error);
            let removed = members::dismiss(leader, replica).await.map_err(refused)?;
            if let Err(reason) = removed {
                let text = format!("it is no longer a member, but not all of its server is gone: {reason}");
                asker.warn(&text).await;
            }
            Ok(vec![vec![name.clone(), leader.seats.len().to_string()]])
        }
        Order::Drain(name) => {
            let replica = awake(leader, name, "drained")?;
            let refused = |error| member_refusal(&format!("replica \"{name}\" cannot be drained"), &error);
            drain(leader, replica, asker).await.map_err(refused)?;
            let is_empty = emptied(leader, replica, asker).await;
            Ok(vec![vec![name.clone(), if is_empty { "drained" } else { "draining" }.to_owned()]])
        }
        Order::Undrain(name) => {
            let replica = awake(leader, name, "undrained")?;
            leader.drain(replica, false);
            Ok(vec![vec![name.clone(), "serving".to_owned()]])
        }
        Order::Park(name) => {
            let replica = named(leader, name)?;
            let least = leader.elasticity.least();
            let task = tokio::spawn(park::park(Arc::clone(leader), replica, least));
            let parked = watched(leader, replica, task, asker).await?;
            let version = parked.map_err(|error| park_refusal(name, "parked", &error))?;
            Ok(vec![vec![name.clone(), version.to_string()]])
        }
        Order::Wake(name) => {
            let replica = named(leader, name)?;
            let task = tokio::spawn(park::wake(Arc::clone(leader), replica));
            let woken = watched(leader, replica, task, asker).await?;
            let Woken { version, donor } = woken.map_err(|error| park_refusal(name, "woken", &error))?;
            Ok(vec![vec![name.clone(), version.to_string(), donor.unwrap_or_default()]])
        }
    }
}

/// Adds a replica, and gives it placed tables.
async fn add(
    leader: &Arc<Leader>,
    url: Option<&String>,
    holds: &Holds,
    asker: &mut Asker<'_>,
) -> Result<Vec<Vec<String>>, Refusal> {
    let refused = |error| member_refusal("a replica cannot be added", &error);
    let who = url.cloned().map_or(Invitee::Made, Invitee::At);
    let newcomer = members::invite(leader, who).await.map_err(refused)?;
    let replica = newcomer.replica;
    let task = tokio::spawn(members::furnish(Arc::clone(leader), newcomer));
    let added = watched(leader, replica, task, asker).await?.map_err(refused)?;
    let tables = match holds {
        Holds::Others => return Ok(rebuilt_row(&leader.seats[replica].name, added)),
        Holds::Tables(names) => Some(names.clone()),
        Holds::Everything => None,
    };
    let task = tokio::spawn(place_table::give(Arc::clone(leader), replica, tables));
    let given = watched(leader, replica, task, asker).await?;
    given.map_err(|error| error.refusal())?;
    Ok(rebuilt_row(&leader.seats[replica].name, added))
}

/// Drains a replica. Every second it tells the client which sessions it waits for.
async fn drain(leader: &Leader, replica: ReplicaId, asker: &mut Asker<'_>) -> Result<(), MemberError> {
    let mut draining = std::pin::pin!(members::drain(leader, replica));
    loop {
        tokio::select! {
            drained = &mut draining => return drained,
            () = tokio::time::sleep(NOTICE_EVERY) => {
                let holders = leader.local.sessions.holders();
                let text = match holders {
                    0 => "open transactions are waited for".to_owned(),
                    _ => format!("{holders} sessions hold state there; SHOW CLIENTS says in pinned what it is"),
                };
                asker.notice(&text).await;
            }
        }
    }
}

/// Rebuilds a replica whose server Onecopy does not run: it leaves, is emptied and filled, and joins again.
async fn refill(
    leader: &Arc<Leader>,
    name: &str,
    replica: ReplicaId,
    asker: &mut Asker<'_>,
) -> Result<Vec<Vec<String>>, Refusal> {
    if let Some(version) = resync::revive(leader, replica).await {
        return Ok(rebuilt_row(name, ResyncSummary { donor: String::new(), bytes: 0, version }));
    }
    let refused = |error| member_refusal(&format!("replica \"{name}\" cannot be rebuilt"), &error);
    members::may_be_refilled(leader, replica).await.map_err(refused)?;
    // An error about the remains of its server is ignored: the copy replaces them.
    let _ = members::dismiss(leader, replica).await.map_err(refused)?;
    let gone = |error: MemberError| {
        let message = format!("replica \"{name}\" is no longer a member, and was not filled: {error}");
        let hint = "When the cause is removed, ADD REPLICA with its address; what it has left of the cluster does not matter.";
        Refusal::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message, hint)
    };
    let newcomer = members::invite(leader, Invitee::Former(replica)).await.map_err(gone)?;
    let replica = newcomer.replica;
    let task = tokio::spawn(members::furnish(Arc::clone(leader), newcomer));
    let added = watched(leader, replica, task, asker).await?.map_err(gone)?;
    Ok(rebuilt_row(name, added))
}

/// Waits until a replica has its data, and reports the progress to the client.
pub(super) async fn watched<T>(
    leader: &Leader,
    replica: ReplicaId,
    mut task: JoinHandle<T>,
    asker: &mut Asker<'_>,
) -> Result<T, Refusal> {
    let ended = loop {
        tokio::select! {
            ended = &mut task => break ended,
            () = tokio::time::sleep(NOTICE_EVERY) => tell_stage(leader, replica, asker).await,
        }
    };
    ended.map_err(|error| Refusal::plain(sqlstate::INTERNAL_ERROR, format!("it broke off: {error}")))
}

pub(super) fn rebuilt_row(name: &str, rebuilt: ResyncSummary) -> Vec<Vec<String>> {
    let ResyncSummary { donor, bytes, version } = rebuilt;
    vec![vec![name.to_owned(), donor, (bytes >> 20).to_string(), version.to_string()]]
}

/// Waits, without a limit, until no session uses a drained replica. Returns whether that is so.
async fn emptied(leader: &Leader, replica: ReplicaId, asker: &mut Asker<'_>) -> bool {
    let deadline = Instant::now() + DRAIN_MAX;
    let mut tell = Instant::now() + NOTICE_EVERY;
    loop {
        let users = members::users(leader, replica);
        if users == 0 || Instant::now() > deadline {
            return users == 0;
        }
        if Instant::now() > tell {
            tell += NOTICE_EVERY;
            let text = format!("{users} sessions are in the middle of something there");
            if asker.notice(&text).await == Presence::Gone {
                return false;
            }
        }
        tokio::time::sleep(DRAIN_LOOK).await;
    }
}

fn named(leader: &Leader, name: &str) -> Result<ReplicaId, Refusal> {
    leader.seats.named(name).map(|seat| seat.replica).ok_or_else(|| {
        Refusal::new(
            sqlstate::UNDEFINED_OBJECT,
            format!("there is no replica \"{name}\""),
            "SHOW REPLICAS lists their names.",
        )
    })
}

/// A replica that is not parked.
pub(super) fn awake(leader: &Leader, name: &str, what: &str) -> Result<ReplicaId, Refusal> {
    let replica = named(leader, name)?;
    if leader.parking.state(replica).is_parked() {
        let message = format!("replica \"{name}\" cannot be {what}: it is parked");
        let hint = format!("WAKE REPLICA {name} starts it.");
        return Err(Refusal::new(sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, message, hint));
    }
    Ok(replica)
}

async fn tell_stage(leader: &Leader, replica: ReplicaId, asker: &mut Asker<'_>) {
    if let Some(stage) = leader.stage(replica) {
        asker.notice(&stage.to_string()).await;
    }
}

fn refusal(name: &str, error: &RebuildError) -> Refusal {
    let message = format!("replica \"{name}\" cannot be rebuilt: {error}");
    let state = sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE;
    match error {
        RebuildError::Underway => Refusal::new(state, message, "SHOW REPLICAS shows how far it is."),
        RebuildError::NotOurs => {
            Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, message, "The members cannot be changed here.")
        }
        RebuildError::NoDonor => Refusal::new(
            state,
            message,
            "SHOW REPLICAS shows the state of each; wait until another one is up.",
        ),
        RebuildError::Failed(_) | RebuildError::Stuck(_) => Refusal::new(
            state,
            message,
            "When the cause is removed, run REBUILD REPLICA again. Until then the replica serves nothing.",
        ),
    }
}

fn member_refusal(what: &str, error: &MemberError) -> Refusal {
    let message = format!("{what}: {error}");
    let state = sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE;
    match error {
        MemberError::Unsupported { instead, .. } => {
            Refusal::new(sqlstate::FEATURE_NOT_SUPPORTED, message, *instead)
        }
        MemberError::Underway => Refusal::new(state, message, "SHOW REPLICAS shows how far it is."),
        MemberError::NoOther => Refusal::new(
            state,
            message,
            "SHOW REPLICAS shows the state of each; wait until another one is up, or UNDRAIN one.",
        ),
        MemberError::LastHolder { table } => Refusal::new(
            sqlstate::DEPENDENT_OBJECTS_STILL_EXIST,
            message,
            format!("Nothing has changed. Let another replica hold {table} first, or drop it."),
        ),
        MemberError::Failed(MemberFailure::Request(RequestError::Register(error))) => Refusal::new(
            register_sqlstate(error),
            message,
            "Nothing has changed. When the cause is removed, try it again.",
        ),
        MemberError::Failed(_) => {
            Refusal::new(state, message, "Nothing has changed. When the cause is removed, try it again.")
        }
        MemberError::Stuck(_) => Refusal::new(
            state,
            message,
            "It is a member; SHOW REPLICAS shows its state. REBUILD REPLICA gives it other data, DROP REPLICA ends it.",
        ),
    }
}

fn park_refusal(name: &str, what: &str, error: &ParkError) -> Refusal {
    let message = format!("replica \"{name}\" cannot be {what}: {error}");
    let (state, hint) = match error {
        ParkError::Busy => (sqlstate::OBJECT_IN_USE, "Try again when that has ended."),
        ParkError::IsParked => (sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "WAKE REPLICA starts it."),
        ParkError::InUse { .. } => {
            (sqlstate::OBJECT_IN_USE, "It serves again. SHOW CLIENTS names the sessions, and KILL ends one.")
        }
        ParkError::BelowLeast { .. } | ParkError::NoOther => {
            (sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "WAKE or ADD another replica first, or UNDRAIN one.")
        }
        ParkError::NotStarted(_) | ParkError::Stuck(_) | ParkError::NotRebuilt(_) => (
            sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
            "It is no longer parked; SHOW REPLICAS shows its state. REBUILD REPLICA gives it other data.",
        ),
        ParkError::Unwritten(error) => (register_sqlstate(error), "SHOW REPLICAS shows the state of each."),
        ParkError::NotParked
        | ParkError::NotUp
        | ParkError::Underway
        | ParkError::NotDrained(_)
        | ParkError::Lost => {
            (sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE, "SHOW REPLICAS shows the state of each.")
        }
    };
    Refusal::new(state, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_holder_of_a_table_is_named_with_what_to_do() {
        let error = MemberError::LastHolder { table: "table public.orders".to_owned() };
        let refusal = member_refusal("replica \"b\" cannot be dropped", &error);
        assert_eq!(refusal.sqlstate, "2BP01");
        let message = "replica \"b\" cannot be dropped: no other replica holds table public.orders";
        assert_eq!(refusal.message, message);
        let hint = "Nothing has changed. Let another replica hold table public.orders first, or drop it.";
        assert_eq!(refusal.hint.as_deref(), Some(hint));
    }

    #[test]
    fn an_order_is_words_in_any_case_and_a_name_as_it_is_written() {
        let parsed = |sql: &str| parse(sql.as_bytes()).unwrap();
        assert_eq!(parsed("rebuild  Replica replica-2 ;\n"), Some(Order::Rebuild("replica-2".into())));
        assert_eq!(parsed("REBUILD REPLICA \"Big One\""), None);
        assert_eq!(parsed("REBUILD REPLICA \"One\""), Some(Order::Rebuild("One".into())));
        assert_eq!(parsed("check replicas;"), Some(Order::Check));
        assert_eq!(parsed("add replica;"), Some(Order::Add { url: None, holds: Holds::Others }));
        let url = "postgresql://B:5432".to_owned();
        let add = |holds| Some(Order::Add { url: Some(url.clone()), holds });
        assert_eq!(parsed("ADD REPLICA 'postgresql://B:5432'"), add(Holds::Others));
        let tables = Holds::Tables(table_names("a, s.b").unwrap());
        assert_eq!(parsed("ADD REPLICA 'postgresql://B:5432' holds a, s.b;"), add(tables));
        assert_eq!(parsed("add replica 'postgresql://B:5432' HOLDS everything"), add(Holds::Everything));
        assert!(parse(b"ADD REPLICA HOLDS a b").is_err());
        assert_eq!(parsed("Drop replica One"), Some(Order::Drop("One".into())));
        assert_eq!(parsed("DRAIN REPLICA One;"), Some(Order::Drain("One".into())));
        assert_eq!(parsed("undrain replica One"), Some(Order::Undrain("One".into())));
        assert_eq!(parsed("park replica One"), Some(Order::Park("One".into())));
        assert_eq!(parsed("Wake Replica One;"), Some(Order::Wake("One".into())));
        assert_eq!(parsed("KEEP REPLICA One"), None);
        assert_eq!(parsed("REBUILD REPLICA"), None);
        assert_eq!(parsed("SHOW REPLICAS"), None);
    }

    #[test]
    fn a_quote_that_is_not_closed_is_no_part_of_a_name() {
        for sql in [
            "DRAIN REPLICA \"a",
            "DRAIN REPLICA a\"",
            "DROP REPLICA \"a\"\"",
            "REBUILD REPLICA \"\"",
            "UNDRAIN REPLICA 'a'",
            "ADD REPLICA 'postgresql://b",
            "ADD REPLICA \"postgresql://b\"",
        ] {
            let refused = parse(sql.as_bytes()).unwrap_err();
            assert!(refused.message.contains("the quotes do not match"), "{sql}");
        }
    }
}
