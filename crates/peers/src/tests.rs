//! Nodes in one process, over real sockets: what links deliver, when they end, and who is refused.

use std::path::Path;
use std::time::Duration;

use cluster::ids::{NodeId, Nonce};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use super::*;
use crate::hello::Hello;
use crate::limits::Limits;
use crate::tls::Security;

const PATIENCE: Duration = Duration::from_mins(1);
const A: NodeId = NodeId(0);
const B: NodeId = NodeId(1);

type Node = (Peers<Vec<u8>>, PeerEvents<Vec<u8>>);

fn port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// The options of `a`, which accepts, and of `b`, which dials it.
fn pair() -> [Options; 2] {
    let [a, b] = [port(), port()].map(|port| format!("127.0.0.1:{port}"));
    let options = |name: &str, listen: &String, other: &str, address: &String| Options {
        name: name.into(),
        others: [(other.to_owned(), address.clone())].into(),
        listen: listen.clone(),
        cluster: "shop".into(),
        run: Nonce(7),
        tls: None,
    };
    [options("a", &a, "b", &b), options("b", &b, "a", &a)]
}

async fn start(options: Options) -> Node {
    Peers::start(options).await.unwrap()
}

async fn next(node: &mut Node) -> PeerEvent<Vec<u8>> {
    timeout(PATIENCE, node.1.recv()).await.expect("an event comes in time").unwrap()
}

async fn up(node: &mut Node) -> LinkId {
    match next(node).await {
        PeerEvent::Up { link, .. } => link,
        other => panic!("{other:?}"),
    }
}

/// Reads messages, which must be numbered from 0, until the link is down.
async fn drained(node: &mut Node) -> (u32, DownReason) {
    let mut count = 0;
    loop {
        match next(node).await {
            PeerEvent::Message { message, .. } => {
                assert_eq!(message[..4], u32::to_be_bytes(count));
                count += 1;
            }
            PeerEvent::Down { reason, .. } => return (count, reason),
            other @ PeerEvent::Up { .. } => panic!("{other:?}"),
        }
    }
}

async fn complains(node: &Node, of: &str) {
    let complained = async {
        while !node.0.complaints().iter().any(|complaint| complaint.contains(of)) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let waited = timeout(PATIENCE, complained).await;
    waited.unwrap_or_else(|_| panic!("no {of:?} in {:?}", node.0.complaints()));
}

fn numbered(number: u32, length: usize) -> Vec<u8> {
    let mut message = number.to_be_bytes().to_vec();
    message.resize(length, 0);
    message
}

async fn send_patiently(node: &Peers<Vec<u8>>, to: NodeId, link: LinkId, count: u32) {
    for number in 0..count {
        node.send(to, link, &numbered(number, 40)).unwrap();
        if number % 500 == 0 {
            tokio::task::yield_now().await;
        }
    }
}

async fn exchanged(mut a: Node, mut b: Node) {
    const COUNT: u32 = 20_000;
    let (to_b, to_a) = (up(&mut a).await, up(&mut b).await);
    tokio::join!(send_patiently(&a.0, B, to_b, COUNT), send_patiently(&b.0, A, to_a, COUNT));
    for node in [&mut a, &mut b] {
        for number in 0..COUNT {
            let PeerEvent::Message { message, .. } = next(node).await else { panic!("no message") };
            assert_eq!(message, numbered(number, 40));
        }
    }
    assert_eq!(a.0.send(B, LinkId(0), &vec![]), Err(NotSent::Gone));
    a.0.stop().await;
    assert_eq!(drained(&mut b).await, (0, DownReason::Closed));
}

#[tokio::test]
async fn all_messages_arrive_in_order_both_ways() {
    let [a, b] = pair();
    exchanged(start(a).await, start(b).await).await;
}

#[tokio::test]
async fn a_link_that_is_cut_ends_after_its_last_message_and_comes_back() {
    let [a, mut b] = pair();
    let proxy = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let behind = a.listen.clone();
    b.others.insert("a".into(), proxy.local_addr().unwrap().to_string());
    let cut = std::sync::Arc::new(tokio::sync::Notify::new());
    let cuts = std::sync::Arc::clone(&cut);
    tokio::spawn(async move {
        loop {
            let (mut near, _) = proxy.accept().await.unwrap();
            let mut far = TcpStream::connect(&behind).await.unwrap();
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                () = cuts.notified() => {}
            }
        }
    });
    let (mut a, mut b) = (start(a).await, start(b).await);
    let (first, to_a) = (up(&mut a).await, up(&mut b).await);
    for number in 0..2_000 {
        b.0.send(A, to_a, &numbered(number, 4_000)).unwrap();
        if number == 1_000 {
            tokio::task::yield_now().await;
            cut.notify_one();
        }
    }
    let (count, _) = drained(&mut a).await;
    assert!(count <= 2_000);
    drained(&mut b).await;
    let (second, again) = (up(&mut a).await, up(&mut b).await);
    assert!(second > first && again > to_a);
    assert_eq!(b.0.send(A, to_a, &vec![]), Err(NotSent::Gone));
    b.0.send(A, again, &numbered(0, 4)).unwrap();
    assert!(matches!(next(&mut a).await, PeerEvent::Message { link, .. } if link == second));
    a.0.break_link(B, second);
    assert_eq!(drained(&mut a).await.1, DownReason::Broken);
}

#[tokio::test]
async fn a_queue_that_is_full_breaks_the_link_and_a_stalled_consumer_bounds_memory() {
    let [a, b] = pair();
    let limits = Limits { event_bytes: 1 << 20, events: 16, ..Limits::default() };
    let mut a: Node = Peers::start_within(a, limits).await.unwrap();
    let limits = Limits { queue_bytes: 4 << 20, ..Limits::default() };
    let mut b: Node = Peers::start_within(b, limits).await.unwrap();
    let to_a = up(&mut b).await;
    up(&mut a).await;
    let mut sent = 0;
    // Far more than the buffers of both kernels hold.
    let refused = loop {
        assert!(sent < 4_000, "memory grows");
        match b.0.send(A, to_a, &numbered(sent, 64 << 10)) {
            Ok(()) => sent += 1,
            Err(refused) => break refused,
        }
        tokio::time::sleep(Duration::from_micros(200)).await;
    };
    assert_eq!(refused, NotSent::Full);
    assert_eq!(drained(&mut b).await, (0, DownReason::QueueFull));
    assert!(drained(&mut a).await.0 <= sent);
}

#[tokio::test]
async fn frames_that_are_too_long_or_nonsense_end_the_link() {
    let [a, _] = pair();
    let address = a.listen.clone();
    let mut a = start(a).await;
    let hello = || {
        let [_, mut b] = pair();
        b.others.insert("a".into(), "127.0.0.1:1".into());
        Hello::new(&b, "a", None)
    };
    for (frame, reason) in [(&[255; 4][..], "at most 67108864"), (&[0, 0, 0, 2, 9, 9], "")] {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        hello().write(&mut stream).await.unwrap();
        assert_eq!(Hello::read(&mut stream).await.unwrap().refusal, None);
        let link = up(&mut a).await;
        let too_long = vec![0; FRAME_BYTES_MAX];
        assert_eq!(a.0.send(B, link, &too_long), Err(NotSent::TooLong));
        stream.write_all(frame).await.unwrap();
        match drained(&mut a).await {
            (0, DownReason::BadFrame(said)) => assert!(said.contains(reason), "{said}"),
            other => panic!("{other:?}"),
        }
    }
    // A new connection of a peer replaces the old one.
    let mut streams = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        hello().write(&mut stream).await.unwrap();
        streams.push(stream);
        if streams.len() == 2 {
            assert_eq!(drained(&mut a).await, (0, DownReason::Replaced));
        }
        up(&mut a).await;
    }
}

#[tokio::test]
async fn strangers_are_refused_with_the_reason() {
    let [a, b] = pair();
    let address = a.listen.clone();
    let a: Node = start(a).await;
    let hello = Hello::new(&b, "a", None);
    let others = [
        (Hello { cluster: "bank".into(), ..hello.clone() }.frame(LINK_VERSION), "cluster \"bank\""),
        (Hello { to: "c".into(), ..hello.clone() }.frame(LINK_VERSION), "looks for node \"c\""),
        (Hello { from: "x".into(), ..hello.clone() }.frame(LINK_VERSION), "node \"x\" may not dial"),
        (Hello { nodes: vec![], ..hello.clone() }.frame(LINK_VERSION), "list the same"),
        (hello.frame(9), "version 9 of the link, this node version 1"),
        (Ok(b"GET / HTTP/1.1\r\n\r\n".to_vec()), "is no node"),
    ];
    for (frame, reason) in others {
        let mut stream = TcpStream::connect(&address).await.unwrap();
        stream.write_all(&frame.unwrap()).await.unwrap();
        complains(&a, reason).await;
    }
    let mut silent = TcpStream::connect(&address).await.unwrap();
    assert_eq!(timeout(PATIENCE, silent.read(&mut [0])).await.unwrap().unwrap_or(0), 0);
    complains(&a, "did not say who it is").await;
}

#[tokio::test]
async fn silent_connections_do_not_keep_a_node_out() {
    let [a, b] = pair();
    let address = a.listen.clone();
    let limits = Limits { unauthenticated: 2, handshake: Duration::from_hours(1), ..Limits::default() };
    let mut a: Node = Peers::start_within(a, limits).await.unwrap();
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(&address).await.unwrap());
    }
    let mut read = [0];
    let closed = timeout(PATIENCE, silent[0].read(&mut read)).await.expect("the oldest one gives way");
    assert_eq!(closed.unwrap_or(0), 0);
    let _b = start(b).await;
    up(&mut a).await;
}

fn certify(folder: &Path, authority: &CertifiedIssuer<'_, KeyPair>, file: &str, name: &str) {
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, authority).unwrap();
    std::fs::write(folder.join(format!("{file}.pem")), certificate.pem()).unwrap();
    std::fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
}

fn authority(folder: &Path, file: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut parameters = CertificateParams::new(Vec::new()).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
    std::fs::write(folder.join(file), issuer.pem()).unwrap();
    issuer
}

fn files(folder: &Path, authority: &str, name: &str) -> TlsFiles {
    TlsFiles {
        authority: folder.join(authority),
        certificate: folder.join(format!("{name}.pem")),
        key: folder.join(format!("{name}.key")),
    }
}

#[tokio::test]
async fn certificates_prove_the_names_of_nodes() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let (ours, theirs) = (authority(folder, "ca"), authority(folder, "other-ca"));
    certify(folder, &ours, "a", "a");
    certify(folder, &ours, "b", "b");
    certify(folder, &theirs, "foreign", "b");
    let [mut a, mut b] = pair();
    a.tls = Some(files(folder, "ca", "a"));
    b.tls = Some(files(folder, "ca", "b"));
    exchanged(start(a.clone()).await, start(b.clone()).await).await;
    // Another authority.
    let mut foreign = b.clone();
    foreign.listen = format!("127.0.0.1:{}", port());
    foreign.tls = Some(files(folder, "ca", "foreign"));
    let accepting = start(a.clone()).await;
    let _dialling = start(foreign).await;
    complains(&accepting, "must be of this cluster's authority").await;
    drop(accepting);
    // The certificate of another node, which it cannot be started with.
    b.tls = Some(files(folder, "ca", "a"));
    let refused = Peers::<Vec<u8>>::start(b.clone()).await.unwrap_err().to_string();
    assert!(refused.contains("is no certificate of node \"b\""), "{refused}");
    // A node that has it all the same.
    let listen = format!("127.0.0.1:{}", port());
    let accepting = start(Options { listen: listen.clone(), ..a.clone() }).await;
    let security = Security::load(&files(folder, "ca", "a"), "a").unwrap();
    let stream = TcpStream::connect(&listen).await.unwrap();
    let mut stream = security.connector.connect("a".try_into().unwrap(), stream).await.unwrap();
    Hello::new(&b, "a", None).write(&mut stream).await.unwrap();
    complains(&accepting, "its certificate does not").await;
    // An acceptor with the certificate of another node.
    let stranger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    b.tls = Some(files(folder, "ca", "b"));
    b.others.insert("a".into(), stranger.local_addr().unwrap().to_string());
    let acceptor = Security::load(&files(folder, "ca", "b"), "b").unwrap().acceptor;
    tokio::spawn(async move {
        loop {
            let _ = acceptor.accept(stranger.accept().await.unwrap().0).await;
        }
    });
    b.listen = format!("127.0.0.1:{}", port());
    let dialling = start(b).await;
    complains(&dialling, "no TLS").await;
}

#[tokio::test]
async fn settings_that_cannot_work_are_refused() {
    let refused = |change: fn(&mut Options)| async move {
        let [mut a, _] = pair();
        change(&mut a);
        Peers::<Vec<u8>>::start(a).await.unwrap_err().to_string()
    };
    assert!(refused(|a| a.listen = "10.0.0.1:1".into()).await.contains("needs TLS"));
    assert!(refused(|a| a.listen = "nowhere".into()).await.contains("host:port"));
    assert!(refused(|a| a.name = "A.b".into()).await.contains("cannot be used"));
    assert!(refused(|a| a.name = "b".into()).await.contains("leave it out"));
}
