//! The rules that keep the promises, one switch each. The simulator's mutants switch one of them off.

/// The consistency rules of the protocol. A rule is off only in tests, to see that a checker notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Rules {
    /// A statement waits until its replica has the needed versions of what it reads.
    pub reads_wait: bool,
    /// A transaction that overlaps an unacknowledged COMMIT at home is appended only after it.
    pub overlap_waits: bool,
    /// The client is answered, and COMMIT sent, only when the record is durable.
    pub durable_first: bool,
    /// Transactions that are open at a lost home are rolled back.
    pub lost_home_aborts: bool,
    /// A version is needed as soon as it is durable, not only when home has committed it.
    pub durable_is_needed: bool,
    /// Updates begin at a home that was lost only when it has all versions that were assigned by then.
    pub home_catches_up: bool,
    /// A new leader takes every record that is in the log as needed.
    pub whole_log_is_needed: bool,
    /// A read whose session has an old catalogue is classified again.
    pub catalogue_is_fresh: bool,
    /// A transaction that claims whole tables, or everything, waits for the versions in flight that these touch.
    pub wide_claims_wait: bool,
    /// A transaction is not appended if another one had its locks after it, and has finished before it.
    pub overtaken_aborts: bool,
    /// The other one counts from when it has finished, not only from when it is in the log.
    pub waiting_overtake: bool,
    /// While the replicas are held at one version nothing is appended.
    pub hold_stops_appends: bool,
    /// Another replica becomes the anchor only when the anchor is lost.
    pub takeover_of_lost: bool,
    /// The replica that takes over holds everything.
    pub takeover_by_holder: bool,
    /// Updates begin at the new anchor only when it has all versions that were assigned by then.
    pub takeover_catches_up: bool,
    /// The replicas count as held only when all that are up have all versions that were appended.
    pub hold_waits: bool,
    /// A transaction is not appended if a version of another home has claims in common with it, and its statement may not have
    /// seen that version.
    pub certifies_writes: bool,
    /// A SERIALIZABLE transaction is not appended if rows that it has read were written since its snapshot.
    pub certifies_reads: bool,
    /// A transaction that may conflict at home with a version that home lacks waits until home has that version.
    pub held_waits: bool,
    /// After that it has to prove that it still holds its locks.
    pub held_is_proved: bool,
    /// The proof counts up to the version that home had when it was asked for, not when it came.
    pub proof_is_of_asking: bool,
    /// Only claims that home holds are certified against the present state of home.
    pub only_held_is_waited_for: bool,
    /// A schema change is applied also at replicas that hold none of its tables.
    pub schema_changes_go_everywhere: bool,
    /// Keys that are not remembered apart any more count as claimed, not only as written.
    pub forgotten_claims_count: bool,
    /// A wait inside a server counts when it is reported twice in a row.
    pub waits_are_confirmed: bool,
    /// A version that a statement waits for is not delayed for batching.
    pub waiters_are_seen: bool,
    /// A commit group is one refresh at the other replicas.
    pub commit_groups_stay_whole: bool,
    /// Home does not put versions into one group that another replica has shown apart.
    pub shown_apart_part: bool,
    /// A replica that comes up shows nothing before it has all versions that were durable then.
    pub comes_up_whole: bool,
    /// Nothing is appended at a home that has versions whose COMMIT was not sent.
    pub unsent_are_waited_for: bool,
    /// A SERIALIZABLE transaction joins no commit group.
    pub serializable_alone: bool,
    /// A transaction has its home where all is held that it needs.
    pub homes_hold_all: bool,
    /// A transaction that merges chains waits for all of them.
    pub merges_wait: bool,
    /// A transaction that splits off a chain waits for the one behind which it does.
    pub splits_wait: bool,
    /// A transaction that is known as a whole begins only when its home has the versions of those before it in its chain that
    /// have committed.
    pub committed_predecessors_count: bool,
    /// By stamps, a transaction starts only when nothing older that conflicts with it is uncommitted.
    pub older_are_waited_for: bool,
    /// By stamps, younger transactions that conflict with one that arrives are undone.
    pub younger_are_undone: bool,
    /// By stamps, transactions are appended in the order of their stamps.
    pub appends_are_ordered: bool,
    /// By stamps, a transaction is undone if an older one waits for it inside a server.
    pub younger_give_way: bool,
    /// A replica commits what it has performed only if that has changed the rows of the record.
    pub digests_are_compared: bool,
    /// With local replicas, reads of a session run at its own.
    pub reads_stay_local: bool,
    /// With local replicas, a session sees its own commits.
    pub own_commits_are_seen: bool,
    /// With local replicas, a session that is connected to another one sees everything durable there.
    pub moved_sessions_see_all: bool,
    /// With local replicas, a session that has run something at another one sees at its own what it may have seen there.
    pub elsewhere_counts: bool,
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
            homes_hold_all: true,
            merges_wait: true,
            splits_wait: true,
            committed_predecessors_count: true,
            older_are_waited_for: true,
            younger_are_undone: true,
            appends_are_ordered: true,
            younger_give_way: true,
            digests_are_compared: true,
            reads_stay_local: true,
            own_commits_are_seen: true,
            moved_sessions_see_all: true,
            elsewhere_counts: true,
        }
    }
}
