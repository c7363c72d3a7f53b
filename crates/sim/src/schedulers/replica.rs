//! A replica: a proxy, and a database whose tables are lists of the writes that were committed.

use std::collections::BTreeMap;

use cluster::protocols::shipping::{
    Ending, Kind, Proxy, ProxyState, RoutedOutput, SchedulerId, SharedProxy, StatementId, ToProxy,
    Transaction, Work,
};

use crate::interactions::programs::{Rows, Seen, TABLES, Texts};

/// A copy of a database, with what it has.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoint {
    pub(super) state: ProxyState,
    tables: [Rows; TABLES],
}

#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) proxy: SharedProxy,
    pub(super) tables: [Rows; TABLES],
    /// Writes of open transactions.
    open: BTreeMap<Transaction, Vec<(usize, StatementId)>>,
    /// The work of each transaction.
    running: BTreeMap<Transaction, Work>,
    pub(super) checkpoint: Checkpoint,
    pub(super) is_lost: bool,
    /// Grows when the database is put back.
    pub(super) incarnation: u64,
}

impl Replica {
    pub(super) fn handle(&mut self, from: SchedulerId, message: ToProxy) -> Vec<RoutedOutput> {
        let mut out = Vec::new();
        self.proxy.handle(from, message, &mut out);
        self.begin_work(&out);
        out
    }

    fn begin_work(&mut self, out: &[RoutedOutput]) {
        for output in out {
            if let RoutedOutput::Database(transaction, work) = output {
                let before = self.running.insert(*transaction, *work);
                assert!(before.is_none(), "one thing at a time for each transaction");
            }
        }
    }

    /// The database has done the work of a transaction. Returns what a read has seen.
    pub(super) fn finish(
        &mut self,
        transaction: Transaction,
        texts: &Texts,
    ) -> (Option<(StatementId, Seen)>, Vec<RoutedOutput>) {
        let mut seen = None;
        match self.running.remove(&transaction) {
            Some(Work::Run(operation) | Work::RunAlone(operation)) if operation.kind == Kind::Read => {
                seen = Some((operation.statement, self.read(transaction, &texts[&operation.statement])));
            }
            Some(Work::Run(operation)) => self.write(transaction, operation.statement, texts),
            Some(Work::RunAlone(operation)) => {
                self.write(transaction, operation.statement, texts);
                self.commit(transaction);
            }
            Some(Work::End(Ending::Commit)) => self.commit(transaction),
            Some(Work::End(Ending::Abort) | Work::Restart) => {
                self.open.remove(&transaction);
            }
            None => {}
        }
        let mut out = Vec::new();
        self.proxy.finished(transaction, &mut out);
        self.begin_work(&out);
        (seen, out)
    }

    fn read(&self, transaction: Transaction, tables: &[usize]) -> Seen {
        let own = self.open.get(&transaction).map_or(&[][..], Vec::as_slice);
        let of = |table: &usize| {
            let committed = self.tables[*table].iter().map(|(_, statement)| *statement);
            let own = own.iter().filter(|(at, _)| at == table).map(|(_, statement)| *statement);
            (*table, committed.chain(own).collect())
        };
        tables.iter().map(of).collect()
    }

    fn write(&mut self, transaction: Transaction, statement: StatementId, texts: &Texts) {
        let open = self.open.entry(transaction).or_default();
        open.extend(texts[&statement].iter().map(|table| (*table, statement)));
    }

    fn commit(&mut self, transaction: Transaction) {
        let Transaction::Numbered(number) = transaction else { return };
        for (table, statement) in self.open.remove(&transaction).unwrap_or_default() {
            self.tables[table].push((number, statement));
        }
    }

    /// "It takes a snapshot of the database and writes the new state" (section 5.3.3).
    pub(super) fn make_checkpoint(&mut self) {
        self.checkpoint =
            Checkpoint { state: ProxyState::of(self.proxy.proxy()), tables: self.tables.clone() };
    }

    /// A proxy that does not know which later writes its database has.
    pub(super) fn forget_what_it_has(&mut self) {
        self.proxy = SharedProxy::new(Proxy::new(self.checkpoint.state.over));
    }

    /// "Each database proxy reinstalls the database from its own checkpoint" (section 5.3.3).
    pub(super) fn restore(&mut self) {
        let Checkpoint { state, tables } = self.checkpoint.clone();
        self.proxy = SharedProxy::new(Proxy::restored(state.over, state.committed));
        self.tables = tables;
        self.open.clear();
        self.running.clear();
        self.is_lost = false;
        self.incarnation += 1;
    }
}
