//! What a service manager is told (the protocol of `sd_notify(3)`): one datagram with a few words, if there is anybody
//! who wants to hear it.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Where it listens.
const VARIABLE: &str = "NOTIFY_SOCKET";

/// The configuration is read anew. The time is for `Type=notify-reload`, which must tell this from earlier words.
pub(crate) fn reloading() {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    let us = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
    tell(&format!("RELOADING=1\nMONOTONIC_USEC={us}"));
}

/// Says it. That nobody can hear is no reason to do anything else.
pub(crate) fn tell(words: &str) {
    let Some(path) = std::env::var_os(VARIABLE) else { return };
    let address = match path.as_bytes() {
        [b'@', name @ ..] => SocketAddr::from_abstract_name(name),
        _ => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(words.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, words, "the service manager cannot be told");
    }
}
