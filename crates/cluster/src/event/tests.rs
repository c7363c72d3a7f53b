//! Events and effects survive a link: what is decoded says the same, and bytes that were changed on the way are refused or say
//! something else, but never panic.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::claims::Footprint;
use crate::ids::{DatabaseId, Epoch, KindId};
use crate::record::RecordBuilder;

fn table() -> impl Strategy<Value = TableId> {
    (0..9_u32).prop_map(|number| DatabaseId::FIRST.table(number))
}

fn claims() -> impl Strategy<Value = Claims> {
    let rows = || vec((table(), any::<u64>()), 0..5);
    (rows(), rows(), rows(), vec(table(), 0..3), any::<bool>()).prop_map(
        |(rows, shared, groups, tables, everything)| Claims { rows, shared, groups, tables, everything },
    )
}

fn needs() -> impl Strategy<Value = Needs> {
    let reads = prop_oneof![
        vec(table(), 0..4).prop_map(|tables| Reads::Tables(tables.into())),
        Just(Reads::Rows(Arc::new(Footprint::default()))),
        Just(Reads::All),
    ];
    (reads, claims(), any::<u32>(), proptest::option::of(0..64_u16), any::<u64>()).prop_map(
        |(reads, writes, cost_us, near, catalogue)| Needs {
            touches: reads.touches(),
            reads,
            writes,
            cost_us,
            near: near.map(ReplicaId),
            catalogue: Version(catalogue),
            kind: Some(Box::new(Kind { id: KindId(catalogue), tables: Vec::new() })),
        },
    )
}

fn body() -> impl Strategy<Value = Box<SealedBody>> {
    vec((table(), vec(any::<u8>(), 4..40)), 0..6).prop_map(|rows| {
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        for (table, row) in rows {
            body.push_delete(table, &row).expect("a few bytes are not too large");
        }
        Box::new(body.seal())
    })
}

fn event() -> impl Strategy<Value = Event> {
    let session = any::<u64>().prop_map(SessionId);
    prop_oneof![
        (session.clone(), needs(), any::<u64>(), claims()).prop_map(|(session, needs, nonce, likely)| {
            let (level, home, foreseen) = (Level::RepeatableRead, Home::Any, Foreseen::Likely(likely));
            Event::Begin { session, level, nonce: Nonce(nonce), home, needs, foreseen }
        }),
        (session.clone(), body(), vec(claims(), 0..3), needs()).prop_map(|(session, body, claims, needs)| {
            let claims = (1..).zip(claims).map(|(turn, claims)| Claimed { turn, is_held: turn > 1, claims });
            let changed = vec![(DatabaseId::FIRST.table(3), ColumnSet::default())];
            Event::Finish { session, body, claims: claims.collect(), changed, reads: needs.reads }
        }),
        session.prop_map(|session| Event::Outcome { session, found: Found::At(Version(session.0)) }),
        any::<u16>().prop_map(|crew| Event::NodeLost { crew: CrewId(crew) }),
    ]
}

fn effect() -> impl Strategy<Value = Effect> {
    (0..3, any::<u64>(), any::<u64>(), 0..64_u16, any::<u32>(), body()).prop_map(
        |(kind, s, v, r, e, body)| {
            let (session, version, replica) = (SessionId(s), Version(v), ReplicaId(r));
            let identity = Identity { epoch: Epoch(e), n: v, nonce: Nonce(s) };
            let incarnation = Incarnation::before(Epoch(e));
            match kind {
                0 => Effect::Append { version, identity, body },
                1 => Effect::Execute {
                    session,
                    replica,
                    incarnation,
                    identity: Some(identity),
                    applied: version,
                },
                _ => Effect::Abort { session, cause: AbortCause::Conflict(Rival::default()) },
            }
        },
    )
}

proptest! {
    #[test]
    fn an_event_survives_a_link(event in event(), at in any::<usize>(), bit in 0..8) {
        let bytes = postcard::to_allocvec(&event).expect("an event has no map without a length");
        let back: Event = postcard::from_bytes(&bytes).expect("what was encoded is decoded");
        prop_assert_eq!(format!("{back:?}"), format!("{event:?}"));
        let mut damaged = bytes;
        let at = at % damaged.len();
        damaged[at] ^= 1_u8 << bit;
        if let Ok(Event::Finish { body, .. }) = postcard::from_bytes(&damaged) {
            prop_assert!(body.row_changes().count() < 7, "a damaged body is refused, or was damaged elsewhere");
            prop_assert!(body.tables().count() < 7);
        }
    }

    #[test]
    fn an_effect_survives_a_link(effect in effect()) {
        let bytes = postcard::to_allocvec(&effect).expect("an effect has no map without a length");
        let back: Effect = postcard::from_bytes(&bytes).expect("what was encoded is decoded");
        prop_assert_eq!(format!("{back:?}"), format!("{effect:?}"));
    }
}
