//! Why files with certificates and keys cannot be used.

use std::fmt;
use std::path::PathBuf;

use rustls::client::VerifierBuilderError;
use rustls::pki_types::pem;

/// A file with a certificate or a key does not serve its purpose. The operator of the node has to correct it.
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
    /// The server's certificate is to be checked, and no file says against which one.
    NoRoot,
    /// The TLS library cannot be configured.
    Library(rustls::Error),
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Certificates { path, source } => {
                write!(f, "no certificates can be read from {}: {source}", path.display())
            }
            Self::NoCertificate { path } => write!(f, "{} has no certificate in it", path.display()),
            Self::Key { path, source } => write!(f, "no key can be read from {}: {source}", path.display()),
            Self::Pair { certificate, key, source } => {
                write!(f, "{} and {} cannot be used: {source}", certificate.display(), key.display())
            }
            Self::Root { path, source } => {
                write!(f, "a certificate of {} cannot be used: {source}", path.display())
            }
            Self::Roots { path, source } => write!(f, "{}: {source}", path.display()),
            Self::NoRoot => f.write_str("a certificate to check the server's with is missing"),
            Self::Library(source) => source.fmt(f),
        }
    }
}

impl std::error::Error for TlsFileError {}
