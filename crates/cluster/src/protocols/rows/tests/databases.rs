//! A table number means another table in each database: what is of two databases never meets.

use super::*;

const SALES: DatabaseId = DatabaseId(1);
const STOCK: DatabaseId = DatabaseId(2);

/// The row 5 of table 7 of a database.
fn row(database: DatabaseId) -> Claims {
    Claims { rows: vec![(database.table(7), 5)], ..Claims::default() }
}

fn reading(database: DatabaseId) -> Reads {
    Reads::Rows(Arc::new(Footprint { rows: row(database).rows, ..Footprint::default() }))
}

impl Bench {
    /// Begins at a replica with a statement that writes the row.
    fn write_row(&mut self, session: SessionId, home: u16, database: DatabaseId) -> Vec<String> {
        let needs = Needs {
            reads: reading(database),
            writes: row(database),
            cost_us: 1,
            near: None,
            catalogue: Version::ZERO,
            kind: None,
            touches: Touches::Anything,
        };
        self.feed(Event::Begin {
            session,
            level: Level::ReadCommitted,
            nonce: Nonce(session.0),
            home: Home::At(ReplicaId(home)),
            needs,
            foreseen: Foreseen::default(),
        })
    }

    fn finish_row(&mut self, session: SessionId, database: DatabaseId) -> Vec<String> {
        let mut body = RecordBuilder::new(database);
        body.push_delete(database.table(7), &[0, 0, 0, 0]).unwrap();
        self.feed(Event::Finish {
            session,
            body: Box::new(body.seal()),
            claims: claimed(row(database)),
            changed: Vec::new(),
            reads: Reads::All,
        })
    }

    fn read_row(&mut self, session: SessionId, at: u16, database: DatabaseId) -> Vec<String> {
        let (reads, at) = (reading(database), Some(ReplicaId(at)));
        self.feed(Event::Read {
            session,
            touches: reads.touches(),
            reads,
            at,
            cost_us: 1,
            near: None,
            catalogue: Version::ZERO,
            kind: None,
        })
    }
}

#[test]
fn a_statement_waits_for_the_row_in_its_own_database_only() {
    let mut bench = Bench::new();
    assert_eq!(bench.write_row(S1, 1, SALES), ["execute 1 at 1"]);
    assert_eq!(bench.write_row(S2, 2, STOCK), ["execute 2 at 2"]);
    assert!(bench.write_row(S3, 0, SALES).is_empty(), "it waits for the first one");
    assert_eq!(bench.feed(Event::End { session: S2 }), [""; 0], "the second one is not in its way");
    assert_eq!(bench.feed(Event::End { session: S1 }), ["execute 3 at 0"]);
}

#[test]
fn a_read_needs_the_versions_of_its_own_database_only() {
    let mut bench = Bench::new();
    bench.write_row(S1, 0, SALES);
    assert_eq!(bench.finish_row(S1, SALES), ["append 1"]);
    bench.feed(Event::Logged { upto: Version(1) });
    assert_eq!(bench.read_row(S2, 1, STOCK), ["execute 2 at 1"], "version 1 is nothing to it");
    assert!(bench.read_row(S3, 1, SALES).is_empty(), "replica 1 has not applied version 1");
    assert_eq!(bench.applied(1, 1), ["execute 3 at 1"]);
}

#[test]
fn certification_compares_rows_of_one_database() {
    for (other, ends) in [(STOCK, "append 2"), (SALES, "conflict 2 with 1")] {
        let mut bench = Bench::new();
        // Nothing was predicted of the second one, so it does not wait, and its snapshot lacks version 1.
        bench.begin(S2, false);
        bench.write_row(S1, 1, SALES);
        bench.finish_row(S1, SALES);
        bench.feed(Event::Logged { upto: Version(1) });
        bench.feed(Event::Committed { session: S1 });
        let found = bench.finish_row(S2, other);
        assert!(found.iter().any(|effect| effect.starts_with(ends)), "{found:?}");
    }
}
