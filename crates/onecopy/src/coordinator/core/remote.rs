//! The core at the leader, as the sessions of a node see it: events go out on the link, effects come back on it.
//!
//! What a session is owed when its link ends is in the ledger ([`cluster::nodes::ledger`]). While there is no link, questions that can
//! be asked again wait in it. So a session does not notice the end of a link, unless it has a transaction open.
//!
//! Invariant: what sessions say goes out in the order in which the ledger notes it, and no effect reaches the mailbox of a session
//! that has gone on, since both happen under one lock.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cluster::event::{Effect, Event};
use cluster::ids::{Identity, ReplicaId, SessionId, Version};
use cluster::nodes::Rules;
use cluster::nodes::ledger::{Heard, Ledger};
use cluster::nodes::version_leases::Granted;
use cluster::parts::replica::{Offer, Outside};
use cluster::parts::sequences::Reading;
use cluster::placement::Placement;
use cluster::protocols::ReplicaStatus;
use cluster::time::Time;
use tokio::sync::{mpsc, oneshot};

use crate::coordinator::errands::Errands;
use crate::coordinator::mailboxes::Mailboxes;
use crate::coordinator::node_link::Intake;
use crate::coordinator::node_link::{Answer, Backend, Question, SpillPart, ToLeader, ViewChange};
use crate::coordinator::scheduler_messages::ToScheduler;
use crate::coordinator::version_lease::VersionLease;
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
    way: Mutex<Way>,
    news: Mutex<News>,
    view: Arc<View>,
    mailboxes: Arc<Mailboxes>,
    pub(in crate::coordinator) errands: Errands,
    /// How long statements wait for a leader before they are refused.
    patience: Duration,
}

/// What goes over the link, and what is owed if it ends.
struct Way {
    ledger: Ledger,
    /// `None` while there is no leader.
    out: Option<mpsc::Sender<ToLeader>>,
    /// Since when no leader takes what sessions say.
    unled_since: Option<Instant>,
    asked: BTreeMap<u64, oneshot::Sender<Answer>>,
    next_question: u64,
    /// How often a leader was joined.
    joins: u64,
    /// The last time before a reading of sequences that the leader has told.
    reading: Reading,
}

impl Way {
    /// Whether the message is on its way. A link that is full ends: its other end notices that, and so does the task that hears it.
    fn send(&mut self, message: ToLeader) -> bool {
        let Some(out) = &self.out else { return false };
        let sent = out.try_send(message);
        if let Err(error) = &sent {
            tracing::error!(%error, "the link to the leader ends");
            self.out = None;
        }
        sent.is_ok()
    }
}

impl RemoteCore {
    /// The core of a leader that is not known yet.
    pub(in crate::coordinator) fn new(
        view: Arc<View>,
        mailboxes: Arc<Mailboxes>,
        news: News,
        errands: Errands,
        patience: Duration,
    ) -> Self {
        let (ledger, asked) = (Ledger::new(Rules::default()), BTreeMap::new());
        let (unled_since, reading) = (Some(Instant::now()), Reading::default());
        let way = Way { ledger, out: None, unled_since, asked, next_question: 0, joins: 0, reading };
        Self { way: Mutex::new(way), news: Mutex::new(news), view, mailboxes, errands, patience }
    }

    /// Hands one event to the leader, now or when there is one.
    pub(super) fn tell(&self, event: Event) {
        let mut way = self.way();
        if event.session().is_none() {
            way.send(ToLeader::Reported(Box::new(event)));
        } else if let Some(said) = way.ledger.say(event) {
            way.send(ToLeader::Said(said));
        }
    }

    /// Asks the leader. `None` if there is none to answer.
    pub(super) async fn question(&self, question: Question) -> Option<Answer> {
        let (sender, answer) = oneshot::channel();
        self.ask(sender, |number| ToLeader::Ask { number, question });
        answer.await.ok()
    }

    /// Has the leader keep rows of a transaction.
    pub(super) async fn spill(&self, identity: Identity, part: SpillPart) -> io::Result<()> {
        let (sender, answer) = oneshot::channel();
        self.ask(sender, |number| ToLeader::Spill { number, identity, part });
        match answer.await {
            Ok(Answer::Spilled(None)) => Ok(()),
            Ok(Answer::Spilled(Some(problem))) => Err(problem.error()),
            // The transaction ends with the leader.
            Ok(_) | Err(_) => Err(io::Error::new(io::ErrorKind::ConnectionReset, "no node leads at present")),
        }
    }

    fn ask(&self, sender: oneshot::Sender<Answer>, message: impl FnOnce(u64) -> ToLeader) {
        let mut way = self.way();
        let number = way.next_question;
        way.next_question += 1;
        if way.send(message(number)) {
            way.asked.insert(number, sender);
        }
    }

    pub(super) fn is_joined(&self) -> bool {
        self.way().ledger.is_joined()
    }

    pub(super) fn joins(&self) -> u64 {
        self.way().joins
    }

    /// Whether there has been no leader for as long as the operator allows.
    pub(super) fn is_leaderless(&self) -> bool {
        self.way().unled_since.is_some_and(|since| since.elapsed() >= self.patience)
    }

    pub(super) fn sequence_reading(&self) -> Reading {
        self.way().reading
    }

    pub(super) fn note_reading(&self, reading: Reading) {
        let mut way = self.way();
        way.reading = way.reading.max(reading);
    }

    /// A session says something to the scheduler.
    pub(super) fn tell_scheduler(&self, message: ToScheduler) {
        self.way().send(ToLeader::Scheduler(Box::new(message)));
    }

    /// A session waits for long, so the servers are to be asked for their lock waits.
    pub(in crate::coordinator) fn search_deadlocks(&self) {
        self.way().send(ToLeader::SearchDeadlocks);
    }

    /// Asks for a version lease.
    pub(in crate::coordinator) fn ask_for_lease(&self) {
        if let Some(sent) = self.view.version_lease.as_ref().and_then(VersionLease::request) {
            self.way().send(ToLeader::Lease { sent });
        }
    }

    /// The node stops, so no lease of it is to be waited for.
    pub(in crate::coordinator) fn end_lease(&self) {
        if let Some(lease) = &self.view.version_lease {
            lease.close();
            self.way().send(ToLeader::LeaseEnded);
        }
    }

    /// The leader has granted what was asked at this time.
    pub(in crate::coordinator) fn granted(&self, sent: Time, granted: Granted, last_ddl: Version) {
        if let Some(lease) = &self.view.version_lease {
            lease.granted(sent, granted, last_ddl);
            self.way().send(ToLeader::Noted { upto: granted.noted });
        }
    }

    /// The leader has assigned a version. From now on no read is placed here without it, which the leader waits for.
    pub(in crate::coordinator) fn assigned(&self, version: Version, may_change_schema: bool) {
        if let Some(lease) = &self.view.version_lease {
            lease.note(version, may_change_schema);
            self.way().send(ToLeader::Noted { upto: version });
        }
    }

    /// Tells the leader what sessions have placed by themselves, if that differs from what it was told last. Returns it.
    pub(in crate::coordinator) fn tell_outside(&self, told: &[Outside]) -> Vec<Outside> {
        let placed = self.view.current_replicas.outside();
        if placed != told {
            self.way().send(ToLeader::Outside(placed.clone()));
        }
        placed
    }

    /// A replica takes no reads until the leader says otherwise.
    pub(in crate::coordinator) fn withdraw(&self, replica: ReplicaId) {
        self.view.current_replicas.withdraw(replica);
    }

    /// What the replicas offer to reads.
    pub(in crate::coordinator) fn take_offers(&self, offers: &[Option<Offer>]) {
        self.view.current_replicas.take(offers);
    }

    /// Answers the leader's question where sessions are. What they have placed by themselves is told before that.
    pub(in crate::coordinator) fn tell_backends(&self, round: u64, backends: Vec<Backend>) {
        let placed = self.view.current_replicas.outside();
        let mut way = self.way();
        way.send(ToLeader::Outside(placed));
        way.send(ToLeader::Backends { round, backends });
    }

    /// Tells a new leader at which backends sessions of this node have left state.
    pub(in crate::coordinator) fn tell_held(&self, backends: Vec<(ReplicaId, i32)>) {
        self.way().send(ToLeader::Held(backends));
    }

    /// A refresh overtakes the open transaction of a session of this node.
    pub(super) fn overtaken(&self, replica: ReplicaId, session: SessionId) {
        self.way().send(ToLeader::Overtaken { replica, session });
    }

    /// The session has ended.
    pub(in crate::coordinator) fn close(&self, session: SessionId) {
        let mut way = self.way();
        if let Some(said) = way.ledger.close(session) {
            way.send(ToLeader::Said(said));
        }
    }

    /// What is known of the cluster.
    pub(super) fn news(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A leader hears by this queue what sessions say, and first what they have said to the one before.
    pub(in crate::coordinator) fn join(&self, out: mpsc::Sender<ToLeader>) {
        let mut way = self.way();
        (way.out, way.unled_since, way.reading) = (Some(out), None, Reading::default());
        way.joins += 1;
        for said in way.ledger.joined() {
            way.send(ToLeader::Said(said));
        }
    }

    /// The link has ended: no answer comes any more, and sessions get what they are owed for it.
    pub(in crate::coordinator) fn lose_link(&self) {
        if let Some(lease) = &self.view.version_lease {
            lease.end();
        }
        self.view.current_replicas.withdraw_all();
        self.view.current_replicas.count_anew();
        // What the next leader can take, it says itself.
        self.news().intake = Intake { has_room: true, refusal: None };
        let mut way = self.way();
        way.out = None;
        way.unled_since.get_or_insert_with(Instant::now);
        way.asked.clear();
        for effect in way.ledger.lost() {
            self.deliver(effect);
        }
    }

    /// An effect has arrived.
    pub(in crate::coordinator) fn hear(&self, heard: Heard) {
        if let Effect::Execute { replica, incarnation, applied, .. } = heard.effect
            && !self.view.is_partial()
        {
            self.view.current_replicas.learn(replica, incarnation, applied);
        }
        let mut way = self.way();
        if let Some(effect) = way.ledger.hear(heard) {
            self.deliver(effect);
        }
    }

    fn deliver(&self, effect: Effect) {
        if let Some(session) = effect.session() {
            self.mailboxes.deliver(session, effect);
        }
    }

    /// An answer has arrived.
    pub(in crate::coordinator) fn answered(&self, number: u64, answer: Answer) {
        if let Some(asked) = self.way().asked.remove(&number) {
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
                if is_partial {
                    // What a replica has of the log says no longer which tables it has.
                    self.view.current_replicas.withdraw_all();
                }
                self.news().placement = placement.map(|placement| *placement);
                self.view.show_placement(is_partial, edition);
            }
            ViewChange::Replicas(replicas) => self.news().replicas = replicas,
            ViewChange::Intake(intake) => self.news().intake = intake,
        }
    }

    fn way(&self) -> MutexGuard<'_, Way> {
        self.way.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use cluster::event::{Home, Level, Reads};
    use cluster::ids::{Incarnation, ReplicaId, Version};
    use cluster::nodes::Progress;
    use cluster::nodes::ledger::Said;
    use cluster::placement::Touches;

    use super::*;
    use crate::coordinator::mailbox::Note;
    use crate::coordinator::mailboxes::OWN_CREW;

    fn remote() -> (RemoteCore, Arc<Mailboxes>, mpsc::Receiver<ToLeader>) {
        let (out, sent) = mpsc::channel(8);
        let mailboxes = Arc::new(Mailboxes::of(OWN_CREW));
        let view = Arc::new(View::new(ReplicaId(0), Version::ZERO));
        let intake = Intake { has_room: true, refusal: None };
        let news = News { replicas: Vec::new(), placement: None, intake };
        let core = RemoteCore::new(view, Arc::clone(&mailboxes), news, Errands::new().0, Duration::ZERO);
        core.join(out);
        (core, mailboxes, sent)
    }

    fn read(session: SessionId) -> Event {
        let (reads, touches, catalogue) = (Reads::All, Touches::Anything, Version::ZERO);
        Event::Read { session, reads, touches, at: None, cost_us: 1, near: None, catalogue, kind: None }
    }

    fn execute(session: SessionId, progress: Progress) -> Heard {
        let (replica, incarnation) = (ReplicaId(0), Incarnation(1));
        let effect =
            Effect::Execute { session, replica, incarnation, identity: None, applied: Version::ZERO };
        Heard { progress, effect }
    }

    /// The progress with the last event that was sent.
    fn last_progress(sent: &mut mpsc::Receiver<ToLeader>) -> Option<Progress> {
        let mut last = None;
        while let Ok(message) = sent.try_recv() {
            if let ToLeader::Said(Said::Event { progress, .. }) = message {
                last = Some(progress);
            }
        }
        last
    }

    #[test]
    fn no_effect_of_what_a_session_has_ended_reaches_it() {
        let (core, mailboxes, mut sent) = remote();
        let (session, mailbox) = mailboxes.open(Arc::default());
        core.tell(read(session));
        let first = last_progress(&mut sent).expect("it was sent");
        core.hear(execute(session, first));
        assert!(mailbox.try_next().is_some(), "it is the answer");
        core.tell(Event::End { session });
        core.tell(read(session));
        core.hear(execute(session, first));
        assert!(mailbox.try_next().is_none(), "it was under way when the session went on");
        let second = last_progress(&mut sent).expect("it was sent");
        core.hear(execute(session, second));
        assert!(mailbox.try_next().is_some());
    }

    #[test]
    fn a_question_waits_for_the_next_leader_and_an_open_transaction_ends() {
        let (core, mailboxes, sent) = remote();
        let ((reader, read_answer), (writer, aborted)) =
            (mailboxes.open(Arc::default()), mailboxes.open(Arc::default()));
        core.tell(begin(writer));
        core.hear(execute(writer, Progress::default()));
        assert!(aborted.try_next().is_some());
        core.lose_link();
        drop(sent);
        assert!(matches!(aborted.try_next(), Some(Note::Effect(Effect::Abort { .. }))));
        core.tell(read(reader));
        assert!(read_answer.try_next().is_none());
        let (out, mut sent) = mpsc::channel(8);
        core.join(out);
        let progress = last_progress(&mut sent).expect("the question is asked again");
        core.hear(execute(reader, progress));
        assert!(read_answer.try_next().is_some());
    }

    fn begin(session: SessionId) -> Event {
        use cluster::claims::Claims;
        use cluster::event::{Foreseen, Needs};
        use cluster::ids::Nonce;
        let (reads, touches, catalogue) = (Reads::All, Touches::Anything, Version::ZERO);
        let writes = Claims::default();
        let needs = Needs { reads, touches, writes, cost_us: 1, near: None, catalogue, kind: None };
        let (level, home, foreseen) = (Level::ReadCommitted, Home::Any, Foreseen::default());
        Event::Begin { session, level, nonce: Nonce(1), home, needs, foreseen }
    }

    #[test]
    fn without_a_leader_for_long_nothing_is_taken() {
        let (core, _, _sent) = remote();
        assert!(!core.is_leaderless(), "it has joined one");
        core.news().intake = Intake { has_room: false, refusal: None };
        core.lose_link();
        assert!(core.is_leaderless());
        assert!(
            core.news().intake.has_room,
            "what the former leader had no room for is not known of the next one"
        );
        core.join(mpsc::channel(1).0);
        assert!(!core.is_leaderless());
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
        assert!(core.question(Question::EffectsSoFar).await.is_none(), "there is no link");
    }
}
