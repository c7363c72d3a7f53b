//! Handshakes over a pipe in memory: which server certificates Onecopy accepts.

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// A folder with certificates: `ca.pem`, and what it signed for `localhost`: `server.pem` and `server.key`.
struct Folder(PathBuf);

impl Folder {
    fn new(purpose: &str) -> Self {
        let path = std::env::temp_dir().join(format!("onecopy-tls-{}-{purpose}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        let mut parameters = CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let server = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let folder = Self(path);
        folder.write("ca.pem", &authority.pem());
        folder.write("server.pem", &server.signed_by(&key, &authority).unwrap().pem());
        folder.write("server.key", &key.serialize_pem());
        folder
    }

    /// Adds another self-signed certificate.
    fn add_self_signed(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) {
        let key = KeyPair::generate().unwrap();
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut parameters);
        self.write(&format!("{name}.pem"), &parameters.self_signed(&key).unwrap().pem());
        self.write(&format!("{name}.key"), &key.serialize_pem());
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.join(name), text).unwrap();
    }

    /// Connects to a server with this certificate, and returns what the server sends.
    async fn say(&self, server: &str, trust: Trust, root: &str, host: &str) -> io::Result<String> {
        let identity =
            Identity::load(&self.0.join(format!("{server}.pem")), &self.0.join(format!("{server}.key")))
                .unwrap();
        let (near, mut far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let mut request = [0; 8];
            far.read_exact(&mut request).await?;
            far.write_all(b"S").await?;
            let mut stream = identity.accept(far, true).await?;
            stream.write_all(b"hello").await?;
            stream.shutdown().await
        });
        let outward = Outward::load(trust, Some(&self.0.join(root))).unwrap();
        let mut stream = outward.connect(near, host).await?;
        assert!(stream.is_encrypted());
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        Ok(text)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

#[tokio::test]
async fn a_certificate_is_looked_at_as_closely_as_is_asked() {
    let folder = Folder::new("trust");
    folder.add_self_signed("other", |_| {});
    for (server, trust, root, host, is_believed) in [
        ("server", Trust::SignedForHost, "ca.pem", "localhost", true),
        ("server", Trust::SignedForHost, "ca.pem", "127.0.0.1", false),
        ("server", Trust::Signed, "ca.pem", "127.0.0.1", true),
        ("server", Trust::Signed, "other.pem", "localhost", false),
        ("server", Trust::Any, "other.pem", "127.0.0.1", true),
        ("other", Trust::Signed, "ca.pem", "localhost", false),
    ] {
        let said = folder.say(server, trust, root, host).await;
        assert_eq!(said.is_ok(), is_believed, "{server} {trust:?} {root} {host}: {said:?}");
    }
}

#[tokio::test]
async fn a_server_that_signed_itself_is_believed_if_it_is_the_one_we_know() {
    let folder = Folder::new("self");
    folder.add_self_signed("own", |parameters| parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained));
    folder.add_self_signed("old", |parameters| {
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.not_after = rcgen::date_time_ymd(2020, 1, 1);
    });
    for (server, host, is_believed) in
        [("own", "localhost", true), ("own", "elsewhere", false), ("old", "localhost", false)]
    {
        let said = folder.say(server, Trust::SignedForHost, &format!("{server}.pem"), host).await;
        assert_eq!(said.is_ok(), is_believed, "{server} {host}: {said:?}");
    }
    let error = folder.say("old", Trust::Signed, "old.pem", "localhost").await.unwrap_err();
    assert!(error.to_string().contains("expired"), "{error}");
}

#[tokio::test]
async fn a_server_without_encryption_is_not_talked_to() {
    let folder = Folder::new("plain");
    let (near, mut far) = tokio::io::duplex(1 << 16);
    far.write_all(b"N").await.unwrap();
    let outward = Outward::load(Trust::Any, None).unwrap();
    let error = outward.connect(near, "localhost").await.unwrap_err();
    assert!(error.to_string().contains("does not offer TLS"), "{error}");
    assert!(Outward::load(Trust::Signed, None).is_err());
    for (certificate, key) in [("ca.pem", "server.key"), ("server.pem", "ca.pem"), ("none.pem", "server.key")]
    {
        let loaded = Identity::load(&folder.0.join(certificate), &folder.0.join(key));
        assert!(loaded.is_err(), "{certificate} {key}");
    }
}
