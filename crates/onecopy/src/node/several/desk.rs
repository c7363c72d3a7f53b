//! Asks the chair for the machine of take-over: calls of etcd wait for the network, so each runs on a thread of its own.
//!
//! Answers come back as [`Answer`]. One that is not answered says so, and the machine reads the chair again.
//!
//! Invariant: a claim that was won is kept until the machine begins its term or it is followed by another claim.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use cluster::ids::{Epoch, NodeId};
use cluster::nodes::term::{Holder, Input, Reading};
use cluster::time::Time;
use commitlog::{Chair, Claim, Claimed, Confirmed, EtcdChair};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::spawn_blocking;

/// Calls under way at a time. Etcd that does not answer costs no more threads.
const CALLS_MAX: usize = 8;
/// Stands for a holder that is none of the configured nodes.
const STRANGER: NodeId = NodeId(u16::MAX);

/// What the machine hears of the chair.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) input: Input,
    /// The claim, if one was won.
    pub(super) claim: Option<Claim>,
    /// What was read, if it was.
    reading: Option<commitlog::Reading>,
}

/// The way to the chair.
pub(super) struct Desk {
    chair: Arc<EtcdChair>,
    names: BTreeMap<String, NodeId>,
    /// The last reading, which a claim compares.
    read: Option<commitlog::Reading>,
    calls: Arc<Semaphore>,
    answers: mpsc::Sender<Answer>,
}

impl Desk {
    /// `names`: the numbers of the nodes.
    pub(super) fn new(chair: EtcdChair, names: BTreeMap<String, NodeId>) -> (Self, mpsc::Receiver<Answer>) {
        let (answers, queue) = mpsc::channel(CALLS_MAX * 2);
        let calls = Arc::new(Semaphore::new(CALLS_MAX));
        (Self { chair: Arc::new(chair), names, read: None, calls, answers }, queue)
    }

    /// An answer has arrived. Returns it for the machine.
    pub(super) fn take(&mut self, answer: Answer) -> (Input, Option<Claim>) {
        let Answer { input, claim, reading } = answer;
        if let Some(reading) = reading {
            self.read = Some(reading);
        }
        (input, claim)
    }

    pub(super) fn read(&self, sent: Time) {
        let names = self.names.clone();
        self.call(Input::Read { sent, reading: None }, move |chair| {
            let found =
                chair.read().map_err(|error| tracing::debug!(%error, "cannot read who leads")).ok()?;
            let reading = Some(Reading {
                revision: found.revision.unsigned_abs(),
                holder: found.leader.as_ref().map(|leader| Holder {
                    node: names.get(&leader.node).copied().unwrap_or(STRANGER),
                    epoch: leader.epoch,
                    nonce: leader.nonce,
                }),
            });
            Some(Answer { input: Input::Read { sent, reading }, claim: None, reading: Some(found) })
        });
    }

    pub(super) fn claim(&self, sent: Time, expected: u64, above: Epoch) {
        let unanswered = Input::Claimed { sent, epoch: None };
        let known = self.read.clone().filter(|reading| reading.revision.unsigned_abs() == expected);
        self.call(unanswered, move |chair| {
            let claimed = chair.claim(&known?, above);
            let claimed =
                claimed.map_err(|error| tracing::debug!(%error, "the lead was not claimed")).ok()?;
            Some(match claimed {
                Claimed::Won(claim) => {
                    let input = Input::Claimed { sent, epoch: Some(claim.epoch) };
                    Answer { input, claim: Some(claim), reading: None }
                }
                Claimed::Lost(reading) => Answer { input: unanswered, claim: None, reading: Some(reading) },
            })
        });
    }

    pub(super) fn confirm(&self, sent: Time, claim: Claim) {
        self.call(Input::Confirmed { sent, is_ours: None }, move |chair| {
            let confirmed = chair.confirm(&claim);
            let confirmed =
                confirmed.map_err(|error| tracing::debug!(%error, "the lead is not confirmed")).ok()?;
            let is_ours = matches!(confirmed, Confirmed::InForce { .. });
            let input = Input::Confirmed { sent, is_ours: Some(is_ours) };
            Some(Answer { input, claim: None, reading: None })
        });
    }

    fn call(&self, unanswered: Input, ask: impl FnOnce(&EtcdChair) -> Option<Answer> + Send + 'static) {
        let (chair, answers) = (Arc::clone(&self.chair), self.answers.clone());
        let nothing = Answer { input: unanswered, claim: None, reading: None };
        // If the machine has gone, the answer is not needed.
        match Arc::clone(&self.calls).try_acquire_owned() {
            Err(_) => drop(answers.try_send(nothing)),
            Ok(permit) => drop(spawn_blocking(move || {
                let answer = ask(&chair).unwrap_or(nothing);
                drop(permit);
                let _ = answers.blocking_send(answer);
            })),
        }
    }
}

/// A moment, as the machine counts.
pub(super) fn time_of(at: Instant, began: Instant) -> Time {
    Time { us: u64::try_from(at.saturating_duration_since(began).as_micros()).unwrap_or(u64::MAX) }
}
