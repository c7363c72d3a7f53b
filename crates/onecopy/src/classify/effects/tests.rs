//! Checks the parts of an analysis of statements, given as texts.

use sql::{Analyzer, Contents, Limits, Volatility};

use super::*;
use crate::classify::requirements::ProtocolNeeds;

fn catalogue() -> Catalogue {
    let builtin_functions =
        ["currval", "lastval", "setval"].map(|name| (name.to_owned(), Volatility::Volatile)).to_vec();
    Catalogue::new(Contents { builtin_functions, ..Contents::default() })
}

/// The statements of a text, as the simple protocol sends them.
fn requirements(text: &str) -> Requirements {
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
    let mut all = Requirements::default();
    for part in &script.statements {
        all.statements.push(Arc::clone(&part.statement));
        all.sent.push(Sent::Text { text: text.as_bytes().into(), from: 0, part: part.clone() });
    }
    all
}

fn sequences(text: &str) -> SequenceEffects {
    let (all, catalogue) = (requirements(text), catalogue());
    let routings: Vec<_> = all.statements.iter().map(|statement| statement.routing(&catalogue)).collect();
    SequenceEffects::of(&all, &routings, &catalogue)
}

#[test]
fn only_queries_and_modifications_that_are_read_whole_run_again() {
    let execution = |text: &str| {
        let found = Execution::of(&requirements(text));
        (found.verbs, found.is_repeatable)
    };
    assert_eq!(execution("UPDATE t SET v = 1"), (Verbs::Modifications, true));
    assert_eq!(execution("DELETE FROM t; INSERT INTO t VALUES (1)"), (Verbs::Modifications, true));
    assert_eq!(execution("SELECT 1; UPDATE t SET v = 1"), (Verbs::Queries, true));
    assert_eq!(execution("CALL p(1); DO 'BEGIN END'"), (Verbs::Queries, true));
    assert_eq!(execution("LOCK TABLE t"), (Verbs::Any, false));
    let mut portal = requirements("UPDATE t SET v = 1 RETURNING v");
    portal.protocol = ProtocolNeeds { keeps_portal: true, ..ProtocolNeeds::default() };
    let found = Execution::of(&portal);
    assert_eq!((found.verbs, found.is_repeatable), (Verbs::Modifications, false));
    let unparsed = Execution::of(&requirements("UPDATE t SET v = 1").as_unparsed());
    assert!(!unparsed.is_repeatable);
}

#[test]
fn a_wait_that_is_refused_and_a_cursor_that_is_held_are_seen() {
    let execution = |text: &str| {
        let found = Execution::of(&requirements(text));
        (found.nowait, found.holds_cursor)
    };
    assert_eq!(execution("SELECT * FROM t FOR UPDATE NOWAIT"), (true, false));
    assert_eq!(execution("DECLARE c CURSOR WITH HOLD FOR SELECT 1"), (false, true));
    assert_eq!(execution("DECLARE c CURSOR FOR SELECT 1"), (false, false));
}

#[test]
fn control_never_counts_as_a_write() {
    let rows = |text: &str| RowEffects::of(&requirements(text), Some(Because::Update));
    assert!(rows("INSERT INTO t VALUES (1)").may_write);
    assert!(!rows("SAVEPOINT s").may_write);
    assert!(!RowEffects::of(&requirements("SELECT 1"), None).may_write);
    assert!(!RowEffects::of(&requirements("SELECT 1"), Some(Because::Catalogue)).may_write);
    let hides_write = requirements("SHOW work_mem").as_unparsed();
    assert!(RowEffects::of(&hides_write, Some(Because::Unknown)).may_write, "it was caught writing");
    assert!(rows("SELECT * FROM t FOR SHARE").has_locks);
    assert!(rows("WITH d AS (DELETE FROM t RETURNING v) SELECT * FROM d").has_uncounted);
}

#[test]
fn setval_outweighs_truncate() {
    assert_eq!(sequences("SELECT 1").sets, SetsSequences::No);
    assert_eq!(sequences("TRUNCATE t").sets, SetsSequences::ByTruncate);
    assert_eq!(sequences("SELECT setval('s', 5)").sets, SetsSequences::BySetval);
    assert_eq!(sequences("TRUNCATE t; SELECT setval('s', 5)").sets, SetsSequences::BySetval);
}

#[test]
fn a_question_for_draws_alone_is_told_from_one_among_others() {
    assert_eq!(sequences("SELECT 1").asks, AsksDraws::No);
    assert_eq!(sequences("SELECT currval('s')").asks, AsksDraws::Only);
    assert_eq!(sequences("SELECT lastval(), v FROM t").asks, AsksDraws::Also);
}

#[test]
fn the_scope_of_a_statement_is_control_settings_or_data() {
    let scope = |text: &str| Scope::of(&requirements(text));
    assert_eq!(scope("SET work_mem = '1MB'; SHOW work_mem"), Scope::Control);
    assert_eq!(scope("SELECT set_config('work_mem', '1MB', false)"), Scope::Settings);
    assert_eq!(scope("SELECT v FROM t"), Scope::Data);
    assert_eq!(Scope::of(&Requirements::default()), Scope::Control, "nothing runs");
    assert_eq!(Scope::of(&requirements("SHOW work_mem").as_unparsed()), Scope::Data);
    assert!(!sets_unseen(&requirements("SELECT set_config('work_mem', '1MB', false)")));
    assert!(sets_unseen(&requirements("SELECT v FROM t WHERE set_config('work_mem', '1MB', false) = v")));
}
