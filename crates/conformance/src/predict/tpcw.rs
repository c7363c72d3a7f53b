//! Transactions of TPC-W, in the shares that the shopping mix leads to.
//!
//! Interactions that send one statement at a time are transactions of one statement each: they are learned from, but
//! there is nothing to predict of them.

use sim::dice::Dice;

use super::{Drawn, Sent, sent};

/// Shares of interactions, in hundredths of a percent (clause 5.3 of the specification, shopping mix).
const SHARES: [(&str, u64); 9] = [
    ("browse", 7_500),
    ("createEmptyCart", 300),
    ("doCart", 1_160),
    ("createNewCustomer", 52),
    ("getCart", 260),
    ("doBuyConfirm", 120),
    ("getMostRecentOrder", 66),
    ("adminUpdate", 9),
    ("refreshSession", 208),
];

/// One transaction.
pub(super) fn transaction(dice: &mut Dice) -> Drawn {
    let mut drawn = dice.below(SHARES.iter().map(|(_, share)| share).sum());
    let mut kind = SHARES[0].0;
    for (name, share) in SHARES {
        kind = name;
        if drawn < share {
            break;
        }
        drawn -= share;
    }
    let (cart, customer) = (dice.below(100_000), dice.below(288_000));
    let sent = match kind {
        "createEmptyCart" => vec![sent("createCart", &[])],
        "doCart" => do_cart(dice, cart),
        "createNewCustomer" => new_customer(dice, customer),
        "getCart" => vec![sent("getCart", &[cart])],
        "doBuyConfirm" => confirm(dice, cart, customer),
        "getMostRecentOrder" => recent_order(dice, customer),
        "adminUpdate" => admin(dice),
        "refreshSession" => vec![sent("refreshSession", &[customer])],
        _ => vec![sent("getRelated", &[item(dice)])],
    };
    (kind, sent)
}

fn item(dice: &mut Dice) -> u64 {
    dice.between(1, 10_000)
}

fn do_cart(dice: &mut Dice, cart: u64) -> Vec<Sent> {
    let mut all = Vec::new();
    let adds = dice.percent(70);
    if adds {
        let item = item(dice);
        all.push(sent("findLine", &[cart, item]));
        all.push(if dice.percent(10) {
            sent("setLine", &[cart, item, 2])
        } else {
            sent("addLine", &[cart, item, 1])
        });
    }
    for _ in 0..dice.below(4) {
        let item = item(dice);
        all.push(if dice.percent(20) {
            sent("removeLine", &[cart, item])
        } else {
            sent("setLine", &[cart, item, dice.between(1, 10)])
        });
    }
    all.push(sent("countLines", &[cart]));
    if !adds && dice.percent(30) {
        let item = item(dice);
        all.push(sent("firstRelated", &[item]));
        all.push(sent("findLine", &[cart, item]));
        all.push(sent("addLine", &[cart, item, 1]));
    }
    all.push(sent("touchCart", &[cart]));
    all.push(sent("getCart", &[cart]));
    all
}

/// An address that is there or is made.
fn address(dice: &mut Dice, all: &mut Vec<Sent>) {
    let country = dice.between(1, 92);
    let parts = [dice.below(9999), 0, dice.below(999), 5, dice.below(99_999), country];
    all.push(sent("findCountry", &[country]));
    all.push(sent("findAddress", &parts));
    if dice.percent(90) {
        all.push(sent("addAddress", &parts));
    }
}

fn new_customer(dice: &mut Dice, customer: u64) -> Vec<Sent> {
    let mut all = Vec::new();
    address(dice, &mut all);
    all.push(sent("nextCustomer", &[]));
    all.push(sent("addCustomer", &[customer, 1, 2, 3, 4, dice.below(600_000), 5, 6, 7, 8, 9]));
    all
}

fn confirm(dice: &mut Dice, cart: u64, customer: u64) -> Vec<Sent> {
    let (order, home) = (dice.below(500_000), dice.below(600_000));
    let mut all = vec![
        sent("getDiscount", &[customer]),
        sent("getCart", &[cart]),
        sent("getCustomerAddress", &[customer]),
    ];
    if dice.percent(5) {
        address(dice, &mut all);
    }
    all.push(sent("addOrder", &[customer, 1, 2, 3, 4, 5, home, home]));
    for line in 1..=dice.between(1, 5) {
        let item = item(dice);
        all.push(sent("addOrderLine", &[line, order, item, 1, 0, 0]));
        all.push(sent("getStock", &[item]));
        all.push(sent("setStock", &[item, dice.between(10, 30)]));
    }
    all.push(sent("addPayment", &[order, 1, 2, 3, 4, 5, home]));
    all.push(sent("clearCart", &[cart]));
    all
}

fn recent_order(dice: &mut Dice, customer: u64) -> Vec<Sent> {
    let order = dice.below(500_000);
    vec![sent("newestOrder", &[customer]), sent("getOrder", &[order]), sent("getOrderLines", &[order])]
}

fn admin(dice: &mut Dice) -> Vec<Sent> {
    let item = item(dice);
    vec![
        sent("changeItem", &[item, 1, 2, 3]),
        sent("boughtTogether", &[item]),
        sent("changeRelated", &[item, 1, 2, 3, 4, 5]),
    ]
}
