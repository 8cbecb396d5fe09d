//! Puts what the server writes on disk, before clients see it.
//!
//! Records are taken from the server and committed under one lock: they reach the disk in the order in which they were
//! made, and a writer that has waited for the lock knows that everything up to its own write is there. Many who wait
//! share one commit, made by the first of them.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use kiln_apiserver::{Record, Server};
use kiln_value::{Str, Value};

/// Group, plural name, namespace and name of an object.
pub(crate) type JournalKey = (Str, Str, Str, Str);

/// What is to be on disk: the last state of each object that changed; none when it is gone.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    pub(crate) objects: BTreeMap<JournalKey, Option<Value>>,
    /// The revision of the last write.
    pub(crate) revision: u64,
}

impl Batch {
    fn add(&mut self, record: Record) {
        self.revision = self.revision.max(record.revision);
        let key = (record.group, record.plural, record.namespace, record.name);
        self.objects.insert(key, record.object);
    }
}

/// Where batches go.
pub(crate) trait Storage: Send {
    /// Keeps a batch, all of it or nothing. When it returns, the batch survives the end of the machine.
    fn commit(&mut self, batch: &Batch) -> Result<(), String>;

    /// Nothing comes after this.
    fn close(&mut self) -> Result<(), String> {
        Ok(())
    }
}

/// The way to the disk.
pub(crate) struct Journal {
    writer: Mutex<JournalWriter>,
}

struct JournalWriter {
    /// None when it is closed.
    storage: Option<Box<dyn Storage>>,
    /// What was taken from the server and could not be kept yet: the next writer tries again, so that no client is
    /// told of something that a failure before them has lost.
    pending: Batch,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Journal {
    pub(crate) fn new(storage: Box<dyn Storage>) -> Self {
        let writer = JournalWriter { storage: Some(storage), pending: Batch::default() };
        Journal { writer: Mutex::new(writer) }
    }

    fn writer(&self) -> MutexGuard<'_, JournalWriter> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps all that was written so far. It waits for the disk.
    pub(crate) fn keep(&self, server: &Server) -> Result<(), String> {
        self.writer().commit(server.take_records())
    }

    /// Keeps all that is there, for a server that begins.
    pub(crate) fn keep_all(&self, server: &Server) -> Result<(), String> {
        let mut writer = self.writer();
        let mut records = server.take_records();
        records.extend(server.snapshot());
        writer.commit(records)
    }

    /// Keeps what is left and releases the disk: later writers get an error that it is not kept.
    pub(crate) fn close(&self, server: &Server) -> Result<(), String> {
        let mut writer = self.writer();
        writer.commit(server.take_records())?;
        writer.storage.take().map_or(Ok(()), |mut storage| storage.close())
    }
}

impl JournalWriter {
    fn commit(&mut self, records: Vec<Record>) -> Result<(), String> {
        records.into_iter().for_each(|record| self.pending.add(record));
        if self.pending.objects.is_empty() {
            return Ok(());
        }
        let Some(storage) = &mut self.storage else {
            return Err("cannot write the data: the sandbox has stopped".to_owned());
        };
        storage.commit(&self.pending)?;
        self.pending = Batch::default();
        Ok(())
    }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
mod tests;
