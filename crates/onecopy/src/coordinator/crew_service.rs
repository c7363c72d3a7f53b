//! The leader's end of a link: takes the events and questions of one crew, in their order.
//!
//! Example: a session of another node sends `Finish`. The crew's task hands it to the core, whose effects enter the queue of the
//! crew ([`super::crews`]).

use std::sync::Arc;
use std::time::Duration;

use cluster::event::Event;
use cluster::ids::{CrewId, Identity, SessionId, Version};
use cluster::protocols::ReplicaStatus;
use tokio::sync::mpsc;

use super::core::NotJoined;
use super::following::NodeEnd;
use super::node_kind::NodeKind;
use super::node_link::{Answer, Intake, QUEUE_MAX, Question, ToLeader, ToNode, ViewChange};
use super::{Coordinator, Leader};

/// The pause between two reports of what changes all the time.
const REPORT_EVERY: Duration = Duration::from_millis(20);
/// The pause before the log is read again that could not be.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl Leader {
    /// The coordinator of sessions in this process that reach the core over a link. With a number, the link breaks whenever the leader
    /// has taken so many messages from it, and what is under way on it is lost.
    pub(crate) fn link_sessions(
        self: &Arc<Self>,
        kind: Arc<dyn NodeKind>,
        breaks_after: Option<u64>,
    ) -> Arc<Coordinator> {
        tracing::warn!("sessions reach the core over a link, for tests");
        self.mailboxes.number_for_leader();
        let coordinator = Coordinator::following(self, kind);
        let (leader, linked) = (Arc::clone(self), Arc::clone(&coordinator));
        tokio::spawn(async move { while leader.link(&linked, breaks_after).await.is_ok() {} });
        coordinator
    }

    /// Links the sessions of a coordinator until the link breaks.
    async fn link(&self, coordinator: &Coordinator, breaks_after: Option<u64>) -> Result<(), NotJoined> {
        let (out, events) = mpsc::channel(QUEUE_MAX);
        let (queue, news) = mpsc::channel(QUEUE_MAX);
        let crew = self.core.join(queue)?;
        self.core.own(crew);
        tokio::select! {
            () = self.hear_all(crew, events, breaks_after) => {}
            () = coordinator.follow(NodeEnd { out, news }) => {}
        }
        // Nothing that was said before can reach the core after this. So a question for an outcome, on the next link, is answered right.
        self.core.leave(crew);
        coordinator.lose_link();
        Ok(())
    }

    /// Takes so many messages of a crew, or all until its link ends.
    async fn hear_all(&self, crew: CrewId, mut events: mpsc::Receiver<ToLeader>, count: Option<u64>) {
        let mut reports = tokio::time::interval(REPORT_EVERY);
        let mut reported = Reported::default();
        let mut taken = 0;
        while count.is_none_or(|count| taken < count) {
            tokio::select! {
                message = events.recv() => match message {
                    Some(message) => self.take(crew, message).await,
                    None => return,
                },
                _ = reports.tick() => {
                    self.report(crew, &mut reported);
                    continue;
                }
            }
            taken += 1;
        }
    }

    async fn take(&self, crew: CrewId, message: ToLeader) {
        match message {
            ToLeader::Said(said) => {
                if let Some((session, identity)) = self.core.hear(crew, said) {
                    let version = self.version_of(identity).await;
                    self.core.tell(Event::Outcome { session, version });
                }
            }
            ToLeader::Reported(event) => self.core.tell(*event),
            ToLeader::Ask { number, question } => {
                let answer = self.answer(crew, question);
                self.crews.tell(crew, ToNode::Answer { number, answer });
            }
            ToLeader::SearchDeadlocks => self.deadlock_search.notify_one(),
        }
    }

    /// The version of a transaction, if it is in the log. There is no answer as long as the log cannot be read.
    async fn version_of(&self, identity: Identity) -> Option<Version> {
        loop {
            match self.identities.version_of(identity, &self.log).await {
                Ok(version) => return version,
                Err(error) => {
                    tracing::warn!(%error, "cannot look up the outcome of a transaction; trying again");
                    tokio::time::sleep(LOOK_AGAIN_AFTER).await;
                }
            }
        }
    }

    fn answer(&self, crew: CrewId, question: Question) -> Answer {
        let here = |session: SessionId| SessionId::of(crew, session.counter());
        match question {
            Question::EffectsSoFar => Answer::Done,
            Question::WaitOf { session } => Answer::Wait(self.core.wait_of(here(session)).map(Box::new)),
            Question::EarlierWriter { session, claims } => {
                Answer::Writer(self.core.earlier_writer(here(session), &claims))
            }
            Question::Redefines { since, database, mentioned } => {
                Answer::YesOrNo(self.core.redefines(since, database, &mentioned))
            }
            Question::VoidsLent { since } => Answer::YesOrNo(self.core.voids_lent(since)),
        }
    }

    /// Tells a crew how replicas and the log stand, if that has changed.
    fn report(&self, crew: CrewId, reported: &mut Reported) {
        let replicas = self.core.replicas();
        if reported.replicas.as_ref() != Some(&replicas) {
            reported.replicas = Some(replicas.clone());
            self.crews.tell(crew, ToNode::View(ViewChange::Replicas(replicas)));
        }
        let intake = Intake { has_room: self.core.has_room(), refusal: self.core.refusal() };
        if reported.intake != Some(intake) {
            reported.intake = Some(intake);
            self.crews.tell(crew, ToNode::View(ViewChange::Intake(intake)));
        }
    }
}

/// What a crew was told last.
#[derive(Debug, Default)]
struct Reported {
    replicas: Option<Vec<ReplicaStatus>>,
    intake: Option<Intake>,
}
