//! Takes connections of other nodes, and finds out who they are before their line gets them.
//!
//! Connections that have not proven who they are have a deadline, and their number is bounded: the oldest one gives way, so
//! silent ones cannot keep a node out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};

use crate::hello::{Hello, Refusal, io};
use crate::line::{Connected, prepare};
use crate::switchboard::Shared;
use crate::tls;

/// After an error of the listener, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

pub(crate) async fn run(shared: Arc<Shared>, listener: TcpListener) {
    let mut strangers = JoinSet::new();
    let mut oldest: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = strangers.join_next() => continue,
        };
        match accepted {
            Ok((stream, _)) => {
                oldest.retain(|handshake| !handshake.is_finished());
                while oldest.len() >= shared.limits.unauthenticated {
                    oldest.pop_front().inspect(AbortHandle::abort);
                }
                oldest.push_back(strangers.spawn(admit(Arc::clone(&shared), stream)));
            }
            Err(error) => {
                shared.complaints.add("", &format!("cannot accept a connection: {error}"));
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn admit(shared: Arc<Shared>, stream: TcpStream) {
    let admitted = tokio::time::timeout(shared.limits.handshake, greet(&shared, stream)).await;
    let refusal = match admitted {
        Ok(Ok((name, connected))) => {
            if let Some(line) = shared.lines.get(&name) {
                line.arrived(connected);
            }
            return;
        }
        Ok(Err(refusal)) => refusal.to_string(),
        Err(_) => "a connection did not say who it is in time".to_owned(),
    };
    shared.complaints.add("", &refusal);
}

async fn greet(shared: &Shared, stream: TcpStream) -> Result<(String, Connected), Refusal> {
    prepare(&stream).map_err(|error| io(&error))?;
    let Some(security) = &shared.security else {
        return answer(shared, Box::new(stream), None).await;
    };
    let stream = security.acceptor.accept(stream).await.map_err(|error| {
        Refusal::Io(format!(
            "no TLS with a peer: {error}; its certificate must be of this cluster's authority"
        ))
    })?;
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let certificate = certificate.ok_or(Refusal::NoHello)?.clone().into_owned();
    answer(shared, Box::new(stream), Some(certificate)).await
}

async fn answer(
    shared: &Shared,
    mut stream: crate::line::Stream,
    certificate: Option<rustls::pki_types::CertificateDer<'static>>,
) -> Result<(String, Connected), Refusal> {
    let read = Hello::read(&mut stream).await;
    let checked = read.and_then(|hello| {
        hello.check(&shared.options)?;
        // Only the greater name dials.
        if hello.from <= shared.options.name {
            return Err(Refusal::From(hello.from));
        }
        if certificate.is_some_and(|certificate| !tls::names(&certificate, &hello.from)) {
            return Err(Refusal::Certificate(hello.from));
        }
        Ok(hello)
    });
    match checked {
        Ok(hello) => {
            Hello::new(&shared.options, &hello.from, None).write(&mut stream).await?;
            Ok((hello.from, Connected { stream, run: hello.run }))
        }
        Err(refusal @ (Refusal::Io(_) | Refusal::NoHello)) => Err(refusal),
        Err(refusal) => {
            Hello::new(&shared.options, "", Some(refusal.to_string())).write(&mut stream).await?;
            Err(refusal)
        }
    }
}
