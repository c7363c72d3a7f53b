//! Makes a cluster of existing servers, and recognises them at every later start.
//!
//! A folder without a cluster adopts servers, if etcd has none either. All of them have to be there, and they have to be all identical or all
//! empty. Identical means equal checksums, as in VERIFY, with roles and the positions of sequences included.
//!
//! Adoption has two steps. Before anything is installed, the folder gets a description that says "not adopted yet".
//! Once our objects are in all servers, and VERIFY has found no change in between, the description says "adopted". A
//! start that finds "not adopted yet" removes our objects and begins again, so a crash leaves no half-done adoption.
//!
//! A node with a cluster only serves servers of that cluster. The register remembers its members if they differ from those of
//! the configuration ([`super::members`]). A server that is out of reach at a start, or is not of the cluster, does not
//! keep the others from serving. Its agent repeats the check, and lets the server in once it passes.
//!
//! Not here: which records a server has (the replica driver reads it), and copying data to an empty server
//! ([`super::initial_copy`]).

mod contents;
mod difference;

mod error;
mod objects;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::ids::{ClusterId, ReplicaId};
use tokio::task::spawn_blocking;

use super::cluster_file::{self, ClusterFileError, Member, Membership};
use super::reach::{ReachError, ReachedServer, reach};
use crate::backend::{BackendError, OwnConnection, Served};
use crate::config::log::LogPlace;
use crate::config::{Replica, address_of};
use crate::coordinator::etcd_log;
use crate::coordinator::open_error::OpenError;
use crate::coordinator::register::TermRegister;
pub(crate) use contents::what_is_there;
pub(crate) use error::AdoptionError;
use error::NonMember;
pub(crate) use objects::EVENT_TRIGGERS;
use objects::REMOVE_SCHEMAS;

/// The pause between attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(200);
/// The members with their addresses.
pub(crate) type Places = Vec<(ReplicaId, Replica)>;

/// What the node knows of its cluster before it has a log.
#[derive(Debug)]
pub(crate) struct Settled {
    pub(crate) membership: Membership,
    pub(crate) places: Places,
    /// The entry of the members on etcd, if it has one.
    pub(crate) on_etcd: Option<Vec<u8>>,
}

/// Checks the servers against the members, and adopts them if there is no cluster yet. With the log on etcd, the members are those
/// there; the folder counts only until etcd has some.
pub(crate) async fn settle(
    folder: &Path,
    log: &LogPlace,
    served: &Served,
    replicas: &[Replica],
    patience: Duration,
) -> Result<Settled, AdoptionError> {
    cluster_file::refuse_folder_of_up(folder)?;
    let on_etcd = members_on_etcd(log).await?;
    let known = match &on_etcd {
        Some(value) => Some(cluster_file::decode(value, || "the list of members on etcd".to_owned())?),
        None => cluster_file::read(folder)?,
    };
    if let Some(membership) = known.clone().filter(Membership::is_adopted) {
        let places = places(&membership, served, replicas)?;
        check_members(&membership, served, &places).await?;
        return Ok(Settled { membership, places, on_etcd });
    }
    let mut open = reach_all(served, replicas, patience).await?;
    for (replica, found) in &mut open {
        let Some(id) = found.cluster.clone() else { continue };
        if known.as_ref().is_none_or(|membership| membership.cluster() != id) {
            let (replica, folder) = (replica.name.clone(), folder.to_owned());
            return Err(AdoptionError::ForeignCluster { replica, cluster: id, folder });
        }
        remove(&mut found.connection).await.map_err(|source| AdoptionError::unreadable(replica, source))?;
    }
    contents::compare(&mut open).await?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(AdoptionError::Random)?;
    let cluster = known.map_or_else(
        || ClusterId(u128::from_be_bytes(random)).to_string(),
        |known| known.cluster().to_owned(),
    );
    let names = replicas.iter().map(|replica| replica.name.clone()).collect();
    let membership = Membership::begin(cluster, names);
    cluster_file::write(folder, &membership)?;
    let places = (0..).map(ReplicaId).zip(replicas.iter().cloned()).collect();
    Ok(Settled { membership, places, on_etcd })
}

async fn members_on_etcd(log: &LogPlace) -> Result<Option<Vec<u8>>, AdoptionError> {
    let LogPlace::Etcd(place) = log.clone() else { return Ok(None) };
    let read = spawn_blocking(move || etcd_log::members(&place)).await;
    let read = read.unwrap_or_else(|error| Err(OpenError::Log(error.into())));
    read.map_err(|error| AdoptionError::Etcd(Box::new(error)))
}

/// The members with their addresses, which come from the configuration. A member that was added while a node ran may be
/// missing there, and one that was dropped may still be there.
pub(crate) fn places(
    membership: &Membership,
    served: &Served,
    configured: &[Replica],
) -> Result<Places, AdoptionError> {
    let other_members = || {
        let names = membership.members().into_iter().map(|member| member.name).collect();
        AdoptionError::OtherMembers { names }
    };
    let mut places = Vec::new();
    for Member { number, name, url } in membership.members() {
        let found = configured.iter().find(|replica| replica.name == name).cloned();
        let replica = match (found, url) {
            (Some(replica), _) => replica,
            (None, Some(url)) => {
                tracing::warn!(replica = name, url, "a replica that was added is not in the configuration");
                match address_of(&url, &served.database, &served.superuser) {
                    Ok(address) => Replica { name, address },
                    Err(source) => {
                        let source = Box::new(source);
                        return Err(AdoptionError::Address { name, url, source });
                    }
                }
            }
            (None, None) => return Err(other_members()),
        };
        places.push((ReplicaId(number), replica));
    }
    for Replica { name, .. } in configured {
        if places.iter().any(|(_, place)| place.name == *name) {
            continue;
        }
        if !membership.was_dropped(name) {
            return Err(other_members());
        }
        tracing::warn!(replica = name, "a replica that was dropped is still in the configuration");
    }
    Ok(places)
}

/// Marks the cluster as adopted. Everything must be installed, and no change may have come in between.
pub(crate) async fn complete(
    register: &Arc<TermRegister>,
    membership: &Membership,
) -> Result<(), ClusterFileError> {
    cluster_file::keep(register, &membership.adopted()).await
}

/// Removes our objects from all servers again. The list of members still says "not adopted yet", so the next start begins anew, and
/// with the same cluster: the log is of that one.
pub(crate) async fn undo(served: &Served, replicas: &[Replica]) {
    for replica in replicas {
        let removed = async {
            let mut found = reach(served, replica).await?;
            let removed = remove(&mut found.connection).await;
            removed.map_err(|source| AdoptionError::unreadable(replica, source))
        };
        if let Err(reason) = removed.await {
            tracing::error!(replica = %replica.name, %reason, "Onecopy's objects could not be taken out");
            return;
        }
    }
}

/// Connects to all servers, and waits for those that do not answer. The error names all that cannot be used.
async fn reach_all<'a>(
    served: &Served,
    replicas: &'a [Replica],
    patience: Duration,
) -> Result<Vec<(&'a Replica, ReachedServer)>, AdoptionError> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut open = Vec::new();
    let mut errors: Vec<ReachError> = Vec::new();
    for replica in replicas {
        let found = loop {
            match reach(served, replica).await {
                Err(error) if error.may_pass() && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                other => break other,
            }
        };
        match found {
            Ok(found) => open.push((replica, found)),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() { Ok(open) } else { Err(AdoptionError::NotAllThere(errors)) }
}

/// Checks that at least one server may be of the cluster, and reports the faults of the others. Those are not served:
/// their agents repeat the check until it passes.
async fn check_members(
    membership: &Membership,
    served: &Served,
    places: &Places,
) -> Result<(), AdoptionError> {
    let mut others = Vec::new();
    for (_, replica) in places {
        let (name, expected) = (replica.name.clone(), membership.cluster().to_owned());
        match reach(served, replica).await {
            Ok(ReachedServer { cluster: Some(id), .. }) if id == membership.cluster() => {}
            Ok(ReachedServer { cluster: Some(found), .. }) => {
                others.push(NonMember::OtherCluster { name, found, expected });
            }
            Ok(ReachedServer { cluster: None, .. }) => {
                others.push(NonMember::NoCluster { name, address: replica.address.to_string(), expected });
            }
            Err(error) if error.may_pass() => tracing::warn!(reason = %error, "a server is waited for"),
            Err(error) => others.push(NonMember::Unusable(error)),
        }
    }
    if others.len() == places.len() {
        return Err(AdoptionError::NoMember(others));
    }
    for reason in others {
        tracing::error!(%reason, "a server cannot be served; the others are");
    }
    Ok(())
}

async fn remove(connection: &mut OwnConnection) -> Result<(), BackendError> {
    for name in EVENT_TRIGGERS {
        connection.query(&format!("DROP EVENT TRIGGER IF EXISTS {name}")).await?;
    }
    connection.query(REMOVE_SCHEMAS).await?;
    Ok(())
}
