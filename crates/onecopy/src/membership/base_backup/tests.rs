//! Archives in pieces, and a copy of a real server that is written to meanwhile.

use std::sync::Arc;

use pgserver::{Progress, Silent, UpOptions};
use tempfile::TempDir;
use tokio_postgres::{Client, NoTls};

use super::*;

/// A folder that every account may enter.
fn scratch() -> TempDir {
    tempfile::Builder::new().permissions(Permissions::from_mode(0o755)).tempdir().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn unpacked(entries: &[(&str, &[u8])], cut: usize) -> (TempDir, Result<(), BackupError>) {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in entries {
        let mut header = tar::Header::new_ustar();
        // The name is put in by hand: the builder itself refuses names that lead out.
        header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
        header.set_size(bytes.len() as u64);
        header.set_cksum();
        builder.append(&header, *bytes).unwrap();
    }
    let mut bytes = builder.into_inner().unwrap();
    bytes.truncate(bytes.len() - cut);
    let scratch = scratch();
    let (pieces, queue) = mpsc::channel(QUEUE_PIECES);
    for piece in bytes.chunks(700) {
        pieces.try_send(piece.to_vec()).unwrap();
    }
    drop(pieces);
    let ended = unpack(scratch.path(), &Account::Own, Pieces::new(queue));
    (scratch, ended)
}

#[test]
fn an_archive_in_pieces_becomes_files_that_only_their_owner_reads() {
    let (scratch, ended) = unpacked(&[("PG_VERSION", b"15\n"), ("global", &[7; 3000])], 0);
    ended.unwrap();
    assert_eq!(fs::read(scratch.path().join("global")).unwrap(), [7; 3000]);
    let mode = fs::metadata(scratch.path().join("PG_VERSION")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, FILE_MODE);
    // Servers before release 15 do not send the two blocks of zeros at the end.
    let (scratch, ended) = unpacked(&[("PG_VERSION", b"15\n")], 1024);
    ended.unwrap();
    assert_eq!(names(scratch.path()), ["PG_VERSION"]);
}

#[test]
fn a_file_that_leads_out_or_is_cut_short_is_refused() {
    for name in ["../outside", "/outside", "a/../../outside"] {
        let (scratch, ended) = unpacked(&[(name, b"x")], 0);
        assert!(matches!(ended, Err(BackupError::Archive(_))), "{name}: {ended:?}");
        assert!(names(scratch.path()).is_empty());
    }
    let (_scratch, ended) = unpacked(&[("PG_VERSION", &[1; 2000])], 2100);
    assert!(ended.is_err());
}

async fn session(server: &Server) -> Client {
    let config = format!("host={} port={} user=postgres dbname=postgres", server.host, server.port);
    let (client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

#[tokio::test]
async fn a_running_server_is_copied() {
    let scratch = scratch();
    let options = UpOptions { replicas: Some(2), data: Some(scratch.path().join("data")), pg_bin: None };
    let mut home = pgserver::prepare(&options, &(Arc::new(Silent) as Arc<dyn Progress>)).await.unwrap();
    home.start().await.unwrap();
    let donor = session(&home.servers[0]).await;
    donor
        .batch_execute(
            "CREATE TABLE kept AS SELECT i, repeat('x', 500) AS filler FROM generate_series(1, 20000) i;
             CREATE ROLE clerk; CREATE SEQUENCE counter; SELECT nextval('counter')",
        )
        .await
        .unwrap();
    // Writes go on during the copy. The copy has everything that was committed before its end.
    let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
    let writing = tokio::spawn(async move {
        let mut written = 0;
        while stopped.try_recv().is_err() {
            donor.execute("INSERT INTO kept VALUES (0, 'meanwhile')", &[]).await.unwrap();
            written += 1;
        }
        written
    });
    let server = &home.servers[0];
    let address = Address::Unix { socket_dir: server.socket_dir.clone(), port: server.port };
    let transfer = Transfer::default();
    copy(&home.servers[1], &address, "postgres", &transfer).await.unwrap();
    stop.send(()).unwrap();
    home.servers[1].take_copy().await.unwrap();
    home.servers[1].start().await.unwrap();
    let written: i64 = writing.await.unwrap();
    assert!(written > 0, "nothing was written meanwhile");
    let copy = session(&home.servers[1]).await;
    let row = copy
        .query_one("SELECT count(*) FILTER (WHERE i > 0), count(*) FILTER (WHERE i = 0) FROM kept", &[])
        .await
        .unwrap();
    assert_eq!(row.get::<_, i64>(0), 20_000);
    assert!((0..=written).contains(&row.get::<_, i64>(1)));
    let clerk =
        copy.query_one("SELECT rolname::text FROM pg_roles WHERE rolname = 'clerk'", &[]).await.unwrap();
    assert_eq!(clerk.get::<_, String>(0), "clerk");
    let (received, total) = transfer.bytes();
    assert!(received > 10 << 20 && total > 10 << 20, "{received} of {total}");
    drop(copy);
    home.stop().await;
}
