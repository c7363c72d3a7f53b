//! A client's connections: statements by their names, transactions with retries, and the replies to them.
//!
//! Statements are prepared once on a connection, and then bound and executed. A transaction is given as a closure: on
//! 40001 and 40P01 it is rolled back and the closure runs again with the same input, as a client of PostgreSQL has to
//! do. Reads that are said to be reads go to the reader, where the contestant has one; else they go
//! where everything goes, as `BEGIN READ ONLY`.

mod call;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use clap::ValueEnum;
use testbed::refusal::Refusal;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::error::SqlState;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, NoTls, Row, Statement};

use super::ledger::Ledger;
use call::again_and_again;
pub(crate) use call::{Added, Call};

/// How long a statement may take; longer is for ever.
const STATEMENT_MAX: Duration = Duration::from_mins(1);
/// How long a server that takes no connections is asked again.
const CONNECT_MAX: Duration = Duration::from_mins(1);
/// Between two of these.
const CONNECT_PAUSE: Duration = Duration::from_millis(50);
/// How often a transaction is tried.
const TRIES_MAX: u64 = 1000;

/// A statement's parameters.
pub(crate) type Values<'a> = &'a [&'a (dyn ToSql + Sync)];
/// The texts of a workload's statements, by their names.
pub(crate) type Texts = Rc<BTreeMap<&'static str, String>>;

/// The addresses of a contestant.
#[derive(Clone, Debug)]
pub(crate) struct Endpoints {
    /// Where everything may go.
    pub(crate) main: Config,
    /// Where everything of other clients goes: they are dealt round robin over `main` and these.
    pub(crate) others: Vec<Config>,
    /// Where reads go, client by client, if they do not go there.
    pub(crate) readers: Vec<Config>,
    /// Transactions should say which tables they touch.
    pub(crate) declares: bool,
}

impl Endpoints {
    /// All places where everything may go.
    pub(crate) fn mains(&self) -> impl Iterator<Item = &Config> {
        std::iter::once(&self.main).chain(&self.others)
    }

    /// The place of a client.
    fn main_of(&self, number: usize) -> &Config {
        let at = number % (1 + self.others.len());
        at.checked_sub(1).map_or(&self.main, |other| &self.others[other])
    }
}

/// How transactions that write are isolated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Isolation {
    /// PostgreSQL's default.
    #[default]
    ReadCommitted,
    /// A snapshot.
    RepeatableRead,
    /// As if transactions ran one after another.
    Serializable,
}

impl Isolation {
    /// In SQL.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::ReadCommitted => "READ COMMITTED",
            Self::RepeatableRead => "REPEATABLE READ",
            Self::Serializable => "SERIALIZABLE",
        }
    }
}

/// The statements of a client, and how long they took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// BEGIN, with whatever it says.
    Begin(Duration),
    /// The statement of this name.
    Statement(&'static str, Duration),
    /// COMMIT or ROLLBACK.
    End(Duration),
}

/// A client's connections.
pub(crate) struct Session {
    main: Connection,
    reader: Option<Connection>,
    isolation: Isolation,
    declares: bool,
    /// The acknowledgements that it received.
    pub(crate) ledger: Ledger,
    /// How transactions fared since this was last reset.
    pub(crate) tries: Tries,
}

/// How the transactions of an interaction fared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tries {
    /// Tried again.
    pub(crate) retries: u64,
    /// Of these, because of 40001.
    pub(crate) conflicts: u64,
    /// Rolled back in the end because the client wanted it.
    pub(crate) undone: u64,
}

impl Tries {
    fn again(&mut self, why: &str) {
        self.retries += 1;
        self.conflicts += u64::from(why.starts_with(SqlState::T_R_SERIALIZATION_FAILURE.code()));
    }
}

impl Session {
    /// Connects; `number` tells clients apart.
    pub(crate) async fn open(
        endpoints: &Endpoints,
        number: usize,
        isolation: Isolation,
        texts: &Texts,
    ) -> Result<Self, Refusal> {
        let reader = match endpoints.readers.len() {
            0 => None,
            count => Some(Connection::open(&endpoints.readers[number % count], texts).await?),
        };
        let main = Connection::open(endpoints.main_of(number), texts).await?;
        let declares = endpoints.declares;
        let (ledger, tries) = (Ledger::default(), Tries::default());
        Ok(Self { main, reader, isolation, declares, ledger, tries })
    }

    /// The statements sent to the main endpoint since the last call. Empty before the first one.
    pub(crate) fn heard(&mut self) -> Vec<Heard> {
        self.main.heard.replace(Vec::new()).unwrap_or_default()
    }

    /// A new connection in place of each lost one.
    pub(crate) async fn mend(&mut self) -> Result<(), Refusal> {
        if self.main.client.is_closed() {
            self.main = Connection::open(&self.main.config, &self.main.texts).await?;
        }
        if let Some(reader) = &mut self.reader
            && reader.client.is_closed()
        {
            *reader = Connection::open(&reader.config, &reader.texts).await?;
        }
        Ok(())
    }

    /// Runs a transaction that may write, until it is committed or undone.
    pub(crate) async fn update<T>(
        &mut self,
        body: impl AsyncFn(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let begin = format!("BEGIN ISOLATION LEVEL {}", self.isolation.words());
        run(&mut self.main, &mut self.ledger, &mut self.tries, &begin, body).await
    }

    /// The same, with the tables that it touches, for those who want to know them.
    pub(crate) async fn update_on<T>(
        &mut self,
        tables: &str,
        body: impl AsyncFn(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let begin = format!("BEGIN{} ISOLATION LEVEL {}", self.declared(tables), self.isolation.words());
        run(&mut self.main, &mut self.ledger, &mut self.tries, &begin, body).await
    }

    fn declared(&self, tables: &str) -> String {
        if self.declares { format!(" /* onecopy: {tables} */") } else { String::new() }
    }

    /// The same at REPEATABLE READ at least, for transactions that depend on the rows that they have read.
    pub(crate) async fn update_snapshot<T>(
        &mut self,
        body: impl AsyncFn(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let level = match self.isolation {
            Isolation::Serializable => Isolation::Serializable,
            _ => Isolation::RepeatableRead,
        };
        let begin = format!("BEGIN ISOLATION LEVEL {}", level.words());
        run(&mut self.main, &mut self.ledger, &mut self.tries, &begin, body).await
    }

    /// Runs a transaction that only reads, these tables.
    pub(crate) async fn read_on<T>(
        &mut self,
        tables: &str,
        body: impl AsyncFn(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let declared = self.declared(tables);
        let begin = format!("BEGIN{declared} ISOLATION LEVEL {} READ ONLY", self.isolation.words());
        let connection = self.reader.as_mut().unwrap_or(&mut self.main);
        run(connection, &mut self.ledger, &mut self.tries, &begin, body).await
    }

    /// Runs a transaction that only reads.
    pub(crate) async fn read<T>(
        &mut self,
        body: impl AsyncFn(&mut Transaction<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let begin = format!("BEGIN ISOLATION LEVEL {} READ ONLY", self.isolation.words());
        let connection = self.reader.as_mut().unwrap_or(&mut self.main);
        run(connection, &mut self.ledger, &mut self.tries, &begin, body).await
    }

    /// Runs a statement that reads, by itself.
    pub(crate) async fn look(&mut self, name: &'static str, values: Values<'_>) -> Result<Vec<Row>, Refusal> {
        let connection = self.reader.as_mut().unwrap_or(&mut self.main);
        again_and_again(connection, &mut self.tries, name, values).await
    }

    /// Runs a statement that writes, by itself; `entered` counts when it is acknowledged.
    pub(crate) async fn change(
        &mut self,
        name: &'static str,
        values: Values<'_>,
        entered: &[(&'static str, i64)],
    ) -> Result<u64, Refusal> {
        let mut tries = 1;
        let outcome = loop {
            match self.main.execute(name, values).await {
                Err(Refusal::Again(why)) if tries < TRIES_MAX => self.tries.again(&why),
                outcome => break outcome,
            }
            tries += 1;
        };
        match &outcome {
            Ok(_) => self.ledger.tell(entered),
            Err(Refusal::Lost(_) | Refusal::Stuck(_)) => self.ledger.doubt(entered),
            Err(_) => {}
        }
        outcome
    }
}

/// Runs a transaction, again and again.
async fn run<T>(
    connection: &mut Connection,
    ledger: &mut Ledger,
    counted: &mut Tries,
    begin: &str,
    body: impl AsyncFn(&mut Transaction<'_>) -> Result<T, Refusal>,
) -> Result<T, Refusal> {
    let mut tries = 1;
    loop {
        let mut entered = Vec::new();
        let mut is_undone = false;
        let outcome = async {
            connection.mark(begin, Heard::Begin).await?;
            let mut transaction = Transaction {
                connection: &mut *connection,
                entered: &mut entered,
                is_undone: &mut is_undone,
            };
            body(&mut transaction).await
        };
        let why = match outcome.await {
            Ok(value) if is_undone => {
                connection.mark("ROLLBACK", Heard::End).await?;
                counted.undone += 1;
                return Ok(value);
            }
            Ok(value) => match connection.mark("COMMIT", Heard::End).await {
                Ok(()) => {
                    ledger.tell(&entered);
                    return Ok(value);
                }
                Err(why) => {
                    if matches!(why, Refusal::Lost(_) | Refusal::Stuck(_)) {
                        ledger.doubt(&entered);
                    }
                    why
                }
            },
            Err(why) => why,
        };
        if matches!(why, Refusal::Again(_) | Refusal::Told(_)) {
            connection.say("ROLLBACK").await?;
        }
        match why {
            Refusal::Again(why) if tries < TRIES_MAX => counted.again(&why),
            why => return Err(why),
        }
        tries += 1;
    }
}

/// A transaction that is open.
pub(crate) struct Transaction<'a> {
    connection: &'a mut Connection,
    entered: &'a mut Vec<(&'static str, i64)>,
    is_undone: &'a mut bool,
}

impl Transaction<'_> {
    /// The rows of a statement.
    pub(crate) async fn rows(&mut self, name: &'static str, values: Values<'_>) -> Result<Vec<Row>, Refusal> {
        self.connection.rows(name, values).await
    }

    /// The one row of a statement.
    pub(crate) async fn row(&mut self, name: &'static str, values: Values<'_>) -> Result<Row, Refusal> {
        let mut rows = self.rows(name, values).await?;
        match (rows.pop(), rows.len()) {
            (Some(row), 0) => Ok(row),
            (_, more) => Err(Refusal::Told(format!("{name} has not one row but {more} before the last"))),
        }
    }

    /// Runs a statement without rows; how many it changed.
    pub(crate) async fn execute(&mut self, name: &'static str, values: Values<'_>) -> Result<u64, Refusal> {
        self.connection.execute(name, values).await
    }

    /// The same for a statement that has to change exactly one row.
    pub(crate) async fn one(&mut self, name: &'static str, values: Values<'_>) -> Result<(), Refusal> {
        match self.execute(name, values).await? {
            1 => Ok(()),
            count => Err(Refusal::Told(format!("{name} changed {count} rows, not one"))),
        }
    }

    /// Counts something that is there once this is committed.
    pub(crate) fn enter(&mut self, name: &'static str, count: i64) {
        self.entered.push((name, count));
    }

    /// It is to be rolled back at the end, because its client changed its mind.
    pub(crate) fn undo(&mut self) {
        *self.is_undone = true;
    }
}

/// One connection and what is prepared on it.
struct Connection {
    config: Config,
    client: Client,
    texts: Texts,
    prepared: BTreeMap<&'static str, Statement>,
    /// The level that statements by themselves have, if it was set.
    level: Option<Isolation>,
    /// The statements sent, if they are recorded.
    heard: Option<Vec<Heard>>,
}

impl Connection {
    async fn open(config: &Config, texts: &Texts) -> Result<Self, Refusal> {
        let client = connect(config).await?;
        let (config, texts) = (config.clone(), Rc::clone(texts));
        Ok(Self { config, client, texts, prepared: BTreeMap::new(), level: None, heard: None })
    }

    /// Sets the level of statements by themselves.
    async fn isolate(&mut self, level: Isolation) -> Result<(), Refusal> {
        if self.level != Some(level) {
            self.say(&format!("SET default_transaction_isolation = '{}'", level.words())).await?;
            self.level = Some(level);
        }
        Ok(())
    }

    async fn prepared(&mut self, name: &'static str) -> Result<Statement, Refusal> {
        if let Some(statement) = self.prepared.get(name) {
            return Ok(statement.clone());
        }
        let text = self.texts.get(name).ok_or_else(|| Refusal::Told(format!("no statement `{name}`")))?;
        let statement = limited(name, self.client.prepare(text)).await?;
        self.prepared.insert(name, statement.clone());
        Ok(statement)
    }

    async fn rows(&mut self, name: &'static str, values: Values<'_>) -> Result<Vec<Row>, Refusal> {
        let statement = self.prepared(name).await?;
        let sent = Instant::now();
        let outcome = limited(name, self.client.query(&statement, values)).await;
        self.hear(Heard::Statement(name, sent.elapsed()));
        outcome
    }

    async fn execute(&mut self, name: &'static str, values: Values<'_>) -> Result<u64, Refusal> {
        let statement = self.prepared(name).await?;
        let sent = Instant::now();
        let outcome = limited(name, self.client.execute(&statement, values)).await;
        self.hear(Heard::Statement(name, sent.elapsed()));
        outcome
    }

    fn hear(&mut self, what: Heard) {
        if let Some(heard) = &mut self.heard {
            heard.push(what);
        }
    }

    /// Says where a transaction begins or ends.
    async fn mark(&mut self, sql: &str, what: fn(Duration) -> Heard) -> Result<(), Refusal> {
        let sent = Instant::now();
        let outcome = self.say(sql).await;
        self.hear(what(sent.elapsed()));
        outcome
    }

    async fn say(&self, sql: &str) -> Result<(), Refusal> {
        limited(sql, self.client.batch_execute(sql)).await
    }
}

/// Connects; a server that does not take connections yet is waited for.
pub(crate) async fn connect(config: &Config) -> Result<Client, Refusal> {
    let end = Instant::now() + CONNECT_MAX;
    loop {
        let why = match config.connect(NoTls).await {
            Ok((client, connection)) => {
                // How the connection ends, its statements say.
                tokio::spawn(connection);
                return Ok(client);
            }
            Err(error) => Refusal::of(&error),
        };
        if Instant::now() > end {
            return Err(Refusal::Stuck(format!("no connection: {why}")));
        }
        sleep(CONNECT_PAUSE).await;
    }
}

async fn limited<T>(
    what: &str,
    work: impl Future<Output = Result<T, tokio_postgres::Error>>,
) -> Result<T, Refusal> {
    match timeout(STATEMENT_MAX, work).await {
        Ok(outcome) => outcome.map_err(|error| Refusal::of(&error)),
        Err(_) => Err(Refusal::Stuck(format!("no reply to `{what}` within {} s", STATEMENT_MAX.as_secs()))),
    }
}
