//! Rows in a file give the same as rows in the record, however they are cut into chunks.

use cluster::record::{Change, Item};

use commitlog::SpillStore;

use super::*;
use cluster::ids::DatabaseId;

/// A write whose rows are captured out of order. With chunks of one row the applier cannot mend the order. The front
/// end rejects such a write.
const OUT_OF_ORDER: &str = "SET filler = 'set'";

/// Makes the same record, with chunks of so many elements in a file.
async fn in_chunks(record: &Record, spills: &dyn SpillStore, elements: u64) -> Arc<Record> {
    let mut writer = spills.create(record.header().identity).await.unwrap();
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let mut spill = async |builder: &mut RecordBuilder| {
        if builder.elements().is_multiple_of(elements)
            && let Some(chunk) = builder.spill()
        {
            writer.append(chunk).await.unwrap();
        }
    };
    for item in record.items() {
        match item {
            Item::Rows(rows) => {
                for row in &rows {
                    match row.change {
                        Change::Insert { new } => builder.push_insert(row.table, new),
                        Change::Update { old, new } => builder.push_update(row.table, old, new),
                        Change::Delete { old } => builder.push_delete(row.table, old),
                        Change::Truncate => builder.push_truncate(row.table),
                    }
                    .unwrap();
                    spill(&mut builder).await;
                }
            }
            Item::Statement(statement) => builder.push_statement(&statement).unwrap(),
            other => panic!("{other:?} is not written by these tests"),
        }
        spill(&mut builder).await;
    }
    writer.finish().await.unwrap();
    let spilled = Arc::new(builder.finish(*record.header()));
    if !spilled.is_spilled() {
        spills.remove(record.header().identity).await.unwrap();
    }
    spilled
}

#[tokio::test]
async fn chunks_arrive_as_whole_records_do() {
    let mut pair = Pair::start().await;
    let spills = SpillFolder::new(pair.servers[1].folder(), CLUSTER);
    for sql in SCHEMA {
        let record = pair.home.ddl(sql).await;
        pair.second.must_apply(vec![in_chunks(&record, &spills, 1).await]).await;
    }
    for elements in [1, 7] {
        for sql in WRITES.iter().filter(|sql| !sql.contains(OUT_OF_ORDER)) {
            let record = pair.home.write(sql).await;
            let chunked = in_chunks(&record, &spills, elements).await;
            assert!(chunked.is_spilled() || record.rows() < elements, "{sql}");
            pair.second.must_apply(vec![chunked]).await;
            pair.assert_identical().await;
        }
        let sql = "TRUNCATE accounts, wide, heap, twice, parent, parts, old_root, \"odd \"\"Name\" CASCADE";
        let record = pair.home.write(sql).await;
        pair.second.must_apply(vec![in_chunks(&record, &spills, 2).await]).await;
    }
    // Schema changes and rows are mixed, all in the file.
    let mut builder = RecordBuilder::new(DatabaseId::FIRST);
    let made = pair.home.ddl("CREATE TABLE late (id int PRIMARY KEY)").await;
    let Some(Item::Statement(statement)) = made.items().next() else { panic!("{made:?}") };
    builder.push_statement(&statement).unwrap();
    pair.home.run("INSERT INTO late SELECT generate_series(1, 20)", &mut builder).await;
    let record = pair.home.record(builder);
    pair.second.must_apply(vec![in_chunks(&record, &spills, 6).await]).await;
    pair.assert_identical().await;
}

#[tokio::test]
async fn a_file_that_is_damaged_or_gone_quarantines() {
    let mut pair = Pair::start().await;
    let spills = SpillFolder::new(pair.servers[1].folder(), CLUSTER);
    pair.ddl("CREATE TABLE t (id int PRIMARY KEY)").await;
    let record = pair.home.write("INSERT INTO t SELECT generate_series(1, 20)").await;
    let chunked = in_chunks(&record, &spills, 6).await;
    spills.remove(chunked.header().identity).await.unwrap();
    match pair.second.apply(vec![chunked]).await {
        AgentEvent::Diverged { version, reason, .. } => {
            assert_eq!(version, record.header().last);
            assert!(reason.contains("missing"), "{reason}");
        }
        other => panic!("not refused but {other:?}"),
    }
    let mut second = pair.servers[1].connect("").await;
    let rows = second.simple("SELECT count(*) FROM t").await.unwrap();
    assert_eq!(rows, [[Some("0".to_owned())]], "nothing of it stays");
}
