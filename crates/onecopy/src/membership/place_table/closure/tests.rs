//! Tables that refer to each other, as a server tells them.

use cluster::ids::ReplicaId;

use super::*;

const TOLD: &[u8] = br#"{"tables": [], "references": [
    {"child": 2, "child_name": "line", "parent": 1, "parent_name": "orders", "columns": [["o", "k"]]}],
    "views": [{"table": 3, "name": "item", "view": "best"}]}"#;

fn table(number: u32) -> TableId {
    DatabaseId::FIRST.table(number)
}

fn found(orders: u16, line: u16, item: u16) -> Option<Breach> {
    let all = [orders, line, item].map(ReplicaSet::first);
    let copies = |table: TableId| Copies::Whole(all[table.number as usize - 1]);
    breach(TOLD, DatabaseId::FIRST, ReplicaSet::first(3), copies).unwrap()
}

#[test]
fn a_table_is_held_where_what_it_refers_to_is_and_what_a_view_shows_is_everywhere() {
    assert_eq!(found(3, 3, 3), None);
    assert_eq!(found(2, 2, 3), None);
    assert_eq!(found(3, 1, 3), None, "a parent may be held by more");
    let reference = Breach::Reference { child: "line".to_owned(), parent: "orders".to_owned() };
    assert_eq!(found(1, 2, 3), Some(reference));
    let view = Breach::View { view: "best".to_owned(), table: "item".to_owned() };
    assert_eq!(found(3, 3, 2), Some(view));
    let only = ReplicaSet::EMPTY.with(ReplicaId(0));
    let nothing = breach(b"{}", DatabaseId::FIRST, only, |_| Copies::Whole(ReplicaSet::EMPTY));
    assert!(nothing.is_err());
}

#[test]
fn a_new_table_is_held_where_what_it_refers_to_is() {
    let told = br#"{"tables": [{"number": 1, "names": [], "columns": [], "keys": []},
        {"number": 3, "names": [], "columns": [], "keys": []}, {"number": 5, "columns": [], "keys": [], "names": [
            {"schema": "public", "name": "log_1"}]}], "references": [
        {"child": 4, "child_name": "note", "parent": 3, "parent_name": "line", "columns": []},
        {"child": 3, "child_name": "line", "parent": 1, "parent_name": "orders", "columns": []},
        {"child": 2, "child_name": "old", "parent": 1, "parent_name": "orders", "columns": []}], "views": []}"#;
    let everyone = ReplicaSet::first(3);
    let copies =
        |table: TableId| Copies::Whole(if table.number == 1 { ReplicaSet::first(2) } else { everyone });
    let by_rule = |table: NewTable<'_>| {
        table.names.iter().any(|name| name.name == "log_1").then_some(ReplicaSet::first(1))
    };
    let rules = Rules { is_new: &|table| table.number > 2, by_rule: &by_rule, may_be_split: &|_| true };
    let placed = of_new_tables(told, DatabaseId::FIRST, &rules, everyone, copies).unwrap();
    let whole = |count| Copies::Whole(ReplicaSet::first(count));
    assert_eq!(placed, BTreeMap::from([(3, 2), (4, 2), (5, 1)].map(|(n, count)| (table(n), whole(count)))));
}

/// Orders by customer, with their lines; articles that lines refer to; and a note on a line.
const SHOP: &[u8] = br#"{"tables": [
    {"number": 1, "names": [{"schema": "public", "name": "orders"}], "columns": ["c", "o"],
        "keys": [{"name": "orders_pkey", "columns": ["c", "o"]}]},
    {"number": 2, "names": [{"schema": "public", "name": "line"}], "columns": ["c", "o", "n"],
        "keys": [{"name": "line_pkey", "columns": ["c", "o", "n"]}]},
    {"number": 3, "names": [{"schema": "public", "name": "article"}], "columns": ["a"],
        "keys": [{"name": "article_pkey", "columns": ["a"]}]},
    {"number": 4, "names": [{"schema": "public", "name": "note"}], "columns": ["c"],
        "keys": [{"name": "note_pkey", "columns": ["id"]}]}],
    "references": [
    {"child": 2, "child_name": "line", "parent": 1, "parent_name": "orders", "columns": [["c", "c"], ["o", "o"]]},
    {"child": 2, "child_name": "line", "parent": 3, "parent_name": "article", "columns": [["a", "a"]]},
    {"child": 4, "child_name": "note", "parent": 2, "parent_name": "line", "columns": [["c", "c"]]}],
    "views": []}"#;

fn parts(column: &str, holders: &[u16]) -> Copies {
    let holders = holders.iter().map(|count| ReplicaSet::first(*count)).collect();
    Copies::Parts { column: column.into(), holders }
}

/// The breach if these tables are placed so, and all others are everywhere.
fn shop(placed: &[(u32, Copies)]) -> Option<Breach> {
    let everyone = ReplicaSet::first(3);
    let copies = |id: TableId| {
        let found = placed.iter().find(|(number, _)| table(*number) == id);
        found.map_or(Copies::Whole(everyone), |(_, copies)| copies.clone())
    };
    breach(SHOP, DatabaseId::FIRST, everyone, copies).unwrap()
}

#[test]
fn rows_of_a_part_find_all_that_they_refer_to() {
    let by = |column| parts(column, &[1, 2]);
    assert_eq!(shop(&[(2, by("c"))]), Some(across("note", "line")), "notes would be everywhere");
    let only = Copies::Whole(ReplicaSet::first(1));
    assert_eq!(shop(&[(2, by("c")), (4, only.clone())]), None, "notes are where all lines are");
    assert_eq!(shop(&[(1, by("c")), (2, by("c")), (4, only.clone())]), None);
    assert_eq!(shop(&[(1, by("c")), (2, by("n")), (4, only.clone())]), Some(across("line", "orders")));
    let fewer = parts("c", &[1, 1]);
    let reference = |child: &str, parent: &str| {
        Some(Breach::Reference { child: child.to_owned(), parent: parent.to_owned() })
    };
    assert_eq!(shop(&[(1, fewer), (2, by("c")), (4, only.clone())]), reference("line", "orders"));
    assert_eq!(shop(&[(2, by("c")), (3, only.clone()), (4, only)]), reference("line", "article"));
}

fn across(child: &str, parent: &str) -> Breach {
    Breach::Across { child: child.to_owned(), parent: parent.to_owned() }
}

#[test]
fn what_is_unique_is_unique_within_a_part() {
    let (table, column) = ("public.note".to_owned(), "c".to_owned());
    let index = "note_pkey".to_owned();
    assert_eq!(shop(&[(4, parts("c", &[3, 3]))]), Some(Breach::Key { table, column, index }));
    let (table, column) = ("public.article".to_owned(), "price".to_owned());
    assert_eq!(shop(&[(3, parts("price", &[3, 3]))]), Some(Breach::Column { table, column }));
}

#[test]
fn tables_are_split_with_the_one_that_they_refer_to() {
    let following = |column| {
        following(SHOP, DatabaseId::FIRST, table(1), column, |_| false)
            .unwrap()
            .into_iter()
            .map(|(table, column)| (table.number, column))
            .collect::<Vec<_>>()
    };
    let c = |number| (number, "c".to_owned());
    assert_eq!(following("c"), [c(1), c(2), c(4)]);
    assert_eq!(following("o"), [(1, "o".to_owned()), (2, "o".to_owned())]);
}

#[test]
fn a_new_table_below_a_split_one_is_split_if_it_can_be() {
    let split = parts("c", &[1, 2]);
    let copies = |table: TableId| {
        if table.number == 1 { split.clone() } else { Copies::Whole(ReplicaSet::first(3)) }
    };
    let placed = |is_empty: bool| {
        let may_be_split = move |_| is_empty;
        let is_new = |table: TableId| matches!(table.number, 2 | 4);
        let rules = Rules { is_new: &is_new, by_rule: &|_| None, may_be_split: &may_be_split };
        of_new_tables(SHOP, DatabaseId::FIRST, &rules, ReplicaSet::first(3), copies).unwrap()
    };
    let only = Copies::Whole(ReplicaSet::first(1));
    assert_eq!(placed(true), BTreeMap::from([(table(2), split.clone()), (table(4), only.clone())]));
    assert_eq!(placed(false), BTreeMap::from([(table(2), only.clone()), (table(4), only)]));
}
