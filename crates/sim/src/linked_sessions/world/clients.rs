//! Clients: where they ask, and what they are told.

use cluster::ids::SessionId;
use cluster::protocols::shipping::{Answer, Kind, Request};

use super::{Event, Happening, Process, RETRY_US, World};
use crate::linked_sessions::draw::NODES;
use crate::linked_sessions::node::Caller;
use crate::linked_sessions::slots::Given;
use crate::trace::Stage;

impl World {
    /// A client begins its next interaction, at its node if that lives.
    pub(super) fn next(&mut self, client: usize) {
        let before = self.clients[client].server;
        let up = (0..NODES).map(|ahead| (before + ahead) % NODES).find(|node| self.nodes[*node].is_up);
        let Some(server) = up else { return self.agenda.enter(RETRY_US, Happening::Next(client)) };
        self.names.session += 1;
        let session = SessionId(self.names.session);
        self.clients[client].life = self.nodes[server].life;
        if self.clients[client].begin(session, server, &mut self.dice, &mut self.texts) {
            self.ask(client);
        }
    }

    fn ask(&mut self, client: usize) {
        let now_us = self.agenda.now_us();
        let one = &mut self.clients[client];
        let (session, process) = (one.session, Process { node: one.server, life: one.life });
        let Some(request) = one.next_request(now_us) else { return };
        let is_over = request == Request::InteractionOver;
        let after_us = self.message_us();
        self.enter_at(after_us, process, Event::Asks(Caller { client, session }, request));
        if is_over {
            let pause_us = self.dice.delay(2 * self.plan.message_us);
            self.agenda.enter(after_us + pause_us, Happening::Next(client));
        }
    }

    pub(super) fn told(&mut self, caller: Caller, given: Given) {
        let client = caller.client;
        if self.clients[client].session != caller.session || !self.clients[client].is_waiting() {
            return;
        }
        let now_us = self.agenda.now_us();
        self.say(Stage::Acknowledge, || format!("client {client}: {given:?}"));
        let one = &mut self.clients[client];
        let Some(asked) = one.asked().cloned() else { return };
        match given {
            Given::Done(seen) => {
                let is_read = matches!(&asked, Request::SingleRead(..))
                    || matches!(&asked, Request::Execute(operation) if operation.kind == Kind::Read);
                if is_read && seen.is_none() {
                    self.findings.push(format!("no reply: {asked:?} is done without one"));
                }
                self.findings.extend(one.answered(Answer::Done, now_us, |_| Some(seen.unwrap_or_default())));
            }
            Given::Refused => self.findings.push(format!("refused: {asked:?}")),
            Given::Lost => one.lost(),
            Given::LeaderLost => one.undone(),
            Given::Again => {
                let process = Process { node: one.server, life: one.life };
                return self.enter_at(RETRY_US, process, Event::Asks(caller, asked));
            }
        }
        self.ask(client);
    }

    /// The node of a client has died.
    pub(super) fn cut(&mut self, caller: Caller) {
        let client = caller.client;
        if self.clients[client].session == caller.session && self.clients[client].is_waiting() {
            self.clients[client].cut();
            self.agenda.enter(0, Happening::Next(client));
        }
    }
}
