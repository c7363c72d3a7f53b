//! Whether all nodes serve: each takes a write, and all name the same leader, with every replica up.

use std::time::{Duration, Instant};

use testbed::refusal::Refusal;
use tokio::time::{sleep, timeout};

use super::super::session::Session;
use super::super::{BANK, Course};

/// How long service may be away after a strike is over.
const BACK_WITHIN: Duration = Duration::from_mins(1);
/// How long one question may take.
const QUESTION_MAX: Duration = Duration::from_secs(5);
/// How long the lead may take to be handed over.
const MOVE_MAX: Duration = Duration::from_secs(45);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// The node that leads, as the first one that answers sees it.
pub(in crate::live) async fn leader(ports: &[u16]) -> Option<usize> {
    for port in ports {
        if let Some(leader) = named_by(*port).await {
            return Some(leader);
        }
    }
    None
}

/// The leader, as a node names it. Nodes are numbered in the order of their names, as the rows are.
async fn named_by(port: u16) -> Option<usize> {
    let admin = Session::try_open(port, "onecopy").await?;
    let nodes = timeout(QUESTION_MAX, admin.simple("SHOW NODES")).await.ok()?.ok()?;
    nodes.iter().position(|row| row.iter().any(|cell| cell == "leader"))
}

/// Has the node at this port hand the lead over.
pub(super) async fn move_leader(port: u16) -> Result<(), String> {
    let admin = Session::try_open(port, "onecopy").await.ok_or("the leader lets nobody in")?;
    let moved = timeout(MOVE_MAX, admin.simple("MOVE LEADER")).await;
    moved
        .map_err(|_| format!("no answer within {} s", MOVE_MAX.as_secs()))?
        .map_err(|error| error.to_string())?;
    Ok(())
}

/// Restarts a node, and waits until another process serves in its place.
pub(super) async fn restart(ports: &[u16], node: usize) -> Result<(), String> {
    let before = since(ports[node], node).await.ok_or("the node does not tell since when it runs")?;
    let admin = Session::try_open(ports[node], "onecopy").await.ok_or("the node lets nobody in")?;
    let asked = timeout(MOVE_MAX, admin.simple("RESTART NODE")).await;
    asked
        .map_err(|_| format!("no answer within {} s", MOVE_MAX.as_secs()))?
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + BACK_WITHIN;
    while since(ports[node], node).await.is_none_or(|since| since == before) {
        if Instant::now() >= end {
            return Err(format!("it is not restarted within {} s", BACK_WITHIN.as_secs()));
        }
        sleep(LOOK).await;
    }
    Ok(())
}

/// When the process of a node began, as it says itself.
async fn since(port: u16, node: usize) -> Option<String> {
    const SINCE: usize = 8;
    let admin = Session::try_open(port, "onecopy").await?;
    let nodes = timeout(QUESTION_MAX, admin.simple("SHOW NODES")).await.ok()?.ok()?;
    nodes.get(node)?.get(SINCE).filter(|since| !since.is_empty()).cloned()
}

/// Waits until all nodes serve, or says what is missing.
pub(super) async fn back(ports: &[u16], course: &Course) -> Result<(), String> {
    let end = Instant::now() + BACK_WITHIN;
    loop {
        match look(ports).await {
            Ok(()) => return Ok(()),
            Err(_) if course.interrupt.check().is_err() => return Ok(()),
            Err(why) if Instant::now() >= end => {
                return Err(format!("no service {} s after the strike: {why}", BACK_WITHIN.as_secs()));
            }
            Err(_) => sleep(LOOK).await,
        }
    }
}

async fn look(ports: &[u16]) -> Result<(), String> {
    let mut leaders = Vec::new();
    for (node, port) in ports.iter().enumerate() {
        let name = testbed::nodes::name(node);
        let leader = named_by(*port).await;
        leaders.push(leader.ok_or_else(|| format!("node {name} names no leader"))?);
        write(*port).await.map_err(|why| format!("node {name} takes no write: {why}"))?;
    }
    let Some(leader) = leaders.first().filter(|first| leaders.iter().all(|leader| leader == *first)) else {
        return Err(format!("the nodes do not agree who leads: {leaders:?}"));
    };
    let admin = Session::try_open(ports[*leader], "onecopy").await.ok_or("the leader lets nobody in")?;
    let replicas = timeout(QUESTION_MAX, admin.simple("SHOW REPLICAS")).await;
    let replicas = replicas.map_err(|_| "SHOW REPLICAS takes long")?.map_err(|error| error.to_string())?;
    match replicas.iter().find(|row| row.get(3).is_none_or(|state| state != "up")) {
        Some(row) => Err(format!("a replica is not up: {}", row.join(" | "))),
        None => Ok(()),
    }
}

/// A write that changes nothing.
async fn write(port: u16) -> Result<(), String> {
    let session = Session::try_open(port, "postgres").await.ok_or("it lets nobody in")?;
    let sql = format!("update {BANK} set balance = balance where k = 0");
    match timeout(QUESTION_MAX, session.simple(&sql)).await {
        Ok(Ok(_) | Err(Refusal::Again(_))) => Ok(()),
        Ok(Err(refusal)) => Err(refusal.to_string()),
        Err(_) => Err(format!("no answer within {} s", QUESTION_MAX.as_secs())),
    }
}
