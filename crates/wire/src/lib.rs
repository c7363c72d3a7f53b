//! The PostgreSQL v3 protocol over borrowed bytes.
//!
//! A proxy that wants to be as cheap as PgBouncer does not decode the messages that it relays. So this crate has three
//! small layers. [`frame`] walks message headers over a raw buffer; [`frontend`] and [`backend`] give borrowing views of
//! the few messages that Onecopy must understand; [`encode`] appends messages to a buffer. [`startup`] reads the
//! untagged beginning of a connection, [`sqlstate`] holds the codes that Onecopy itself gives, and [`oids`] finds the
//! object ids in descriptions.
//!
//! Invariant: bytes of rows are never copied or interpreted here, and no input makes this crate panic.
//!
//! Non-goals: sockets, buffers' growth, and the order in which messages are legal (that is the session's).

pub mod backend;
pub mod encode;
pub mod frame;
pub mod frontend;
pub mod oids;
mod read;
pub mod sqlstate;
pub mod startup;

pub use frame::{Frame, FrameError, next_frame};
pub use read::Malformed;
