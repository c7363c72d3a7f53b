//! Onecopy as the client of a server.

use std::num::NonZeroU32;

use base64::Engine;

use super::{BASE64, ITERATIONS_MAX, Keys, Secret, attribute, hash, hmac_sha256, is_same, xor};

/// The header of a message without channel binding.
const HEADER: &str = "n,,";

/// A log-in at a server.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    secret: &'a Secret,
    nonce: String,
    /// The proof by which the server must show that it has the verifier.
    expected: Option<[u8; 32]>,
}

impl<'a> Client<'a> {
    /// Starts the exchange with the first message.
    pub(crate) fn begin(secret: &'a Secret, nonce: String) -> (Self, String) {
        let said = format!("{HEADER}n=,r={nonce}");
        (Self { secret, nonce, expected: None }, said)
    }

    /// Answers the server's first message.
    pub(crate) fn respond(&mut self, said: &str) -> Result<String, &'static str> {
        const MALFORMED: &str = "a malformed SCRAM message";
        let mut attributes = said.split(',');
        let nonce = attribute(attributes.next(), 'r').ok_or(MALFORMED)?;
        let salt = attribute(attributes.next(), 's').and_then(|text| BASE64.decode(text).ok());
        let iterations = attribute(attributes.next(), 'i').and_then(|text| text.parse::<NonZeroU32>().ok());
        let (salt, iterations) = (salt.ok_or(MALFORMED)?, iterations.ok_or(MALFORMED)?);
        if nonce.strip_prefix(self.nonce.as_str()).is_none_or(str::is_empty) {
            return Err("a SCRAM nonce that does not extend the client's");
        }
        if iterations.get() > ITERATIONS_MAX {
            return Err("more SCRAM iterations than Onecopy accepts");
        }
        let keys = match self.secret {
            Secret::None => return Err("the server asks for a password, and none is configured"),
            Secret::Password(password) => Keys::of_password(password, &salt, iterations),
            Secret::Keys(keys) => keys.clone(),
        };
        let without_proof = format!("c={},r={nonce}", BASE64.encode(HEADER));
        let everything = format!("n=,r={},{said},{without_proof}", self.nonce);
        let signature = hmac_sha256(&hash(&keys.client_key), everything.as_bytes());
        self.expected = Some(hmac_sha256(&keys.server_key, everything.as_bytes()));
        Ok(format!("{without_proof},p={}", BASE64.encode(xor(&keys.client_key, &signature))))
    }

    /// Checks the server's last message: `true` if the server has the verifier.
    pub(crate) fn is_proven(&self, said: &str) -> bool {
        let theirs = attribute(said.split(',').next(), 'v').and_then(|text| BASE64.decode(text).ok());
        let theirs: Option<[u8; 32]> = theirs.and_then(|bytes| bytes.try_into().ok());
        matches!((theirs, self.expected), (Some(theirs), Some(expected)) if is_same(&theirs, &expected))
    }
}
