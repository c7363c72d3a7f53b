//! The output of a server, or of another program, in a file of bounded size.
//!
//! The server itself writes to the file, so it goes on when the node is gone. When the file is longer than the limit its
//! content moves to a second file and the first begins anew; a few lines written at that very moment are lost. So the
//! output takes twice the limit on disk at most, whatever clients do.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::process::Child;
use tokio::time::interval;

use super::initdb::last_lines;
use super::server::Ending;

/// Beyond this the file begins anew.
const LIMIT_BYTES: u64 = 32 * 1024 * 1024;
/// How much of the end is read for an error message.
const TAIL_BYTES: u64 = 8 * 1024;
/// How many lines of that are shown.
const TAIL_LINES: usize = 10;

/// Interval at which the size of the file is looked at.
const WATCH_EVERY: Duration = Duration::from_secs(30);

/// The file that a program writes to.
#[derive(Debug)]
pub struct Output {
    path: PathBuf,
    /// Where the output of the present process begins.
    begin: u64,
}

impl Output {
    /// The output in this file.
    pub fn new(path: PathBuf) -> Self {
        Self { path, begin: 0 }
    }

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for a new process, which appends to it.
    pub fn open(&mut self) -> io::Result<File> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(&self.path)?;
        self.begin = file.metadata()?.len();
        self.keep_within_bounds()?;
        Ok(file)
    }

    /// Begins the file anew when it is too long.
    pub fn keep_within_bounds(&mut self) -> io::Result<()> {
        if fs::metadata(&self.path)?.len() > LIMIT_BYTES {
            fs::copy(&self.path, self.path.with_extension("log.old"))?;
            OpenOptions::new().write(true).open(&self.path)?.set_len(0)?;
            self.begin = 0;
        }
        Ok(())
    }

    /// Waits until the process that writes here ends, and keeps the file within bounds meanwhile. `name` is for log lines.
    pub async fn until_end(&mut self, process: &mut Child, name: &str) -> Ending {
        let mut watch = interval(WATCH_EVERY);
        let status = loop {
            tokio::select! {
                status = process.wait() => break status.ok(),
                _ = watch.tick() => {
                    if let Err(error) = self.keep_within_bounds() {
                        tracing::warn!(name, %error, "cannot shorten the log of a process");
                    }
                }
            }
        };
        Ending { status, last_words: self.last_words() }
    }

    /// The last lines that the present process wrote.
    pub fn last_words(&self) -> String {
        let read = || -> io::Result<Vec<u8>> {
            let mut file = File::open(&self.path)?;
            let from = file.metadata()?.len().saturating_sub(TAIL_BYTES).max(self.begin);
            file.seek(SeekFrom::Start(from))?;
            let mut tail = Vec::new();
            file.take(TAIL_BYTES).read_to_end(&mut tail)?;
            Ok(tail)
        };
        match read() {
            Ok(tail) => last_lines(&String::from_utf8_lossy(&tail), TAIL_LINES),
            Err(error) => format!("  (cannot read {}: {error})", self.path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn only_the_words_of_the_present_process_are_told() {
        let scratch = Scratch::new();
        let mut output = Output::new(scratch.path().join("server-1.log"));
        writeln!(output.open().unwrap(), "of the first").unwrap();
        assert_eq!(output.last_words(), "  of the first");
        let mut second = output.open().unwrap();
        assert_eq!(output.last_words(), "");
        for line in 0..2000 {
            writeln!(second, "line {line}").unwrap();
        }
        let words = output.last_words();
        assert!(words.starts_with("  line 1990\n") && words.ends_with("\n  line 1999"), "{words}");
    }

    #[test]
    fn a_long_file_begins_anew_while_it_is_written() {
        let scratch = Scratch::new();
        let mut output = Output::new(scratch.path().join("server-1.log"));
        let mut writer = output.open().unwrap();
        writer.set_len(LIMIT_BYTES + 1).unwrap();
        output.keep_within_bounds().unwrap();
        writeln!(writer, "goes on").unwrap();
        assert_eq!(fs::read_to_string(output.path()).unwrap(), "goes on\n");
        assert_eq!(scratch.names(), ["server-1.log", "server-1.log.old"]);
        output.keep_within_bounds().unwrap();
        assert_eq!(output.last_words(), "  goes on");
    }
}
