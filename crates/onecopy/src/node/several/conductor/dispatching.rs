//! The conductor passes on commands of the admin database, and their answers ([`crate::coordinator::dispatch`]).

use cluster::ids::NodeId;
use cluster::nodes::term::Input;
use tokio::sync::mpsc;
use wire::sqlstate;

use super::Conductor;
use crate::coordinator::dispatch::{
    Addressee, Carriage, Dispatch, DispatchId, Incoming, Loss, Outgoing, Part,
};
use crate::error::Refusal;
use crate::node::several::dispatches::lose;
use crate::node::several::orders::Order;
use crate::node::several::parcel::Parcel;

impl Conductor {
    /// This process has something for another node.
    pub(super) fn outgoing(&mut self, outgoing: Outgoing) {
        match outgoing {
            Outgoing::Ask { number, to, dispatch, answer } => self.ask(number, to, dispatch, answer),
            Outgoing::More(number) => {
                if let Some(node) = self.dispatches.take(number) {
                    self.send(node, &Parcel::More { number });
                }
            }
            Outgoing::Forget(number) => {
                if let Some(node) = self.dispatches.forget(number) {
                    self.send(node, &Parcel::Forget { number });
                }
            }
            Outgoing::HandOver { to, begins } => {
                let led = self.term.leads();
                if self.links.get(to).is_some() {
                    self.hear(Input::HandOver { to });
                }
                // If the command has gone, its node goes on without it.
                let _ = begins.send(led.is_some() && self.term.leads() != led);
            }
            Outgoing::Reply { to, part } => {
                let is_same = self.links.get(to.node).is_some_and(|link| link.0 == to.link);
                if is_same && self.dispatches.reply(to, &part) {
                    self.send(to.node, &Parcel::Part { number: to.number, part });
                }
            }
        }
    }

    fn ask(&mut self, number: DispatchId, to: Addressee, dispatch: Dispatch, answer: mpsc::Sender<Incoming>) {
        let node = match to {
            Addressee::Node(node) => node,
            Addressee::Leader => match &self.followed {
                Some(followed) => followed.leader,
                None => return lose(&answer, Loss::Unled),
            },
        };
        if self.links.get(node).is_none() {
            return lose(&answer, Loss::Unlinked { node: self.name(node) });
        }
        if self.dispatches.ask(number, node, to, answer) {
            self.send(node, &Parcel::Dispatch { number, dispatch });
        }
    }

    /// Another node says something about a command.
    pub(super) fn hear_dispatch(&mut self, node: NodeId, message: Parcel) {
        let Some(link) = self.links.get(node).map(|link| link.0) else { return };
        let place = |number| Carriage { node, link, number };
        match message {
            Parcel::Dispatch { number, dispatch } => self.carry(place(number), dispatch),
            Parcel::Part { number, part } => {
                if let Some(parcel) = self.dispatches.hear(node, number, part) {
                    self.send(node, &parcel);
                }
            }
            Parcel::More { number } => self.dispatches.taken(place(number)),
            Parcel::Forget { number } => self.dispatches.forgotten(place(number)),
            _ => {}
        }
    }

    /// Hands a command to the office.
    fn carry(&mut self, to: Carriage, dispatch: Dispatch) {
        let Some(replies) = self.dispatches.carry(to) else {
            let refusal = Refusal::new(
                sqlstate::TOO_MANY_CONNECTIONS,
                format!(
                    "node {} carries out too many commands of this node, so this one was not begun",
                    self.name(self.board.own)
                ),
                "Repeat it when others have ended.",
            );
            return self
                .send(to.node, &Parcel::Part { number: to.number, part: Part::Failed(refusal.into()) });
        };
        // If the office has no room, the other node learns from the end of `replies` that this broke off.
        self.order(Order::CarryOut { from: self.name(to.node), dispatch, replies });
    }
}
