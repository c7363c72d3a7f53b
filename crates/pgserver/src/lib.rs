//! The PostgreSQL servers of `onecopy up`: found or fetched, made, started, watched, stopped.
//!
//! [`prepare`] turns the user's options into a [`Home`]: the locked data folder and its servers, not started yet. Each step
//! either completes or leaves nothing behind: a folder without a cluster is as it was, a folder with one is complete. This
//! crate chooses programs, account and ports, so the rest of the node sees only servers that can be reached.
//!
//! Not here: the contents of the servers (capture, roles), the log, and the decision to restart a server.

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use cluster::ids::ClusterId;
use tokio::task::JoinSet;

mod account;
mod cache;
#[cfg(feature = "fetch")]
mod fetch;
mod folder;
mod initdb;
mod leftover;
mod locate;
mod output;
mod progress;
#[cfg(test)]
mod scratch;
mod server;
mod settings;
mod sockets;
mod swap;

pub use account::{Account, AccountError};
#[cfg(feature = "fetch")]
pub use fetch::FetchError;
pub use folder::{FolderError, default_path as default_data_folder};
pub use initdb::InitError;
pub use locate::{LocateError, ProgramsFault, Release, program_folders};
pub use output::Output;
pub use progress::{Progress, Silent, Step};
pub use server::{DataFault, Ending, Server, ServerError};

use folder::{Cluster, Folder};
use locate::{Binaries, Search};
use server::Site;

/// How many servers a data folder can have; they are numbered from 1.
pub const MAX_REPLICAS: u16 = 16;
/// The folder inside of the data folder where the node keeps its log.
pub const LOG_FOLDER: &str = "log";
/// The folder inside of the data folder where several nodes have folders of their own.
pub const NODES_FOLDER: &str = "nodes";
/// The data folder of one of several nodes, inside of its own one.
pub const NODE_DATA_FOLDER: &str = "data";
/// How many servers a new cluster gets when the user does not say.
const DEFAULT_REPLICAS: u16 = 3;

/// Why no further server can be added.
#[derive(Debug)]
pub enum FurtherError {
    /// All numbers are in use, or were while the node has run.
    TooMany,
    /// It cannot get a port.
    Server(ServerError),
}

impl std::error::Error for FurtherError {}

impl fmt::Display for FurtherError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(
                f,
                "a node has at most {MAX_REPLICAS} replicas, those included that it had since its start"
            ),
            Self::Server(error) => error.fmt(f),
        }
    }
}

/// The user's options.
#[derive(Clone, Debug, Default)]
pub struct UpOptions {
    /// How many servers.
    pub replicas: Option<u16>,
    /// The data folder.
    pub data: Option<PathBuf>,
    /// The folder of PostgreSQL's programs.
    pub pg_bin: Option<PathBuf>,
}

/// The locked data folder and its servers.
#[derive(Debug)]
pub struct Home {
    /// The data folder.
    pub dir: PathBuf,
    /// The cluster that lives in it.
    pub cluster: ClusterId,
    /// The release of PostgreSQL that the servers run.
    pub release: Release,
    /// The servers, in the order of their numbers.
    pub servers: Vec<Server>,
    /// Holds the lock.
    folder: Folder,
    site: Site,
    sockets: PathBuf,
    progress: Arc<dyn Progress>,
}

/// Why the servers cannot be prepared or started.
#[derive(Debug)]
pub enum UpError {
    /// There is no account to run them.
    Account(AccountError),
    /// The data folder cannot be used.
    Folder(FolderError),
    /// The machine has no PostgreSQL that fits, and fetching one was not tried.
    Programs(LocateError),
    /// The machine has no PostgreSQL that fits, and none could be fetched.
    #[cfg(feature = "fetch")]
    Fetch {
        /// The search on the machine.
        found: LocateError,
        /// Why none was fetched.
        error: FetchError,
    },
    /// The files of new servers could not be made.
    Init(InitError),
    /// A server of a new cluster did not start.
    Server(ServerError),
    /// None of the cluster's servers starts.
    NoServer(Vec<ServerError>),
}

impl fmt::Display for UpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(error) => error.fmt(f),
            Self::Folder(error) | Self::Init(InitError::Folder(error)) => error.fmt(f),
            Self::Programs(found) => found.fmt(f),
            #[cfg(feature = "fetch")]
            Self::Fetch { found, error } => write!(f, "{error}\nIt was tried because of: {found}"),
            Self::Init(error) => error.fmt(f),
            Self::Server(error) => error.fmt(f),
            Self::NoServer(errors) => {
                write!(f, "no server of the cluster starts")?;
                errors.iter().try_for_each(|error| write!(f, "\n{error}"))
            }
        }
    }
}

impl std::error::Error for UpError {}

/// Locks the data folder, finds PostgreSQL, and makes the servers if the folder is new.
pub async fn prepare(options: &UpOptions, progress: &Arc<dyn Progress>) -> Result<Home, UpError> {
    let account = Account::choose().map_err(UpError::Account)?;
    let path = match &options.data {
        Some(path) => path.clone(),
        None => folder::default_path().map_err(UpError::Folder)?,
    };
    let mut folder = Folder::open(&path, &account).await.map_err(UpError::Folder)?;
    if let (Some(cluster), Some(asked)) = (folder.cluster(), options.replicas)
        && cluster.numbers.len() != usize::from(asked)
    {
        let (path, found) = (folder.path().to_owned(), cluster.numbers.len());
        return Err(UpError::Folder(FolderError::OtherReplicas { path, found, asked }));
    }
    let major = folder.cluster().map(|cluster| cluster.postgres);
    let binaries = programs(options, major, &account, progress).await?;
    if let Account::Other { .. } = account {
        progress.say(format_args!("PostgreSQL does not run as root: its servers run as {account}"));
    }
    let cluster = if let Some(cluster) = folder.cluster() {
        cluster.clone()
    } else {
        let replicas = options.replicas.unwrap_or(DEFAULT_REPLICAS);
        make_cluster(&mut folder, replicas, &binaries, &account, progress).await?
    };
    let sockets = sockets::folder(folder.path(), cluster.id, &account).map_err(|error| {
        UpError::Folder(FolderError::io("make a folder for sockets for", folder.path())(error))
    })?;
    let site = Site {
        folder: folder.path().to_owned(),
        sockets: sockets.clone(),
        account,
        port_start: cluster.id.0 as u16,
        progress: Arc::clone(progress),
        binaries: binaries.clone(),
    };
    let servers = cluster.numbers.iter().map(|number| Server::new(*number, site.clone())).collect();
    let dir = folder.path().to_owned();
    let (cluster, release, progress) = (cluster.id, binaries.release, Arc::clone(progress));
    Ok(Home { dir, cluster, release, servers, folder, site, sockets, progress })
}

/// The programs on this machine, else fetched ones where this build can fetch.
#[cfg_attr(not(feature = "fetch"), expect(unused_variables, reason = "only a fetch shows progress"))]
async fn programs(
    options: &UpOptions,
    major: Option<u16>,
    account: &Account,
    progress: &Arc<dyn Progress>,
) -> Result<Binaries, UpError> {
    let cache = cache::folder();
    let search = Search::everywhere(options.pg_bin.as_deref(), cache.as_deref(), major);
    let found = match search.run(account).await {
        Ok(binaries) => return Ok(binaries),
        Err(found) => found,
    };
    #[cfg(feature = "fetch")]
    if let (LocateError::NoneFits { .. }, Some(cache), true) =
        (&found, cache, major.is_none_or(|major| major == fetch::MAJOR))
    {
        return match fetch::fetch(&cache, progress).await {
            Ok(folder) => {
                let fetched = Search { named: Some((folder, "the fetched")), folders: Vec::new(), major };
                fetched.run(account).await.map_err(UpError::Programs)
            }
            Err(error) => Err(UpError::Fetch { found, error }),
        };
    }
    Err(UpError::Programs(found))
}

async fn make_cluster(
    folder: &mut Folder,
    replicas: u16,
    binaries: &Binaries,
    account: &Account,
    progress: &Arc<dyn Progress>,
) -> Result<Cluster, UpError> {
    let begun = Instant::now();
    let (text, path) = (&binaries.release.text, folder.path().display().to_string());
    folder.check_space(replicas).map_err(UpError::Folder)?;
    let step = progress.step(format!("making {replicas} PostgreSQL {text} servers in {path}"));
    initdb::make(folder, replicas, binaries, account).await.map_err(UpError::Init)?;
    let id = new_id()
        .map_err(|error| UpError::Folder(FolderError::io("name the cluster in", folder.path())(error)))?;
    let numbers = (1..=replicas).collect();
    let cluster = Cluster { id, postgres: binaries.release.major, numbers };
    folder.complete(cluster.clone()).map_err(UpError::Folder)?;
    let seconds = begun.elapsed().as_secs_f32();
    step.done(format_args!("made {replicas} PostgreSQL {text} servers in {path} ({seconds:.1} s)"));
    Ok(cluster)
}

fn new_id() -> std::io::Result<ClusterId> {
    let mut random = [0; 16];
    getrandom::fill(&mut random)?;
    Ok(ClusterId(u128::from_be_bytes(random)))
}

impl Home {
    /// Starts all servers at the same time; those that do not start, and why. Of a new cluster all have to start, of any
    /// other one has to: else those that run are stopped again.
    pub async fn start(&mut self) -> Result<BTreeMap<u16, ServerError>, UpError> {
        let (count, text) = (self.servers.len(), &self.release.text);
        let _step = self.progress.step(format!("starting {count} PostgreSQL {text} servers"));
        let mut starting = JoinSet::new();
        for mut server in self.servers.drain(..) {
            starting.spawn(async move {
                let started = server.start().await;
                (server, started)
            });
        }
        let mut failed = BTreeMap::new();
        while let Some(ended) = starting.join_next().await {
            let (server, started) =
                ended.expect("the task neither panics nor is cancelled while we wait for it");
            if let Err(error) = started {
                failed.insert(server.number(), error);
            }
            self.servers.push(server);
        }
        self.servers.sort_by_key(Server::number);
        let is_new = self.is_new();
        if failed.is_empty() || (failed.len() < count && !is_new) {
            return Ok(failed);
        }
        self.stop().await;
        let mut errors: Vec<ServerError> = failed.into_values().collect();
        Err(if is_new || errors.len() == 1 {
            UpError::Server(errors.swap_remove(0))
        } else {
            UpError::NoServer(errors)
        })
    }

    /// Whether no node has ever run here: a node makes its log only when the servers run.
    pub fn is_new(&self) -> bool {
        let nodes = fs::read_dir(self.dir.join(NODES_FOLDER)).into_iter().flatten().flatten();
        let of_nodes = nodes.map(|node| node.path().join(NODE_DATA_FOLDER));
        !of_nodes.chain([self.dir.clone()]).any(|data| data.join(LOG_FOLDER).exists())
    }

    /// A further server, which has no data yet and is no member: the first number that may be had. It has its port.
    pub fn further(&self, may_have: impl Fn(u16) -> bool) -> Result<Server, FurtherError> {
        let numbers = self.members();
        let number = (1..=MAX_REPLICAS).find(|number| !numbers.contains(number) && may_have(*number));
        let mut server = Server::new(number.ok_or(FurtherError::TooMany)?, self.site.clone());
        server.choose_port().map_err(FurtherError::Server)?;
        Ok(server)
    }

    /// The numbers of the members.
    pub fn members(&self) -> &[u16] {
        self.folder.cluster().map_or(&[], |cluster| &cluster.numbers)
    }

    /// The server is a member from now on, also after a restart.
    pub fn admit(&mut self, number: u16) -> Result<(), FolderError> {
        let mut numbers = self.members().to_vec();
        numbers.push(number);
        numbers.sort_unstable();
        self.folder.set_numbers(numbers)
    }

    /// The server is no longer a member.
    pub fn strike(&mut self, number: u16) -> Result<(), FolderError> {
        let numbers = self.members().iter().copied().filter(|member| *member != number).collect();
        self.folder.set_numbers(numbers)
    }

    /// Removes the data of a server that is no member and does not run.
    pub fn remove(&self, number: u16) -> Result<(), FolderError> {
        assert!(!self.members().contains(&number), "the data of a member is never removed");
        self.folder.remove_server(number)
    }

    /// Stops all servers at the same time.
    pub async fn stop(&mut self) {
        let mut stopping = JoinSet::new();
        for mut server in self.servers.drain(..) {
            stopping.spawn(async move {
                server.stop().await;
                server
            });
        }
        while let Some(ended) = stopping.join_next().await {
            self.servers.push(ended.expect("the task neither panics nor is cancelled while we wait for it"));
        }
        self.servers.sort_by_key(Server::number);
        sockets::forget(&self.sockets, self.folder.path());
    }
}

#[cfg(test)]
mod tests;
