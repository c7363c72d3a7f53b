//! Answers that are kept: when one read at a replica may be given again in place of a read.

use super::*;

fn answer(bench: &Bench, table: u32) -> Option<Version> {
    let reads = Reads::Tables([DatabaseId::FIRST.table(table)].into());
    bench.protocol.answer_needs(&reads, Version::ZERO)
}

fn written(bench: &Bench, table: u32) -> Option<Version> {
    bench.protocol.last_writer(&Reads::Tables([DatabaseId::FIRST.table(table)].into()))
}

/// What the replica had when a read of the table began.
fn applied_at_read(bench: &mut Bench, table: u32) -> Option<Version> {
    bench.read(S2, table);
    let applied = bench.effects.iter().find_map(|effect| match effect {
        Effect::Execute { session: S2, applied, .. } => Some(*applied),
        _ => None,
    });
    bench.feed(Event::Executed { session: S2 });
    applied
}

fn change_schema(bench: &mut Bench) {
    let mut body = RecordBuilder::new(DatabaseId::FIRST);
    body.push_fence().unwrap();
    bench.feed(Event::Finish {
        session: S1,
        body: Box::new(body.seal()),
        claims: claimed(Claims::everything()),
        changed: Vec::new(),
        reads: Reads::All,
    });
}

#[test]
fn an_answer_needs_what_a_replica_needs() {
    let mut bench = Bench::new();
    assert_eq!(answer(&bench, 7), Some(Version::ZERO));
    bench.begin(S1, false);
    bench.finish(S1, 7, 1);
    assert_eq!(answer(&bench, 7), Some(Version::ZERO), "a write that is not durable may still be lost");
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(answer(&bench, 7), Some(Version(1)), "before any replica has it");
    assert_eq!(answer(&bench, 8), Some(Version::ZERO), "another table");
}

#[test]
fn a_write_counts_for_what_is_kept_as_soon_as_it_is_assigned() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    assert_eq!(applied_at_read(&mut bench, 7), Some(Version::ZERO));
    bench.finish(S1, 7, 1);
    assert_eq!(written(&bench, 7), Some(Version(1)), "the home may show it before it counts as applied");
    assert_eq!(written(&bench, 8), Some(Version::ZERO));
}

#[test]
fn a_read_is_told_what_its_replica_has() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    bench.finish(S1, 7, 1);
    bench.feed(Event::Logged { upto: Version(1) });
    bench.feed(Event::Committed { session: S1 });
    assert_eq!(applied_at_read(&mut bench, 7), Some(Version(1)));
}

#[test]
fn no_answer_outlives_the_catalogue_that_told_what_it_reads() {
    let mut bench = Bench::new();
    bench.begin(S1, false);
    change_schema(&mut bench);
    assert_eq!(answer(&bench, 7), Some(Version::ZERO));
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(answer(&bench, 7), None);
}

#[test]
fn where_reads_need_not_be_fresh_no_answer_is_kept() {
    let bench = Bench::under(Choices { see: See::Local, ..crate::protocols::gargamel::GARGAMEL });
    assert_eq!(answer(&bench, 7), None);
}
