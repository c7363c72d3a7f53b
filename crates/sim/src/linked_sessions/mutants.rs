//! The mutants of linked sessions: each is the code with one rule off.

/// A rule that can be off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// The log takes records of the newest term only.
    LogIsFenced,
    /// A leader begins when the lease of the former one is over.
    LeaseIsAwaited,
    /// A replica that joins has no former backend, and lets none of a former term in.
    ReplicasAreFenced,
    /// The backends of a lost crew are ended before anything is done in its place.
    LostCrewsAreFenced,
    /// A server is asked whether it has a transaction before that is done in place of a lost crew.
    OrphansAsk,
    /// What is done in place of a lost crew is done at the run of the server that was fenced.
    OrphansAreVouched,
    /// Replicas are told to commit what is durable.
    LogIsAwaited,
    /// What a lost crew has not decided is undone, and what it has is completed.
    LostCrewsEnd,
    /// The same for sessions of the crew that have ended.
    EndedSessionsCount,
    /// Reports of a replica's former run are ignored.
    RunsAreToldApart,
    /// Reports on what a former link was about are not sent on the next one.
    LateReportsAreDropped,
    /// An outcome is told when everything that was said and appended before is known.
    OutcomesWait,
    /// A session whose transaction was lost with the leader says so.
    VoidIsTold,
    /// A replica that joins gets what was decided while it was rolled forward.
    RejoinedGetTail,
    /// A replica that joins says what it has.
    RejoinedSayWhatTheyHave,
}

/// A rule with the error of the code that lacks it.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// The mutant's error.
    pub name: &'static str,
    /// The rule that is off.
    pub rule: Rule,
}

const fn mutant(name: &'static str, rule: Rule) -> Mutant {
    Mutant { name, rule }
}

/// Every rule.
pub const MUTANTS: &[Mutant] = &[
    mutant("the log takes records of former terms", Rule::LogIsFenced),
    mutant("a leader begins in the lease of the former one", Rule::LeaseIsAwaited),
    mutant("a replica joins with former backends", Rule::ReplicasAreFenced),
    mutant("the backends of a lost node stay", Rule::LostCrewsAreFenced),
    mutant("what a lost node has committed is done again", Rule::OrphansAsk),
    mutant("a lost node's work goes on at a server that has crashed", Rule::OrphansAreVouched),
    mutant("a commit does not wait for the log", Rule::LogIsAwaited),
    mutant("a lost node's open transactions stay", Rule::LostCrewsEnd),
    mutant("a lost node's ended sessions are forgotten", Rule::EndedSessionsCount),
    mutant("reports of a former run count", Rule::RunsAreToldApart),
    mutant("reports of a former link count", Rule::LateReportsAreDropped),
    mutant("an outcome does not wait for what was under way", Rule::OutcomesWait),
    mutant("a transaction that was lost goes on", Rule::VoidIsTold),
    mutant("a replica joins without what was decided meanwhile", Rule::RejoinedGetTail),
    mutant("a replica joins and does not say what it has", Rule::RejoinedSayWhatTheyHave),
];
