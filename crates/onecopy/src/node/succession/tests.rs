//! Sockets are passed on, and clients whose sessions cannot be passed on are told.

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use super::*;

/// A connection: the client's end, and ours.
fn connection(listener: &TcpListener) -> (TcpStream, OwnedFd) {
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    (client, listener.accept().unwrap().0.into())
}

#[test]
fn sockets_outlive_their_descriptors() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // More than one message holds.
    let (mut clients, ours): (Vec<_>, Vec<_>) = (0..300).map(|_| connection(&listener)).unzip();
    let will: Vec<u8> = (0..100_000_u32).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let inheritance = sockets::leave(&will, &[listener], &ours).unwrap();
    drop(ours);
    let received = sockets::receive_from(inheritance.as_fd()).unwrap();
    assert_eq!((received.will, received.sockets.len()), (will, 300));
    for (client, socket) in clients.iter_mut().zip(received.sockets) {
        client.write_all(b"?").unwrap();
        let (mut ours, mut byte) = (TcpStream::from(socket), [0]);
        ours.read_exact(&mut byte).unwrap();
        ours.write_all(b"!").unwrap();
        client.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"!", "in the order in which they were left");
    }
    let [listener] = received.listeners.try_into().unwrap();
    assert_eq!(connection(&listener).0.peer_addr().unwrap(), address, "it still listens");
}

#[test]
fn clients_whose_sessions_nobody_goes_on_with_are_told() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (mut client, ours) = connection(&listener);
    turn_away(vec![ours]);
    let mut said = Vec::new();
    client.read_to_end(&mut said).unwrap();
    let said = String::from_utf8_lossy(&said);
    assert!(said.contains("57P01") && said.contains("FATAL"), "{said}");
}

#[test]
fn sessions_in_another_encoding_are_told_that_they_end() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    for (format, numbers_given) in [(FORMAT + 1, 7), (FORMAT, 7)] {
        let (mut client, socket) = connection(&listener);
        let will = Will { format, numbers_given, sessions: vec![b"another encoding".to_vec()] };
        let will = postcard::to_allocvec(&will).unwrap();
        let inheritance = Inheritance::of(Received { will, listeners: Vec::new(), sockets: vec![socket] });
        assert_eq!(
            (inheritance.unread, inheritance.numbers_given),
            (1, numbers_given),
            "no number is given twice"
        );
        drop(inheritance);
        let mut said = Vec::new();
        client.read_to_end(&mut said).unwrap();
        assert!(String::from_utf8_lossy(&said).contains("57P01"), "format {format}");
    }
}
