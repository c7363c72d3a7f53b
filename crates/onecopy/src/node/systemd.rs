//! Notifies a service manager by the protocol of `sd_notify(3)`: one datagram, if `NOTIFY_SOCKET` is set.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// The path of the manager's socket.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// Announces a reload. `Type=notify-reload` needs the time to tell it from an earlier notification.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
}

/// Sends a notification. A failure is only logged.
pub(crate) fn tell(words: &str) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, words, "cannot notify the service manager");
    }
}
