//! Where fetched releases of PostgreSQL are kept. Programs in there are used whether or not this build can fetch more.

use std::env;
use std::path::PathBuf;

/// The folder of fetched releases, if this user has a place for one.
pub(crate) fn folder() -> Option<PathBuf> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/cache/onecopy/pg"));
    }
    absolute("XDG_CACHE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".cache")))
        .map(|cache| cache.join("onecopy/pg"))
}
