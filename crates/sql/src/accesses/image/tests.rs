//! Digests of captured rows beside those of texts.

use crate::accesses::{Arguments, KeyDigest, Parameter, digests, tests as shared};
use crate::catalogue::{Action, Catalogue, Contents, DatabaseId};
use crate::{Analyzer, Limits};

use super::*;

/// One table with a column of each form, each the only column of a unique key.
fn typed(type_oid: u32, type_mod: i32) -> Table {
    let column = |name: &str| Column {
        name: name.to_owned(),
        type_oid,
        type_mod,
        collation_deterministic: true,
        ..Column::default()
    };
    let key = |at: usize, primary| Key { columns: vec![at], primary, unique: true, ..Key::default() };
    Table {
        id: DatabaseId::FIRST.table(7),
        schema: "public".to_owned(),
        name: "typed".to_owned(),
        columns: vec![column("a"), column("b")],
        primary_key: vec![0],
        keys: vec![key(0, true), key(1, false)],
        other_unique: true,
        ..Table::default()
    }
}

/// The digests that a statement's text gives for the one row that it reads.
fn of_text(table: &Table, condition: &str, parameters: &[Parameter<'_>]) -> Vec<KeyDigest> {
    let catalogue = Catalogue::new(Contents { tables: vec![table.clone()], ..Contents::default() });
    let text = format!("select * from typed where {condition}");
    let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
    let part = &script.statements[0];
    let arguments = Arguments { text: text.as_bytes(), constants: &part.constants, parameters };
    let accesses = part.statement.outline(&catalogue).bind(&arguments);
    digests(&accesses.reads[0], table)
}

/// The binary form of a numeric of one digit to the base 10,000.
fn numeric(digit: i16, weight: i16, scale: i16) -> Vec<u8> {
    [1, weight, 0, scale, digit].map(i16::to_be_bytes).concat()
}

#[test]
fn what_a_text_names_is_what_capture_reports() {
    let uuid = "6f9619ff-8b86-d011-b42d-00c04fc964ff";
    let uuid_bytes =
        [0x6f, 0x96, 0x19, 0xff, 0x8b, 0x86, 0xd0, 0x11, 0xb4, 0x2d, 0, 0xc0, 0x4f, 0xc9, 0x64, 0xff];
    let cases: Vec<(u32, i32, &str, Vec<u8>)> = vec![
        (16, -1, "'yes'", vec![1]),
        (17, -1, "'\\x00ff'", vec![0, 255]),
        (20, -1, "-5", (-5_i64).to_be_bytes().to_vec()),
        (21, -1, "'7'", 7_i16.to_be_bytes().to_vec()),
        (23, -1, "7", 7_i32.to_be_bytes().to_vec()),
        (25, -1, "'it''s ü '", "it's ü ".as_bytes().to_vec()),
        (1043, 14, "'abc'", b"abc".to_vec()),
        (1042, 9, "'abc'", b"abc  ".to_vec()),
        (1082, -1, "'2000-01-02'", 1_i32.to_be_bytes().to_vec()),
        (1114, -1, "'2000-01-01 00:00:01'", 1_000_000_i64.to_be_bytes().to_vec()),
        (1184, -1, "'2000-01-01 01:00:01+01'", 1_000_000_i64.to_be_bytes().to_vec()),
        (1700, -1, "1.50", [2_i16, 0, 0, 2, 1, 5000].map(i16::to_be_bytes).concat()),
        (1700, -1, "'100'", numeric(100, 0, 3)),
        (1700, -1, "1000000", numeric(100, 1, 0)),
        (2950, -1, uuid, uuid_bytes.to_vec()),
    ];
    for (oid, type_mod, text, bytes) in cases {
        let table = typed(oid, type_mod);
        let text = if text == uuid { format!("'{text}'") } else { text.to_owned() };
        let captured = row_digests(&table, &[Some(&bytes), None]).unwrap();
        let [captured] = captured.as_slice() else { panic!("{oid}: one key has a value") };
        assert_eq!(of_text(&table, &format!("a = {text}"), &[]), [*captured], "type {oid}: {text}");
        let swapped = row_digests(&table, &[None, Some(&bytes)]).unwrap();
        assert_eq!(of_text(&table, &format!("b = {text}"), &[]), swapped, "type {oid}: {text}");
        assert_ne!(swapped[0].row(), captured.row(), "another key");
        let parameter = Parameter { type_oid: oid, value: Some(&bytes), binary: true };
        assert_eq!(of_text(&table, "a = $1", &[parameter]), [*captured], "type {oid} as a parameter");
    }
}

#[test]
fn what_has_no_normal_form_is_unknown() {
    let inet = typed(869, -1);
    assert_eq!(row_digests(&inet, &[Some(b"x"), Some(b"y")]), None);
    let mut folded = typed(25, -1);
    folded.columns[0].collation_deterministic = false;
    assert_eq!(row_digests(&folded, &[Some(b"x"), Some(b"y")]), None);
    let long = vec![b'x'; 2_000];
    assert_eq!(row_digests(&typed(25, -1), &[Some(&long), None]), None);
    let not_a_number = [0_u16, 0, 0xc000, 0].map(u16::to_be_bytes).concat();
    assert_eq!(row_digests(&typed(1700, -1), &[Some(&not_a_number), None]), None);
    let time = typed(1083, -1);
    let of = |micros: i64| row_digests(&time, &[Some(&micros.to_be_bytes()), None]).unwrap();
    assert!(of(1) == of(1) && of(1) != of(2));
    assert_eq!(row_digests(&time, &[Some(&[0; 8])]), None, "a column is missing");
}

#[test]
fn null_belongs_to_no_other_row_unless_the_key_says_so() {
    let mut table = typed(23, -1);
    let seven = 7_i32.to_be_bytes();
    assert_eq!(row_digests(&table, &[Some(&seven), None]).unwrap().len(), 1);
    assert_eq!(key_digest(&table, 1, &[Some(&seven), None]), Told::Nothing);
    table.keys[1].nulls_not_distinct = true;
    let of_null = row_digests(&table, &[Some(&seven), None]).unwrap();
    assert_eq!(of_null.len(), 2, "two rows without a value would be one too many");
    assert_eq!(of_null[1], row_digests(&table, &[None, None]).unwrap()[0]);
}

#[test]
fn rows_that_meet_in_more_than_plain_keys_are_not_keyed() {
    let whole = typed(23, -1);
    assert!(is_keyed(&whole));
    let with = |change: fn(&mut Table)| {
        let mut table = whole.clone();
        change(&mut table);
        is_keyed(&table)
    };
    assert!(!with(|t| t.keys[1].partial = true));
    assert!(!with(|t| t.keys[1].expression = true));
    assert!(!with(|t| (t.keys[1].unique, t.keys[1].exclusion) = (false, true)));
    assert!(!with(|t| t.keys.truncate(1)), "another unique index is there and not known");
    assert!(!with(|t| t.primary_key.clear()));
    assert!(!with(|t| t.keys.clear()));
}

#[test]
fn a_reference_is_known_by_the_key_of_its_parent() {
    let catalogue = shared::catalogue();
    let (parent, child) = (
        catalogue.table(DatabaseId::FIRST.table(1)).unwrap(),
        catalogue.table(DatabaseId::FIRST.table(2)).unwrap(),
    );
    assert_eq!(referenced_keys(parent, &catalogue), Some(vec![0]));
    assert_eq!(referenced_keys(child, &catalogue), Some(vec![]));
    let (seven, eight) = (7_i32.to_be_bytes(), 8_i32.to_be_bytes());
    let of_parent = key_digest(parent, 0, &[Some(&seven), None, None, None]);
    let reference = &child.references[0];
    let refers = |to| parent_digest(child, reference, parent, &[Some(&eight), to, None]);
    assert_eq!(refers(Some(&seven)), of_parent);
    assert_ne!(refers(Some(&eight)), of_parent);
    assert_eq!(refers(None), Told::Nothing);
    let Told::Key(digest) = of_parent else { panic!("a key of integers is known") };
    assert_ne!(digest.row(), digest.reference(), "a change beside the key does not touch who relies on it");
}

#[test]
fn a_reference_over_several_columns_follows_the_order_of_the_key() {
    let mut parent = typed(23, -1);
    parent.keys = vec![Key { columns: vec![1, 0], primary: true, unique: true, ..Key::default() }];
    let mut child = Table { id: DatabaseId::FIRST.table(8), ..typed(20, -1) };
    child.references = vec![Reference {
        columns: vec![0, 1],
        parent: parent.id,
        parent_columns: vec![0, 1],
        on_delete: Action::NoAction,
        on_update: Action::NoAction,
        deferrable: false,
        matches_full: false,
        period: false,
    }];
    let (one, two) = (1_i32.to_be_bytes(), 2_i32.to_be_bytes());
    let (long_one, long_two) = (1_i64.to_be_bytes(), 2_i64.to_be_bytes());
    let of_parent = key_digest(&parent, 0, &[Some(&one), Some(&two)]);
    let refers =
        |child: &Table, row: &[Option<&[u8]>]| parent_digest(child, &child.references[0], &parent, row);
    assert_eq!(refers(&child, &[Some(&long_one), Some(&long_two)]), of_parent, "bigint beside integer");
    assert_ne!(refers(&child, &[Some(&long_two), Some(&long_one)]), of_parent);
    // A numeric that refers to an integer is not known by its value.
    child.columns[0].type_oid = 1700;
    assert_eq!(refers(&child, &[Some(b"?"), Some(&long_two)]), Told::Unknown);
    assert_eq!(refers(&child, &[Some(b"?"), None]), Told::Nothing);
    child.references[0].period = true;
    assert_eq!(refers(&child, &[None, None]), Told::Unknown);
}
