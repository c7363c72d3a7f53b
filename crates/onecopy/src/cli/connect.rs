//! `onecopy connect`: chooses a node for a client, as Middle-R's driver does, and prints its host and port for libpq.
//!
//! For example, `psql "$(onecopy connect --group 239.255.64.32:6431) user=joe dbname=shop"`. Nodes are asked by a multicast message
//! ([`crate::accept::discovery`]), or each by `GET /nodes` where multicast is not to be had. "The probability to connect to some replica is
//! inversely proportional to its load" (2.1.5).
//!
//! A node that does not answer in time is not chosen. Nothing else is checked: the client will see whether it is let in.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use clap::Args;
use cluster::parts::local_replicas::choose;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::error::CommandError;
use crate::accept::discovery::{Found, MESSAGE_BYTES, answered, question};
use crate::terminal::Progress;

/// Most nodes of one answer, and most answers.
const NODES_MAX: usize = 1_024;
/// Longest page of a node.
const PAGE_BYTES_MAX: u64 = 64 << 10;

/// Flags of `onecopy connect`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Connect {
    /// Multicast group that nodes hear, as in their setting `discovery`.
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "nodes")]
    group: Option<SocketAddr>,

    /// Address of this machine from which to ask the group [default: the system chooses].
    #[arg(long, value_name = "ADDRESS", default_value_t = Ipv4Addr::UNSPECIFIED, hide_default_value = true)]
    from: Ipv4Addr,

    /// HTTP addresses of nodes to ask instead, or as well (`http_listen`), separated by commas.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',')]
    nodes: Vec<String>,

    /// How long to wait for answers, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=60_000))]
    wait_ms: u32,
}

/// Prints the host and the port of the node that is chosen.
pub(crate) async fn command(connect: &Connect, progress: &Progress) -> Result<(), CommandError> {
    let patience = Duration::from_millis(connect.wait_ms.into());
    let mut found: BTreeMap<SocketAddr, u64> = BTreeMap::new();
    if let Some(group) = connect.group {
        let asked = ask_group(group, connect.from, patience).await;
        found.extend(asked.map_err(|source| CommandError::NotAsked { group, source })?);
    }
    let mut asking = JoinSet::new();
    for node in connect.nodes.clone() {
        asking.spawn(async move { timeout(patience, ask_node(&node)).await });
    }
    // One that does not answer is not chosen.
    for nodes in asking.join_all().await.into_iter().flatten().flatten() {
        found.extend(nodes);
    }
    let loads: Vec<(SocketAddr, u64)> = found.into_iter().collect();
    let chance = getrandom::u64().map_err(|error| CommandError::NoChance(error.into()))?;
    let chosen = choose(&loads, chance).ok_or(CommandError::NoNodes)?;
    progress.result(format_args!("host={} port={}", chosen.ip(), chosen.port()));
    Ok(())
}

/// The nodes that answer a multicast question in time, with their loads.
async fn ask_group(
    group: SocketAddr,
    from: Ipv4Addr,
    patience: Duration,
) -> io::Result<BTreeMap<SocketAddr, u64>> {
    let socket = UdpSocket::bind((from, 0)).await?;
    if !from.is_unspecified() {
        rustix::net::sockopt::set_ip_multicast_if(&socket, &from)?;
    }
    let token = getrandom::u64()?;
    socket.send_to(&question(token), group).await?;
    let end = Instant::now() + patience;
    let mut found = BTreeMap::new();
    let mut message = [0; MESSAGE_BYTES + 1];
    while let Ok(received) = timeout_at(end, socket.recv_from(&mut message)).await {
        let (length, sender) = received?;
        if let Some(Found { address, load }) = answered(&message[..length], token, sender.ip())
            && found.len() < NODES_MAX
        {
            found.insert(address, load);
        }
    }
    Ok(found)
}

/// What `GET /nodes` of a node says.
async fn ask_node(node: &str) -> Option<Vec<(SocketAddr, u64)>> {
    let mut stream = TcpStream::connect(node).await.ok()?;
    let request = format!("GET /nodes HTTP/1.1\r\nHost: {node}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut text = String::new();
    stream.take(PAGE_BYTES_MAX).read_to_string(&mut text).await.ok()?;
    let (head, body) = text.split_once("\r\n\r\n")?;
    let is_page = head.split(' ').nth(1) == Some("200");
    let page: Vec<serde_json::Value> = serde_json::from_str(body).ok().filter(|_| is_page)?;
    let found = page.iter().take(NODES_MAX).filter_map(Found::of_json);
    Some(found.map(|Found { address, load }| (address, load)).collect())
}
