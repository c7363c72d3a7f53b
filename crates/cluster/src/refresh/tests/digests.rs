//! What makes two executions alike.

use super::*;
use crate::event::Digest;

/// The digest of one transaction's changes.
fn digest_of(changes: &str) -> Option<Digest> {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    changes.split(',').for_each(|change| push(&mut builder, change));
    digest(&builder.seal())
}

/// The digest of one row that came into being.
fn digest_of_row(columns: &[(u32, Option<&[u8]>)]) -> Option<Digest> {
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    builder.push_insert(DatabaseId::FIRST.table(1), &image(columns)).unwrap();
    digest(&builder.seal())
}

#[test]
fn the_order_and_the_steps_of_changes_do_not_count() {
    let in_two_steps = digest_of("1 U 5a 5b, 2 I 7x, 1 U 5b 5c");
    assert!(in_two_steps.is_some());
    assert_eq!(in_two_steps, digest_of("2 I 7x, 1 U 5a 5c"));
    assert_eq!(digest_of("1 I 1a, 1 I 2b, 1 D 3c"), digest_of("1 D 3c, 1 I 2b, 1 I 1a"));
}

#[test]
fn other_rows_have_another_digest() {
    let all = [
        "1 U 5a 5b",
        "1 U 5a 5c",
        "1 U 5x 5b",
        "2 U 5a 5b",
        "1 I 5b",
        "1 D 5b",
        "1 D 5a, 1 I 5b, 1 I 5b",
        "1 U 5b 5a",
    ];
    for (at, one) in all.iter().enumerate() {
        for other in &all[at + 1..] {
            assert_ne!(digest_of(one), digest_of(other), "{one} and {other}");
        }
    }
}

/// Each server numbers its types by itself.
#[test]
fn the_numbers_of_types_do_not_count_but_values_and_their_ends_do() {
    let of = |first: &[u8], second: Option<&[u8]>, oid| digest_of_row(&[(oid, Some(first)), (TEXT, second)]);
    assert_eq!(of(b"ab", Some(b"c"), MOOD), of(b"ab", Some(b"c"), MOOD + 1));
    assert_ne!(of(b"ab", Some(b"c"), MOOD), of(b"a", Some(b"bc"), MOOD));
    assert_ne!(of(b"ab", Some(b""), MOOD), of(b"ab", None, MOOD));
}

#[test]
fn what_is_more_than_rows_has_none() {
    assert_eq!(digest_of("1 I 5a, 1 T"), None);
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    push(&mut builder, "1 I 5a");
    builder.push_statement(&Statement::default()).unwrap();
    assert_eq!(digest(&builder.seal()), None);
}
