//! How clients of a protocol behave, and what their history is judged by.
//!
//! Example: `optimistic` C-JDBC refuses SERIALIZABLE, so its clients ask for READ COMMITTED, and its history is judged by the
//! row of the table in docs/explanation/protocols/c-jdbc.md.

use clap::ValueEnum;
use cluster::protocols::c_jdbc;
use cluster::protocols::c_jdbc::early_response;
use sim::check::{Allowed, Finding, Judgement, Promise};
use sim::history::{History, Level};

use super::drawn;

/// The protocols that lock the tables of a transaction when it begins; the others capture rows, but for C-JDBC.
const DECLARE_TABLES: [&str; 5] = ["eager", "fr-l", "fr-c", "vr-l", "conflict-aware"];
/// The protocol whose level and early response can be chosen.
const C_JDBC: &str = "c-jdbc";

/// A level of C-JDBC, as for `onecopy up --transaction-level`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LevelName {
    Pessimistic,
    Optimistic,
    PassThrough,
}

/// An early response of C-JDBC, as for `onecopy up --early-response`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum RespondName {
    All,
    Majority,
    First,
}

/// A query cache of C-JDBC, as for `onecopy up --query-cache`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum CacheName {
    Table,
    Database,
}

impl LevelName {
    fn level(self) -> c_jdbc::Level {
        match self {
            Self::Pessimistic => c_jdbc::Level::Pessimistic,
            Self::Optimistic => c_jdbc::Level::Optimistic,
            Self::PassThrough => c_jdbc::Level::PassThrough,
        }
    }
}

impl RespondName {
    fn respond(self) -> early_response::Respond {
        match self {
            Self::All => early_response::Respond::All,
            Self::Majority => early_response::Respond::Majority,
            Self::First => early_response::Respond::First,
        }
    }
}

/// The manner of a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    /// Rows are captured: clients get what they ask for.
    Rows,
    /// Tables are to be declared, and everything is serializable, whatever was asked for.
    Declared,
    /// Statements bring their tables.
    CJdbc(c_jdbc::Level, early_response::Respond),
}

impl Manner {
    /// That of a protocol.
    pub(super) fn of(protocol: &str, level: Option<LevelName>, respond: Option<RespondName>) -> Self {
        if protocol == C_JDBC {
            let level = level.unwrap_or(LevelName::Pessimistic).level();
            Self::CJdbc(level, respond.unwrap_or(RespondName::All).respond())
        } else if DECLARE_TABLES.contains(&protocol) {
            Self::Declared
        } else {
            Self::Rows
        }
    }

    /// Whether the protocol is C-JDBC.
    pub(super) fn is_c_jdbc(self) -> bool {
        matches!(self, Self::CJdbc(..))
    }

    /// Where clients that draw from a sequence want to write, each: `None` where there are no homes.
    pub(super) fn drawing_homes(self) -> Vec<Option<&'static str>> {
        match self {
            Self::Rows => drawn::HOMES.map(Some).to_vec(),
            // A table of a sequence would have to be declared, and `pass-through` draws from none.
            Self::Declared | Self::CJdbc(c_jdbc::Level::PassThrough, _) => Vec::new(),
            Self::CJdbc(..) => vec![None, None],
        }
    }

    /// Whether tables may be declared.
    pub(super) fn declares(self) -> bool {
        self == Self::Declared
    }

    /// The level that a client asks for that would like this one.
    pub(super) fn asked(self, level: Level) -> Level {
        match self {
            Self::CJdbc(c_jdbc::Level::Optimistic | c_jdbc::Level::PassThrough, _) => Level::ReadCommitted,
            _ => level,
        }
    }

    /// The level at which its history is judged.
    pub(super) fn given(self, asked: Level) -> Level {
        match self {
            Self::Declared | Self::CJdbc(c_jdbc::Level::Pessimistic, _) => Level::Serializable,
            Self::Rows | Self::CJdbc(..) => asked,
        }
    }

    /// Whether two statements of a transaction see one state.
    pub(super) fn keeps_state(self) -> bool {
        self.asked(Level::Serializable) == Level::Serializable
    }

    /// Whether a replica that lacks transactions has to be rebuilt.
    pub(super) fn rebuilds(self) -> bool {
        matches!(self, Self::CJdbc(c_jdbc::Level::PassThrough, _))
    }

    /// Judges a history.
    pub(super) fn judge(self, history: &History, promise: Promise) -> Judgement {
        match self {
            Self::CJdbc(level, respond) => {
                let findings: Vec<Finding> = sim::c_jdbc::judge::judge(history, level, respond);
                Judgement { findings, allowed: Allowed::default() }
            }
            Self::Rows | Self::Declared => sim::check::judge(history, promise),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_below_pessimistic_ask_for_read_committed_and_are_judged_by_their_row() {
        let manner = |level| Manner::of("c-jdbc", Some(level), None);
        assert_eq!(manner(LevelName::Optimistic).asked(Level::Serializable), Level::ReadCommitted);
        assert_eq!(manner(LevelName::Pessimistic).given(Level::ReadCommitted), Level::Serializable);
        assert!(manner(LevelName::PassThrough).rebuilds() && !manner(LevelName::Optimistic).keeps_state());
        assert_eq!(Manner::of("eager", None, None), Manner::Declared);
        assert_eq!(Manner::of("onecopy", None, None), Manner::Rows);
    }
}
