//! Values of settings by which the functions in the servers recognise Onecopy's work.

use cluster::ids::ClusterId;
use sha2::{Digest, Sha256};

/// Not a secret: any client can read the functions that check for it.
pub(super) fn token(cluster: ClusterId, purpose: &str) -> String {
    let digest = Sha256::digest(format!("onecopy {purpose} {cluster}"));
    let (half, _) = digest.split_first_chunk::<16>().expect("a SHA-256 digest has 32 bytes");
    format!("{:032x}", u128::from_be_bytes(*half))
}
