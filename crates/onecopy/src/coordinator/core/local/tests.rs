//! The view never lags behind the effects of an event.

use cluster::claims::Claims;
use cluster::event::{Foreseen, Home, Level, Needs, Reads};
use cluster::ids::{DatabaseId, Epoch, Incarnation, Nonce, ReplicaId, Version};
use cluster::placement::{Placement, Touches};
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::rows::{KEYS_MAX, Options, REFRESH_VERSIONS_MAX, Rows, Rules};
use cluster::record::{RecordBuilder, Statement};

use super::*;
use crate::coordinator::node_link::ViewChange;

const ANCHOR: ReplicaId = ReplicaId(0);
const SESSION: SessionId = SessionId(1);

/// One replica that serves.
fn state(view: &View) -> State {
    let options = Options {
        choices: ONECOPY,
        replicas: 1,
        anchor: ANCHOR,
        placement: Placement::full(1),
        epoch: Epoch(1),
        last: Version::ZERO,
        schema: Version::ZERO,
        refresh_pause_us: 0,
        keys_max: KEYS_MAX,
        refresh_versions_max: REFRESH_VERSIONS_MAX,
        rules: Rules::default(),
    };
    let cluster = Cluster::new(Box::new(Rows::new(options).unwrap()));
    let mut state =
        State { cluster: Some(cluster), elsewhere: Vec::new(), effects: Vec::new(), leases: None };
    let (incarnation, applied) = (Incarnation(1), Version::ZERO);
    for event in [
        Event::ReplicaUp { replica: ANCHOR, incarnation, applied },
        Event::CatalogueLoaded { version: Version::ZERO },
    ] {
        state.handle(Time::default(), event, view, &Crews::default()).for_each(drop);
    }
    state
}

/// Begins and finishes a transaction at the anchor, up to the append of its record.
fn append(state: &mut State, view: &View, record: RecordBuilder) {
    let (reads, writes, catalogue) = (Reads::All, Claims::default(), Version::ZERO);
    let needs = Needs {
        reads: reads.clone(),
        touches: Touches::Anything,
        writes,
        cost_us: 1,
        near: None,
        catalogue,
        kind: None,
    };
    let (session, nonce, level, foreseen) = (SESSION, Nonce(1), Level::ReadCommitted, Foreseen::default());
    let begin = Event::Begin { session, level, nonce, home: Home::Anchor, needs, foreseen };
    let (body, claims, changed) = (Box::new(record.seal()), Vec::new(), Vec::new());
    let finish = Event::Finish { session, body, claims, changed, reads };
    for event in [begin, finish] {
        state.handle(Time::default(), event, view, &Crews::default()).for_each(drop);
    }
}

fn schema_change() -> RecordBuilder {
    let mut record = RecordBuilder::new(DatabaseId::FIRST);
    let (text, role, search_path) = ("CREATE TABLE t ()".to_owned(), "app".to_owned(), "public".to_owned());
    record.push_statement(&Statement { text, role, search_path, settings: Vec::new() }).unwrap();
    record
}

fn rows() -> RecordBuilder {
    let mut record = RecordBuilder::new(DatabaseId::FIRST);
    record.push_delete(DatabaseId::FIRST.table(7), &[0, 0, 0, 0]).unwrap();
    record
}

#[test]
fn the_view_shows_a_version_before_its_client_is_answered() {
    let view = View::new(ANCHOR, Version::ZERO);
    let mut state = state(&view);
    append(&mut state, &view, schema_change());
    assert_eq!((view.durable(), view.last_ddl()), (Version::ZERO, Version::ZERO), "only appended");
    assert!(!view.is_outdated(Version::ZERO));
    let mut effects =
        state.handle(Time::default(), Event::Logged { upto: Version(1) }, &view, &Crews::default());
    assert_eq!((view.durable(), view.last_ddl()), (Version(1), Version(1)), "no effect is carried out yet");
    assert!(view.is_outdated(Version::ZERO) && !view.is_outdated(Version(1)));
    assert!(effects.any(|effect| matches!(effect, Effect::Acknowledge { version: Version(1), .. })));
}

#[test]
fn rows_leave_the_last_schema_change_as_it_is() {
    let view = View::new(ANCHOR, Version::ZERO);
    let mut state = state(&view);
    append(&mut state, &view, rows());
    state
        .handle(Time::default(), Event::Logged { upto: Version(1) }, &view, &Crews::default())
        .for_each(drop);
    assert_eq!((view.durable(), view.last_ddl()), (Version(1), Version::ZERO));
}

#[test]
fn another_node_learns_of_a_version_before_any_effect_of_it() {
    let (view, crews) = (View::new(ANCHOR, Version::ZERO), Crews::default());
    let mut state = state(&view);
    let (queue, mut told) = mpsc::channel(16);
    crews.join(queue, state.cluster.as_ref(), ANCHOR, Vec::new()).unwrap();
    append(&mut state, &view, schema_change());
    while told.try_recv().is_ok() {}
    let effects = state.handle(Time::default(), Event::Logged { upto: Version(1) }, &view, &crews);
    assert!(effects.len() > 0, "they are not carried out yet");
    let first = told.try_recv();
    let (durable, last_ddl) = (Version(1), Version(1));
    assert!(
        matches!(first, Ok(ToNode::View(ViewChange::Versions { durable: d, last_ddl: l })) if (d, l) == (durable, last_ddl)),
        "{first:?}"
    );
}
