//! The errors of files with certificates and keys.

use std::fmt;
use std::path::PathBuf;

use rustls::client::VerifierBuilderError;
use rustls::pki_types::pem;

/// A file with a certificate or a key cannot be used. The operator has to correct it.
#[derive(Debug)]
pub(crate) enum TlsFileError {
    /// The file does not hold certificates as PEM.
    Certificates { path: PathBuf, source: pem::Error },
    /// The file holds no certificate at all.
    NoCertificate { path: PathBuf },
    /// The file does not hold a key as PEM.
    Key { path: PathBuf, source: pem::Error },
    /// The certificate and the key do not make a usable pair.
    Pair { certificate: PathBuf, key: PathBuf, source: rustls::Error },
    /// A certificate cannot serve as a root of trust.
    Root { path: PathBuf, source: rustls::Error },
    /// The roots of trust as a whole cannot be used.
    Roots { path: PathBuf, source: VerifierBuilderError },
    /// The server's certificate is to be checked, but no root certificate is named.
    NoRoot,
    /// The TLS library cannot be configured.
    Library(rustls::Error),
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates { path, source } => {
                write!(f, "cannot read certificates from {}: {source}", path.display())
            }
            Self::NoCertificate { path } => write!(f, "{} contains no certificate", path.display()),
            Self::Key { path, source } => write!(f, "cannot read a key from {}: {source}", path.display()),
            Self::Pair { certificate, key, source } => {
                write!(f, "cannot use {} with {}: {source}", certificate.display(), key.display())
            }
            Self::Root { path, source } => {
                write!(f, "cannot use a certificate of {}: {source}", path.display())
            }
            Self::Roots { path, source } => write!(f, "{}: {source}", path.display()),
            Self::NoRoot => {
                f.write_str("no root certificate is named to check the server's certificate with")
            }
            Self::Library(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for TlsFileError {}
