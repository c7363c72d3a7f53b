//! The table of settings. Flags, variables, checks and the reference page are made from it.

mod log;
mod setting;

use super::kinds::Kind;
use super::{c_jdbc, protocol};
pub(crate) use setting::Setting;

/// All settings, in the order of the reference page.
pub(crate) const SETTINGS: &[Setting] = &[
    Setting {
        name: "listen",
        flag: "listen",
        kind: Kind::Addresses { may_be_none: false },
        default: "127.0.0.1:6432",
        can_reload: false,
        about: "Address, or list of addresses, on which clients are served.",
    },
    Setting {
        name: "hba",
        flag: "hba",
        kind: Kind::Rules,
        default: "host all all all scram-sha-256",
        can_reload: true,
        about: "Which clients may connect, and how they authenticate: a list of rules as in pg_hba.conf; the \
                first that fits decides. A rule has a type (`host`, `hostssl` for TLS only, or `hostnossl`), \
                databases, roles, addresses (each `all` or a list with commas; addresses are one network) and a \
                method (`scram-sha-256`, `trust` or `reject`). Passwords are those of the servers' roles. The \
                servers must store them as SCRAM-SHA-256, and all the same verifier (pg_dumpall copies it); a \
                server that asks for a password gets the client's proof. A rule that trusts all clients from any \
                address is a mistake unless all of `listen` is on the loopback.",
    },
    Setting {
        name: "tls_certificate_file",
        flag: "tls-certificate-file",
        kind: Kind::OptionalText,
        default: "",
        can_reload: true,
        about: "File with the certificate that clients see, and its chain, as PEM. If empty, client connections \
                are not encrypted; a rule `hostssl` requires TLS. RELOAD reads the file again, even if only its \
                content has changed. A certificate that has expired, is not valid yet, or expires within 30 days \
                is used with a warning, in the log and from `onecopy check`.",
    },
    Setting {
        name: "tls_key_file",
        flag: "tls-key-file",
        kind: Kind::OptionalText,
        default: "",
        can_reload: true,
        about: "File with the key of that certificate, as PEM. No other account may be able to read it.",
    },
    Setting {
        name: "admin_users",
        flag: "admin-users",
        kind: Kind::Roles,
        default: "postgres",
        can_reload: true,
        about: "Roles that may run every command of the admin database.",
    },
    Setting {
        name: "stats_users",
        flag: "stats-users",
        kind: Kind::Roles,
        default: "",
        can_reload: true,
        about: "Roles that may run SHOW in the admin database, and nothing else.",
    },
    Setting {
        name: "http_listen",
        flag: "http-listen",
        kind: Kind::Addresses { may_be_none: true },
        default: "",
        can_reload: false,
        about: "Address on which `/metrics`, `/health`, `/ready` and `/nodes` are served over HTTP. If empty, they are \
                not.",
    },
    Setting {
        name: "discovery",
        flag: "discovery",
        kind: Kind::Group,
        default: "",
        can_reload: false,
        about: "Multicast group in which the node answers `onecopy connect` with its address for clients and its load, over UDP. \
                If empty, it does not. It takes part on the interface of its first address in `listen`.",
    },
    Setting {
        name: "data",
        flag: "data",
        kind: Kind::Text,
        default: "/var/lib/onecopy",
        can_reload: false,
        about: "Folder of the log and of the cluster's state. Back it up together with the servers, and never \
                share it between nodes.",
    },
    log::LOG,
    log::ETCD,
    log::ETCD_CA_FILE,
    log::ETCD_CERTIFICATE_FILE,
    log::ETCD_KEY_FILE,
    log::NODE,
    log::NODES,
    log::LINK_LISTEN,
    log::LINK_CA_FILE,
    log::LINK_CERTIFICATE_FILE,
    log::LINK_KEY_FILE,
    log::CLUSTER_NAME,
    log::LOG_PATIENCE,
    Setting {
        name: "database",
        flag: "database",
        kind: Kind::Text,
        default: "postgres",
        can_reload: false,
        about: "Database that is served. It has this name on every server.",
    },
    Setting {
        name: "superuser",
        flag: "superuser",
        kind: Kind::Text,
        default: "postgres",
        can_reload: false,
        about: "Superuser of Onecopy's own connections to the servers. Connections for clients log in as the \
                clients' roles: without a password where the server's pg_hba.conf says `trust` or `peer`, and \
                with the client's proof where it says `scram-sha-256`.",
    },
    Setting {
        name: "superuser_password_file",
        flag: "superuser-password-file",
        kind: Kind::OptionalText,
        default: "",
        can_reload: false,
        about: "File with the password of `superuser`, for servers that ask for it. No other account may be able \
                to read the file. If empty, PGPASSWORD is used if it is set; otherwise no password is sent.",
    },
    Setting {
        name: "start_patience",
        flag: "start-patience",
        kind: Kind::Duration(1_000, 86_400_000),
        default: "1min",
        can_reload: false,
        about: "How long the start waits for servers that do not answer. Then the others serve without them.",
    },
    Setting {
        name: "stop_patience",
        flag: "stop-patience",
        kind: Kind::Duration(0, 86_400_000),
        default: "1min",
        can_reload: true,
        about: "How long open transactions may take to end after SIGTERM. A second signal ends them at once.",
    },
    Setting {
        name: "reader_patience",
        flag: "reader-patience",
        kind: Kind::Duration(0, 86_400_000),
        default: "30s",
        can_reload: false,
        about: "How long a read may hold up a schema change at its replica before it is cancelled.",
    },
    Setting {
        name: "drain_patience",
        flag: "drain-patience",
        kind: Kind::Duration(0, 86_400_000),
        default: "10s",
        can_reload: false,
        about: "How long DRAIN and DROP of the anchor wait for sessions that hold state there (temporary \
                objects, session locks, LISTEN and the like). Sessions that still hold some then end with 57P01.",
    },
    Setting {
        name: "health_deadline",
        flag: "health-deadline",
        kind: Kind::Duration(200, 600_000),
        default: "3s",
        can_reload: false,
        about: "A server that has not answered for this long, or that has accepted no new connection for this \
                long, is down. The others go on without it.",
    },
    Setting {
        name: "takeover_after",
        flag: "takeover-after",
        kind: Kind::Duration(0, 86_400_000),
        default: "300ms",
        can_reload: false,
        about: "How long the anchor may be down before another replica takes its place.",
    },
    Setting {
        name: "transaction_size_max",
        flag: "transaction-size-max",
        kind: Kind::Size(1 << 20, 1 << 44),
        default: "16GB",
        can_reload: false,
        about: "Largest size of the row changes of one transaction. A larger transaction is rejected with 53400.",
    },
    Setting {
        name: "log_size_max",
        flag: "log-size-max",
        kind: Kind::Size(64 << 20, 1 << 44),
        default: "16GB",
        can_reload: false,
        about: "Largest size of the log that is kept for replicas that are down. A replica that lacks what was \
                trimmed must be rebuilt.",
    },
    Setting {
        name: "parked_log_size_max",
        flag: "parked-log-size-max",
        kind: Kind::Size(1 << 20, 1 << 44),
        default: "4GB",
        can_reload: false,
        about: "Largest size of the log that is kept for parked replicas. Waking a replica that lacks what was \
                trimmed rebuilds it.",
    },
    Setting {
        name: "result_cache",
        flag: "result-cache",
        kind: Kind::Size(0, 1 << 40),
        default: "0MB",
        can_reload: false,
        about: "Size of the cache of answers; 0 switches it off. The answer of a read is given again, without a \
                replica, until something that it depends on is written, so no answer is ever stale. Only for protocol \
                `onecopy` with `see = \"fresh\"`.",
    },
    Setting {
        name: "sessions_max",
        flag: "sessions-max",
        kind: Kind::Count(1, 10_000),
        default: "280",
        can_reload: true,
        about: "Largest number of sessions. With `pool_mode = session` each may have a connection to every \
                server, so keep it below their `max_connections`.",
    },
    Setting {
        name: "logins_max",
        flag: "logins-max",
        kind: Kind::Count(1, 65_535),
        default: "1000",
        can_reload: true,
        about: "Largest number of connections that have not logged in. When one more comes, Onecopy closes the \
                one that has waited longest, of the address that has most of them (in IPv6, of the /64 network). \
                Keep it below the limit of open files (`ulimit -n`) less those that sessions need.",
    },
    Setting {
        name: "logins_per_address_max",
        flag: "logins-per-address-max",
        kind: Kind::Count(1, 65_535),
        default: "1000",
        can_reload: true,
        about: "Largest number of such connections from one address. All clients of a proxy have its address.",
    },
    Setting {
        name: "authentication_timeout",
        flag: "authentication-timeout",
        kind: Kind::Duration(1_000, 600_000),
        default: "1min",
        can_reload: true,
        about: "How long a client may take to log in, as in PostgreSQL. Its start-up packet, with the TLS \
                handshake, must come within 10 seconds.",
    },
    Setting {
        name: "protocol",
        flag: "protocol",
        kind: Kind::Word(&protocol::NAMES),
        default: "onecopy",
        can_reload: false,
        about: "Replication protocol (docs/explanation/protocols). `onecopy`, `gargamel`, `round-robin`, \
                `tashkent+`, `centralised-writes`, `preventive` and `middle-r` propagate rows; the others are schedulers that ship statements to all replicas \
                under table locks. A data folder keeps its kind.",
    },
    Setting {
        name: "rule",
        flag: "rule",
        kind: Kind::Word(&protocol::RULES),
        default: "own",
        can_reload: false,
        about: "Which transactions wait for each other under protocol `gargamel`: those that write the same \
                (`write-write`, its own), or also those that read what another writes (`read-write`, with \
                REPEATABLE READ as SERIALIZABLE).",
    },
    Setting {
        name: "memory",
        flag: "memory",
        kind: protocol::MEMORY,
        default: protocol::MEMORY_DEFAULT,
        can_reload: false,
        about: "Memory of one server for tables, under protocol `tashkent+`. Kinds of transactions whose tables fit \
                into it together share a group of replicas. Another protocol takes no other value than the default.",
    },
    Setting {
        name: "see",
        flag: "see",
        kind: Kind::Word(&protocol::SIGHTS),
        default: "own",
        can_reload: false,
        about: "Whether reads see everything acknowledged before them (`fresh`), or whatever their replica has at the \
                moment, which may be old (`local`). By `own`, they are fresh, but local under protocol `middle-r`. For protocols \
                that propagate rows.",
    },
    Setting {
        name: "chain_patience",
        flag: "chain-patience",
        kind: Kind::Duration(1, 86_400_000),
        default: "10s",
        can_reload: false,
        about: "How long a transaction at REPEATABLE READ or SERIALIZABLE waits in a chain (`onecopy.ordering`, protocol \
                `gargamel`) before it fails with 40001 after all.",
    },
    Setting {
        name: "start",
        flag: "start",
        kind: Kind::Word(&protocol::STARTS),
        default: "on-arrival",
        can_reload: false,
        about: "When a transaction starts under protocol `preventive`: on arrival, to run again if an older one comes \
                (`on-arrival`), or when no older one can come any more (`ordered`).",
    },
    Setting {
        name: "message_max",
        flag: "message-max",
        kind: protocol::MESSAGE_MAX,
        default: protocol::MESSAGE_MAX_DEFAULT,
        can_reload: false,
        about: "How long after its submission a transaction may commit under protocol `preventive`: the paper's Max and \
                epsilon. A message that takes longer costs time only, and is counted.",
    },
    Setting {
        name: "perform",
        flag: "perform",
        kind: Kind::Word(&protocol::PERFORMERS),
        default: "holders",
        can_reload: false,
        about: "Whether each replica that holds its data performs a transaction under protocol `preventive` (`holders`), or \
                its home alone, and the others apply its rows (`home`).",
    },
    c_jdbc::TRANSACTION_LEVEL,
    c_jdbc::EARLY_RESPONSE,
    c_jdbc::BALANCER,
    c_jdbc::BALANCER_WEIGHTS,
    c_jdbc::QUERY_CACHE,
    c_jdbc::QUERY_CACHE_SIZE,
    Setting {
        name: "pool_mode",
        flag: "pool-mode",
        kind: Kind::Word(&["session", "transaction"]),
        default: "session",
        can_reload: false,
        about: "Whether sessions keep their server connections (`session`) or share them between transactions \
                (`transaction`). When they share, the sessions of a role take turns, and a session has a connection \
                only while a transaction is open.",
    },
    Setting {
        name: "pool_size",
        flag: "pool-size",
        kind: Kind::Count(1, 10_000),
        default: "20",
        can_reload: false,
        about: "With `pool_mode = transaction`, the largest number of connections of one role to each server. \
                Two more may be opened for transactions that are open at another server and hold what the others \
                wait for. The sum over all roles must be below the servers' `max_connections`. Protocol `preventive` performs \
                transactions on as many more, in both modes.",
    },
    Setting {
        name: "pool_wait",
        flag: "pool-wait",
        kind: Kind::Duration(1, 86_400_000),
        default: "30s",
        can_reload: false,
        about: "How long a statement waits for such a connection before it fails with 53300.",
    },
    Setting {
        name: "sequences",
        flag: "sequences",
        kind: Kind::Word(&["lent", "anchor"]),
        default: "lent",
        can_reload: true,
        about: "Where inserts that draw from sequences (serial, identity) execute. `lent`: at the anchor unless \
                it is busy, and then also at replicas that have leased ranges of the sequences. `anchor`: always \
                at the anchor, so that values ascend over all sessions. A session can override it: `SET \
                onecopy.sequences`.",
    },
    Setting {
        name: "log_level",
        flag: "log-level",
        kind: Kind::Word(&["error", "warn", "info", "debug", "trace"]),
        default: "warn",
        can_reload: true,
        about: "Least severe level of messages on standard error.",
    },
    Setting {
        name: "log_format",
        flag: "log-format",
        kind: Kind::Word(&["text", "json"]),
        default: "text",
        can_reload: false,
        about: "Log format: lines of text, or one JSON object a line.",
    },
    Setting {
        name: "elastic.replicas",
        flag: "elastic-replicas",
        kind: Kind::Replicas,
        default: "",
        can_reload: false,
        about: "How many replicas serve, at least and at most: `2..6`. Within these bounds Onecopy wakes, parks and \
                adds replicas with the load (docs/how-to/replicas.md). If empty, only commands do.",
    },
    Setting {
        name: "elastic.busy",
        flag: "elastic-busy",
        kind: Kind::Decimal(50_000, 1_000_000),
        default: "0.7",
        can_reload: false,
        about: "Busy share of the replicas from which another one is wanted. A replica is parked when the others would \
                be busy for less than 0.8 of it.",
    },
    Setting {
        name: "elastic.statements",
        flag: "elastic-statements",
        kind: Kind::Count(1, 1_024),
        default: "1",
        can_reload: false,
        about: "How many statements a replica runs at a time when it is fully busy, about the number of its \
                processors. With 1 it is busy whenever a statement runs there; with 4, three running statements are \
                0.75.",
    },
    Setting {
        name: "elastic.grow_after",
        flag: "elastic-grow-after",
        kind: Kind::Duration(500, 86_400_000),
        default: "10s",
        can_reload: false,
        about: "How long the replicas have to be that busy, in the mean, before another one is woken or added. A \
                replica that is lost is replaced after the same time if fewer than the least number serve.",
    },
    Setting {
        name: "elastic.shrink_after",
        flag: "elastic-shrink-after",
        kind: Kind::Duration(500, 86_400_000),
        default: "5min",
        can_reload: false,
        about: "How long one replica less has to be enough, without a break, before one is parked.",
    },
    Setting {
        name: "elastic.spares",
        flag: "elastic-spares",
        kind: Kind::Count(0, 15),
        default: "1",
        can_reload: false,
        about: "Number of parked replicas that are to be ready. Missing ones are added, given the data and parked, as \
                long as there are fewer replicas than the largest number.",
    },
    Setting {
        name: "elastic.price_per_hour",
        flag: "elastic-price-per-hour",
        kind: Kind::Decimal(0, 1_000_000_000_000),
        default: "0",
        can_reload: false,
        about: "Price of one server for one hour, for SHOW COST. With 0 it shows no cost.",
    },
    Setting {
        name: "elastic.provision",
        flag: "elastic-provision",
        kind: Kind::OptionalText,
        default: "",
        can_reload: false,
        about: "Command that provides a server when none is parked. It runs in a shell, and prints the server's URL as \
                its last line; Onecopy then does what ADD REPLICA does. It may take 10 minutes, and is run again after \
                a failure, so it should print the same server again. If empty, only parked replicas are woken. \
                `onecopy up` makes its servers itself.",
    },
];

/// The settings of the table `elastic` that `onecopy up` has as flags.
pub(super) fn elastic_of_up() -> impl Iterator<Item = &'static Setting> {
    SETTINGS
        .iter()
        .filter(|setting| setting.name.starts_with("elastic.") && setting.name != "elastic.provision")
}
