//! What the paper says, sentence by sentence: Zhou Wei et al., "Service-oriented data denormalization for scalable web
//! applications" (WWW 2008).
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeSet;

use planner::{
    Answer, Application, Column, Expectation, Hosting, Plan, Query, Unit, UnitKind, builtin, plan, report,
};
use sql::Schema;

fn application(name: &str, of_paper: bool) -> Application {
    builtin(name).unwrap().texts(of_paper).application(name).unwrap()
}

/// Plans an application and compares it with the paper's table, which names every difference and its reason.
fn compared(name: &str) {
    let application = application(name, true);
    let plan = plan(&application).unwrap();
    let expectation = Expectation::read(builtin(name).unwrap().expectation).unwrap();
    let comparison = expectation.compare(&application, &plan).unwrap();
    assert!(comparison.passes(), "{comparison:#?}\n{}", report(&application, &plan));
}

/// A small application: DDL, statements, units.
struct Small {
    application: Application,
}

impl Small {
    fn new(ddl: &str) -> Self {
        let catalogue = Schema::from_ddl(ddl).unwrap().catalogue();
        Self { application: Application::new("small", catalogue).unwrap() }
    }

    fn query(mut self, name: &str, text: &str) -> Self {
        let query = Query::new(name, text, &self.application.catalogue).unwrap();
        self.application.queries.insert(name.to_owned(), query);
        self
    }

    fn unit(mut self, name: &str, kind: UnitKind, queries: &[&str]) -> Self {
        for query in queries {
            self.application.queries.get_mut(*query).unwrap().alone = false;
        }
        let queries = queries.iter().map(|query| (*query).to_owned()).collect();
        self.application.units.insert(name.to_owned(), Unit { kind, queries });
        self
    }

    fn plan(&self) -> Plan {
        plan(&self.application).unwrap()
    }

    /// Whether two columns, `table.column`, are at home in one service.
    fn together(&self, one: &str, other: &str) -> bool {
        let column = |text: &str| {
            let (table, name) = text.split_once('.').unwrap();
            Column::new(table, name)
        };
        let plan = self.plan();
        plan.services
            .iter()
            .any(|service| service.columns.contains(&column(one)) && service.columns.contains(&column(other)))
    }
}

const TWO: &str = "CREATE TABLE a (k int PRIMARY KEY, x int, y int, z int);
                   CREATE TABLE b (k int PRIMARY KEY, u int, v int, a_k int REFERENCES a NOT NULL);";

/// 3.2: "a table containing fields key, attr1, attr2 and queried by templates `SELECT key FROM Table where attr1=?` and
/// `SELECT key FROM Table where attr2=?` may be split into two tables". Something has to update one of them, else we leave
/// the table whole.
#[test]
fn section_3_2_a_table_may_be_split_by_column() {
    let small = Small::new(TWO)
        .query("by_x", "SELECT k FROM a WHERE x = $1")
        .query("by_y", "SELECT k FROM a WHERE y = $1")
        .query("set", "UPDATE a SET x = $2 WHERE k = $1");
    assert!(!small.together("a.x", "a.y"));
}

/// 4.1: "all the data they access must be accessed atomically and must be placed into the same service".
#[test]
fn section_4_1_a_transaction_is_in_one_service() {
    let small = Small::new(TWO)
        .query("read", "SELECT u FROM b WHERE k = $1")
        .query("set", "UPDATE a SET x = $2 WHERE k = $1")
        .query("elsewhere", "UPDATE b SET u = $2 WHERE k = $1");
    assert!(!small.together("a.x", "b.u"));
    let small = small.unit("both", UnitKind::Transaction, &["read", "set"]);
    assert!(small.together("a.x", "b.u"));
}

/// 4.1: "One exception to this rule is formed by data columns that are never updated, neither by the transaction in question
/// nor by any other query in the workload."
#[test]
fn section_4_1_what_nothing_updates_may_be_elsewhere() {
    let small = Small::new(TWO)
        .query("read", "SELECT u FROM b WHERE k = $1")
        .query("read_alone", "SELECT u FROM b WHERE v = $1")
        .query("set", "UPDATE a SET x = $2 WHERE k = $1")
        .unit("both", UnitKind::Transaction, &["read", "set"]);
    assert!(!small.together("a.x", "b.u"));
}

/// 4.1: "For such atomic sets, only the columns that are updated must be local to the same data service ... Columns that
/// are only read by the atomic set can reside outside the service".
#[test]
fn section_4_1_an_atomic_set_keeps_what_it_updates() {
    let small = Small::new(TWO)
        .query("read", "SELECT u FROM b WHERE k = $1")
        .query("set_x", "UPDATE a SET x = $2 WHERE k = $1")
        .query("set_y", "UPDATE a SET y = $2 WHERE k = $1")
        .query("elsewhere", "UPDATE b SET u = $2 WHERE k = $1")
        .unit("set", UnitKind::AtomicSet, &["read", "set_x", "set_y"]);
    assert!(small.together("a.x", "a.y"));
    assert!(!small.together("a.x", "b.u"));
}

/// 4.1: "UDI queries that are not part of a transaction ... must be considered as an atomic set composed of a single query."
#[test]
fn section_4_1_a_single_statement_is_an_atomic_set() {
    let small = Small::new(TWO).query("set", "UPDATE a SET x = $2, y = $3 WHERE k = $1");
    assert!(small.together("a.x", "a.y") && small.plan().merges.is_empty());
    let apart = Small::new(TWO)
        .query("set_x", "UPDATE a SET x = $2 WHERE k = $1")
        .query("set_y", "UPDATE a SET y = $2 WHERE k = $1");
    assert!(!apart.together("a.x", "a.y"));
}

/// 4.3.3: tables that "are all updated by INSERT queries ... cannot be easily split".
#[test]
fn section_4_3_3_a_table_that_grows_stays_whole() {
    let small = Small::new(TWO)
        .query("set", "UPDATE a SET x = $2 WHERE k = $1")
        .query("new", "INSERT INTO a (k, x, y, z) VALUES ($1, $2, $3, $4)");
    assert!(small.together("a.x", "a.z") && small.together("a.k", "a.y"));
}

/// 4.2: "this query can be easily rewritten into two sub-queries that access only one table: i) `SELECT c_id FROM customer
/// WHERE c_uname = ?`; and ii) `SELECT o_id FROM orders WHERE o_c_id=?`".
#[test]
fn section_4_2_a_read_is_rewritten() {
    let small = Small::new(
        "CREATE TABLE customer (c_id int PRIMARY KEY, c_uname text NOT NULL UNIQUE);
         CREATE TABLE orders (o_id int PRIMARY KEY, o_c_id int NOT NULL REFERENCES customer);",
    )
    .query("add", "INSERT INTO customer VALUES ($1, $2)")
    .query("order", "INSERT INTO orders VALUES ($1, $2)")
    .query(
        "orders_of",
        "SELECT o_id FROM customer, orders WHERE customer.c_id = orders.o_c_id AND c_uname = $1",
    );
    let plan = small.plan();
    let Answer::Rewritten(rewritten) = &plan.answers["orders_of"] else { panic!("not rewritten") };
    let texts: Vec<&str> = rewritten.steps.iter().map(|step| step.text.as_str()).collect();
    assert_eq!(
        texts,
        [
            "SELECT customer.c_id FROM customer WHERE customer.c_uname = $1",
            "SELECT orders.o_id, orders.o_c_id FROM orders WHERE orders.o_c_id = ANY($1)",
        ]
    );
}

const SUBJECTS: &str = "CREATE TABLE item (i_id int PRIMARY KEY, i_title text NOT NULL, i_subject text NOT NULL, i_cost int);
                        CREATE TABLE order_line (ol_id int PRIMARY KEY, ol_i_id int NOT NULL REFERENCES item);";

fn subjects() -> Small {
    let alone = "SELECT i_title FROM item WHERE i_id = $1";
    Small::new(SUBJECTS).query("title", alone).query("sell", "INSERT INTO order_line VALUES ($1, $2)").query(
        "sold",
        "SELECT item.i_id, item.i_title FROM item, order_line
         WHERE item.i_id = order_line.ol_i_id AND item.i_subject = $1 ORDER BY ol_id LIMIT 50",
    )
}

/// 4.2: "Replicating column i_subject from table ITEM to the other data service allows one to transform this query and
/// target a single data service." 4.3.1, footnote 2: "we cannot simply move this column into the Financial service, as it is
/// also accessed in combination with other read-only tables".
#[test]
fn section_4_2_a_column_that_nothing_updates_is_copied() {
    let plan = subjects().plan();
    let copies: Vec<(String, String)> = plan
        .services
        .iter()
        .flat_map(|service| service.copies.iter().map(|copy| (service.name.clone(), copy.column.to_string())))
        .collect();
    assert_eq!(copies, [("order_line".to_owned(), "item.i_subject".to_owned())]);
    assert!(plan.merges.is_empty());
}

/// 4.2: "This scheme is therefore applicable only in cases where the data to be replicated are rarely updated. ... In last
/// resort ... merging the concerned data services is always correct".
#[test]
fn section_4_2_services_are_merged_in_last_resort() {
    let small = subjects().query("move", "UPDATE item SET i_subject = $2 WHERE i_id = $1");
    let plan = small.plan();
    assert_eq!(plan.merges.len(), 1);
    assert!(small.together("item.i_subject", "order_line.ol_i_id"));
    assert!(
        plan.blames.iter().any(|blame| blame.to_string().starts_with("read sold keeps")),
        "{:?}",
        plan.blames
    );
}

/// 4.3.1: "Its database contains 10 tables that are queried by 6 transactions, 2 atomic sets".
#[test]
fn section_4_3_1_counts() {
    let application = application("tpcw", true);
    assert_eq!(application.catalogue.tables().count(), 10);
    let count = |kind| application.units.values().filter(|unit| unit.kind == kind).count();
    assert_eq!((count(UnitKind::Transaction), count(UnitKind::AtomicSet)), (6, 2));
}

/// 4.3.1: "the transactions and atomic sets of the TPC-W workload impose the creation of four sets of transactions whose
/// targeted data do not overlap".
#[test]
fn section_4_3_1_four_sets_of_transactions() {
    let plan = plan(&application("tpcw", true)).unwrap();
    let updated: BTreeSet<&str> =
        plan.services.iter().filter(|service| service.updated).map(|service| service.name.as_str()).collect();
    assert_eq!(updated, BTreeSet::from(["Customer", "Financial", "Item_dynamic", "Item_related"]));
}

#[test]
fn table_1() {
    compared("tpcw");
}

/// 4.3.1: "One read query cannot be decomposed: it fetches the list of the best-selling 50 books that belong to a specified
/// subject."
#[test]
fn section_4_3_1_best_sellers_need_a_copy() {
    let plan = plan(&application("tpcw", true)).unwrap();
    let financial = plan.services.iter().find(|service| service.name == "Financial").unwrap();
    let [copy] = financial.copies.as_slice() else { panic!("{:?}", financial.copies) };
    assert_eq!(copy.column, Column::new("item", "i_subject"));
    assert_eq!(copy.queries, BTreeSet::from(["getBestSellers".to_owned()]));
}

/// 5.1: "we marked each row of tables SHOPPING_CART, SHOPPING_CART_ENTRY and ORDERS with a key equal to the shopping cart
/// ID", "One exception ... is the ITEM_STOCK table", "two more read queries that access data across multiple data clusters".
#[test]
fn section_5_1_the_financial_service_is_partitioned_by_cart() {
    let plan = plan(&application("tpcw", true)).unwrap();
    let financial = plan.services.iter().find(|service| service.name == "Financial").unwrap();
    let Hosting::Partitioned(by) = &financial.hosting else { panic!("{}", financial.hosting) };
    assert_eq!(by.key, Column::new("shopping_cart", "sc_id"));
    assert!(by.members.contains(&Column::new("shopping_cart_line", "scl_sc_id")));
    assert!(by.tagged.contains("orders"));
    assert_eq!(by.escrow, BTreeSet::from([Column::new("item", "i_stock")]));
    assert!(by.gathered.contains("getBestSellers") && by.gathered.contains("boughtTogether"));
}

#[test]
fn table_2() {
    compared("rubis");
}

#[test]
fn section_4_3_2() {
    compared("rubbos");
}

/// With the Wisconsin boundaries, adminUpdate reads orders and doBuyConfirm reads customers in transactions that write, so
/// nearly everything that is updated is in one service.
#[test]
fn boundaries_of_the_application_give_a_coarse_plan() {
    let application = application("tpcw", false);
    let plan = plan(&application).unwrap();
    assert_eq!(plan.services.iter().filter(|service| service.updated).count(), 1);
    let discount = Column::new("customer", "c_discount");
    let chain = plan.why(&discount, &Column::new("orders", "o_id")).unwrap();
    assert!(chain.iter().any(|joint| joint.to_string().contains("transaction doBuyConfirm")), "{chain:?}");
    let related = Column::new("item", "i_related1");
    assert_eq!(plan.why(&discount, &Column::new("item", "i_isbn")), None);
    assert!(plan.why(&related, &Column::new("order_line", "ol_qty")).is_some());
    assert!(!plan.blames.is_empty());
}
