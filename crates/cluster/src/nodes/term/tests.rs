//! Take-over by hand, one test for each rule of the head. Times are in milliseconds.

use super::*;

struct Bench {
    term: Term,
    now_ms: u64,
}

const FIRST: Epoch = Epoch(1);
const SECOND: Epoch = Epoch(2);

fn at(ms: u64) -> Time {
    Time { us: ms * 1_000 }
}

impl Bench {
    /// Node 1 of three, which follows node 0 in term 1.
    fn following() -> Self {
        let others = [NodeId(0), NodeId(2)].into();
        let member = Member { node: NodeId(1), others, nonce: Nonce(9) };
        let term = Term::new(member, Timing::default(), Rules::default(), at(0));
        let mut bench = Self { term, now_ms: 0 };
        let followed = bench.say(Input::Beat { from: NodeId(0), epoch: FIRST, unconfirmed_us: 0 });
        assert!(followed.contains(&Output::Follow { leader: NodeId(0), epoch: FIRST }));
        bench
    }

    fn say(&mut self, input: Input) -> Vec<Output> {
        self.term.handle(at(self.now_ms), input)
    }

    fn after(&mut self, ms: u64) -> Vec<Output> {
        self.now_ms += ms;
        self.say(Input::Tick)
    }

    /// Lets the others say that they do not hear the leader, waits for its rank, and reads the chair.
    fn claim(&mut self, holder: Option<Holder>) -> Vec<Output> {
        let State::Asking { round, .. } = self.term.state else { panic!("{:?}", self.term.state) };
        for from in [NodeId(0), NodeId(2)] {
            self.say(Input::Voted { from, round, hears: false });
        }
        self.after(100);
        let sent = at(self.now_ms);
        self.say(Input::Read { sent, reading: Some(Reading { revision: 7, holder }) })
    }

    /// Leads term 2, opened and not fenced.
    fn leading() -> Self {
        let mut bench = Self::following();
        bench.after(600);
        let old = Holder { node: NodeId(0), epoch: FIRST, nonce: Nonce(1) };
        let claim = Output::Claim { sent: at(bench.now_ms + 100), expected: 7, epoch: SECOND };
        assert!(bench.claim(Some(old)).contains(&claim));
        let led = bench.say(Input::Claimed { sent: at(bench.now_ms), epoch: Some(SECOND) });
        assert_eq!(led[0], Output::Lead { epoch: SECOND });
        bench.say(Input::Opened);
        bench
    }

    fn confirm(&mut self) {
        let sent = at(self.now_ms);
        self.say(Input::Confirmed { sent, is_ours: Some(true) });
    }
}

fn serves(out: &[Output]) -> bool {
    out.iter().any(|output| matches!(output, Output::Serve { .. }))
}

#[test]
fn a_silent_leader_is_given_up_after_its_deadline() {
    let mut bench = Bench::following();
    assert_eq!(bench.after(599), []);
    let given_up = bench.after(1);
    assert_eq!(given_up, [Output::Leave, Output::Ask { epoch: FIRST, round: 1 }]);
}

#[test]
fn a_broken_link_is_enough_to_ask() {
    let mut bench = Bench::following();
    assert_eq!(bench.say(Input::Unlinked(NodeId(2))), [], "it is not the leader");
    assert_eq!(bench.say(Input::Unlinked(NodeId(0)))[0], Output::Leave);
}

/// Trap 1: "A cut-off leader that beats: beats must carry the age of its confirmation."
#[test]
fn design_1_5_1_a_leader_cut_off_from_the_chair_does_not_look_healthy() {
    let mut bench = Bench::following();
    let beat = |unconfirmed_us| Input::Beat { from: NodeId(0), epoch: FIRST, unconfirmed_us };
    for age_ms in [100, 300, 500] {
        bench.after(200);
        assert_eq!(bench.say(beat(age_ms * 1_000)), []);
    }
    bench.after(100);
    assert_eq!(
        bench.say(beat(600_000))[0],
        Output::Leave,
        "at once, and not a deadline after the last good beat"
    );
    bench.after(50);
    assert!(bench.say(beat(650_000)).is_empty(), "it is not followed again");
    assert_eq!(bench.term.follows(), None);
}

/// Step 2: "if one that answers hears L, F does not claim (one-way cut: no flapping)".
#[test]
fn design_1_5_2_no_claim_while_another_node_hears_the_leader() {
    let mut bench = Bench::following();
    bench.after(600);
    bench.say(Input::Voted { from: NodeId(2), round: 1, hears: true });
    for _ in 0..8 {
        let out = bench.after(25);
        assert!(!out.iter().any(|output| matches!(output, Output::Claim { .. })), "{out:?}");
    }
    bench.say(Input::Voted { from: NodeId(0), round: 1, hears: false });
    assert!(matches!(bench.term.state, State::Looking { .. }));
}

#[test]
fn a_node_tells_others_whether_it_hears_the_leader() {
    let mut bench = Bench::following();
    let asked = Input::Asked { from: NodeId(2), epoch: FIRST, round: 4 };
    let vote = |hears| Output::Vote { to: NodeId(2), round: 4, hears };
    assert_eq!(bench.say(asked), [vote(true)]);
    let later = Input::Asked { from: NodeId(2), epoch: SECOND, round: 4 };
    assert_eq!(bench.say(later), [vote(false)], "it knows only an earlier leader");
    bench.now_ms += 600;
    assert_eq!(bench.say(asked)[0], vote(false));
}

#[test]
fn nodes_that_do_not_answer_hold_a_claim_up_for_a_beat() {
    let mut bench = Bench::following();
    bench.after(600);
    bench.after(100);
    // Node 0 is given up, so node 1 is the first in rank.
    let out = bench.after(25);
    assert_eq!(out, [Output::ReadChair { sent: at(725) }]);
}

#[test]
fn whoever_has_the_chair_is_followed() {
    let mut bench = Bench::following();
    bench.after(600);
    let other = Holder { node: NodeId(2), epoch: SECOND, nonce: Nonce(3) };
    let out = bench.claim(Some(other));
    assert!(out.contains(&Output::Follow { leader: NodeId(2), epoch: SECOND }), "{out:?}");
}

#[test]
fn a_claim_whose_answer_was_lost_is_found_in_the_chair() {
    let mut bench = Bench::following();
    bench.after(600);
    bench.claim(Some(Holder { node: NodeId(0), epoch: FIRST, nonce: Nonce(1) }));
    let out = bench.say(Input::Claimed { sent: at(bench.now_ms), epoch: None });
    let sent = at(bench.now_ms);
    assert_eq!(out, [Output::ReadChair { sent }]);
    let own =
        |nonce| Some(Reading { revision: 8, holder: Some(Holder { node: NodeId(1), epoch: SECOND, nonce }) });
    assert_eq!(bench.say(Input::Read { sent, reading: own(Nonce(9)) })[0], Output::Lead { epoch: SECOND });
    // The former run of a node that was started again is as lost as any other leader.
    let mut again = Bench::following();
    again.after(600);
    again.say(Input::Voted { from: NodeId(2), round: 1, hears: true });
    again.after(100);
    let out = again.say(Input::Read { sent, reading: own(Nonce(8)) });
    assert!(matches!(out[..], [Output::Ask { .. }]), "{out:?}");
}

/// Step 6: "Serve nothing, apply nothing at an unfenced replica, until D(1+drift) has passed since the claim was answered".
#[test]
fn design_1_5_6_nothing_is_served_before_the_old_lease_is_over() {
    let mut bench = Bench::leading();
    let wait_ms = Timing::default().lease_is_over_us() / 1_000;
    bench.say(Input::Fenced);
    for _ in 0..wait_ms / 50 {
        assert!(!serves(&bench.after(50)));
        bench.confirm();
    }
    assert!(serves(&bench.after(50)));
}

#[test]
fn design_1_5_6_all_nodes_and_all_replicas_make_the_wait_needless() {
    let mut bench = Bench::leading();
    bench.say(Input::Joined(NodeId(0)));
    bench.say(Input::Joined(NodeId(2)));
    assert!(!serves(&bench.after(1)), "a replica is not fenced");
    assert!(serves(&bench.say(Input::Fenced)));
    assert!(!serves(&bench.after(1)), "it is said once");
}

/// Step 1: "L itself resigns when unconfirmed for 2 D."
#[test]
fn design_1_5_1_a_leader_resigns_when_it_cannot_confirm() {
    let mut bench = Bench::leading();
    let mut out = Vec::new();
    for _ in 0..11 {
        out.extend(bench.after(100));
    }
    assert!(out.contains(&Output::StepDown(Why::Unconfirmed)));
    assert!(out.iter().any(|output| matches!(output, Output::Confirm { .. })), "it had tried");
    assert_eq!(bench.term.leads(), None);
}

/// Else a single lost answer would cost a leader its term, since beats that say so count at once.
#[test]
fn one_lost_confirmation_does_not_make_a_leader_look_cut_off() {
    let mut bench = Bench::leading();
    let mut asked = 0;
    for _ in 0..10 {
        for output in bench.after(100) {
            match output {
                Output::Confirm { .. } => {
                    asked += 1;
                    if asked > 1 {
                        bench.confirm();
                    }
                }
                Output::Beat { unconfirmed_us, .. } => assert!(unconfirmed_us < 600_000, "{unconfirmed_us}"),
                _ => {}
            }
        }
    }
    assert!(asked > 1, "{asked}");
}

#[test]
fn a_leader_that_was_replaced_steps_down() {
    let mut bench = Bench::leading();
    let lost = bench.say(Input::Confirmed { sent: at(0), is_ours: Some(false) });
    assert_eq!(lost[0], Output::StepDown(Why::Replaced));
    let mut bench = Bench::leading();
    let beat = Input::Beat { from: NodeId(2), epoch: Epoch(3), unconfirmed_us: 0 };
    let follows = Output::Follow { leader: NodeId(2), epoch: Epoch(3) };
    assert_eq!(bench.say(beat)[..2], [Output::StepDown(Why::Replaced), follows]);
}

#[test]
fn a_process_that_was_stopped_finds_its_term_over() {
    let mut bench = Bench::leading();
    assert_eq!(bench.after(30_000)[0], Output::StepDown(Why::Unconfirmed));
}

#[test]
fn a_beat_of_a_former_term_says_nothing() {
    let mut bench = Bench::following();
    bench.say(Input::Beat { from: NodeId(2), epoch: SECOND, unconfirmed_us: 0 });
    assert_eq!(bench.say(Input::Beat { from: NodeId(0), epoch: FIRST, unconfirmed_us: 0 }), []);
    assert_eq!(bench.term.follows(), Some((NodeId(2), SECOND)));
}

/// Its leader was replaced by a node that it cannot hear, and hears no other node either.
#[test]
fn a_node_that_is_cut_off_from_all_others_lets_the_one_that_they_have_chosen_lead() {
    let mut bench = Bench::leading();
    bench.say(Input::Confirmed { sent: at(bench.now_ms), is_ours: Some(false) });
    bench.after(1);
    let chosen = Holder { node: NodeId(2), epoch: Epoch(3), nonce: Nonce(2) };
    let reading = Some(Reading { revision: 9, holder: Some(chosen) });
    let sent = at(bench.now_ms);
    let followed = bench.say(Input::Read { sent, reading });
    assert!(followed.contains(&Output::Follow { leader: NodeId(2), epoch: Epoch(3) }), "{followed:?}");
    let claims = |bench: &mut Bench| {
        let mut ms = 0;
        loop {
            let outputs = bench.after(10);
            ms += 10;
            if outputs.iter().any(|output| matches!(output, Output::ReadChair { .. })) {
                return ms;
            }
            assert!(ms < 60_000, "it never claims");
        }
    };
    let first = claims(&mut bench);
    assert!((3_000..4_000).contains(&first), "{first} ms");
    // It claims, and the others take the chair again.
    let next = Holder { epoch: Epoch(5), ..chosen };
    let sent = at(bench.now_ms);
    bench.say(Input::Read { sent, reading: Some(Reading { revision: 11, holder: Some(next) }) });
    let second = claims(&mut bench);
    assert!(second > first + 1_000, "{second} ms");
    // The network heals: what was is forgotten.
    bench.say(Input::Beat { from: NodeId(2), epoch: Epoch(5), unconfirmed_us: 0 });
    assert!(bench.after(599).is_empty());
    assert!(bench.after(1).contains(&Output::Leave));
}

#[test]
fn a_leader_that_hands_over_ends_its_term_first() {
    let mut bench = Bench::leading();
    assert_eq!(bench.say(Input::HandOver { to: NodeId(2) }), [], "it does not serve yet");
    for node in [NodeId(0), NodeId(2)] {
        bench.say(Input::Joined(node));
    }
    assert!(serves(&bench.say(Input::Fenced)));
    assert_eq!(bench.say(Input::HandOver { to: NodeId(1) }), [], "it leads itself");
    let third = Epoch(3);
    let handed = bench.say(Input::HandOver { to: NodeId(2) });
    let yields = Output::Yield { to: NodeId(2), epoch: SECOND };
    let follows = Output::Follow { leader: NodeId(2), epoch: third };
    assert_eq!(handed, [Output::StepDown(Why::HandedOver), yields, follows]);
    // The other one is heard in time.
    bench.after(599);
    bench.say(Input::Beat { from: NodeId(2), epoch: third, unconfirmed_us: 0 });
    assert_eq!(bench.after(599), []);
    assert_eq!(bench.after(1), [Output::Leave, Output::Ask { epoch: third, round: 2 }]);
}

#[test]
fn a_leader_whose_successor_is_lost_can_lead_again() {
    let mut bench = Bench::leading();
    for node in [NodeId(0), NodeId(2)] {
        bench.say(Input::Joined(node));
    }
    bench.say(Input::Fenced);
    bench.say(Input::HandOver { to: NodeId(2) });
    bench.after(600);
    let own = Holder { node: NodeId(1), epoch: SECOND, nonce: Nonce(9) };
    let sent = at(bench.now_ms + 100);
    assert!(bench.claim(Some(own)).contains(&Output::Claim { sent, expected: 7, epoch: Epoch(3) }));
    let led = bench.say(Input::Claimed { sent: at(bench.now_ms), epoch: Some(Epoch(3)) });
    assert_eq!(led[0], Output::Lead { epoch: Epoch(3) });
}

#[test]
fn the_one_to_which_a_leader_hands_over_claims_at_once() {
    let mut bench = Bench::following();
    let stranger = Input::Yielded { from: NodeId(2), epoch: FIRST };
    assert_eq!(bench.say(stranger), [], "it does not lead");
    let handed = bench.say(Input::Yielded { from: NodeId(0), epoch: FIRST });
    assert_eq!(handed, [Output::Leave, Output::ReadChair { sent: at(0) }]);
    let holder = Some(Holder { node: NodeId(0), epoch: FIRST, nonce: Nonce(1) });
    let read = bench.say(Input::Read { sent: at(0), reading: Some(Reading { revision: 7, holder }) });
    assert_eq!(read, [Output::Claim { sent: at(0), expected: 7, epoch: SECOND }]);
}
