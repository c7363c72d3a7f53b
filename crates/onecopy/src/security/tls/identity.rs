//! Who we are toward clients: a certificate and its key.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ring::digest;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;

use super::der::{OBJECT_ID, element};
use super::validity::Validity;
use super::{Stream, certificates, provider};

/// The name of PostgreSQL's protocol, by which a client that begins with a handshake says that it means us.
const PROTOCOL: &[u8] = b"postgresql";

/// A certificate and its key, ready to be used.
pub(crate) struct Identity {
    config: Arc<ServerConfig>,
    /// The hash of the certificate that a log-in is bound to; none where the standard defines none.
    hash: Option<Vec<u8>>,
    /// None where it cannot be read.
    validity: Option<Validity>,
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Identity")
    }
}

impl Identity {
    /// Reads both files: a certificate with those it was signed by, and its key.
    pub(crate) fn load(certificate: &Path, key: &Path) -> Result<Self, String> {
        let chain = certificates(certificate)?;
        let hash = end_point(&chain[0]);
        let validity = Validity::of(chain.iter().map(AsRef::as_ref));
        let secret = PrivateKeyDer::from_pem_file(key)
            .map_err(|error| format!("no key can be read from {}: {error}", key.display()))?;
        let fits = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, secret));
        let mut config = fits.map_err(|error| {
            format!("{} and {} cannot be used: {error}", certificate.display(), key.display())
        })?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { config: Arc::new(config), hash, validity })
    }

    /// The hash that a log-in is bound to.
    pub(crate) fn hash(&self) -> Option<Vec<u8>> {
        self.hash.clone()
    }

    /// When it is not valid any more, in seconds since 1970.
    pub(crate) fn ends_s(&self) -> Option<i64> {
        self.validity.map(Validity::ends_s)
    }

    /// What whoever runs the node should know of it: that it is not valid, or will not be for long.
    pub(crate) fn concern(&self) -> Option<String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let concern = self.validity?.concern(now.as_secs().cast_signed())?;
        Some(format!("tls_certificate_file: the certificate that clients see {concern}"))
    }

    /// Shakes hands with a client. One that did so without asking first must name the protocol.
    pub(crate) async fn accept<S>(&self, stream: S, has_asked: bool) -> io::Result<Stream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let stream = TlsAcceptor::from(Arc::clone(&self.config)).accept(stream).await?;
        if !has_asked && stream.get_ref().1.alpn_protocol() != Some(PROTOCOL) {
            return Err(io::Error::other("a handshake that does not name PostgreSQL's protocol"));
        }
        Ok(Stream::FromClient(Box::new(stream)))
    }
}

/// The hash of `tls-server-end-point` (RFC 5929): by the function that the certificate was signed with, or SHA-256 where
/// that one is too weak.
fn end_point(certificate: &[u8]) -> Option<Vec<u8>> {
    let (_, inside, _) = element(certificate)?;
    let (_, _, rest) = element(inside)?;
    let (_, algorithm, _) = element(rest)?;
    let (OBJECT_ID, id, _) = element(algorithm)? else { return None };
    const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01];
    const ECDSA: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04];
    let function = match (id.strip_prefix(RSA), id.strip_prefix(ECDSA)) {
        // MD5, SHA-1, SHA-256.
        (Some([4 | 5 | 11]), _) | (_, Some([1] | [3, 2])) => &digest::SHA256,
        (Some([12]), _) | (_, Some([3, 3])) => &digest::SHA384,
        (Some([13]), _) | (_, Some([3, 4])) => &digest::SHA512,
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
