//! Tables that are written in a sandbox: the statement outside and the one inside.

use super::super::*;
use super::{INT, TEXT, columns, image, planned_over, table};
use crate::ids::DatabaseId;

/// A key of a domain over integers, and a column that is read inside.
fn own(primary_key: &[usize]) -> RefreshTables {
    let mut own = table(1, primary_key, false);
    own.columns[0].type_oid = 20_000;
    own.columns[1] =
        RefreshColumn { type_oid: 20_002, form: Form::Text, array_oid: None, ..own.columns[1].clone() };
    let cast =
        |kind: &str| (format!("CAST({kind}"), format!(" AS s.{})", if kind.is_empty() { "d" } else { "p" }));
    let [(before, behind), (reading, read)] = ["", "onecopy.read_as("].map(cast);
    own.sandbox = Some(Sandbox {
        columns: vec![
            StagedColumn {
                type_oid: INT,
                type_name: "integer".to_owned(),
                array_oid: Some(1007),
                is_read_inside: false,
                before,
                behind,
            },
            StagedColumn {
                type_oid: TEXT,
                type_name: "text".to_owned(),
                array_oid: Some(1009),
                is_read_inside: true,
                before: reading,
                behind: format!(", NULL::s.p){read}"),
            },
        ],
    });
    let mut tables = RefreshTables::default();
    tables.insert(own);
    tables
}

#[test]
fn values_are_harmless_outside_and_turned_into_their_types_inside() {
    let tables = own(&[0]);
    let own = tables.table(DatabaseId::FIRST.table(1)).unwrap();
    let outside = own.sql(Kind::UpdateFew(2, columns([1])));
    assert_eq!((&*outside.text, outside.types), ("VALUES ($1, $2), ($3, $4)", vec![TEXT, INT, TEXT, INT]));
    let (key, value) = ("CAST(u.c2 AS s.d)", "CAST(onecopy.read_as(u.c1, NULL::s.p) AS s.p)");
    assert_eq!(
        own.sandboxed_sql(Kind::UpdateFew(2, columns([1]))).unwrap(),
        format!(
            "UPDATE ONLY \"s\".\"t1\" AS t SET \"b\" = {value} FROM onecopy.staged() AS u(c1 text, c2 integer) \
             WHERE t.\"a\" OPERATOR(pg_catalog.=) ANY (ARRAY[{key}])"
        )
    );
    assert_eq!(
        own.sandboxed_sql(Kind::DeleteMany).unwrap(),
        "DELETE FROM ONLY \"s\".\"t1\" AS t USING onecopy.staged() AS u(c1 integer) \
         WHERE t.\"a\" OPERATOR(pg_catalog.=) ANY (ARRAY[CAST(u.c1 AS s.d)])"
    );
    assert_eq!(own.sql(Kind::DeleteMany).text, "SELECT * FROM pg_catalog.unnest($1)");
    assert_eq!(own.sql(Kind::DeleteMany).types, [1007]);
}

#[test]
fn rows_are_never_copied_into_a_sandbox() {
    assert!(planned_over(&own(&[0]), 20).iter().all(|step| step.contains("InsertFew")));
    let mut tables = own(&[0]);
    let mut elements = tables.table(DatabaseId::FIRST.table(1)).unwrap().clone();
    elements.columns[1] =
        RefreshColumn { form: Form::Binary, array_oid: Some(20_003), ..elements.columns[1].clone() };
    elements.sandbox.as_mut().unwrap().columns[1].is_read_inside = false;
    tables.insert(elements);
    assert!(planned_over(&tables, 20).iter().all(|step| step.contains("InsertMany")));
}

/// A replica could read it outside only, where code of users would run with the rights of the applier.
#[test]
fn a_value_of_an_earlier_release_is_refused_where_it_is_read_inside() {
    let tables = own(&[0]);
    let own = tables.table(DatabaseId::FIRST.table(1)).unwrap();
    let values = |oid| image(&[(20_000, Some(&[0, 0, 0, 1])), (oid, Some(b"(1)"))]);
    assert!(own.values(&values(TEXT)).is_ok());
    assert!(matches!(own.values(&values(20_002)), Err(RefreshError::OtherColumns { .. })));
}
