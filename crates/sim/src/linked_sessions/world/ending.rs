//! The judgement of a run that has ended.

use super::{Client, Verdict, World};
use crate::interactions::judge::{Told, judge};
use crate::interactions::programs::{Rows, TABLES};

impl World {
    pub(super) fn end(mut self) -> Verdict {
        let stuck = self.clients.iter().filter(|client| !client.is_over()).count();
        if stuck > 0 {
            self.findings.push(format!("stuck: {stuck} clients are not served"));
        } else if !self.chair.is_over {
            self.findings.push("stuck: transactions or replicas are not over".to_owned());
        }
        let told: Vec<Told> = self.clients.iter().flat_map(|client| client.told.clone()).collect();
        if self.chair.is_over {
            let tables: Vec<_> = self.databases.iter().map(|database| &database.tables).collect();
            self.findings.extend(judge(&told, &tables));
            let logged = self.logged_tables();
            for (replica, tables) in (1..).zip(tables) {
                if *tables != logged {
                    self.findings.push(format!("log: replica {replica} differs from the log"));
                }
            }
            for (replica, database) in (1..).zip(&self.databases) {
                if database.open() > 0 {
                    self.findings.push(format!("open: a transaction stays open at replica {replica}"));
                }
            }
        }
        self.counts.committed = told.iter().filter(|told| told.committed_us.is_some()).count() as u64;
        self.counts.reads = told.iter().map(|told| told.reads.len() as u64).sum();
        let mut trace = self.trace.to_string();
        for told in told.iter().filter(|_| !trace.is_empty()).collect::<Vec<_>>() {
            trace.push_str(&format!("{told:?}\n"));
        }
        Verdict { findings: self.findings, counts: self.counts, trace }
    }

    /// The tables as the log says.
    fn logged_tables(&self) -> [Rows; TABLES] {
        let mut tables: [Rows; TABLES] = Default::default();
        for record in self.log.in_order() {
            for statement in record.statements() {
                for table in &self.texts[&statement] {
                    tables[*table].push((record.identity.as_number(), statement));
                }
            }
        }
        tables
    }

    /// Whether every client has done all its interactions.
    pub(super) fn clients_are_over(&self) -> bool {
        self.clients.iter().all(Client::is_over)
    }
}
