//! Properties of the encoding, and the few cases that a generator would hardly meet.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::claims::{Claimed, Claims, ColumnSet};
use crate::ids::PartId;
use crate::placement::{PARTS_MAX, PartSet, ReplicaSet};

/// The database of all records here.
pub(super) const DATABASE: DatabaseId = DatabaseId(1);

/// A step of a transaction, as a generator makes it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Step {
    Insert(u32, Vec<u8>),
    Update(u32, Vec<u8>, Vec<u8>),
    Delete(u32, Vec<u8>),
    Truncate(u32),
    /// A row of a table that is split, with its part before and after.
    Moved(u32, [u8; 2], Vec<u8>, Vec<u8>),
    Statement(Statement),
    Shipped(Shipped),
    Sequence(Sequence),
    Fence,
}

fn text() -> impl Strategy<Value = String> {
    vec(any::<char>(), 0..6).prop_map(String::from_iter)
}

fn image() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..20)
}

fn table() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, any::<u32>()]
}

fn statement() -> impl Strategy<Value = Statement> {
    (text(), text(), text(), vec((text(), text()), 0..3))
        .prop_map(|(text, role, search_path, settings)| Statement { text, role, search_path, settings })
}

fn shipped() -> impl Strategy<Value = Shipped> {
    let holders = || proptest::option::of(any::<u64>().prop_map(ReplicaSet::from_bits));
    (text(), text(), image(), any::<bool>(), image(), image(), holders()).prop_map(
        |(role, settings, text, is_extended, types, values, holders)| Shipped {
            role,
            settings,
            text,
            is_extended,
            types,
            values,
            holders,
        },
    )
}

fn claims() -> impl Strategy<Value = Claims> {
    let rows = || vec((table().prop_map(|table| DATABASE.table(table)), any::<u64>()), 0..3);
    let tables = vec(table().prop_map(|table| DATABASE.table(table)), 0..3);
    (rows(), rows(), rows(), tables, any::<bool>()).prop_map(|(rows, shared, groups, tables, everything)| {
        Claims { rows, shared, groups, tables, everything }
    })
}

fn origin() -> impl Strategy<Value = Origin> {
    let claimed = (any::<(u32, bool)>(), claims()).prop_map(|((turn, is_held), claims)| Claimed {
        turn,
        is_held,
        claims,
    });
    let changed =
        (table(), any::<u64>()).prop_map(|(table, bits)| (DATABASE.table(table), ColumnSet::from_bits(bits)));
    (any::<u16>(), vec(claimed, 0..3), vec(changed, 0..3)).prop_map(|(home, claims, changed)| Origin {
        home: ReplicaId(home),
        claims,
        changed,
    })
}

fn sequence() -> impl Strategy<Value = Sequence> {
    (any::<(u32, u16, u64)>(), any::<(i64, bool, bool)>()).prop_map(
        |((id, holder, generation), (value, called, descends))| Sequence {
            id: DATABASE.sequence(id),
            holder: ReplicaId(holder),
            generation,
            value,
            called,
            descends,
        },
    )
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (table(), image()).prop_map(|(t, new)| Step::Insert(t, new)),
        4 => (table(), image(), image()).prop_map(|(t, old, new)| Step::Update(t, old, new)),
        2 => (table(), image()).prop_map(|(t, old)| Step::Delete(t, old)),
        1 => table().prop_map(Step::Truncate),
        2 => (table(), [0..PARTS_MAX, 0..PARTS_MAX], image(), image())
            .prop_map(|(t, parts, old, new)| Step::Moved(t, parts, old, new)),
        1 => statement().prop_map(Step::Statement),
        1 => shipped().prop_map(Step::Shipped),
        1 => sequence().prop_map(Step::Sequence),
        1 => Just(Step::Fence),
    ]
}

prop_compose! {
    fn header()(
        cluster in any::<u128>(), epoch in any::<u32>(), n in any::<u64>(), nonce in any::<u64>(),
        first in 1..u64::MAX / 2, more in 0..1000_u64, service in any::<u32>(),
    ) -> Header {
        Header {
            cluster: ClusterId(cluster),
            identity: Identity { epoch: Epoch(epoch), n, nonce: Nonce(nonce) },
            first: Version(first),
            last: Version(first + more),
            database: DATABASE,
            service: ServiceId(service),
        }
    }
}

pub(super) fn push(builder: &mut RecordBuilder, step: &Step) {
    match step {
        Step::Insert(t, new) => builder.push_insert(DATABASE.table(*t), new),
        Step::Update(t, old, new) => builder.push_update(DATABASE.table(*t), old, new),
        Step::Delete(t, old) => builder.push_delete(DATABASE.table(*t), old),
        Step::Truncate(t) => builder.push_truncate(DATABASE.table(*t)),
        Step::Moved(..) => builder.push_change(change_of(step).expect("it is a row change")),
        Step::Statement(statement) => builder.push_statement(statement),
        Step::Shipped(shipped) => builder.push_shipped(shipped),
        Step::Sequence(sequence) => builder.push_sequence(sequence),
        Step::Fence => builder.push_fence(),
    }
    .unwrap();
}

pub(super) fn build(steps: &[Step]) -> RecordBuilder {
    let mut builder = RecordBuilder::new(DATABASE);
    for step in steps {
        push(&mut builder, step);
    }
    builder
}

/// The row change that a step stands for.
fn change_of(step: &Step) -> Option<RowChange<'_>> {
    let (table, change) = match step {
        Step::Insert(t, new) => (t, Change::Insert { new }),
        Step::Update(t, old, new) | Step::Moved(t, _, old, new) => (t, Change::Update { old, new }),
        Step::Delete(t, old) => (t, Change::Delete { old }),
        Step::Truncate(t) => (t, Change::Truncate),
        _ => return None,
    };
    let parts = match step {
        Step::Moved(_, [old, new], ..) => RowParts { old: Some(PartId(*old)), new: Some(PartId(*new)) },
        _ => RowParts::default(),
    };
    let table = DATABASE.table(*table);
    Some(RowChange { table, change, parts })
}

pub(super) fn step_of(row: RowChange<'_>) -> Step {
    let table = row.table.number;
    match row.change {
        Change::Insert { new } => Step::Insert(table, new.to_vec()),
        Change::Update { old, new } => match (row.parts.old, row.parts.new) {
            (Some(from), Some(to)) => Step::Moved(table, [from.0, to.0], old.to_vec(), new.to_vec()),
            _ => Step::Update(table, old.to_vec(), new.to_vec()),
        },
        Change::Delete { old } => Step::Delete(table, old.to_vec()),
        Change::Truncate => Step::Truncate(table),
    }
}

/// The record's items flattened to the steps that made it; also checks that no Rows item follows another.
fn steps_of(record: &Record) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut rows_before = false;
    for item in record.items() {
        let is_rows = matches!(item, Item::Rows(_));
        assert!(!(is_rows && rows_before), "consecutive rows share one item");
        rows_before = is_rows;
        match item {
            Item::Rows(rows) => steps.extend(rows.iter().map(step_of)),
            Item::Statement(statement) => steps.push(Step::Statement(statement)),
            Item::Shipped(shipped) => steps.push(Step::Shipped(shipped)),
            Item::Sequence(sequence) => steps.push(Step::Sequence(sequence)),
            Item::Fence => steps.push(Step::Fence),
            Item::Spilled(_) | Item::Origin(_) => panic!("nothing was spilled, and no origin was told"),
        }
    }
    steps
}

pub(super) fn sample_header() -> Header {
    Header {
        cluster: ClusterId(0xfeed),
        identity: Identity { epoch: Epoch(3), n: 77, nonce: Nonce(99) },
        first: Version(12),
        last: Version(12),
        database: DATABASE,
        service: ServiceId(0),
    }
}

/// One of each item.
fn sample() -> Record {
    build(&[
        Step::Insert(5, b"new row".to_vec()),
        Step::Update(2, b"old".to_vec(), b"newer".to_vec()),
        Step::Statement(Statement {
            text: "alter table t add c int".into(),
            role: "joe".into(),
            search_path: "public".into(),
            settings: vec![("timezone".into(), "UTC".into())],
        }),
        Step::Delete(5, b"gone".to_vec()),
        Step::Truncate(9),
        Step::Sequence(Sequence { id: DATABASE.sequence(3), value: -4, called: true, ..Sequence::default() }),
        Step::Fence,
    ])
    .finish(sample_header())
}

/// Puts a body of our choice under a header with correct checksums.
fn forge(body: &[u8], table_count: u32, rows: u64, flags: u32) -> Vec<u8> {
    let envelope = Envelope {
        header: sample_header(),
        format: FORMAT,
        body_bytes: body.len() as u32,
        body_crc: crc32c::crc32c(body),
        table_count,
        rows,
        flags,
    };
    [&envelope.encode()[..], body].concat()
}

proptest! {
    #[test]
    fn items_are_read_as_they_were_built(header in header(), steps in vec(step(), 0..20)) {
        let builder = build(&steps);
        prop_assert_eq!(builder.is_empty(), steps.is_empty());
        prop_assert_eq!(builder.has_statement(), steps.iter().any(|s| matches!(s, Step::Statement(_) | Step::Shipped(_))));
        let built_tables = builder.tables().to_vec();
        let record = builder.finish(header);
        let read = Record::decode(record.bytes().to_vec()).unwrap();
        prop_assert_eq!(&read, &record);
        prop_assert_eq!(read.header(), &header);
        prop_assert_eq!(format!("{:?}", steps_of(&read)), format!("{steps:?}"));

        let changes: Vec<_> = steps.iter().filter_map(change_of).collect();
        prop_assert_eq!(read.row_changes().collect::<Vec<_>>(), changes.clone());
        prop_assert_eq!(read.rows(), changes.len() as u64);
        for told in read.changes() {
            let of = || changes.iter().filter(|change| change.table == told.table);
            let all: PartSet = of().flat_map(|change| change.parts.iter()).collect();
            let is_known = of().all(|change| change.parts != RowParts::default());
            prop_assert_eq!(told.parts, is_known.then_some(all));
        }
        let tables: std::collections::BTreeSet<_> = changes.iter().map(|change| change.table).collect();
        prop_assert_eq!(read.tables().collect::<Vec<_>>(), tables.into_iter().collect::<Vec<_>>());
        prop_assert_eq!(read.tables().collect::<Vec<_>>(), built_tables);
        let everything = steps.iter().any(|s| matches!(s, Step::Statement(_) | Step::Shipped(_) | Step::Fence));
        prop_assert_eq!(read.writes_everything(), everything);
    }

    #[test]
    fn an_origin_is_read_as_it_was_told(steps in vec(step(), 0..8), origin in origin(), cut in 0..8_usize) {
        let mut builder = build(&steps[..cut.min(steps.len())]);
        let has_file = cut % 2 == 0 && builder.spill().is_some();
        steps.iter().skip(cut).for_each(|step| push(&mut builder, step));
        builder.push_origin(&origin).unwrap();
        let written = builder.finish(sample_header());
        let read = Record::decode(written.bytes().to_vec()).unwrap();
        prop_assert_eq!((read.origin(), read.is_spilled()), (Some(origin), has_file));
        let in_memory = if has_file { &steps[cut.min(steps.len())..] } else { &steps[..] };
        let plain = build(in_memory).finish(sample_header());
        prop_assert!(read.row_changes().eq(plain.row_changes()));
        prop_assert_eq!(plain.origin(), None);
    }

    #[test]
    fn tables_and_sequences_are_of_the_database_in_the_header(database in any::<u32>(), number in any::<u32>()) {
        let database = DatabaseId(database);
        let mut builder = RecordBuilder::new(database);
        builder.push_delete(database.table(number), b"old").unwrap();
        let mark = Sequence { id: database.sequence(number), ..Sequence::default() };
        builder.push_sequence(&mark).unwrap();
        let body = builder.seal();
        prop_assert_eq!(body.tables().collect::<Vec<_>>(), [database.table(number)]);
        let record = body.finish(Header { database, ..sample_header() });
        let read = Record::decode(record.bytes().to_vec()).unwrap();
        prop_assert_eq!(read.tables().collect::<Vec<_>>(), [database.table(number)]);
        prop_assert_eq!(read.row_changes().map(|row| row.table).collect::<Vec<_>>(), [database.table(number)]);
        prop_assert_eq!(read.sequences().collect::<Vec<_>>(), [mark]);
    }

    #[test]
    fn a_record_in_a_stream_is_found_by_its_envelope(header in header(), steps in vec(step(), 0..8), after in image()) {
        let record = build(&steps).finish(header);
        let stream = [record.bytes(), &after].concat();
        let envelope = Envelope::decode(&stream).unwrap();
        prop_assert_eq!(envelope.header, header);
        prop_assert_eq!(envelope.record_bytes(), record.bytes().len());
        prop_assert!(envelope.check_body(&stream[HEADER_BYTES..envelope.record_bytes()]).is_ok());
        if !after.is_empty() {
            prop_assert_eq!(
                Record::decode(stream),
                Err(DecodeError::TrailingBytes { extra_bytes: after.len() })
            );
        }
    }

    #[test]
    fn every_bit_flip_and_truncation_is_seen(steps in vec(step(), 0..5)) {
        let bytes = build(&steps).finish(sample_header()).bytes().to_vec();
        for len in 0..bytes.len() {
            let cut = Record::decode(bytes[..len].to_vec());
            let seen = matches!(cut, Err(DecodeError::Truncated { .. }));
            prop_assert!(seen, "cut to {} bytes", len);
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Record::decode(flipped).is_err(), "bit {} went unseen", bit);
        }
    }

    #[test]
    fn going_back_to_a_mark_leaves_no_trace(
        kept in vec(step(), 0..8), dropped in vec(step(), 0..8), then in vec(step(), 0..8),
    ) {
        let mut builder = build(&kept);
        let mark = builder.mark();
        for step in &dropped {
            push(&mut builder, step);
        }
        builder.truncate_to(mark);
        let plain = build(&kept);
        prop_assert_eq!(builder.len_bytes(), plain.len_bytes());
        prop_assert_eq!(builder.rows(), plain.rows());
        prop_assert_eq!(builder.tables(), plain.tables());
        prop_assert_eq!(builder.has_statement(), plain.has_statement());
        for step in &then {
            push(&mut builder, step);
        }
        let straight = build(&[&kept[..], &then[..]].concat());
        let (went_back, straight) = (builder.finish(sample_header()), straight.finish(sample_header()));
        prop_assert_eq!(went_back.changes().collect::<Vec<_>>(), straight.changes().collect::<Vec<_>>());
        prop_assert_eq!(went_back, straight);
    }

    #[test]
    fn bad_bodies_with_good_checksums_are_refused_or_readable(
        body in vec(any::<u8>(), 0..60), table_count in 0..4_u32, rows in 0..3_u64, flags in 0..4_u32,
    ) {
        if let Ok(record) = Record::decode(forge(&body, table_count, rows, flags)) {
            prop_assert_eq!(record.row_changes().count() as u64, record.rows());
            prop_assert!(record.items().count() <= body.len());
        }
    }

    #[test]
    fn damaged_bodies_with_good_checksums_are_refused_or_readable(at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let record = sample();
        let mut body = record.bytes()[HEADER_BYTES..].to_vec();
        let at = at.index(body.len());
        body[at] = byte;
        if let Ok(read) = Record::decode(forge(&body, 3, record.rows(), WRITES_EVERYTHING)) {
            prop_assert_eq!(read.row_changes().count() as u64, record.rows());
        }
    }

    #[test]
    fn images_are_read_back(columns in vec((any::<u32>(), proptest::option::of(image())), 0..9)) {
        let bytes = image_of(&columns);
        let image = Image::parse(&bytes).unwrap();
        prop_assert_eq!(image.width(), columns.len());
        let read: Vec<_> = image.columns().map(|c| (c.type_oid, c.value.map(<[u8]>::to_vec))).collect();
        prop_assert_eq!(read, columns.clone());
        for len in 0..bytes.len() {
            prop_assert!(Image::parse(&bytes[..len]).is_err());
        }
    }

    #[test]
    fn bad_images_do_not_panic(mut bytes in vec(any::<u8>(), 0..60), width in 0..5_u8) {
        // A small width in front lets some of them get past the first check.
        if bytes.len() > 4 {
            bytes[..4].copy_from_slice(&[0, 0, 0, width]);
        }
        if let Ok(image) = Image::parse(&bytes) {
            prop_assert_eq!(image.values().count(), image.width());
        }
    }
}

fn image_of(columns: &[(u32, Option<Vec<u8>>)]) -> Vec<u8> {
    let mut bytes = (columns.len() as u32).to_be_bytes().to_vec();
    for (type_oid, value) in columns {
        bytes.extend_from_slice(&type_oid.to_be_bytes());
        match value {
            None => bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
            Some(value) => {
                bytes.extend_from_slice(&(value.len() as u32).to_be_bytes());
                bytes.extend_from_slice(value);
            }
        }
    }
    bytes
}

#[test]
fn errors_name_what_is_wrong() {
    let good = sample().bytes().to_vec();
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        Record::decode(bytes).unwrap_err()
    };
    assert_eq!(with(0, b'x'), DecodeError::BadMagic);
    assert_eq!(with(4, 9), DecodeError::BadHeaderChecksum);
    assert_eq!(with(50, 0xff), DecodeError::BadHeaderChecksum);
    assert_eq!(with(HEADER_BYTES + 3, 0xff), DecodeError::BadBodyChecksum);

    let mut newer = good.clone();
    newer[4] = 4;
    let crc = header_crc(&newer[..HEADER_BYTES]);
    put(&mut newer, 8, &crc.to_le_bytes());
    assert_eq!(Record::decode(newer).unwrap_err(), DecodeError::UnknownFormat { format: 4 });
    assert_eq!(
        Record::decode(forge(&[7, 0, 0, 0, 0], 0, 0, 0)).unwrap_err(),
        DecodeError::BadBody { offset: 0 }
    );
}

/// One record of each format, as releases have written them. Logs of users have such.
#[test]
fn records_of_every_format_are_read() {
    let moved = [Step::Moved(2, [1, 63], b"from".to_vec(), b"to".to_vec()), Step::Insert(5, b"x".to_vec())];
    let mut spilled = build(&[Step::Insert(1, b"in the file".to_vec())]);
    spilled.spill().unwrap();
    push(&mut spilled, &Step::Delete(2, b"in the body".to_vec()));
    let in_parts = build(&moved).finish(sample_header());
    let records = [
        ("1", 1, sample()),
        ("2", 2, spilled.finish(sample_header())),
        ("3", 3, in_parts),
        ("3-origin", 3, with_origin(&moved, &sample_origin())),
    ];
    for (name, format, record) in records {
        let path = format!("{}/tests/golden/record-{name}.hex", env!("CARGO_MANIFEST_DIR"));
        let hex = record.bytes().iter().fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"));
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, format!("{hex}\n")).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap();
        assert_eq!(written.trim(), hex, "{path}");
        let bytes = (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap());
        let read = Record::decode(bytes.collect()).unwrap();
        assert_eq!((read.envelope.format, &read), (format, &record));
    }
}

fn sample_origin() -> Origin {
    let claims = Claims {
        rows: vec![(DATABASE.table(2), 7), (DATABASE.table(5), u64::MAX)],
        shared: vec![(DATABASE.table(9), 1)],
        groups: Vec::new(),
        tables: vec![DATABASE.table(3)],
        everything: false,
    };
    let everything = Claimed { turn: 2, is_held: true, claims: Claims::everything() };
    Origin {
        home: ReplicaId(4),
        claims: vec![Claimed { turn: 0, is_held: false, claims }, everything],
        changed: vec![(DATABASE.table(2), ColumnSet::from_bits(0b101))],
    }
}

/// The record of steps whose origin is told.
fn with_origin(steps: &[Step], origin: &Origin) -> Record {
    let mut builder = build(steps);
    builder.push_origin(origin).unwrap();
    builder.finish(sample_header())
}

#[test]
fn an_origin_that_the_header_does_not_tell_is_refused() {
    let told = with_origin(&[Step::Truncate(3)], &sample_origin());
    let body = told.bytes()[HEADER_BYTES..].to_vec();
    for (format, flags) in
        [(FORMAT_PARTS, 0), (FORMAT_PARTS, HAS_ORIGIN | 8), (FORMAT, 0), (FORMAT, HAS_ORIGIN)]
    {
        let envelope = Envelope { format, flags, ..told.envelope };
        let bytes = [&envelope.encode()[..], &body].concat();
        assert!(Record::decode(bytes).is_err(), "format {format}, flags {flags}");
    }
    let whole = build(&[Step::Moved(3, [4, 5], Vec::new(), Vec::new())]).finish(sample_header());
    let envelope = Envelope { flags: HAS_ORIGIN, ..whole.envelope };
    let bytes = [&envelope.encode()[..], &whole.bytes()[HEADER_BYTES..]].concat();
    assert!(matches!(Record::decode(bytes), Err(DecodeError::BadBody { .. })), "it is told and not there");
}

#[test]
fn a_row_in_a_part_that_is_not_listed_is_refused() {
    let whole = build(&[Step::Moved(3, [4, 5], Vec::new(), Vec::new())]).finish(sample_header());
    let listed = whole.changes().next().unwrap().parts.unwrap();
    assert_eq!(listed.iter().collect::<Vec<_>>(), [PartId(4), PartId(5)]);
    let mut body = whole.bytes()[HEADER_BYTES..].to_vec();
    let at = body.len() - 8;
    body[at..].copy_from_slice(&PartSet::EMPTY.with(PartId(4)).bits().to_le_bytes());
    let envelope = Envelope { format: FORMAT_PARTS, ..Envelope::decode(&forge(&body, 1, 1, 0)).unwrap() };
    let bytes = [&envelope.encode()[..], &body].concat();
    assert!(matches!(Record::decode(bytes), Err(DecodeError::BadBody { .. })));
}

#[test]
fn a_row_of_a_table_that_is_not_listed_is_refused() {
    let whole = build(&[Step::Truncate(3)]).finish(sample_header());
    let mut body = whole.bytes()[HEADER_BYTES..].to_vec();
    let at = body.len() - 4;
    body[at..].copy_from_slice(&4_u32.to_le_bytes());
    assert!(matches!(Record::decode(forge(&body, 1, 1, 0)), Err(DecodeError::BadBody { .. })));
}

#[test]
fn an_item_over_the_limit_is_rejected_and_leaves_no_trace() {
    let mut builder = build(&[Step::Insert(1, b"kept".to_vec())]);
    // Zeroed memory that is never touched costs nothing.
    let huge = vec![0; BODY_LIMIT_BYTES];
    assert_eq!(builder.push_insert(DATABASE.table(2), &huge), Err(TooLarge));
    let expected = build(&[Step::Insert(1, b"kept".to_vec())]);
    assert_eq!(builder.finish(sample_header()), expected.finish(sample_header()));
}
