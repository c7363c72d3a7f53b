//! Sockets that outlive the program: they wait inside another socket, which is the standard input of the next program.
//!
//! A message of a Unix socket can carry descriptors (SCM_RIGHTS). Who receives it gets new descriptors for the same sockets, by
//! safe means; descriptors that merely stay open would have to be conjured up from their numbers.
//!
//! Each message has one kind, which is its one byte. The receiver's end of the pair is at its end when all messages are read.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Descriptors in one message; Linux takes 253.
const AT_ONCE: usize = 200;
/// A file in memory: everything that is no socket.
const WILL: u8 = b'W';
const LISTENERS: u8 = b'L';
const CLIENTS: u8 = b'C';

/// What has been received.
#[derive(Debug, Default)]
pub(super) struct Received {
    pub(super) will: Vec<u8>,
    pub(super) listeners: Vec<TcpListener>,
    pub(super) sockets: Vec<OwnedFd>,
}

/// Leaves all of it to who gets this socket.
pub(super) fn leave(will: &[u8], listeners: &[TcpListener], clients: &[OwnedFd]) -> io::Result<OwnedFd> {
    let (here, there) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    let mut file = File::from(memfd_create("onecopy sessions", MemfdFlags::CLOEXEC)?);
    file.write_all(will)?;
    file.rewind()?;
    send(&here, WILL, &[file.as_fd()])?;
    send_all(&here, LISTENERS, listeners)?;
    send_all(&here, CLIENTS, clients)?;
    Ok(there)
}

fn send_all(to: &OwnedFd, kind: u8, sockets: &[impl AsFd]) -> io::Result<()> {
    let sockets: Vec<BorrowedFd<'_>> = sockets.iter().map(AsFd::as_fd).collect();
    sockets.chunks(AT_ONCE).try_for_each(|some| send(to, kind, some))
}

fn send(to: &OwnedFd, kind: u8, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors for one message"));
    }
    // The receiver reads when this program has ended, so it would wait for room for ever.
    sendmsg(to, &[IoSlice::new(&[kind])], &mut ancillary, SendFlags::DONTWAIT | SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Takes what was left in the standard input.
pub(super) fn receive() -> io::Result<Received> {
    receive_from(io::stdin().as_fd())
}

pub(super) fn receive_from(from: BorrowedFd<'_>) -> io::Result<Received> {
    let mut received = Received::default();
    loop {
        let mut kind = [0];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(AT_ONCE))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let message =
            recvmsg(from, &mut [IoSliceMut::new(&mut kind)], &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
        if message.bytes == 0 {
            return Ok(received);
        }
        for part in ancillary.drain() {
            let RecvAncillaryMessage::ScmRights(descriptors) = part else { continue };
            match kind[0] {
                LISTENERS => received.listeners.extend(descriptors.map(TcpListener::from)),
                CLIENTS => received.sockets.extend(descriptors),
                _ => {
                    for descriptor in descriptors {
                        File::from(descriptor).read_to_end(&mut received.will)?;
                    }
                }
            }
        }
    }
}
