//! Onecopy's certificate toward clients, and its key.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;

use ring::digest;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use time::OffsetDateTime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use x509_parser::asn1_rs::oid;
use x509_parser::certificate::X509Certificate;
use x509_parser::oid_registry::{
    OID_PKCS1_MD5WITHRSAENC, OID_PKCS1_SHA1WITHRSA, OID_PKCS1_SHA256WITHRSA, OID_PKCS1_SHA384WITHRSA,
    OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA256, OID_SIG_ECDSA_WITH_SHA384, OID_SIG_ECDSA_WITH_SHA512,
    Oid,
};
use x509_parser::prelude::FromDer;

use super::file_error::TlsFileError;
use super::validity::Validity;
use super::{Stream, certificates, provider};

/// The ALPN name of PostgreSQL's protocol. A client that starts with a handshake must send it.
const PROTOCOL: &[u8] = b"postgresql";

/// A certificate and its key, ready for use.
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
    /// Hash of the certificate for channel binding; `None` if the standard defines none.
    hash: Option<Vec<u8>>,
    /// `None` if it cannot be read.
    validity: Option<Validity>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// Reads both files: the certificate with its chain, and its key.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Self, TlsFileError> {
        let chain = certificates(certificate)?;
        let hash = end_point(&chain[0]);
        let validity = Validity::of(chain.iter().map(AsRef::as_ref));
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|source| TlsFileError::Key { path: key.to_owned(), source })?;
        let fits = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
        let mut config = fits.map_err(|source| TlsFileError::Pair {
            certificate: certificate.to_owned(),
            key: key.to_owned(),
            source,
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { config: Arc::new(config), hash, validity })
    }

    /// The hash for channel binding.
    pub(crate) fn hash(&self) -> Option<Vec<u8>> {
        self.hash.clone()
    }

    /// End of its validity, in seconds since 1970.
    pub(crate) fn ends_s(&self) -> Option<i64> {
        self.validity.map(Validity::ends_s)
    }

    /// A warning for the operator if the certificate is not valid, or not for long.
    pub(crate) fn concern(&self) -> Option<String> {
        let concern = self.validity?.concern(OffsetDateTime::now_utc())?;
        Some(format!("tls_certificate_file: the certificate that clients see {concern}"))
    }

    /// Performs the handshake with a client. A client that has sent no SSLRequest must name the protocol.
    pub(crate) async fn accept<S>(&self, stream: S, has_asked: bool) -> io::Result<Stream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await?;
        if !has_asked && stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
            return Err(io::Error::other("the handshake does not name PostgreSQL's protocol (ALPN)"));
        }
        Ok(Stream::FromClient(Box::new(stream)))
    }
}

/// The hash of `tls-server-end-point` (RFC 5929): by the hash function of the certificate's signature, or SHA-256 if
/// that one is too weak.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    const ECDSA_WITH_SHA1: Oid<'_> = oid!(1.2.840.10045.4.1);
    const SHA256: [Oid<'_>; 5] = [
        OID_PKCS1_MD5WITHRSAENC,
        OID_PKCS1_SHA1WITHRSA,
        OID_PKCS1_SHA256WITHRSA,
        ECDSA_WITH_SHA1,
        OID_SIG_ECDSA_WITH_SHA256,
    ];
    const SHA384: [Oid<'_>; 2] = [OID_PKCS1_SHA384WITHRSA, OID_SIG_ECDSA_WITH_SHA384];
    const SHA512: [Oid<'_>; 2] = [OID_PKCS1_SHA512WITHRSA, OID_SIG_ECDSA_WITH_SHA512];
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    let function = match &parsed.signature_algorithm.algorithm {
        id if SHA256.contains(id) => &digest::SHA256,
        id if SHA384.contains(id) => &digest::SHA384,
        id if SHA512.contains(id) => &digest::SHA512,
        _ => return None,
    };
    Some(digest::digest(function, certificate).as_ref().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_follows_the_signature() {
        let signed_by = |algorithm: &'static rcgen::SignatureAlgorithm| {
            let key = rcgen::KeyPair::generate_for(algorithm).unwrap();
            let parameters = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
            parameters.self_signed(&key).unwrap().der().to_vec()
        };
        let certificate = signed_by(&rcgen::PKCS_ECDSA_P256_SHA256);
        let hash = digest::digest(&digest::SHA256, &certificate);
        assert_eq!(end_point(&certificate).as_deref(), Some(hash.as_ref()));
        assert_eq!(end_point(&signed_by(&rcgen::PKCS_ECDSA_P384_SHA384)).unwrap().len(), 48);
        assert_eq!(end_point(&signed_by(&rcgen::PKCS_ED25519)), None, "it is not defined");
        for broken in [&certificate[..20], &[], &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]] {
            assert_eq!(end_point(broken), None);
        }
    }
}
