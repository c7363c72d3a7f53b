//! Servers that exist become a cluster, and are recognised at every later start.
//!
//! A folder without a cluster adopts: all servers have to be there, and either identical (by the checksums that VERIFY
//! uses, roles and the positions of sequences included) or all empty. What was found is written down before anything is installed, as
//! "not adopted yet"; when our objects are in all of them, and VERIFY has found nothing that came in between, it is
//! adopted. A start that finds "not adopted yet" takes our objects out and begins again, so a crash leaves nothing
//! half done.
//!
//! A folder with a cluster only serves servers of that cluster. It remembers its members, as far as they are others than those
//! of the configuration ([`super::members`]). A server that cannot be reached then, or is not of the cluster, keeps the others
//! from nothing: its agent makes the same check again and again, and lets it in when it is what it should be.
//!
//! Not here: what was applied where (the replica_driver reads it), and copying data to an empty server ([`super::initial_copy`]).

mod contents;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::ids::{ClusterId, ReplicaId};
use serde::{Deserialize, Serialize};
use wire::sqlstate;

use crate::backend::{BackendError, Connection, Served, ServerInfo};
use crate::config::{Replica, address_of};
pub(crate) use contents::what_is_there;

const DESCRIPTION: &str = "served.json";
/// What `onecopy up` writes into its folders.
const OTHER_DESCRIPTION: &str = "onecopy.json";
const FORMAT: u32 = 1;
/// How long one server may take to let us in.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);
/// The pause between attempts to reach a server.
const PAUSE: Duration = Duration::from_millis(200);
/// What takes our objects out of a server. Triggers on tables go with their functions.
pub(crate) const EVENT_TRIGGERS: [&str; 3] = ["onecopy_ddl", "onecopy_drop", "onecopy_rewrite"];
const REMOVE_SCHEMAS: &str = "DROP SCHEMA IF EXISTS onecopy, onecopy_capture CASCADE";

/// What the folder says about its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Membership {
    format: u32,
    cluster: String,
    /// Names of the replicas that were adopted, in the order of their numbers.
    replicas: Vec<String>,
    is_adopted: bool,
    /// Who is a member, once that is not who was adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    members: Option<Vec<Member>>,
    /// Names that the configuration may still have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    dropped: Vec<String>,
}

/// A member, as the folder remembers it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Its number.
    pub(crate) number: u16,
    /// Its name.
    pub(crate) name: String,
    /// Where it is; none if only the configuration says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
}

impl Membership {
    /// The cluster.
    pub(crate) fn id(&self) -> Result<ClusterId, String> {
        let id = u128::from_str_radix(&self.cluster.replace('-', ""), 16);
        id.map(ClusterId).map_err(|_| format!("\"{}\" is not the id of a cluster", self.cluster))
    }

    /// Everything was installed and checked.
    pub(crate) fn is_adopted(&self) -> bool {
        self.is_adopted
    }

    /// Who is a member, in the order of the numbers.
    pub(crate) fn members(&self) -> Vec<Member> {
        let adopted = |(number, name): (u16, &String)| Member { number, name: name.clone(), url: None };
        self.members.clone().unwrap_or_else(|| (0..).zip(&self.replicas).map(adopted).collect())
    }

    /// The same cluster with one member more.
    pub(crate) fn with(&self, member: Member) -> Self {
        let dropped = self.dropped.iter().filter(|name| **name != member.name).cloned().collect();
        let mut members = self.members();
        members.push(member);
        members.sort_by_key(|member| member.number);
        Self { members: Some(members), dropped, is_adopted: true, ..self.clone() }
    }

    /// The same cluster with one member less.
    pub(crate) fn without(&self, name: &str) -> Self {
        let members = self.members().into_iter().filter(|member| member.name != name).collect();
        let mut dropped = self.dropped.clone();
        dropped.push(name.to_owned());
        Self { members: Some(members), dropped, is_adopted: true, ..self.clone() }
    }

    /// The members with their places. The configuration says where they are; one that was added later may be missing
    /// there, and one that was dropped may still be there.
    fn runtime_config(&self, served: &Served, configured: &[Replica]) -> Result<Places, String> {
        let mut places = Vec::new();
        for Member { number, name, url } in self.members() {
            let found = configured.iter().find(|replica| replica.name == name).cloned();
            let replica = match (found, url) {
                (Some(replica), _) => replica,
                (None, Some(url)) => {
                    tracing::warn!(
                        replica = name,
                        url,
                        "a replica that was added is not in the configuration"
                    );
                    let (what, _) = match address_of(&url, &served.database, &served.superuser) {
                        Ok(address) => {
                            places.push((ReplicaId(number), Replica { name, address }));
                            continue;
                        }
                        Err(wrong) => wrong,
                    };
                    return Err(format!("{name} was added at {url}: {what}"));
                }
                (None, None) => return Err(self.other_members()),
            };
            places.push((ReplicaId(number), replica));
        }
        for Replica { name, .. } in configured {
            if places.iter().any(|(_, place)| place.name == *name) {
                continue;
            }
            if !self.dropped.contains(name) {
                return Err(self.other_members());
            }
            tracing::warn!(replica = name, "a replica that was dropped is still in the configuration");
        }
        Ok(places)
    }

    fn other_members(&self) -> String {
        let names: Vec<String> = self.members().into_iter().map(|member| member.name).collect();
        format!(
            "the members of the cluster are {}, and the configuration names others\na server cannot be added or left out by \
             the configuration alone: ADD REPLICA and DROP REPLICA do that while the node runs",
            names.join(", ")
        )
    }
}

/// The members, with where they are.
pub(crate) type Places = Vec<(ReplicaId, Replica)>;

/// Checks the servers against the folder, and adopts them if it has no cluster yet.
pub(crate) async fn settle(
    folder: &Path,
    served: &Served,
    replicas: &[Replica],
    patience: Duration,
) -> Result<(Membership, Places), String> {
    let known = read(folder)?;
    if let Some(membership) = known.clone().filter(|membership| membership.is_adopted) {
        let places = membership.runtime_config(served, replicas)?;
        check_members(&membership, served, &places).await?;
        return Ok((membership, places));
    }
    let mut open = reach_all(served, replicas, patience).await?;
    for (replica, found) in &mut open {
        let Some(id) = found.cluster.clone() else { continue };
        if known.as_ref().is_none_or(|membership| membership.cluster != id) {
            return Err(format!(
                "{} belongs to the cluster {id}, which {} knows nothing of\nname the data folder of that cluster, or take \
                 Onecopy's objects out of the server: DROP EVENT TRIGGER for each of {}; {REMOVE_SCHEMAS};",
                replica.name,
                folder.display(),
                EVENT_TRIGGERS.join(", ")
            ));
        }
        remove(&mut found.connection).await.map_err(|error| at(replica, &error))?;
    }
    contents::compare(&mut open).await?;
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(|error| format!("no random number: {error}"))?;
    let cluster =
        known.map_or_else(|| ClusterId(u128::from_be_bytes(random)).to_string(), |known| known.cluster);
    let names = replicas.iter().map(|replica| replica.name.clone()).collect();
    let membership = Membership {
        format: FORMAT,
        cluster,
        replicas: names,
        is_adopted: false,
        members: None,
        dropped: Vec::new(),
    };
    write(folder, &membership)?;
    Ok((membership, (0..).map(ReplicaId).zip(replicas.iter().cloned()).collect()))
}

/// Everything is installed, and nothing came in between.
pub(crate) fn complete(folder: &Path, membership: &Membership) -> Result<(), String> {
    write(folder, &Membership { is_adopted: true, ..membership.clone() })
}

/// Takes our objects out of all servers again.
pub(crate) async fn undo(folder: &Path, served: &Served, replicas: &[Replica]) {
    for replica in replicas {
        let removed = async {
            let mut found = reach(served, replica).await.map_err(|why| why.text)?;
            remove(&mut found.connection).await.map_err(|error| error.to_string())
        };
        if let Err(reason) = removed.await {
            tracing::error!(replica = %replica.name, %reason, "Onecopy's objects could not be taken out");
            return;
        }
    }
    // Without it, the next start begins from the beginning.
    if let Err(error) = fs::remove_file(folder.join(DESCRIPTION)) {
        tracing::error!(%error, "{DESCRIPTION} could not be removed");
    }
}

/// A server that let us in.
pub(crate) struct Found {
    /// The way to it.
    pub(crate) connection: Connection,
    /// The cluster that it belongs to.
    pub(crate) cluster: Option<String>,
}

/// Why a server cannot be used; whether waiting may help.
pub(crate) struct Unfit {
    /// What is wrong.
    pub(crate) text: String,
    /// The server is there, but not the database.
    pub(crate) has_no_database: bool,
    may_pass: bool,
}

impl Unfit {
    fn for_good(text: String) -> Self {
        Self { text, has_no_database: false, may_pass: false }
    }
}

fn at(replica: &Replica, error: &BackendError) -> String {
    format!("{} ({}) cannot be read: {error}", replica.name, replica.address)
}

/// Connects to a server, and looks whether it is one that can be served.
pub(crate) async fn reach(served: &Served, replica: &Replica) -> Result<Found, Unfit> {
    let place = format!("{} ({})", replica.name, replica.address);
    let own = [("application_name", "onecopy start"), ("client_encoding", "UTF8")];
    let unfit = |error: BackendError| {
        // 57P: it is starting or stopping.
        let may_pass = match &error {
            BackendError::Io(_) => true,
            other => other.sqlstate().is_some_and(|code| code.starts_with(b"57P")),
        };
        let has_no_database = error.sqlstate() == Some(sqlstate::INVALID_CATALOG_NAME.as_bytes());
        Unfit { text: format!("{place} cannot be reached: {error}"), has_no_database, may_pass }
    };
    let opening = Connection::open_own(&replica.address, served, &own);
    let Ok(opened) = tokio::time::timeout(CONNECT_DEADLINE, opening).await else {
        let text = format!("{place} does not answer");
        return Err(Unfit { text, has_no_database: false, may_pass: true });
    };
    let mut connection = opened.map_err(unfit)?;
    let info = ServerInfo::ask(&mut connection).await.map_err(unfit)?;
    match info.unfit {
        Some(wrong) => Err(Unfit::for_good(format!("{place} {wrong}"))),
        None => Ok(Found { connection, cluster: info.cluster }),
    }
}

/// Connects to all of them, waiting for those that do not answer; the error names all that cannot be used.
async fn reach_all<'a>(
    served: &Served,
    replicas: &'a [Replica],
    patience: Duration,
) -> Result<Vec<(&'a Replica, Found)>, String> {
    let deadline = tokio::time::Instant::now() + patience;
    let mut open = Vec::new();
    let mut unfit = Vec::new();
    for replica in replicas {
        let found = loop {
            match reach(served, replica).await {
                Err(why) if why.may_pass && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(PAUSE).await;
                }
                other => break other,
            }
        };
        match found {
            Ok(found) => open.push((replica, found)),
            Err(why) => unfit.push(why.text),
        }
    }
    if unfit.is_empty() {
        return Ok(open);
    }
    unfit.push("all servers have to be there when they are adopted".to_owned());
    Err(unfit.join("\n"))
}

/// Whether one of the servers may be of the cluster. Of the others it is said what is wrong with them: nothing is served
/// there, since their agents ask the same again, until they are what they should be.
async fn check_members(membership: &Membership, served: &Served, places: &Places) -> Result<(), String> {
    let mut wrong = Vec::new();
    for (_, replica) in places {
        match reach(served, replica).await {
            Ok(Found { cluster: Some(id), .. }) if id == membership.cluster => {}
            Ok(Found { cluster: Some(id), .. }) => {
                wrong.push(format!(
                    "{} belongs to the cluster {id}, not to {}",
                    replica.name, membership.cluster
                ));
            }
            Ok(Found { cluster: None, .. }) => wrong.push(format!(
                "{} ({}) has nothing of the cluster {} in it: it is another server, or was re-created",
                replica.name, replica.address, membership.cluster
            )),
            Err(why) if why.may_pass => tracing::warn!(reason = %why.text, "a server is waited for"),
            Err(why) => wrong.push(why.text),
        }
    }
    if wrong.len() == places.len() {
        return Err(wrong.join("\n"));
    }
    for reason in wrong {
        tracing::error!(%reason, "a server cannot be served; the others are");
    }
    Ok(())
}

async fn remove(connection: &mut Connection) -> Result<(), BackendError> {
    for name in EVENT_TRIGGERS {
        connection.simple(&format!("DROP EVENT TRIGGER IF EXISTS {name}")).await?;
    }
    connection.simple(REMOVE_SCHEMAS).await?;
    Ok(())
}

fn read(folder: &Path) -> Result<Option<Membership>, String> {
    if folder.join(OTHER_DESCRIPTION).exists() {
        return Err(format!("{} is a folder of `onecopy up`; name another one", folder.display()));
    }
    let path = folder.join(DESCRIPTION);
    owner_only::close(&path)
        .map_err(|error| format!("{} cannot be closed to other accounts: {error}", path.display()))?;
    let text = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{} cannot be read: {error}", path.display())),
    };
    let membership: Membership =
        serde_json::from_str(&text).map_err(|error| format!("{} is damaged: {error}", path.display()))?;
    if membership.format != FORMAT {
        return Err(format!(
            "{} has format {}; this version knows {FORMAT}",
            path.display(),
            membership.format
        ));
    }
    membership.id()?;
    Ok(Some(membership))
}

/// Written whole or not at all.
pub(crate) fn write(folder: &Path, membership: &Membership) -> Result<(), String> {
    let (path, new): (PathBuf, PathBuf) = (folder.join(DESCRIPTION), folder.join("served.json.new"));
    let written = || -> std::io::Result<()> {
        owner_only::make_folder(folder)?;
        let mut file = owner_only::options().write(true).create(true).truncate(true).open(&new)?;
        file.write_all(serde_json::to_string_pretty(membership)?.as_bytes())?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, &path)?;
        fs::File::open(folder)?.sync_all()
    };
    written().map_err(|error| format!("{} cannot be written: {error}", path.display()))
}
