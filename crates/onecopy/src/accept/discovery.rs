//! Discovery: a node answers a multicast question with its address for clients and its load.
//!
//! Middle-R, section 2.1.5: the driver "internally broadcasts a multicast message to discover Middle-R replicas. Each replica replies to
//! this message and includes information about its current load." For example, over UDP:
//!
//! ```text
//! onecopy? 1 00000000deadbeef                      to the group 239.255.64.32:6431
//! onecopy! 1 00000000deadbeef 12 10.0.0.1 6432     from each node: the token of the question, load, address, port
//! onecopy! 1 00000000deadbeef 3 * 6432             one that listens on all addresses: that of the answer's sender
//! ```
//!
//! The load is 1, for each session 1, and for each session that executes or waits another 1.
//!
//! Invariants: an answer is as long as its question, so nobody can use a node to send a victim more than was sent to the node. Only
//! a question of exactly this form is answered, and only while `/ready` reports 200. The load is counted at most ten times a second.
//!
//! Non-goals: who may ask. A node tells no more than its port would, and how busy it is.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::net::UdpSocket;

use crate::local::session_registry::{Activity, SessionRegistry};

/// The size of each message.
pub(crate) const MESSAGE_BYTES: usize = 128;

/// A load is told for so long.
const LOAD_AGE_MAX: Duration = Duration::from_millis(100);
/// Pause after receiving failed.
const PAUSE: Duration = Duration::from_millis(100);

const QUESTION: &str = "onecopy? 1";
const ANSWER: &str = "onecopy! 1";
/// Stands for the address of the answer's sender.
const SENDER: &str = "*";

/// A message, padded.
pub(crate) type Message = [u8; MESSAGE_BYTES];

/// Where a node serves clients, and its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Its address.
    pub(crate) address: SocketAddr,
    /// Its load, at least 1.
    pub(crate) load: u64,
}

impl Found {
    /// As `GET /nodes` has it.
    pub(crate) fn to_json(self) -> Value {
        json!({ "host": self.address.ip().to_string(), "port": self.address.port(), "load": self.load })
    }

    /// What `GET /nodes` has.
    pub(crate) fn of_json(value: &Value) -> Option<Self> {
        let ip: IpAddr = value.get("host")?.as_str()?.parse().ok()?;
        let port = u16::try_from(value.get("port")?.as_u64()?).ok()?;
        Some(Self { address: SocketAddr::new(ip, port), load: value.get("load")?.as_u64()?.max(1) })
    }
}

/// The question with this token.
pub(crate) fn question(token: u64) -> Message {
    padded(&format!("{QUESTION} {token:016x}"))
}

/// The token of a question.
fn asked(message: &[u8]) -> Option<u64> {
    let text = unpadded(message)?.strip_prefix(QUESTION)?.strip_prefix(' ')?;
    token(text)
}

fn answer(token: u64, listens_on: SocketAddr, load: u64) -> Message {
    let ip = listens_on.ip();
    let host = if ip.is_unspecified() { SENDER.to_owned() } else { ip.to_string() };
    padded(&format!("{ANSWER} {token:016x} {load} {host} {}", listens_on.port()))
}

/// What an answer to the question with this token says, from this sender.
pub(crate) fn answered(message: &[u8], to: u64, sender: IpAddr) -> Option<Found> {
    let text = unpadded(message)?.strip_prefix(ANSWER)?.strip_prefix(' ')?;
    let words: Vec<&str> = text.split(' ').collect();
    let [told, load, host, port] = words.as_slice() else { return None };
    let ip = if *host == SENDER { sender } else { host.parse().ok()? };
    let (load, port) = (load.parse::<u64>().ok()?, port.parse().ok()?);
    (token(told)? == to).then_some(Found { address: SocketAddr::new(ip, port), load: load.max(1) })
}

fn token(text: &str) -> Option<u64> {
    let is_hexadecimal = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    u64::from_str_radix(text, 16).ok().filter(|_| is_hexadecimal)
}

fn padded(text: &str) -> Message {
    let mut message = [b' '; MESSAGE_BYTES];
    message[..text.len()].copy_from_slice(text.as_bytes());
    message
}

fn unpadded(message: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(message).ok().filter(|text| text.len() == MESSAGE_BYTES)?;
    Some(text.trim_end_matches(' '))
}

/// The interface of a node that listens there, for multicast; the system chooses one for a node that listens on all.
pub(crate) fn interface(listens_on: SocketAddr) -> Ipv4Addr {
    match listens_on.ip() {
        IpAddr::V4(ip) => ip,
        IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// A socket that hears questions to the group.
pub(crate) async fn listen(group: SocketAddr, listens_on: SocketAddr) -> std::io::Result<UdpSocket> {
    let IpAddr::V4(ip) = group.ip() else {
        return Err(std::io::Error::new(std::io::ErrorKind::InvalidInput, "the group is no IPv4 address"));
    };
    // Bound to the group, it hears nothing but what is sent there.
    let socket = UdpSocket::bind(group).await?;
    socket.join_multicast_v4(ip, interface(listens_on))?;
    Ok(socket)
}

/// The load of a node.
pub(crate) fn load(sessions: &SessionRegistry) -> u64 {
    let entries = sessions.entries();
    let works = |activity| matches!(activity, Activity::Active | Activity::Waiting);
    let busy = entries.iter().filter(|entry| works(entry.activity())).count();
    1 + (entries.len() + busy) as u64
}

/// Answers questions until the task is dropped, as long as there is a load to tell.
pub(crate) async fn serve(socket: UdpSocket, listens_on: SocketAddr, load: impl Fn() -> Option<u64>) {
    let mut counted: Option<(Instant, Option<u64>)> = None;
    // One byte more, so that a longer message is not taken for a whole one.
    let mut message = [0; MESSAGE_BYTES + 1];
    // The socket of the group cannot send from the group's address.
    let Ok(out) = UdpSocket::bind((interface(listens_on), 0)).await else { return };
    loop {
        let Ok((length, sender)) = socket.recv_from(&mut message).await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let Some(token) = asked(&message[..length]) else { continue };
        let present = match counted {
            Some((at, load)) if at.elapsed() < LOAD_AGE_MAX => load,
            _ => counted.insert((Instant::now(), load())).1,
        };
        if let Some(load) = present {
            // A client that gets no answer asks again, or asks another node.
            let _ = out.send_to(&answer(token, listens_on, load), sender).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6432);

    #[test]
    fn an_answer_says_where_clients_are_served_and_the_load() {
        let sender = IpAddr::from([10, 0, 0, 9]);
        assert_eq!(asked(&question(7)), Some(7));
        let told = answered(&answer(7, HERE, 3), 7, sender);
        assert_eq!(told, Some(Found { address: HERE, load: 3 }));
        let everywhere = SocketAddr::from(([0, 0, 0, 0], 6432));
        let told = answered(&answer(7, everywhere, 3), 7, sender).expect("an answer");
        assert_eq!(told.address.ip(), sender, "the address from which it came");
        assert_eq!(answered(&answer(7, HERE, 3), 8, sender), None, "to another question");
        let found = Found { address: HERE, load: 3 };
        assert_eq!(Found::of_json(&found.to_json()), Some(found));
        let longest = SocketAddr::from(([0xffff; 8], u16::MAX));
        assert_eq!(
            answered(&answer(u64::MAX, longest, u64::MAX), u64::MAX, sender).map(|one| one.address),
            Some(longest)
        );
    }

    #[test]
    fn nonsense_gets_no_answer() {
        let good = question(7);
        assert_eq!(asked(&good[..100]), None, "short");
        assert_eq!(asked(&[&good[..], b" "].concat()), None, "long");
        for text in [
            "",
            "onecopy? 1",
            "onecopy? 2 0000000000000007",
            "onecopy? 1 7",
            "onecopy? 1 +000000000000007",
            "GET / HTTP/1.1",
        ] {
            assert_eq!(asked(&padded(text)), None, "{text}");
        }
        assert_eq!(asked(&[0xff; MESSAGE_BYTES]), None);
        for text in [
            "onecopy! 1",
            "onecopy! 1 0000000000000007 3 nowhere 6432",
            "onecopy! 1 0000000000000007 3 * 65536",
            "onecopy! 1 0000000000000007 -1 * 1",
        ] {
            assert_eq!(answered(&padded(text), 7, HERE.ip()), None, "{text}");
        }
    }
}
