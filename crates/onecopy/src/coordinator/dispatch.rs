//! Commands of the admin database that another node carries out: the leader, or the node of a session.
//!
//! An answer comes in parts. The node that has asked takes one before the next is sent, so a long answer waits where it was made:
//!
//! ```text
//! node b, whose client says VERIFY        node a, which leads
//!  Dispatch { 7, "VERIFY" }           ->
//!                                     <-  Part { 7, Rows }
//!  More { 7 }                         ->
//!                                     <-  Part { 7, Done }
//!  More { 7 }                         ->  the answer has arrived
//! ```
//!
//! Invariant: a command that has begun goes on to its end, whether its client and the node that has asked are there or not. If a
//! node is lost meanwhile, the client learns whether the command may have been carried out.
//!
//! Not here: how messages cross a network, and which commands there are.

use std::sync::atomic::{AtomicU64, Ordering};

use cluster::ids::NodeId;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use wire::{encode, sqlstate};

use crate::error::Refusal;

/// Messages of this process that may wait for the links.
pub(crate) const OUTGOING_MAX: usize = 1_024;
/// Bytes of values in one part. A part must not keep the leader's beats waiting.
const PART_BYTES: usize = 64 << 10;
/// Overrides [`PART_BYTES`], for tests.
const PART_VARIABLE: &str = "ONECOPY_TEST_PART_BYTES";

/// The number of a command, among those that this process has asked for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) struct DispatchId(pub(crate) u64);

/// A command for another node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dispatch {
    pub(crate) scope: Scope,
    /// The role of the client, which has the right to say this.
    pub(crate) role: String,
    pub(crate) text: String,
}

/// What a command is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) enum Scope {
    /// The cluster, as its leader knows it.
    Leader,
    /// The node that gets it, and no other.
    Node,
}

/// Whether a command that was broken off may have done something.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Effect {
    /// It only looks.
    Looks,
    /// It changes something.
    Changes,
}

/// A part of an answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Part {
    /// What a waiting client is told meanwhile.
    Notice {
        severity: String,
        sqlstate: String,
        text: String,
    },
    Rows(Vec<Vec<String>>),
    /// There is no more.
    Done,
    /// The command has failed, and there is no more.
    Failed(ErrorReport),
}

impl Part {
    /// Whether no other one follows.
    pub(crate) fn is_last(&self) -> bool {
        matches!(self, Self::Done | Self::Failed(_))
    }
}

/// An error for a client, as it crosses a link.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct ErrorReport {
    pub(crate) sqlstate: String,
    pub(crate) message: String,
    detail: Option<String>,
    hint: Option<String>,
}

impl From<Refusal> for ErrorReport {
    fn from(refusal: Refusal) -> Self {
        let Refusal { sqlstate, message, detail, hint } = refusal;
        Self { sqlstate: sqlstate.to_owned(), message, detail, hint }
    }
}

impl ErrorReport {
    /// The same error, said of the node where it happened.
    pub(crate) fn at(mut self, node: &str) -> Self {
        self.message = format!("node {node}: {}", self.message);
        self
    }

    /// Appends it as an ErrorResponse.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let more = (self.detail.as_deref(), self.hint.as_deref());
        encode::error_in_detail(out, "ERROR", &self.sqlstate, &self.message, more);
    }
}

/// Why an answer is not complete.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Trouble {
    /// The command has failed at the other node.
    Failed(ErrorReport),
    /// The other node does not answer, or no more.
    Lost(ErrorReport),
}

impl From<Trouble> for ErrorReport {
    fn from(trouble: Trouble) -> Self {
        match trouble {
            Trouble::Failed(report) | Trouble::Lost(report) => report,
        }
    }
}

/// The node that is to carry a command out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Addressee {
    /// The one that leads.
    Leader,
    /// This one.
    Node(NodeId),
}

/// What the part of the process that has the links gets.
#[derive(Debug)]
pub(crate) enum Outgoing {
    /// A client of this node has said a command for another one.
    Ask { number: DispatchId, to: Addressee, dispatch: Dispatch, answer: mpsc::Sender<Incoming> },
    /// A part of the answer was taken.
    More(DispatchId),
    /// The answer is not waited for any more.
    Forget(DispatchId),
    /// This node has a part of an answer for another one.
    Reply { to: Carriage, part: Part },
    /// This node is to hand the lead over; the answer is whether it does.
    HandOver { to: NodeId, begins: oneshot::Sender<bool> },
}

/// What comes back for a command.
#[derive(Debug)]
pub(crate) enum Incoming {
    Part(Part),
    /// No more will come.
    Lost(Loss),
}

/// Why an answer does not come.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Loss {
    /// The command was not sent, since no node leads.
    Unled,
    /// The command was not sent, since that node is not linked.
    Unlinked { node: String },
    /// The command was not sent, since too many wait for answers.
    TooMany,
    /// The node was lost, or leads no more.
    Gone { node: String },
    /// This node stops.
    Stopping,
}

impl Loss {
    fn report(self, effect: Effect) -> ErrorReport {
        const REPEAT: &str = "Repeat it in a moment. SHOW NODES says which node leads.";
        let refusal = match (self, effect) {
            (Self::Unled, _) => Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                "no node leads at present, and only the leader can do this",
                "Repeat it in a moment. If that lasts, look whether a majority of etcd's members is up.",
            ),
            (Self::Unlinked { node }, Effect::Looks) => Refusal::plain(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("there is no link to node {node}"),
            ),
            (Self::Unlinked { node }, Effect::Changes) => Refusal::new(
                sqlstate::OBJECT_NOT_IN_PREREQUISITE_STATE,
                format!("there is no link to node {node}, so nothing was done there"),
                "Start it, or mend the network to it; SHOW NODES shows the links.",
            ),
            (Self::TooMany, _) => Refusal::new(
                sqlstate::TOO_MANY_CONNECTIONS,
                "too many commands wait for other nodes, so this one was not begun",
                "SHOW NODES shows which nodes answer. Repeat it when others have ended.",
            ),
            (Self::Gone { node }, Effect::Looks) => Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                format!(
                    "node {node} was lost, or leads no more, before its answer was complete; nothing was changed"
                ),
                REPEAT,
            ),
            (Self::Gone { node }, Effect::Changes) => Refusal::new(
                sqlstate::CANNOT_CONNECT_NOW,
                format!(
                    "node {node} was lost, or leads no more; the command may have been carried out there"
                ),
                "SHOW NODES says which node leads now. Look there how far the command came, and repeat it if it is needed.",
            ),
            (Self::Stopping, _) => Refusal::plain(
                sqlstate::ADMIN_SHUTDOWN,
                "this node stops; the command may have been carried out at another one",
            ),
        };
        refusal.into()
    }
}

/// The way to the other nodes.
#[derive(Debug)]
pub(crate) struct Dispatcher {
    out: mpsc::Sender<Outgoing>,
    last: AtomicU64,
}

impl Dispatcher {
    /// The way, and what is to be sent.
    pub(crate) fn new() -> (Self, mpsc::Sender<Outgoing>, mpsc::Receiver<Outgoing>) {
        let (out, outgoing) = mpsc::channel(OUTGOING_MAX);
        (Self { out: out.clone(), last: AtomicU64::new(0) }, out, outgoing)
    }

    /// Has another node carry a command out.
    pub(crate) async fn ask(&self, to: Addressee, dispatch: Dispatch, effect: Effect) -> Conversation {
        let number = DispatchId(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        // A part, and the loss of the node that may follow at once.
        let (answer, incoming) = mpsc::channel(2);
        // If the conductor has gone, so has the other end of `answer`.
        let _ = self.out.send(Outgoing::Ask { number, to, dispatch, answer }).await;
        Conversation { number, effect, out: self.out.clone(), incoming, is_over: false }
    }

    /// Has this node hand the lead over. Returns false if it does not: it does not serve, the other node is not linked, or it stops.
    pub(crate) async fn hand_over(&self, to: NodeId) -> bool {
        let (begins, answer) = oneshot::channel();
        self.out.send(Outgoing::HandOver { to, begins }).await.is_ok() && answer.await.unwrap_or(false)
    }
}

/// A command that another node carries out, at the node that has asked for it.
#[derive(Debug)]
pub(crate) struct Conversation {
    number: DispatchId,
    effect: Effect,
    out: mpsc::Sender<Outgoing>,
    incoming: mpsc::Receiver<Incoming>,
    is_over: bool,
}

impl Conversation {
    /// The next part of the answer: rows or a notice; `None` once it is complete.
    pub(crate) async fn next(&mut self) -> Result<Option<Part>, Trouble> {
        let lost = |loss: Loss| Trouble::Lost(loss.report(self.effect));
        let part = match self.incoming.recv().await {
            Some(Incoming::Part(part)) => part,
            Some(Incoming::Lost(loss)) => {
                self.is_over = true;
                return Err(lost(loss));
            }
            None => return Err(lost(Loss::Stopping)),
        };
        let _ = self.out.send(Outgoing::More(self.number)).await;
        self.is_over = part.is_last();
        match part {
            Part::Done => Ok(None),
            Part::Failed(report) => Err(Trouble::Failed(report)),
            part => Ok(Some(part)),
        }
    }

    /// All rows, at most this many; notices are left out.
    pub(crate) async fn rows(mut self, rows_max: usize) -> Result<Vec<Vec<String>>, Trouble> {
        let mut rows = Vec::new();
        while let Some(part) = self.next().await? {
            if let Part::Rows(more) = part {
                rows.extend(more);
            }
            if rows.len() > rows_max {
                let text = format!("a node answers with more than {rows_max} rows");
                let hint = "Connect to the database onecopy at that node.";
                let refusal = Refusal::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, text, hint);
                return Err(Trouble::Failed(refusal.into()));
            }
        }
        Ok(rows)
    }
}

impl Drop for Conversation {
    fn drop(&mut self) {
        if !self.is_over {
            // If there is no room, the node's next part finds that it is not waited for.
            let _ = self.out.try_send(Outgoing::Forget(self.number));
        }
    }
}

/// The key of a command at the node that carries it out: the node that has asked, its link, and its number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Carriage {
    pub(crate) node: NodeId,
    pub(crate) link: u64,
    pub(crate) number: DispatchId,
}

/// The answer to a node that has asked.
#[derive(Debug)]
pub(crate) struct Replies {
    to: Carriage,
    out: mpsc::Sender<Outgoing>,
    taken: mpsc::Receiver<()>,
    is_over: bool,
}

/// The node that has asked has gone, or waits no more.
#[derive(Debug)]
pub(crate) struct AskerGone;

impl Replies {
    /// `taken` gets something for each part that was taken, and ends with the one who asks.
    pub(crate) fn new(to: Carriage, out: mpsc::Sender<Outgoing>, taken: mpsc::Receiver<()>) -> Self {
        Self { to, out, taken, is_over: false }
    }

    /// Sends a part, and waits until it was taken.
    pub(crate) async fn send(&mut self, part: Part) -> Result<(), AskerGone> {
        self.is_over |= part.is_last();
        self.out.send(Outgoing::Reply { to: self.to, part }).await.map_err(|_| AskerGone)?;
        self.taken.recv().await.ok_or(AskerGone)
    }

    /// Whether the node that has asked has gone, or waits no more.
    pub(crate) fn is_forgotten(&self) -> bool {
        self.taken.is_closed()
    }

    /// Sends the outcome, and waits until it has arrived.
    pub(crate) async fn finish(
        mut self,
        outcome: Result<Vec<Vec<String>>, ErrorReport>,
    ) -> Result<(), AskerGone> {
        match outcome {
            Ok(rows) => {
                let asked = std::env::var(PART_VARIABLE).ok().and_then(|text| text.parse().ok());
                for rows in parts(rows, asked.unwrap_or(PART_BYTES)) {
                    self.send(Part::Rows(rows)).await?;
                }
                self.send(Part::Done).await
            }
            Err(report) => self.send(Part::Failed(report)).await,
        }
    }
}

impl Drop for Replies {
    fn drop(&mut self) {
        if !self.is_over {
            let text = "the node that carries the command out has broken off";
            let refusal = Refusal::plain(sqlstate::INTERNAL_ERROR, text);
            let part = Part::Failed(refusal.into());
            if self.out.try_send(Outgoing::Reply { to: self.to, part }).is_err() {
                tracing::error!("another node does not learn that its command has broken off");
            }
        }
    }
}

/// Rows in parts of at most this many bytes each, or of a single row.
fn parts(rows: Vec<Vec<String>>, bytes_max: usize) -> Vec<Vec<Vec<String>>> {
    let mut parts: Vec<Vec<Vec<String>>> = Vec::new();
    let mut bytes = 0;
    for row in rows {
        let row_bytes: usize = row.iter().map(String::len).sum();
        match parts.last_mut() {
            Some(part) if bytes + row_bytes <= bytes_max => {
                bytes += row_bytes;
                part.push(row);
            }
            _ => {
                bytes = row_bytes;
                parts.push(vec![row]);
            }
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(bytes: usize) -> Vec<String> {
        vec!["x".repeat(bytes)]
    }

    #[test]
    fn an_answer_is_cut_into_parts_and_nothing_is_left_out() {
        let rows = vec![row(PART_BYTES), row(1), row(PART_BYTES - 1), row(1), row(3 * PART_BYTES), row(0)];
        let cut = parts(rows.clone(), PART_BYTES);
        let sizes: Vec<usize> = cut.iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 2, 1, 1, 1]);
        assert_eq!(cut.concat(), rows);
        assert!(parts(Vec::new(), PART_BYTES).is_empty());
    }

    #[test]
    fn a_loss_says_whether_the_command_may_have_been_carried_out() {
        let gone = || Loss::Gone { node: "b".to_owned() };
        let report = gone().report(Effect::Changes);
        assert_eq!(report.sqlstate, "57P03");
        assert!(report.message.contains("may have been carried out"), "{report:?}");
        assert!(gone().report(Effect::Looks).message.ends_with("nothing was changed"));
        assert!(
            Loss::Unlinked { node: "b".to_owned() }
                .report(Effect::Changes)
                .message
                .contains("nothing was done")
        );
    }

    #[tokio::test]
    async fn an_answer_goes_on_when_a_part_was_taken_and_ends_with_the_one_who_asks() {
        let (dispatcher, out, mut outgoing) = Dispatcher::new();
        let dispatch =
            Dispatch { scope: Scope::Node, role: "joe".to_owned(), text: "SHOW CLIENTS".to_owned() };
        let talk = dispatcher.ask(Addressee::Node(NodeId(1)), dispatch, Effect::Looks).await;
        let Some(Outgoing::Ask { number, answer, .. }) = outgoing.recv().await else { panic!("not asked") };
        let (taken, takes) = mpsc::channel(1);
        let carriage = Carriage { node: NodeId(0), link: 1, number };
        let told = tokio::spawn(Replies::new(carriage, out, takes).finish(Ok(vec![row(PART_BYTES), row(7)])));
        let heard = tokio::spawn(talk.rows(10));
        let mut parts = 0;
        while let Some(message) = outgoing.recv().await {
            match message {
                Outgoing::Reply { part, .. } => {
                    parts += 1;
                    let is_last = part.is_last();
                    answer.try_send(Incoming::Part(part)).unwrap();
                    let Some(Outgoing::More(_)) = outgoing.recv().await else {
                        panic!("{parts} was not taken")
                    };
                    taken.try_send(()).unwrap();
                    if is_last {
                        break;
                    }
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((parts, heard.await.unwrap().unwrap().len()), (3, 2));
        told.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn what_breaks_off_tells_the_one_who_waits() {
        let (dispatcher, out, mut outgoing) = Dispatcher::new();
        let (_taken, takes) = mpsc::channel(1);
        drop(Replies::new(Carriage { node: NodeId(0), link: 1, number: DispatchId(1) }, out, takes));
        let Some(Outgoing::Reply { part: Part::Failed(report), .. }) = outgoing.recv().await else {
            panic!("nothing is said")
        };
        assert_eq!(report.sqlstate, "XX000");
        let dispatch = Dispatch { scope: Scope::Leader, role: String::new(), text: String::new() };
        drop(dispatcher.ask(Addressee::Leader, dispatch, Effect::Looks).await);
        assert!(matches!(outgoing.recv().await, Some(Outgoing::Ask { .. })));
        assert!(matches!(outgoing.recv().await, Some(Outgoing::Forget(_))));
    }
}
