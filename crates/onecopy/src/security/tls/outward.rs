//! TLS toward servers: the checks of a server's certificate.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio_rustls::TlsConnector;

use super::file_error::TlsFileError;
use super::{Stream, certificates, provider};

/// The checks of a server's certificate, in the words of libpq's `sslmode`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trust {
    /// None (`require`).
    Any,
    /// A trusted root has signed it (`verify-ca`).
    Signed,
    /// And it names this host (`verify-full`).
    SignedForHost,
}

/// TLS settings for a server.
#[derive(Clone, Debug)]
pub(crate) struct Outward {
    trust: Trust,
    root: Option<PathBuf>,
    config: Arc<ClientConfig>,
}

impl PartialEq for Outward {
    fn eq(&self, other: &Self) -> bool {
        (self.trust, &self.root) == (other.trust, &other.root)
    }
}

impl Eq for Outward {}

impl Outward {
    /// Reads the trusted root certificates. They may be missing only if nothing is checked.
    pub(crate) fn load(trust: Trust, root: Option<&Path>) -> Result<Self, TlsFileError> {
        let provider = provider();
        let wanted = match (trust, root) {
            (Trust::Any, _) => None,
            (_, None) => return Err(TlsFileError::NoRoot),
            (_, Some(path)) => Some(Wanted::load(trust, path, &provider)?),
        };
        let verifier = Arc::new(Verifier { provider: Arc::clone(&provider), wanted });
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsFileError::Library)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        Ok(Self { trust, root: root.map(Path::to_owned), config: Arc::new(config) })
    }

    /// The same as libpq's `sslmode`.
    pub(crate) fn mode(&self) -> &'static str {
        match self.trust {
            Trust::Any => "require",
            Trust::Signed => "verify-ca",
            Trust::SignedForHost => "verify-full",
        }
    }

    /// The file with the trusted root certificates.
    pub(crate) fn root(&self) -> Option<&Path> {
        self.root.as_deref()
    }

    /// Asks the server for encryption, and fails if the server declines.
    pub(crate) async fn connect<S>(&self, mut stream: S, host: &str) -> io::Result<Stream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let mut request = 8i32.to_be_bytes().to_vec();
        request.extend_from_slice(&wire::startup::SSL_REQUEST.to_be_bytes());
        stream.write_all(&request).await?;
        if stream.read_u8().await? != b'S' {
            return Err(io::Error::other("the server does not offer TLS, which its URL asks for"));
        }
        let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
        let stream = TlsConnector::from(Arc::clone(&self.config)).connect(name, stream).await?;
        Ok(Stream::ToServer(Box::new(stream)))
    }
}

/// Checks a server's certificate.
#[derive(Debug)]
struct Verifier {
    provider: Arc<CryptoProvider>,
    /// `None` accepts any server.
    wanted: Option<Wanted>,
}

/// Accepts what a trusted root has signed.
#[derive(Debug)]
struct Wanted {
    inner: Arc<WebPkiServerVerifier>,
    ours: Vec<CertificateDer<'static>>,
    checks_host: bool,
}

impl Wanted {
    fn load(trust: Trust, path: &Path, provider: &Arc<CryptoProvider>) -> Result<Self, TlsFileError> {
        let ours = certificates(path)?;
        let mut roots = RootCertStore::empty();
        for certificate in &ours {
            let added = roots.add(certificate.clone());
            added.map_err(|source| TlsFileError::Root { path: path.to_owned(), source })?;
        }
        let inner = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
            .build()
            .map_err(|source| TlsFileError::Roots { path: path.to_owned(), source })?;
        let checks_host = trust == Trust::SignedForHost;
        Ok(Self { inner, ours, checks_host })
    }

    fn verify(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        use CertificateError::{
            Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet, NotValidYetContext,
        };
        match self.inner.verify_server_cert(certificate, chain, host, stapled, now) {
            // The library checks the name last, so everything else was right.
            Err(Error::InvalidCertificate(NotValidForName | NotValidForNameContext { .. }))
                if !self.checks_host =>
            {
                Ok(ServerCertVerified::assertion())
            }
            Err(Error::InvalidCertificate(
                error @ (Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. }),
            )) => Err(error.into()),
            // Many servers have a self-signed certificate, which the standard does not accept as the certificate of a
            // server. If it is one of our roots, it is trusted; the library has checked its validity by then.
            Err(_) if self.ours.iter().any(|ours| ours == certificate) => {
                if self.checks_host {
                    rustls::client::verify_server_name(&ParsedCertificate::try_from(certificate)?, host)?;
                }
                Ok(ServerCertVerified::assertion())
            }
            other => other,
        }
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        host: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.wanted {
            None => Ok(ServerCertVerified::assertion()),
            Some(wanted) => wanted.verify(certificate, chain, host, stapled, now),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
