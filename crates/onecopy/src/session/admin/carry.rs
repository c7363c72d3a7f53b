//! Commands of clients of other nodes, which this node carries out: as the leader, or about its own sessions.
//!
//! The node of the client has checked its right, and shows the answer.

use wire::sqlstate;

use super::all_nodes::Nodes;
use super::asker::Asker;
use super::bouncer;
use super::command::{Command, Reach, View, order};
use super::here::Here;
use super::transactions;
use super::{checkpoints, hand_over, membership, placement, show};
use crate::coordinator::dispatch::{Dispatch, ErrorReport, Replies, Scope};
use crate::error::Refusal;
use crate::membership::verify;

/// Carries out a command of another node's client, and answers. It goes on to its end, also when the client has gone.
pub(crate) async fn carry(here: Here, from: String, dispatch: Dispatch, mut replies: Replies) {
    let Dispatch { scope, role, text } = dispatch;
    let done = match order(&text) {
        Ok(command) => {
            tracing::debug!(
                node = from,
                role,
                command = command.tag(),
                "carries out a command of another node"
            );
            match scope {
                Scope::Leader => {
                    let nodes = Nodes { here: &here, role: &role };
                    at_leader(&nodes, &command, &mut Asker::Node(&mut replies)).await
                }
                Scope::Node => at_this_node(&here, &role, &command, &replies).await,
            }
        }
        Err(unknown) => Err(unknown),
    };
    if replies.finish(done.map_err(ErrorReport::from)).await.is_err() {
        tracing::debug!(node = from, "the node that has asked for a command has gone");
    }
}

/// What only the leader can carry out. It ends with the term.
pub(super) async fn at_leader(
    nodes: &Nodes<'_>,
    command: &Command,
    asker: &mut Asker<'_>,
) -> Result<Vec<Vec<String>>, Refusal> {
    let leader = &nodes.here.leading.must_lead()?;
    if let Some(feature) = command.feature() {
        leader.kind.check(feature)?;
    }
    let work = async {
        match command {
            Command::Show(View::Transactions) => Ok(transactions::rows(leader, nodes, asker).await),
            Command::Show(view) if view.is_of_leader() => Ok(show::of_leader(leader, *view)),
            Command::Verify => verify::run(leader).await,
            Command::Replica(order) => membership::run(leader, order, asker).await,
            Command::Place(placing) => placement::run(leader, placing, asker).await,
            Command::Checkpoint(order) => checkpoints::run(leader, order, asker).await,
            other => Err(misdirected(other)),
        }
    };
    tokio::select! {
        done = work => done,
        () = leader.term.ended() => Err(Refusal::new(
            sqlstate::CANNOT_CONNECT_NOW,
            "the node that led has lost the lead meanwhile",
            "Look at the new leader how far the command came, and repeat it there.",
        )),
    }
}

/// The part of a command that is about this node's own sessions.
async fn at_this_node(
    here: &Here,
    role: &str,
    command: &Command,
    replies: &Replies,
) -> Result<Vec<Vec<String>>, Refusal> {
    match command {
        Command::Show(View::Clients) => Ok(bouncer::clients(&here.coordinator)),
        Command::Show(View::Nodes) => Ok(vec![here.facts()]),
        Command::Show(View::Transactions) => Ok(transactions::of_node(&here.coordinator)),
        Command::Kill(id) => here.kill(*id).await.map(|()| Vec::new()),
        Command::Pause(Reach::OwnNode) => {
            here.pause().await?;
            // No client would learn that it has to be resumed.
            if replies.is_forgotten() {
                here.resume()?;
            }
            Ok(Vec::new())
        }
        Command::Resume(Reach::OwnNode) => here.resume().map(|()| Vec::new()),
        Command::Hold if !here.serves() => Err(Refusal::plain(
            sqlstate::CANNOT_CONNECT_NOW,
            "this node lets no clients in: it starts or stops",
        )),
        Command::Hold => here.hold().await.map(|()| Vec::new()),
        Command::Release => {
            here.release();
            Ok(Vec::new())
        }
        Command::MoveLeader(to) => {
            Ok(vec![vec![hand_over::run(&Nodes { here, role }, to.as_deref()).await?]])
        }
        Command::Node(order) if order.is_own() => {
            Nodes { here, role }.order_own(order).await.map(|()| Vec::new())
        }
        other => Err(misdirected(other)),
    }
}

/// Another release of Onecopy may send what this one does not carry out.
fn misdirected(command: &Command) -> Refusal {
    Refusal::new(
        sqlstate::FEATURE_NOT_SUPPORTED,
        format!("this node does not carry out {} for another node", command.tag()),
        "Run the same release at all nodes.",
    )
}
