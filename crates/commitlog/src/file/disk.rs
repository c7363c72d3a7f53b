//! The calls of the operating system that the log's promises rest on, behind a trait so that tests can make them slow
//! or let them fail.

use std::fs::File;
use std::io::{self, IoSlice};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// The calls that the writer makes.
pub(super) trait Disk: Send {
    /// Writes some of `slices` at `offset`; returns the number of bytes.
    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize>;
    /// Returns when everything written to the file is on the disk.
    fn sync(&mut self, file: &File) -> io::Result<()>;
    /// Reserves space up to `len_bytes`, which reads as zero.
    fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()>;
}

/// The disk itself.
pub(super) struct RealDisk;

impl Disk for RealDisk {
    fn write(&mut self, file: &File, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        Ok(rustix::io::retry_on_intr(|| rustix::io::pwritev(file, slices, offset))?)
    }

    fn sync(&mut self, file: &File) -> io::Result<()> {
        // No retry: a synchronisation that failed once may report success the next time without having done it.
        file.sync_data()
    }

    fn allocate(&mut self, file: &File, len_bytes: u64) -> io::Result<()> {
        let mode = rustix::fs::FallocateFlags::empty();
        match rustix::io::retry_on_intr(|| rustix::fs::fallocate(file, mode, 0, len_bytes)) {
            // Some file systems cannot reserve; writing zeros is the same, only slower.
            Err(rustix::io::Errno::OPNOTSUPP) => write_zeros(file, len_bytes),
            other => Ok(other?),
        }
    }
}

fn write_zeros(file: &File, len_bytes: u64) -> io::Result<()> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let mut at = file.metadata()?.len();
    while at < len_bytes {
        let n = ZEROS.len().min(usize::try_from(len_bytes - at).unwrap_or(usize::MAX));
        file.write_all_at(&ZEROS[..n], at)?;
        at += n as u64;
    }
    Ok(())
}

/// The most slices that one call takes (`IOV_MAX`).
const SLICES_LIMIT: usize = 1024;

/// Writes all of `slices`, in as few calls as the system allows.
pub(super) fn write_all(
    disk: &mut dyn Disk,
    file: &File,
    mut slices: &mut [IoSlice<'_>],
    mut offset: u64,
) -> io::Result<()> {
    while !slices.is_empty() {
        let now = slices.len().min(SLICES_LIMIT);
        let written = disk.write(file, &slices[..now], offset)?;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        offset += written as u64;
        IoSlice::advance_slices(&mut slices, written);
    }
    Ok(())
}

/// Makes the names in a folder durable.
pub(super) fn sync_folder(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}
