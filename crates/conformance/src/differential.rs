//! `bench differential`: whether clients, and every replica, see of random statements what one PostgreSQL shows.
//!
//! Schemas, rows and transactions are drawn from a seed, as for [`crate::soundness`], with a deferrable key and values of all
//! types ([`values`]) besides. Each
//! transaction is run through onecopy, at a home that is drawn, too, and then on a plain server: answers must agree, and
//! now and then all tables are read at each replica itself and must be those of the plain server. This is what the
//! simulator cannot see: capture and refresh on real servers. Several transactions lie between two looks, so that
//! refresh has batches to fold; nothing happens at the same time, since then answers would be no function of the rows.
//!
//! Left out: statements that onecopy refuses, which the plain server is then spared; and schemas from the moment on when
//! a unique index objects on one side alone, since a statement that changes several rows meets them in the order in which
//! they lie. The replicas must agree with each other even then.

mod drawn;
mod values;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::slice;
use std::time::{Duration, Instant};

use sim::dice::Dice;
use sql::Schema;
use testbed::account::Account;
use testbed::build;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{Node, Shape, server};
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::scratch::Scratch;
use tokio::runtime::Builder;

use crate::cache_audit::{self, CacheAudit};
use crate::soundness::{Answer, Contents, Draft, Session, World, asking};
use crate::split::{DEALINGS, Holdings, Placement, Split, split};
use values::Odd;

/// How many replicas there are.
const REPLICAS: u64 = 3;
/// Transactions of one schema.
/// Queries of one schema that are asked again after each transaction, to audit the result cache.
const REPEATED: usize = 4;
const TRANSACTIONS: u64 = 24;
/// How long replicas may take to have everything.
const PATIENCE: Duration = Duration::from_mins(2);
/// A statement that has to wait for another home's, or is in conflict with a refresh, may be tried so often.
const TRIES: u32 = 10;
/// Between two lines of news.
const NEWS_SCHEMAS: u64 = 20;

/// Options of the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of schemas, each with 24 transactions.
    #[arg(long, default_value_t = 100)]
    schemas: u64,

    /// Seed of the schemas and statements.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Folder of PostgreSQL's programs [default: searched].
    #[arg(long)]
    pg_bin: Option<PathBuf>,

    /// Where tables are held: `parts` (split by a column of their key), `few` (at two replicas), a seed, or `random`, which is
    /// one of these by the seed [default: everywhere].
    #[arg(long, value_name = "WORD")]
    placement: Option<String>,

    /// Program to test [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
}

#[derive(Debug, Default)]
struct Counts {
    schemas: u64,
    transactions: u64,
    statements: u64,
    errors: u64,
    refused: u64,
    looks: u64,
    /// Schemas that were left because a unique index objected on one side alone.
    ambiguous: u64,
    /// Tables that were split, not counting those that followed them.
    split: u64,
    /// How often a table could not be split by a column of its key.
    unsplit: u64,
}

/// The two systems under comparison.
struct Sides {
    ours: Session,
    plain: Session,
    replicas: Vec<Session>,
    admin: Session,
    port: u16,
    /// Where the servers have their data.
    data: PathBuf,
    splitting: Option<Splitting>,
}

/// How tables are split.
struct Splitting {
    dice: Dice,
    /// One for all schemas: a split table that was dropped cannot get other holders.
    dealing: &'static str,
}

impl Splitting {
    fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed ^ 0x7061_7274);
        let dealing = *dice.pick(&DEALINGS);
        Self { dice, dealing }
    }
}

/// One schema's course.
struct Course {
    asked: String,
    /// All statements that were run, to look into a difference.
    script: String,
    tables: Vec<Table>,
    /// From here on the plain server may differ.
    is_ambiguous: bool,
}

/// A table, with its number in what is asked.
struct Table {
    number: u32,
    name: String,
    columns: Vec<String>,
}

/// Draws, runs and compares; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let (account, binaries) = (Account::choose()?, Binaries::find(options.pg_bin.as_deref())?);
    let scratch = Scratch::new()?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let onecopy = match &options.onecopy {
        Some(file) => file.clone(),
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };
    news(&format!("seed {}", options.seed));
    let plain = Plain::start(&binaries, account, &Likeness::bare(), &scratch, interrupt)?;
    // On a busy machine a server may answer late, which is nothing that is looked for here.
    let arguments = ["--health-deadline-ms", "60000"].map(str::to_owned);
    let chosen = Placement::chosen(options.placement.as_deref(), options.seed);
    let placement = chosen.variable();
    let shape = Shape {
        name: "onecopy",
        folder: None,
        replicas: REPLICAS,
        arguments: &arguments,
        placement,
        message_us: None,
        rule_off: None,
    };
    let node = Node::start_shaped(shape, &onecopy, &binaries, &scratch, interrupt)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Fault::system("start"))?;
    runtime.block_on(async {
        let mut sides = Sides {
            ours: Session::open(node.port).await?,
            plain: Session::open(plain.endpoint.port).await?,
            replicas: Vec::new(),
            admin: Session::open_admin(node.port).await?,
            port: node.port,
            data: node.data().to_owned(),
            splitting: (chosen == Placement::Parts).then(|| Splitting::draw(options.seed)),
        };
        sides.open_replicas().await?;
        let (mut dice, mut counts) = (Dice::new(options.seed), Counts::default());
        while counts.schemas < options.schemas {
            interrupt.check()?;
            sides.schema(&mut dice, &mut counts).await?;
            if counts.schemas.is_multiple_of(NEWS_SCHEMAS) {
                news(&counts.report(options.seed));
            }
        }
        if chosen == Placement::Parts && counts.split == 0 {
            return Err(Fault::Wrong(format!("no table was split: {}", counts.report(options.seed))));
        }
        if cache_audit::is_on() {
            let audit = CacheAudit::of_rows(&sides.admin.texts("SHOW CACHE").await?);
            let audited =
                audit.ok_or_else(|| Fault::Wrong("SHOW CACHE is not as expected".to_owned()))?.conclude();
            news(&audited.map_err(Fault::Wrong)?);
        }
        Ok(counts.report(options.seed))
    })
}

impl Sides {
    async fn open_replicas(&mut self) -> Result<(), Fault> {
        self.replicas.clear();
        for replica in 1..=REPLICAS {
            let server = server(&self.data, replica)
                .ok_or_else(|| Fault::Missing(format!("replica-{replica} does not run")))?;
            self.replicas.push(Session::open(server.port).await?);
        }
        Ok(())
    }

    async fn schema(&mut self, dice: &mut Dice, counts: &mut Counts) -> Result<(), Fault> {
        counts.schemas += 1;
        let mut world = World::draw(dice);
        add_late(&mut world, dice);
        let odd = Odd::add(&mut world, dice);
        let text = world.ddl.join(";\n");
        let unreadable = |said| Fault::Unreadable { what: "a drawn schema".to_owned(), said };
        let schema = Schema::from_ddl(&text).map_err(|error| unreadable(format!("{error:?}: {text}")))?;
        let catalogue = schema.catalogue();
        let named = |table: &sql::Table| Table {
            number: table.id.number,
            name: format!("\"{}\".\"{}\"", table.schema, table.name),
            columns: table.columns.iter().map(|column| column.name.clone()).collect(),
        };
        let mut course = Course {
            asked: asking(&catalogue),
            script: format!("{text};\n"),
            tables: catalogue.tables().map(named).collect(),
            is_ambiguous: false,
        };
        for side in [&self.ours, &self.plain] {
            side.order("DROP SCHEMA public CASCADE; CREATE SCHEMA public").await?;
            for ddl in &world.ddl {
                side.order(ddl).await?;
            }
        }
        // Tables are split empty, or with their first rows.
        let split_after = self
            .splitting
            .as_mut()
            .map(|splitting| if splitting.dice.percent(50) { 0 } else { world.rows.len() });
        for number in 0..=world.rows.len() {
            if split_after == Some(number) {
                self.split(&mut course, counts).await?;
            }
            let Some(row) = world.rows.get(number) else { break };
            let draft = Draft { text: row.clone(), parameters: Vec::new() };
            self.transaction(&[draft], false, &mut course, counts).await?;
        }
        // An answer is kept when it is given for the first time, and compared when it is asked for again.
        let queries =
            std::iter::repeat_with(|| draw(dice, &world, &odd)).filter(|d| d.text.starts_with("SELECT"));
        let repeated: Vec<Draft> = queries.take(if cache_audit::is_on() { REPEATED } else { 0 }).collect();
        for _ in 0..TRANSACTIONS {
            let home = *dice.pick(&["auto", "replica-1", "replica-2", "replica-3"]);
            self.ours.order(&format!("SET onecopy.home = '{home}'")).await?;
            _ = writeln!(course.script, "-- home {home}");
            let statements = if dice.percent(50) { 1 } else { dice.between(2, 4) };
            let drafts: Vec<Draft> = (0..statements).map(|_| draw(dice, &world, &odd)).collect();
            self.transaction(&drafts, statements > 1, &mut course, counts).await?;
            for query in &repeated {
                self.transaction(slice::from_ref(query), false, &mut course, counts).await?;
            }
            if dice.percent(35) {
                self.look(&mut course, counts).await?;
            }
        }
        self.look(&mut course, counts).await
    }

    /// Splits all tables that can be split.
    async fn split(&mut self, course: &mut Course, counts: &mut Counts) -> Result<(), Fault> {
        let Some(Splitting { dealing, .. }) = self.splitting else { return Ok(()) };
        _ = writeln!(course.script, "-- {dealing}");
        let Split { tables, refused } = split(self.port, dealing)
            .await
            .map_err(|fault| Fault::Wrong(format!("{fault}, after\n{}", course.script)))?;
        counts.split += tables.len() as u64;
        counts.unsplit += refused;
        for wish in tables {
            _ = writeln!(course.script, "-- PLACE TABLE {wish}");
        }
        // A replica that is given other rows ends the connections of others.
        self.open_replicas().await
    }

    /// Runs statements through onecopy, in a block or alone, and then on the plain server.
    async fn transaction(
        &self,
        drafts: &[Draft],
        in_block: bool,
        course: &mut Course,
        counts: &mut Counts,
    ) -> Result<(), Fault> {
        counts.transactions += 1;
        if in_block {
            course.script += "BEGIN;\n";
        }
        for draft in drafts {
            _ = writeln!(course.script, "{};{}", draft.text, shown(draft));
        }
        let Some(answers) = self.answers(drafts, in_block, course, counts).await? else {
            course.script += "-- refused\n";
            return Ok(());
        };
        if in_block {
            self.plain.order("BEGIN").await?;
        }
        let end = ended(answers.len() <= drafts.len());
        let said = drafts.iter().chain(in_block.then_some(&end));
        for (draft, ours) in said.zip(&answers) {
            counts.statements += 1;
            counts.errors += u64::from(is_error(ours));
            let theirs = self.plain.run(draft).await?;
            if *ours == theirs || (is_error(ours) && is_error(&theirs)) || course.is_ambiguous {
                continue;
            }
            let objects = |answer: &Answer| matches!(answer, Answer::Error(code) if code.starts_with("23"));
            if objects(ours) || objects(&theirs) {
                course.is_ambiguous = true;
                counts.ambiguous += 1;
                continue;
            }
            let (text, script) = (&draft.text, &course.script);
            let said =
                format!("onecopy answers {ours:?}, PostgreSQL {theirs:?}, to\n{text}\nafter\n{script}");
            return Err(Fault::Wrong(said));
        }
        if in_block {
            // After an error there is something left to end; otherwise this does nothing.
            self.plain.order("ROLLBACK").await?;
            _ = writeln!(course.script, "{};", end.text);
        }
        Ok(())
    }

    /// Onecopy's answers up to the first error, or without one to the end of the block. `None` if it rejects a
    /// statement, so that nothing was done.
    async fn answers(
        &self,
        drafts: &[Draft],
        in_block: bool,
        course: &Course,
        counts: &mut Counts,
    ) -> Result<Option<Vec<Answer>>, Fault> {
        for _ in 0..TRIES {
            let mut answers: Vec<Answer> = Vec::new();
            if in_block {
                self.ours.order("BEGIN").await?;
            }
            let end = ended(false);
            for draft in drafts.iter().chain(in_block.then_some(&end)) {
                answers.push(self.ours.run(draft).await?);
                if answers.last().is_some_and(is_error) {
                    break;
                }
            }
            if in_block && answers.len() <= drafts.len() {
                self.ours.order("ROLLBACK").await?;
            }
            match answers.last() {
                Some(Answer::Error(code)) if code == "40001" || code == "40P01" => {}
                Some(Answer::Error(code)) if code.starts_with("0A") => {
                    counts.refused += 1;
                    return Ok(None);
                }
                _ => return Ok(Some(answers)),
            }
        }
        let said = format!("alone, and refused with 40001 {TRIES} times, is the end of\n{}", course.script);
        Err(Fault::Wrong(said))
    }

    /// Reads all tables everywhere.
    async fn look(&self, course: &mut Course, counts: &mut Counts) -> Result<(), Fault> {
        counts.looks += 1;
        let through = self.ours.contents(&course.asked).await?;
        let plain = self.plain.contents(&course.asked).await?;
        if through != plain && !course.is_ambiguous {
            return Err(Fault::Wrong(differs("a read through onecopy", &through, &plain, course)));
        }
        let holdings = Holdings::read(&self.admin.texts("SHOW PLACEMENT").await?)?;
        for (number, replica) in self.replicas.iter().enumerate() {
            let name = format!("replica-{}", number + 1);
            // Where a row is not held it is not there.
            let expected: Contents = through
                .iter()
                .filter(|(table, row)| course.holds(&holdings, &name, *table, row))
                .cloned()
                .collect();
            let deadline = Instant::now() + PATIENCE;
            loop {
                // A replica that has not applied the schema yet cannot answer.
                let found = replica.contents(&course.asked).await;
                match found {
                    Ok(found) if found == expected => break,
                    Ok(found) if Instant::now() > deadline => {
                        return Err(Fault::Wrong(differs(&name, &found, &expected, course)));
                    }
                    Err(fault) if Instant::now() > deadline => return Err(fault),
                    _ => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        }
        course.script += "-- all alike\n";
        Ok(())
    }
}

impl Course {
    /// Whether a replica holds a row of the table with this number.
    fn holds(&self, holdings: &Holdings, replica: &str, number: u32, row: &[Option<String>]) -> bool {
        let Some(table) = self.tables.iter().find(|table| table.number == number) else { return true };
        let value = |column: &str| {
            let at = table.columns.iter().position(|name| name == column)?;
            row.get(at)?.as_deref()
        };
        holdings.holds(replica, &table.name, value)
    }
}

/// A table whose key two rows may hold while a statement runs, which no drawn schema has.
fn add_late(world: &mut World, dice: &mut Dice) {
    let when = *dice.pick(&["DEFERRABLE", "DEFERRABLE INITIALLY DEFERRED"]);
    let unique = *dice.pick(&["", " UNIQUE", " UNIQUE DEFERRABLE"]);
    world.ddl.push(format!("CREATE TABLE late (k int PRIMARY KEY {when}, a int{unique}, b text)"));
    world.rows.extend((1..=5).map(|k| format!("INSERT INTO late VALUES ({k}, {k}, 'row {k}')")));
}

fn draw(dice: &mut Dice, world: &World, odd: &Odd) -> Draft {
    match dice.below(100) {
        0..50 => return Draft::draw(dice, world),
        50..80 => return odd.statement(dice),
        _ => {}
    }
    let (key, which) = (dice.between(1, 6), *dice.pick(&["", "", " WHERE k > 2", " WHERE k < 4"]));
    let text = match dice.below(10) {
        0 => format!("INSERT INTO late VALUES ({key}, {}, 'new')", key + 10),
        1 => format!("DELETE FROM late WHERE k = {key}"),
        2 => format!("UPDATE late SET a = 20 - a, b = b || '.'{which}"),
        3 => format!("UPDATE late SET k = {} WHERE k = {key}", dice.between(1, 6)),
        _ => format!("UPDATE late SET k = {}{which}", dice.pick(&["k + 1", "k - 1", "6 - k", "-k"])),
    };
    Draft { text, parameters: Vec::new() }
}

/// The end of a block.
fn ended(has_failed: bool) -> Draft {
    Draft { text: if has_failed { "ROLLBACK" } else { "COMMIT" }.to_owned(), parameters: Vec::new() }
}

fn is_error(answer: &Answer) -> bool {
    matches!(answer, Answer::Error(_))
}

fn shown(draft: &Draft) -> String {
    let mut text = String::new();
    for (at, bound) in draft.parameters.iter().enumerate() {
        let value = bound.bytes.as_deref().map(|bytes| bytes.escape_ascii().to_string());
        _ = write!(text, " -- ${} {} {value:?}", at + 1, bound.declared);
    }
    text
}

fn differs(who: &str, found: &Contents, expected: &Contents, course: &Course) -> String {
    let only = |these: &Contents, those: &Contents| {
        let rows = these.iter().filter(|row| !those.contains(row));
        rows.map(|row| format!("  {row:?}")).collect::<Vec<_>>().join("\n")
    };
    format!(
        "{who} has\n{}\ninstead of\n{}\nafter\n{}",
        only(found, expected),
        only(expected, found),
        course.script
    )
}

impl Counts {
    fn report(&self, seed: u64) -> String {
        format!(
            "seed {seed}: {} schemas, {} transactions ({} refused), {} statements ({} with an error), tables compared {} \
             times, {} schemas left for the order of rows, {} tables split ({} times refused)",
            self.schemas,
            self.transactions,
            self.refused,
            self.statements,
            self.errors,
            self.looks,
            self.ambiguous,
            self.split,
            self.unsplit
        )
    }
}
