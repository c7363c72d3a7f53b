//! Roles, which all databases of a server share, and the properties of the database itself.
//!
//! `pg_dumpall` would write down the roles of some moment. Here they have to be those of the snapshot, since later
//! changes come from the log. So they are read in the snapshot, password verifiers included: a password set anew would
//! get another salt.

use std::collections::BTreeSet;

use crate::backend::{BackendError, OwnConnection};
use crate::capture::quoting::quoted;

/// A role: its name, its attributes and its comment.
const ROLES: &str = "SELECT rolname, format('ALTER ROLE %I WITH %s %s %s %s %s %s %s CONNECTION LIMIT %s VALID UNTIL %L PASSWORD %L', \
    rolname, CASE WHEN rolsuper THEN 'SUPERUSER' ELSE 'NOSUPERUSER' END, CASE WHEN rolinherit THEN 'INHERIT' ELSE 'NOINHERIT' END, \
    CASE WHEN rolcreaterole THEN 'CREATEROLE' ELSE 'NOCREATEROLE' END, CASE WHEN rolcreatedb THEN 'CREATEDB' ELSE 'NOCREATEDB' END, \
    CASE WHEN rolcanlogin THEN 'LOGIN' ELSE 'NOLOGIN' END, CASE WHEN rolreplication THEN 'REPLICATION' ELSE 'NOREPLICATION' END, \
    CASE WHEN rolbypassrls THEN 'BYPASSRLS' ELSE 'NOBYPASSRLS' END, rolconnlimit, COALESCE(rolvaliduntil, 'infinity'), rolpassword), \
    format('COMMENT ON ROLE %I IS %L', rolname, shobj_description(oid, 'pg_authid')) \
    FROM pg_authid WHERE rolname !~ '^pg_' ORDER BY 1";

/// Memberships of roles, as the statements that grant them. Their syntax differs between releases.
fn memberships(has_options: bool) -> String {
    let options = if has_options {
        "format('ADMIN %s, INHERIT %s, SET %s', m.admin_option::text, m.inherit_option::text, m.set_option::text)"
    } else {
        "CASE WHEN m.admin_option THEN 'ADMIN OPTION' END"
    };
    format!(
        "SELECT format('GRANT %I TO %I%s GRANTED BY %I', g.rolname, r.rolname, ' WITH ' || {options}, \
         COALESCE(b.rolname, CURRENT_USER)) \
         FROM pg_auth_members m JOIN pg_authid g ON g.oid = m.roleid JOIN pg_authid r ON r.oid = m.member \
         LEFT JOIN pg_authid b ON b.oid = m.grantor ORDER BY m.roleid, m.member"
    )
}

/// Revokes every membership. Revoking the first also revokes those that depend on it.
const NO_MEMBERSHIPS: &str = "SELECT format('REVOKE %I FROM %I GRANTED BY %I CASCADE', g.rolname, r.rolname, \
    COALESCE(b.rolname, CURRENT_USER)) FROM pg_auth_members m JOIN pg_authid g ON g.oid = m.roleid \
    JOIN pg_authid r ON r.oid = m.member LEFT JOIN pg_authid b ON b.oid = m.grantor WHERE g.rolname !~ '^pg_' OR r.rolname !~ '^pg_'";

/// Settings of roles (in all databases and in this one) and of this database.
const SETTINGS: &str = "SELECT format('INSERT INTO pg_db_role_setting SELECT %s, %s, %L', \
    CASE WHEN s.setdatabase = 0 THEN '0' ELSE format('(SELECT oid FROM pg_database WHERE datname = %L)', current_database()) END, \
    CASE WHEN r.oid IS NULL THEN '0' ELSE format('(SELECT oid FROM pg_roles WHERE rolname = %L)', r.rolname) END, s.setconfig), \
    s.setdatabase = 0 \
    FROM pg_db_role_setting s LEFT JOIN pg_roles r ON r.oid = s.setrole \
    WHERE s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))";

/// The options of the database that CREATE DATABASE knows in all releases.
const DATABASE: &str = "SELECT format('OWNER %I ENCODING %L LC_COLLATE %L LC_CTYPE %L CONNECTION LIMIT %s', r.rolname, \
    pg_encoding_to_char(encoding), datcollate, datctype, datconnlimit) FROM pg_database d JOIN pg_roles r ON r.oid = d.datdba \
    WHERE datname = current_database()";

/// The options since release 15, where another library may provide the locale.
const PROVIDER: &str = "SELECT format(' LOCALE_PROVIDER %s', CASE datlocprovider WHEN 'i' THEN 'icu' WHEN 'b' THEN 'builtin' ELSE 'libc' END), \
    datlocprovider, COALESCE(to_jsonb(d) ->> 'datlocale', to_jsonb(d) ->> 'daticulocale'), to_jsonb(d) ->> 'daticurules' \
    FROM pg_database d WHERE datname = current_database()";

/// Rights to the database and its comment.
const RIGHTS: &str = "SELECT format('REVOKE ALL ON DATABASE %I FROM PUBLIC, %I', d.datname, r.rolname) FROM pg_database d \
    JOIN pg_roles r ON r.oid = d.datdba WHERE datname = current_database() AND datacl IS NOT NULL \
    UNION ALL SELECT format('GRANT %s ON DATABASE %I TO %s%s', a.privilege_type, d.datname, \
    CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(g.rolname) END, \
    CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' END) \
    FROM pg_database d CROSS JOIN LATERAL aclexplode(d.datacl) a LEFT JOIN pg_roles g ON g.oid = a.grantee \
    WHERE d.datname = current_database() \
    UNION ALL SELECT format('COMMENT ON DATABASE %I IS %L', datname, shobj_description(oid, 'pg_database')) FROM pg_database \
    WHERE datname = current_database()";

/// The release since which a membership has options.
const OPTIONS_SINCE: u32 = 160_000;
/// The release since which a database names the provider of its locale.
const PROVIDER_SINCE: u32 = 150_000;

/// The roles of the donor.
pub(super) struct Roles {
    names: BTreeSet<String>,
    /// Statements that set their attributes and comments, one after the other.
    attributes: Vec<String>,
    memberships: Vec<String>,
    memberships_in_short: Vec<String>,
    settings: Vec<String>,
}

/// The database of the donor.
pub(super) struct Database {
    /// The options of CREATE DATABASE.
    pub(super) options: String,
    /// Statements that run after that.
    pub(super) properties: Vec<String>,
}

/// Why a server did not get the roles.
pub(super) enum WriteError {
    /// The server refused, or was lost.
    Server(BackendError),
    /// The server has other roles of its own.
    Strangers(Vec<String>),
}

impl From<BackendError> for WriteError {
    fn from(error: BackendError) -> Self {
        Self::Server(error)
    }
}

/// Reads the roles, in the snapshot of the connection.
pub(super) async fn read(donor: &mut OwnConnection) -> Result<Roles, BackendError> {
    let has_options = release(donor).await? >= OPTIONS_SINCE;
    let (mut names, mut attributes) = (BTreeSet::new(), Vec::new());
    for row in donor.query(ROLES).await? {
        let [Some(name), Some(attribute), Some(comment)] = row.as_slice() else { continue };
        names.insert(name.clone());
        attributes.extend([attribute.clone(), comment.clone()]);
    }
    let memberships_in_short = donor.query_column(&memberships(false)).await?;
    let memberships = if has_options {
        donor.query_column(&memberships(true)).await?
    } else {
        memberships_in_short.clone()
    };
    let settings = donor.query(SETTINGS).await?;
    let of_roles =
        settings.into_iter().filter(|row| row.get(1).and_then(|cell| cell.as_deref()) == Some("t"));
    let settings = of_roles.filter_map(|row| row.into_iter().next().flatten()).collect();
    Ok(Roles { names, attributes, memberships, memberships_in_short, settings })
}

/// Gives a server these roles and no others. If the server `is_former`, its other roles are dropped.
pub(super) async fn write(
    target: &mut OwnConnection,
    roles: &Roles,
    is_former: bool,
) -> Result<(), WriteError> {
    let there = target.query_column("SELECT rolname FROM pg_authid WHERE rolname !~ '^pg_'").await?;
    let strangers: Vec<&String> = there.iter().filter(|name| !roles.names.contains(*name)).collect();
    if !strangers.is_empty() && !is_former {
        return Err(WriteError::Strangers(strangers.into_iter().cloned().collect()));
    }
    for name in strangers {
        target.query(&format!("DROP ROLE {}", quoted(name))).await?;
    }
    for name in roles.names.iter().filter(|name| !there.contains(name)) {
        target.query(&format!("CREATE ROLE {}", quoted(name))).await?;
    }
    for revoke in target.query_column(NO_MEMBERSHIPS).await? {
        target.query(&revoke).await?;
    }
    for sql in &roles.attributes {
        target.query(sql).await?;
    }
    let has_options = release(target).await? >= OPTIONS_SINCE;
    let mut left: Vec<&String> =
        (if has_options { &roles.memberships } else { &roles.memberships_in_short }).iter().collect();
    // A role can grant a membership only after it was granted that role itself. So refused grants are tried again.
    while !left.is_empty() {
        let (mut refused, mut why) = (Vec::new(), None);
        for sql in &left {
            match target.query(sql).await {
                Ok(_) => {}
                Err(error @ BackendError::Server(_)) => {
                    refused.push(*sql);
                    why = Some(error);
                }
                Err(lost) => return Err(lost.into()),
            }
        }
        if let Some(error) = why.filter(|_| refused.len() == left.len()) {
            return Err(error.into());
        }
        left = refused;
    }
    target.query("DELETE FROM pg_db_role_setting WHERE setdatabase = 0").await?;
    for sql in &roles.settings {
        target.query(sql).await?;
    }
    Ok(())
}

/// Reads the options and properties of the database.
pub(super) async fn database(donor: &mut OwnConnection) -> Result<Database, BackendError> {
    let mut options = donor.query_column(DATABASE).await?.concat();
    if release(donor).await? >= PROVIDER_SINCE {
        let rows = donor.query(PROVIDER).await?;
        if let Some([Some(words), Some(provider), locale, rules]) = rows.first().map(Vec::as_slice) {
            options.push_str(words);
            let literal = |text: &String| format!("'{}'", text.replace('\'', "''"));
            if let Some(locale) = locale {
                let name = if provider == "i" { "ICU_LOCALE" } else { "BUILTIN_LOCALE" };
                options.push_str(&format!(" {name} {}", literal(locale)));
            }
            if let Some(rules) = rules {
                options.push_str(&format!(" ICU_RULES {}", literal(rules)));
            }
        }
    }
    let mut properties = donor.query_column(RIGHTS).await?;
    for row in donor.query(SETTINGS).await? {
        if let [Some(sql), Some(is_of_roles)] = row.as_slice()
            && is_of_roles != "t"
        {
            properties.push(sql.clone());
        }
    }
    Ok(Database { options, properties })
}

async fn release(connection: &mut OwnConnection) -> Result<u32, BackendError> {
    let told = connection.query_column("SHOW server_version_num").await?.concat();
    told.parse().map_err(|_| BackendError::Protocol("a server does not tell its release"))
}
