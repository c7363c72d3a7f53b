//! Proofs that Onecopy wrote the identities in a server's `onecopy.applied`.
//!
//! A session writes its transaction's identity with the client's rights, so every role may insert rows there. A
//! forged row must not look like a transaction that the log has lost, and forged rows must take no memory when a
//! server comes back. So each row carries a MAC of its identity. Only the data folder has the key. Onecopy ignores a
//! row with a wrong MAC and deletes it.
//!
//! The key outlives the log. If the log alone is deleted, the next start reports the loss.

use std::fs;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use cluster::ids::Identity;
use ring::hmac;

/// Its file in the data folder, beside the log.
const FILE: &str = "identity.key";
const KEY_BYTES: usize = 32;

/// The key of a cluster's identities.
pub(crate) struct Seal {
    key: hmac::Key,
    /// This start drew the key, so older rows prove nothing.
    pub(crate) is_new: bool,
}

/// The file of the key can be neither read nor created.
#[derive(Debug)]
pub(crate) struct SealError {
    path: PathBuf,
    source: std::io::Error,
}

impl std::fmt::Display for SealError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.source)
    }
}

impl std::error::Error for SealError {}

impl Seal {
    /// Reads the key in a data folder, or draws one.
    pub(crate) fn in_folder(data: &Path) -> Result<Self, SealError> {
        let path = data.join(FILE);
        let is_new = !path.exists();
        let bytes = if is_new { draw(&path) } else { read(&path) };
        let bytes = bytes.map_err(|source| SealError { path, source })?;
        Ok(Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), is_new })
    }

    /// The MAC of an identity.
    pub(crate) fn proof(&self, identity: Identity) -> i64 {
        let Identity { epoch, n, nonce } = identity;
        let mut message = [0; 20];
        message[..4].copy_from_slice(&epoch.0.to_be_bytes());
        message[4..12].copy_from_slice(&n.to_be_bytes());
        message[12..].copy_from_slice(&nonce.0.to_be_bytes());
        let tag = hmac::sign(&self.key, &message);
        let (first, _) = tag.as_ref().split_first_chunk().expect("a tag has 32 bytes");
        i64::from_be_bytes(*first)
    }
}

impl std::fmt::Debug for Seal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seal").field("is_new", &self.is_new).finish_non_exhaustive()
    }
}

/// Draws a key and writes its file, atomically.
fn draw(path: &Path) -> std::io::Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    let unfinished = path.with_extension("new");
    let mut file = owner_only::options().write(true).create(true).truncate(true).open(&unfinished)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, path)?;
    fs::File::open(path.parent().unwrap_or_else(|| Path::new(".")))?.sync_all()?;
    Ok(bytes)
}

fn read(path: &Path) -> std::io::Result<[u8; KEY_BYTES]> {
    owner_only::close(path)?;
    let bytes = fs::read(path)?;
    bytes
        .try_into()
        .map_err(|_| std::io::Error::new(ErrorKind::InvalidData, "it is damaged: it must have 32 bytes"))
}

#[cfg(test)]
mod tests {
    use cluster::ids::{Epoch, Nonce};

    use super::*;

    #[test]
    fn a_proof_is_of_one_identity_and_one_cluster() {
        let folder = std::env::temp_dir().join(format!("onecopy-seal-{}", std::process::id()));
        for name in ["a", "b"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let (first, again) =
            (Seal::in_folder(&folder.join("a")).unwrap(), Seal::in_folder(&folder.join("a")).unwrap());
        let other = Seal::in_folder(&folder.join("b")).unwrap();
        assert_eq!((first.is_new, again.is_new), (true, false));
        let identity = Identity { epoch: Epoch(1), n: 2, nonce: Nonce(3) };
        assert_eq!(first.proof(identity), again.proof(identity));
        for changed in [
            Identity { epoch: Epoch(2), ..identity },
            Identity { n: 3, ..identity },
            Identity { nonce: Nonce(2), ..identity },
        ] {
            assert_ne!(first.proof(identity), first.proof(changed));
        }
        assert_ne!(first.proof(identity), other.proof(identity));
        fs::write(folder.join("a/identity.key"), "short").unwrap();
        let error = Seal::in_folder(&folder.join("a")).unwrap_err().to_string();
        assert!(error.contains("identity.key: it is damaged"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
