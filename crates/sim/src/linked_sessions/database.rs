//! The server of a replica: backends, tables that are lists of committed writes, and the identities of what was committed.

use std::collections::{BTreeMap, BTreeSet};

use cluster::ids::CrewId;
use cluster::protocols::shipping::{Kind, StatementId};

use super::ids::{Identity, Process, statement_of};
use super::messages::{Command, Connection, Reply};
use crate::interactions::programs::{Rows, Seen, TABLES, Texts};

#[derive(Debug)]
struct Backend {
    owner: Process,
    crew: Option<CrewId>,
    writes: Vec<(usize, StatementId)>,
}

/// A server.
#[derive(Debug)]
pub(super) struct Database {
    pub(super) is_up: bool,
    /// The term that vouches for connections. A crash loses it.
    voucher: Option<u64>,
    lost_crews: BTreeSet<CrewId>,
    backends: BTreeMap<u64, Backend>,
    ended: BTreeSet<u64>,
    pub(super) tables: [Rows; TABLES],
    /// In the order of their commits.
    applied: Vec<Identity>,
    /// Identities that were committed twice.
    pub(super) refused: Vec<Identity>,
}

impl Default for Database {
    fn default() -> Self {
        Self {
            is_up: true,
            voucher: None,
            lost_crews: BTreeSet::new(),
            backends: BTreeMap::new(),
            ended: BTreeSet::new(),
            tables: Default::default(),
            applied: Vec::new(),
            refused: Vec::new(),
        }
    }
}

/// The rules that a server's side can lack.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerRules {
    /// A fence ends backends, and shuts former terms out.
    pub(super) fences: bool,
    /// The fence against a lost crew ends its backends.
    pub(super) fences_crews: bool,
    /// Orphans make sure that the server has not crashed since its fence.
    pub(super) vouches_for_orphans: bool,
}

impl Database {
    /// Does what is asked, if the connection is still there.
    pub(super) fn perform(
        &mut self,
        at: Connection,
        command: &Command,
        texts: &Texts,
        rules: ServerRules,
    ) -> Reply {
        if !self.lets_in(at, rules) {
            return Reply::Failed;
        }
        self.backends.entry(at.backend).or_insert_with(|| Backend {
            owner: at.owner,
            crew: at.crew,
            writes: Vec::new(),
        });
        match command {
            Command::Run(operation) if operation.kind == Kind::Read => {
                Reply::Seen(self.read(at.backend, &texts[&statement_of(operation.statement)]))
            }
            Command::Run(operation) => {
                self.write(at.backend, statement_of(operation.statement), texts);
                Reply::Done
            }
            Command::Commit(identity) => self.commit(at.backend, *identity),
            Command::RollBack => {
                self.backends.entry(at.backend).and_modify(|backend| backend.writes.clear());
                Reply::Done
            }
            Command::Fence => {
                if rules.fences {
                    self.end_others(at.backend, |_| true);
                    self.lost_crews.clear();
                }
                self.voucher = Some(at.term);
                Reply::Done
            }
            Command::FenceCrew(_) if rules.vouches_for_orphans && self.voucher != Some(at.term) => {
                Reply::Failed
            }
            Command::FenceCrew(crew) => {
                if rules.fences_crews {
                    self.lost_crews.insert(*crew);
                    self.end_others(at.backend, |backend| backend.crew == Some(*crew));
                }
                Reply::Done
            }
            Command::Ask(identity) => Reply::Has(self.applied.contains(identity)),
            Command::AskAll => Reply::HasAll(self.applied.iter().copied().collect()),
            Command::Redo(record) => {
                for statement in record.statements() {
                    self.write(at.backend, statement, texts);
                }
                self.commit(at.backend, Some(record.identity))
            }
        }
    }

    fn lets_in(&self, at: Connection, rules: ServerRules) -> bool {
        if !self.is_up || self.ended.contains(&at.backend) {
            return false;
        }
        let is_open = self.backends.contains_key(&at.backend);
        let is_vouched = at.crew.is_none_or(|crew| {
            (self.voucher == Some(at.term) || !rules.fences) && !self.lost_crews.contains(&crew)
        });
        is_open || is_vouched
    }

    /// Ends a backend, which rolls back.
    pub(super) fn end(&mut self, backend: u64) {
        self.backends.remove(&backend);
        self.ended.insert(backend);
    }

    fn end_others(&mut self, own: u64, which: impl Fn(&Backend) -> bool) {
        let others = self.backends.iter().filter(|(id, backend)| **id != own && which(backend));
        let others: Vec<u64> = others.map(|(id, _)| *id).collect();
        for backend in others {
            self.end(backend);
        }
    }

    /// Whether a backend is there.
    pub(super) fn has(&self, backend: u64) -> bool {
        self.backends.contains_key(&backend)
    }

    /// The backends of a process: all, or those of Onecopy's own only.
    pub(super) fn of(&self, owner: Process, only_own: bool) -> Vec<u64> {
        let theirs =
            |(_, backend): &(&u64, &Backend)| backend.owner == owner && (!only_own || backend.crew.is_none());
        self.backends.iter().filter(theirs).map(|(id, _)| *id).collect()
    }

    /// The server crashes. The last commits may be lost, since they do not wait for the disk.
    pub(super) fn crash(&mut self, lost: usize) {
        self.is_up = false;
        let all: Vec<u64> = self.backends.keys().copied().collect();
        for backend in all {
            self.end(backend);
        }
        (self.voucher, self.lost_crews) = (None, BTreeSet::new());
        for identity in self.applied.split_off(self.applied.len().saturating_sub(lost)) {
            for rows in &mut self.tables {
                rows.retain(|(number, _)| *number != identity.as_number());
            }
        }
    }

    /// The number of transactions that are open.
    pub(super) fn open(&self) -> usize {
        self.backends.values().filter(|backend| !backend.writes.is_empty()).count()
    }

    fn read(&self, backend: u64, tables: &[usize]) -> Seen {
        let own = self.backends.get(&backend).map_or(&[][..], |backend| &backend.writes);
        let of = |table: &usize| {
            let committed = self.tables[*table].iter().map(|(_, statement)| *statement);
            let own = own.iter().filter(|(at, _)| at == table).map(|(_, statement)| *statement);
            (*table, committed.chain(own).collect())
        };
        tables.iter().map(of).collect()
    }

    fn write(&mut self, backend: u64, statement: StatementId, texts: &Texts) {
        if let Some(backend) = self.backends.get_mut(&backend) {
            backend.writes.extend(texts[&statement].iter().map(|table| (*table, statement)));
        }
    }

    fn commit(&mut self, backend: u64, identity: Option<Identity>) -> Reply {
        let Some(open) = self.backends.get_mut(&backend) else { return Reply::Failed };
        let writes = std::mem::take(&mut open.writes);
        let Some(identity) = identity else { return Reply::Done };
        if self.applied.contains(&identity) {
            self.refused.push(identity);
            self.end(backend);
            return Reply::Failed;
        }
        self.applied.push(identity);
        for (table, statement) in writes {
            self.tables[table].push((identity.as_number(), statement));
        }
        Reply::Done
    }
}
