//! A pipeline of any size is answered in bounded memory. A session ends when its client disconnects or when it is killed,
//! whatever it waits for.

use std::time::{Duration, Instant};

use wire::backend::{Fields, tag};
use wire::encode::{self, Format};

use crate::cluster::raw::Raw;
use crate::cluster::{Cluster, run, value};
use crate::{is_free, peak_kb, say};

/// Replies and parameters that no socket holds.
const LARGE_BYTES: usize = 500_000;
/// So many short statements fill the sockets with their replies.
const SHORT_STATEMENTS: usize = 14_000;
/// Limit of the memory that a pipeline of any length adds. The allocator keeps several times the memory in use.
const PIPELINE_KB_MAX: u64 = 110 << 10;
/// The same of short messages, which are a few megabytes.
const SHORT_KB_MAX: u64 = 30 << 10;
/// A killed session ends within a second or two.
const ENDS_WITHIN: Duration = Duration::from_secs(30);

pub(crate) async fn are_kept_in_hand(cluster: &Cluster) {
    are_answered(cluster);
    answers_that_are_not_read_delay_no_other_session(cluster).await;
    are_ended_by_kill(cluster).await;
    of_clients_that_are_gone_end(cluster).await;
    of_short_messages_take_no_memory(cluster);
    are_not_kept(cluster);
}

/// Parse, Bind and Execute of a statement without a name.
fn execute(out: &mut Vec<u8>, sql: &str, values: &[&[u8]]) {
    let values: Vec<_> = values.iter().map(|value| Some(*value)).collect();
    encode::parse(out, b"", sql.as_bytes(), &[]);
    encode::bind(out, b"", b"", &values, Format::Text);
    encode::execute(out, b"", 0);
}

/// Runs statements that succeed.
fn tell(raw: &mut Raw, statements: &[&str]) {
    for sql in statements {
        let told = raw.exchange(|out| say(out, sql));
        assert!(told.iter().all(|(tag, _)| *tag != tag::ERROR_RESPONSE), "{sql}: {told:?}");
    }
}

/// The sizes of the rows that come before ReadyForQuery.
fn row_bytes(raw: &mut Raw) -> Vec<usize> {
    let mut rows = Vec::new();
    loop {
        match raw.next() {
            (tag::READY_FOR_QUERY, _) => return rows,
            (tag::DATA_ROW, body) => rows.push(body.len()),
            (tag::ERROR_RESPONSE, body) => panic!("{}", Fields::new(&body).message()),
            _ => {}
        }
    }
}

/// The replies of the first statements fill the sockets while the rest of the pipeline is still being sent.
fn are_answered(cluster: &Cluster) {
    let text = vec![b'y'; LARGE_BYTES];
    for begin in [&[][..], &["begin"]] {
        let mut raw = Raw::connect(cluster.port);
        tell(&mut raw, begin);
        raw.send(|out| {
            execute(out, &format!("select repeat('x', {LARGE_BYTES})"), &[]);
            execute(out, "select length($1)", &[&text]);
            encode::sync(out);
        });
        // Two bytes of a row are the number of its columns, four are the length of the value.
        assert_eq!(row_bytes(&mut raw), [LARGE_BYTES + 6, 6 + 6]);
        raw.send(|out| {
            for _ in 0..SHORT_STATEMENTS {
                execute(out, "select 1", &[]);
            }
            encode::sync(out);
        });
        assert_eq!(row_bytes(&mut raw), vec![1 + 6; SHORT_STATEMENTS]);
    }
}

/// More data in both directions than the node may hold.
fn are_not_kept(cluster: &Cluster) {
    const STATEMENTS: usize = 300;
    let before_kb = peak_kb(cluster);
    let mut raw = Raw::connect(cluster.port);
    let mut sender = raw.sender();
    let sending = std::thread::spawn(move || {
        let text = vec![b'y'; LARGE_BYTES];
        for _ in 0..STATEMENTS {
            sender.send(|out| execute(out, "select $1::text", &[&text]));
        }
        sender.send(encode::sync);
    });
    assert_eq!(row_bytes(&mut raw), [LARGE_BYTES + 6; STATEMENTS]);
    sending.join().unwrap();
    let grown_kb = peak_kb(cluster).saturating_sub(before_kb);
    crate::cluster::folder::say(&format!("a pipeline of 150 MB each way: {grown_kb} kB more at the peak"));
    assert!(grown_kb < PIPELINE_KB_MAX, "{grown_kb} kB for a pipeline");
}

/// Short messages, which cost far more to keep than to send.
fn of_short_messages_take_no_memory(cluster: &Cluster) {
    const MESSAGES: usize = 400_000;
    let before_kb = peak_kb(cluster);
    let mut raw = Raw::connect(cluster.port);
    raw.send(|out| {
        encode::parse(out, b"s", b"select 1", &[]);
        (0..MESSAGES).for_each(|_| encode::bind(out, b"", b"s", &[], Format::Text));
        encode::sync(out);
    });
    assert_eq!(raw.skip_to_ready(), MESSAGES as u64 + 1);
    let grown_kb = peak_kb(cluster).saturating_sub(before_kb);
    crate::cluster::folder::say(&format!("{MESSAGES} short messages: {grown_kb} kB more at the peak"));
    assert!(grown_kb < SHORT_KB_MAX, "{grown_kb} kB for {MESSAGES} messages");
}

/// A client that does not read its replies holds up only itself: its acknowledged transactions are committed at their home.
async fn answers_that_are_not_read_delay_no_other_session(cluster: &Cluster) {
    const INSERTS: usize = 20;
    let client = cluster.client().await;
    run(&client, "create table kept (k int primary key)").await;
    let mut raw = Raw::connect(cluster.port);
    // The sockets are full in the middle of the reply to one of them.
    raw.send(|out| {
        for k in 0..INSERTS {
            say(out, &format!("insert into kept values ({k}) returning repeat('x', 900000)"));
        }
    });
    let deadline = Instant::now() + ENDS_WITHIN;
    let mut before = String::new();
    loop {
        let count = value(&client, "select count(*) from kept").await;
        if count != "0" && count == before {
            break;
        }
        before = count;
        assert!(Instant::now() < deadline, "nothing was inserted");
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    let goes_on = async {
        for _ in 0..3 {
            run(&client, "update t set seen = seen + 1 where k = 9").await;
        }
        cluster.caught_up().await
    };
    tokio::time::timeout(ENDS_WITHIN, goes_on).await.expect("others go on");
    for _ in 0..INSERTS {
        assert_eq!(row_bytes(&mut raw), [900_006]);
    }
    assert_eq!(cluster.everywhere("select count(*) from kept").await, [[INSERTS.to_string()]]);
}

/// The number of a session, as KILL takes it.
fn number_of(told: &[(u8, Vec<u8>)]) -> i32 {
    let key = told.iter().find(|(tag, _)| *tag == tag::BACKEND_KEY_DATA).unwrap();
    wire::backend::backend_key_data(&key.1).unwrap().0
}

/// Puts messages there.
type Send = fn(&mut Vec<u8>);

/// The states in which a session is killed.
const KILLED: &[(&str, Send)] = &[
    ("a result that nobody reads", |out| {
        say(out, "select repeat('x', 1000) from generate_series(1, 200000)");
    }),
    ("a pipeline without its end", |out| {
        encode::parse(out, b"", b"select 1", &[]);
        encode::bind(out, b"", b"", &[], Format::Text);
    }),
    ("a pipeline that was run in part", |out| {
        execute(out, "select 1", &[]);
        encode::flush(out);
        encode::parse(out, b"", b"select 1", &[]);
    }),
    ("data of COPY", |out| {
        say(out, "copy copied from stdin");
        encode::copy_data(out, b"1\tone\n");
    }),
    ("many queries at once", |out| {
        for _ in 0..100 {
            say(out, "select pg_sleep(1)");
        }
    }),
];

/// KILL ends a session in each of these states and frees its locks. The client is told unless a reply to it is half sent.
async fn are_ended_by_kill(cluster: &Cluster) {
    let admin = cluster.try_client("onecopy").await.unwrap();
    for (what, send) in KILLED {
        let (mut raw, told) =
            Raw::connect_as(cluster.port, &[("user", "postgres"), ("database", "postgres")]);
        tell(&mut raw, &["begin", "update t set seen = 100 where k = 1"]);
        raw.send(send);
        tokio::time::sleep(Duration::from_millis(300)).await;
        run(&admin, &format!("kill {}", number_of(&told))).await;
        let began = Instant::now();
        is_free(cluster, 1, 0, what).await;
        assert!(began.elapsed() < ENDS_WITHIN, "{what}: {:?}", began.elapsed());
        let last = raw.last();
        let code = last.as_ref().filter(|(tag, _)| *tag == tag::ERROR_RESPONSE);
        let code = code.map(|(_, body)| Fields::new(body).sqlstate().to_vec());
        // The first one was cut in the middle of a row.
        let is_heard = *what != KILLED[0].0;
        assert_eq!(code, is_heard.then(|| b"57P01".to_vec()), "{what}: {last:?}");
    }
}

/// A session ends when its client is gone, also with unread requests, and while it waits for a transaction of another home.
async fn of_clients_that_are_gone_end(cluster: &Cluster) {
    let mut holder = Raw::connect(cluster.port);
    for home in ["replica-1", "replica-2"] {
        tell(
            &mut holder,
            &[&format!("set onecopy.home = '{home}'"), "begin", "update t set seen = 100 where k = 2"],
        );
        let mut raw = Raw::connect(cluster.port);
        tell(&mut raw, &["set onecopy.home = 'replica-1'", "begin", "update t set seen = 100 where k = 3"]);
        raw.send(|out| {
            say(out, "update t set seen = 100 where k = 2");
            say(out, "select 1");
            execute(out, "select 1", &[]);
        });
        tokio::time::sleep(Duration::from_millis(300)).await;
        drop(raw);
        is_free(cluster, 3, 1, &format!("it waits for {home}")).await;
        tell(&mut holder, &["rollback"]);
    }
}
