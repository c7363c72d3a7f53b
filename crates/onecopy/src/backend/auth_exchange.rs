//! Answers the requests of a server for proofs at log-in.

use wire::backend::{Authentication, sasl_mechanisms};
use wire::encode;

use super::error::BackendError;
use crate::security::scram::{Client, MECHANISM, Secret, nonce};

/// The exchange, as far as it is.
pub(super) enum AuthExchange<'a> {
    /// Nothing was asked.
    Unasked(&'a Secret),
    /// The exchange goes on.
    Asked(Client<'a>),
    /// The server has proven that it knows the role; it has to say that it lets us in.
    Proven,
}

impl<'a> AuthExchange<'a> {
    pub(super) fn new(secret: &'a Secret) -> Self {
        Self::Unasked(secret)
    }

    /// Takes a request of the server's; puts the answer out.
    pub(super) fn step(&mut self, asked: Authentication<'_>, out: &mut Vec<u8>) -> Result<(), BackendError> {
        const METHOD: BackendError = BackendError::LogIn(
            "the server asks for a password in a way that is not SCRAM-SHA-256: let Onecopy in by scram-sha-256, trust \
             or peer (pg_hba.conf)",
        );
        const NO_SECRET: BackendError = BackendError::LogIn(
            "the server asks for a password and none is known: let Onecopy in by trust or peer (pg_hba.conf), or name \
             superuser_password_file and let clients in by scram-sha-256",
        );
        const ORDER: BackendError = BackendError::Protocol("log-in messages out of order");
        const TEXT: BackendError = BackendError::Protocol("a malformed SCRAM message");
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| TEXT);
        match (&mut *self, asked) {
            (Self::Unasked(_) | Self::Proven, Authentication::Ok) => Ok(()),
            (Self::Unasked(Secret::None), Authentication::Sasl(_) | Authentication::Other(3 | 5)) => {
                Err(NO_SECRET)
            }
            (Self::Unasked(secret), Authentication::Sasl(list)) => {
                if !sasl_mechanisms(list)?.contains(&MECHANISM.as_bytes()) {
                    return Err(METHOD);
                }
                let nonce = nonce().map_err(|_| BackendError::Protocol("no random numbers"))?;
                let (client, said) = Client::begin(secret, nonce);
                encode::sasl_initial(out, MECHANISM, &said);
                *self = Self::Asked(client);
                Ok(())
            }
            (Self::Asked(client), Authentication::SaslContinue(said)) => {
                let answer = client.respond(text(said)?).map_err(BackendError::Protocol)?;
                encode::sasl_response(out, &answer);
                Ok(())
            }
            (Self::Asked(client), Authentication::SaslFinal(said)) => {
                if !client.is_proven(text(said)?) {
                    return Err(BackendError::LogIn("the server does not know the role's password itself"));
                }
                *self = Self::Proven;
                Ok(())
            }
            (_, Authentication::Other(_)) => Err(METHOD),
            // Above all: a server that has begun to prove itself must not stop halfway.
            _ => Err(ORDER),
        }
    }
}
