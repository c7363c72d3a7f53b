//! Beginnings of transactions, and what came after each.
//!
//! A trie over the first few templates of transactions. Each of its nodes stands for a beginning and counts the
//! transactions that had it, and of each template that came later in them: in how many. That a template came ten times
//! in a loop counts once, so loops do not grow the trie. For each argument of a later template the node keeps which
//! arguments of the beginning had the same value every time: the warehouse that all statements of a New-Order name is
//! known from its first one.
//!
//! How sure a guess is, is not computed but measured: each transaction, before it is counted, is compared with what
//! would have been predicted for it.
//!
//! Everything is bounded: depth, followers of a node, nodes, bytes; what has not been met for the longest time goes
//! first. Counts are halved when they grow large, so that what an application did before its last release is forgotten.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::predicted::{Expected, Place, Prediction, Source};
use super::{TemplateId, hash};
use crate::accesses::Arguments;
use crate::statement::Statement;

/// Steps of a transaction beyond this are not looked at.
const MAX_STEPS: usize = 512;

/// Arguments of a statement beyond this are not looked at.
const MAX_ARGUMENTS: usize = 32;

/// Arguments of the beginning that one later argument may be equal to; further ones are not kept.
const MAX_SOURCES: usize = 4;

/// A node's counts are halved at this many transactions.
const SATURATED: u32 = 1024;

/// How much [`Profiles`] may remember.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProfileLimits {
    /// Longest beginning, in statements.
    pub depth: usize,
    /// Different templates that may follow one beginning.
    pub followers: usize,
    /// Beginnings.
    pub nodes: usize,
    /// Bytes, roughly.
    pub bytes: usize,
    /// A template is predicted if it came in this share of the transactions with the same beginning, in thousandths.
    pub least_share: u32,
}

impl Default for ProfileLimits {
    fn default() -> Self {
        Self { depth: 4, followers: 64, nodes: 4096, bytes: 8 << 20, least_share: 20 }
    }
}

/// The arguments of one execution, as hashes: equal ones mean equal values of one type and form.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Digests(Box<[(Place, u64)]>);

impl Digests {
    /// The digests of a statement's arguments that are kept until its transaction ends.
    pub fn of(arguments: &Arguments<'_>) -> Self {
        let parameters = arguments.parameters.iter().zip(0_u16..).filter_map(|(parameter, index)| {
            let value = parameter.value?;
            let form = u64::from(parameter.type_oid) << 1 | u64::from(parameter.binary);
            Some((Place::Parameter(index), hash(value) ^ form.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        });
        let constants = arguments.constants.iter().zip(0_u16..).filter_map(|(span, index)| {
            Some((Place::Constant(index), hash(arguments.text.get(span.start..span.end)?)))
        });
        Self(parameters.take(MAX_ARGUMENTS).chain(constants.take(MAX_ARGUMENTS)).collect())
    }
}

/// One statement of a transaction that is over.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a> {
    /// The template.
    pub statement: &'a Arc<Statement>,
    /// Its arguments.
    pub arguments: &'a Digests,
}

/// What [`Profiles`] holds and has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ProfileStatistics {
    /// Transactions that were observed.
    pub observed: u64,
    /// Beginnings that were dropped to stay within the limits.
    pub evictions: u64,
    /// Beginnings held now.
    pub nodes: usize,
    /// Bytes held now, roughly, the templates included.
    pub bytes: usize,
}

/// A beginning.
#[derive(Debug)]
struct Node {
    parent: usize,
    template: TemplateId,
    children: BTreeMap<TemplateId, usize>,
    /// Transactions that began so.
    seen: u32,
    /// Those of them whose rest would have been predicted completely.
    covered: u32,
    followers: BTreeMap<TemplateId, Follower>,
    /// Met since the hand went by.
    fresh: bool,
}

/// A template that came later.
#[derive(Debug)]
struct Follower {
    seen: u32,
    /// For each argument: the arguments of the beginning that it was equal to every time.
    sources: BTreeMap<Place, Vec<Source>>,
    bytes: usize,
}

/// A template that nodes speak of.
#[derive(Debug)]
struct Known {
    statement: Arc<Statement>,
    users: usize,
    bytes: usize,
}

/// Learned continuations of transactions, by their beginnings.
#[derive(Debug)]
pub struct Profiles {
    limits: ProfileLimits,
    /// The first is the root: the beginning that all have.
    nodes: Vec<Option<Node>>,
    free: Vec<usize>,
    templates: BTreeMap<TemplateId, Known>,
    hand: usize,
    statistics: ProfileStatistics,
}

/// The place of the root.
const ROOT: usize = 0;

impl Profiles {
    /// Nothing is known.
    pub fn new(limits: ProfileLimits) -> Self {
        let root = Node::new(ROOT, TemplateId::default());
        Self {
            limits,
            nodes: vec![Some(root)],
            free: Vec::new(),
            templates: BTreeMap::new(),
            hand: 0,
            statistics: ProfileStatistics { bytes: Node::BYTES, nodes: 1, ..ProfileStatistics::default() },
        }
    }

    /// Sizes and counters.
    pub fn statistics(&self) -> ProfileStatistics {
        self.statistics
    }

    /// Learns from a transaction that committed: its statements without BEGIN and COMMIT.
    pub fn observe(&mut self, transaction: &[Step<'_>]) {
        let steps = &transaction[..transaction.len().min(MAX_STEPS)];
        self.statistics.observed += 1;
        let mut at = ROOT;
        for depth in 1..=steps.len().min(self.limits.depth) {
            let (beginning, rest) = steps.split_at(depth);
            let Some(next) = self.child(at, beginning[depth - 1].statement) else { return };
            at = next;
            self.count(at, beginning, rest);
        }
        self.shrink(at);
    }

    /// The likely continuation of a beginning; `None` if no transaction began so. A beginning longer than the trie is
    /// deep is cut.
    pub fn predict(&self, beginning: &[TemplateId]) -> Option<Prediction> {
        let mut at = ROOT;
        for template in beginning.iter().take(self.limits.depth) {
            at = *self.nodes[at].as_ref()?.children.get(template)?;
        }
        let node = self.nodes[at].as_ref().filter(|_| at != ROOT)?;
        let expected = node.followers.iter().filter(|(_, follower)| self.is_expected(node, follower));
        let expected = expected.filter_map(|(template, follower)| {
            Some(Expected {
                template: *template,
                statement: Arc::clone(&self.templates.get(template)?.statement),
                share: thousandths(follower.seen, node.seen),
                sources: follower
                    .sources
                    .iter()
                    .filter_map(|(place, from)| Some((*place, *from.first()?)))
                    .collect(),
            })
        });
        Some(Prediction {
            expected: expected.collect(),
            // A beginning that was met once proves nothing.
            confidence: thousandths(node.covered, node.seen + 1),
            seen: node.seen,
        })
    }

    fn is_expected(&self, node: &Node, follower: &Follower) -> bool {
        thousandths(follower.seen, node.seen) >= self.limits.least_share
    }

    /// The node of a beginning with one more template; made if it is missing. `None` if there is no room.
    fn child(&mut self, parent: usize, statement: &Arc<Statement>) -> Option<usize> {
        let template = statement.template;
        if let Some(&child) = self.node(parent).children.get(&template) {
            return Some(child);
        }
        if self.statistics.nodes >= self.limits.nodes {
            self.evict(parent)?;
        }
        let at = self.free.pop().unwrap_or(self.nodes.len());
        let node = Some(Node::new(parent, template));
        if at == self.nodes.len() {
            self.nodes.push(node);
        } else {
            self.nodes[at] = node;
        }
        self.node(parent).children.insert(template, at);
        self.statistics.nodes += 1;
        self.statistics.bytes += Node::BYTES;
        Some(at)
    }

    fn node(&mut self, at: usize) -> &mut Node {
        self.nodes[at].as_mut().expect("links lead to nodes that are there")
    }

    /// Counts one transaction at the node of its beginning.
    fn count(&mut self, at: usize, beginning: &[Step<'_>], rest: &[Step<'_>]) {
        let mut later: BTreeMap<TemplateId, Vec<&Step<'_>>> = BTreeMap::new();
        for step in rest {
            later.entry(step.statement.template).or_default().push(step);
        }
        let (most, least_share) = (self.limits.followers, self.limits.least_share);
        let node = self.node(at);
        node.fresh = true;
        let covered = later.keys().all(|template| {
            node.followers.get(template).is_some_and(|f| thousandths(f.seen, node.seen) >= least_share)
        });
        node.covered += u32::from(covered && node.seen > 0);
        node.seen += 1;
        let mut fresh = Vec::new();
        let mut bytes = 0_isize;
        for (template, occurrences) in &later {
            if let Some(follower) = node.followers.get_mut(template) {
                follower.seen += 1;
                bytes += follower.narrow(beginning, occurrences);
            } else if node.followers.len() < most {
                let follower = Follower::new(beginning, occurrences);
                bytes += follower.bytes.cast_signed();
                node.followers.insert(*template, follower);
                fresh.push(occurrences[0].statement);
            }
        }
        let gone = if node.seen >= SATURATED { node.halve() } else { Vec::new() };
        self.statistics.bytes = self.statistics.bytes.saturating_add_signed(bytes);
        for statement in fresh {
            self.use_template(statement);
        }
        for (template, bytes) in gone {
            self.statistics.bytes -= bytes;
            self.drop_template(template);
        }
    }

    fn use_template(&mut self, statement: &Arc<Statement>) {
        let known = self.templates.entry(statement.template).or_insert_with(|| {
            let bytes = statement.bytes();
            Known { statement: Arc::clone(statement), users: 0, bytes }
        });
        if known.users == 0 {
            self.statistics.bytes += known.bytes;
        }
        known.users += 1;
    }

    fn drop_template(&mut self, template: TemplateId) {
        let Some(known) = self.templates.get_mut(&template) else { return };
        known.users -= 1;
        if known.users == 0 {
            self.statistics.bytes -= known.bytes;
            self.templates.remove(&template);
        }
    }

    /// Drops beginnings until what is held is within the limit, the one just used excepted.
    fn shrink(&mut self, used: usize) {
        while self.statistics.bytes > self.limits.bytes {
            if self.evict(used).is_none() {
                return;
            }
        }
    }

    /// Drops the longest unused beginning that none is longer than; `None` if all others are in use. Two rounds of the
    /// hand are enough, since the first clears all marks.
    fn evict(&mut self, used: usize) -> Option<()> {
        let path = self.path(used);
        for _ in 0..2 * self.nodes.len() {
            self.hand = (self.hand + 1) % self.nodes.len();
            let at = self.hand;
            let Some(node) = self.nodes[at].as_mut() else { continue };
            if !node.children.is_empty() || path.contains(&at) {
                continue;
            }
            if std::mem::take(&mut node.fresh) {
                continue;
            }
            self.remove(at);
            return Some(());
        }
        None
    }

    /// A node and all above it.
    fn path(&self, mut at: usize) -> BTreeSet<usize> {
        let mut path = BTreeSet::from([ROOT]);
        while path.insert(at) {
            at = self.nodes[at].as_ref().map_or(ROOT, |node| node.parent);
        }
        path
    }

    fn remove(&mut self, at: usize) {
        let Some(node) = self.nodes[at].take() else { return };
        self.node(node.parent).children.remove(&node.template);
        self.free.push(at);
        self.statistics.nodes -= 1;
        self.statistics.evictions += 1;
        self.statistics.bytes -= Node::BYTES;
        for (template, follower) in node.followers {
            self.statistics.bytes -= follower.bytes;
            self.drop_template(template);
        }
    }
}

impl Node {
    /// The node, its entry with its parent, and the room that trees leave.
    const BYTES: usize = size_of::<Option<Self>>() + 64;

    fn new(parent: usize, template: TemplateId) -> Self {
        Self {
            parent,
            template,
            children: BTreeMap::new(),
            seen: 0,
            covered: 0,
            followers: BTreeMap::new(),
            fresh: true,
        }
    }

    /// Halves all counts; returns what came to nothing.
    fn halve(&mut self) -> Vec<(TemplateId, usize)> {
        self.seen /= 2;
        self.covered /= 2;
        let mut gone = Vec::new();
        self.followers.retain(|template, follower| {
            follower.seen /= 2;
            if follower.seen == 0 {
                gone.push((*template, follower.bytes));
            }
            follower.seen > 0
        });
        gone
    }
}

impl Follower {
    fn new(beginning: &[Step<'_>], occurrences: &[&Step<'_>]) -> Self {
        let mut sources = BTreeMap::new();
        for &(place, value) in &*occurrences[0].arguments.0 {
            let from: Vec<Source> = equal_in(beginning, value).take(MAX_SOURCES).collect();
            if !from.is_empty() {
                sources.insert(place, from);
            }
        }
        let mut follower = Self { seen: 1, sources, bytes: 0 };
        follower.narrow(beginning, &occurrences[1..]);
        follower.bytes = follower.weight();
        follower
    }

    /// Keeps the sources that hold for these, too; returns the change in bytes.
    fn narrow(&mut self, beginning: &[Step<'_>], occurrences: &[&Step<'_>]) -> isize {
        for occurrence in occurrences {
            let values: &[(Place, u64)] = &occurrence.arguments.0;
            self.sources.retain(|place, from| {
                let value = values.iter().find(|(other, _)| other == place).map(|(_, value)| *value);
                from.retain(|source| value.is_some() && value_at(beginning, *source) == value);
                !from.is_empty()
            });
        }
        let (before, now) = (self.bytes, self.weight());
        self.bytes = now;
        now.cast_signed() - before.cast_signed()
    }

    fn weight(&self) -> usize {
        const ENTRY: usize = size_of::<(Place, Vec<Source>)>() + 16;
        let sources: usize =
            self.sources.values().map(|from| ENTRY + from.capacity() * size_of::<Source>()).sum();
        size_of::<Self>() + 32 + sources
    }
}

/// The arguments of a beginning that have a value.
fn equal_in<'a>(beginning: &'a [Step<'_>], value: u64) -> impl Iterator<Item = Source> + 'a {
    beginning.iter().zip(0_u16..).flat_map(move |(step, position)| {
        let equal = step.arguments.0.iter().filter(move |(_, other)| *other == value);
        equal.map(move |(place, _)| Source { step: position, place: *place })
    })
}

fn value_at(beginning: &[Step<'_>], source: Source) -> Option<u64> {
    let step = beginning.get(usize::from(source.step))?;
    step.arguments.0.iter().find(|(place, _)| *place == source.place).map(|(_, value)| *value)
}

fn thousandths(part: u32, whole: u32) -> u32 {
    if whole == 0 { 0 } else { u32::try_from(u64::from(part) * 1000 / u64::from(whole)).unwrap_or(u32::MAX) }
}

#[cfg(test)]
mod tests;
