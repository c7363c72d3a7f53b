//! TLS, toward clients and toward servers.
//!
//! A client asks for TLS with an SSLRequest, or starts with a handshake at once, as PostgreSQL 17 allows. A server's
//! URL says whether Onecopy asks the server. Where TLS is required, an unencrypted connection is rejected; nothing
//! falls back.
//!
//! Not here: authentication of clients. Onecopy asks clients for no certificate.

mod file_error;
mod identity;
mod outward;
mod validity;

#[cfg(test)]
mod tests;

use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::crypto::CryptoProvider;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(crate) use file_error::TlsFileError;
pub(crate) use identity::Identity;
pub(crate) use outward::{Outward, Trust};

/// A byte stream, encrypted or not.
#[derive(Debug)]
pub(crate) enum Stream<S> {
    Plain(S),
    FromClient(Box<tokio_rustls::server::TlsStream<S>>),
    ToServer(Box<tokio_rustls::client::TlsStream<S>>),
}

impl<S> Stream<S> {
    /// The stream below.
    pub(crate) fn socket(&self) -> &S {
        match self {
            Self::Plain(stream) => stream,
            Self::FromClient(stream) => stream.get_ref().0,
            Self::ToServer(stream) => stream.get_ref().0,
        }
    }

    pub(crate) fn is_encrypted(&self) -> bool {
        !matches!(self, Self::Plain(_))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Stream<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::FromClient(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::ToServer(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Stream<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::FromClient(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::ToServer(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::FromClient(stream) => Pin::new(stream).poll_flush(cx),
            Self::ToServer(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::FromClient(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::ToServer(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The cryptographic provider.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let read = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let found = read.map_err(|source| TlsFileError::Certificates { path: path.to_owned(), source })?;
    if found.is_empty() {
        return Err(TlsFileError::NoCertificate { path: path.to_owned() });
    }
    Ok(found)
}
