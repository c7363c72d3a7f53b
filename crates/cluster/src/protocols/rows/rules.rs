//! The rules that keep the promises, one switch each: what the simulator's mutants are made of.

/// The consistency rules of the protocol, one switch each. Off only in tests, to see that a checker notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A statement waits until its replica has the needed versions of what it reads.
    pub reads_wait: bool,
    /// A transaction that overlaps an unacknowledged COMMIT at home is appended only after it.
    pub overlap_waits: bool,
    /// The client is answered, and COMMIT sent, only when the record is durable.
    pub durable_first: bool,
    /// What is open at a lost home is rolled back.
    pub lost_home_aborts: bool,
    /// A version is needed as soon as it is durable, not only when home has committed it.
    pub durable_is_needed: bool,
    /// Updates begin at a home that was lost only when it has everything that was assigned by then.
    pub home_catches_up: bool,
    /// A new leader takes every record that is in the log as needed.
    pub whole_log_is_needed: bool,
    /// A read whose session has an old catalogue is classified again.
    pub catalogue_is_fresh: bool,
    /// A transaction that claims whole tables, or everything, waits for the versions in flight that these touch.
    pub wide_claims_wait: bool,
    /// A transaction whose locks somebody else held after it, and who has finished before it, is not appended.
    pub overtaken_aborts: bool,
    /// That counts from when the other has finished, not only from when it is in the log.
    pub waiting_overtake: bool,
    /// While the replicas are held at one version nothing is appended.
    pub hold_stops_appends: bool,
    /// Another replica becomes the anchor only when the anchor is lost.
    pub takeover_of_lost: bool,
    /// It holds everything.
    pub takeover_by_holder: bool,
    /// Updates begin there only when it has everything that was assigned by then.
    pub takeover_catches_up: bool,
    /// They are held only when all that are up have everything that was appended.
    pub hold_waits: bool,
    /// A transaction that claims what a version of another home claims, which its statement may not have seen, is not
    /// appended.
    pub certifies_writes: bool,
    /// Nor is a SERIALIZABLE one that has read what was written since its snapshot.
    pub certifies_reads: bool,
    /// A transaction that may meet at home what that lacks waits until home has it.
    pub held_waits: bool,
    /// Then it has to prove that its locks are still there.
    pub held_is_proved: bool,
    /// That proves something up to what home had when it was asked, not when the answer came.
    pub proof_is_of_asking: bool,
    /// Only what home holds is certified by what home has now.
    pub only_held_is_waited_for: bool,
    /// A schema change is applied also where none of its tables are.
    pub schema_changes_go_everywhere: bool,
    /// Of keys that are not remembered apart any more it is known that they were claimed, not only that they were written.
    pub forgotten_claims_count: bool,
    /// A wait inside a server counts when it is told again.
    pub waits_are_confirmed: bool,
    /// What somebody waits for is not gathered.
    pub waiters_are_seen: bool,
    /// What home commits together is one refresh elsewhere.
    pub commit_groups_stay_whole: bool,
    /// Home does not commit together what another replica has shown apart.
    pub shown_apart_part: bool,
    /// A replica that comes up shows nothing before it has all that was durable then.
    pub comes_up_whole: bool,
    /// Nothing is appended at a home that has versions whose COMMIT was not sent.
    pub unsent_are_waited_for: bool,
    /// A SERIALIZABLE transaction is committed alone.
    pub serializable_alone: bool,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            reads_wait: true,
            overlap_waits: true,
            durable_first: true,
            lost_home_aborts: true,
            durable_is_needed: true,
            home_catches_up: true,
            whole_log_is_needed: true,
            catalogue_is_fresh: true,
            wide_claims_wait: true,
            overtaken_aborts: true,
            waiting_overtake: true,
            hold_stops_appends: true,
            takeover_of_lost: true,
            takeover_by_holder: true,
            takeover_catches_up: true,
            hold_waits: true,
            certifies_writes: true,
            certifies_reads: true,
            held_waits: true,
            held_is_proved: true,
            proof_is_of_asking: true,
            only_held_is_waited_for: true,
            schema_changes_go_everywhere: true,
            forgotten_claims_count: true,
            waits_are_confirmed: true,
            waiters_are_seen: true,
            commit_groups_stay_whole: true,
            shown_apart_part: true,
            comes_up_whole: true,
            unsent_are_waited_for: true,
            serializable_alone: true,
        }
    }
}
