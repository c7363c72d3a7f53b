//! Tests of the configuration: values, ranks, and error messages.

use super::hba::{LoginAttempt, Method};
use super::*;

fn load(text: &str) -> Result<Config, Vec<ConfigError>> {
    load_with(text, &[], &Given::default())
}

fn load_with(text: &str, environment: &[(&str, &str)], flags: &Given) -> Result<Config, Vec<ConfigError>> {
    let mut mistakes = Vec::new();
    let environment = |name: &str| {
        environment.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
    };
    let sources = read::collect(Some(Path::new("o.toml")), text, environment, flags, &mut mistakes);
    let config = Config::check(&sources, &mut mistakes);
    if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
}

const RIGHT: &str = "listen = [\"127.0.0.1:6432\", \"[::1]:6432\"]\nstop_patience = \"5min\"\nsessions_max = 40\n\
    [[replica]]\nurl = \"postgresql://10.0.0.1:5433\"\n[[replica]]\nname = \"b\"\nurl = \"postgresql://%2Frun%2Fpg/\"\n";

#[test]
fn a_file_is_read() {
    let config = load(RIGHT).unwrap();
    assert_eq!(config.addresses("listen").len(), 2);
    assert_eq!(config.duration("stop_patience"), Duration::from_mins(5));
    assert_eq!(config.number("sessions_max"), 40);
    assert_eq!(config.number("transaction_size_max"), 16 << 30);
    let [first, second] = config.replicas.as_slice() else { panic!("{config:?}") };
    assert_eq!((first.name.as_str(), second.name.as_str()), ("replica-1", "b"));
    assert_eq!(first.address, Address::Tcp { host: "10.0.0.1".to_owned(), port: 5433, tls: None });
    assert_eq!(second.address, Address::Unix { socket_dir: "/run/pg".into(), port: 5432 });
}

#[test]
fn flags_overrule_variables_and_those_the_file() {
    let variables = [("ONECOPY_SESSIONS_MAX", "50"), ("ONECOPY_STOP_PATIENCE", "2s")];
    let mut flags = Given::default();
    flags.values.insert("sessions_max", "60".to_owned());
    let config = load_with(RIGHT, &variables, &flags).unwrap();
    assert_eq!(config.number("sessions_max"), 60);
    assert_eq!(config.duration("stop_patience"), Duration::from_secs(2));
    let config =
        load_with(RIGHT, &[("ONECOPY_REPLICAS", "postgresql://a, postgresql://b:1")], &Given::default());
    assert_eq!(config.unwrap().replicas.len(), 2);
    let wrong = load_with(RIGHT, &[("ONECOPY_SESSIONS_MAX", "many")], &Given::default()).unwrap_err();
    assert!(wrong[0].to_string().starts_with("ONECOPY_SESSIONS_MAX: "), "{}", wrong[0]);
}

#[test]
fn ten_mistakes_are_told_at_once_each_with_its_line_and_a_caret() {
    let text = "\
lisen = \"127.0.0.1:6432\"
http_listen = \"here\"
stop_patience = 60
start_patience = \"2 weeks\"
transaction_size_max = \"5mb\"
sessions_max = \"many\"
log_format = \"xml\"
reader_patience = \"40d\"
[[replica]]
url = \"10.0.0.1:5432\"
[[replica]]
name = \"b\"
[[replica]]
url = \"postgresql://me:secret@10.0.0.2\"
[[replica]]
uri = \"postgresql://10.0.0.3\"
";
    let mistakes = load(text).unwrap_err();
    let told: Vec<String> = mistakes.iter().map(ConfigError::to_string).collect();
    let all = told.join("\n");
    assert_eq!(mistakes.len(), 13, "{all}");
    for (place, help) in [
        ("o.toml:1:1: there is no setting \"lisen\"", "^^^^^ did you mean listen?"),
        ("o.toml:2:15: http_listen: \"here\" is no address", "^^^^^^ write an address and a port"),
        ("o.toml:3:17: stop_patience: a length of time needs a unit", "^^ write \"60s\""),
        ("o.toml:4:18: start_patience: \"weeks\" is no unit", "units are us, ms, s, min, h, d"),
        ("o.toml:5:24: transaction_size_max: \"mb\" is no unit", "write \"5MB\""),
        ("o.toml:6:16: sessions_max: \"many\" is not a number", "from 1 to 10000"),
        ("o.toml:7:14: log_format: \"xml\" is not known", "one of text, json"),
        ("o.toml:8:19: reader_patience: \"40d\" is out of range", "from 0 to 1d"),
        ("o.toml:10:7: \"10.0.0.1:5432\" is not the URL of a server", "write postgresql://"),
        ("o.toml:11:1: a replica without a url", "add url ="),
        ("o.toml:14:7: the URL contains a password", "superuser_password_file"),
        ("o.toml:16:1: there is no setting \"uri\"", "did you mean url?"),
    ] {
        let found = told.iter().find(|text| text.starts_with(place));
        let found = found.unwrap_or_else(|| panic!("no {place} in\n{all}"));
        assert!(found.contains(help), "no {help} in\n{found}");
    }
    assert!(all.contains("me:******@") && !all.contains("secret"), "{all}");
    let lines: Vec<&str> = told[0].lines().collect();
    assert_eq!(lines[1], "  1 | lisen = \"127.0.0.1:6432\"");
    assert_eq!(lines[2], "    | ^^^^^ did you mean listen?");
}

#[test]
fn what_is_no_toml_is_told_with_its_place() {
    let mistakes =
        load("listen = \nsessions_max = = 4\n[[replica]]\nurl = \"postgresql://a\"\n").unwrap_err();
    let told: Vec<String> = mistakes.iter().map(ConfigError::to_string).collect();
    assert!(told.iter().any(|text| text.starts_with("o.toml:1:")), "{told:?}");
    assert!(told.iter().any(|text| text.starts_with("o.toml:2:")), "{told:?}");
}

#[test]
fn servers_are_named_once() {
    let twice = "[[replica]]\nurl = \"postgresql://a\"\n[[replica]]\nurl = \"postgresql://a:5432\"\n";
    assert!(load(twice).unwrap_err()[0].to_string().contains("the same server as replica-1"));
    assert!(load("").unwrap_err()[0].to_string().contains("no replica is named"));
    let other = "[[replica]]\nurl = \"postgresql://a/shop\"\n";
    assert!(load(other).unwrap_err()[0].to_string().contains("the URL says \"shop\""));
}

#[test]
fn who_can_be_reached_asks_for_passwords() {
    let with = |more: &str| {
        load(&format!("{more}\n[[replica]]\nurl = \"postgresql://a\"\n")).map_err(|all| all[0].to_string())
    };
    let here = "127.0.0.1".parse().unwrap();
    let visitor = LoginAttempt { database: "any", role: "any", address: here, is_encrypted: false };
    assert_eq!(with("").unwrap().access().method(visitor), Some(Method::Scram), "trust is only what is said");
    with("listen = \"127.0.0.1:1\"\nhba = \"host all all all trust\"").unwrap();
    with("listen = \"0.0.0.0:1\"\nhba = [\"host all all 10.0.0.0/8 trust\"]").unwrap();
    let told =
        with("listen = [\"127.0.0.1:1\", \"0.0.0.0:1\"]\nhba = [\"host all all ::/0 trust\"]").unwrap_err();
    assert!(told.starts_with("o.toml:2:8: hba: a trust rule admits every client"), "{told}");
    let told = with("hba = [\"host all all all scram-sha-256\", \"host all all all md5\"]").unwrap_err();
    assert!(told.contains("hba: the method \"md5\" is not offered"), "{told}");
    let several =
        with("hba = \"host a b all reject; host all all all trust\"\nadmin_users = \"a, b\"").unwrap();
    assert_eq!(several.access().method(visitor), Some(Method::Trust));
    assert_eq!(several.access().admins, ["a", "b"]);
}

#[test]
fn encryption_toward_a_server_is_what_its_url_says() {
    let url = |more: &str| load(&format!("[[replica]]\nurl = \"postgresql://a{more}\"\n"));
    let tls = |config: Config| match &config.replicas[0].address {
        Address::Tcp { tls, .. } => tls.is_some(),
        Address::Unix { .. } => panic!("it is a name"),
    };
    assert!(!tls(url("").unwrap()) && !tls(url("?sslmode=disable").unwrap()));
    assert!(tls(url("?sslmode=require").unwrap()));
    for (more, told) in [
        ("?sslmode=prefer", "sslmode=prefer is not supported"),
        ("?sslmode=verify-full", "names no root certificate"),
        ("?sslmode=verify-ca&sslrootcert=%2Fnowhere.pem", "cannot read certificates from /nowhere.pem"),
    ] {
        let found = url(more).unwrap_err()[0].to_string();
        assert!(found.contains(told), "{more}: {found}");
    }
}

#[test]
fn a_table_has_settings_of_its_own() {
    let text = |table: &str| format!("{RIGHT}[elastic]\n{table}");
    let config =
        load(&text("replicas = \"2..6\"\nbusy = 0.5\ngrow_after = \"2s\"\nprice_per_hour = 1")).unwrap();
    let elastic = config.elastic();
    assert_eq!((elastic.replicas, elastic.busy_permille), (Some((2, 6)), 500));
    assert_eq!((elastic.grow_after, elastic.shrink_after), (Duration::from_secs(2), Duration::from_mins(5)));
    assert!((elastic.price_per_hour - 1.0).abs() < 1e-9);
    assert_eq!((elastic.spares, elastic.provision), (1, None));
    assert_eq!(load(RIGHT).unwrap().elastic().replicas, None);
    let flags = Given::default();
    let variable = load_with(RIGHT, &[("ONECOPY_ELASTIC_REPLICAS", "3..4")], &flags).unwrap();
    assert_eq!(variable.elastic().replicas, Some((3, 4)));
    for (table, told, help) in [
        ("bsy = 0.5", "there is no setting \"elastic.bsy\"", "did you mean elastic.busy?"),
        ("busy = 1.5", "elastic.busy: \"1.5\" is out of range", "from 0.05 to 1"),
        ("replicas = \"6..2\"", "elastic.replicas: \"6..2\" is not two numbers", "\"2..6\""),
    ] {
        let found = load(&text(table)).unwrap_err()[0].to_string();
        assert!(found.contains(told) && found.contains(help), "{table}: {found}");
    }
}

#[test]
fn rules_for_new_tables_keep_the_order_of_the_file() {
    let text = |rules: &str| format!("{RIGHT}[placement]\n{rules}");
    let rules = "log_2 = [\"b\"]\n\"log_*\" = [\"b\", \"replica-1\"]\npublic.audit = \"b\"";
    let config = load(&text(rules)).unwrap();
    let told: Vec<String> = config.placement.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "placement \"log_2\" on b",
            "placement \"log_*\" on b, replica-1",
            "placement \"public.audit\" on b"
        ]
    );
    let name = |name: &str| [placement::TableName { schema: "public".to_owned(), name: name.to_owned() }];
    let found = |table: &str| config.placement.of(&name(table)).map(|rule| rule.line.clone());
    let lines = ["log_2", "log_3", "audit", "other"].map(found);
    assert_eq!(
        lines,
        [Some("o.toml:10"), Some("o.toml:11"), Some("o.toml:12"), None].map(|l| l.map(str::to_owned))
    );
    assert!(config.fixed_that_differ(&load(&text(&format!("\n{rules}"))).unwrap()).is_empty());
    assert_eq!(config.fixed_that_differ(&load(RIGHT).unwrap()), ["placement"]);
    let wrong = load(&format!("placement = 1\n{RIGHT}")).unwrap_err();
    assert!(wrong[0].to_string().starts_with("o.toml:1:13: placement is a table"), "{}", wrong[0]);
}

#[test]
fn the_table_is_sound() {
    for setting in SETTINGS {
        assert!(setting.kind.parse(setting.default).is_ok(), "{}", setting.name);
        assert!(setting.about.ends_with('.'), "{}", setting.name);
        assert_eq!(setting.flag, setting.name.replace(['_', '.'], "-"));
    }
    let (old, new) =
        (load(RIGHT).unwrap(), load(&RIGHT.replace("40", "41").replace(":5433", ":5434")).unwrap());
    assert_eq!(old.fixed_that_differ(&new), ["replica"]);
}

#[test]
fn the_configuration_reference_is_that_of_the_code() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/configuration.md");
    let wanted = reference::reference();
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/reference/configuration.md is out of date: UPDATE_GOLDEN=1 cargo test -p onecopy configuration"
    );
}
