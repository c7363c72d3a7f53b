//! Blame: what keeps columns in one service, and what would part them.
//!
//! Two columns of one service are joined by a chain of reasons ([`crate::Plan::why`]). A person can change few of these: declare a
//! transaction an atomic set, because its reads need no isolation, or rewrite a read by hand. So for each of these the plan
//! is made again without it, and if that has more services, that is a line of the report: "doBuyConfirm holds
//! `customer.c_discount` and `orders.o_id` together; as an atomic set: 4 services instead of 2".

use std::collections::BTreeSet;
use std::fmt;

use crate::application::{Application, UnitKind};
use crate::clusters::{Graph, Joint};
use crate::column::Column;
use crate::settle::settled;

/// Something that a person can change, and that keeps services from being smaller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Blame {
    /// What is to blame.
    pub culprit: Culprit,
    /// How many services there are.
    pub services: usize,
    /// How many there would be without it.
    pub without: usize,
    /// The shortest chain of reasons between two columns that would part.
    pub chain: Vec<Joint>,
    /// The services of the two columns, as they are named now.
    pub service: String,
}

/// What is to blame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Culprit {
    /// A transaction; its reads need isolation, which those of an atomic set do not.
    Transaction(String),
    /// Several transactions, none of which alone is to blame.
    Transactions,
    /// A read that can neither be rewritten nor be helped by copies.
    Read(String),
}

impl fmt::Display for Blame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { services, without, service, .. } = self;
        match &self.culprit {
            Culprit::Transaction(name) => write!(
                f,
                "transaction {name} keeps {service} whole: as an atomic set, {without} services instead of {services}"
            )?,
            Culprit::Transactions => write!(
                f,
                "transactions keep {service} whole together: all as atomic sets, {without} services instead of {services}"
            )?,
            Culprit::Read(name) => write!(
                f,
                "read {name} keeps {service} whole: without it, {without} services instead of {services}"
            )?,
        }
        self.chain.iter().try_for_each(|joint| write!(f, "\n  {joint}"))
    }
}

impl fmt::Display for Joint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} and {}: {}", self.from, self.to, self.reason)
    }
}

/// What a person could change to get more services.
pub(crate) fn blames(
    application: &Application,
    graph: &Graph,
    services: &[BTreeSet<Column>],
    names: &[String],
) -> Vec<Blame> {
    let mut blames = Vec::new();
    let mut judge = |culprit: Culprit, changed: &Application| {
        let (_, reads) = settled(changed);
        let others = &reads.layout.services;
        if others.len() <= services.len() {
            return;
        }
        // That all together part what one parts already is no news.
        if culprit == Culprit::Transactions
            && blames.iter().any(|blame: &Blame| blame.without >= others.len())
        {
            return;
        }
        if let Some((at, [one, other])) = parted(services, others) {
            blames.push(Blame {
                culprit,
                services: services.len(),
                without: others.len(),
                chain: graph.chain(&one, &other).unwrap_or_default(),
                service: names[at].clone(),
            });
        }
    };
    let mut all = application.clone();
    for name in application.units.keys() {
        let atomic = |changed: &mut Application| {
            let unit = changed.units.get_mut(name).filter(|unit| unit.kind == UnitKind::Transaction);
            unit.map(|unit| unit.kind = UnitKind::AtomicSet).is_some()
        };
        let mut changed = application.clone();
        if atomic(&mut all) && atomic(&mut changed) {
            judge(Culprit::Transaction(name.clone()), &changed);
        }
    }
    judge(Culprit::Transactions, &all);
    let merged: BTreeSet<&String> = graph.merged().collect();
    for name in merged {
        let mut changed = application.clone();
        changed.queries.remove(name);
        for unit in changed.units.values_mut() {
            unit.queries.remove(name);
        }
        judge(Culprit::Read(name.clone()), &changed);
    }
    blames
}

/// The first service whose columns are in several of the others, with two of them that part.
fn parted(services: &[BTreeSet<Column>], others: &[BTreeSet<Column>]) -> Option<(usize, [Column; 2])> {
    services.iter().enumerate().find_map(|(at, service)| {
        let first = service.first()?;
        let stays = others.iter().find(|other| other.contains(first))?;
        let leaves = service.iter().find(|column| !stays.contains(column))?;
        Some((at, [first.clone(), leaves.clone()]))
    })
}
