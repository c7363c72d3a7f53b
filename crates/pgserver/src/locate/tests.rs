//! Folders with programs that only know their version.

use super::*;
use crate::scratch::Scratch;

fn program(folder: &Path, name: &str, script: &str) {
    fs::create_dir_all(folder).unwrap();
    // Written by a child: if we had the file open while another test forks, it could not be run for a moment.
    let written = std::process::Command::new("sh")
        .args(["-c", r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#, "sh"])
        .arg(folder.join(name))
        .arg(script)
        .status()
        .unwrap();
    assert!(written.success());
}

fn release(folder: &Path, version: &str) -> PathBuf {
    program(folder, "postgres", &format!("echo 'postgres (PostgreSQL) {version}'"));
    program(folder, "initdb", "exit 1");
    folder.to_owned()
}

fn search(folders: Vec<PathBuf>, major: Option<u16>) -> Search {
    Search { named: None, folders, major }
}

#[test]
fn versions_are_read() {
    let major = |line| Release::parse(line).map(|release| (release.major, release.text));
    assert_eq!(
        major("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"),
        Some((15, "15.14".to_owned()))
    );
    assert_eq!(major("postgres (PostgreSQL) 19beta1"), Some((19, "19beta1".to_owned())));
    for not in ["", "psql (PostgreSQL) 15.1", "postgres (PostgreSQL) ", "postgres (PostgreSQL) devel"] {
        assert_eq!(major(not), None, "{not:?}");
    }
}

#[test]
fn numbered_folders_come_newest_first_by_number() {
    let scratch = Scratch::new();
    for name in ["9.6", "14", "9", "100", "x", "15.2", ".pending"] {
        fs::create_dir(scratch.path().join(name)).unwrap();
    }
    let names: Vec<_> = numbered(scratch.path(), "", "bin")
        .iter()
        .map(|path| path.strip_prefix(scratch.path()).unwrap().display().to_string())
        .collect();
    assert_eq!(names, ["100/bin", "15.2/bin", "14/bin", "9.6/bin", "9/bin"]);
}

#[tokio::test]
async fn the_first_that_fits_is_taken() {
    let scratch = Scratch::new();
    let old = release(&scratch.path().join("old"), "13.9");
    let good = release(&scratch.path().join("good"), "15.3");
    let better = release(&scratch.path().join("better"), "17.1");
    let folders = vec![scratch.path().join("nothing"), old, good.clone(), better.clone()];
    let found = search(folders.clone(), None).run(&Account::Own).await.unwrap();
    assert_eq!((found.folder, found.release.text.as_str()), (good, "15.3"));
    let found = search(folders, Some(17)).run(&Account::Own).await.unwrap();
    assert_eq!(found.folder, better);
}

#[tokio::test]
async fn pg_config_leads_to_the_server() {
    let scratch = Scratch::new();
    let server = release(&scratch.path().join("lib/bin"), "16.2");
    let path = scratch.path().join("usr-bin");
    program(&path, "pg_config", &format!("[ \"$1\" = --bindir ] && echo {}", server.display()));
    let found = search(vec![path], None).run(&Account::Own).await.unwrap();
    assert_eq!(found.folder, server);
}

#[tokio::test]
async fn what_was_wrong_is_told() {
    let scratch = Scratch::new();
    let at = |name: &str| scratch.path().join(name);
    release(&at("old"), "13.9");
    release(&at("new"), "19beta1");
    release(&at("other"), "16.0");
    program(&at("half"), "postgres", "echo 'postgres (PostgreSQL) 15.1'");
    release(&at("odd"), "");
    program(&at("odd"), "postgres", "echo hello");
    release(&at("dead"), "");
    program(&at("dead"), "postgres", "echo 'libfoo.so is missing' >&2; exit 127");
    fs::create_dir(at("empty")).unwrap();

    for (folder, expected) in [
        ("old", "--pg-bin DIR/old cannot be used: PostgreSQL 13.9 is too old, 14 to 18 is needed"),
        (
            "new",
            "--pg-bin DIR/new cannot be used: PostgreSQL 19beta1 is not supported yet, 14 to 18 is needed",
        ),
        (
            "other",
            "--pg-bin DIR/other does not fit: the cluster in this data folder was made by another release, \
             and it is PostgreSQL 16.0",
        ),
        ("half", "--pg-bin DIR/half cannot be used: there is `postgres` but no `initdb`"),
        (
            "odd",
            "--pg-bin DIR/odd cannot be used: `postgres` does not run here: `postgres --version` says \"hello\"",
        ),
        (
            "dead",
            "--pg-bin DIR/dead cannot be used: `postgres` does not run here: it ended with exit status: 127 and said: \
             libfoo.so is missing",
        ),
        ("empty", "--pg-bin DIR/empty cannot be used: there is no program `postgres`"),
    ] {
        let named = Search { named: Some((at(folder), "--pg-bin")), folders: Vec::new(), major: Some(15) };
        let error = named.run(&Account::Own).await.unwrap_err();
        assert_eq!(error.to_string().replace(&scratch.path().display().to_string(), "DIR"), expected);
    }

    let error = search(vec![at("empty"), at("old")], None).run(&Account::Own).await.unwrap_err().to_string();
    let error = error.replace(&scratch.path().display().to_string(), "DIR");
    let lines: Vec<&str> = error.lines().collect();
    assert_eq!(lines[0], "no PostgreSQL 14 to 18 found");
    assert_eq!(lines[1], "  DIR/old: PostgreSQL 13.9 is too old, 14 to 18 is needed");
    assert!(lines[2].contains("apt-get install postgresql;") && lines[2].contains("--pg-bin"), "{error}");

    let error = search(vec![at("other")], Some(15)).run(&Account::Own).await.unwrap_err().to_string();
    assert!(error.contains("no PostgreSQL 15 found") && error.contains("postgresql-15;"), "{error}");
}
