//! Waits until processes that were started serve.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::NoTls;

use super::child::Child;
use super::error::NodesError;
use super::keeper::Group;
use crate::terminal::Progress;

/// How long all may take. Nodes wait for servers, and those may recover for minutes.
const START: Duration = Duration::from_mins(15);
/// How long one attempt may take.
const KNOCK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);
/// The answer of a healthy member is shorter.
const ANSWER_BYTES_MAX: u64 = 4_096;

/// A process that is waited for.
pub(super) struct Waited {
    name: String,
    log: PathBuf,
    port: u16,
}

impl Waited {
    pub(super) fn of(child: &Child, port: u16) -> Self {
        Self { name: child.name.clone(), log: child.log(), port }
    }
}

/// Waits until all serve. Those that have ended instead are tried again later, if as many as needed serve.
pub(super) async fn wait(
    group: &mut Group,
    all: &[Waited],
    needed: usize,
    serves: impl AsyncFn(u16) -> bool,
    progress: &Progress,
) -> Result<(), NodesError> {
    let deadline = Instant::now() + START;
    let mut serving = BTreeSet::new();
    let mut ended: BTreeMap<String, NodesError> = BTreeMap::new();
    while serving.len() < all.len() {
        for Waited { name, port, .. } in all {
            if !serving.contains(name) && matches!(timeout(KNOCK, serves(*port)).await, Ok(true)) {
                serving.insert(name.clone());
                ended.remove(name);
            }
        }
        while let Some(Ok(error)) = group.endings().map(tokio::sync::mpsc::Receiver::try_recv) {
            if let NodesError::Ended { name, .. } = &error {
                serving.remove(name);
                ended.insert(name.clone(), error);
            }
        }
        if ended.len() > all.len() - needed
            && let Some((_, error)) = ended.pop_first()
        {
            return Err(error);
        }
        if serving.len() + ended.len() >= all.len() {
            break;
        }
        if Instant::now() > deadline {
            let silent = all.iter().find(|waited| !serving.contains(&waited.name));
            let Some(Waited { name, log, .. }) = silent else { break };
            return Err(NodesError::Silent { name: name.clone(), log: log.clone() });
        }
        sleep(PAUSE).await;
    }
    group.has_started();
    for error in ended.values() {
        progress.say(error);
    }
    Ok(())
}

/// Whether a member of etcd says that a majority has a leader.
pub(super) async fn etcd_is_healthy(port: u16) -> bool {
    let asked = async {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.write_all(b"GET /health HTTP/1.0\r\n\r\n").await?;
        let mut answer = String::new();
        stream.take(ANSWER_BYTES_MAX).read_to_string(&mut answer).await?;
        Ok::<bool, std::io::Error>(answer.contains("\"true\""))
    };
    asked.await.unwrap_or(false)
}

/// Whether a node lets a client in.
pub(super) async fn node_serves(port: u16) -> bool {
    let mut door = tokio_postgres::Config::new();
    door.host("127.0.0.1").port(port).user("postgres").dbname("postgres");
    door.connect(NoTls).await.is_ok()
}
