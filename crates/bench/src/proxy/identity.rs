//! The certificate that servers show over TLS, and the roles of which they ask a password.
//!
//! All contenders share one self-signed certificate and one list of rules: one role proves its password by SCRAM, all others
//! log in without one. So the same servers are measured with and without either.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};
use testbed::account::Account;
use testbed::fault::Fault;
use testbed::postgres::Likeness;
use testbed::scratch::Scratch;

use crate::pgbench::PROVEN;

/// A certificate and its key, as files.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(super) certificate: PathBuf,
    pub(super) key: PathBuf,
    /// The rules of `pg_hba.conf` for a PostgreSQL server.
    rules: PathBuf,
}

impl Identity {
    /// Makes one that the account can use.
    pub(super) fn make(account: Account, scratch: &Scratch) -> Result<Self, Fault> {
        let made = || {
            let key = KeyPair::generate()?;
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let certificate = CertificateParams::new(names)?.self_signed(&key)?;
            Ok((certificate.pem(), key.serialize_pem()))
        };
        let (certificate, secret) = made()
            .map_err(|why: rcgen::Error| Fault::Missing(format!("no certificate can be made: {why}")))?;
        let key = scratch.path("identity.key");
        let write = || {
            fs::write(&key, "")?;
            fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
            fs::write(&key, secret)
        };
        write().map_err(Fault::system(format!("write {}", key.display())))?;
        account.give(&key)?;
        let local = format!("local all {} scram-sha-256\nlocal all all trust\n", PROVEN.0);
        Ok(Self {
            certificate: scratch.file("identity.crt", &certificate)?,
            key,
            rules: scratch.file("servers_hba.conf", &format!("{}{local}", rules()))?,
        })
    }

    /// A server that shows it, and keeps the rules.
    pub(super) fn worn_by(&self, likeness: &Likeness) -> Likeness {
        let path = |path: &PathBuf| path.display().to_string();
        let likeness = likeness.clone().with("ssl", "on").with("hba_file", &path(&self.rules));
        likeness.with("ssl_cert_file", &path(&self.certificate)).with("ssl_key_file", &path(&self.key))
    }

    /// The same as configuration of `onecopy serve`.
    pub(super) fn settings(&self) -> String {
        let rules: Vec<String> = rules().lines().map(|rule| format!("{rule:?}")).collect();
        format!(
            "hba = [{}]\ntls_certificate_file = \"{}\"\ntls_key_file = \"{}\"\n",
            rules.join(", "),
            self.certificate.display(),
            self.key.display()
        )
    }
}

/// The rules for connections over TCP, in the words of PostgreSQL, which PgBouncer and onecopy share.
pub(super) fn rules() -> String {
    format!("host all {} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n", PROVEN.0)
}
