//! Files of the configuration that cannot be used, and the check that a secret is private.

use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::security::tls::TlsFileError;

/// A file of the configuration cannot be used. The operator has to correct it.
#[derive(Debug)]
pub(crate) enum ConfigFileError {
    /// The file cannot be read.
    Unreadable { path: PathBuf, source: io::Error },
    /// Other accounts can read the file, which holds a secret.
    Exposed { path: PathBuf },
    /// A certificate is named without its key, or a key without its certificate.
    HalfOfAPair,
    /// The certificate or its key cannot be used.
    Tls(TlsFileError),
}

impl fmt::Display for ConfigFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => write!(f, "{} cannot be read: {source}", path.display()),
            Self::Exposed { path } => {
                let shown = path.display();
                write!(f, "{shown} is readable by other accounts: chmod 600 {shown}")
            }
            Self::HalfOfAPair => f.write_str("tls_certificate_file and tls_key_file go together: name both"),
            Self::Tls(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ConfigFileError {}

impl From<TlsFileError> for ConfigFileError {
    fn from(error: TlsFileError) -> Self {
        Self::Tls(error)
    }
}

/// Rejects a secret that other accounts can read. As in PostgreSQL, the group may read a file that belongs to root.
pub(super) fn check_private(path: &Path) -> Result<(), ConfigFileError> {
    let about = std::fs::metadata(path)
        .map_err(|source| ConfigFileError::Unreadable { path: path.to_owned(), source })?;
    let forbidden = if about.uid() == 0 { 0o037 } else { 0o077 };
    if about.mode() & forbidden == 0 {
        return Ok(());
    }
    Err(ConfigFileError::Exposed { path: path.to_owned() })
}
