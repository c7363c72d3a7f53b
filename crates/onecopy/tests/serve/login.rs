//! Promise: a client without the password of its role is rejected, and the rejection reveals nothing more. With the password it
//! gets in, also to servers that ask for it, and over TLS where that is demanded.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair};
use tokio_postgres::{Client, NoTls};

use super::cluster::folder::give_away;
use super::cluster::plain::Plain;
use super::cluster::served::Setup;
use super::cluster::{programs, rows, run, value};

/// Two servers that require a password, the second one over TLS only.
pub(crate) struct Servers {
    first: Plain,
    second: Plain,
}

/// The deadline of an event that comes by itself.
const PATIENCE: Duration = Duration::from_mins(1);

/// The password of `app`.
pub(crate) const PASSWORD: &str = "it's a secret";

impl Servers {
    pub(crate) async fn start() -> Self {
        let (first, second) = (Plain::start().await, Plain::start().await);
        let (a, b) = (first.client().await, second.client().await);
        run(&a, "ALTER ROLE postgres PASSWORD 'master'; CREATE ROLE app LOGIN PASSWORD 'it''s a secret'")
            .await;
        run(&b, "CREATE ROLE app LOGIN").await;
        run(&a, "CREATE TABLE item (id int PRIMARY KEY); GRANT ALL ON item TO app").await;
        run(&b, "CREATE TABLE item (id int PRIMARY KEY); GRANT ALL ON item TO app").await;
        for client in [&a, &b] {
            run(client, "GRANT CREATE ON SCHEMA public TO app").await;
        }
        for role in ["postgres", "app"] {
            let kept =
                value(&a, &format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{role}'")).await;
            run(&b, &format!("ALTER ROLE {role} PASSWORD '{kept}'")).await;
        }
        ask_for_passwords(&first, &a, "host").await;
        encrypt(&second, &b).await;
        Self { first, second }
    }

    /// A line of configuration with the password of Onecopy's own connections.
    pub(crate) fn password_file(setup: &Setup) -> String {
        let file = setup.folder.path().join("password");
        std::fs::write(&file, "master\n").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        format!("superuser_password_file = \"{}\"", file.display())
    }

    /// Where they are.
    pub(crate) fn urls(&self) -> Vec<String> {
        let root = self.second.data().join("server.crt").display().to_string().replace('/', "%2F");
        vec![
            format!("postgresql://127.0.0.1:{}", self.first.port),
            format!("postgresql://127.0.0.1:{}?sslmode=verify-full&sslrootcert={root}", self.second.port),
        ]
    }
}

/// From now on a server requires TLS and a password.
pub(crate) async fn encrypt(server: &Plain, client: &Client) {
    certify(&server.data(), "server");
    run(client, "ALTER SYSTEM SET ssl = on").await;
    ask_for_passwords(server, client, "hostssl").await;
}

pub(crate) async fn ask_for_passwords(server: &Plain, client: &Client, kind: &str) {
    let rules = format!("{kind} all all 127.0.0.1/32 scram-sha-256\nlocal all all trust\n");
    std::fs::write(server.data().join("pg_hba.conf"), rules).unwrap();
    run(client, "SELECT pg_reload_conf()").await;
}

/// Writes a certificate for this machine that signs itself, and its key.
pub(crate) fn certify(folder: &Path, name: &str) {
    certify_as(folder, name, |_| {});
}

/// From now on a server has a certificate that is not valid any more; the file with it.
pub(crate) async fn expire(server: &Plain, client: &Client) -> String {
    certify_as(&server.data(), "server", |parameters| {
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    run(client, "ALTER SYSTEM SET ssl = on").await;
    run(client, "SELECT pg_reload_conf()").await;
    server.data().join("server.crt").display().to_string()
}

/// The same, with something changed.
pub(crate) fn certify_as(folder: &Path, name: &str, change: impl FnOnce(&mut CertificateParams)) {
    let key = KeyPair::generate().unwrap();
    let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
    let mut parameters = CertificateParams::new(names).unwrap();
    change(&mut parameters);
    let certificate = parameters.self_signed(&key).unwrap();
    for (end, text) in [("crt", certificate.pem()), ("key", key.serialize_pem())] {
        let path = folder.join(format!("{name}.{end}"));
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
        if name == "server" {
            give_away(&path);
        }
    }
}

pub(crate) async fn log_in(
    setup: &Setup,
    role: &str,
    database: &str,
    password: &str,
) -> Result<Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.host("127.0.0.1").port(setup.port).user(role).dbname(database).password(password);
    let (client, connection) = config.connect(NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

/// The code and the text of a refused log-in.
async fn refusal(setup: &Setup, role: &str, database: &str, password: &str) -> (String, String) {
    let refused = log_in(setup, role, database, password).await.err();
    let refused = refused.unwrap_or_else(|| panic!("{role} came in to {database}"));
    let said = refused.as_db_error().unwrap_or_else(|| panic!("{refused:?}"));
    (said.code().code().to_owned(), said.message().to_owned())
}

const MORE: &str = "admin_users = [\"postgres\"]\nstats_users = [\"app\"]\n\
    hba = [\"hostssl all tls all scram-sha-256\", \"hostnossl all tls all reject\", \"host all joe all reject\", \
    \"host onecopy,postgres app,postgres,nobody,late,bare 127.0.0.0/8 scram-sha-256\"]";

#[tokio::test]
async fn a_password_opens_everything_and_nothing_else_does() {
    let servers = Servers::start().await;
    let setup = Setup::new(&[], "");
    let file = setup.folder.path().join("password");
    certify(setup.folder.path(), "node");
    let shown = setup.folder.path().display();
    let more = format!(
        "{MORE}\nsuperuser_password_file = \"{shown}/password\"\ntls_certificate_file = \"{shown}/node.crt\"\n\
         tls_key_file = \"{shown}/node.key\""
    );
    setup.write_urls(&servers.urls(), &more);
    std::fs::write(&file, "wrong\n").unwrap();
    let said = setup.refused().await;
    assert!(said.contains("is readable by other accounts"), "{said}");
    std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    let said = setup.refused().await;
    assert!(said.contains("replica-1") && said.contains("(28P01)"), "{said}");
    assert!(said.contains("replica-2"), "{said}");
    std::fs::write(&file, "master\n").unwrap();
    let node = setup.serve(&[]).await;

    let app = log_in(&setup, "app", "postgres", PASSWORD).await.unwrap();
    assert_eq!(value(&app, "SELECT current_user").await, "app");
    run(&app, "INSERT INTO item VALUES (1)").await;
    both_serve(&setup, &app).await;
    let admin = log_in(&setup, "postgres", "onecopy", "master").await.unwrap();
    assert!(rows(&admin, "VERIFY").await.iter().all(|row| row["result"] == "identical"));
    refusals(&setup).await;
    rights(&setup).await;
    changes(&setup, &servers).await;
    log_ins_are_bounded(&setup, &admin, &servers.urls(), &more).await;
    encryption(&setup, &admin).await;
    let log = setup.folder.path().join("data").display().to_string();
    let dumped = programs::text(&programs::onecopy(&["log", "dump", "--data", &log]).await);
    assert!(dumped.contains("SCRAM-SHA-256$") && !dumped.contains("another"), "{dumped}");
    node.stop();
}

/// The role's connections reach both servers.
async fn both_serve(setup: &Setup, app: &Client) {
    let admin = log_in(setup, "postgres", "onecopy", "master").await.unwrap();
    let started = Instant::now();
    while started.elapsed() < PATIENCE {
        assert_eq!(value(app, "SELECT count(*) FROM item").await, "1");
        let reads: Vec<String> =
            rows(&admin, "SHOW REPLICAS").await.iter().map(|row| row["reads"].clone()).collect();
        if reads.iter().all(|count| count != "0") {
            return;
        }
    }
    panic!("one server serves no reads");
}

async fn refusals(setup: &Setup) {
    let wrong =
        |role: &str| ("28P01".to_owned(), format!("password authentication failed for user \"{role}\""));
    assert_eq!(refusal(setup, "app", "postgres", "it's no secret").await, wrong("app"));
    assert_eq!(refusal(setup, "app", "onecopy", "").await, wrong("app"));
    // The error does not reveal whether the role is missing or has no password.
    assert_eq!(refusal(setup, "nobody", "postgres", PASSWORD).await, wrong("nobody"));
    let superuser = log_in(setup, "postgres", "postgres", "master").await.unwrap();
    run(&superuser, "CREATE ROLE bare LOGIN").await;
    assert_eq!(refusal(setup, "bare", "postgres", PASSWORD).await, wrong("bare"));
    run(&superuser, "CREATE ROLE late PASSWORD 'x' VALID UNTIL '2001-01-01'").await;
    assert_eq!(refusal(setup, "late", "postgres", "x").await, wrong("late"));
    run(&superuser, "ALTER ROLE late VALID UNTIL 'infinity'").await;
    let (code, said) = refusal(setup, "late", "postgres", "x").await;
    assert_eq!((code.as_str(), said.as_str()), ("28000", "role \"late\" is not permitted to log in"));
    for (role, database, what) in [
        ("joe", "postgres", "a rule rejects"),
        ("tls", "postgres", "a rule rejects"),
        ("other", "postgres", "no rule lets in"),
        ("app", "shop", "no rule lets in"),
    ] {
        let (code, said) = refusal(setup, role, database, PASSWORD).await;
        assert!(code == "28000" && said.contains(what) && said.contains("127.0.0.1"), "{code} {said}");
    }
    let bare = super::cluster::connect("127.0.0.1", setup.port, "postgres").await.unwrap_err();
    assert!(format!("{bare:?}").contains("password missing"), "{bare:?}");
}

async fn rights(setup: &Setup) {
    let app = log_in(setup, "app", "onecopy", PASSWORD).await.unwrap();
    assert_eq!(rows(&app, "SHOW REPLICAS").await.len(), 2);
    for command in ["KILL 1", "PAUSE", "RELOAD", "VERIFY"] {
        let refused = app.simple_query(command).await.unwrap_err();
        assert_eq!(refused.code().unwrap().code(), "42501", "{command}");
    }
    let (code, said) = refusal(setup, "bare", "onecopy", "").await;
    assert!(code == "28P01" || said.contains("no right"), "{code} {said}");
}

/// A password that is changed counts at once, at every server, and is written down nowhere.
async fn changes(setup: &Setup, servers: &Servers) {
    let superuser = log_in(setup, "postgres", "postgres", "master").await.unwrap();
    run(&superuser, "ALTER ROLE app PASSWORD $$another$$").await;
    assert_eq!(refusal(setup, "app", "postgres", PASSWORD).await.0, "28P01");
    let app = log_in(setup, "app", "postgres", "another").await.unwrap();
    both_serve(setup, &app).await;
    let statement = superuser.prepare("CREATE ROLE tls LOGIN PASSWORD 'another'").await.unwrap();
    superuser.execute(&statement, &[]).await.unwrap();
    let mut kept = Vec::new();
    let socket = |server: &Plain| {
        let folder = server.data().parent().unwrap().display().to_string();
        format!("host={folder} port={} user=postgres dbname=postgres", server.port)
    };
    for server in [&servers.first, &servers.second] {
        let (client, connection) = tokio_postgres::connect(&socket(server), NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        let sql = "SELECT string_agg(rolpassword, ' ' ORDER BY rolname) FROM pg_authid WHERE rolname IN ('app', 'tls')";
        // The change of the role arrives at the other server later.
        let started = Instant::now();
        let mut found = value(&client, sql).await;
        while found.matches("SCRAM-SHA-256$").count() != 2 && started.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(20)).await;
            found = value(&client, sql).await;
        }
        kept.push(found);
    }
    assert_eq!(kept[0], kept[1]);
    assert_eq!(kept[0].matches("SCRAM-SHA-256$4096:").count(), 2, "{kept:?}");
}

async fn psql(setup: &Setup, options: &str) -> String {
    let url = format!("host=127.0.0.1 port={} user=tls dbname=postgres {options}", setup.port);
    let mut command =
        programs::command("psql", &["-XAt", "-d", &url, "-c", "\\conninfo", "-c", "SELECT current_user"]);
    command.env("PGPASSWORD", "another");
    let output = command.output();
    programs::text(&programs::finish("psql", output).await)
}

/// A handshake that is not finished, and a proof that does not come, take places of which there are few.
async fn log_ins_are_bounded(setup: &Setup, admin: &Client, urls: &[String], more: &str) {
    use super::cluster::raw::read_error;
    use std::io::{Read, Write};
    let open = |beginning: &[u8]| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", setup.port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(beginning).unwrap();
        stream.read_exact(&mut [0]).unwrap();
        stream
    };
    let mut startup = Vec::new();
    wire::encode::startup(&mut startup, &[("user", "app"), ("database", "postgres")]);
    let stats = async |name: &str| -> u64 {
        let stats = rows(admin, "SHOW STATS").await;
        stats.iter().find(|row| row["name"] == name).unwrap()["value"].parse().unwrap()
    };
    setup.write_urls(urls, &format!("{more}\nlogins_max = 20\nlogins_per_address_max = 10"));
    run(admin, "RELOAD").await;
    let mut shaking: Vec<_> = (0..12).map(|_| open(&[0, 0, 0, 8, 4, 210, 22, 47])).collect();
    assert_eq!((stats("logins").await, stats("logins_cut").await), (10, 2));
    let mut proving: Vec<_> = (0..12).map(|_| open(&startup)).collect();
    assert_eq!((stats("logins").await, stats("logins_cut").await), (10, 14));
    let app = log_in(setup, "app", "postgres", "another").await.unwrap();
    assert_eq!(value(&app, "SELECT 1").await, "1");
    for stream in &mut shaking {
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)), "it was not cut");
    }
    assert_eq!(read_error(&mut proving[0]), ["53300", "sorry, too many clients already"]);
    setup.write_urls(urls, &format!("{more}\nauthentication_timeout = \"1s\""));
    run(admin, "RELOAD").await;
    assert_eq!(read_error(&mut open(&startup)), ["57014", "canceling authentication due to timeout"]);
    setup.write_urls(urls, more);
    run(admin, "RELOAD").await;
}

async fn encryption(setup: &Setup, admin: &Client) {
    let folder = setup.folder.path();
    let strict = |name: &str| {
        format!("sslmode=verify-full channel_binding=require sslrootcert={}", folder.join(name).display())
    };
    let said = psql(setup, &strict("node.crt")).await;
    assert!(said.contains("SSL connection (protocol: TLSv1.3") && said.contains("\ntls\n"), "{said}");
    let said = psql(setup, "sslmode=disable").await;
    assert!(said.contains("a rule rejects") && said.contains("no encryption"), "{said}");
    let said = psql(setup, "sslmode=prefer channel_binding=disable").await;
    assert!(said.contains("SSL connection"), "{said}");
    // A new certificate counts from RELOAD on; existing connections stay.
    certify(folder, "other");
    for end in ["crt", "key"] {
        std::fs::copy(folder.join(format!("other.{end}")), folder.join(format!("node.{end}"))).unwrap();
    }
    std::fs::write(folder.join("before.crt"), "nothing").unwrap();
    run(admin, "RELOAD").await;
    let said = psql(setup, &strict("other.crt")).await;
    assert!(said.contains("SSL connection"), "{said}");
    std::fs::write(folder.join("node.key"), "nothing").unwrap();
    let refused = admin.simple_query("RELOAD").await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "F0000");
    let said = psql(setup, &strict("other.crt")).await;
    assert!(said.contains("SSL connection"), "a certificate that cannot be used was put into force: {said}");
    direct_handshake(setup);
    own_commands(setup, &folder.join("other.crt")).await;
}

/// `onecopy replica list` and its kin log in as psql does.
async fn own_commands(setup: &Setup, root: &Path) {
    let port = setup.port.to_string();
    let root = root.display().to_string();
    let tls = [("PGSSLMODE", "verify-full"), ("PGSSLROOTCERT", root.as_str())];
    let run = async |more: &[(&str, &str)]| {
        let mut command = programs::command(env!("CARGO_BIN_EXE_onecopy"), &["replica", "list"]);
        command.envs([("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("HOME", "/nowhere")]);
        command.env_remove("PGPASSWORD").envs(more.iter().copied());
        programs::text(&programs::finish("onecopy", command.output()).await)
    };
    let said = run(&[&tls[..], &[("PGPASSWORD", "master")]].concat()).await;
    assert!(said.contains("replica-2") && said.contains("exit status: 0"), "{said}");
    let mut command =
        programs::command(env!("CARGO_BIN_EXE_onecopy"), &["top", "--count", "1", "--every", "1"]);
    command.envs([("PGPORT", port.as_str()), ("PGUSER", "app"), ("PGPASSWORD", "another")]).envs(tls);
    let shown = programs::text(&programs::finish("onecopy", command.output()).await);
    assert!(shown.contains("reads/s") && shown.contains("replica-2  up"), "{shown}");
    let said = run(&[&tls[..], &[("PGPASSWORD", "wrong")]].concat()).await;
    assert!(said.contains("password authentication failed for user \"postgres\""), "{said}");
    let said = run(&[]).await;
    assert!(said.contains("set PGPASSWORD, or PGPASSFILE"), "{said}");
}

/// A client may begin with a TLS handshake at once, if it names the protocol. Plain text behind an
/// SSLRequest is not taken for encrypted.
fn direct_handshake(setup: &Setup) {
    use std::io::{Read, Write};
    let openssl = |protocol: &[&str]| {
        let place = format!("127.0.0.1:{}", setup.port);
        let output = std::process::Command::new("openssl")
            .args(["s_client", "-connect", &place, "-brief"])
            .args(protocol)
            .stdin(std::process::Stdio::null())
            .output();
        output.ok().map(|output| String::from_utf8_lossy(&output.stderr).into_owned())
    };
    match openssl(&["-alpn", "postgresql"]) {
        Some(said) => assert!(said.contains("CONNECTION ESTABLISHED"), "{said}"),
        None => super::cluster::folder::say("skipped: there is no openssl to shake hands with"),
    }
    let mut stream = std::net::TcpStream::connect(("127.0.0.1", setup.port)).unwrap();
    let mut sent = vec![0, 0, 0, 8, 4, 210, 22, 47];
    wire::encode::startup(&mut sent, &[("user", "app"), ("database", "postgres")]);
    stream.write_all(&sent).unwrap();
    let mut answer = Vec::new();
    drop(stream.read_to_end(&mut answer));
    assert_eq!(answer, b"S", "what was said in plain text was taken for encrypted");
}
