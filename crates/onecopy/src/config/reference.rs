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

[placement]                       # which replicas hold new tables
"public.audit" = ["a"]
```

`onecopy check --config onecopy.toml` names every mistake with its line. An environment variable overrides the file, and a
flag overrides both. Times are written `"5s"` (us, ms, s, min, h, d), sizes `"64MB"` (B, kB, MB, GB, TB), as in
postgresql.conf.

SIGHUP, or RELOAD in the admin database, reads the file again without dropping a client. A file with a mistake is
rejected, and the old configuration stays in force. Settings that are read at the start keep their value until then;
RELOAD names those that differ.

## Settings

"#;

const REPLICAS: &str = r#"### replica

One `[[replica]]` for each server, with a `url` and an optional `name`. As a list of URLs: `ONECOPY_REPLICAS` (with commas), or
`--replica` once for each. A URL may have `sslmode` (`disable`, `require`, `verify-ca`, `verify-full`) and `sslrootcert`.

The servers are adopted at the first start, and must then be identical, or all empty. After that, ADD REPLICA and DROP REPLICA
change the members, not this list.

### placement

Which replicas hold a new table: in `[placement]`, a table on the left, a list of replicas on the right; read at the start. There is no
variable and no flag.

```toml
[placement]
"public.audit" = ["a", "c"]       # a table, with its schema
audit = ["a", "c"]                # or without: in any schema
"log_*" = ["a", "b"]              # every table whose name begins so
"archive.*" = ["a", "b"]          # every table of a schema
```

The first line that matches decides; a table that none matches is held by every replica. A name is written as the catalogue has it, so
`Audit` is another table than `audit`. A partition goes by its own name or by that of a table that it is part of. A new table that refers
to another one by a foreign key is held only where that one is, whatever its line says.

A line is about tables that clients create through Onecopy from then on. A table that exists stays where it is: PLACE TABLE moves it, and
the log of the start has that command for every table that is held otherwise (WARN). See
[Hold a table at some replicas only](../how-to/replicas.md#hold-a-table-at-some-replicas-only).

Mistakes are a replica without a `[[replica]]` of its name, an empty list, and lists that have no replica in common: some replica must be
able to hold everything. Protocols that ship statements have no `[placement]`. `onecopy placement check --schema shop.sql --config onecopy.toml` says what the rules make of a schema.
"#;
