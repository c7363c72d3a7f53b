//! The faults of a plan.

use super::{Event, Happening, Node, Process, World};
use crate::linked_sessions::draw::{Fault, Which};
use crate::linked_sessions::node::Caller;
use crate::trace::Stage;

impl World {
    pub(super) fn fail(&mut self, fault: Fault) {
        self.say(Stage::Fault, || format!("{fault:?}"));
        let is_over = match fault {
            Fault::Kill(which, away_us) => self.kill(which, away_us),
            Fault::Pause(which, away_us) => self.pause(which, away_us),
            Fault::Cut(which, away_us) => {
                let node = self.which(which);
                let is_new = !std::mem::replace(&mut self.nodes[node].is_cut, true);
                self.chair.is_suspect |= self.chair.chosen.is_some_and(|chosen| chosen.node == node);
                if is_new {
                    self.agenda.enter(away_us, Happening::LogIsReached(node));
                }
                !is_new
            }
            Fault::Break(node) => {
                if let Some(link) = self.nodes[node].sessions.link {
                    self.break_link(link.crew);
                }
                true
            }
            Fault::Depose => {
                self.chair.is_suspect = true;
                true
            }
            Fault::Crash { replica, lost, away_us } => {
                let others_are_up =
                    (0..self.databases.len()).all(|other| other == replica || self.databases[other].is_up);
                let crashes = others_are_up && self.databases[replica].is_up;
                if crashes {
                    self.counts.crashed += 1;
                    self.databases[replica].crash(lost);
                    self.agenda.enter(away_us, Happening::ServerReturns(replica));
                }
                !crashes
            }
        };
        self.chair.faults_left -= usize::from(is_over);
    }

    fn which(&self, which: Which) -> usize {
        match which {
            Which::Leader => self.chair.chosen.map_or(0, |chosen| chosen.node),
            Which::Node(node) => node,
        }
    }

    /// Kills a node; `true` if there is none to kill.
    fn kill(&mut self, which: Which, away_us: u64) -> bool {
        let node = self.which(which);
        if !self.nodes[node].is_up {
            return true;
        }
        self.counts.killed += 1;
        let process = self.process(node);
        let is_cut = self.nodes[node].is_cut;
        self.nodes[node] = Node { life: process.life, is_cut, ..Node::default() };
        let its = self.links.iter().filter(|(_, link)| link.leader == process || link.node == process);
        for crew in its.map(|(crew, _)| *crew).collect::<Vec<_>>() {
            self.break_link(crew);
        }
        self.end_backends(process, false);
        for client in 0..self.clients.len() {
            if self.clients[client].server == node {
                let session = self.clients[client].session;
                let after_us = self.notice_us();
                self.agenda.enter(after_us, Happening::Cut(Caller { client, session }));
            }
        }
        self.agenda.enter(away_us, Happening::NodeReturns(node));
        false
    }

    pub(super) fn node_returns(&mut self, node: usize) {
        self.chair.faults_left -= 1;
        let at = &mut self.nodes[node];
        (at.is_up, at.life) = (true, at.life + 1);
        let process = self.process(node);
        // It asks the others who leads.
        let known = self.nodes.iter().filter_map(|node| node.roster).max_by_key(|(_, term)| *term);
        if let Some((leader, term)) = known {
            let after_us = self.message_us();
            self.enter_at(after_us, process, Event::Roster(leader, term));
        }
        self.enter_at(0, process, Event::Tick);
    }

    fn pause(&mut self, which: Which, away_us: u64) -> bool {
        let node = self.which(which);
        if !self.nodes[node].is_up || self.nodes[node].is_asleep {
            return true;
        }
        self.counts.paused += 1;
        let process = self.process(node);
        self.nodes[node].is_asleep = true;
        let its = self.links.iter().filter(|(_, link)| link.leader == process || link.node == process);
        for crew in its.map(|(crew, _)| *crew).collect::<Vec<_>>() {
            let after_us = self.plan.notice_us + self.notice_us();
            self.agenda.enter(after_us, Happening::TimedOut(crew));
        }
        self.agenda.enter(away_us, Happening::Wakes(process));
        false
    }

    pub(super) fn wakes(&mut self, process: Process) {
        self.chair.faults_left -= 1;
        if !self.is_alive(process) {
            return;
        }
        self.say(Stage::Fault, || format!("node {} wakes up", process.node));
        self.nodes[process.node].is_asleep = false;
        for event in std::mem::take(&mut self.nodes[process.node].waiting) {
            self.enter_at(0, process, event);
        }
    }
}
