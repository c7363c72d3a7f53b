//! docs/reference/configuration.md, made from the table of settings; a test holds the file to it.
//!
//! `UPDATE_GOLDEN=1 cargo test -p onecopy configuration` writes it anew.

pub(super) fn reference() -> String {
    use std::fmt::Write;

    use super::settings::SETTINGS;

    let mut text = String::from(HEAD);
    for setting in SETTINGS {
        let reload = if setting.can_reload { "at RELOAD" } else { "at the start" };
        let default =
            if setting.default.is_empty() { "empty".to_owned() } else { format!("`{}`", setting.default) };
        let about = setting.about;
        let (name, kind, variable, flag) =
            (setting.name, setting.kind.describe(), setting.variable(), setting.flag);
        writeln!(
            text,
            "### {name}\n\n{kind}; default {default}; read {reload}; `{variable}`, `--{flag}`\n\n{about}\n"
        )
        .expect("a String takes everything");
    }
    text.push_str(REPLICAS);
    text
}

const HEAD: &str = r#"# Configuration

<!-- Made from crates/onecopy/src/config: UPDATE_GOLDEN=1 cargo test -p onecopy configuration -->

This page lists every setting of `onecopy serve`, for operators. [Serve your own servers](../how-to/serve.md) has the steps.

`onecopy serve --config onecopy.toml` reads a file like this one:

```toml
listen = "127.0.0.1:6432"
http_listen = "127.0.0.1:9187"
data = "/var/lib/onecopy"
database = "shop"
stop_patience = "30s"

[[replica]]                       # the first one becomes the anchor
name = "a"
url = "postgresql://10.0.0.1:5432"

[[replica]]
name = "b"
url = "postgresql://%2Frun%2Fpostgresql:5433"     # a Unix socket

[elastic]                         # all settings `elastic.*`
replicas = "2..6"
```

`onecopy check --config onecopy.toml` names every mistake with its line. An environment variable overrides the file, and a
flag overrides both. Times are written `"5s"` (us, ms, s, min, h, d), sizes `"64MB"` (B, kB, MB, GB, TB), as in
postgresql.conf.

SIGHUP, or RELOAD in the admin database, reads the file again without dropping a client. A file with a mistake is
rejected, and the old configuration stays in force. Settings that are read at the start keep their value until then;
RELOAD names those that differ.

## Settings

"#;

const REPLICAS: &str = r"### replica

One `[[replica]]` for each server, with a `url` and an optional `name`. As a list of URLs: `ONECOPY_REPLICAS` (with commas), or
`--replica` once for each. A URL may have `sslmode` (`disable`, `require`, `verify-ca`, `verify-full`) and `sslrootcert`.

The servers are adopted at the first start, and must then be identical, or all empty. After that, ADD REPLICA and DROP REPLICA
change the members, not this list.
";
