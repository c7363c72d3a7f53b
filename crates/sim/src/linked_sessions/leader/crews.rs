//! What the leader takes from its crews, and when.

use std::collections::VecDeque;

use cluster::ids::{CrewId, SessionId};
use cluster::protocols::shipping::Request;

use super::{AtLeader, Delivery, Leading, Site, UpdateStep, replica};
use crate::linked_sessions::Rule;
use crate::linked_sessions::ids::{Identity, of_crew};
use crate::linked_sessions::messages::{Participation, ToLeader, ToNode};

impl Leading {
    /// The sessions of a node join.
    pub(in crate::linked_sessions) fn join(&mut self, crew: CrewId) {
        self.heard.insert(crew, VecDeque::new());
        let shown = |(index, at): (usize, &AtLeader)| Participation {
            run: at.run,
            is_up: self.scheduler.is_up(replica(index)),
        };
        let replicas = self.replicas.iter().enumerate().map(shown).collect();
        self.out.mail.push((crew, ToNode::Welcome(replicas)));
    }

    /// Whether a crew has not left.
    pub(in crate::linked_sessions) fn has_crew(&self, crew: CrewId) -> bool {
        self.heard.contains_key(&crew)
    }

    /// A crew says something. It is taken when what came before it was.
    pub(in crate::linked_sessions) fn hear(&mut self, crew: CrewId, message: ToLeader) {
        if let Some(queue) = self.heard.get_mut(&crew) {
            queue.push_back(message);
        }
    }

    /// Takes what crews have said, as far as it can be taken now.
    pub(in crate::linked_sessions) fn take_all(&mut self, has_lease: bool) {
        let crews: Vec<CrewId> = self.heard.keys().copied().collect();
        for crew in crews {
            while let Some(message) = self.heard.get_mut(&crew).and_then(VecDeque::pop_front) {
                let waits = match &message {
                    ToLeader::Request(..) => !has_lease,
                    ToLeader::WantsOutcome(_, identity) => {
                        self.switches.has(Rule::OutcomesWait) && self.outcome(*identity).is_none()
                    }
                    _ => false,
                };
                if waits {
                    self.heard.entry(crew).or_default().push_front(message);
                    break;
                }
                self.take(crew, message);
            }
        }
    }

    /// Whether the log has a transaction; `None` while that is open.
    fn outcome(&self, identity: Identity) -> Option<bool> {
        if identity.term() != self.term {
            return Some(self.records.iter().any(|record| record.identity == identity));
        }
        let number = identity.number();
        match (self.appended.contains(&number), self.durable.contains(&number)) {
            (_, true) => Some(true),
            (true, false) => None,
            (false, false) => Some(false),
        }
    }

    fn take(&mut self, crew: CrewId, message: ToLeader) {
        let here = |session: SessionId| SessionId::of(crew, session.counter());
        match message {
            ToLeader::Request(session, request) => self.request(here(session), request),
            ToLeader::Closed(session) => {
                self.scheduler.request(here(session), Request::InteractionOver, &mut Vec::new());
                self.sessions.remove(&here(session));
            }
            ToLeader::Finished(run, transaction) => {
                let transaction = of_crew(transaction, crew);
                if self.replicas[run.replica].lanes.get(&transaction) == Some(&Site::Crew(crew)) {
                    self.work_finished(run, transaction);
                }
            }
            ToLeader::GiveUp(run) => self.give_up(run),
            ToLeader::WantsOutcome(session, identity) => {
                let is_committed = self.outcome(identity).unwrap_or(false);
                self.out.mail.push((crew, ToNode::Outcome(session, is_committed)));
            }
            ToLeader::Gone => self.leave(crew),
        }
    }

    fn request(&mut self, session: SessionId, request: Request) {
        let slot = self.sessions.entry(session).or_default();
        slot.update = None;
        let request = match request {
            Request::SingleUpdate(locks, operation) => {
                slot.update = Some(UpdateStep::Begins(operation));
                Request::Begin(locks)
            }
            other => other,
        };
        let mut out = Vec::new();
        if let Some(number) = self.pass(session, request, &mut out) {
            let begun = ToNode::Begun(SessionId(session.counter()), self.identity(number));
            self.out.mail.push((session.crew(), begun));
        }
        self.deliver(out.into_iter().map(Delivery::Scheduler).collect());
    }

    /// The node of a crew is lost, or has lost its link.
    fn leave(&mut self, crew: CrewId) {
        self.heard.remove(&crew);
        let mut out = Vec::new();
        if self.switches.has(Rule::LostCrewsEnd) {
            self.scheduler.crew_lost(crew, &mut out);
        }
        let are_all = self.switches.has(Rule::EndedSessionsCount);
        let sessions = &self.sessions;
        for shipped in self.active.values_mut().chain(self.past.values_mut()) {
            if shipped.site == Site::Crew(crew) && (are_all || sessions.contains_key(&shipped.session)) {
                shipped.site = Site::Orphaned(crew);
            }
        }
        self.sessions.retain(|session, _| session.crew() != crew);
        let mut deliveries: VecDeque<Delivery> = out.into_iter().map(Delivery::Scheduler).collect();
        for (index, at) in self.replicas.iter_mut().enumerate() {
            let is_theirs = |site: &Site| *site == Site::Crew(crew);
            let lost = at.lanes.iter().filter(|(name, site)| is_theirs(site) && at.proxy.works_for(**name));
            deliveries.extend(lost.map(|(name, _)| Delivery::LostWork(index, *name)));
            at.lanes.retain(|_, site| !is_theirs(site));
        }
        self.deliver(deliveries);
    }
}
