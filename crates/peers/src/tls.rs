//! Mutual TLS: each node proves its name by a certificate of the cluster's authority.
//!
//! The certificate of node `b` has the DNS name `b` among its alternative names, and may be used for both sides of a
//! connection. Both nodes check the chain, the validity and the name of the other one. So a certificate of another
//! authority proves nothing, and that of `b` does not prove `a`.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::{WebPkiServerVerifier, verify_server_name};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{ParsedCertificate, WebPkiClientVerifier};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// The files that prove who a node is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TlsFiles {
    /// The certificate of the authority that has signed those of all nodes.
    pub authority: PathBuf,
    /// The certificate of this node, with its chain.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// A file of [`TlsFiles`] cannot be used. The operator has to correct it.
#[derive(Debug)]
pub enum TlsFileError {
    /// A file cannot be read, or holds nothing of the kind in PEM form.
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What was found.
        source: pem::Error,
    },
    /// A file holds no certificate.
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The files do not fit together.
    Unusable {
        /// The file.
        path: PathBuf,
        /// What the library says.
        reason: String,
    },
    /// The certificate is another node's.
    OtherName {
        /// The file.
        path: PathBuf,
        /// The name of this node.
        name: String,
    },
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Content { path, expected, source } => {
                write!(f, "cannot read a {expected} from {}: {source}", path.display())
            }
            Self::Empty { path } => write!(f, "{} contains no certificate", path.display()),
            Self::Unusable { path, reason } => write!(f, "cannot use {}: {reason}", path.display()),
            Self::OtherName { path, name } => write!(
                f,
                "{} is no certificate of node \"{name}\": issue one with the DNS name \"{name}\" as an alternative name",
                path.display()
            ),
        }
    }
}

impl std::error::Error for TlsFileError {}

/// Both sides of TLS.
pub(crate) struct Security {
    pub(crate) connector: TlsConnector,
    pub(crate) acceptor: TlsAcceptor,
}

impl Security {
    /// Reads the files of this node.
    pub(crate) fn load(files: &TlsFiles, name: &str) -> Result<Self, TlsFileError> {
        let unusable = |path: &Path, reason: String| TlsFileError::Unusable { path: path.to_owned(), reason };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut roots = RootCertStore::empty();
        for certificate in certificates(&files.authority)? {
            roots.add(certificate).map_err(|error| unusable(&files.authority, error.to_string()))?;
        }
        let chain = certificates(&files.certificate)?;
        if !names(&chain[0], name) {
            return Err(TlsFileError::OtherName { path: files.certificate.clone(), name: name.to_owned() });
        }
        let key = || {
            PrivateKeyDer::from_pem_file(&files.key).map_err(|source| TlsFileError::Content {
                path: files.key.clone(),
                expected: "private key",
                source,
            })
        };
        let (client, server) = configurations(Arc::new(roots), &chain, key()?, key()?, provider)
            .map_err(|reason| unusable(&files.certificate, reason))?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(client)),
            acceptor: TlsAcceptor::from(Arc::new(server)),
        })
    }
}

fn configurations(
    roots: Arc<RootCertStore>,
    chain: &[CertificateDer<'static>],
    client_key: PrivateKeyDer<'static>,
    server_key: PrivateKeyDer<'static>,
    provider: Arc<CryptoProvider>,
) -> Result<(ClientConfig, ServerConfig), String> {
    let text = |error: rustls::Error| error.to_string();
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
    let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(text)?
        .with_webpki_verifier(verifier.build().map_err(|error| error.to_string())?)
        .with_client_auth_cert(chain.to_vec(), client_key)
        .map_err(text)?;
    let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider));
    let server = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(text)?
        .with_client_cert_verifier(verifier.build().map_err(|error| error.to_string())?)
        .with_single_cert(chain.to_vec(), server_key)
        .map_err(text)?;
    Ok((client, server))
}

/// Whether a certificate has this DNS name.
pub(crate) fn names(certificate: &CertificateDer<'_>, name: &str) -> bool {
    let (Ok(parsed), Ok(name)) = (ParsedCertificate::try_from(certificate), ServerName::try_from(name))
    else {
        return false;
    };
    verify_server_name(&parsed, &name).is_ok()
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|source| TlsFileError::Content {
        path: path.to_owned(),
        expected: "certificate",
        source,
    })?;
    if found.is_empty() {
        return Err(TlsFileError::Empty { path: path.to_owned() });
    }
    Ok(found)
}
