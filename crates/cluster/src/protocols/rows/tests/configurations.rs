//! The configurations of the paper's figure 2: two tables R and S, and nodes N1 to N4, which are the replicas 0 to 3.
//!
//! A *primary copy* is at the only master of its table, a *secondary copy* at another holder, and a table without masters has
//! *multi-master copies*. The text describes a to c. Of d it says only that all kinds of copies may be stored at any node.

use super::stamps::{SAME, Stage};
use super::*;
use crate::event::{Performance, Whole};
use crate::placement::{Copies, ReplicaSet};
use crate::protocols::preventive::PREVENTIVE;

const R: TableId = DatabaseId::FIRST.table(7);
const S: TableId = DatabaseId::FIRST.table(9);
const NONE: [&str; 0] = [];

fn set(replicas: &[u16]) -> ReplicaSet {
    replicas.iter().fold(ReplicaSet::EMPTY, |set, replica| set.with(ReplicaId(*replica)))
}

/// The holders of each table, and its masters.
fn stage(tables: [(TableId, &[u16], &[u16]); 2]) -> Stage {
    let mut placement = Placement::full(4);
    for (table, holders, masters) in tables {
        placement.restrict(table, Copies::Whole(set(holders)));
        placement.set_masters(table, set(masters));
    }
    Stage::on(Bench::of_replicas(4, PREVENTIVE, placement, 0))
}

/// A transaction that updates a row of one table, and touches these tables.
fn update(stage: &mut Stage, session: SessionId, written: TableId, touched: &[TableId]) -> Vec<String> {
    let writes = Claims { rows: vec![(written, session.0)], ..Claims::default() };
    let whole =
        Whole { writes: writes.clone(), reads: Claims::default(), is_sure: true, is_performable: true };
    let needs = Needs {
        reads: Reads::Tables([].into()),
        touches: Touches::Tables(touched.into()),
        writes,
        ..writing(Level::ReadCommitted, &[])
    };
    stage.feed(Event::Begin {
        session,
        level: Level::ReadCommitted,
        nonce: Nonce(session.0),
        home: Home::Any,
        needs,
        foreseen: Foreseen::Whole(Box::new(whole)),
    })
}

/// What the other replicas do when they hear of it.
fn heard(stage: &mut Stage) -> Vec<String> {
    (0..4).flat_map(|replica| stage.deliver(replica)).collect()
}

/// It is done at home, and appended. What each replica does when it is durable.
fn shown(stage: &mut Stage, session: SessionId, written: TableId) -> Vec<String> {
    stage.feed(Event::Executed { session });
    stage.feed(Event::Digest { session, digest: SAME });
    let claims = Claims { rows: vec![(written, session.0)], ..Claims::default() };
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_insert(written, b"row").expect("it is small");
    stage.feed(Event::Finish {
        session,
        body: Box::new(builder.seal()),
        claims: vec![Claimed { turn: 0, is_held: false, claims }],
        changed: Vec::new(),
        reads: Reads::Tables([].into()),
    });
    stage.wait();
    stage.feed(Event::Logged { upto: Version(1) })
}

/// 2 a: "there are only primary copies and secondary copies". N1 and N2 have a secondary copy of the other table, too, since the anchor
/// holds everything.
#[test]
fn figure_2_a_bowtie() {
    for (table, master) in [(R, 0), (S, 1)] {
        let mut stage = stage([(R, &[0, 1, 2, 3], &[0]), (S, &[0, 1, 2, 3], &[1])]);
        assert_eq!(update(&mut stage, S1, table, &[table]), [format!("execute 1 at {master}")]);
        assert_eq!(heard(&mut stage), NONE, "a secondary copy is in read-only mode");
        let said = shown(&mut stage, S1, table);
        assert_eq!(said.iter().filter(|word| word.starts_with("apply")).count(), 3, "{said:?}");
    }
}

/// 2 b: "Since all the nodes perform all the transactions, load balancing is easy".
#[test]
fn figure_2_b_full_replication() {
    let mut stage = stage([(R, &[0, 1, 2, 3], &[]), (S, &[0, 1, 2, 3], &[])]);
    assert_eq!(update(&mut stage, S1, R, &[R]), ["execute 1 at 1"]);
    assert_eq!(heard(&mut stage), ["perform 1 at 0, 1", "perform 1 at 2, 2", "perform 1 at 3, 3"]);
    for replica in [0, 2, 3] {
        stage.performed(replica, Performance::Done(SAME));
    }
    let said = shown(&mut stage, S1, R);
    assert_eq!(said.iter().filter(|word| word.starts_with("commit own")).count(), 3, "{said:?}");
}

/// 2 c: a transaction that reads S to update R "can be entirely executed at N1 [..] and N2 [..]. However it cannot be executed at node
/// N3". N4 has no copy of R.
#[test]
fn figure_2_c_partial_replication() {
    let tables: [(TableId, &[u16], &[u16]); 2] = [(R, &[0, 1, 2], &[]), (S, &[0, 1, 3], &[0])];
    let mut both = stage(tables);
    assert_eq!(update(&mut both, S1, R, &[R, S]), ["execute 1 at 1"]);
    assert_eq!(heard(&mut both), ["perform 1 at 0, 1"]);
    both.performed(0, Performance::Done(SAME));
    let said = shown(&mut both, S1, R);
    assert!(
        said.contains(&"apply 1..1 at 2".to_owned()) && said.contains(&"commit own 1 at 0".to_owned()),
        "{said:?}"
    );

    let mut of_r = stage(tables);
    update(&mut of_r, S1, R, &[R]);
    assert_eq!(heard(&mut of_r), ["perform 1 at 0, 1", "perform 1 at 2, 2"], "the targets are N1, N2 and N3");

    let mut of_s = stage(tables);
    assert_eq!(update(&mut of_s, S1, S, &[S]), ["execute 1 at 0"], "where its primary copy is");
    assert_eq!(heard(&mut of_s), NONE, "s1 and s2 are refreshed");
}

/// 2 d, another mixture: N1 has multi-master copies of both, N2 one of R and a secondary of S, N3 a secondary of R, N4 a multi-master
/// copy of S.
#[test]
fn figure_2_d_partial_replication() {
    let tables: [(TableId, &[u16], &[u16]); 2] = [(R, &[0, 1, 2], &[0, 1]), (S, &[0, 1, 3], &[0, 3])];
    let performed = |table, touched: &[TableId]| {
        let mut stage = stage(tables);
        let home = update(&mut stage, S1, table, touched);
        (home, heard(&mut stage))
    };
    let say = |home: &str, other: &str| (vec![home.to_owned()], vec![other.to_owned()]);
    assert_eq!(performed(R, &[R]), say("execute 1 at 1", "perform 1 at 0, 1"));
    assert_eq!(performed(S, &[S]), say("execute 1 at 3", "perform 1 at 0, 1"));
    assert_eq!(performed(R, &[R, S]), say("execute 1 at 1", "perform 1 at 0, 1"), "N2 can read s");
}
