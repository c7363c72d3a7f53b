//! The core at the leader, as the sessions of a node see it: events go out on the link, effects come back on it.
//!
//! Invariant: of an exchange that a session has ended, no effect reaches its mailbox any more ([`Exchange`]). The session
//! clears its mailbox when it ends one, and an effect is let through under the same lock under which exchanges end.
//!
//! Non-goal: what becomes of sessions when the link breaks.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::event::{Effect, Event};
use cluster::ids::SessionId;
use cluster::placement::Placement;
use cluster::protocols::ReplicaStatus;
use rustc_hash::FxHashMap;
use tokio::sync::{mpsc, oneshot};

use crate::coordinator::mailboxes::Mailboxes;
use crate::coordinator::node_link::{Answer, Exchange, Intake, Question, ToLeader, ViewChange};
use crate::coordinator::view::View;

/// What the node knows of the cluster beside its [`View`].
#[derive(Debug)]
pub(crate) struct News {
    pub(crate) replicas: Vec<ReplicaStatus>,
    pub(crate) placement: Option<Placement>,
    pub(crate) intake: Intake,
}

/// The way to the core at the leader.
pub(crate) struct RemoteCore {
    out: mpsc::Sender<ToLeader>,
    /// The present exchange of each session that has ended one.
    exchanges: Mutex<FxHashMap<SessionId, Exchange>>,
    asked: Mutex<BTreeMap<u64, oneshot::Sender<Answer>>>,
    next_question: AtomicU64,
    news: Mutex<News>,
    view: Arc<View>,
    mailboxes: Arc<Mailboxes>,
}

impl RemoteCore {
    /// Events go out by `out`.
    pub(in crate::coordinator) fn new(
        out: mpsc::Sender<ToLeader>,
        view: Arc<View>,
        mailboxes: Arc<Mailboxes>,
        news: News,
    ) -> Self {
        Self {
            out,
            exchanges: Mutex::default(),
            asked: Mutex::default(),
            next_question: AtomicU64::new(0),
            news: Mutex::new(news),
            view,
            mailboxes,
        }
    }

    /// Hands one event to the leader.
    pub(super) fn tell(&self, event: Event) {
        let known = event.session().and_then(|session| self.exchanges().get(&session).copied());
        self.send_event(known.unwrap_or_default(), event);
    }

    /// Hands over an event that ends an exchange of a session.
    pub(super) fn end_exchange(&self, session: SessionId, event: Event) {
        let exchange = {
            let mut exchanges = self.exchanges();
            let exchange = exchanges.entry(session).or_default();
            exchange.0 += 1;
            *exchange
        };
        self.send_event(exchange, event);
    }

    fn send_event(&self, exchange: Exchange, event: Event) {
        self.send(ToLeader::Event { exchange, event: Box::new(event) });
    }

    /// Asks the leader. `None` if there is none to answer.
    pub(super) async fn question(&self, question: Question) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        let number = self.next_question.fetch_add(1, Ordering::Relaxed);
        self.asked().insert(number, sender);
        if !self.send(ToLeader::Ask { number, question }) {
            self.asked().remove(&number);
        }
        answer.await.ok()
    }

    /// The session has ended.
    pub(in crate::coordinator) fn close(&self, session: SessionId) {
        self.exchanges().remove(&session);
        self.send(ToLeader::Closed { session });
    }

    /// What is known of the cluster.
    pub(super) fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An effect has arrived.
    pub(in crate::coordinator) fn receive(&self, exchange: Exchange, effect: Effect) {
        let Some(session) = effect.session() else { return };
        let exchanges = self.exchanges();
        if exchange >= exchanges.get(&session).copied().unwrap_or_default() {
            self.mailboxes.deliver(session, effect);
        }
    }

    /// An answer has arrived.
    pub(in crate::coordinator) fn answered(&self, number: u64, answer: Answer) {
        if let Some(asked) = self.asked().remove(&number) {
            // A session that has gone on waits for it no longer.
            let _ = asked.send(answer);
        }
    }

    /// What the node knows changes.
    pub(in crate::coordinator) fn show(&self, change: ViewChange) {
        match change {
            ViewChange::Versions { durable, last_ddl } => self.view.show_versions(durable, last_ddl),
            ViewChange::Anchor(replica) => {
                self.view.set_anchor(replica);
                // The state that a session has at the old anchor is lost to it.
                self.mailboxes.drained();
            }
            ViewChange::Placement { placement, is_partial, edition } => {
                self.news().placement = placement.map(|placement| *placement);
                self.view.show_placement(is_partial, edition);
            }
            ViewChange::Replicas(replicas) => self.news().replicas = replicas,
            ViewChange::Intake(intake) => self.news().intake = intake,
        }
    }

    /// The link has ended: no answer comes any more.
    pub(in crate::coordinator) fn lose_link(&self) {
        self.asked().clear();
    }

    /// Whether the message is on its way.
    fn send(&self, message: ToLeader) -> bool {
        let sent = self.out.try_send(message);
        if let Err(error) = &sent {
            tracing::error!(%error, "the leader cannot be reached");
        }
        sent.is_ok()
    }

    fn exchanges(&self) -> MutexGuard<'_, FxHashMap<SessionId, Exchange>> {
        self.exchanges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn asked(&self) -> MutexGuard<'_, BTreeMap<u64, oneshot::Sender<Answer>>> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cluster::ids::{CrewId, Incarnation, ReplicaId, Version};

    use super::*;

    const CREW: CrewId = CrewId(1);

    fn remote() -> (RemoteCore, Arc<Mailboxes>, mpsc::Receiver<ToLeader>) {
        let (out, sent) = mpsc::channel(8);
        let mailboxes = Arc::new(Mailboxes::of(CREW));
        let view = Arc::new(View::new(ReplicaId(0), Version::ZERO));
        let intake = Intake { has_room: true, refusal: None };
        let news = News { replicas: Vec::new(), placement: None, intake };
        (RemoteCore::new(out, view, Arc::clone(&mailboxes), news), mailboxes, sent)
    }

    fn execute(session: SessionId) -> Effect {
        let (replica, incarnation) = (ReplicaId(0), Incarnation(1));
        Effect::Execute { session, replica, incarnation, identity: None, applied: Version::ZERO }
    }

    /// The exchange of the last event that was sent.
    fn last_exchange(sent: &mut mpsc::Receiver<ToLeader>) -> Option<Exchange> {
        let mut last = None;
        while let Ok(message) = sent.try_recv() {
            if let ToLeader::Event { exchange, .. } = message {
                last = Some(exchange);
            }
        }
        last
    }

    #[test]
    fn no_effect_of_an_exchange_that_has_ended_reaches_a_session() {
        let (core, mailboxes, mut sent) = remote();
        let (session, mailbox) = mailboxes.open(Arc::default());
        core.tell(Event::Executed { session });
        let first = last_exchange(&mut sent).expect("it was sent");
        core.receive(first, execute(session));
        assert!(mailbox.try_next().is_some(), "it is of the present exchange");
        core.end_exchange(session, Event::End { session });
        core.receive(first, execute(session));
        assert!(mailbox.try_next().is_none(), "it was under way when the session went on");
        core.tell(Event::Executed { session });
        let second = last_exchange(&mut sent).expect("it was sent");
        core.receive(second, execute(session));
        assert!(mailbox.try_next().is_some());
        core.close(session);
        assert!(core.exchanges().is_empty(), "a session that has ended takes no memory");
    }

    #[tokio::test]
    async fn a_question_ends_with_its_answer_or_with_the_link() {
        let (core, _, mut sent) = remote();
        let (answer, ()) = tokio::join!(core.question(Question::VoidsLent { since: Version(3) }), async {
            let Some(ToLeader::Ask { number, .. }) = sent.recv().await else { panic!("no question") };
            core.answered(number, Answer::YesOrNo(false));
        });
        assert!(answer.is_some_and(|answer| !answer.is_yes()));
        let (answer, ()) = tokio::join!(core.question(Question::EffectsSoFar), async {
            sent.recv().await;
            core.lose_link();
        });
        assert!(answer.is_none(), "the link was lost meanwhile");
        drop(sent);
        assert!(core.question(Question::EffectsSoFar).await.is_none(), "there is no link");
    }
}
