//! The register: what one leader has changed the next one finds, and a superseded one changes nothing.

use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::fake::{Fake, Faults};
use super::{claim, etcd_of, gateway};
use crate::etcd::{EtcdKeys, EtcdRegister};
use crate::file::tests::Folder;
use crate::register::{ENTRY_BYTES_MAX, Entry, Register, RegisterError};
use crate::{FileRegister, StoreError};

const PATIENCE: Duration = Duration::from_millis(100);
/// No row of losses lasts so long.
const LONG: Duration = Duration::from_secs(30);

fn open(etcd: &EtcdKeys, node: &str, data: &Path) -> EtcdRegister {
    open_patiently(etcd, node, data, PATIENCE)
}

fn open_patiently(etcd: &EtcdKeys, node: &str, data: &Path, patience: Duration) -> EtcdRegister {
    let files = FileRegister::in_folder(data);
    let members = EtcdRegister::peek(etcd, &Entry::Members, patience).unwrap();
    EtcdRegister::open(etcd.clone(), claim(etcd, node), files, members.as_deref(), patience).unwrap()
}

fn quarantine(replica: u32) -> Entry {
    Entry::Quarantine(format!("replica-{replica}"))
}

/// One leader after the other, on any etcd.
fn a_successor_finds_what_was_changed(etcd: &EtcdKeys) {
    let (of_a, of_b) = (Folder::default(), Folder::default());
    let files = FileRegister::in_folder(of_a.path());
    let before = [(Entry::Seal, "s"), (quarantine(2), "it differs"), (Entry::Members, "m")];
    for (entry, value) in &before {
        files.change(entry, Some(value.as_bytes())).unwrap();
    }
    assert_eq!(EtcdRegister::peek(etcd, &Entry::Members, PATIENCE).unwrap(), None);
    let first = open(etcd, "a", of_a.path());
    for (entry, value) in &before {
        assert_eq!(first.read(entry).unwrap().unwrap(), value.as_bytes(), "{entry}");
    }
    let parked = Entry::Parked("replica-3".into());
    for (entry, value) in [(Entry::Placement, Some("p")), (quarantine(2), None), (parked.clone(), Some("7"))]
    {
        first.change(&entry, value.map(str::as_bytes)).unwrap();
    }
    // A folder of its own, with other files: etcd is right.
    FileRegister::in_folder(of_b.path()).change(&Entry::Seal, Some(b"another")).unwrap();
    let second = open(etcd, "b", of_b.path());
    let expected = [
        (Entry::Seal, Some("s")),
        (Entry::Members, Some("m")),
        (Entry::Placement, Some("p")),
        (parked.clone(), Some("7")),
        (quarantine(2), None),
        (Entry::Usage, None),
    ];
    for (entry, value) in &expected {
        assert_eq!(second.read(entry).unwrap().as_deref(), value.map(str::as_bytes), "{entry}");
    }
    // The files are the copy of what it has, from the start and after a change.
    second.change(&Entry::Usage, Some(b"u")).unwrap();
    second.change(&parked, None).unwrap();
    let copy = FileRegister::in_folder(of_b.path());
    let mut copied = copy.entries().unwrap();
    copied.sort();
    assert_eq!(copied, [Entry::Members, Entry::Seal, Entry::Placement, Entry::Usage]);
    assert_eq!(copy.read(&Entry::Seal).unwrap().unwrap(), b"s");
    // The first one is superseded.
    let refused = first.change(&Entry::Placement, Some(b"late")).unwrap_err();
    assert!(matches!(&refused, RegisterError::Fenced { node, .. } if node == "b"), "{refused}");
    assert_eq!(EtcdRegister::peek(etcd, &Entry::Placement, PATIENCE).unwrap().unwrap(), b"p");
}

#[test]
fn a_successor_finds_what_was_changed_in_memory() {
    a_successor_finds_what_was_changed(&etcd_of(Arc::<Fake>::default()));
}

#[test]
fn a_successor_finds_what_was_changed_on_etcd() {
    let server = etcdserver::Etcd::start(1);
    a_successor_finds_what_was_changed(&etcd_of(gateway(&server.urls())));
}

/// Requests and answers get lost, and messages of the past arrive: also those that a former leader has sent.
#[test]
fn lost_and_late_messages_change_nothing_that_was_changed_since() {
    let faults = Faults { lost_requests: 200, lost_answers: 200, late_duplicates: 300 };
    for seed in 1..=8 {
        let (fake, folder) = (Arc::new(Fake::with(seed, Faults::default(), None)), Folder::default());
        let etcd = etcd_of(Arc::clone(&fake) as Arc<_>);
        let (mut leader, mut last) = (open_patiently(&etcd, "a", folder.path(), LONG), None);
        fake.set_faults(faults);
        for step in 0..12_u32 {
            if step == 6 {
                fake.set_faults(Faults::default());
                leader = open_patiently(&etcd, "b", folder.path(), LONG);
                fake.set_faults(faults);
            }
            // Created and removed again and again: a late message would bring it back.
            last = (step % 2 == 0).then(|| step.to_string().into_bytes());
            leader.change(&quarantine(1), last.as_deref()).unwrap();
            let found = EtcdRegister::peek(&etcd, &quarantine(1), LONG).unwrap();
            assert_eq!(found, last, "seed {seed}, step {step}");
        }
        fake.set_faults(Faults::default());
        for _ in 0..50 {
            let found = EtcdRegister::peek(&etcd, &quarantine(1), LONG).unwrap();
            assert_eq!(found, last, "seed {seed}");
        }
    }
}

#[test]
fn while_etcd_is_away_nothing_changes() {
    let (fake, folder) = (Arc::<Fake>::default(), Folder::default());
    let etcd = etcd_of(Arc::clone(&fake) as Arc<_>);
    let register = open(&etcd, "a", folder.path());
    fake.set_away(true);
    let refused = register.change(&Entry::Placement, Some(b"p")).unwrap_err();
    assert!(matches!(refused, RegisterError::Store(StoreError::Unreachable { .. })), "{refused}");
    fake.set_away(false);
    assert_eq!(fake.waits()[0], Duration::from_millis(500), "what etcd has forgotten is asked again soon");
    assert_eq!(register.read(&Entry::Placement).unwrap(), None);
    assert_eq!(fake.keys("placement"), Vec::<String>::new());
    let long = vec![0; ENTRY_BYTES_MAX + 1];
    let refused = register.change(&Entry::Placement, Some(&long)).unwrap_err();
    assert!(matches!(refused, RegisterError::TooLarge { .. }), "{refused}");
}

#[test]
fn a_change_that_was_sent_waits_until_it_is_answered() {
    let (fake, folder) = (Arc::<Fake>::default(), Folder::default());
    let etcd = etcd_of(Arc::clone(&fake) as Arc<_>);
    let register = Arc::new(open(&etcd, "a", folder.path()));
    // Every request is lost but those that only read.
    fake.lose_writes(true);
    let waiting = Arc::clone(&register);
    let waiting = thread::spawn(move || waiting.change(&Entry::Placement, Some(b"p")));
    thread::sleep(PATIENCE * 3);
    assert!(!waiting.is_finished(), "it was given up");
    fake.lose_writes(false);
    waiting.join().unwrap().unwrap();
    // A node that stops waits no longer.
    fake.lose_writes(true);
    register.close();
    let refused = register.change(&Entry::Placement, Some(b"q")).unwrap_err();
    assert!(matches!(refused, RegisterError::InDoubt { .. }), "{refused}");
}

#[test]
fn a_register_that_was_not_begun_to_the_end_is_begun_again() {
    let (fake, folder) = (Arc::<Fake>::default(), Folder::default());
    let etcd = etcd_of(Arc::clone(&fake) as Arc<_>);
    // A node has died before it wrote `member`.
    fake.set("/onecopy/main/seal", b"of a start that failed");
    fake.set("/onecopy/main/quarantine/replica-9", b"left");
    let files = FileRegister::in_folder(folder.path());
    files.change(&Entry::Seal, Some(b"s")).unwrap();
    files.change(&Entry::Members, Some(b"m")).unwrap();
    // One of the files cannot be read.
    let damaged = folder.path().join("log/quarantine-replica-1");
    std::fs::create_dir_all(&damaged).unwrap();
    assert!(EtcdRegister::open(etcd.clone(), claim(&etcd, "a"), files, None, PATIENCE).is_err());
    assert_eq!(
        EtcdRegister::peek(&etcd, &Entry::Members, PATIENCE).unwrap(),
        None,
        "`member` is the last one"
    );
    std::fs::remove_dir(&damaged).unwrap();
    let register = open(&etcd, "a", folder.path());
    assert_eq!(register.read(&Entry::Seal).unwrap().unwrap(), b"s");
    assert_eq!(register.read(&quarantine(9)).unwrap(), None);
    assert_eq!(fake.keys("quarantine"), Vec::<String>::new());
}

#[test]
fn members_that_changed_before_the_claim_are_noticed() {
    let (fake, of_a, of_b) = (Arc::<Fake>::default(), Folder::default(), Folder::default());
    let etcd = etcd_of(Arc::clone(&fake) as Arc<_>);
    let files = FileRegister::in_folder(of_a.path());
    files.change(&Entry::Members, Some(b"m")).unwrap();
    let first = open(&etcd, "a", of_a.path());
    let peeked = EtcdRegister::peek(&etcd, &Entry::Members, PATIENCE).unwrap();
    first.change(&Entry::Members, Some(b"m, n")).unwrap();
    let late = |peeked: Option<&[u8]>| {
        let files = FileRegister::in_folder(of_b.path());
        EtcdRegister::open(etcd.clone(), claim(&etcd, "b"), files, peeked, PATIENCE)
    };
    for before in [None, peeked.as_deref()] {
        let refused = late(before).unwrap_err();
        assert!(matches!(refused, RegisterError::Outdated { entry: Entry::Members }), "{refused}");
    }
    assert_eq!(FileRegister::in_folder(of_b.path()).entries().unwrap(), []);
    assert!(late(Some(b"m, n")).is_ok());
}
