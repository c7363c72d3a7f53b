//! A session: one client connection, from login to its end.
//!
//! A session is one task on one thread. It owns everything it uses: the client's socket, its server connections,
//! settings, prepared statements, and the transaction. It shares only the coordinator, which takes its events and
//! sends it notes. The files beside this one are its parts: [`simple`] and [`extended`] read the two query protocols,
//! [`crate::execute::statement`] runs statements, [`control`] begins and ends transactions, and [`crate::relay`]
//! passes replies on.

pub(crate) mod admin;
pub(crate) mod batch;
pub(crate) mod control;
pub(crate) mod extended;
pub(crate) mod passing;
pub(crate) mod prepared;
pub(crate) mod replay;
pub(crate) mod settings;
pub(crate) mod simple;
pub(crate) mod special;
pub(crate) mod stand_ins;

use cluster::event::Effect;
use wire::encode;
use wire::frontend::tag;

use crate::client::ending::ended;
use crate::commit::Committer;
use crate::connect::Connector;
use crate::coordinator::mailbox::{End, Note};
use crate::drive::Driver;
use crate::error::{Fault, Refusal};
use crate::execute::Executor;
use crate::link::Link;
use crate::local::session_registry::Activity;
use crate::place::Placer;
use crate::session::passing::{Left, Turn};
use crate::transaction::open::{OpenTransaction, Transaction};
use crate::transaction::stage::lend;
use crate::transaction::view::View;

/// One client connection.
pub(crate) struct Session {
    pub(crate) link: Link,
    pub(crate) txn: OpenTransaction,
    /// After an error in the extended protocol: skip messages until Sync.
    pub(crate) skipping: bool,
    pub(crate) turn: Turn,
}

impl Session {
    lend! { connector: Connector, driver: Driver, committer: Committer, placer: Placer, executor: Executor }
}

impl View<'_> {
    /// Ends the session if that was requested and no work is half done.
    fn check_ending(self) -> Result<(), Fault> {
        match self.link.session_registration.ending.max(self.link.session_registration.mailbox.called()) {
            None | Some(End::Succession) => Ok(()),
            Some(End::AfterTransaction) if !matches!(self.txn.state, Transaction::None) => Ok(()),
            Some(end) => Err(Fault::Fatal(ended(end))),
        }
    }
}

impl Session {
    /// Serves the client until it leaves.
    pub(crate) async fn serve(mut self) {
        match self.loop_().await {
            Err(Fault::Fatal(refusal)) => {
                let news = self.link.last_notifications().await;
                self.link.client.say_last(&news, &refusal).await;
            }
            Ok(Left::ForSuccessor) => self.pass_on().await,
            Ok(Left::ByClient) | Err(_) => {}
        }
        self.leave().await;
    }

    async fn loop_(&mut self) -> Result<Left, Fault> {
        loop {
            // A client that reads slowly must not delay its COMMIT at home, nor keep a shared connection.
            let is_sent = self.link.client.try_flush().await?;
            self.link.settle().await;
            self.connector().give_back().await;
            if !is_sent {
                self.link.client.flush().await?;
            }
            self.connector().leave_drained();
            let is_open = !matches!(self.txn.state, Transaction::None);
            self.link.session_registration.entry.rest(
                is_open,
                self.link.client.received,
                self.link.client.sent,
            );
            self.link.take_notifications();
            self.view().check_ending()?;
            self.link.keep_state()?;
            let Some((tag, total)) = self.next_message().await? else { return Ok(Left::ForSuccessor) };
            self.link.hear_servers().await?;
            if self.begin_work(tag).await? {
                return Ok(Left::ForSuccessor);
            }
            match tag {
                tag::QUERY => {
                    let body = self.link.client.input.data()[5..total].to_vec();
                    self.link.client.input.consume(total);
                    self.query(&body).await?;
                }
                tag::TERMINATE => return Ok(Left::ByClient),
                tag::FUNCTION_CALL => {
                    self.link.client.input.consume(total);
                    Refusal::unsupported("the function call message", "Call the function with SELECT.")
                        .write(&mut self.link.client.out, "ERROR");
                    self.ready();
                }
                // The rest of a COPY that failed.
                tag::COPY_DATA | tag::COPY_DONE | tag::COPY_FAIL => self.link.client.input.consume(total),
                _ => self.extended().await?,
            }
        }
    }

    /// Waits for the client's next message, and passes notifications on meanwhile. `None` if the session is to go on in another
    /// process.
    async fn next_message(&mut self) -> Result<Option<(u8, usize)>, Fault> {
        loop {
            if self.passes()? {
                self.link.client.flush().await?;
                return Ok(None);
            }
            if let Some(found) = self.link.client.ready()? {
                return Ok(Some(found));
            }
            self.link.client.flush().await?;
            let Link { client, servers, session_registration, .. } = &mut self.link;
            tokio::select! {
                filled = client.fill() => filled?,
                (replica, filled) = servers.heard() => self.link.take_unasked(replica, filled.is_err())?,
                note = session_registration.mailbox.next() => match note {
                    Note::End(end) => {
                        self.link.session_registration.note_end(end);
                        self.view().check_ending()?;
                    }
                    Note::Effect(Effect::Abort { cause, .. }) => {
                        let fault = self.view().aborted(cause, self.txn.last_home);
                        self.driver().step_back().await;
                        self.lose_while_idle(fault)?;
                    }
                    Note::Effect(Effect::RunAgain { .. }) if self.driver().is_recalled() => {
                        let fault = self.driver().follow_recall().await;
                        self.lose_while_idle(fault)?;
                    }
                    Note::Drained => {
                        self.connector().leave_drained();
                        self.link.keep_state()?;
                    }
                    Note::Effect(_) | Note::Cancel => self.connector().leave_drained(),
                },
            }
        }
    }

    /// The transaction was lost while the client was silent.
    fn lose_while_idle(&mut self, fault: Fault) -> Result<(), Fault> {
        self.link.keep_state()?;
        self.txn.must_tell_loss = matches!(self.txn.state, Transaction::Lost(_));
        self.txn.loss = if let Fault::Rival(why) = fault { Some(why) } else { None };
        Ok(())
    }

    /// Begins work for the client. While the node is paused, work waits for RESUME. `true` if the session is to go on in another
    /// process instead.
    async fn begin_work(&mut self, tag: u8) -> Result<bool, Fault> {
        if tag == tag::TERMINATE {
            return Ok(false);
        }
        self.link.session_registration.entry.work();
        while self.link.local().sessions.pauses.is_any() && matches!(self.txn.state, Transaction::None) {
            let _shown = self.link.session_registration.entry.wait(Activity::Paused);
            tokio::select! {
                () = self.link.worker.local.sessions.pauses.ended() => {}
                note = self.link.session_registration.mailbox.next() => {
                    if let Note::End(end) = note {
                        self.link.session_registration.note_end(end);
                        self.view().check_ending()?;
                        if self.passes()? {
                            return Ok(true);
                        }
                    }
                }
                () = self.link.client.time_to_look() => {
                    if let Some(fault) = self.link.client.leaves() {
                        return Err(fault);
                    }
                }
            }
        }
        self.turn = Turn::Session;
        Ok(false)
    }

    /// Ends the session: finishes or rolls back its transaction, and gives its connections back.
    async fn leave(mut self) {
        self.link.settle().await;
        if let Transaction::Update(_) = self.txn.state {
            self.driver().roll_back_home().await;
        }
        self.driver().leave_read().await;
        if self.link.session_registration.mailbox.called() == Some(End::Killed) {
            // The process that pg_terminate_backend named ends, even where sessions share it.
            self.link.servers.close_all();
        }
        self.connector().give_back().await;
        self.link.worker.coordinator.close_session(self.link.id);
    }

    /// Appends ReadyForQuery.
    pub(crate) fn ready(&mut self) {
        let status = self.txn.status();
        self.turn = Turn::Client;
        encode::ready_for_query(&mut self.link.client.out, status);
    }
}
