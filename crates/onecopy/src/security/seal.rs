//! Proofs that Onecopy wrote the identities in a server's `onecopy.applied`.
//!
//! A session writes its transaction's identity with the client's rights, so every role may insert rows there. A
//! forged row must not look like a transaction that the log has lost, and forged rows must take no memory when a
//! server comes back. So each row carries a MAC of its identity. Only the register has the key: the file `identity.key`
//! of the data folder, or a key of etcd. Onecopy ignores a row with a wrong MAC and deletes it.
//!
//! The key outlives the log. If the log alone is deleted, the next start reports the loss.

use cluster::ids::Identity;
use commitlog::{Entry, Register, RegisterError};
use ring::hmac;

const KEY_BYTES: usize = 32;

/// The key of a cluster's identities.
pub(crate) struct Seal {
    key: hmac::Key,
    /// This start drew the key, so older rows prove nothing.
    pub(crate) is_new: bool,
}

/// The key can be neither read nor kept.
#[derive(Debug)]
pub(crate) enum SealError {
    Register(RegisterError),
    /// The entry is no key.
    Damaged {
        location: String,
    },
    /// The system gives no random number.
    Random(getrandom::Error),
}

impl std::fmt::Display for SealError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Register(error) => error.fmt(f),
            Self::Damaged { location } => {
                write!(f, "{location}: it is damaged: it must have {KEY_BYTES} bytes")
            }
            Self::Random(error) => write!(f, "no random number: {error}"),
        }
    }
}

impl std::error::Error for SealError {}

impl Seal {
    /// Reads the key in a register, or draws one. May wait for etcd.
    pub(crate) fn of(register: &dyn Register) -> Result<Self, SealError> {
        let kept = register.read(&Entry::Seal).map_err(SealError::Register)?;
        let is_new = kept.is_none();
        let bytes: [u8; KEY_BYTES] = if let Some(kept) = kept {
            let damaged = |_| SealError::Damaged { location: register.location(&Entry::Seal) };
            kept.try_into().map_err(damaged)?
        } else {
            let mut drawn = [0; KEY_BYTES];
            getrandom::fill(&mut drawn).map_err(SealError::Random)?;
            register.change(&Entry::Seal, Some(&drawn)).map_err(SealError::Register)?;
            drawn
        };
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

#[cfg(test)]
mod tests {
    use cluster::ids::{Epoch, Nonce};

    use std::fs;

    use commitlog::FileRegister;

    use super::*;

    #[test]
    fn a_proof_is_of_one_identity_and_one_cluster() {
        let folder = std::env::temp_dir().join(format!("onecopy-seal-{}", std::process::id()));
        for name in ["a", "b"] {
            fs::create_dir_all(folder.join(name)).unwrap();
        }
        let open = |name: &str| Seal::of(&FileRegister::in_folder(&folder.join(name)));
        let (first, again) = (open("a").unwrap(), open("a").unwrap());
        let other = open("b").unwrap();
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
        let error = open("a").unwrap_err().to_string();
        assert!(error.contains("identity.key: it is damaged"), "{error}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
