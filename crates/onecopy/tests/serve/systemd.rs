//! Promise: systemd learns when a node serves, reloads its configuration and begins to stop. Its signals have no other effect
//! at any time.

use std::io::{BufRead, BufReader};
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;

use rustix::process::Signal;

use super::cluster::plain::Plain;
use super::cluster::served::{Setup, WITHIN};
use super::cluster::{connect, run, value};

struct Ear(UnixDatagram);

impl Ear {
    fn hear(&self) -> String {
        let mut words = [0; 128];
        let length = self.0.recv(&mut words).unwrap();
        String::from_utf8_lossy(&words[..length]).into_owned()
    }
}

#[tokio::test]
async fn a_service_manager_hears_of_each_step_when_it_begins() {
    let server = Plain::start().await;
    let setup = Setup::new(&[&server], "stop_patience = \"10min\"");
    let path = setup.folder.path().join("notify");
    let manager = Ear(UnixDatagram::bind(&path).unwrap());
    manager.0.set_read_timeout(Some(WITHIN)).unwrap();
    let mut node = setup.serve(&[("NOTIFY_SOCKET", path.to_str().unwrap())]).await;
    assert_eq!(manager.hear(), "READY=1");
    node.signal(Signal::HUP);
    let heard = manager.hear();
    let since = heard.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").and_then(|us| us.parse::<u64>().ok());
    assert!(since.is_some_and(|us| us > 0), "{heard}");
    assert_eq!(manager.hear(), "READY=1");
    let client = connect("127.0.0.1", setup.port, "postgres").await.unwrap();
    run(&client, "CREATE TABLE t (a int PRIMARY KEY)").await;
    run(&client, "BEGIN; INSERT INTO t VALUES (1)").await;
    node.signal(Signal::TERM);
    assert_eq!(manager.hear(), "STOPPING=1");
    // Now, and not when all is over: the transaction is still waited for.
    run(&client, "INSERT INTO t VALUES (2); COMMIT").await;
    assert!(node.ended().success());
    assert_eq!(value(&server.client().await, "SELECT count(*) FROM t").await, "2");
}

#[tokio::test]
async fn a_reload_that_comes_before_it_serves_waits_for_that() {
    let server = Plain::start().await;
    let setup = Setup::new(&[&server], "start_patience = \"5s\"");
    setup.serve(&[]).await.stop();
    drop(server);
    let path = setup.folder.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let mut node = setup.spawn(&[("NOTIFY_SOCKET", path.to_str().unwrap())], Stdio::piped());
    let mut said = BufReader::new(node.stderr());
    let mut line = String::new();
    while !line.contains("a server is waited for") {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it does not wait for the server");
    }
    node.signal(Signal::HUP);
    let drain = std::thread::spawn(move || drop(std::io::copy(&mut said, &mut std::io::sink())));
    let status = node.ended();
    assert_eq!(status.code(), Some(1), "{status}");
    drain.join().unwrap();
    // It never served, so systemd got no READY.
    let heard: Vec<String> = std::iter::from_fn(|| {
        let mut words = [0; 128];
        let length = manager.recv(&mut words).ok()?;
        Some(String::from_utf8_lossy(&words[..length]).into_owned())
    })
    .collect();
    assert!(!heard.iter().any(|words| words.contains("READY")), "{heard:?}");
}
