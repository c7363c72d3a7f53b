//! The links between the nodes of a cluster: one ordered stream of messages in each direction, for each pair of nodes.
//!
//! The node with the greater name dials, the other one accepts. Both prove by certificates which node they are, and compare
//! their settings in a first frame (`hello`). Then [`Peers::send`] puts messages into the link, and [`PeerEvents::recv`]
//! gives what arrives:
//!
//! ```text
//! Up { node: b, link: 7 }   Message { node: b, link: 7, .. }   ..   Down { node: b, link: 7, reason }   Up { node: b, link: 9 }
//! ```
//!
//! Invariant: what a link delivers is a prefix of what its other end has sent into it, in order. Nothing is lost or doubled
//! while the link is up; the loss is told by `Down`, after the last message of that link and before the next `Up` of that node.
//! A link that cannot take a message breaks instead of dropping it.
//!
//! Everything is bounded. If the consumer stops taking events, nothing is read from any peer. Then the queues of the other nodes
//! fill, and they break their links to this node. So a node that hangs loses its links, and takes no memory of the others.
//!
//! Not here: what messages mean, beats, retransmission over a new link. A link that hangs is found by the beats of its users,
//! who end it with [`Peers::break_link`].
//!
//! ```no_run
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! use cluster::ids::Nonce;
//! use peers::{Options, PeerEvent, Peers};
//!
//! let others = [("b".to_owned(), "127.0.0.1:7002".to_owned())].into();
//! let options = Options {
//!     name: "a".into(),
//!     others,
//!     listen: "127.0.0.1:7001".into(),
//!     cluster: "shop".into(),
//!     run: Nonce(42),
//!     tls: None,
//! };
//! let (peers, mut events) = Peers::<String>::start(options).await?;
//! while let Some(event) = events.recv().await {
//!     if let PeerEvent::Up { node, link, .. } = event {
//!         peers.send(node, link, &"hello".to_owned())?;
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod acceptor;
mod complaints;
mod events;
mod frame;
mod hello;
mod limits;
mod line;
mod options;
mod outbox;
mod switchboard;
mod tls;

#[cfg(test)]
mod tests;

pub use events::{DownReason, LinkId, PeerEvent, PeerEvents};
pub use frame::FRAME_BYTES_MAX;
pub use hello::LINK_VERSION;
pub use options::{Options, PeersError};
pub use outbox::NotSent;
pub use switchboard::Peers;
pub use tls::{TlsFileError, TlsFiles};
