//! Connections to the PostgreSQL servers.

mod buffer;
mod connection;

pub(crate) use buffer::Buffer;
pub(crate) use connection::{Address, BackendError, Connection, Rows, cancel};
