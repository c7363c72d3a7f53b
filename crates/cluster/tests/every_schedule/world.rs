//! Two servers, a log, and clients whose next step is always a choice.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use cluster::claims::{Claimed, Claims, Footprint};
use cluster::event::{AbortCause, Effect, Event, Home, Level, Needs, Reads};
use cluster::ids::{Epoch, Incarnation, Nonce, ReplicaId, SessionId, TableId, Version};
use cluster::placement::Placement;
use cluster::protocols::Protocol;
use cluster::protocols::onecopy::{KEYS_MAX, Onecopy, Options, REFRESH_VERSIONS_MAX, Rules};
use cluster::record::RecordBuilder;
use cluster::time::Time;

const TABLE: TableId = TableId(1);
const KEYS: [u64; 3] = [1, 2, 3];
/// Rows 1 and 2 have a value in common, by which they are a group.
pub(crate) const GROUPED: u64 = 1;
const GROUP: u64 = 100;
const OTHER_GROUP: u64 = 101;
/// Stands for all groups.
const ANY_GROUP: u64 = 102;
const HOMES: usize = 2;
const UP: Incarnation = Incarnation(1);

/// A statement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// Writes a row, by its key.
    Row(u64),
    /// Writes the rows of the group.
    Group,
    /// Writes all rows.
    Table,
    /// Writes a row that only its run tells.
    Hidden(u64),
    /// Reads a row.
    Look(u64),
    /// Reads the group.
    LookGroup,
}

/// What one client does, once.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) home: u16,
    pub(crate) level: Level,
    pub(crate) steps: Vec<Step>,
}

/// The duties of who drives the core, and its own rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Duties {
    pub(crate) core: Rules,
    /// Hidden writes are asked for when they are known.
    pub(crate) asks: bool,
    /// What is written is told beforehand.
    pub(crate) foretells: bool,
    /// A written row tells its group.
    pub(crate) tells_groups: bool,
    /// What is read by key at SERIALIZABLE is waited for.
    pub(crate) locks_reads: bool,
    /// Waits inside of the servers are told.
    pub(crate) tells_waits: bool,
}

impl Default for Duties {
    fn default() -> Self {
        let core = Rules::default();
        Self { core, asks: true, foretells: true, tells_groups: true, locks_reads: true, tells_waits: true }
    }
}

/// What can happen next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// The client says what comes next.
    Next(usize),
    /// The server runs its statement, or goes on with it.
    Run(usize),
    /// Everything up to this version is durable.
    Log(u64),
    /// A COMMIT reaches the server, whose is told.
    Commit(usize, usize),
    /// A refresh is applied.
    Apply(usize),
    /// A refresh waits for somebody, which is told.
    InTheWay(usize, usize),
    /// Nothing else can happen: the servers say who waits for whom.
    Waits,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Idle,
    Waiting,
    Sent,
    Finishing,
    Committing,
    Committed,
    Aborted(Option<AbortCause>),
}

type Rows = BTreeMap<u64, Vec<usize>>;

#[derive(Debug)]
struct Client {
    program: Program,
    state: State,
    /// The statement that comes next, or runs.
    at: usize,
    turns: u32,
    snapshot: Option<Rows>,
    written: Rows,
    /// What was written before the present statement.
    before: Rows,
    claims: Vec<Claimed>,
    read: Footprint,
    /// What each row that it looked at, or wrote, held.
    seen: Vec<(u64, Vec<usize>)>,
    version: u64,
}

#[derive(Debug, Default)]
struct Server {
    rows: Rows,
    held: BTreeMap<u64, usize>,
    /// First and last version of the refresh under way.
    refresh: Option<(u64, u64)>,
    told: Vec<usize>,
    /// COMMITs under way.
    commits: BTreeSet<usize>,
    tickets: u64,
}

/// All of it.
#[derive(Debug)]
pub(crate) struct World {
    core: Onecopy,
    duties: Duties,
    clients: Vec<Client>,
    servers: Vec<Server>,
    /// Who has which version, from the first.
    log: Vec<usize>,
    durable: u64,
    has_told_waits: bool,
    pub(crate) story: Story,
}

/// What happened; of no matter for what can happen next.
#[derive(Default)]
pub(crate) struct Story(Vec<String>);

impl std::fmt::Debug for Story {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("story")
    }
}

impl Story {
    pub(crate) fn join(&self, with: &str) -> String {
        self.0.join(with)
    }
}

fn group_of(key: u64) -> u64 {
    if key < 3 { GROUP } else { OTHER_GROUP }
}

fn session(client: usize) -> SessionId {
    SessionId(client as u64)
}

fn client_of(session: SessionId) -> usize {
    usize::try_from(session.0).unwrap()
}

impl Step {
    fn keys(self) -> &'static [u64] {
        match self {
            Self::Row(1) | Self::Hidden(1) | Self::Look(1) => &KEYS[..1],
            Self::Row(2) | Self::Hidden(2) | Self::Look(2) => &KEYS[1..2],
            Self::Row(_) | Self::Hidden(_) | Self::Look(_) => &KEYS[2..],
            Self::Group | Self::LookGroup => &KEYS[..2],
            Self::Table => &KEYS,
        }
    }

    fn writes(self) -> bool {
        !matches!(self, Self::Look(_) | Self::LookGroup)
    }

    /// What it may write, as far as it can be told beforehand.
    fn forecast(self, duties: Duties) -> Claims {
        let mut claims = Claims::default();
        if !duties.foretells {
            return claims;
        }
        match self {
            Self::Row(key) => {
                claims.rows.push((TABLE, key));
                claims.groups.extend(duties.tells_groups.then_some((TABLE, ANY_GROUP)));
            }
            Self::Group => {
                claims.rows.push((TABLE, GROUP));
                claims.shared.push((TABLE, ANY_GROUP));
            }
            Self::Table => claims.tables.push(TABLE),
            Self::Hidden(_) | Self::Look(_) | Self::LookGroup => {}
        }
        claims
    }

    fn footprint(self) -> Footprint {
        let mut read = Footprint::default();
        match self {
            Self::Table | Self::Hidden(_) => read.tables.push(TABLE),
            Self::Group | Self::LookGroup => read.rows.push((TABLE, GROUP)),
            Self::Row(key) | Self::Look(key) => read.rows.push((TABLE, key)),
        }
        read
    }
}

impl Client {
    fn step(&self) -> Option<Step> {
        self.program.steps.get(self.at).copied()
    }

    fn home(&self) -> usize {
        usize::from(self.program.home)
    }

    fn is_serializable(&self) -> bool {
        self.program.level == Level::Serializable
    }

    fn needs(&self, step: Step, more: Option<Claims>, duties: Duties) -> Needs {
        let footprint = step.footprint();
        let mut writes = step.forecast(duties);
        writes.add(&more.unwrap_or_default());
        if self.is_serializable() && duties.locks_reads {
            writes.rows.extend(footprint.rows.iter().filter(|_| writes.tables.is_empty()));
        }
        let reads = match &self.snapshot {
            None if self.is_serializable() => Reads::All,
            Some(_) if !step.writes() => Reads::Tables(Arc::from([])),
            _ => Reads::Rows(Arc::new(footprint)),
        };
        Needs { reads, writes, cost_us: 1, near: None, catalogue: Version::ZERO }
    }

    /// What the rows claim that the present statement has written.
    fn captured(&self, duties: Duties) -> Claims {
        let mut claims = Claims::default();
        let keys =
            self.written.iter().filter(|(key, list)| self.before.get(key) != Some(list)).map(|(key, _)| *key);
        for key in keys {
            claims.rows.push((TABLE, key));
            claims.groups.extend(duties.tells_groups.then(|| (TABLE, group_of(key))));
        }
        claims
    }
}

impl World {
    pub(crate) fn new(programs: &[Program], duties: Duties) -> Self {
        let options = Options {
            replicas: HOMES as u16,
            anchor: ReplicaId(0),
            placement: Placement::full(HOMES as u16),
            epoch: Epoch(1),
            last: Version::ZERO,
            refresh_pause_us: 0,
            keys_max: KEYS_MAX,
            refresh_versions_max: REFRESH_VERSIONS_MAX,
            rules: duties.core,
        };
        let client = |program: &Program| Client {
            program: program.clone(),
            state: State::Idle,
            at: 0,
            turns: 0,
            snapshot: None,
            written: Rows::new(),
            before: Rows::new(),
            claims: Vec::new(),
            read: Footprint::default(),
            seen: Vec::new(),
            version: 0,
        };
        let rows: Rows = KEYS.iter().map(|key| (*key, Vec::new())).collect();
        let server = || Server { rows: rows.clone(), ..Server::default() };
        let mut world = Self {
            core: Onecopy::new(options),
            duties,
            clients: programs.iter().map(client).collect(),
            servers: (0..HOMES).map(|_| server()).collect(),
            log: Vec::new(),
            durable: 0,
            has_told_waits: false,
            story: Story::default(),
        };
        for replica in 0..HOMES as u16 {
            let (replica, applied) = (ReplicaId(replica), Version::ZERO);
            world.feed(Event::ReplicaUp { replica, incarnation: UP, applied });
        }
        world.feed(Event::CatalogueLoaded { version: Version::ZERO });
        world
    }

    /// All that can happen next.
    pub(crate) fn choices(&self) -> Vec<Choice> {
        let mut all = Vec::new();
        for (n, client) in self.clients.iter().enumerate() {
            match client.state {
                State::Idle => all.push(Choice::Next(n)),
                State::Sent if self.waits_for(n).is_none() => all.push(Choice::Run(n)),
                _ => {}
            }
        }
        // One by one, or all at once.
        let logged = self.log.len() as u64;
        let next = BTreeSet::from([logged.min(self.durable + 1), logged]);
        all.extend(next.into_iter().filter(|upto| *upto > self.durable).map(Choice::Log));
        for (home, server) in self.servers.iter().enumerate() {
            all.extend(server.commits.iter().map(|n| Choice::Commit(home, *n)));
            match (server.refresh, self.refresh_waits_for(home)) {
                (Some(_), None) => all.push(Choice::Apply(home)),
                (Some(_), Some(n)) if !server.told.contains(&n) => all.push(Choice::InTheWay(home, n)),
                _ => {}
            }
        }
        let waits =
            (0..self.clients.len()).any(|n| matches!(self.clients[n].state, State::Sent | State::Waiting));
        if all.is_empty() && waits && !self.has_told_waits && self.duties.tells_waits {
            all.push(Choice::Waits);
        }
        all
    }

    pub(crate) fn go(&mut self, choice: Choice) {
        self.story.0.push(format!("{choice:?}"));
        self.has_told_waits = choice == Choice::Waits;
        match choice {
            Choice::Next(n) => self.next(n),
            Choice::Run(n) => self.run(n),
            Choice::Log(upto) => {
                self.durable = upto;
                self.feed(Event::Logged { upto: Version(self.durable) });
            }
            Choice::Commit(home, n) => {
                self.servers[home].commits.remove(&n);
                let written = self.clients[n].written.clone();
                self.servers[home].rows.extend(written);
                self.servers[home].held.retain(|_, holder| *holder != n);
                self.clients[n].state = State::Committed;
                self.feed(Event::Committed { session: session(n) });
            }
            Choice::Apply(home) => {
                let (from, upto) = self.servers[home].refresh.take().unwrap();
                self.servers[home].told.clear();
                for version in from..=upto {
                    let written = self.clients[self.log[version as usize - 1]].written.clone();
                    self.servers[home].rows.extend(written);
                }
                let (replica, upto) = (ReplicaId(home as u16), Version(upto));
                self.feed(Event::Applied { replica, incarnation: UP, upto });
            }
            Choice::InTheWay(home, n) => {
                self.servers[home].told.push(n);
                let replica = ReplicaId(home as u16);
                self.feed(Event::InTheWay { session: session(n), replica, incarnation: UP });
            }
            Choice::Waits => {
                let edge = |n: usize| Some((session(n), session(self.waits_for(n)?)));
                let edges: Vec<_> = (0..self.clients.len()).filter_map(edge).collect();
                // What counts is told twice.
                self.feed(Event::ServerWaits { edges: edges.clone() });
                self.feed(Event::ServerWaits { edges });
            }
        }
    }

    /// For whose row lock a statement waits that was sent.
    fn waits_for(&self, n: usize) -> Option<usize> {
        let client = &self.clients[n];
        let step = client.step().filter(|step| step.writes() && client.state == State::Sent)?;
        let held = &self.servers[client.home()].held;
        step.keys().iter().find_map(|key| held.get(key)).copied().filter(|holder| *holder != n)
    }

    fn refresh_waits_for(&self, home: usize) -> Option<usize> {
        let (from, upto) = self.servers[home].refresh?;
        let held = &self.servers[home].held;
        let mut keys =
            (from..=upto).flat_map(|version| self.clients[self.log[version as usize - 1]].written.keys());
        keys.find_map(|key| held.get(key)).copied()
    }

    fn next(&mut self, n: usize) {
        let client = &mut self.clients[n];
        let Some(step) = client.step() else { return self.finish(n) };
        client.state = State::Waiting;
        client.before = client.written.clone();
        let (level, home) = (client.program.level, client.program.home);
        let needs = client.needs(step, None, self.duties);
        let event = if client.turns > 0 {
            Event::Statement { session: session(n), needs }
        } else {
            let (nonce, home, foreseen) = (Nonce(n as u64), Home::At(ReplicaId(home)), Claims::default());
            Event::Begin { session: session(n), level, nonce, home, needs, foreseen }
        };
        self.feed(event);
    }

    /// Every row is locked at once; which of two gets the first of them is a choice.
    fn run(&mut self, n: usize) {
        let home = self.clients[n].home();
        let (client, server) = (&mut self.clients[n], &mut self.servers[home]);
        let step = client.step().unwrap();
        if client.is_serializable() {
            client.snapshot.get_or_insert_with(|| server.rows.clone());
        }
        for key in step.keys() {
            let newest = &server.rows[key];
            let visible = client.snapshot.as_ref().map_or(newest, |snapshot| &snapshot[key]);
            let present = client.written.get(key).unwrap_or(visible).clone();
            if step.writes() && !client.written.contains_key(key) && visible != newest {
                // As the server says: it was written since the snapshot.
                return self.roll_back(n, None);
            }
            if !client.written.contains_key(key) {
                client.seen.push((*key, present.clone()));
            }
            if step.writes() {
                client.written.insert(*key, [&present[..], &[n]].concat());
                server.held.insert(*key, n);
            }
        }
        client.read.add(&step.footprint());
        let claims = client.captured(self.duties);
        self.feed(Event::Executed { session: session(n) });
        if matches!(step, Step::Hidden(_)) && self.duties.asks && !self.secure(n, &claims) {
            return;
        }
        let client = &mut self.clients[n];
        client.claims.push(Claimed { turn: client.turns - 1, is_held: false, claims });
        (client.at, client.state) = (client.at + 1, State::Idle);
    }

    /// Asks for what was written; if it is another's, the statement is undone and asks for it like any other.
    fn secure(&mut self, n: usize, claims: &Claims) -> bool {
        let mut effects = Vec::new();
        self.core.handle(
            Time::default(),
            Event::Secure { session: session(n), claims: claims.clone(), held: Claims::default() },
            &mut effects,
        );
        let is_free = |effect: &Effect| matches!(effect, Effect::Secured { rival: None, .. });
        let is_secured = effects.iter().any(is_free);
        effects.retain(|effect| !matches!(effect, Effect::Secured { .. }));
        self.carry_out(effects);
        if !is_secured && self.clients[n].state == State::Sent {
            let client = &mut self.clients[n];
            (client.written, client.state) = (client.before.clone(), State::Waiting);
            client.seen.pop();
            let (needs, kept) = (
                client.needs(client.step().unwrap(), Some(claims.clone()), self.duties),
                client.written.clone(),
            );
            self.servers[self.clients[n].home()]
                .held
                .retain(|key, holder| *holder != n || kept.contains_key(key));
            self.feed(Event::Statement { session: session(n), needs });
        }
        is_secured
    }

    fn finish(&mut self, n: usize) {
        let home = self.clients[n].home();
        if self.clients[n].written.is_empty() {
            self.feed(Event::End { session: session(n) });
            self.clients[n].state = State::Committed;
            return;
        }
        self.clients[n].state = State::Finishing;
        self.servers[home].tickets += 1;
        let ticket = self.servers[home].tickets;
        self.feed(Event::Drawn { session: session(n), ticket });
        let mut body = RecordBuilder::new();
        body.push_delete(TABLE, &[0, 0, 0, 0]).unwrap();
        let client = &self.clients[n];
        let reads = Reads::Rows(Arc::new(client.read.clone()));
        let (body, claims) = (Box::new(body.seal()), client.claims.clone());
        self.feed(Event::Finish { session: session(n), body, claims, changed: Vec::new(), reads });
    }

    fn roll_back(&mut self, n: usize, cause: Option<AbortCause>) {
        let home = self.clients[n].home();
        self.servers[home].held.retain(|_, holder| *holder != n);
        self.clients[n].state = State::Aborted(cause);
        if cause.is_none() {
            self.feed(Event::End { session: session(n) });
        }
    }

    fn feed(&mut self, event: Event) {
        let mut effects = Vec::new();
        self.core.handle(Time::default(), event, &mut effects);
        self.carry_out(effects);
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in VecDeque::from(effects) {
            match effect {
                Effect::Execute { session, .. } => {
                    let client = &mut self.clients[client_of(session)];
                    (client.state, client.turns) = (State::Sent, client.turns + 1);
                }
                Effect::Append { version, identity, .. } => {
                    let n = client_of(SessionId(identity.nonce.0));
                    self.log.push(n);
                    assert_eq!(version.0, self.log.len() as u64, "versions are dense");
                    self.clients[n].version = version.0;
                }
                Effect::Draw { session } => {
                    let server = &mut self.servers[self.clients[client_of(session)].home()];
                    server.tickets += 1;
                    let ticket = server.tickets;
                    self.feed(Event::Drawn { session, ticket });
                }
                Effect::Acknowledge { session, version } => {
                    assert!(version.0 <= self.durable, "answered before it is durable");
                    self.clients[client_of(session)].state = State::Committing;
                }
                Effect::Commit { session, .. } => {
                    let n = client_of(session);
                    let home = self.clients[n].home();
                    let server = &mut self.servers[home];
                    assert!(server.commits.insert(n) && server.refresh.is_none(), "COMMITs or a refresh");
                }
                Effect::Apply { replica, from, upto, .. } => {
                    let server = &mut self.servers[usize::from(replica.0)];
                    let is_alone =
                        server.refresh.replace((from.0, upto.0)).is_none() && server.commits.is_empty();
                    assert!(is_alone, "one refresh at a time");
                }
                Effect::Abort { session, cause } => self.roll_back(client_of(session), Some(cause)),
                Effect::LoadCatalogue { .. } | Effect::Anchor { .. } => {}
                other => panic!("nothing fails here: {other:?}"),
            }
        }
    }

    /// What is wrong, when nothing more can happen.
    pub(crate) fn judge(&self) -> Option<String> {
        for (n, client) in self.clients.iter().enumerate() {
            match client.state {
                State::Committed | State::Aborted(Some(AbortCause::Deadlock(_))) => {}
                State::Aborted(cause) if client.is_serializable() => _ = cause,
                State::Aborted(cause) => {
                    return Some(format!("client {n} loses at READ COMMITTED: {cause:?}"));
                }
                state => return Some(format!("client {n} waits for ever: {state:?}")),
            }
        }
        let mut rows: Rows = KEYS.iter().map(|key| (*key, Vec::new())).collect();
        for n in &self.log {
            for key in self.clients[*n].written.keys() {
                let writes = self.clients[*n].written[key].iter().filter(|by| *by == n).count();
                rows.get_mut(key).unwrap().extend(vec![*n; writes]);
            }
        }
        let differs = self.servers.iter().position(|server| server.rows != rows);
        if let Some(home) = differs {
            return Some(format!(
                "a write is lost at {home}: {:?}, and not {rows:?}",
                self.servers[home].rows
            ));
        }
        let is_strict = self.clients.iter().all(Client::is_serializable);
        (is_strict && !self.has_order()).then(|| "there is no order of what was committed".to_owned())
    }

    /// Whether those that committed have seen what they would have one after the other, in some order.
    fn has_order(&self) -> bool {
        let committed: Vec<usize> =
            (0..self.clients.len()).filter(|n| self.clients[*n].state == State::Committed).collect();
        let mut orders = vec![Vec::new()];
        for n in committed {
            let with = |order: Vec<usize>| {
                (0..=order.len()).map(move |at| [&order[..at], &[n], &order[at..]].concat())
            };
            orders = orders.into_iter().flat_map(with).collect();
        }
        orders.iter().any(|order| {
            let mut rows: Rows = KEYS.iter().map(|key| (*key, Vec::new())).collect();
            order.iter().all(|n| {
                let client = &self.clients[*n];
                let is_same = client.seen.iter().all(|(key, held)| rows[key] == *held);
                rows.extend(client.written.clone());
                is_same
            })
        })
    }
}
