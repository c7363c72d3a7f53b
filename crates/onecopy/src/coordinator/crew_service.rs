//! The leader's end of a link: takes the events and questions of one crew, in their order.
//!
//! Example: a session of another node sends `Finish`. The crew's task hands it to the core, whose effects enter the queue of the
//! crew ([`super::crews`]).

use std::io;
use std::sync::Arc;
use std::time::Duration;

use cluster::event::{Event, Found};
use cluster::ids::{CrewId, SessionId};
use cluster::nodes::roster::TooManyCrews;
use cluster::parts::replica::Offer;
use cluster::protocols::ReplicaStatus;
use cluster::protocols::rows::Choices;
use cluster::time::Time;
use tokio::sync::mpsc;

use super::core::OutcomeQuestion;
use super::crew_spills::{self, PartOf};
use super::following::NodeEnd;
use super::node_link::{Answer, Intake, QUEUE_MAX, Question, SpillProblem, ToLeader, ToNode, ViewChange};
use super::{Coordinator, Leader};

/// The pause between two reports of what changes all the time.
const REPORT_EVERY: Duration = Duration::from_millis(20);
/// The pause before the log is read again that could not be.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(500);

impl Leader {
    /// Links the sessions of a coordinator of this process, until the link breaks: whenever the leader has taken so many messages from
    /// it, if a number is given. What is under way on it is lost.
    pub(crate) async fn link(
        &self,
        coordinator: &Coordinator,
        breaks_after: Option<u64>,
    ) -> Result<(), TooManyCrews> {
        let (out, events) = mpsc::channel(QUEUE_MAX);
        let (queue, news) = mpsc::channel(QUEUE_MAX);
        let crew = self.admit(queue)?;
        self.core.own(crew);
        tokio::select! {
            () = self.hear_crew(crew, events, breaks_after) => {}
            heard = coordinator.follow(NodeEnd { out, news }) => {
                if let Err(error) = heard {
                    tracing::error!(%error, "the sessions of this process cannot follow its leader");
                }
            }
        }
        // Nothing that was said before can reach the core after this. So a question for an outcome, on the next link, is answered right.
        self.crew_gone(crew);
        coordinator.lose_link();
        Ok(())
    }

    /// A node joins, whose link reads this queue. The messages of the node go to [`Self::serve_crew`].
    pub(crate) fn admit(&self, queue: mpsc::Sender<ToNode>) -> Result<CrewId, TooManyCrews> {
        let crew = self.core.join(queue)?;
        if let Some(link_end) = Arc::clone(&self.kind).scheduler_link() {
            link_end.crew_joined(crew);
        }
        Ok(crew)
    }

    fn crew_gone(&self, crew: CrewId) {
        self.core.leave(crew);
        if let Some(link_end) = Arc::clone(&self.kind).scheduler_link() {
            link_end.crew_left(crew);
        }
    }

    /// Takes the messages of a crew until its link ends. Then nothing that it said before can reach the core.
    pub(crate) async fn serve_crew(&self, crew: CrewId, events: mpsc::Receiver<ToLeader>) {
        self.hear_crew(crew, events, None).await;
        self.crew_gone(crew);
    }

    /// Takes so many messages of a crew, or all until its link ends.
    async fn hear_crew(&self, crew: CrewId, mut events: mpsc::Receiver<ToLeader>, count: Option<u64>) {
        let mut reports = tokio::time::interval(REPORT_EVERY);
        let mut reported = Reported::default();
        let spills = crew_spills::begin(self.log.spills(), Arc::clone(&self.crews), crew);
        let mut taken = 0;
        while count.is_none_or(|count| taken < count) {
            tokio::select! {
                message = events.recv() => match message {
                    Some(ToLeader::Spill { number, identity, part }) => {
                        self.spill(crew, &spills, PartOf { number, identity, part });
                    }
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

    fn spill(&self, crew: CrewId, spills: &mpsc::Sender<PartOf>, part: PartOf) {
        let number = part.number;
        if spills.try_send(part).is_err() {
            let problem =
                SpillProblem::of(&io::Error::other("too many transactions wait to keep their rows"));
            let answer = Answer::Spilled(Some(problem));
            self.crews.tell(crew, ToNode::Answer { number, answer });
        }
    }

    /// Grants a lease, unless it would be of no use: each makes commits wait for what its node notes.
    fn grant(&self, crew: CrewId, sent: Time) {
        if self.kind.choices().is_some_and(Choices::places_reads_by_load) {
            self.core.grant(crew, sent);
        }
    }

    async fn take(&self, crew: CrewId, message: ToLeader) {
        match message {
            ToLeader::Said(said) => {
                if let Some(question) = self.core.hear(crew, said) {
                    let found = self.find(question).await;
                    self.core.tell(Event::Outcome { session: question.session, found });
                }
            }
            ToLeader::Reported(event) => self.core.tell(*event),
            ToLeader::Ask { number, question } => {
                let answer = self.answer(crew, question);
                self.crews.tell(crew, ToNode::Answer { number, answer });
            }
            // It is kept apart from the events.
            ToLeader::Spill { .. } => {}
            ToLeader::SearchDeadlocks => self.deadlock_search.notify_one(),
            ToLeader::Backends { round, backends } => self.crews.note_backends(crew, round, backends),
            ToLeader::Held(backends) => self.crews.held.tell(crew, backends),
            ToLeader::Lease { sent } => self.grant(crew, sent),
            ToLeader::Noted { upto } => self.core.noted(crew, upto),
            ToLeader::LeaseEnded => self.core.lease_ended(crew),
            ToLeader::Outside(placed) => self.core.note_outside(crew, placed),
            ToLeader::Scheduler(message) => {
                if let Some(link_end) = Arc::clone(&self.kind).scheduler_link() {
                    link_end.hear_crew(crew, *message).await;
                }
            }
            ToLeader::Overtaken { replica, session } => {
                let (session, incarnation) =
                    (SessionId::of(crew, session.counter()), self.seats[replica].run.incarnation());
                self.core.tell(Event::BlocksApply { session, replica, incarnation });
            }
        }
    }

    /// What the log says of a transaction. There is no answer as long as the log cannot be read.
    async fn find(&self, question: OutcomeQuestion) -> Found {
        loop {
            match self.identities.version_of(question.identity, &self.log).await {
                Ok(version) => return Found::of(version, question.after, self.log.first_retained()),
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
            Question::JudgeDraw(draw) => {
                let (verdict, reading) = self.core.judge_draw(&draw);
                Answer::Duty { verdict, reading }
            }
        }
    }

    /// Tells a crew how replicas and the log stand, if that has changed.
    fn report(&self, crew: CrewId, reported: &mut Reported) {
        let replicas = self.kind.replicas(self);
        if reported.replicas.as_ref() != Some(&replicas) {
            reported.replicas = Some(replicas.clone());
            self.crews.tell(crew, ToNode::View(ViewChange::Replicas(replicas)));
        }
        let offers = self.core.offers_to(crew);
        if reported.offers != offers {
            self.crews.tell(crew, ToNode::Offers(offers.clone()));
            reported.offers = offers;
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
    offers: Vec<Option<Offer>>,
    intake: Option<Intake>,
}
