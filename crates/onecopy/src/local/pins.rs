//! State that exists on one server connection of a session.
//!
//! Temporary objects, session locks, LISTEN and WITH HOLD cursors cannot be moved to another connection.
//! [`sql::Traces`] says which statements may create such state. When the transaction has ended, we ask the server
//! whether they did ([`crate::connect::leftovers`]). So a rollback needs no special care, and state that a function
//! created is found, too. Until the server has answered, we assume that the connection holds state.
//!
//! A session whose connection is lost with such state ends ([`crate::pool::pinned_state`]). When sessions share
//! connections, a session with any pin keeps its connection.

/// A reason to keep a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(crate) enum Pin {
    /// A temporary table, view, sequence, type or function.
    Temporary = 1,
    /// An advisory lock of the session.
    AdvisoryLock = 1 << 1,
    /// LISTEN.
    Listen = 1 << 2,
    /// A cursor WITH HOLD.
    Cursor = 1 << 3,
    /// PREPARE. The next connection can prepare it again.
    Prepare = 1 << 4,
    /// A setting whose value Onecopy cannot know.
    Setting = 1 << 5,
    /// Code ran that may have changed settings silently.
    Function = 1 << 6,
    /// The session uses `currval`.
    Currval = 1 << 7,
    /// A statement may have left state, and the server was not asked yet.
    Unknown = 1 << 8,
    /// A PREPARE whose text may contain other statements.
    ForeignPrepare = 1 << 9,
}

impl Pin {
    pub(crate) const ALL: [Self; 10] = [
        Self::Temporary,
        Self::AdvisoryLock,
        Self::Listen,
        Self::Cursor,
        Self::Prepare,
        Self::Setting,
        Self::Function,
        Self::Currval,
        Self::Unknown,
        Self::ForeignPrepare,
    ];

    /// The statement that releases the connection, for error hints.
    pub(crate) fn undone_by(self) -> &'static str {
        match self {
            Self::Temporary => "DROP of its temporary objects",
            Self::AdvisoryLock => "pg_advisory_unlock",
            Self::Listen => "UNLISTEN",
            Self::Cursor => "CLOSE",
            Self::Prepare | Self::ForeignPrepare => "DEALLOCATE",
            Self::Setting | Self::Function => "DISCARD ALL",
            Self::Currval => "DISCARD SEQUENCES",
            Self::Unknown => "the end of its transaction",
        }
    }

    /// The word in SHOW CLIENTS.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Temporary => "temporary",
            Self::AdvisoryLock => "advisory lock",
            Self::Listen => "listen",
            Self::Cursor => "cursor with hold",
            Self::Prepare => "prepare",
            Self::Setting => "setting",
            Self::Function => "function",
            Self::Currval => "currval",
            Self::Unknown => "unknown",
            Self::ForeignPrepare => "prepare by code",
        }
    }

    /// Whether the session survives the loss of this state. On a new connection `currval` fails as in a new session,
    /// and prepared statements are prepared again.
    fn is_dispensable(self) -> bool {
        matches!(self, Self::Currval | Self::Prepare)
    }
}

/// Reasons to keep a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pins(u16);

impl Pins {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn add(&mut self, pin: Pin) {
        self.0 |= pin as u16;
    }

    pub(crate) fn remove(&mut self, pin: Pin) {
        self.0 &= !(pin as u16);
    }

    pub(crate) fn has(self, pin: Pin) -> bool {
        self.0 & pin as u16 != 0
    }

    pub(crate) fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The pins whose loss ends the session.
    pub(crate) fn held(self) -> Self {
        let dispensable = Pin::ALL.into_iter().filter(|pin| pin.is_dispensable());
        Self(dispensable.fold(self.0, |bits, pin| bits & !(pin as u16)))
    }

    /// The pins of what no connection of another process can have.
    pub(crate) fn immovable(self) -> Self {
        Self(self.0 & !(Pin::Prepare as u16))
    }

    /// Whether statements that could see the state must run on its connection.
    pub(crate) fn stays_home(self) -> bool {
        [Pin::Temporary, Pin::Cursor, Pin::Setting, Pin::Function].into_iter().any(|pin| self.has(pin))
    }

    /// The form in the session registry.
    pub(crate) fn bits(self) -> u16 {
        self.0
    }

    /// The reverse of [`Self::bits`].
    pub(crate) fn of(bits: u16) -> Self {
        Self(bits)
    }

    /// The words for error messages.
    pub(crate) fn words(self) -> String {
        let words: Vec<&str> = Pin::ALL.into_iter().filter(|pin| self.has(*pin)).map(Pin::word).collect();
        words.join(", ")
    }
}
