//! Spilled rows are read as if they had stayed in memory, regardless of rollbacks.

use proptest::collection::vec;
use proptest::prelude::*;

use super::super::tests::{DATABASE, Step, build, push, sample_header, step, step_of};
use super::super::{Item, Record, RecordBuilder};
use super::*;

/// A step of a growing record.
#[derive(Clone, Debug)]
enum Act {
    Push(Step),
    Spill,
    Savepoint,
    RollBack,
    /// Rows that came since the last mark or spill are undone by an exception block.
    Undo,
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => step().prop_map(Act::Push),
        2 => Just(Act::Spill),
        1 => Just(Act::Savepoint),
        1 => Just(Act::RollBack),
        1 => Just(Act::Undo),
    ]
}

/// The steps that a list of items stands for.
fn steps_of<'a>(items: impl Iterator<Item = Item<'a>>) -> Vec<Step> {
    let mut steps = Vec::new();
    for item in items {
        match item {
            Item::Rows(rows) => steps.extend(rows.iter().map(step_of)),
            Item::Statement(statement) => steps.push(Step::Statement(statement)),
            Item::Shipped(shipped) => steps.push(Step::Shipped(shipped)),
            Item::Sequence(sequence) => steps.push(Step::Sequence(sequence)),
            Item::Fence => steps.push(Step::Fence),
            Item::Spilled(_) | Item::Origin(_) => {}
        }
    }
    steps
}

/// A builder, the file beside it, and what should be in the record.
struct Scene {
    builder: RecordBuilder,
    file: Vec<Chunk>,
    /// Every step that counts, with its element's number.
    expected: Vec<(u64, Step)>,
    marks: Vec<(super::super::Mark, usize)>,
    undoable_from: u64,
}

impl Scene {
    fn new() -> Self {
        Self {
            builder: RecordBuilder::new(DATABASE),
            file: Vec::new(),
            expected: Vec::new(),
            marks: Vec::new(),
            undoable_from: 0,
        }
    }

    fn act(&mut self, act: &Act) {
        match act {
            Act::Push(step) => {
                self.expected.push((self.builder.elements(), step.clone()));
                push(&mut self.builder, step);
            }
            Act::Spill => self.file.extend(self.builder.spill()),
            Act::Savepoint => {
                self.marks.push((self.builder.mark(), self.expected.len()));
                self.undoable_from = self.builder.elements();
            }
            Act::RollBack => {
                if let Some(&(mark, len)) = self.marks.last() {
                    self.builder.truncate_to(mark);
                    self.expected.truncate(len);
                    self.undoable_from = self.builder.elements();
                }
            }
            Act::Undo => self.undo(),
        }
    }

    fn undo(&mut self) {
        let is_row = |step: &Step| {
            !matches!(step, Step::Statement(_) | Step::Shipped(_) | Step::Sequence(_) | Step::Fence)
        };
        let from = self.undoable_from;
        let undone = self.expected.iter().filter(|(at, step)| *at >= from && is_row(step));
        let spans: Vec<Span> = undone.map(|&(at, _)| Span { from: at, to: at + 1 }).collect();
        self.builder.drop_rows(&spans);
        self.expected.retain(|(at, step)| *at < from || !is_row(step));
        // What is left in memory was numbered anew; the session does this once, at the end.
        self.marks.clear();
        let in_memory = self.builder.elements();
        self.undoable_from = in_memory;
    }

    fn read(&self, record: &Record) -> Vec<Step> {
        let tables: Vec<TableId> = record.tables().collect();
        let mut steps = Vec::new();
        if let Some(spilled) = record.spilled() {
            let mut check = ChunkCheck::new(spilled);
            for chunk in &self.file {
                let chunk = Chunk::decode(DATABASE, chunk.bytes().to_vec(), &tables).unwrap();
                check.note(&chunk).unwrap();
                steps.extend(steps_of(chunk.without(check.skips()).items()));
            }
            assert!(check.is_complete());
        }
        steps.extend(steps_of(record.items()));
        steps
    }
}

proptest! {
    #[test]
    fn spilled_items_are_read_as_if_they_had_stayed(acts in vec(act(), 0..60)) {
        let mut scene = Scene::new();
        for act in &acts {
            scene.act(act);
        }
        let expected: Vec<Step> = scene.expected.iter().map(|(_, step)| step.clone()).collect();
        let straight = build(&expected);
        prop_assert_eq!(scene.builder.rows(), straight.rows());
        prop_assert_eq!(scene.builder.is_empty(), straight.is_empty());
        let builder = scene.builder.clone();
        let record = Record::decode(builder.finish(sample_header()).bytes().to_vec()).unwrap();
        prop_assert_eq!(scene.read(&record), expected);
        prop_assert_eq!(record.rows(), straight.rows());
        prop_assert_eq!(record.writes_everything(), straight.finish(sample_header()).writes_everything());
    }

    #[test]
    fn damage_to_the_file_is_seen(steps in vec(step(), 1..12), which in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut builder = build(&steps);
        let chunk = builder.spill().unwrap();
        let record = builder.finish(sample_header());
        let tables: Vec<TableId> = record.tables().collect();
        prop_assert!(Chunk::decode(DATABASE, chunk.bytes().to_vec(), &tables).is_ok());
        let mut damaged = chunk.bytes().to_vec();
        let at = which.index(damaged.len());
        damaged[at] ^= 1 << bit;
        prop_assert!(Chunk::decode(DATABASE, damaged, &tables).is_err());
        for len in 0..chunk.bytes().len() {
            prop_assert!(Chunk::decode(DATABASE, chunk.bytes()[..len].to_vec(), &tables).is_err());
        }
    }
}

#[test]
fn another_transactions_chunk_is_noticed() {
    let rows = |n: u8| build(&[Step::Insert(1, vec![n; 9])]);
    let (mut own, mut other) = (rows(1), rows(2));
    own.spill().unwrap();
    let foreign = other.spill().unwrap();
    let spilled = own.finish(sample_header()).spilled().unwrap();
    assert_eq!(ChunkCheck::new(spilled).note(&foreign), Err(DecodeError::BadBodyChecksum));
}

#[test]
fn a_record_that_is_whole_keeps_the_first_format() {
    let mut builder = build(&[Step::Insert(1, vec![7])]);
    let format = |record: &Record| u16::from_le_bytes([record.bytes()[4], record.bytes()[5]]);
    assert_eq!(format(&builder.clone().finish(sample_header())), super::super::FORMAT);
    builder.spill();
    assert_eq!(format(&builder.finish(sample_header())), super::super::FORMAT_SPILLED);
}
