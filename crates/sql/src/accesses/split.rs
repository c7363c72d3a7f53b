//! The value of one column, by which the rows of a table are split into parts.
//!
//! A row tells the value by its image, a statement by what it compares the column with. Both give the text that a server shows for the
//! value, since servers compute the part from that text, too. With `district` split by `d_w_id`,
//! `UPDATE district SET .. WHERE d_w_id = 3 AND d_id = 7` names the value `3`.
//!
//! Invariant: two values that PostgreSQL holds for equal have the same text. So only types are accepted of which each value has one text:
//! integers, text and varchar under deterministic collations, and uuid.
//!
//! Not here: which part a value is in.

use super::value::{Form, Value};
use super::{Accesses, Claim, Columns, Rows};
use crate::catalogue::{Catalogue, Column, Table, TableId};

/// Whether a table can be split by a column of this type.
pub fn may_split(column: &Column) -> bool {
    !column.generated && matches!(Form::of_column(column), Some(Form::Int | Form::Text | Form::Uuid))
}

/// The text of the value of a column in a row's image; the inner one is `None` for NULL, the outer one if it is not known.
pub fn split_value(table: &Table, column: usize, row: &[Option<&[u8]>]) -> Option<Option<String>> {
    let form = table.columns.get(column).filter(|column| may_split(column)).and_then(Form::of_column)?;
    match row.get(column)? {
        None => Some(None),
        // A value that is too long to be kept apart has its text all the same.
        Some(bytes) if form == Form::Text => Some(Some(std::str::from_utf8(bytes).ok()?.to_owned())),
        Some(bytes) => text(&form.decode(bytes)?).map(Some),
    }
}

/// The text of a value, as [`split_value`] gives it; `None` for values by which nothing is split, or that are not known.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::Int(number) => Some(number.to_string()),
        Value::Text(text) => Some(text.as_ref().to_owned()),
        Value::Uuid(bytes) => {
            let digits = format!("{:032x}", u128::from_be_bytes(*bytes));
            let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
            Some(groups.join("-"))
        }
        _ => None,
    }
}

/// All values that accesses name of the columns by which tables are split, `None` among them for NULL. The result is `None` if some row of
/// such a table may have any value. `column` gives the column of a table that is split.
pub fn named_values(
    accesses: &Accesses,
    catalogue: &Catalogue,
    column: impl Fn(TableId) -> Option<usize>,
) -> Option<Vec<Option<String>>> {
    let mut values = Vec::new();
    if accesses.unbounded.is_some() {
        return None;
    }
    let claims = accesses.claims.iter().map(|claim: &Claim| (claim.table, &claim.rows));
    let locks = accesses.locks.iter().map(|lock| (lock.table, &lock.rows));
    let rows = accesses.reads.iter().chain(&accesses.writes).map(|access| (access.table, &access.rows));
    for (table, rows) in rows.chain(claims).chain(locks) {
        if let Some(column) = column(table) {
            values.extend(values_of(rows, column)?);
        }
    }
    let reaches_any = |write: &super::Access| {
        let has_column = column(write.table).is_some();
        !has_column && !write.new && reaches_split(write.table, write.columns, catalogue, &column)
    };
    (!accesses.writes.iter().any(reaches_any)).then_some(values)
}

/// Whether a write of these columns can leave rows without the parent that they refer to by these.
fn is_followed(written: Columns, parent_columns: &[usize]) -> bool {
    match written {
        Columns::All => true,
        Columns::Some(set) => parent_columns.iter().any(|at| set.contains(*at)),
    }
}

/// The values that rows have in a column.
fn values_of(rows: &Rows, column: usize) -> Option<Vec<Option<String>>> {
    let Rows::AnyOf(matches) = rows else { return None };
    let of = |value: &Value| match value {
        Value::Null => Some(None),
        value => text(value).map(Some),
    };
    matches.iter().map(|one| of(one.value(column)?)).collect()
}

/// Whether removing rows of a table that is not split, or changing these columns, makes the server look into a split one: at the rows
/// that refer to them. Rows of a split table that refer to a split one are in the part of the row that they refer to.
fn reaches_split(
    table: TableId,
    columns: Columns,
    catalogue: &Catalogue,
    column: &impl Fn(TableId) -> Option<usize>,
) -> bool {
    let mut children = catalogue.referenced_by(table);
    children.any(|(child, reference)| {
        column(child.id).is_some() && is_followed(columns, &reference.parent_columns)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accesses::{Access, Equality, Match};

    #[test]
    fn a_value_has_one_text() {
        let cases = [
            (Value::Int(-7), Some("-7")),
            (Value::Text("a b".into()), Some("a b")),
            (Value::Uuid([0x11; 16]), Some("11111111-1111-1111-1111-111111111111")),
            (Value::Bool(true), None),
            (Value::Fresh, None),
        ];
        for (value, wanted) in cases {
            assert_eq!(text(&value).as_deref(), wanted);
        }
    }

    #[test]
    fn a_row_tells_its_value_as_a_statement_does() {
        let column = |type_oid| Column { type_oid, collation_deterministic: true, ..Column::default() };
        let table = Table { columns: [20, 23, 25, 2950, 1700].map(column).into(), ..Table::default() };
        let (big, small) = (7_i64.to_be_bytes(), 7_i32.to_be_bytes());
        let row: [Option<&[u8]>; 5] = [Some(&big), Some(&small), Some(b"7"), None, Some(&[0, 0])];
        for at in 0..3 {
            assert_eq!(split_value(&table, at, &row), Some(Some("7".to_owned())));
        }
        assert_eq!(split_value(&table, 3, &row), Some(None));
        assert_eq!(split_value(&table, 4, &row), None, "numeric has several texts for one value");
        let long = "x".repeat(5_000);
        assert_eq!(split_value(&table, 2, &[None, None, Some(long.as_bytes())]), Some(Some(long.clone())));
    }

    #[test]
    fn every_row_of_a_split_table_has_to_be_named() {
        let table = TableId::default();
        let one = |value: Value| Match::new(vec![Equality { column: 1, value }]);
        let read = |rows| Access { table, columns: Columns::All, rows, new: false };
        let named = |rows: Rows| {
            let accesses = Accesses { reads: vec![read(rows)], ..Accesses::default() };
            named_values(&accesses, &Catalogue::default(), |_| Some(1))
        };
        let rows = Rows::any_of(vec![one(Value::Int(1)), one(Value::Null)]);
        assert_eq!(named(rows), Some(vec![Some("1".to_owned()), None]));
        assert_eq!(named(Rows::All), None);
        assert_eq!(named(Rows::any_of(vec![one(Value::Int(1)), one(Value::Fresh)])), None);
        assert_eq!(named_values(&Accesses::default(), &Catalogue::default(), |_| Some(1)), Some(Vec::new()));
    }
}
