//! Protocols of the family that order transactions as a whole, or not at all.

use super::*;
use crate::event::Whole;
use crate::protocols::centralised_writes::CENTRALISED_WRITES;
use crate::protocols::gargamel::GARGAMEL;
use crate::protocols::round_robin::ROUND_ROBIN;
use crate::protocols::rows::PATIENCE_US;

const S4: SessionId = SessionId(4);
const LEVEL: Level = Level::RepeatableRead;

impl Bench {
    /// Begins anywhere; all that the transaction does is known: it writes these rows of table 7, and reads the others.
    fn call(&mut self, session: SessionId, level: Level, written: &[u64], read: &[u64]) -> Vec<String> {
        let reads = Claims { shared: rows(read).rows, ..Claims::default() };
        let whole = Whole { writes: rows(written), reads, is_sure: true, is_performable: true };
        let needs = Needs { reads: Reads::Tables([].into()), ..writing(level, written) };
        let mut said = self.feed(Event::Begin {
            session,
            level,
            nonce: Nonce(session.0),
            home: Home::Any,
            needs,
            foreseen: Foreseen::Whole(Box::new(whole)),
        });
        said.retain(|word| !word.starts_with("wake at"));
        said
    }

    /// The session's transaction has written these rows, and finishes.
    fn finish_call(&mut self, session: SessionId, written: &[u64]) -> Vec<String> {
        self.feed(Event::Executed { session });
        self.finish_with(session, &[rows(written)], Reads::Tables([].into()))
    }

    /// The record of this version is durable, and its home has committed it.
    fn commit_call(&mut self, session: SessionId, version: u64) -> Vec<String> {
        let mut said = self.feed(Event::Logged { upto: Version(version) });
        said.extend(self.feed(Event::Committed { session }));
        said
    }
}

/// Section III iv: "A worker does not start an update transaction until it has received the updates of preceding transactions."
#[test]
fn a_link_begins_at_its_worker_when_what_it_follows_is_visible_there() {
    let mut bench = Bench::under(GARGAMEL);
    let first = bench.call(S1, LEVEL, &[7], &[]);
    let [began] = first.as_slice() else { panic!("{first:?}") };
    let worker = began.strip_prefix("execute 1 at ").expect("it runs at once").to_owned();
    assert_eq!(bench.call(S2, LEVEL, &[7], &[]), Vec::<String>::new(), "it follows, at the same worker");
    let chains = bench.protocol.chains();
    assert_eq!((chains.len(), &chains[0].sessions), (1, &vec![S1, S2]));
    assert_eq!(bench.finish_call(S1, &[7]), ["append 1"], "the second one waits until that is visible");
    let said = bench.commit_call(S1, 1);
    assert!(said.contains(&format!("execute 2 at {worker}")), "{said:?}");
    assert_eq!(bench.protocol.known_misjudged(), 0);
}

#[test]
fn transactions_that_do_not_conflict_run_side_by_side() {
    let mut bench = Bench::under(GARGAMEL);
    let said =
        [(S1, 7), (S2, 8), (S3, 9)].map(|(session, key)| bench.call(session, LEVEL, &[key], &[]).concat());
    let mut homes = said.each_ref().map(|said| said.rsplit(' ').next());
    homes.sort_unstable();
    assert_eq!(homes, [Some("0"), Some("1"), Some("2")]);
    assert_eq!(bench.protocol.chains().len(), 3);
}

/// Section II-B: "to execute a transaction after a merge, the worker waits to receive the write-sets of transactions queued
/// before the merging point."
#[test]
fn a_merge_waits_for_the_write_sets_of_other_workers() {
    let mut bench = Bench::under(GARGAMEL);
    let homes = [bench.call(S1, LEVEL, &[7], &[]), bench.call(S2, LEVEL, &[8], &[])];
    let home_of =
        |said: &Vec<String>| said[0].rsplit(' ').next().expect("a word").parse::<u16>().expect("a number");
    let (other, last) = (home_of(&homes[0]), home_of(&homes[1]));
    assert_ne!(other, last);
    assert_eq!(bench.call(S3, LEVEL, &[7, 8], &[]), Vec::<String>::new());
    bench.finish_call(S2, &[8]);
    bench.commit_call(S2, 1);
    bench.finish_call(S1, &[7]);
    bench.applied(other, 1);
    let said = bench.commit_call(S1, 2);
    assert!(!said.iter().any(|word| word.starts_with("execute 3")), "its worker lacks version 2: {said:?}");
    let said = bench.applied(last, 2);
    assert_eq!(said.iter().find(|word| word.starts_with("execute")), Some(&format!("execute 3 at {last}")));
}

/// The paper's future work (section VII): "higher isolation levels (e.g. one-copy serializability)".
#[test]
fn readers_follow_writers_only_by_the_rule_that_asks_for_it() {
    let mut bench = Bench::under(GARGAMEL);
    bench.call(S1, LEVEL, &[7], &[8]);
    assert_eq!(bench.call(S2, LEVEL, &[8], &[7]).len(), 1, "write skew is allowed at REPEATABLE READ");
    assert_eq!(bench.call(S3, Level::Serializable, &[9], &[7]), Vec::<String>::new());

    let mut bench = Bench::under(Choices { order: Order::Chains(Rule::ReadWrite), ..GARGAMEL });
    bench.call(S1, LEVEL, &[7], &[8]);
    assert_eq!(bench.call(S2, LEVEL, &[8], &[7]), Vec::<String>::new());
    assert_eq!(bench.call(S3, LEVEL, &[9], &[10]).len(), 1);
    assert_eq!(bench.call(S4, LEVEL, &[11], &[10]).len(), 1, "two readers do not meet");
}

/// Section III: "Read only transactions are never delayed, they can read stale values."
#[test]
fn reads_wait_unless_they_may_be_stale() {
    for (see, waits) in [(See::Fresh, true), (See::Local, false)] {
        let mut bench = Bench::under(Choices { see, ..GARGAMEL });
        bench.call(S1, LEVEL, &[7], &[]);
        bench.finish_call(S1, &[7]);
        bench.feed(Event::Logged { upto: Version(1) });
        assert_eq!(bench.read(S2, 7).iter().any(|word| word.starts_with("execute 2")), !waits, "{see:?}");
    }
}

/// Section IV-B: "Transactions are assigned to each worker in equal portions and in circular order."
#[test]
fn round_robin_takes_turns_and_lets_certification_decide() {
    let mut bench = Bench::under(ROUND_ROBIN);
    let said: Vec<String> =
        [S1, S2, S3].into_iter().flat_map(|session| bench.call(session, LEVEL, &[7], &[])).collect();
    assert_eq!(said, ["execute 1 at 1", "execute 2 at 2", "execute 3 at 0"]);
    assert_eq!(bench.finish_call(S1, &[7]), ["append 1"]);
    let said = bench.finish_call(S2, &[7]);
    assert_eq!(said.first().map(String::as_str), Some("conflict 2 with 1"), "{said:?}");
    assert_eq!(bench.protocol.known_misjudged(), 0, "none was known to be safe");
}

/// Section IV-B: "all update transactions are put into a single queue, executed by a single worker."
#[test]
fn centralised_writes_run_one_after_another_at_the_anchor() {
    let mut bench = Bench::under(CENTRALISED_WRITES);
    assert_eq!(bench.call(S1, LEVEL, &[7], &[]), ["execute 1 at 0"]);
    assert_eq!(bench.call(S2, LEVEL, &[8], &[]), Vec::<String>::new());
    assert_eq!(
        bench.finish_call(S1, &[7]),
        ["append 1", "execute 2 at 0"],
        "what they write is not the same"
    );
}

#[test]
fn a_known_transaction_that_fails_in_certification_is_counted() {
    let mut bench = Bench::under(GARGAMEL);
    let homes = [bench.call(S1, LEVEL, &[7], &[]), bench.call(S2, LEVEL, &[8], &[])];
    assert_ne!(homes[0][0].rsplit(' ').next(), homes[1][0].rsplit(' ').next());
    bench.finish_call(S1, &[7]);
    let said = bench.finish_call(S2, &[7]);
    assert!(
        said.iter().any(|word| word.starts_with("conflict 2")),
        "it has written what was not among its claims: {said:?}"
    );
    assert_eq!(bench.protocol.known_misjudged(), 1);
}

/// One that has waited long enough fails, and those behind it come one place forward.
#[test]
fn a_wait_in_a_chain_is_bounded_but_at_read_committed() {
    let mut bench = Bench::under(GARGAMEL);
    bench.call(S1, LEVEL, &[7], &[]);
    assert_eq!(bench.call(S2, LEVEL, &[7, 8], &[]), Vec::<String>::new());
    assert_eq!(bench.call(S3, Level::ReadCommitted, &[8], &[]), Vec::<String>::new());
    bench.now = PATIENCE_US / 2;
    let said = bench.feed(Event::WakeUp);
    assert!(said.iter().all(|word| word.starts_with("wake at")), "{said:?}");
    bench.now = 2 * PATIENCE_US;
    let said = bench.feed(Event::WakeUp);
    assert!(said.contains(&"impatient 2".to_owned()), "{said:?}");
    assert!(said.iter().any(|word| word.starts_with("execute 3")), "nothing else is in its way: {said:?}");
    assert_eq!(bench.protocol.known_misjudged(), 0);

    bench.call(S4, Level::ReadCommitted, &[7], &[]);
    bench.now = 10 * PATIENCE_US;
    assert_eq!(bench.feed(Event::WakeUp), Vec::<String>::new(), "PostgreSQL would wait, too");
}
