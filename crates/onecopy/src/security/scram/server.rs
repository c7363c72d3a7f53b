//! Onecopy as the server of a client.

use base64::Engine;

use super::{
    BASE64, BINDING, Hash, Keys, MECHANISM, MECHANISM_PLUS, Verifier, attribute, hash, hmac_sha256, is_same,
    xor,
};

/// The mechanisms that a client can choose from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Offer {
    /// Hash of the certificate, if the connection is encrypted and the standard defines one.
    pub(crate) certificate: Option<Vec<u8>>,
}

impl Offer {
    /// The mechanisms, the better one first.
    pub(crate) fn mechanisms(&self) -> &'static [&'static str] {
        if self.certificate.is_some() { &[MECHANISM_PLUS, MECHANISM] } else { &[MECHANISM] }
    }
}

/// The exchange after the client's first message.
#[derive(Debug)]
pub(crate) struct Server {
    verifier: Verifier,
    /// The channel binding that the client must repeat: its header and data.
    binding: Vec<u8>,
    nonce: String,
    /// The first message of each side, without the header.
    so_far: String,
}

/// The result of a client's proof.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Checked {
    /// The client knows the password. Holds its keys and the answer to it.
    Right(Keys, String),
    /// The client does not know the password.
    Wrong,
}

impl Server {
    /// Handles a client's first message, and returns the answer. An error is a protocol violation.
    pub(crate) fn begin(
        offer: &Offer,
        mechanism: &str,
        said: &str,
        verifier: Verifier,
        own_nonce: &str,
    ) -> Result<(Self, String), &'static str> {
        const MALFORMED: &str = "malformed SCRAM message";
        let mut parts = said.splitn(3, ',');
        let (flag, name, bare) = (parts.next(), parts.next(), parts.next());
        let (Some(flag), Some(name), Some(bare)) = (flag, name, bare) else { return Err(MALFORMED) };
        let mut binding = format!("{flag},{name},").into_bytes();
        match (mechanism, flag, &offer.certificate) {
            (MECHANISM_PLUS, flag, Some(certificate)) if flag.strip_prefix("p=") == Some(BINDING) => {
                binding.extend_from_slice(certificate);
            }
            (MECHANISM_PLUS, _, Some(_)) => return Err("unsupported SCRAM channel-binding type"),
            (MECHANISM, "n", _) | (MECHANISM, "y", None) => {}
            // An attacker in between has removed our offer.
            (MECHANISM, "y", Some(_)) => {
                return Err("the client supports SCRAM channel binding but thinks the server does not");
            }
            _ => return Err("the client selected an invalid SASL authentication mechanism"),
        }
        if !name.is_empty() {
            return Err("client uses authorization identity, but it is not supported");
        }
        let mut attributes = bare.split(',');
        // The start-up packet had the name.
        attribute(attributes.next(), 'n').ok_or(MALFORMED)?;
        let theirs = attribute(attributes.next(), 'r').filter(|nonce| is_printable(nonce));
        let nonce = format!("{}{own_nonce}", theirs.ok_or(MALFORMED)?);
        let Verifier { salt, iterations, .. } = &verifier;
        let answer = format!("r={nonce},s={},i={iterations}", BASE64.encode(salt));
        let so_far = format!("{bare},{answer}");
        Ok((Self { verifier, binding, nonce, so_far }, answer))
    }

    /// Handles its last message. An error is a protocol violation.
    pub(crate) fn check(&self, said: &str) -> Result<Checked, &'static str> {
        const MALFORMED: &str = "malformed SCRAM message";
        let (without_proof, proof) = said.rsplit_once(",p=").ok_or(MALFORMED)?;
        let mut attributes = without_proof.split(',');
        let binding = attribute(attributes.next(), 'c').and_then(|text| BASE64.decode(text).ok());
        if binding.ok_or(MALFORMED)? != self.binding {
            return Err("SCRAM channel binding check failed");
        }
        if attribute(attributes.next(), 'r').ok_or(MALFORMED)? != self.nonce {
            return Err(MALFORMED);
        }
        let proof: Hash =
            BASE64.decode(proof).ok().and_then(|bytes| bytes.try_into().ok()).ok_or(MALFORMED)?;
        let everything = format!("{},{without_proof}", self.so_far);
        let signature = hmac_sha256(&self.verifier.stored_key, everything.as_bytes());
        let client_key = xor(&proof, &signature);
        let server_key = self.verifier.server_key;
        let answer = format!("v={}", BASE64.encode(hmac_sha256(&server_key, everything.as_bytes())));
        if !is_same(&hash(&client_key), &self.verifier.stored_key) {
            return Ok(Checked::Wrong);
        }
        Ok(Checked::Right(Keys { client_key, server_key }, answer))
    }
}

fn is_printable(nonce: &str) -> bool {
    !nonce.is_empty() && nonce.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
}
