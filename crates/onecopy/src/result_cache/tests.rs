//! The cache by itself: which requests are equal, which replies can be kept, and what is forgotten.

use cluster::event::Reads;
use cluster::ids::Version;
use wire::encode;

use super::answer::{Answer, Basis, body_of, is_same};
use super::request::{Question, Request};
use super::{Audience, ResultCache, Traits};

fn traits(all: &[&str]) -> Traits {
    let mut traits = Traits::default();
    traits.add_all(all.iter().map(|one| one.as_bytes()));
    traits
}

fn request(audience: Audience, sql: &[u8]) -> Request {
    Request::new(audience, 1, Question::Text(sql))
}

fn answer(body: &[u8]) -> Answer {
    let basis = Basis::Rows { reads: Reads::Catalogue, as_of: Version(3), generation: Version(1) };
    Answer::new(body.into(), basis, 7)
}

fn reply(values: &[&str]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::row_description(&mut out, &["v"]);
    for value in values {
        encode::data_row(&mut out, &[Some(value.as_bytes())]);
    }
    encode::command_complete(&mut out, "SELECT 1");
    out
}

#[test]
fn an_answer_is_found_by_the_same_request_of_the_same_audience() {
    let cache = ResultCache::of(1 << 20, false);
    let (joe, ann) = (cache.audience(traits(&["joe"])), cache.audience(traits(&["ann"])));
    assert_eq!(joe, cache.audience(traits(&["joe"])));
    assert_ne!(joe, ann);
    assert_ne!(cache.audience(traits(&["a", "b"])), cache.audience(traits(&["ab"])));
    cache.keep(request(joe, b"select 1"), answer(b"x"));
    assert!(cache.find(&request(joe, b"select 1")).is_some());
    assert!(cache.find(&request(ann, b"select 1")).is_none());
    assert!(cache.find(&request(joe, b"select 2")).is_none());
    assert!(cache.find(&Request::new(joe, 2, Question::Text(b"select 1"))).is_none(), "other object ids");
}

#[test]
fn forms_types_and_values_part_requests() {
    let cache = ResultCache::of(1 << 20, false);
    let audience = cache.audience(traits(&[]));
    let bound = |sql: &'static [u8], types: &'static [u8], values: &'static [u8], is_described| {
        Request::new(audience, 1, Question::Bound { sql, types, values, is_described })
    };
    let all = [
        request(audience, b"ab"),
        bound(b"ab", b"", b"", false),
        bound(b"ab", b"", b"", true),
        bound(b"a", b"b", b"", true),
        bound(b"a", b"", b"b", true),
    ];
    for (index, one) in all.iter().enumerate() {
        assert_eq!(all.iter().position(|other| other == one), Some(index));
    }
}

#[test]
fn what_is_forgotten_is_not_found_even_if_it_is_kept_later() {
    let cache = ResultCache::of(1 << 20, false);
    let before = cache.audience(traits(&["joe"]));
    cache.keep(request(before, b"select 1"), answer(b"x"));
    let era = cache.era();
    cache.forget();
    assert_ne!(cache.era(), era, "sessions ask for their audience anew");
    // A session whose read ran meanwhile keeps its answer now.
    cache.keep(request(before, b"select 2"), answer(b"x"));
    let after = cache.audience(traits(&["joe"]));
    assert!(cache.find(&request(after, b"select 1")).is_none());
    assert!(cache.find(&request(after, b"select 2")).is_none());
}

#[test]
fn memory_is_bounded() {
    let cache = ResultCache::of(100_000, false);
    let audience = cache.audience(traits(&[]));
    for n in 0..10_000 {
        cache.keep(request(audience, format!("select {n}").as_bytes()), answer(&[0; 1_000]));
    }
    let (entries, bytes, limit) = cache.in_memory();
    assert!(
        entries > 10 && bytes <= limit && limit <= 100_000,
        "{entries} answers, {bytes} bytes of {limit}"
    );
    let off = ResultCache::of(0, false);
    off.keep(request(audience, b"select 1"), answer(b"x"));
    assert!(!off.is_on() && off.find(&request(audience, b"select 1")).is_none());
}

#[test]
fn only_rows_and_their_description_are_kept() {
    let whole = reply(&["1", "2"]);
    assert_eq!(body_of(&whole), Some(whole.as_slice()));
    let mut extended = Vec::new();
    encode::bare(&mut extended, b'1');
    encode::bare(&mut extended, b'2');
    extended.extend_from_slice(&whole);
    assert_eq!(body_of(&extended), Some(whole.as_slice()));
    let mut noticed = Vec::new();
    encode::notice(&mut noticed, "NOTICE", "00000", "look", None);
    noticed.extend_from_slice(&whole);
    assert_eq!(body_of(&noticed), None);
    assert_eq!(body_of(&[whole.as_slice(), whole.as_slice()].concat()), None, "two answers");
    assert_eq!(body_of(&whole[..whole.len() - 1]), None, "cut off");
    let mut failed = Vec::new();
    encode::error(&mut failed, "ERROR", "22012", "division by zero", None);
    assert_eq!(body_of(&failed), None);
}

#[test]
fn the_order_of_rows_is_open() {
    assert!(is_same(&reply(&["1", "2"]), &reply(&["2", "1"])));
    assert!(!is_same(&reply(&["1", "2"]), &reply(&["1", "1"])));
    assert!(!is_same(&reply(&["1"]), &reply(&["1", "1"])));
}

#[test]
fn an_answer_is_checked_once_for_each_durable_version() {
    let answer = answer(b"x");
    assert!(!answer.is_checked_at(Version(3)) && !answer.is_checked_at(Version::ZERO));
    answer.note_checked(Version(3));
    assert!(answer.is_checked_at(Version(3)) && !answer.is_checked_at(Version(4)));
    answer.note_checked(Version(2));
    assert!(answer.is_checked_at(Version(3)), "a session that looked earlier reports later");
}
