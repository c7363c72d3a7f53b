//! Transactions of TPC-C, as clause 2 of the specification draws them.

use sim::dice::Dice;

use super::{Drawn, Sent, sent};

const WAREHOUSES: u64 = 20;

/// One transaction of the standard mix. New-Orders that are rolled back are not drawn, since nothing is learned of them.
pub(super) fn transaction(dice: &mut Dice) -> Drawn {
    match dice.below(100) {
        0..45 => ("NewOrder", new_order(dice)),
        45..88 => ("Payment", payment(dice)),
        88..92 => ("OrderStatus", order_status(dice)),
        92..96 => ("Delivery", delivery(dice)),
        _ => ("StockLevel", stock_level(dice)),
    }
}

/// Warehouse, district and customer.
fn place(dice: &mut Dice) -> (u64, u64, u64) {
    (dice.between(1, WAREHOUSES), dice.between(1, 10), dice.between(1, 3000))
}

/// Another warehouse one time in so many, else the own.
fn warehouse(dice: &mut Dice, home: u64, remote_percent: u64) -> u64 {
    if dice.percent(remote_percent) { dice.between(1, WAREHOUSES) } else { home }
}

fn new_order(dice: &mut Dice) -> Vec<Sent> {
    let (w, d, c) = place(dice);
    let (order, lines) = (dice.between(3001, 9000), dice.between(5, 15));
    let mut all = vec![
        sent("getCustomer", &[w, d, c]),
        sent("getWarehouseTax", &[w]),
        sent("getDistrict", &[w, d]),
        sent("advanceDistrict", &[w, d]),
        sent("addOrder", &[w, d, order, c, lines, 1]),
        sent("addNewOrder", &[w, d, order]),
    ];
    for line in 1..=lines {
        let (item, supply, quantity) = (dice.between(1, 100_000), warehouse(dice, w, 1), dice.between(1, 10));
        let left = dice.between(10, 100);
        all.push(sent("getItem", &[item]));
        all.push(sent("getStock", &[supply, item]));
        all.push(sent("changeStock", &[supply, item, left, quantity, u64::from(supply != w)]));
        let amount = dice.between(1, 9999);
        all.push(sent("addOrderLine", &[w, d, order, line, item, supply, quantity, amount, 7]));
    }
    all
}

fn payment(dice: &mut Dice) -> Vec<Sent> {
    let (w, d, c) = place(dice);
    let (customer_w, amount) = (warehouse(dice, w, 15), dice.between(100, 500_000));
    let customer_d = if customer_w == w { d } else { dice.between(1, 10) };
    let mut all = vec![
        sent("payWarehouse", &[w, amount]),
        sent("getWarehouse", &[w]),
        sent("payDistrict", &[w, d, amount]),
        sent("getDistrictAddress", &[w, d]),
    ];
    if dice.percent(60) {
        all.push(sent("customersByName", &[customer_w, customer_d, dice.below(1000)]));
    }
    all.push(sent("getPayer", &[customer_w, customer_d, c]));
    if dice.percent(10) {
        all.push(sent("getPayerData", &[customer_w, customer_d, c]));
        all.push(sent("payCustomerBadCredit", &[customer_w, customer_d, c, amount, 1]));
    } else {
        all.push(sent("payCustomer", &[customer_w, customer_d, c, amount]));
    }
    all.push(sent("addHistory", &[customer_w, customer_d, c, w, d, amount, 1]));
    all
}

fn order_status(dice: &mut Dice) -> Vec<Sent> {
    let (w, d, c) = place(dice);
    let mut all = Vec::new();
    if dice.percent(60) {
        all.push(sent("customersByName", &[w, d, dice.below(1000)]));
    }
    all.push(sent("getBalance", &[w, d, c]));
    all.push(sent("newestOrder", &[w, d, c]));
    all.push(sent("getOrderLines", &[w, d, dice.between(1, 9000)]));
    all
}

fn delivery(dice: &mut Dice) -> Vec<Sent> {
    let (w, carrier) = (dice.between(1, WAREHOUSES), dice.between(1, 10));
    let mut all = Vec::new();
    for d in 1..=10 {
        let (order, c, amount) = (dice.between(2101, 9000), dice.between(1, 3000), dice.between(1, 99_999));
        all.push(sent("oldestNewOrder", &[w, d]));
        all.push(sent("removeNewOrder", &[w, d, order]));
        all.push(sent("getOrderCustomer", &[w, d, order]));
        all.push(sent("setCarrier", &[w, d, order, carrier]));
        all.push(sent("deliverLines", &[w, d, order]));
        all.push(sent("sumLines", &[w, d, order]));
        all.push(sent("creditCustomer", &[w, d, c, amount]));
    }
    all
}

fn stock_level(dice: &mut Dice) -> Vec<Sent> {
    let (w, d, _) = place(dice);
    let next = dice.between(3001, 9000);
    vec![sent("getNextOrder", &[w, d]), sent("countLowStock", &[w, d, next, dice.between(10, 20)])]
}
