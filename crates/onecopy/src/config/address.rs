//! The URL of a server: its address, and how the connection is encrypted.

use std::ffi::OsString;
use std::fmt;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use tokio_postgres::config::Host;

use crate::backend::Address;
use crate::security::tls::{Outward, TlsFileError, Trust};

/// The URL of a server cannot be used.
#[derive(Debug)]
pub(crate) enum AddressError {
    /// The text does not begin like a URL of PostgreSQL.
    NoUrl { text: String },
    /// The URL cannot be parsed.
    Malformed(tokio_postgres::Error),
    /// The URL holds a password, which others could read.
    Password,
    /// The URL names another database or role than the configuration does for all servers.
    Contradiction { setting: &'static str, found: String, expected: String },
    /// The URL asks for TLS over a Unix socket.
    TlsOverSocket,
    /// The URL names no host.
    NoHost,
    /// The URL names several hosts.
    SeveralHosts,
    /// The URL names a mode of TLS that Onecopy does not have.
    UnknownTlsMode { text: String },
    /// The URL asks for a check of the server's certificate, but names no root certificate.
    NoRoot,
    /// The file of certificates cannot be used.
    Tls(TlsFileError),
}

impl fmt::Display for AddressError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoUrl { text } => write!(f, "\"{text}\" is not the URL of a server"),
            Self::Malformed(error) => write!(f, "not the URL of a server: {error}"),
            Self::Password => f.write_str("the URL contains a password"),
            Self::Contradiction { setting, found, expected } => {
                write!(f, "the URL says \"{found}\", but {setting} = \"{expected}\"")
            }
            Self::TlsOverSocket => f.write_str("TLS over a Unix socket"),
            Self::NoHost => f.write_str("a URL without a host"),
            Self::SeveralHosts => f.write_str("a URL with several hosts"),
            Self::UnknownTlsMode { text } => write!(f, "sslmode={text} is not supported"),
            Self::NoRoot => f.write_str(
                "sslmode asks to check the server's certificate, but the URL names no root certificate",
            ),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for AddressError {}

impl AddressError {
    /// Advice on what to write instead.
    pub(crate) fn help(&self) -> String {
        match self {
            Self::NoUrl { .. } | Self::Malformed(_) | Self::NoHost => {
                "write postgresql://host:5432, or postgresql://%2Frun%2Fpostgresql:5432 for a Unix socket"
                    .to_owned()
            }
            Self::Password => "put it into the file that superuser_password_file names".to_owned(),
            Self::Contradiction { setting, .. } => {
                format!("leave it out of the URL, and set {setting} for all replicas")
            }
            Self::TlsOverSocket => "leave sslmode out: a Unix socket needs no encryption".to_owned(),
            Self::SeveralHosts => "write one URL for each server".to_owned(),
            Self::UnknownTlsMode { .. } => {
                "use disable, require, verify-ca or verify-full; Onecopy never falls back to plain text"
                    .to_owned()
            }
            Self::NoRoot => "add &sslrootcert= and the file with the root certificate".to_owned(),
            Self::Tls(_) => "name a file with certificates as PEM".to_owned(),
        }
    }
}

/// The address in a URL.
pub(crate) fn address_of(url: &str, database: &str, superuser: &str) -> Result<Address, AddressError> {
    if !url.starts_with("postgresql://") && !url.starts_with("postgres://") {
        return Err(AddressError::NoUrl { text: url.to_owned() });
    }
    let (url, tls) = without_tls(url)?;
    let config: tokio_postgres::Config = url.parse().map_err(AddressError::Malformed)?;
    if config.get_password().is_some() {
        return Err(AddressError::Password);
    }
    for (setting, found, expected) in
        [("database", config.get_dbname(), database), ("superuser", config.get_user(), superuser)]
    {
        if let Some(found) = found.filter(|found| *found != expected) {
            let (found, expected) = (found.to_owned(), expected.to_owned());
            return Err(AddressError::Contradiction { setting, found, expected });
        }
    }
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts() {
        [Host::Tcp(host)] => Ok(Address::Tcp { host: host.clone(), port, tls }),
        [Host::Unix(_)] if tls.is_some() => Err(AddressError::TlsOverSocket),
        [Host::Unix(folder)] => Ok(Address::Unix { socket_dir: folder.clone(), port }),
        [] => Err(AddressError::NoHost),
        _ => Err(AddressError::SeveralHosts),
    }
}

/// The text with each `%2F` and its kin replaced. What is no such code stays.
fn unescaped(text: &str) -> OsString {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, others)) = rest.split_first() {
        let code = others.split_at_checked(2).filter(|_| *first == b'%');
        let code = code.and_then(|(code, after)| {
            Some((u8::from_str_radix(std::str::from_utf8(code).ok()?, 16).ok()?, after))
        });
        let (byte, after) = code.unwrap_or((*first, others));
        bytes.push(byte);
        rest = after;
    }
    OsString::from_vec(bytes)
}

/// The URL without its TLS parameters, and the TLS settings that they give.
fn without_tls(url: &str) -> Result<(String, Option<Outward>), AddressError> {
    let Some((place, parameters)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut mode, mut root, mut others) = (None, None, Vec::new());
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => root = Some(PathBuf::from(unescaped(value))),
            _ => others.push(parameter),
        }
    }
    let mut rest = place.to_owned();
    if !others.is_empty() {
        rest = format!("{place}?{}", others.join("&"));
    }
    let trust = match mode {
        None | Some("disable") => return Ok((rest, None)),
        Some("require") => Trust::Any,
        Some("verify-ca") => Trust::Signed,
        Some("verify-full") => Trust::SignedForHost,
        Some(other) => return Err(AddressError::UnknownTlsMode { text: other.to_owned() }),
    };
    if trust != Trust::Any && root.is_none() {
        return Err(AddressError::NoRoot);
    }
    let tls = Outward::load(trust, root.as_deref()).map_err(AddressError::Tls)?;
    Ok((rest, Some(tls)))
}
