//! Many times at which a protocol wants to look again, over the one wake-up that a driver has for it.
//!
//! The driver comes back at one time, the last that it was asked for ([`crate::event::Effect::WakeAt`]). So whenever an alarm
//! is set that is earlier than what the driver was asked for, it has to be asked again; and when it comes back it has
//! forgotten the others, so all alarms are handed out, those that are due to be acted on, the others to be set again.
//!
//! Invariant: while an alarm is set, the driver was asked for its time or an earlier one.
//!
//! A driver may also come back too early, or for an alarm that was cancelled meanwhile: then nothing is due.

use std::collections::BTreeMap;

use crate::time::Time;

/// The alarms of one instance, each set at most once. `A` names them.
#[derive(Debug)]
pub struct Alarms<A> {
    set: BTreeMap<A, Time>,
    /// The time that the driver was asked for last.
    asked: Option<Time>,
}

impl<A> Default for Alarms<A> {
    fn default() -> Self {
        Self { set: BTreeMap::new(), asked: None }
    }
}

impl<A: Ord + Copy> Alarms<A> {
    /// Sets an alarm, instead of the time at which it was set before. Returns the time that the driver has to be asked for,
    /// unless it comes back early enough anyway.
    #[must_use = "the driver has to be asked for this time"]
    pub fn set(&mut self, alarm: A, at: Time) -> Option<Time> {
        self.set.insert(alarm, at);
        if self.asked.is_some_and(|asked| asked <= at) {
            return None;
        }
        self.asked = Some(at);
        Some(at)
    }

    /// The alarm is not needed any more. The driver comes back all the same.
    pub fn cancel(&mut self, alarm: A) {
        self.set.remove(&alarm);
    }

    /// The driver has come back: takes all alarms, in their order, with their times. The caller has to set those again that
    /// are not due.
    #[must_use = "alarms that are not due have to be set again"]
    pub fn ring(&mut self) -> BTreeMap<A, Time> {
        self.asked = None;
        std::mem::take(&mut self.set)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Time {
        Time { us }
    }

    /// Acts like a protocol to which the driver comes back. Returns the alarms that are due, and the times asked for.
    fn come_back(alarms: &mut Alarms<char>, now: Time) -> (String, Vec<Time>) {
        let (mut due, mut asked) = (String::new(), Vec::new());
        for (alarm, at) in alarms.ring() {
            if at <= now {
                due.push(alarm);
            } else {
                asked.extend(alarms.set(alarm, at));
            }
        }
        (due, asked)
    }

    #[test]
    fn the_driver_is_asked_only_for_what_is_earlier() {
        let mut alarms = Alarms::default();
        assert_eq!(alarms.set('b', at(20)), Some(at(20)));
        assert_eq!(alarms.set('c', at(30)), None);
        assert_eq!(alarms.set('d', at(20)), None, "it comes back at that time anyway");
        assert_eq!(alarms.set('a', at(10)), Some(at(10)));
    }

    #[test]
    fn alarms_that_are_due_ring_and_the_others_are_asked_for_again() {
        let mut alarms = Alarms::default();
        let _ = [('a', 30), ('b', 10), ('c', 20), ('d', 10)].map(|(alarm, us)| alarms.set(alarm, at(us)));
        assert_eq!(come_back(&mut alarms, at(10)), ("bd".to_owned(), vec![at(30), at(20)]));
        assert_eq!(
            come_back(&mut alarms, at(15)),
            (String::new(), vec![at(30), at(20)]),
            "it came too early"
        );
        assert_eq!(come_back(&mut alarms, at(30)), ("ac".to_owned(), vec![]));
        assert_eq!(come_back(&mut alarms, at(40)), (String::new(), vec![]), "each rings once");
    }

    #[test]
    fn an_alarm_has_one_time_and_can_be_cancelled() {
        let mut alarms = Alarms::default();
        assert_eq!(alarms.set('a', at(10)), Some(at(10)));
        assert_eq!(alarms.set('a', at(20)), None);
        assert_eq!(come_back(&mut alarms, at(10)), (String::new(), vec![at(20)]), "it was put off");
        alarms.cancel('a');
        assert_eq!(come_back(&mut alarms, at(20)), (String::new(), vec![]));
        assert_eq!(alarms.set('b', at(30)), Some(at(30)), "nothing is asked for any more");
    }

    #[test]
    fn while_an_alarm_is_set_the_driver_comes_back_for_it() {
        let mut alarms = Alarms::default();
        let mut wake_up: Option<Time> = None;
        // Times that jump about, as alarms of several kinds do.
        for step in 0..200_u64 {
            let (alarm, us) = (char::from(b'a' + (step * 7 % 5) as u8), step + step * 13 % 17);
            if step % 11 == 0 {
                alarms.cancel(alarm);
            } else if let Some(asked) = alarms.set(alarm, at(us)) {
                wake_up = Some(asked);
            }
            if wake_up.is_some_and(|time| time <= at(step)) {
                wake_up = come_back(&mut alarms, at(step)).1.last().copied();
            }
            let first = alarms.set.values().min().copied();
            assert!(first.is_none_or(|first| wake_up.is_some_and(|time| time <= first)), "step {step}");
        }
    }
}
