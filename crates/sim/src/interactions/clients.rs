//! A client: its web interactions go to one scheduler, or one node, each.

use std::collections::VecDeque;

use cluster::ids::SessionId;
use cluster::protocols::shipping::{Answer, Ending, Kind, Request, StatementId};

use super::judge::Told;
use super::programs::{Program, Seen, Texts, locks, operation};
use crate::dice::Dice;

/// The requests of one client.
#[derive(Debug)]
pub(crate) struct Client {
    /// Names this client at its present server; another one for each interaction.
    pub(crate) session: SessionId,
    /// The scheduler or node of the present interaction.
    pub(crate) server: usize,
    /// Which start of that server, where servers return.
    pub(crate) life: u64,
    interactions: usize,
    requests: VecDeque<Request>,
    /// The request that is outstanding.
    asked: Option<Request>,
    asked_us: u64,
    /// The transaction under way, the last of `told`.
    is_open: bool,
    pub(crate) told: Vec<Told>,
}

impl Client {
    pub(crate) fn new(interactions: usize) -> Self {
        Self {
            session: SessionId(0),
            server: 0,
            life: 0,
            interactions,
            requests: VecDeque::new(),
            asked: None,
            asked_us: 0,
            is_open: false,
            told: Vec::new(),
        }
    }

    /// Whether it has done all its interactions.
    pub(crate) fn is_over(&self) -> bool {
        self.interactions == 0 && self.requests.is_empty() && self.asked.is_none()
    }

    /// Whether it waits for an answer.
    pub(crate) fn is_waiting(&self) -> bool {
        self.asked.is_some()
    }

    /// Begins the next interaction, if there is one.
    pub(crate) fn begin(
        &mut self,
        session: SessionId,
        server: usize,
        dice: &mut Dice,
        texts: &mut Texts,
    ) -> bool {
        let Some(left) = self.interactions.checked_sub(1) else { return false };
        (self.interactions, self.session, self.server) = (left, session, server);
        for _ in 0..dice.between(1, 3) {
            self.add(Program::draw(dice), dice, texts);
        }
        self.requests.push_back(Request::InteractionOver);
        true
    }

    fn add(&mut self, program: Program, dice: &mut Dice, texts: &mut Texts) {
        let mut named = |kind, tables: Vec<usize>| {
            let statement = StatementId(texts.len() as u64 + 1);
            texts.insert(statement, tables);
            operation(kind, statement, dice.between(10, 500) as u32)
        };
        match program {
            Program::SingleRead(tables) => {
                let read = named(Kind::Read, tables.clone());
                self.requests.push_back(Request::SingleRead(locks(&tables, &[]), read));
            }
            Program::SingleUpdate(table) => {
                let write = named(Kind::Write, vec![table]);
                self.requests.push_back(Request::SingleUpdate(locks(&[], &[table]), write));
            }
            Program::Transaction { reads, writes, operations, ending } => {
                self.requests.push_back(Request::Begin(locks(&reads, &writes)));
                for (kind, table) in operations {
                    self.requests.push_back(Request::Execute(named(kind, vec![table])));
                }
                self.requests.push_back(Request::End(ending));
            }
        }
    }

    /// The next request of the interaction; `None` when it is over.
    pub(crate) fn next_request(&mut self, now_us: u64) -> Option<Request> {
        let request = self.requests.pop_front()?;
        if !self.is_open && request != Request::InteractionOver {
            self.told.push(Told { asked_us: now_us, ..Told::default() });
            self.is_open = true;
        }
        let told = self.told.last_mut();
        match (&request, told) {
            (Request::InteractionOver, _) => return Some(request),
            (Request::SingleUpdate(_, operation) | Request::Execute(operation), Some(told))
                if operation.kind == Kind::Write =>
            {
                told.writes.push(operation.statement);
            }
            _ => {}
        }
        (self.asked, self.asked_us) = (Some(request.clone()), now_us);
        Some(request)
    }

    /// An answer has come, with what a read has seen. Returns what should not be.
    pub(crate) fn answered(
        &mut self,
        answer: Answer,
        now_us: u64,
        seen: impl FnOnce(StatementId) -> Option<Seen>,
    ) -> Option<String> {
        let Some(asked) = self.asked.take() else {
            return Some(format!("answered: {answer:?}, but nothing was asked"));
        };
        if answer != Answer::Done {
            return Some(format!("refused: {asked:?} is answered with {answer:?}"));
        }
        let told = self.told.last_mut()?;
        let is_read = |kind: Kind| kind == Kind::Read;
        match asked {
            Request::SingleRead(_, operation) | Request::Execute(operation) if is_read(operation.kind) => {
                told.reads.push((self.asked_us, now_us, seen(operation.statement)?));
                self.is_open = !matches!(asked, Request::SingleRead(..));
            }
            Request::SingleUpdate(..) | Request::End(Ending::Commit) => {
                told.committed_us = Some(now_us);
                self.is_open = false;
            }
            Request::End(Ending::Abort) => {
                told.is_undone = true;
                self.is_open = false;
            }
            _ => {}
        }
        None
    }

    /// What it waits for an answer to.
    pub(crate) fn asked(&self) -> Option<&Request> {
        self.asked.as_ref()
    }

    /// The transaction under way was rolled back. What it would have asked is left out.
    pub(crate) fn undone(&mut self) {
        if let Some(told) = self.told.last_mut() {
            told.is_undone = true;
        }
        self.leave_out();
        self.is_open = false;
    }

    /// A read was lost, and the transaction can only be ended.
    pub(crate) fn lost(&mut self) {
        self.leave_out();
        self.requests.push_front(Request::End(Ending::Abort));
    }

    fn leave_out(&mut self) {
        if !matches!(self.asked.take(), Some(Request::End(_))) {
            while self.requests.pop_front().is_some_and(|request| !matches!(request, Request::End(_))) {}
        }
    }

    /// Its server has failed. What became of the transaction under way is unknown; without a commit it is undone.
    pub(crate) fn cut(&mut self) {
        let may_commit = matches!(self.asked, Some(Request::SingleUpdate(..) | Request::End(Ending::Commit)));
        if let Some(told) = self.told.last_mut().filter(|_| self.is_open && !may_commit) {
            told.is_undone = true;
        }
        self.requests.clear();
        (self.asked, self.is_open) = (None, false);
    }
}
