//! The file log as an engine. What may wait for the disk runs on the runtime's threads for blocking work.
//!
//! A future that is dropped early leaves that work to end by itself: a file that is being read is closed then, a file that is
//! being written is deleted.

use std::io;
use std::sync::Arc;

use cluster::ids::{Identity, Version};
use cluster::record::{Chunk, Record};
use tokio::runtime::Handle;
use tokio::task::{JoinError, spawn_blocking};

use super::FileLog;
use super::spill::{SpillFile, SpillFileReader, SpillFolder};
use crate::engine::{BoxFuture, InMemory, LogEngine, LogRefusal, Notices};
use crate::error::LogError;
use crate::spill::{SpillReader, SpillStore, SpillWriter};

impl LogEngine for FileLog {
    fn start(&self, notices: Notices) -> Result<(), LogError> {
        self.start_writer(notices)
    }

    fn append(&self, record: Arc<Record>) {
        self.shared.append(record);
    }

    fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    fn refusal(&self) -> Option<LogRefusal> {
        self.shared.space.is_full().then_some(LogRefusal::DiskFull)
    }

    fn durable(&self) -> Version {
        self.shared.durable()
    }

    fn first_retained(&self) -> Version {
        self.shared.first_retained()
    }

    fn read_from(
        &self,
        version: Version,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>> {
        Box::pin(async move {
            // A reader that follows the writer closely needs no thread.
            if let Some(records) = self.shared.read_from_memory(version, max_bytes)? {
                return Ok(records);
            }
            let shared = Arc::clone(&self.shared);
            blocking(move || shared.read_from(version, max_bytes)).await
        })
    }

    fn spills(&self) -> Arc<dyn SpillStore> {
        Arc::new(self.shared.spills.clone())
    }

    fn shrink(&self, upto: Version, max_bytes: u64) -> BoxFuture<'_, Result<Version, LogError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(blocking(move || shared.shrink(upto, max_bytes)))
    }

    fn bytes(&self) -> u64 {
        self.shared.bytes()
    }

    fn in_memory(&self) -> InMemory {
        self.shared.in_memory()
    }

    fn close(&self) {
        self.stop_writer();
    }
}

impl SpillStore for SpillFolder {
    fn create(&self, identity: Identity) -> BoxFuture<'_, io::Result<Box<dyn SpillWriter>>> {
        let folder = self.clone();
        Box::pin(async move {
            let file = blocking(move || folder.create_file(identity)).await?;
            Ok(Box::new(FileWriter(Some(file))) as Box<dyn SpillWriter>)
        })
    }

    fn remove(&self, identity: Identity) -> BoxFuture<'_, io::Result<()>> {
        let folder = self.clone();
        Box::pin(blocking(move || folder.remove_file(identity)))
    }

    fn open(&self, record: Arc<Record>) -> BoxFuture<'_, Result<Box<dyn SpillReader>, LogError>> {
        let folder = self.clone();
        Box::pin(async move {
            let reader = blocking(move || folder.open_file(&record)).await?;
            Ok(Box::new(FileReader(Some(reader))) as Box<dyn SpillReader>)
        })
    }
}

/// A file that grows; `None` after a failed or abandoned append, which has deleted it.
#[derive(Debug)]
struct FileWriter(Option<SpillFile>);

impl SpillWriter for FileWriter {
    fn append(&mut self, chunk: Chunk) -> BoxFuture<'_, io::Result<()>> {
        Box::pin(async move {
            let mut file = self.0.take().ok_or_else(deleted)?;
            self.0 = Some(blocking(move || file.append(&chunk).map(|()| file)).await?);
            Ok(())
        })
    }

    fn finish(mut self: Box<Self>) -> BoxFuture<'static, io::Result<()>> {
        Box::pin(async move {
            let file = self.0.take().ok_or_else(deleted)?;
            blocking(move || file.finish()).await
        })
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        // Deleting a large file takes a while.
        if let (Some(file), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(file));
        }
    }
}

/// A file that is read; `None` after a failed or abandoned reading.
#[derive(Debug)]
struct FileReader(Option<SpillFileReader>);

impl SpillReader for FileReader {
    fn next_chunk(&mut self) -> BoxFuture<'_, Result<Option<Chunk>, LogError>> {
        Box::pin(async move {
            let mut reader = self.0.take().ok_or_else(|| LogError::Interrupted { source: deleted() })?;
            let read = move || reader.next_chunk().map(|chunk| (reader, chunk));
            let (reader, chunk) = blocking(read).await?;
            self.0 = Some(reader);
            Ok(chunk)
        })
    }
}

fn deleted() -> io::Error {
    io::Error::other("the file of spilled rows was given up after an earlier failure")
}

/// Does what waits for the disk. It fails if the runtime ends before it has begun.
async fn blocking<T: Send + 'static, E: From<JoinError> + Send + 'static>(
    work: impl FnOnce() -> Result<T, E> + Send + 'static,
) -> Result<T, E> {
    spawn_blocking(work).await.unwrap_or_else(|error| Err(error.into()))
}
