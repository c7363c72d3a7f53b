//! The bytes of messages and of the log. The paper gives only their sum (table 1), so the sizes here are assumptions.

use cluster::protocols::shipping::{Decision, FromProxy, Kind, Request, ToPeer, ToProxy};

/// The headers of Ethernet, IP and TCP, and the few words of a message.
const HEADER: u64 = 100;
/// The text of a statement with its constants.
const STATEMENT: u64 = 200;
/// The rows that a read returns.
const ROWS: u64 = 2_000;

/// Of a reply to a browser, without the rows: those count where they come from.
pub(super) const ANSWER: u64 = HEADER;

pub(super) fn of_request(request: &Request) -> u64 {
    match request {
        Request::Execute(_) | Request::SingleRead(..) | Request::SingleUpdate(..) => HEADER + STATEMENT,
        Request::Begin(_) | Request::End(_) | Request::InteractionOver => HEADER,
    }
}

pub(super) fn to_proxy(message: &ToProxy) -> u64 {
    let statements = match message {
        ToProxy::Execute { .. } | ToProxy::SingleUpdate { .. } | ToProxy::SingleRead { .. } => 1,
        ToProxy::Redo { writes, .. } => writes.len() as u64,
        ToProxy::Lock { .. } | ToProxy::End { .. } | ToProxy::Undo { .. } => 0,
    };
    HEADER + statements * STATEMENT
}

/// The rows of a read come from the replica, and go on to the browser.
pub(super) fn of_report(report: &FromProxy) -> u64 {
    match report {
        FromProxy::Read(..) => HEADER + 2 * ROWS,
        FromProxy::Done(_, operation) if operation.kind == Kind::Read => HEADER + 2 * ROWS,
        FromProxy::Granted(_) | FromProxy::Done(..) | FromProxy::Ended(..) => HEADER,
    }
}

/// It counts at both schedulers.
pub(super) fn to_peer(message: &ToPeer) -> u64 {
    let statements = match message {
        ToPeer::End(_, Decision::Commit(_, writes)) => writes.len() as u64,
        _ => 0,
    };
    2 * (HEADER + statements * STATEMENT)
}

/// Of so many statements in the log.
pub(super) fn of_log(statements: usize) -> u64 {
    statements as u64 * STATEMENT
}
