//! The leader's end of a link: takes the events and questions of one crew, in their order.
//!
//! Example: a session of another node sends `Finish`. The crew's task hands it to the core, whose effects enter the queue of the
//! crew ([`super::crews`]).

use std::sync::Arc;
use std::time::Duration;

use cluster::ids::CrewId;
use cluster::protocols::ReplicaStatus;
use tokio::sync::mpsc;

use super::following::NodeEnd;
use super::node_kind::NodeKind;
use super::node_link::{Answer, Intake, QUEUE_MAX, Question, ToLeader, ToNode, ViewChange};
use super::{Coordinator, Leader};

/// The pause between two reports of what changes all the time.
const REPORT_EVERY: Duration = Duration::from_millis(20);

impl Leader {
    /// The coordinator of sessions in this process that reach the core over a link.
    pub(crate) fn link_sessions(self: &Arc<Self>, kind: Arc<dyn NodeKind>, crew: CrewId) -> Arc<Coordinator> {
        let (out, events) = mpsc::channel(QUEUE_MAX);
        let (queue, news) = mpsc::channel(QUEUE_MAX);
        let coordinator = Coordinator::following(self, kind, crew, out.clone());
        tokio::spawn(Arc::clone(&coordinator).follow(NodeEnd { out, news }));
        tokio::spawn(Arc::clone(self).serve_crew(crew, events, queue));
        coordinator
    }

    /// Serves a crew until its link ends.
    async fn serve_crew(
        self: Arc<Self>,
        crew: CrewId,
        mut events: mpsc::Receiver<ToLeader>,
        queue: mpsc::Sender<ToNode>,
    ) {
        self.core.join(crew, queue);
        let mut reports = tokio::time::interval(REPORT_EVERY);
        let mut reported = Reported::default();
        loop {
            tokio::select! {
                message = events.recv() => match message {
                    Some(message) => self.take(crew, message),
                    None => return,
                },
                _ = reports.tick() => self.report(crew, &mut reported),
            }
        }
    }

    fn take(&self, crew: CrewId, message: ToLeader) {
        match message {
            ToLeader::Event { exchange, event } => self.core.tell_from(exchange, *event),
            ToLeader::Ask { number, question } => {
                let answer = self.answer(question);
                self.crews.tell(crew, ToNode::Answer { number, answer });
            }
            ToLeader::SearchDeadlocks => self.deadlock_search.notify_one(),
            ToLeader::Closed { session } => self.crews.forget(session),
        }
    }

    fn answer(&self, question: Question) -> Answer {
        match question {
            Question::EffectsSoFar => Answer::Done,
            Question::WaitOf { session } => Answer::Wait(self.core.wait_of(session).map(Box::new)),
            Question::EarlierWriter { session, claims } => {
                Answer::Writer(self.core.earlier_writer(session, &claims))
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
