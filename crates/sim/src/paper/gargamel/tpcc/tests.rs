//! Claims against Table II, pair by pair; the mix; false positives.

use super::*;

fn payment(w: u64, c: u64, cw: u64, cd: u64) -> Transaction {
    Transaction::Payment { w, d: 0, c, cw, cd, is_by_name: false }
}

fn by_name(w: u64, c: u64, cw: u64, cd: u64) -> Transaction {
    Transaction::Payment { w, d: 0, c, cw, cd, is_by_name: true }
}

fn new_order(w: u64, d: u64, items: &[(u64, u64)]) -> Transaction {
    Transaction::NewOrder { w, d, items: items.to_vec() }
}

fn delivery(w: u64) -> Transaction {
    Transaction::Delivery { w, customers: (0..DISTRICTS).collect() }
}

fn overlap(a: &Transaction, b: &Transaction) -> bool {
    let by_columns = a.predicted(Reading::Columns).overlaps(&b.predicted(Reading::Columns));
    assert_eq!(by_columns, b.predicted(Reading::Columns).overlaps(&a.predicted(Reading::Columns)));
    by_columns
}

/// Table II, each condition met alone, and none.
#[test]
fn table_2_pair_by_pair() {
    let order = new_order(1, 1, &[(1, 5), (1, 6)]);
    let orders = [
        (new_order(1, 1, &[(1, 7)]), true, "w1 = w2 and d1 = d2"),
        (new_order(2, 2, &[(1, 6)]), true, "a common item"),
        (new_order(1, 2, &[(1, 7)]), false, "another district, no common item"),
        (new_order(2, 1, &[(2, 5)]), false, "the item of another warehouse"),
    ];
    for (other, conflict, why) in orders {
        assert_eq!(overlap(&order, &other), conflict, "{why}");
    }
    let paid = payment(1, 7, 2, 3);
    let payments = [
        (payment(1, 8, 4, 4), true, "w1 = w2"),
        (payment(5, 7, 2, 3), true, "the same customer"),
        (payment(5, 8, 2, 3), false, "another customer of the district"),
        (payment(5, 7, 2, 4), false, "another district"),
        (by_name(5, 8, 2, 3), true, "by name: any customer of the district"),
        (by_name(5, 7, 2, 4), false, "by name, but of another district"),
    ];
    for (other, conflict, why) in payments {
        assert_eq!(overlap(&paid, &other), conflict, "{why}");
    }
    assert!(overlap(&by_name(1, 1, 2, 3), &by_name(5, 2, 2, 3)), "two by name");
    for payment in [payment(3, 7, 1, 3), by_name(3, 7, 1, 3)] {
        assert!(overlap(&delivery(1), &payment), "w1 = cw2");
        assert!(!overlap(&delivery(3), &payment), "the customer is of another warehouse");
        assert!(!overlap(&order, &payment), "other columns");
    }
    assert!(overlap(&delivery(1), &delivery(1)) && !overlap(&delivery(1), &delivery(2)));
    assert!(!overlap(&order, &delivery(1)));
    for read in [Kind::OrderStatus, Kind::StockLevel].map(Transaction::ReadOnly) {
        assert!([&order, &paid, &delivery(1), &read].iter().all(|other| !overlap(&read, other)));
    }
}

/// Deviation: PostgreSQL finds New-Order and Payment in conflict, which update one row of `district`.
#[test]
fn rows_add_new_order_with_payment_of_one_district() {
    let [order, other] = [new_order(1, 0, &[(1, 5)]), new_order(1, 1, &[(1, 6)])];
    let paid = payment(1, 7, 2, 3);
    let rows =
        |a: &Transaction, b: &Transaction| a.predicted(Reading::Rows).overlaps(&b.predicted(Reading::Rows));
    assert!(rows(&order, &paid) && !overlap(&order, &paid));
    assert!(!rows(&other, &paid), "another district");
    assert!(!rows(&order, &other));
}

/// Every condition of Table II over drawn transactions, spelled out from their parameters.
fn by_table(a: &Transaction, b: &Transaction) -> bool {
    use Transaction::{Delivery, NewOrder, Payment};
    match (a, b) {
        (NewOrder { w: w1, d: d1, items: i1 }, NewOrder { w: w2, d: d2, items: i2 }) => {
            w1 == w2 && d1 == d2 || i1.iter().any(|item| i2.contains(item))
        }
        (
            Payment { w: w1, c: c1, cw: cw1, cd: cd1, is_by_name: n1, .. },
            Payment { w: w2, c: c2, cw: cw2, cd: cd2, is_by_name: n2, .. },
        ) => w1 == w2 || (cw1 == cw2 && cd1 == cd2 && (c1 == c2 || *n1 || *n2)),
        (Delivery { w: w1, .. }, Delivery { w: w2, .. }) => w1 == w2,
        (Delivery { w, .. }, Payment { cw, .. }) | (Payment { cw, .. }, Delivery { w, .. }) => w == cw,
        _ => false,
    }
}

/// IV-A: "The static analysis is complete, i.e., there are no false negatives".
#[test]
fn predictions_are_table_2_and_complete() {
    let mut dice = Dice::new(11);
    let all: Vec<Transaction> = (0..700).map(|_| Transaction::draw(&mut dice)).collect();
    for reading in [Reading::Columns, Reading::Rows] {
        let claims = |one: &Transaction| (one.predicted(reading), one.written(reading));
        let claims: Vec<(Claims, Claims)> = all.iter().map(claims).collect();
        for (a, (predicted, written)) in all.iter().zip(&claims) {
            for (b, (other, other_written)) in all.iter().zip(&claims) {
                let is_predicted = predicted.overlaps(other);
                assert!(is_predicted || !written.overlaps(other_written), "{a:?} {b:?}");
                if reading == Reading::Columns {
                    assert_eq!(is_predicted, by_table(a, b), "{a:?} {b:?}");
                }
            }
        }
    }
}

/// IV-A: "92% of the workload consists of update read-write transactions".
#[test]
fn the_mix_is_that_of_the_paper() {
    let mut dice = Dice::new(12);
    let all: Vec<Transaction> = (0..20_000).map(|_| Transaction::draw(&mut dice)).collect();
    let updates = all.iter().filter(|one| one.kind().is_update()).count();
    assert!((18_250..18_550).contains(&updates), "{updates}");
    for (kind, percent) in Kind::MIX {
        let count = all.iter().filter(|one| one.kind() == kind).count() as u64;
        assert!(count.abs_diff(percent * 200) < 300, "{kind:?}: {count}");
    }
    for one in &all {
        if let Transaction::NewOrder { items, .. } = one {
            assert!((5..=15).contains(&items.len()));
        }
    }
}

/// Working sets make three groups: New-Order, Stock-Level, and the others, which share customers and orders.
#[test]
fn working_sets_make_three_groups() {
    let sets: Vec<KindOfGroup> = Kind::MIX.iter().map(|(kind, _)| kind.working_set()).collect();
    let groups = cluster::parts::groups::pack(&sets, MEMORY_BYTES);
    let sizes: Vec<usize> = groups.iter().map(std::collections::BTreeSet::len).collect();
    assert_eq!(sizes, [1, 1, 3], "{groups:?}");
}
