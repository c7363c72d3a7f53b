//! Promise: Onecopy rejects an expired certificate of a server, and warns its operator before its own certificate expires.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

use rustix::process::Signal;

use super::cluster::plain::Plain;
use super::cluster::served::{Setup, WITHIN};
use super::cluster::{connect, folder, programs, value};
use super::login::{certify_as, expire};

const DAY_S: i64 = 86_400;

#[tokio::test]
async fn one_of_a_server_that_has_expired_is_not_believed() {
    let a = Plain::start().await;
    let client = a.client().await;
    let root = expire(&a, &client).await.replace('/', "%2F");
    let setup = Setup::new(&[&a], "");
    let url = |mode: &str| format!("postgresql://127.0.0.1:{}?sslmode={mode}&sslrootcert={root}", a.port);
    let rules = "hba = \"host all all 127.0.0.1/32 trust\"";
    let deadline = Instant::now() + WITHIN;
    while value(&client, "SHOW ssl").await != "on" {
        assert!(Instant::now() < deadline, "the server does not read its settings");
    }
    for mode in ["verify-ca", "verify-full"] {
        setup.write_urls(&[url(mode)], rules);
        let said = setup.refused().await;
        assert!(
            said.contains("replica-1") && said.contains("certificate") && said.contains("expired"),
            "{said}"
        );
    }
    // With `sslmode=require` the server's certificate is not checked.
    setup.write_urls(&[url("require")], rules);
    setup.serve(&[]).await.stop();
}

#[tokio::test]
async fn one_of_ours_that_expires_is_told_of_in_time() {
    let a = Plain::start().await;
    let setup = Setup::new(&[], "");
    let pages = folder::free_port();
    let shown = setup.folder.path().display();
    let more = format!(
        "tls_certificate_file = \"{shown}/node.crt\"\ntls_key_file = \"{shown}/node.key\"\n\
         http_listen = \"127.0.0.1:{pages}\""
    );
    setup.write(&[a.port], &more);
    let checked = async || programs::text(&programs::onecopy(&["check", "--config", &setup.file()]).await);

    certify(&setup, |now| (now - DAY_S, now + 400 * DAY_S));
    let said = checked().await;
    assert!(!said.contains("warning") && said.contains("the configuration is valid"), "{said}");

    let ends_s = certify(&setup, |now| (now - DAY_S, now + 20 * DAY_S + DAY_S / 2));
    let expected = "tls_certificate_file: the certificate that clients see expires in 20 days, at 20";
    let said = checked().await;
    assert!(said.contains(&format!("warning: {expected}")) && said.contains("exit status: 0"), "{said}");
    let node = setup.serve(&[]).await;
    await_said(&setup, expected);
    assert_eq!(told_end(pages), Some(ends_s));

    // The check of the configuration and RELOAD report an expired certificate at once, and so does the log.
    let ends_s = certify(&setup, |now| (now - 3 * DAY_S, now - DAY_S));
    assert!(
        checked()
            .await
            .contains("warning: tls_certificate_file: the certificate that clients see has expired")
    );
    let told = programs::text(&programs::psql(setup.port, "\\c onecopy\nRELOAD;").await);
    assert!(
        told.contains("NOTICE:") && told.contains("the certificate that clients see has expired at 20"),
        "{told}"
    );
    await_said(&setup, "the certificate that clients see has expired at 20");
    assert_eq!(told_end(pages), Some(ends_s));

    let ends_s = certify(&setup, |now| (now + DAY_S, now + 90 * DAY_S));
    node.signal(Signal::HUP);
    await_said(&setup, "the certificate that clients see is not valid before 20");
    assert_eq!(told_end(pages), Some(ends_s));

    // Nothing is refused for it, and without one there is no number.
    assert_eq!(value(&connect("127.0.0.1", setup.port, "postgres").await.unwrap(), "SELECT 1").await, "1");
    setup.write(&[a.port], &format!("http_listen = \"127.0.0.1:{pages}\""));
    let told = programs::text(&programs::psql(setup.port, "\\c onecopy\nRELOAD;").await);
    assert!(!told.contains("certificate"), "{told}");
    assert_eq!(told_end(pages), None);
    node.stop();
}

/// Gives the node a certificate that is valid from one time to another, in seconds since 1970; when it ends.
fn certify(setup: &Setup, times: impl Fn(i64) -> (i64, i64)) -> i64 {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let (begins_s, ends_s) = times(i64::try_from(now.as_secs()).unwrap());
    let date = |time_s: i64| epoch + Duration::from_secs(time_s.unsigned_abs());
    certify_as(setup.folder.path(), "node", |parameters| {
        (parameters.not_before, parameters.not_after) = (date(begins_s), date(ends_s));
    });
    ends_s
}

/// Waits until the node's log has these words.
fn await_said(setup: &Setup, words: &str) {
    let deadline = Instant::now() + WITHIN;
    loop {
        let said = std::fs::read_to_string(setup.folder.path().join("said")).unwrap();
        if said.lines().any(|line| line.contains(" WARN ") && line.contains(words)) {
            return;
        }
        assert!(Instant::now() < deadline, "no `{words}` in:\n{said}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The end of the certificate in `/metrics`.
fn told_end(port: u16) -> Option<i64> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut page = String::new();
    stream.read_to_string(&mut page).unwrap();
    let name = "onecopy_tls_certificate_expiry_timestamp_seconds ";
    assert!(page.contains("onecopy_log_bytes"), "{page}");
    page.lines().find_map(|line| line.strip_prefix(name)).map(|number| number.parse().unwrap())
}
