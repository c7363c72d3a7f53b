//! Folders with all kinds of contents before, and their contents after.

use cluster::ids::ClusterId;

use super::*;
use crate::scratch::{Scratch, names};

const OWN: Account = Account::Own;

fn cluster(replicas: u16) -> Cluster {
    Cluster { id: ClusterId(0xabc), postgres: 15, numbers: (1..=replicas).collect() }
}

/// Files that pass for those of a server.
fn files(data: &Path, major: &str) {
    fs::create_dir_all(data).unwrap();
    fs::write(data.join("PG_VERSION"), format!("{major}\n")).unwrap();
}

async fn complete(path: &Path, replicas: u16) -> Folder {
    let mut folder = Folder::open(path, &OWN).await.unwrap();
    for number in 1..=replicas {
        files(&folder.begin(number).unwrap(), "15");
    }
    folder.complete(cluster(replicas)).unwrap();
    folder
}

async fn refusal(path: &Path) -> String {
    Folder::open(path, &OWN).await.unwrap_err().to_string()
}

#[tokio::test]
async fn a_cluster_is_found_again() {
    let scratch = Scratch::new();
    let path = scratch.path().join("a/b");
    let folder = complete(&path, 2).await;
    assert_eq!(folder.data(2), fs::canonicalize(&path).unwrap().join("replica-2"));
    drop(folder);
    assert_eq!(names(&path), ["lock", "onecopy.json", "replica-1", "replica-2"]);
    let again = Folder::open(&path, &OWN).await.unwrap();
    assert_eq!(again.cluster(), Some(&cluster(2)));
}

#[tokio::test]
async fn members_come_and_go_by_the_description() {
    let scratch = Scratch::new();
    let mut folder = complete(scratch.path(), 3).await;
    folder.set_numbers(vec![1, 3]).unwrap();
    // A crash before the server of number 2 was removed, and while number 4 was made.
    files(&scratch.path().join("replica-4.new"), "15");
    drop(folder);
    let mut folder = Folder::open(scratch.path(), &OWN).await.unwrap();
    assert_eq!(folder.cluster().unwrap().numbers, [1, 3]);
    assert_eq!(scratch.names(), ["lock", "onecopy.json", "replica-1", "replica-2", "replica-3"]);
    folder.remove_server(2).unwrap();
    folder.set_numbers(vec![1]).unwrap();
    folder.remove_server(3).unwrap();
    assert_eq!(scratch.names(), ["lock", "onecopy.json", "replica-1"]);
    drop(folder);
    assert_eq!(Folder::open(scratch.path(), &OWN).await.unwrap().cluster(), Some(&cluster(1)));
}

#[tokio::test]
async fn a_folder_without_a_cluster_is_left_as_it_was() {
    let scratch = Scratch::new();
    let folder = Folder::open(&scratch.path().join("new/deep"), &OWN).await.unwrap();
    files(&folder.begin(1).unwrap(), "15");
    drop(folder);
    assert_eq!(scratch.names(), [""; 0]);

    let old = scratch.path().join("old");
    fs::create_dir(&old).unwrap();
    drop(Folder::open(&old, &OWN).await.unwrap());
    assert_eq!((scratch.names(), names(&old)), (vec!["old".to_owned()], Vec::new()));
}

#[tokio::test]
async fn what_a_crash_left_is_removed_or_finished() {
    let scratch = Scratch::new();
    // Not complete: no description in `creating`.
    let half = scratch.path().join("half");
    files(&half.join("creating/replica-1"), "15");
    fs::write(half.join("lock"), "1\n").unwrap();
    let folder = Folder::open(&half, &OWN).await.unwrap();
    assert_eq!((folder.cluster(), names(&half)), (None, vec!["lock".to_owned()]));
    drop(folder);

    // Complete, with one of two servers moved.
    let moved = scratch.path().join("moved");
    drop(complete(&moved, 2).await);
    fs::create_dir(moved.join("creating")).unwrap();
    for name in ["replica-2", "onecopy.json"] {
        fs::rename(moved.join(name), moved.join("creating").join(name)).unwrap();
    }
    let folder = Folder::open(&moved, &OWN).await.unwrap();
    assert_eq!(folder.cluster(), Some(&cluster(2)));
    assert_eq!(names(&moved), ["lock", "onecopy.json", "replica-1", "replica-2"]);
}

#[tokio::test]
async fn a_folder_of_something_else_is_not_touched() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    fs::create_dir(at("photos")).unwrap();
    fs::write(at("photos/cat.jpg"), "").unwrap();
    fs::create_dir(at("moved")).unwrap();
    fs::create_dir(at("moved/replica-1")).unwrap();
    fs::write(at("file"), "").unwrap();
    let told = |error: String| error.replace(&scratch.path().display().to_string(), "DIR");

    let error = told(refusal(&at("photos")).await);
    assert!(
        error.starts_with("DIR/photos is not a data folder of Onecopy") && error.contains("cat.jpg"),
        "{error}"
    );
    assert_eq!(names(&at("photos")), ["cat.jpg"]);
    let error = told(refusal(&at("moved")).await);
    assert!(error.contains("not empty (it has \"replica-1\")"), "{error}");
    assert_eq!(names(&at("moved")), ["replica-1"]);
    let error = told(refusal(&at("file")).await);
    assert!(error.starts_with("DIR/file is a file where a data folder is wanted"), "{error}");
    assert!(told(refusal(&at("file/below")).await).starts_with("DIR/file/below is a file where"));
}

#[tokio::test]
async fn a_folder_in_use_names_the_process() {
    let scratch = Scratch::new();
    let held = complete(scratch.path(), 1).await;
    let error = refusal(scratch.path()).await;
    assert!(error.contains(&format!("is in use by process {};", std::process::id())), "{error}");
    drop(held);
    Folder::open(scratch.path(), &OWN).await.unwrap();
}

#[tokio::test]
async fn a_description_that_we_cannot_take_is_told() {
    let scratch = Scratch::new();
    drop(complete(scratch.path(), 1).await);
    for (text, expected) in [
        (r#"{"format": 3, "shape": "new"}"#, "has format 3, and this release of Onecopy knows format 2"),
        ("", "onecopy.json is damaged: EOF"),
        (r#"{"format": 1}"#, "is damaged: missing field `cluster`"),
        (r#"{"format":1,"cluster":"xyz","postgres":15,"replicas":1}"#, "\"xyz\" is no cluster id"),
        (r#"{"format":1,"cluster":"1","postgres":15,"replicas":0}"#, "is damaged: 0 replicas"),
        (r#"{"format":1,"cluster":"1","postgres":15,"replicas":17}"#, "is damaged: 17 replicas"),
        (
            r#"{"format":2,"cluster":"1","postgres":15,"replicas":2,"members":[2,1]}"#,
            "is damaged: 2 replicas",
        ),
    ] {
        fs::write(scratch.path().join("onecopy.json"), text).unwrap();
        let error = refusal(scratch.path()).await;
        assert!(error.contains(expected), "{text}: {error}");
        assert_eq!(scratch.names(), ["lock", "onecopy.json", "replica-1"]);
    }
}

#[test]
fn errors_of_the_system_say_what_helps() {
    for (kind, hint) in [
        (io::ErrorKind::PermissionDenied, "run onecopy as the user who owns that folder"),
        (io::ErrorKind::ReadOnlyFilesystem, "name another one with --data DIR"),
        (io::ErrorKind::StorageFull, "make room on that disk"),
    ] {
        let error = FolderError::io("create", Path::new("/d"))(kind.into()).to_string();
        assert!(error.starts_with("cannot create /d: ") && error.contains(hint), "{error}");
    }
    let full = FolderError::NoSpace { path: "/d".into(), needed_bytes: 288 << 20, free_bytes: 5 << 20 };
    assert_eq!(full.to_string(), "the disk of /d is too full: new servers need 288 MB, and 5 MB are free");
}

#[tokio::test]
async fn room_on_the_disk_is_checked() {
    let scratch = Scratch::new();
    let folder = Folder::open(scratch.path(), &OWN).await.unwrap();
    folder.check_space(0).unwrap();
    // /proc has no room at all.
    let on_proc = Folder {
        path: "/proc".into(),
        cluster: None,
        bare: false,
        made: Vec::new(),
        account: OWN,
        _lock: File::open("/proc/self/stat").unwrap(),
    };
    assert!(matches!(on_proc.check_space(1), Err(FolderError::NoSpace { free_bytes: 0, .. })));
}

#[test]
fn a_data_folder_is_whole_or_it_is_told_what_it_is() {
    let scratch = Scratch::new();
    let data = scratch.path().join("replica-1");
    let found = || format!("{:?}", examine(&data, 15).unwrap());
    assert_eq!(found(), "Some(Missing)");
    fs::create_dir(&data).unwrap();
    assert_eq!(found(), "Some(NotWhole)");
    fs::write(data.join("letters.txt"), "dear").unwrap();
    assert_eq!(found(), "Some(Foreign { example: \"letters.txt\" })");
    fs::create_dir(data.join("base")).unwrap();
    assert_eq!(found(), "Some(NotWhole)");
    files(&data, "14");
    assert_eq!(found(), "Some(OtherRelease { found: 14, expected: 15 })");
    files(&data, "");
    assert_eq!(found(), "Some(NotWhole)");
    files(&data, "15");
    assert_eq!(found(), "None");
}

#[tokio::test]
async fn other_accounts_cannot_read_what_the_folder_says() {
    let scratch = Scratch::new();
    let description = scratch.path().join("onecopy.json");
    let mode = || fs::metadata(&description).unwrap().permissions().mode() & 0o777;
    drop(complete(scratch.path(), 1).await);
    assert_eq!(mode(), 0o600);
    fs::set_permissions(&description, fs::Permissions::from_mode(0o644)).unwrap();
    drop(Folder::open(scratch.path(), &OWN).await.unwrap());
    assert_eq!(mode(), 0o600, "an older version made it readable");
}
