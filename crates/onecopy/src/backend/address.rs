//! Where a server listens, and the byte stream to it.
//!
//! Servers on the same machine are reached over their Unix sockets, others over TCP. Everything above sees one stream.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

use crate::security::tls;
use crate::security::tls::Outward;

/// How long a connection over TCP may take to be made.
const CONNECT_DEADLINE: Duration = Duration::from_secs(10);

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    /// On a Unix socket.
    Unix {
        /// Directory of the socket.
        socket_dir: PathBuf,
        /// The port, which names the socket.
        port: u16,
    },
    /// On a TCP port.
    Tcp {
        /// A name or an address.
        host: String,
        /// The port.
        port: u16,
        /// How it is encrypted, if it is.
        tls: Option<Outward>,
    },
}

impl Address {
    /// The URL of which this is the address.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Unix { socket_dir, port } => {
                format!("postgresql://{}:{port}", escaped(socket_dir.as_os_str().as_encoded_bytes()))
            }
            Self::Tcp { host, port, tls } => {
                let parameters = tls.as_ref().map_or_else(String::new, |tls| {
                    let root = tls.root().map(|root| escaped(root.as_os_str().as_encoded_bytes()));
                    let root = root.map_or_else(String::new, |root| format!("&sslrootcert={root}"));
                    format!("?sslmode={}{root}", tls.mode())
                });
                let host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
                format!("postgresql://{host}:{port}{parameters}")
            }
        }
    }
}

/// Bytes as a part of a URL.
fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    };
    bytes.iter().map(escape).collect()
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { socket_dir, port } => write!(f, "{}/.s.PGSQL.{port}", socket_dir.display()),
            Self::Tcp { host, port, .. } => write!(f, "{host}:{port}"),
        }
    }
}

/// The bytes to and from a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Unix(UnixStream),
    Tcp(tls::Stream<TcpStream>),
}

impl Stream {
    /// Connects.
    pub(super) async fn connect(address: &Address) -> io::Result<Self> {
        match address {
            Address::Unix { socket_dir, port } => {
                UnixStream::connect(socket_dir.join(format!(".s.PGSQL.{port}"))).await.map(Self::Unix)
            }
            Address::Tcp { host, port, tls } => {
                let connecting = async {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    match tls {
                        None => Ok(tls::Stream::Plain(stream)),
                        Some(tls) => tls.connect(stream, host).await,
                    }
                };
                tokio::time::timeout(CONNECT_DEADLINE, connecting).await?.map(Self::Tcp)
            }
        }
    }
}

impl Stream {
    /// The same, which wakes the thread of the caller from now on. An encrypted stream stays with its thread.
    pub(super) fn brought_here(self) -> io::Result<Self> {
        Ok(match self {
            Self::Unix(stream) => Self::Unix(UnixStream::from_std(stream.into_std()?)?),
            Self::Tcp(tls::Stream::Plain(stream)) => {
                Self::Tcp(tls::Stream::Plain(TcpStream::from_std(stream.into_std()?)?))
            }
            encrypted @ Self::Tcp(_) => encrypted,
        })
    }

    /// The socket itself, beside ours.
    pub(super) fn socket(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Unix(stream) => stream.as_fd().try_clone_to_owned(),
            Self::Tcp(stream) => stream.socket().as_fd().try_clone_to_owned(),
        }
    }

    /// The socket itself.
    pub(super) fn borrow(&self) -> BorrowedFd<'_> {
        match self {
            Self::Unix(stream) => stream.as_fd(),
            Self::Tcp(stream) => stream.socket().as_fd(),
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Self::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tcp(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
