//! Profiles as sessions would feed them, and their books.

use super::*;
use crate::accesses::Parameter;
use crate::analyzer::{Analyzer, Limits};
use crate::catalogue::{Catalogue, Column, Contents, DatabaseId, Key, Table};

/// Statements by their texts, and what a transaction gave them.
struct Client {
    analyzer: Analyzer,
}

/// A statement with its integer parameters in text form.
type Sent<'a> = (&'a str, &'a [&'a str]);

impl Client {
    fn new() -> Self {
        Self { analyzer: Analyzer::new(Limits::default()) }
    }

    fn statement(&mut self, text: &str) -> Arc<Statement> {
        Arc::clone(&self.analyzer.script(text.as_bytes(), true).unwrap().statements[0].statement)
    }

    fn run(&mut self, profiles: &mut Profiles, transaction: &[Sent<'_>]) {
        let kept: Vec<(Arc<Statement>, Digests)> = transaction
            .iter()
            .map(|(text, values)| {
                let parameters = parameters(values);
                let arguments = Arguments { parameters: &parameters, ..Arguments::default() };
                (self.statement(text), Digests::of(&arguments))
            })
            .collect();
        let steps: Vec<Step<'_>> =
            kept.iter().map(|(statement, arguments)| Step { statement, arguments }).collect();
        profiles.observe(&steps);
        assert_eq!(profiles.statistics().bytes, weighed(profiles), "every byte is accounted");
    }

    fn predict(&mut self, profiles: &Profiles, text: &str) -> Option<Prediction> {
        let template = self.statement(text).template;
        profiles.predict(&[template])
    }
}

fn parameters<'a>(values: &[&'a str]) -> Vec<Parameter<'a>> {
    let parameter =
        |value: &&'a str| Parameter { type_oid: 23, value: Some(value.as_bytes()), binary: false };
    values.iter().map(parameter).collect()
}

/// The bytes held, counted anew.
fn weighed(profiles: &Profiles) -> usize {
    let nodes = profiles
        .nodes
        .iter()
        .flatten()
        .map(|node| Node::BYTES + node.followers.values().map(Follower::weight).sum::<usize>());
    let templates = profiles.templates.values().map(|known| known.statement.bytes());
    nodes.sum::<usize>() + templates.sum::<usize>()
}

const FIRST: &str = "SELECT a FROM t WHERE id = $1";
const SECOND: &str = "UPDATE u SET a = a + $2 WHERE id = $1";
const THIRD: &str = "DELETE FROM v WHERE id = $1";

fn table(id: u32, name: &str) -> Table {
    let column = |name: &str| Column {
        name: name.to_owned(),
        type_oid: 23,
        type_mod: -1,
        not_null: true,
        collation_deterministic: true,
        ..Column::default()
    };
    Table {
        id: DatabaseId::FIRST.table(id),
        schema: "public".to_owned(),
        name: name.to_owned(),
        columns: ["id", "a"].map(column).to_vec(),
        primary_key: vec![0],
        keys: vec![Key { columns: vec![0], primary: true, unique: true, ..Key::default() }],
        ..Table::default()
    }
}

#[test]
fn what_follows_is_predicted_with_the_arguments_that_are_the_same() {
    let (mut client, mut profiles) = (Client::new(), Profiles::new(ProfileLimits::default()));
    assert_eq!(client.predict(&profiles, FIRST), None);
    for (id, amount) in [("1", "1"), ("2", "7"), ("3", "8"), ("4", "4")] {
        client.run(&mut profiles, &[(FIRST, &[id]), (SECOND, &[id, amount]), (SECOND, &[id, "1"])]);
    }
    let prediction = client.predict(&profiles, FIRST).unwrap();
    assert_eq!((prediction.expected.len(), prediction.seen), (1, 4));
    // The first time there was nothing to cover it by.
    assert_eq!(prediction.confidence, 600);
    let expected = &prediction.expected[0];
    assert_eq!(expected.share, 1000);
    let from_first = Source { step: 0, place: Place::Parameter(0) };
    assert_eq!(expected.sources, BTreeMap::from([(Place::Parameter(0), from_first)]));

    let catalogue = Catalogue::new(Contents {
        generation: 1,
        tables: vec![table(1, "t"), table(2, "u"), table(3, "v")],
        ..Contents::default()
    });
    let known = parameters(&["5"]);
    let beginning = [Arguments { parameters: &known, ..Arguments::default() }];
    let accesses = prediction.accesses(&catalogue, &beginning);
    assert_eq!(accesses.unbounded, None);
    let direct = client.statement(SECOND).outline(&catalogue);
    let own = parameters(&["5"]);
    assert_eq!(
        accesses.writes,
        direct.bind(&Arguments { parameters: &own, ..Arguments::default() }).writes,
        "as if the statement had come with what is known"
    );
}

#[test]
fn rare_followers_are_not_expected_and_surprises_lower_the_confidence() {
    let (mut client, mut profiles) = (Client::new(), Profiles::new(ProfileLimits::default()));
    for round in 0..100 {
        let rest: Sent<'_> = if round == 50 { (THIRD, &["1"]) } else { (SECOND, &["1", "1"]) };
        client.run(&mut profiles, &[(FIRST, &["1"]), rest]);
    }
    let prediction = client.predict(&profiles, FIRST).unwrap();
    assert_eq!(prediction.expected.len(), 1, "one in a hundred is less than the least share");
    assert_eq!(prediction.confidence, 98 * 1000 / 101);
}

#[test]
fn what_is_no_longer_done_is_forgotten() {
    let (mut client, mut profiles) = (Client::new(), Profiles::new(ProfileLimits::default()));
    let old: [Sent<'_>; 2] = [(FIRST, &["1"]), (SECOND, &["1", "1"])];
    let new: [Sent<'_>; 2] = [(FIRST, &["1"]), (THIRD, &["1"])];
    for _ in 0..SATURATED {
        client.run(&mut profiles, &old);
    }
    for _ in 0..4 * SATURATED {
        client.run(&mut profiles, &new);
    }
    let third = client.statement(THIRD).template;
    let prediction = client.predict(&profiles, FIRST).unwrap();
    assert_eq!(prediction.expected.iter().map(|one| one.template).collect::<Vec<_>>(), [third]);
}

#[test]
fn bounds_hold_whatever_is_observed() {
    let mut client = Client::new();
    let texts: Vec<String> =
        (0..200).map(|number| format!("SELECT a{number} FROM t WHERE id = $1")).collect();
    for limits in [
        ProfileLimits { nodes: 10, ..ProfileLimits::default() },
        ProfileLimits { bytes: 30_000, ..ProfileLimits::default() },
        ProfileLimits { nodes: 1, ..ProfileLimits::default() },
        ProfileLimits { depth: 0, followers: 0, nodes: 0, bytes: 0, least_share: 0 },
    ] {
        let mut profiles = Profiles::new(limits);
        for round in 0..600_usize {
            let transaction: Vec<Sent<'_>> = (0..round % 9)
                .map(|step| (texts[(round * 7 + step * 31) % 200].as_str(), &["1"][..]))
                .collect();
            client.run(&mut profiles, &transaction);
            let held = profiles.statistics();
            assert!(held.nodes <= limits.nodes.max(1), "{held:?}");
            // What was used just now is never dropped, so that much may be over.
            assert!(held.bytes <= limits.bytes.max(Node::BYTES) + 20_000, "{held:?}");
        }
        assert!(profiles.statistics().nodes == 1 || profiles.statistics().evictions > 0);
    }
}

#[test]
fn equal_histories_give_equal_profiles() {
    let run = || {
        let (mut client, mut profiles) =
            (Client::new(), Profiles::new(ProfileLimits { nodes: 5, ..ProfileLimits::default() }));
        for round in 0..300 {
            let transaction: [Sent<'_>; 2] = if round % 3 == 0 {
                [(FIRST, &["1"]), (THIRD, &["2"])]
            } else {
                [(SECOND, &["1"]), (FIRST, &["1"])]
            };
            client.run(&mut profiles, &transaction);
        }
        format!("{profiles:?}")
    };
    assert_eq!(run(), run());
}

#[test]
fn texts_that_differ_in_constants_are_one_template() {
    let mut client = Client::new();
    let mut template = |text: &str| client.statement(text).template;
    let one = template("SELECT a FROM t WHERE id = 5");
    assert_eq!(one, template("SELECT a FROM t WHERE id = 7 -- x"));
    assert_ne!(one, template("SELECT b FROM t WHERE id = 5"));
    assert_ne!(template("SET x = 1"), template("SET x = 2"));
    let other_thread = Client::new().statement("SELECT a FROM t WHERE id = 9").template;
    assert_eq!(one, other_thread);
}
