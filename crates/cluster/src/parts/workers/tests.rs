//! The life of a worker, the queue, and a comparison with a model that keeps plain lists.

use proptest::prelude::*;

use super::*;

fn at(us: u64) -> Time {
    Time { us }
}

fn awake(slots: usize, count: u32) -> Workers<u32> {
    let mut workers = Workers::new(slots, None);
    for worker in 0..count {
        workers.join(at(0), worker);
        assert!(workers.wake(at(0), worker));
        workers.woke(at(0), worker);
    }
    workers
}

#[test]
fn links_go_where_least_runs_and_no_further_than_slots() {
    let mut workers = awake(2, 2);
    let took: Vec<Option<u32>> = (0..5)
        .map(|_| {
            let free = workers.free();
            assert!(free.is_none_or(|worker| workers.take(at(0), worker)));
            free
        })
        .collect();
    assert_eq!(took, [Some(0), Some(1), Some(0), Some(1), None]);
    assert!(!workers.take(at(0), 0), "there is no third slot");
    assert_eq!((workers.busy(), workers.state(0)), (4, Some(State::Busy(2))));
    assert_eq!(workers.give(at(1), 1), Some(State::Busy(1)));
    assert_eq!(workers.free(), Some(1));
}

/// IV-B: "Transactions are assigned to each worker in equal portions and in circular order."
#[test]
fn section_4_b_circular_order() {
    let mut workers = awake(1, 3);
    let mut last = None;
    let order: Vec<Option<u32>> = (0..3)
        .map(|_| {
            last = workers.free_after(last);
            last.filter(|worker| workers.take(at(0), *worker))
        })
        .collect();
    assert_eq!(order, [Some(0), Some(1), Some(2)]);
    assert_eq!(workers.free_after(last), None, "all are busy");
    workers.give(at(1), 1);
    assert_eq!(workers.free_after(Some(1)), Some(1), "once around");
}

#[test]
fn the_queue_is_first_come_first_served_over_own_and_common_links() {
    let mut workers = awake(1, 2);
    for (link, at) in [(1, Some(1)), (2, None), (3, Some(0)), (4, None)] {
        workers.wait(Link(link), at);
    }
    workers.wait(Link(1), None);
    assert_eq!(workers.waiting(), 4, "one that waits keeps its place");
    assert_eq!(workers.next(0), Some(Link(2)), "the first waits for the other worker");
    assert_eq!(workers.next(0), Some(Link(3)));
    workers.stop_waiting(Link(4));
    assert_eq!(workers.next(0), None);
    assert!(workers.take(at(0), 1));
    assert_eq!(workers.next(1), None, "it has no slot");
    workers.give(at(1), 1);
    assert_eq!(workers.next(1), Some(Link(1)));
    assert_eq!(workers.waiting(), 0);
}

#[test]
fn a_draining_worker_gets_nothing_and_parks_after_its_last_link() {
    let mut workers = awake(2, 2);
    assert!(workers.take(at(0), 0) && workers.take(at(0), 0));
    workers.wait(Link(9), Some(0));
    workers.drain(at(10), 0);
    assert_eq!(workers.state(0), Some(State::Draining(2)));
    assert_eq!(workers.next(1), Some(Link(9)), "what waited for it may run elsewhere");
    workers.wait(Link(10), Some(0));
    assert_eq!(workers.next(1), Some(Link(10)));
    assert_eq!(workers.give(at(20), 0), Some(State::Draining(1)));
    assert_eq!((workers.has_slot(0), workers.free()), (false, Some(1)));
    assert_eq!(workers.give(at(30), 0), Some(State::Parked));
    assert_eq!((workers.parked(), workers.awake()), (Some(0), 1));
    assert_eq!(workers.spent(at(99), 0), Some(Spent { busy_us: 20 + 20 + 10, awake_us: 30 }));
    workers.drain(at(40), 1);
    assert_eq!(workers.state(1), Some(State::Parked), "it ran nothing");
}

#[test]
fn no_more_wake_than_the_bound_allows() {
    let mut workers = Workers::new(1, Some(1));
    (0..2).for_each(|worker: u32| workers.join(at(0), worker));
    assert_eq!((workers.free(), workers.parked()), (None, Some(0)));
    assert!(workers.wake(at(5), 0));
    assert!(!workers.wake(at(5), 1) && !workers.may_wake());
    assert_eq!(workers.free(), None, "it is not there yet");
    workers.woke(at(7), 0);
    assert_eq!(workers.free(), Some(0));
    assert_eq!(workers.spent(at(9), 0), Some(Spent { busy_us: 0, awake_us: 4 }), "waking is paid, too");
    workers.leave(0);
    assert!(workers.may_wake() && workers.wake(at(9), 1));
}

#[test]
fn what_a_lost_worker_ran_is_not_counted_any_more() {
    let mut workers = awake(1, 2);
    assert!(workers.take(at(0), 0) && workers.take(at(0), 1));
    workers.wait(Link(1), Some(0));
    workers.leave(0);
    assert_eq!((workers.busy(), workers.state(0), workers.give(at(1), 0)), (1, None, None));
    workers.give(at(1), 1);
    assert_eq!(workers.next(1), Some(Link(1)));
}

/// Plain lists, searched from end to end.
struct Model {
    states: Vec<State>,
    busy_us: Vec<u64>,
    queue: Vec<(Link, Option<u32>)>,
}

const COUNT: u32 = 3;
const SLOTS: usize = 2;
const BOUND: usize = 2;

impl Model {
    fn has_slot(&self, worker: u32) -> bool {
        let state = self.states[worker as usize];
        state == State::Free || matches!(state, State::Busy(running) if running < SLOTS)
    }

    fn free(&self) -> Option<u32> {
        let open = (0..COUNT).filter(|worker| self.has_slot(*worker));
        open.min_by_key(|worker| running(self.states[*worker as usize]))
    }

    fn next(&mut self, worker: u32) -> Option<Link> {
        let is_next = |(_, at): &(Link, Option<u32>)| at.is_none_or(|at| at == worker);
        let first = self.queue.iter().position(is_next).filter(|_| self.has_slot(worker))?;
        Some(self.queue.remove(first).0)
    }

    fn release(&mut self, worker: u32) {
        self.queue.iter_mut().filter(|(_, at)| *at == Some(worker)).for_each(|(_, at)| *at = None);
    }

    fn awake(&self) -> usize {
        self.states.iter().filter(|state| **state != State::Parked).count()
    }
}

/// One step at both; `what` chooses it.
fn step(workers: &mut Workers<u32>, model: &mut Model, now: Time, what: u8, worker: u32, link: u64) {
    let state = model.states[worker as usize];
    match what {
        0 => {
            let may = state == State::Parked && model.awake() < BOUND;
            assert_eq!(workers.wake(now, worker), may);
            if may {
                model.states[worker as usize] = State::Waking;
            }
        }
        1 => {
            workers.woke(now, worker);
            if state == State::Waking {
                model.states[worker as usize] = State::Free;
            }
        }
        2 | 3 => {
            assert_eq!(workers.take(now, worker), model.has_slot(worker));
            if model.has_slot(worker) {
                model.states[worker as usize] = State::Busy(running(state) + 1);
            }
        }
        4 => {
            workers.give(now, worker);
            model.states[worker as usize] = match state {
                State::Busy(1) => State::Free,
                State::Busy(running) => State::Busy(running - 1),
                State::Draining(1) => State::Parked,
                State::Draining(running) => State::Draining(running - 1),
                other => other,
            };
        }
        5 => {
            workers.drain(now, worker);
            if !matches!(state, State::Parked | State::Draining(_)) {
                model.release(worker);
                model.states[worker as usize] =
                    if running(state) == 0 { State::Parked } else { State::Draining(running(state)) };
            }
        }
        6 | 7 => {
            let worker = Some(worker).filter(|_| what == 6);
            workers.wait(Link(link), worker);
            if model.queue.iter().all(|(other, _)| *other != Link(link)) {
                let gets = !matches!(state, State::Parked | State::Draining(_));
                model.queue.push((Link(link), worker.filter(|_| gets)));
            }
        }
        8 => assert_eq!(workers.next(worker), model.next(worker)),
        _ => {
            workers.stop_waiting(Link(link));
            model.queue.retain(|(other, _)| *other != Link(link));
        }
    }
}

proptest! {
    #[test]
    fn workers_are_as_plain_lists_say(
        steps in proptest::collection::vec((0_u8..10, 0..COUNT, 0_u64..6, 0_u64..5), 1..80)
    ) {
        let mut workers = Workers::new(SLOTS, Some(BOUND));
        (0..COUNT).for_each(|worker| workers.join(at(0), worker));
        let parked = vec![State::Parked; COUNT as usize];
        let mut model = Model { states: parked, busy_us: vec![0; COUNT as usize], queue: Vec::new() };
        let mut now = at(0);
        for (what, worker, link, passed_us) in steps {
            now.us += passed_us;
            for (state, busy_us) in model.states.iter().zip(&mut model.busy_us) {
                *busy_us += passed_us * running(*state) as u64;
            }
            step(&mut workers, &mut model, now, what, worker, link);
            prop_assert_eq!(workers.free(), model.free());
            prop_assert_eq!(workers.waiting(), model.queue.len());
            prop_assert_eq!(workers.awake(), model.awake());
            let states: Vec<State> = workers.states().map(|(_, state)| state).collect();
            prop_assert_eq!(&states, &model.states);
            prop_assert_eq!(workers.busy(), states.iter().map(|state| running(*state)).sum::<usize>());
            for worker in 0..COUNT {
                let busy_us = workers.spent(now, worker).map(|spent| spent.busy_us);
                prop_assert_eq!(busy_us, Some(model.busy_us[worker as usize]));
            }
        }
    }
}
