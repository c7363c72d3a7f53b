//! A small world around the marks: sessions that draw and set, a log that lags, and a crash that loses what it can.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::ids::DatabaseId;

const HOME: ReplicaId = ReplicaId(0);
const SEQUENCE: SequenceId = DatabaseId::FIRST.sequence(1);
const SESSIONS: usize = 4;

fn state(value: i64, called: bool) -> State {
    State { id: SEQUENCE, value, called, increment: 1, min: 1, max: 1_000_000, cycles: false, start: 1 }
}

fn question(states: &[State], reading: Reading) -> Question<'_> {
    Question { holder: HOME, reading, states, is_exact: false, has_record: false, durable: Version::ZERO }
}

fn added(verdict: Verdict) -> Vec<Sequence> {
    match verdict {
        Verdict::Add(marks) => marks,
        Verdict::ReadAgain => panic!("nothing was set"),
    }
}

#[test]
fn a_mark_is_good_for_many() {
    let mut sequences = Sequences::default();
    let first = added(sequences.judge(question(&[state(1, true)], sequences.reading())));
    assert_eq!((first[0].value, first[0].called, first[0].generation), (1_001, true, 0));
    sequences.note(Version(7), first[0]);
    let reading = sequences.reading();
    let states = [state(2, true)];
    let at = |durable, has_record| Question { has_record, durable, ..question(&states, reading) };
    // Not durable yet: it covers only transactions that come behind it in the log.
    assert_eq!(added(sequences.judge(at(Version(6), true))), []);
    assert_eq!(added(sequences.judge(at(Version(6), false))).len(), 1);
    assert_eq!(added(sequences.judge(at(Version(7), false))), []);
    let far = added(
        sequences
            .judge(Question { durable: Version(9), ..question(&[state(1_002, true)], sequences.reading()) }),
    );
    assert_eq!(far[0].value, 2_002);
    assert_eq!(sequences.marks(None, Version(9), Version(9)), first);
    assert_eq!(sequences.marks(Some(Version(7)), Version(9), Version(9)), []);
}

#[test]
fn marks_keep_to_the_bounds() {
    let ahead = |state: State| {
        let mark = state.mark(HOME, 0, AHEAD_VALUES);
        (mark.value, mark.called)
    };
    let small = State { max: 30_000, ..state(29_990, true) };
    assert_eq!(ahead(small), (30_000, true));
    assert_eq!(ahead(State { increment: 7, ..small }), (29_997, true));
    let down = State { increment: -10, min: -50, max: -1, ..state(-21, true) };
    assert_eq!(ahead(down), (-41, true));
    let last = State { value: i64::MAX, max: i64::MAX, ..state(1, true) };
    assert_eq!(ahead(last), (i64::MAX, true));
    assert_eq!(ahead(State { cycles: true, max: 10, ..state(3, true) }), (3, true));
    assert_eq!(ahead(State { cycles: true, max: 320, ..state(3, false) }), (12, true));
    let whole = State { increment: i64::MIN, min: i64::MIN, max: i64::MAX, ..state(5, true) };
    assert_eq!(ahead(whole), (i64::MIN + 5, true));
}

#[test]
fn a_value_that_is_set_is_marked_as_it_is() {
    let mut sequences = Sequences::default();
    // Restored into a new database: nothing was marked before.
    let restored = [state(42, true)];
    assert!(!sequences.set(&restored));
    let exact = Question { is_exact: true, ..question(&restored, sequences.reading()) };
    let marks = added(sequences.judge(exact));
    assert_eq!((marks[0].value, marks[0].generation), (42, 0));
    sequences.note(Version(1), marks[0]);

    let back = [state(1, false)];
    assert!(sequences.set(&back));
    let stale = question(&back, Reading::default());
    assert_eq!(sequences.judge(stale), Verdict::ReadAgain);
    let marks = added(sequences.judge(question(&back, sequences.reading())));
    assert_eq!((marks[0].value, marks[0].called, marks[0].generation), (1, false, 1));
    // A setting that was not announced, as by a function, is noticed at the next reading.
    let drawn = |value, sequences: &mut Sequences| {
        let reading = sequences.reading();
        sequences.judge(question(&[state(value, true)], reading))
    };
    assert_eq!(added(drawn(500, &mut sequences))[0].generation, 1);
    assert_eq!(drawn(20, &mut sequences), Verdict::ReadAgain);
    assert_eq!(added(drawn(21, &mut sequences))[0].value, 21);
    // One that was read before another reading was judged is only late.
    let early = sequences.reading();
    assert_eq!(added(drawn(30, &mut sequences))[0].generation, 2);
    assert_eq!(added(sequences.judge(question(&[state(29, true)], early)))[0].generation, 2);
}

#[test]
fn a_new_sequence_needs_no_mark() {
    let mut sequences = Sequences::default();
    assert_eq!(added(sequences.judge(question(&[state(1, false)], Reading::default()))), []);
    assert!(sequences.marks(None, Version(9), Version(9)).is_empty());
}

#[test]
fn a_reading_before_a_generation_began_is_repeated() {
    let mut sequences = Sequences::default();
    let marks = added(sequences.judge(question(&[state(100, true)], sequences.reading())));
    sequences.note(Version(1), marks[0]);
    // A function sets it to 5 unseen; one session reads that, another draws 1050, which the mark of before covers.
    let early = sequences.reading();
    let covered = [state(1_050, true)];
    let reading = sequences.reading();
    let relied = Question { durable: Version(1), ..question(&covered, reading) };
    assert_eq!(added(sequences.judge(relied)), []);
    // A session announces a setting and then disappears. A mark at 5 and 1000 more would leave 1050 out.
    assert!(sequences.set(&covered));
    assert_eq!(sequences.judge(question(&[state(5, true)], early)), Verdict::ReadAgain);
}

/// The next step of a session.
#[derive(Clone, Copy, Debug)]
enum Doing {
    Nothing,
    Ran,
    Asked(Reading),
    Read(Reading, State),
    Logged(Version),
}

#[derive(Debug)]
struct Session {
    doing: Doing,
    /// The value it drew last, and the number of settings before.
    drew: Option<(i64, u64)>,
    sets: bool,
}

/// One server, its clients and the log.
struct World {
    sequences: Sequences,
    home: State,
    settings: u64,
    /// Every state that a crash could bring back.
    past: Vec<State>,
    log: Vec<Vec<Sequence>>,
    durable: usize,
    sessions: Vec<Session>,
    acknowledged: Vec<(i64, u64)>,
}

impl World {
    fn new() -> Self {
        let idle = || Session { doing: Doing::Nothing, drew: None, sets: false };
        let home = state(1, false);
        Self {
            sequences: Sequences::default(),
            home,
            settings: 0,
            past: vec![home],
            log: Vec::new(),
            durable: 0,
            sessions: (0..SESSIONS).map(|_| idle()).collect(),
            acknowledged: Vec::new(),
        }
    }

    fn step(&mut self, who: usize, choice: u16) {
        if who == SESSIONS {
            self.durable = self.log.len().min(self.durable + usize::from(choice % 3));
            return;
        }
        match self.sessions[who].doing {
            Doing::Nothing => self.run(who, choice),
            Doing::Ran => self.sessions[who].doing = Doing::Asked(self.sequences.reading()),
            Doing::Asked(reading) => self.sessions[who].doing = Doing::Read(reading, self.home),
            Doing::Read(reading, state) => self.commit(who, reading, state, choice),
            Doing::Logged(version) if version.0 as usize <= self.durable => self.acknowledge(who),
            Doing::Logged(_) => {}
        }
    }

    fn run(&mut self, who: usize, choice: u16) {
        let session = &mut self.sessions[who];
        if choice.is_multiple_of(19) {
            (self.home.value, self.home.called) = (i64::from(choice % 40) + 1, choice.is_multiple_of(2));
            self.settings += 1;
            // Some settings are hidden in functions.
            (session.drew, session.sets) = (None, choice.is_multiple_of(3));
        } else {
            let count =
                if choice.is_multiple_of(5) { i64::from(choice % 8_000) } else { i64::from(choice % 4) + 1 };
            self.home.value += count - i64::from(!self.home.called);
            self.home.called = true;
            (session.drew, session.sets) = (Some((self.home.value, self.settings)), false);
        }
        self.past.push(self.home);
        session.doing = Doing::Ran;
    }

    fn commit(&mut self, who: usize, reading: Reading, state: State, choice: u16) {
        if choice.is_multiple_of(4) {
            self.sessions[who].doing = Doing::Nothing;
            return;
        }
        if std::mem::take(&mut self.sessions[who].sets) && self.sequences.set(&[state]) {
            self.sessions[who].doing = Doing::Ran;
            return;
        }
        let has_record = choice.is_multiple_of(2);
        let durable = Version(self.durable as u64);
        let asked =
            Question { holder: HOME, reading, states: &[state], is_exact: false, has_record, durable };
        match self.sequences.judge(asked) {
            Verdict::ReadAgain => self.sessions[who].doing = Doing::Ran,
            Verdict::Add(marks) if marks.is_empty() && !has_record => self.acknowledge(who),
            Verdict::Add(marks) => {
                let version = Version(self.log.len() as u64 + 1);
                for mark in &marks {
                    self.sequences.note(version, *mark);
                }
                self.log.push(marks);
                self.sessions[who].doing = Doing::Logged(version);
            }
        }
    }

    fn acknowledge(&mut self, who: usize) {
        self.sessions[who].doing = Doing::Nothing;
        self.acknowledged.extend(self.sessions[who].drew.take());
    }

    /// Where the sequence stands when everything that may be lost is, and the marks were applied.
    fn recovered(&self, back_to: usize) -> State {
        let mut home = self.past[back_to % self.past.len()];
        let mut best: Option<Sequence> = None;
        for mark in self.log[..self.durable].iter().flatten() {
            if best.is_none_or(|best| mark.exceeds(&best)) {
                best = Some(*mark);
            }
        }
        if let Some(mark) = best {
            let own = home.mark(HOME, mark.generation, 0);
            // The home may remember another generation; then it is set, else it is only ever moved on.
            if mark.exceeds(&own) || mark.generation > 0 {
                (home.value, home.called) = (mark.value, mark.called);
            }
        }
        home
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]

    #[test]
    fn nothing_acknowledged_is_drawn_twice(
        steps in vec((0..=SESSIONS, any::<u16>()), 0..300),
        back_to in any::<usize>(),
    ) {
        let mut world = World::new();
        for (who, choice) in steps {
            world.step(who, choice);
        }
        let home = world.recovered(back_to);
        let next = home.value + i64::from(home.called);
        let present = world.settings;
        for (value, settings) in &world.acknowledged {
            prop_assert!(*settings < present || *value < next, "{value} is drawn again: {home:?}");
        }
    }
}
