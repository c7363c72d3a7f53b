//! Proves that a client has the role that it names, by the method of the rule that fits.
//!
//! Before a client has authenticated, no reply tells it whether a role exists. For an unknown role the client passes
//! through the same exchange, over a verifier that no password fits.

use std::net::{IpAddr, Ipv4Addr};

use wire::frontend::tag;
use wire::{encode, frame, sqlstate};

use crate::client::Client;
use crate::config::hba::{LoginAttempt, Method};
use crate::error::{Fault, Refusal};
use crate::link::Worker;
use crate::link::wait::WAIT_MAX;
use crate::security::scram::{self, Checked, Offer, Secret, Server, Verifier};
use crate::transaction::open::RETRY_PAUSE;

/// Longest message of the exchange, as in PostgreSQL.
const MESSAGE_BYTES_MAX: usize = 1024;

/// Authenticates a client, and returns the secret that opens the servers for it.
pub(crate) async fn authenticate(
    worker: &Worker,
    client: &mut Client,
    role: &str,
    database: &str,
) -> Result<Secret, Fault> {
    let address = client.peer().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
    let is_encrypted = client.is_encrypted();
    let visitor = LoginAttempt { database, role, address, is_encrypted };
    let whom = || {
        let encryption = if is_encrypted { "SSL encryption" } else { "no encryption" };
        format!("host \"{}\", user \"{role}\", database \"{database}\", {encryption}", address.to_canonical())
    };
    let refused = |text: String, hint: &str| {
        tracing::warn!(role, %address, "{text}");
        Fault::Fatal(Refusal::new(sqlstate::INVALID_AUTHORIZATION_SPECIFICATION, text, hint))
    };
    const HINT: &str = "The rules are in the setting hba of Onecopy's configuration.";
    match worker.local.runtime_config.access().method(visitor) {
        None => Err(refused(format!("no rule lets in {}", whom()), HINT)),
        Some(Method::Reject) => Err(refused(format!("a rule rejects {}", whom()), HINT)),
        Some(Method::Trust) => Ok(Secret::None),
        Some(Method::Scram) => scram(worker, client, role).await,
    }
}

async fn scram(worker: &Worker, client: &mut Client, role: &str) -> Result<Secret, Fault> {
    let nobody = Verifier::of_nobody(role, &worker.coordinator.cluster_id.0.to_be_bytes());
    let found = kept(worker, role).await?;
    let offer = Offer { certificate: client.certificate() };
    encode::authentication_sasl(&mut client.out, offer.mechanisms());
    client.flush().await?;
    let body = answer(client).await?;
    let (mechanism, said) =
        wire::frontend::sasl_initial(&body).map_err(|_| protocol("malformed SASL message"))?;
    let (mechanism, said) = (text(mechanism)?, text(said)?);
    let nonce = scram::nonce().map_err(|error| {
        Fault::Fatal(Refusal::plain(sqlstate::INTERNAL_ERROR, format!("no random number: {error}")))
    })?;
    let verifier = found.unwrap_or(nobody);
    let (server, first) = Server::begin(&offer, mechanism, said, verifier, &nonce).map_err(protocol)?;
    encode::authentication_sasl_continue(&mut client.out, &first);
    client.flush().await?;
    let body = answer(client).await?;
    match server.check(text(&body)?).map_err(protocol)? {
        Checked::Right(keys, last) => {
            encode::authentication_sasl_final(&mut client.out, &last);
            Ok(Secret::Keys(keys))
        }
        Checked::Wrong => {
            let address = client.peer();
            tracing::warn!(role, ?address, "password authentication failed");
            let text = format!("password authentication failed for user \"{role}\"");
            Err(Fault::Fatal(Refusal::plain(sqlstate::INVALID_PASSWORD, text)))
        }
    }
}

/// The stored verifier of the role. The anchor may be moving at this moment.
async fn kept(worker: &Worker, role: &str) -> Result<Option<Verifier>, Fault> {
    let started = tokio::time::Instant::now();
    loop {
        match worker.credentials.verifier(&worker.coordinator, role).await {
            Ok(found) => return Ok(found),
            Err(error) if started.elapsed() < WAIT_MAX => {
                tracing::debug!(%error, "cannot look up a password");
                tokio::time::sleep(RETRY_PAUSE).await;
            }
            Err(error) => {
                tracing::error!(%error, "cannot look up a password");
                let text = "the servers cannot be asked for passwords";
                let hint = "Try again later; Onecopy's log says why.";
                return Err(Fault::Fatal(Refusal::new(sqlstate::CANNOT_CONNECT_NOW, text, hint)));
            }
        }
    }
}

/// The body of the client's next message, which must belong to the exchange.
async fn answer(client: &mut Client) -> Result<Vec<u8>, Fault> {
    let total = loop {
        if let Some((kind, total)) = frame::header(client.input.data()).map_err(|_| Fault::Client)? {
            if kind != tag::PASSWORD || total > frame::HEADER_BYTES + MESSAGE_BYTES_MAX {
                return Err(protocol("expected SASL response"));
            }
            if client.input.data().len() >= total {
                break total;
            }
        }
        client.fill().await?;
    };
    let body = client.input.data()[frame::HEADER_BYTES..total].to_vec();
    client.input.consume(total);
    Ok(body)
}

fn text(bytes: &[u8]) -> Result<&str, Fault> {
    std::str::from_utf8(bytes).map_err(|_| protocol("malformed SCRAM message"))
}

fn protocol(what: &'static str) -> Fault {
    Fault::Fatal(Refusal::plain(sqlstate::PROTOCOL_VIOLATION, what))
}
