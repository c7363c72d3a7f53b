//! A small world around leases: clients at the anchor and at two borrowers, a lender, a log that lags,
//! settings, crashes that lose what they can, and borrowers that become the anchor. A range can reach its borrower late, or the word
//! of it not come back, and a transaction there can go on long after its range has ended. With each of its rules broken on purpose
//! it has to find a value that is given out twice.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRng, TestRunner};

use super::*;
use crate::ids::DatabaseId;
use crate::ids::Version;
use crate::parts::sequences::{Question, Sequences, Verdict};
use crate::record::Sequence;

const REPLICAS: usize = 3;
const SEQUENCE: SequenceId = DatabaseId::FIRST.sequence(7);

/// The rule that is switched off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mutant {
    Nothing,
    LentTwice,
    LentUnmarked,
    KeptOverCrash,
    KeptOverSetting,
    /// A new anchor keeps drawing from the range that it was lent.
    KeptAtTakeOver,
    /// It draws before it has what was assigned before.
    TookOverEarly,
    /// A range drawn at the former anchor, without a mark yet, is lent all the same.
    LentOverTakeOver,
    /// A replica that has not answered is lent another range.
    LentToTheSilent,
    /// The holder of a range is forgotten.
    UsesForgotten,
}

/// A range in the lender's hands.
#[derive(Clone, Copy, Debug)]
enum Hand {
    Empty,
    Drew(Want, Range, State, u64),
    Lends(Loan, u64),
    /// It is in force, in this life of the borrower's server.
    Lent(Loan, u32),
}

/// A transaction at a borrower, which has drawn, and goes by the bound of then.
struct Open {
    at: usize,
    life: u32,
    last: i64,
    #[expect(dead_code, reason = "it is counted")]
    lent: Option<Use>,
}

/// A borrower's sequence: its next value, its bound, and after how many settings that was drawn.
#[derive(Clone, Copy, Debug)]
struct Borrowed {
    next: i64,
    last: i64,
    epoch: u64,
}

struct World {
    mutant: Mutant,
    sequences: Sequences,
    /// Which replica it is.
    home: usize,
    anchor: State,
    past: Vec<State>,
    log: Vec<Vec<Sequence>>,
    durable: usize,
    settings: u64,
    hand: Hand,
    /// Ranges that were drawn, and the setting before that.
    drawn_in: BTreeMap<i64, u64>,
    borrowed: [Option<Borrowed>; REPLICAS],
    /// Of their servers; what was meant for a former one is refused.
    lives: [u32; REPLICAS],
    late: Option<(usize, u32, Borrowed)>,
    open: Option<Open>,
    waiting: Vec<(usize, i64, u64)>,
    given: BTreeSet<(u64, i64)>,
}

fn state(value: i64, called: bool) -> State {
    State { id: SEQUENCE, value, called, increment: 1, min: 1, max: 1_000_000, cycles: false, start: 1 }
}

impl World {
    fn new(mutant: Mutant) -> Self {
        let anchor = state(1, false);
        Self {
            mutant,
            sequences: Sequences::default(),
            home: 0,
            anchor,
            past: vec![anchor],
            log: Vec::new(),
            durable: 0,
            settings: 0,
            hand: Hand::Empty,
            drawn_in: BTreeMap::new(),
            borrowed: [None; REPLICAS],
            lives: [1; REPLICAS],
            late: None,
            open: None,
            waiting: Vec::new(),
            given: BTreeSet::new(),
        }
    }

    fn step(&mut self, what: u8, choice: u16) -> Result<(), String> {
        match what {
            0..=3 => self.client(choice)?,
            4..=7 => self.synchronise(choice)?,
            8..=12 => self.lend(choice),
            13..=18 => self.borrower(self.other(what), choice)?,
            19 if choice.is_multiple_of(4) => self.crash_anchor(choice),
            20 if choice.is_multiple_of(4) => self.crash_borrower(self.other(choice.to_le_bytes()[1])),
            21 if choice.is_multiple_of(4) => self.set(choice),
            22 if choice.is_multiple_of(4) => self.take_over(self.other(choice.to_le_bytes()[1])),
            23 => self.arrive(),
            24 if choice.is_multiple_of(4) => self.open = None,
            24 => self.go_on()?,
            _ => {}
        }
        Ok(())
    }

    /// One of those that are not the anchor.
    fn other(&self, choice: u8) -> usize {
        (self.home + 1 + usize::from(choice % 2)) % REPLICAS
    }

    fn anchor(&self) -> ReplicaId {
        id(self.home)
    }

    fn version(&self) -> Version {
        Version(self.durable as u64)
    }

    fn draw(&mut self, count: u32) -> (i64, i64) {
        let first = self.anchor.value + i64::from(self.anchor.called);
        (self.anchor.value, self.anchor.called) = (first + i64::from(count) - 1, true);
        self.past.push(self.anchor);
        (first, self.anchor.value)
    }

    fn give(&mut self, settings: u64, value: i64) -> Result<(), String> {
        let is_new = self.given.insert((settings, value));
        if is_new { Ok(()) } else { Err(format!("{value} is given out twice")) }
    }

    /// A transaction at the anchor, which brings the marks that are waited for.
    fn client(&mut self, choice: u16) -> Result<(), String> {
        let (_, value) = self.draw(u32::from(choice % 5) + 1);
        let states = [self.anchor];
        let asked = Question {
            holder: self.anchor(),
            reading: self.sequences.reading(),
            states: &states,
            is_exact: false,
            has_record: choice.is_multiple_of(3),
            durable: self.version(),
        };
        let Verdict::Add(mut marks) = self.sequences.judge(asked) else { return Ok(()) };
        if marks.is_empty() && !choice.is_multiple_of(3) {
            return self.give(self.settings, value);
        }
        marks.append(&mut self.sequences.wanted_marks(self.anchor(), self.version()));
        self.append(marks);
        self.waiting.push((self.log.len(), value, self.settings));
        Ok(())
    }

    fn append(&mut self, marks: Vec<Sequence>) {
        let version = Version(self.log.len() as u64 + 1);
        for mark in &marks {
            self.sequences.note(version, *mark);
        }
        self.log.push(marks);
    }

    fn synchronise(&mut self, choice: u16) -> Result<(), String> {
        self.durable = self.log.len().min(self.durable + usize::from(choice % 4));
        let (done, waiting) = self.waiting.iter().partition(|(at, ..)| *at <= self.durable);
        self.waiting = waiting;
        let done: Vec<(usize, i64, u64)> = done;
        done.into_iter().try_for_each(|(_, value, settings)| self.give(settings, value))
    }

    fn lend(&mut self, choice: u16) {
        self.hand = match self.hand {
            Hand::Empty => self.take_up(),
            Hand::Drew(want, range, state, settings) => {
                self.sequences.leases.drew(want, range, state);
                self.drawn_in.insert(range.first, settings);
                Hand::Empty
            }
            Hand::Lends(loan, settings) => self.put_into_force(loan, settings, choice),
            Hand::Lent(loan, life) => {
                let at = usize::from(loan.want.replica.0);
                if self.lives[at] == life && self.home != at {
                    self.sequences.leases.lent(loan);
                }
                Hand::Empty
            }
        };
    }

    /// Sends it there. One time in eight that takes too long, one time the word of it is lost.
    fn put_into_force(&mut self, loan: Loan, settings: u64, choice: u16) -> Hand {
        let (replica, Range { first, last, .. }) = (loan.want.replica, loan.range);
        let at = usize::from(replica.0);
        if !self.sequences.leases.is_wanted(loan) || self.home == at {
            self.sequences.leases.refuse(loan.want, false);
            return Hand::Empty;
        }
        let borrowed = Borrowed { next: first, last, epoch: settings };
        match choice % 8 {
            0 => self.late = Some((at, self.lives[at], borrowed)),
            _ if self.mutant == Mutant::LentTwice => self.borrowed = [Some(borrowed); REPLICAS],
            _ => self.borrowed[at] = Some(borrowed),
        }
        match choice % 8 {
            0 | 1 if self.mutant == Mutant::LentToTheSilent => {
                self.sequences.leases.refuse(loan.want, false);
                Hand::Empty
            }
            0 | 1 => {
                self.sequences.leases.bar(replica);
                Hand::Empty
            }
            _ => Hand::Lent(loan, self.lives[at]),
        }
    }

    /// Delivers an old message.
    fn arrive(&mut self) {
        if let Some((at, life, borrowed)) = self.late.take()
            && self.lives[at] == life
        {
            self.borrowed[at] = Some(borrowed);
        }
    }

    fn take_up(&mut self) -> Hand {
        if let Some(want) = self.sequences.leases.next_want() {
            // Fewer than in earnest, so that they are used up.
            if !self.sequences.leases.may_be_drawn(want, &self.anchor) {
                return Hand::Empty;
            }
            let count = lendable(&self.anchor, want.values).map_or(0, |values| values.min(20));
            let (first, last) = self.draw(count.max(1));
            return Hand::Drew(want, Range { first, last, count }, self.anchor, self.settings);
        }
        let loan = match self.mutant {
            Mutant::LentUnmarked => self.sequences.leases.next_loan(|_| true),
            _ => self.sequences.next_loan(self.anchor(), self.version()),
        };
        match loan {
            Some(loan) => Hand::Lends(loan, self.drawn_in[&loan.range.first]),
            None => Hand::Empty,
        }
    }

    /// A transaction at a borrower.
    fn borrower(&mut self, at: usize, choice: u16) -> Result<(), String> {
        let replica = id(at);
        let Some(lent) = self.sequences.leases.ask(SEQUENCE, replica, 1) else { return Ok(()) };
        let Some(mut borrowed) = self.borrowed[at] else {
            return Err("nothing is lent".to_owned());
        };
        if borrowed.epoch != self.settings {
            return Err("a setting is not obeyed".to_owned());
        }
        for _ in 0..=choice % 6 {
            if borrowed.next > borrowed.last {
                self.sequences.leases.spent(SEQUENCE, replica, lent.range(), false);
                break;
            }
            self.give(borrowed.epoch, borrowed.next)?;
            borrowed.next += 1;
        }
        self.borrowed[at] = Some(borrowed);
        if choice.is_multiple_of(5) && self.open.is_none() {
            let lent = (self.mutant != Mutant::UsesForgotten).then_some(lent);
            self.open = Some(Open { at, life: self.lives[at], last: borrowed.last, lent });
        }
        Ok(())
    }

    /// One that has begun long ago draws again, from what its server has now and up to the bound that it knows.
    fn go_on(&mut self) -> Result<(), String> {
        let Some(Open { at, life, last, .. }) = self.open else { return Ok(()) };
        let Some(borrowed) = self.borrowed[at].as_mut().filter(|_| self.lives[at] == life) else {
            self.open = None;
            return Ok(());
        };
        if borrowed.next > last {
            return Ok(());
        }
        let Borrowed { next, epoch, .. } = *borrowed;
        borrowed.next += 1;
        self.give(epoch, next)
    }

    /// The server loses what it has not written; all that is in the log is applied before it serves.
    fn crash_anchor(&mut self, choice: u16) {
        self.durable = self.log.len();
        self.anchor = self.past[usize::from(choice / 4) % self.past.len()];
        self.move_to_marks(self.log.len());
        self.past = vec![self.anchor];
        if self.mutant != Mutant::KeptOverCrash {
            self.sequences.leases.replica_changed(self.anchor());
        }
    }

    /// The anchor's sequence stands where the first so many records say, or further.
    fn move_to_marks(&mut self, records: usize) {
        let mut best: Option<Sequence> = None;
        for mark in self.log[..records].iter().flatten() {
            if best.is_none_or(|best| mark.exceeds(&best)) {
                best = Some(*mark);
            }
        }
        if let Some(mark) = best
            && (mark.generation > 0 || mark.value > self.anchor.value)
        {
            (self.anchor.value, self.anchor.called) = (mark.value, mark.called);
        }
    }

    /// Also a borrower that is drained and leaves, or is given other data.
    fn crash_borrower(&mut self, at: usize) {
        self.borrowed[at] = None;
        self.lives[at] += 1;
        self.sequences.leases.replica_changed(id(at));
    }

    /// The anchor is lost, with values that it drew and that no record has. A borrower takes its place.
    fn take_over(&mut self, at: usize) {
        let had = self.borrowed[at].take();
        self.lives[at] += 1;
        self.home = at;
        self.anchor = state(1, false);
        let applied = if self.mutant == Mutant::TookOverEarly { self.durable } else { self.log.len() };
        self.move_to_marks(applied);
        if let Some(Borrowed { next, .. }) = had.filter(|_| self.mutant == Mutant::KeptAtTakeOver) {
            self.anchor = state(next - 1, true);
        }
        self.past = vec![self.anchor];
        if self.mutant != Mutant::LentOverTakeOver {
            self.sequences.leases.replica_changed(id(at));
        }
    }

    /// A statement that sets the sequence, and its commit.
    fn set(&mut self, choice: u16) {
        (self.anchor.value, self.anchor.called) = (i64::from(choice % 300) + 1, true);
        self.past = vec![self.anchor];
        let states = [self.anchor];
        if self.mutant == Mutant::KeptOverSetting {
            self.settings += 1;
            return;
        }
        self.sequences.set(&states);
        self.sequences.leases.void_all();
        let asked = Question {
            holder: self.anchor(),
            reading: self.sequences.reading(),
            states: &states,
            is_exact: true,
            has_record: false,
            durable: self.version(),
        };
        if let Verdict::Add(marks) = self.sequences.judge(asked) {
            self.append(marks);
        }
        self.durable = self.log.len();
        self.settings += 1;
    }
}

fn id(at: usize) -> ReplicaId {
    ReplicaId(u16::try_from(at).unwrap())
}

fn play(mutant: Mutant, steps: &[(u8, u16)]) -> Result<usize, String> {
    let mut world = World::new(mutant);
    steps.iter().try_for_each(|(what, choice)| world.step(*what, *choice))?;
    Ok(world.given.len())
}

fn steps() -> impl Strategy<Value = Vec<(u8, u16)>> {
    vec((0..25_u8, any::<u16>()), 0..400)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn nothing_is_given_out_twice(steps in steps()) {
        if let Err(why) = play(Mutant::Nothing, &steps) {
            prop_assert!(false, "{}", why);
        }
    }
}

#[test]
fn each_broken_rule_is_found() {
    for mutant in [
        Mutant::LentTwice,
        Mutant::LentUnmarked,
        Mutant::KeptOverCrash,
        Mutant::KeptOverSetting,
        Mutant::KeptAtTakeOver,
        Mutant::TookOverEarly,
        Mutant::LentOverTakeOver,
        Mutant::LentToTheSilent,
        Mutant::UsesForgotten,
    ] {
        let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
        let rng = TestRng::deterministic_rng(config.rng_algorithm);
        let found = TestRunner::new_with_rng(config, rng)
            .run(&steps(), |steps| play(mutant, &steps).map(drop).map_err(TestCaseError::fail));
        assert!(found.is_err(), "{mutant:?} does no harm");
    }
}

#[test]
fn a_low_lease_is_renewed_and_a_range_behind_is_not_lent() {
    let mut leases = Leases::default();
    let replica = ReplicaId(1);
    let lend = |leases: &mut Leases, first: i64| {
        let want = leases.next_want().unwrap();
        let range = Range { first, last: first + i64::from(want.values) - 1, count: want.values };
        if !leases.may_be_drawn(want, &state(first - 1, true)) {
            return (0, None);
        }
        leases.drew(want, range, state(range.last, true));
        let loan = leases.next_loan(|_| true);
        (want.values, loan.map(|loan| leases.lent(loan)))
    };
    let may = |leases: &mut Leases, values| leases.ask(SEQUENCE, replica, values);
    assert!(may(&mut leases, 1).is_none());
    assert_eq!(lend(&mut leases, 1), (LEASE_VALUES_FIRST, Some(true)));
    assert!(may(&mut leases, 150).is_some() && !leases.is_asked());
    let held = may(&mut leases, 50);
    assert!(held.is_some() && leases.is_asked());
    assert_eq!(lend(&mut leases, 500), (2 * LEASE_VALUES_FIRST, Some(true)));
    // It is set back, and a transaction has drawn that may not see a lower bound in time.
    leases.void(SEQUENCE);
    assert!(may(&mut leases, 1).is_none());
    assert_eq!(lend(&mut leases, 1).1, None);
    assert!(may(&mut leases, 1).is_none() && leases.is_asked());
    drop(held);
    assert_eq!(lend(&mut leases, 1).1, Some(true));
    assert!(may(&mut leases, 1).is_some());
    // Several meet the end of one range, and one of them tells so when there is another already.
    let range = may(&mut leases, 1).unwrap().range();
    leases.spent(SEQUENCE, replica, range, false);
    assert!(may(&mut leases, 1).is_none());
    assert_eq!(lend(&mut leases, 600).1, Some(true));
    leases.spent(SEQUENCE, replica, range, true);
    let range = may(&mut leases, 1).unwrap().range();
    // It was too short.
    leases.spent(SEQUENCE, replica, range, true);
    assert_eq!(lend(&mut leases, 2_048), (8 * LEASE_VALUES_FIRST, Some(true)));
    // What is unknown is not tried again in this life of the server.
    leases.bar(replica);
    assert!(may(&mut leases, 1).is_none() && !leases.is_asked());
    leases.replica_changed(replica);
    assert!(may(&mut leases, 1).is_none() && leases.is_asked());
}

#[test]
fn small_ones_and_wheels_are_not_lent() {
    assert_eq!(lendable(&state(1, true), 256), Some(256));
    assert_eq!(lendable(&state(999_000, true), 256), None);
    assert_eq!(lendable(&State { max: 10_000, ..state(1, true) }, 256), Some(156));
    assert_eq!(lendable(&State { cycles: true, ..state(1, true) }, 256), None);
    let down = State { increment: -2, min: -100_000, max: -1, ..state(-1, true) };
    assert_eq!(lendable(&down, 8_192), Some(781));
    let whole = State { increment: i64::MAX, min: i64::MIN, max: i64::MAX, ..state(0, true) };
    assert_eq!(lendable(&whole, 256), None);
}

#[test]
fn leases_that_become_void_again_and_again_cost_few_values() {
    let (mut leases, replica) = (Leases::default(), ReplicaId(1));
    let mut first = 1;
    let mut lend = |leases: &mut Leases| {
        drop(leases.ask(SEQUENCE, replica, 1));
        let want = leases.next_want().unwrap();
        let range = Range { first, last: first + i64::from(want.values) - 1, count: want.values };
        first += i64::from(want.values);
        leases.drew(want, range, state(range.last, true));
        let loan = leases.next_loan(|_| true).unwrap();
        assert!(leases.lent(loan));
        want.values
    };
    let mut used_up = || {
        let values = lend(&mut leases);
        drop(leases.ask(SEQUENCE, replica, values));
        values
    };
    while used_up() < LEASE_VALUES_MAX {}
    let mut sizes = Vec::new();
    for _ in 0..7 {
        leases.void(SEQUENCE);
        sizes.push(lend(&mut leases));
    }
    assert_eq!(sizes, [4_096, 2_048, 1_024, 512, 256, 256, 256]);
}
