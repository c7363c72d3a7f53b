//! The policy against traces of load, in a world where replicas share the work evenly.

use super::*;

const SECOND_US: u64 = 1_000_000;
const BUSY_PERMILLE: u32 = 700;

fn settings(least: u16, most: u16) -> Settings {
    Settings {
        least,
        most,
        busy_permille: BUSY_PERMILLE,
        grow_after_us: 10 * SECOND_US,
        shrink_after_us: 300 * SECOND_US,
        spares: 0,
    }
}

/// Members, of which the first that serves is the anchor, and the changes of their number so far.
struct World {
    policy: Elastic,
    settings: Settings,
    members: Vec<Standing>,
    second: u64,
    changes: Vec<(u64, Decision)>,
}

impl World {
    fn new(settings: Settings, serving: usize, parked: usize) -> Self {
        let mut members = vec![Standing::Serving; serving];
        members[0] = Standing::Anchor;
        members.extend(vec![Standing::Parked; parked]);
        Self { policy: Elastic::new(settings), settings, members, second: 0, changes: Vec::new() }
    }

    fn serving(&self) -> usize {
        self.members.iter().filter(|m| matches!(m, Standing::Anchor | Standing::Serving)).count()
    }

    /// One second with this much work, in permille of what one replica can do. Decisions are carried out at once.
    fn second(&mut self, work: u32) {
        let each = work / u32::try_from(self.serving().max(1)).unwrap();
        let sample = |(number, standing): (usize, &Standing)| Sample {
            replica: ReplicaId(u16::try_from(number).unwrap()),
            standing: *standing,
            busy_permille: each.min(1_000),
            queued_permille: each.saturating_sub(1_000),
        };
        let samples: Vec<Sample> = self.members.iter().enumerate().map(sample).collect();
        self.second += 1;
        let decision = self.policy.observe(Time { us: self.second * SECOND_US }, &samples);
        match decision {
            Decision::Nothing => return,
            Decision::Wake(replica, _) => {
                let member = &mut self.members[usize::from(replica.0)];
                assert_eq!(*member, Standing::Parked, "only a parked replica is woken");
                *member = Standing::Serving;
            }
            Decision::Park(replica, _) => {
                let member = &mut self.members[usize::from(replica.0)];
                assert_eq!(*member, Standing::Serving, "the anchor is never parked");
                *member = Standing::Parked;
                assert!(self.serving() >= usize::from(self.settings.least), "below the lower bound");
            }
            Decision::Provision(purpose, _) => self.members.push(match purpose {
                Purpose::Serve => Standing::Serving,
                Purpose::Spare => Standing::Parked,
            }),
        }
        let running = self.members.iter().filter(|member| **member != Standing::Parked).count();
        assert!(running <= usize::from(self.settings.most), "above the upper bound");
        self.changes.push((self.second, decision));
        self.policy.changed();
    }

    fn seconds(&mut self, seconds: u64, work: u32) {
        for _ in 0..seconds {
            self.second(work);
        }
    }
}

#[test]
fn replicas_follow_the_load_up_and_down() {
    let mut world = World::new(settings(1, 6), 1, 5);
    world.seconds(600, 600);
    assert_eq!((world.serving(), world.changes.len()), (1, 0), "one is enough");
    world.seconds(60, 2_400);
    assert_eq!(world.serving(), 4, "2.4 replicas' work at 0.7 each: {:?}", world.changes);
    assert!(world.changes.last().unwrap().0 <= 600 + 3 * 12, "one change every 10 s: {:?}", world.changes);
    world.seconds(240, 600);
    assert_eq!(world.serving(), 4, "not before shrink_after");
    world.seconds(2_000, 300);
    assert_eq!(world.serving(), 1);
    let parked: Vec<_> = world.changes.iter().filter(|(_, d)| matches!(d, Decision::Park(..))).collect();
    assert_eq!(parked.len(), 3);
    assert!(parked.windows(2).all(|pair| pair[1].0 - pair[0].0 >= 300), "one at a time: {parked:?}");
}

#[test]
fn a_load_that_swings_does_not_move_the_replicas_with_it() {
    let mut world = World::new(settings(1, 6), 1, 5);
    for _ in 0..100 {
        world.seconds(40, 500);
        world.seconds(40, 2_000);
    }
    assert!(world.changes.iter().all(|(_, d)| matches!(d, Decision::Wake(..))), "{:?}", world.changes);
    assert_eq!(world.serving(), 3);
    // A load just above and just below the target moves it once.
    let mut world = World::new(settings(1, 6), 2, 4);
    for _ in 0..200 {
        world.seconds(15, 1_420);
        world.seconds(15, 1_380);
    }
    assert_eq!(world.changes.len(), 1, "{:?}", world.changes);
}

#[test]
fn a_replica_stays_while_the_others_would_be_near_the_target() {
    let mut world = World::new(settings(1, 6), 2, 0);
    world.seconds(2_000, 600);
    assert!(world.changes.is_empty(), "one alone would be 0.6 busy: {:?}", world.changes);
    world.seconds(2_000, 500);
    assert_eq!(world.serving(), 1, "one alone is 0.5 busy");
}

#[test]
fn a_peak_shorter_than_grow_after_is_ignored() {
    let mut world = World::new(settings(1, 6), 2, 4);
    for _ in 0..100 {
        world.seconds(3, 2_000);
        world.seconds(17, 600);
    }
    assert!(world.changes.is_empty(), "{:?}", world.changes);
}

#[test]
fn a_lost_replica_is_replaced_by_a_spare_and_counts_towards_the_upper_bound() {
    let mut world = World::new(settings(2, 3), 2, 2);
    world.members[1] = Standing::Away;
    world.seconds(9, 200);
    world.members[1] = Standing::Serving;
    world.seconds(20, 200);
    assert!(world.changes.is_empty(), "a server that restarts is back before a spare is woken");
    world.members[1] = Standing::Away;
    world.seconds(20, 200);
    let expected = Decision::Wake(ReplicaId(2), Cause::BelowLeast { serving: 1 });
    assert_eq!(world.changes.iter().map(|(_, decision)| *decision).collect::<Vec<_>>(), [expected]);
    // Both that are left are overloaded. A third would exceed the bound once the lost one is back.
    world.seconds(100, 5_000);
    assert_eq!(world.changes.len(), 1, "{:?}", world.changes);
    world.members[1] = Standing::Serving;
    world.seconds(1_000, 200);
    assert_eq!(world.serving(), 2, "the third one is parked again");
}

#[test]
fn a_lost_replica_adds_to_the_work_of_the_others() {
    let mut world = World::new(settings(1, 6), 3, 3);
    world.seconds(100, 1_800);
    assert!(world.changes.is_empty());
    world.members[2] = Standing::Away;
    world.seconds(30, 1_800);
    assert_eq!((world.serving(), world.changes.len()), (3, 1), "{:?}", world.changes);
}

#[test]
fn servers_are_made_when_none_is_parked_and_spares_ahead() {
    let mut world = World::new(Settings { spares: 1, ..settings(2, 4) }, 2, 0);
    world.seconds(30, 100);
    let expected = Decision::Provision(Purpose::Spare, Cause::FewSpares { parked: 0 });
    assert_eq!(world.changes.iter().map(|(_, decision)| *decision).collect::<Vec<_>>(), [expected]);
    world.seconds(200, 9_000);
    assert_eq!((world.serving(), world.members.len()), (4, 4), "{:?}", world.changes);
    world.seconds(2_000, 100);
    assert_eq!(world.serving(), 2);
    let made = world.changes.iter().filter(|(_, d)| matches!(d, Decision::Provision(..))).count();
    assert_eq!(made, 2, "parked replicas are the spares: {:?}", world.changes);
}

#[test]
fn what_is_above_the_upper_bound_is_parked_but_never_the_anchor() {
    let mut world = World::new(settings(1, 1), 1, 0);
    world.members.push(Standing::Serving);
    // Running servers may exceed the bound only until the first decision.
    world.seconds(11, 1_900);
    assert_eq!(world.members, [Standing::Anchor, Standing::Parked]);
}

#[test]
fn the_anchor_stays_even_if_it_is_the_least_busy() {
    let mut policy = Elastic::new(settings(1, 3));
    let sample = |replica, standing, busy_permille| Sample {
        replica: ReplicaId(replica),
        standing,
        busy_permille,
        queued_permille: 0,
    };
    let samples = [sample(0, Standing::Serving, 200), sample(1, Standing::Anchor, 0)];
    let parked = (0..1_000).map(|second| policy.observe(Time { us: second * SECOND_US }, &samples));
    let first = parked.into_iter().find(|decision| *decision != Decision::Nothing);
    assert_eq!(first, Some(Decision::Park(ReplicaId(0), Cause::Calm { permille: 100 })));
}

#[test]
fn a_queue_keeps_a_replica_from_being_parked() {
    let mut policy = Elastic::new(settings(1, 3));
    let sample = |replica, standing| Sample {
        replica: ReplicaId(replica),
        standing,
        busy_permille: 200,
        queued_permille: 400,
    };
    let samples = [sample(0, Standing::Anchor), sample(1, Standing::Serving)];
    for second in 0..1_000 {
        assert_eq!(policy.observe(Time { us: second * SECOND_US }, &samples), Decision::Nothing);
    }
}

#[test]
fn a_change_restarts_the_measurement() {
    let mut policy = Elastic::new(settings(1, 3));
    let sample = |replica, standing, busy_permille| Sample {
        replica: ReplicaId(replica),
        standing,
        busy_permille,
        queued_permille: 0,
    };
    let busy = [sample(0, Standing::Anchor, 900), sample(1, Standing::Parked, 0)];
    let mut decisions = Vec::new();
    for second in 0..25 {
        if policy.observe(Time { us: second * SECOND_US }, &busy) != Decision::Nothing {
            decisions.push(second);
            policy.changed();
        }
    }
    assert_eq!(decisions, [10, 21]);
}
