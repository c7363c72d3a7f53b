//! The example exchange of RFC 7677, and exchanges that must fail.

use super::*;

/// The example of RFC 7677, section 3.
const SAID_FIRST: &str = "n,,n=user,r=rOprNGfwEbeRWgbNEkqO";
const ANSWERED_FIRST: &str =
    "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
const SAID_LAST: &str = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
const ANSWERED_LAST: &str = "v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";

fn pencil() -> Verifier {
    let salt = BASE64.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
    let iterations = NonZeroU32::new(4096).unwrap();
    let keys = Keys::of_password("pencil", &salt, iterations);
    Verifier { iterations, salt, stored_key: hash(&keys.client_key), server_key: keys.server_key }
}

fn begin(offer: &Offer, mechanism: &str, said: &str) -> Result<(Server, String), &'static str> {
    Server::begin(offer, mechanism, said, pencil(), "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0")
}

#[test]
fn the_example_of_the_standard() {
    let (server, answer) = begin(&Offer::default(), MECHANISM, SAID_FIRST).unwrap();
    assert_eq!(answer, ANSWERED_FIRST);
    let Checked::Right(keys, answer) = server.check(SAID_LAST).unwrap() else { panic!("it is right") };
    assert_eq!(answer, ANSWERED_LAST);
    assert_eq!(format!("{keys:?} {:?}", Secret::Password("pencil".to_owned())), "Keys a password");
}

#[test]
fn a_verifier_is_written_as_it_is_read() {
    let text = pencil().to_string();
    assert_eq!(Verifier::parse(&text), Some(pencil()), "{text}");
    let drawn = Verifier::of_password("pencil").unwrap();
    assert_eq!(Verifier::parse(&drawn.to_string()).as_ref(), Some(&drawn));
    assert_ne!(drawn, Verifier::of_password("pencil").unwrap(), "the salt is new");
    for other in [
        "",
        "md5c4ca4238a0b923820dcc509a6f75849b",
        "SCRAM-SHA-256$0:AA==$AA==:AA==",
        "SCRAM-SHA-256$1:AA==$AA==",
    ] {
        assert_eq!(Verifier::parse(other), None, "{other}");
    }
}

/// The result of a log-in with this secret against that verifier.
fn log_in(verifier: &Verifier, secret: &Secret) -> Checked {
    let (mut client, first) = Client::begin(secret, nonce().unwrap());
    let (server, answer) =
        Server::begin(&Offer::default(), MECHANISM, &first, verifier.clone(), &nonce().unwrap()).unwrap();
    let checked = server.check(&client.respond(&answer).unwrap()).unwrap();
    if let Checked::Right(_, last) = &checked {
        assert!(client.is_proven(last));
        assert!(!client.is_proven(ANSWERED_LAST), "another server's proof");
    }
    checked
}

#[test]
fn what_a_client_proves_opens_the_servers() {
    let password = |text: &str| Secret::Password(text.to_owned());
    let Checked::Right(keys, _) = log_in(&pencil(), &password("pencil")) else { panic!("it is right") };
    assert!(matches!(log_in(&pencil(), &Secret::Keys(keys.clone())), Checked::Right(..)));
    assert_eq!(log_in(&pencil(), &password("pencils")), Checked::Wrong);
    assert_eq!(log_in(&Verifier::of_password("pencil").unwrap(), &Secret::Keys(keys)), Checked::Wrong);
    let nobody = Verifier::of_nobody("joe", &[7; 32]);
    assert_eq!(log_in(&nobody, &password("")), Checked::Wrong);
    assert_eq!(nobody, Verifier::of_nobody("joe", &[7; 32]), "the verifier is the same at each attempt");
    assert_ne!(nobody.salt, Verifier::of_nobody("jim", &[7; 32]).salt);
}

#[test]
fn a_message_that_was_tampered_with_is_refused() {
    let offer = Offer::default();
    for first in ["", "n,,", "n,,n=,r=", "n,a=joe,n=,r=abc", "p=tls-unique,,n=,r=abc", "n,,n=,x=abc"] {
        assert!(begin(&offer, MECHANISM, first).is_err(), "{first}");
    }
    assert!(begin(&offer, MECHANISM_PLUS, "p=tls-server-end-point,,n=,r=abc").is_err(), "it was not offered");
    assert!(begin(&offer, "SCRAM-SHA-1", SAID_FIRST).is_err());
    let (server, _) = begin(&offer, MECHANISM, SAID_FIRST).unwrap();
    for last in ["", "c=biws,p=AA==", &SAID_LAST.replace("biws", "eSws"), &SAID_LAST.replace("k0,", "k1,")] {
        assert!(server.check(last).is_err(), "{last}");
    }
}

#[test]
fn a_proof_is_bound_to_the_certificate() {
    let offer = Offer { certificate: Some(vec![1, 2, 3]) };
    assert_eq!(offer.mechanisms(), [MECHANISM_PLUS, MECHANISM]);
    let error = begin(&offer, MECHANISM, "y,,n=,r=abc").unwrap_err();
    assert!(error.contains("thinks the server does not"), "{error}");
    begin(&offer, MECHANISM, "n,,n=,r=abc").unwrap();
    let (server, answer) = begin(&offer, MECHANISM_PLUS, "p=tls-server-end-point,,n=,r=abc").unwrap();
    let nonce = answer[2..].split(',').next().unwrap();
    let last = |certificate: &[u8]| {
        let bound = [b"p=tls-server-end-point,,", certificate].concat();
        format!("c={},r={nonce},p={}", BASE64.encode(bound), BASE64.encode([0; 32]))
    };
    assert_eq!(server.check(&last(&[1, 2, 3])), Ok(Checked::Wrong));
    assert_eq!(server.check(&last(&[1, 2, 4])), Err("SCRAM channel binding check failed"));
}
