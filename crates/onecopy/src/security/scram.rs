//! SCRAM-SHA-256: clients prove that they know a password without sending it, and their proof opens the servers, too.
//!
//! RFC 5802 and 7677, in PostgreSQL's form (the start-up packet holds the name, the messages do not). A server stores
//! a *verifier* of each role, which suffices to check a proof but not to make one. A checked proof, however, reveals
//! the client's key. With that key, and the same verifier at every server, Onecopy logs in there as the client
//! ([`Keys`]). So there is no second list of users, and Onecopy neither learns nor stores a password.
//!
//! Invariant: [`Keys`] and [`Secret`] are never printed, and comparisons with a secret take constant time.
//!
//! Not here: the messages around the exchange, and where verifiers come from ([`crate::frontend`]).

mod client;
mod server;

#[cfg(test)]
mod tests;

use std::fmt;
use std::num::NonZeroU32;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ring::{digest, hmac, pbkdf2};
use serde::{Deserialize, Serialize};

pub(crate) use client::Client;
pub(crate) use server::{Checked, Offer, Server};

pub(crate) const MECHANISM: &str = "SCRAM-SHA-256";
/// The mechanism that binds the proof to the certificate of the connection.
pub(crate) const MECHANISM_PLUS: &str = "SCRAM-SHA-256-PLUS";
/// The one channel binding that PostgreSQL knows: to the server's certificate.
const BINDING: &str = "tls-server-end-point";
/// Iterations of a verifier that Onecopy makes, as in PostgreSQL.
const ITERATIONS: u32 = 4096;
/// Most iterations that a server can ask of us: about a second of work.
const ITERATIONS_MAX: u32 = 1_000_000;
/// Length of a new salt in bytes, as in PostgreSQL.
const SALT_BYTES: usize = 16;
/// Random bytes of a nonce.
const NONCE_BYTES: usize = 18;

type Hash = [u8; 32];

/// A server's stored form of a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Verifier {
    iterations: NonZeroU32,
    salt: Vec<u8>,
    stored_key: Hash,
    server_key: Hash,
}

impl Verifier {
    /// Parses `pg_authid.rolpassword`; `None` if it has another form, such as md5.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let rest = text.strip_prefix("SCRAM-SHA-256$")?;
        let (parameters, keys) = rest.split_once('$')?;
        let (iterations, salt) = parameters.split_once(':')?;
        let (stored_key, server_key) = keys.split_once(':')?;
        let hash = |text: &str| BASE64.decode(text).ok()?.try_into().ok();
        Some(Self {
            iterations: iterations.parse().ok()?,
            salt: BASE64.decode(salt).ok()?,
            stored_key: hash(stored_key)?,
            server_key: hash(server_key)?,
        })
    }

    /// Makes a verifier of a password, with a new salt.
    pub(crate) fn of_password(password: &str) -> Result<Self, getrandom::Error> {
        let mut salt = vec![0; SALT_BYTES];
        getrandom::fill(&mut salt)?;
        let iterations = NonZeroU32::new(ITERATIONS).expect("it is not zero");
        let keys = Keys::of_password(password, &salt, iterations);
        Ok(Self { iterations, salt, stored_key: hash(&keys.client_key), server_key: keys.server_key })
    }

    /// A verifier for a role that does not exist. It is the same at each attempt, and no password fits it.
    pub(crate) fn of_nobody(name: &str, secret: &[u8]) -> Self {
        let derived = |what: &str| hmac_sha256(secret, format!("{what} {name}").as_bytes());
        Self {
            iterations: NonZeroU32::new(ITERATIONS).expect("it is not zero"),
            salt: derived("salt")[..SALT_BYTES].to_vec(),
            stored_key: derived("stored key"),
            server_key: derived("server key"),
        }
    }
}

impl fmt::Display for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { iterations, salt, stored_key, server_key } = self;
        let [salt, stored_key, server_key] =
            [&salt[..], stored_key, server_key].map(|bytes| BASE64.encode(bytes));
        write!(f, "SCRAM-SHA-256${iterations}:{salt}${stored_key}:{server_key}")
    }
}

/// Proves a password to any holder of its verifier.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Keys {
    client_key: Hash,
    server_key: Hash,
}

impl Keys {
    fn of_password(password: &str, salt: &[u8], iterations: NonZeroU32) -> Self {
        let prepared = stringprep::saslprep(password);
        // PostgreSQL takes a password that SASLprep prohibits without change.
        let password = prepared.as_deref().unwrap_or(password);
        let mut salted = [0; 32];
        pbkdf2::derive(pbkdf2::PBKDF2_HMAC_SHA256, iterations, salt, password.as_bytes(), &mut salted);
        Self {
            client_key: hmac_sha256(&salted, b"Client Key"),
            server_key: hmac_sha256(&salted, b"Server Key"),
        }
    }
}

/// Opens a connection to a server that asks for authentication.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Secret {
    #[default]
    None,
    Password(String),
    /// The keys from a client's proof.
    Keys(Keys),
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "no secret",
            Self::Password(_) => "a password",
            Self::Keys(_) => "keys",
        })
    }
}

/// A random text for one use.
pub(crate) fn nonce() -> Result<String, getrandom::Error> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(BASE64.encode(bytes))
}

fn hmac_sha256(key: &[u8], bytes: &[u8]) -> Hash {
    let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), bytes);
    tag.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn hash(bytes: &[u8]) -> Hash {
    digest::digest(&digest::SHA256, bytes).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

fn xor(a: &Hash, b: &Hash) -> Hash {
    std::array::from_fn(|at| a[at] ^ b[at])
}

/// Compares in constant time.
fn is_same(a: &Hash, b: &Hash) -> bool {
    a.iter().zip(b).fold(0, |differ, (a, b)| differ | (a ^ b)) == 0
}

/// The value of an attribute, if the part of the message is that attribute.
fn attribute(part: Option<&str>, name: char) -> Option<&str> {
    part?.strip_prefix(name)?.strip_prefix('=')
}
