//! Tests: which notices count as captured, and how texts become images.

use cluster::ids::DatabaseId;
use cluster::record::{Change, RecordBuilder};
use wire::backend::Fields;

use super::message::{is_capture_context, parse_message};
use super::{Captured, Decoder, Operation};
use crate::coordinator::splits::Splits;

fn notice(state: &str, text: &str, context: &str) -> Vec<u8> {
    format!("SINFO\0VINFO\0C{state}\0M{text}\0W{context}\0Fpl_exec.c\0\0").into_bytes()
}

const OURS: &str = "PL/pgSQL function onecopy_capture.cap() line 5 at RAISE";

/// `(1::int4, NULL::int4)`.
const IMAGE: &str = "00000002000000170000000400000001000000 17ffffffff";

fn image_hex() -> String {
    IMAGE.replace(' ', "")
}

fn image() -> Vec<u8> {
    let digits = image_hex();
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).unwrap()).collect()
}

fn escaped(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|&byte| match byte {
            b'\\' => "\\\\".to_owned(),
            0x20..=0x7e => char::from(byte).to_string(),
            _ => format!("\\{byte:03o}"),
        })
        .collect()
}

fn captured(text: &str, context: &str) -> (Captured, RecordBuilder) {
    let mut record = RecordBuilder::new(DatabaseId::FIRST);
    let body = notice("OC001", text, context);
    let captured = Decoder::default().capture(Fields::new(&body), &Splits::none(), &mut record);
    (captured, record)
}

fn changes(record: RecordBuilder) -> Vec<(u32, String)> {
    let record = record.finish(cluster::record::Header {
        cluster: cluster::ids::ClusterId(1),
        identity: cluster::ids::Identity::default(),
        first: cluster::ids::Version(1),
        last: cluster::ids::Version(1),
        database: DatabaseId::FIRST,
        service: cluster::ids::ServiceId(0),
    });
    record
        .row_changes()
        .map(|row| {
            let text = match row.change {
                Change::Insert { new } => format!("I {}", new == image()),
                Change::Update { old, new } => format!("U {} {}", old == image(), new == image()),
                Change::Delete { old } => format!("D {}", old == image()),
                Change::Truncate => "T".to_owned(),
            };
            (row.table.number, text)
        })
        .collect()
}

#[test]
fn every_operation_becomes_a_row_change() {
    let hex = image_hex();
    let raw = escaped(&image());
    for (text, expected) in [
        (format!("7|I|750|\\x{hex}"), "I true"),
        (format!("7|U|750|\\x{hex}|\\x{hex}"), "U true true"),
        (format!("7|U|750|{raw}|{raw}"), "U true true"),
        (format!("7|D|750|{raw}"), "D true"),
        ("7|T|750".to_owned(), "T"),
    ] {
        let (outcome, record) = captured(&text, OURS);
        assert!(
            matches!(
                outcome,
                Captured::Row { table, xid: 750, nested: false, .. } if table == DatabaseId::FIRST.table(7)
            ),
            "{text}: {outcome:?}"
        );
        assert_eq!(changes(record), [(7, expected.to_owned())], "{text}");
    }
}

#[test]
fn the_rows_of_an_insert_come_in_one_message() {
    let two = [image(), image()].concat();
    for images in [format!("\\x{0}{0}", image_hex()), escaped(&two)] {
        let (outcome, record) = captured(&format!("7|B|0|{images}"), OURS);
        assert!(matches!(outcome, Captured::Row { operation: Operation::Inserts, .. }), "{outcome:?}");
        let row = (7, "I true".to_owned());
        assert_eq!(changes(record), [row.clone(), row]);
    }
    for cut in 1..two.len() {
        let whole = cut == image().len();
        let (outcome, _) = captured(&format!("7|B|0|{}", escaped(&two[..cut])), OURS);
        assert_eq!(outcome != Captured::Malformed, whole, "{cut} bytes");
    }
    assert_eq!(captured("7|B|0|", OURS).0, Captured::Malformed);
}

#[test]
fn a_second_context_line_means_nested() {
    let context = format!("{OURS}\nSQL function \"f\" statement 1");
    let (outcome, _) = captured("7|T|1", &context);
    assert_eq!(
        outcome,
        Captured::Row {
            table: DatabaseId::FIRST.table(7),
            xid: 1,
            nested: true,
            operation: Operation::Truncate
        }
    );
}

#[test]
fn what_is_not_from_our_function_is_not_ours() {
    for context in [
        "",
        "PL/pgSQL function inline_code_block line 1 at RAISE",
        "PL/pgSQL function cap() line 5 at RAISE",
        "PL/pgSQL function \"onecopy_capture.cap\"() line 5 at RAISE",
        "PL/pgSQL function evil.cap() line 5 at RAISE\nPL/pgSQL function onecopy_capture.cap() line 5 at RAISE",
        "PL/pgSQL function onecopy_capture.cap() line 5 at RAISE more",
        "PL/pgSQL function onecopy_capture.cap() line x at RAISE",
        "PL/pgSQL function onecopy_capture.cap() line  at RAISE",
    ] {
        assert!(!is_capture_context(context.as_bytes()), "{context}");
        let (outcome, record) = captured("7|T|1", context);
        assert_eq!(outcome, Captured::NotOurs, "{context}");
        assert!(record.is_empty());
    }
    let other_state = notice("00000", "7|T|1", OURS);
    let outcome = Decoder::default().capture(
        Fields::new(&other_state),
        &Splits::none(),
        &mut RecordBuilder::new(DatabaseId::FIRST),
    );
    assert_eq!(outcome, Captured::NotOurs);
}

#[test]
fn malformed_messages_leave_no_trace() {
    for text in [
        "",
        "7",
        "7|I",
        "x|I|1|\\x00",
        "7|Q|1|\\x00",
        "7|I||\\x00",
        "7|I|1|\\x0",
        "7|I|1|\\x0g",
        "7|I|1|\\4",
        "7|I|99999999999|\\x00",
        "7|T|1|\\x00",
        "7|U|1|\\x00",
        "7|U|1|\\000\\000\\000\\001",
        "+7|T|1",
        "7|U|1|\\177\\377\\377\\377",
    ] {
        let (outcome, record) = captured(text, OURS);
        assert_eq!(outcome, Captured::Malformed, "{text}");
        assert!(record.is_empty(), "{text}");
    }
}

#[test]
fn a_message_is_taken_apart() {
    let message = parse_message(b"12|U|4294967295|a|b", DatabaseId::FIRST).unwrap();
    assert_eq!((message.table, message.operation), (DatabaseId::FIRST.table(12), Operation::Update));
    assert_eq!((message.xid, message.images), (u32::MAX, &b"a|b"[..]));
}

#[test]
fn every_byte_survives_both_forms() {
    let bytes: Vec<u8> = (0..=255).collect();
    let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let mut out = Vec::new();
    for text in [format!("\\x{hex}"), escaped(&bytes)] {
        super::message::decode(text.as_bytes(), &mut out).unwrap();
        assert_eq!(out, bytes);
    }
}
