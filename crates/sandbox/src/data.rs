//! What is stored, on disk: an embedded database that survives crashes.
//!
//! Each object is one key, so that the file does not grow with history. The revision never goes back: also after a
//! kill, when clients may have seen revisions that did not reach the disk.

use std::fs::{DirBuilder, OpenOptions};
use std::io::ErrorKind;
#[cfg(unix)]
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use kiln_apiserver::Record;
use kiln_certificates::Pair;
use kiln_value::{Str, Value, json, value};
use redb::{Database, DatabaseError, ReadableDatabase as _, ReadableTable as _, TableDefinition};

use crate::StartError;
use crate::journal::{Batch, JournalKey, Storage};

const OBJECTS: TableDefinition<'_, &str, &str> = TableDefinition::new("objects");
const META: TableDefinition<'_, &str, &str> = TableDefinition::new("meta");
/// Exists while nothing has been written since a clean shutdown.
const ENDED: &str = "ended";
/// How far the revision goes on after a kill: further than writes get between two commits.
const AFTER_KILL: u64 = 1_000_000;

/// The certificates of a sandbox.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) authority: Pair,
    pub(crate) serving: Pair,
}

/// What was on disk.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) records: Vec<Record>,
    pub(crate) token: Option<String>,
    pub(crate) signing_key: Option<String>,
    pub(crate) certificates: Option<Identity>,
}

/// The database.
#[derive(Debug)]
pub(crate) struct Data {
    database: Database,
}

fn failed(what: &str, error: impl std::fmt::Display) -> String {
    format!("cannot {what} the data: {error}")
}

fn text_of((group, plural, namespace, name): &JournalKey) -> String {
    format!("{group}\0{plural}\0{namespace}\0{name}")
}

impl Data {
    /// Opens a directory, and reads what is in it. No other user may read these files: it holds Secrets.
    pub(crate) fn open(directory: &Path) -> Result<(Self, Kept), StartError> {
        let shown = directory.display();
        let wrong = |message: String, hint: &str| StartError { message, hint: hint.to_owned() };
        if directory.exists() && !directory.is_dir() {
            return Err(wrong(
                format!("{shown} is not a directory"),
                "give --data a directory, or a name that is not taken",
            ));
        }
        let denied = |verb: &str, error: &std::io::Error| match error.kind() {
            ErrorKind::PermissionDenied => wrong(
                format!("cannot {verb} {shown}: permission denied"),
                "give --data a directory that you may write to",
            ),
            _ => wrong(format!("cannot {verb} {shown}: {error}"), "choose another --data"),
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        builder.mode(0o700);
        builder.create(directory).map_err(|error| denied("make the directory", &error))?;
        let file = directory.join("objects.redb");
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true);
        #[cfg(unix)]
        options.mode(0o600);
        options.open(&file).map_err(|error| denied("write to the directory", &error))?;
        let database = Database::create(&file).map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => wrong(
                format!("the data in {shown} is in use by another process"),
                "stop the other `kiln up`, or choose another --data",
            ),
            error => wrong(
                format!("{} cannot be read as the data of a sandbox: {error}", file.display()),
                "choose another --data, or delete the file to start over",
            ),
        })?;
        let kept = read(&database).map_err(|message| {
            wrong(message, "choose another --data, or start over with an empty one")
        })?;
        // The names of new files have to last, too. Windows has no such call for directories.
        #[cfg(unix)]
        std::fs::File::open(directory)
            .and_then(|directory| directory.sync_all())
            .map_err(|error| denied("write to the directory", &error))?;
        Ok((Data { database }, kept))
    }

    /// Keeps who the sandbox is, so that kubeconfigs and tokens stay good.
    pub(crate) fn keep_identity(
        &self,
        token: &str,
        signing_key: &str,
        identity: &Identity,
    ) -> Result<(), String> {
        let pair = |pair: &Pair| value!({"certificates": (pair.certificates.as_str()), "key": (pair.key.as_str())});
        let mut certificates = Value::map();
        let _ = certificates.set(["authority"], pair(&identity.authority));
        let _ = certificates.set(["serving"], pair(&identity.serving));
        let certificates = json::to_string(&certificates);
        let wrong = |error: redb::Error| failed("write", error);
        let transaction = self.database.begin_write().map_err(|error| wrong(error.into()))?;
        {
            let mut meta = transaction.open_table(META).map_err(|error| wrong(error.into()))?;
            for (name, text) in
                [("token", token), ("signing-key", signing_key), ("certificates", &certificates)]
            {
                meta.insert(name, text).map_err(|error| wrong(error.into()))?;
            }
        }
        transaction.commit().map_err(|error| wrong(error.into()))
    }
}

impl Storage for Data {
    fn commit(&mut self, batch: &Batch) -> Result<(), String> {
        let wrong = |error: redb::Error| failed("write", error);
        let transaction = self.database.begin_write().map_err(|error| wrong(error.into()))?;
        {
            let mut objects =
                transaction.open_table(OBJECTS).map_err(|error| wrong(error.into()))?;
            for (key, object) in &batch.objects {
                let key = text_of(key);
                let done = match object {
                    Some(object) => {
                        objects.insert(key.as_str(), json::to_string(object).as_str()).map(drop)
                    }
                    None => objects.remove(key.as_str()).map(drop),
                };
                done.map_err(|error| wrong(error.into()))?;
            }
            let mut meta = transaction.open_table(META).map_err(|error| wrong(error.into()))?;
            let revision = batch.revision.to_string();
            meta.insert("revision", revision.as_str()).map_err(|error| wrong(error.into()))?;
            meta.remove(ENDED).map_err(|error| wrong(error.into()))?;
        }
        // By default, redb waits until all of it is on disk.
        transaction.commit().map_err(|error| wrong(error.into()))
    }

    fn close(&mut self) -> Result<(), String> {
        let wrong = |error: redb::Error| failed("write", error);
        let transaction = self.database.begin_write().map_err(|error| wrong(error.into()))?;
        {
            let mut meta = transaction.open_table(META).map_err(|error| wrong(error.into()))?;
            meta.insert(ENDED, "yes").map_err(|error| wrong(error.into()))?;
        }
        transaction.commit().map_err(|error| wrong(error.into()))
    }
}

fn read(database: &Database) -> Result<Kept, String> {
    let wrong = |error: redb::Error| failed("read", error);
    let mut kept = Kept::default();
    let transaction = database.begin_read().map_err(|error| wrong(error.into()))?;
    let mut revision = 0;
    if let Ok(meta) = transaction.open_table(META) {
        let text = |name: &str| meta.get(name).ok().flatten().map(|text| text.value().to_owned());
        revision = text("revision").and_then(|text| text.parse().ok()).unwrap_or(0);
        if text(ENDED).is_none() {
            revision += AFTER_KILL;
        }
        kept.token = text("token");
        kept.signing_key = text("signing-key");
        let certificates = text("certificates").and_then(|text| json::parse(&text).ok());
        kept.certificates = certificates.and_then(|value| {
            let pair = |name: &str| {
                let text = |field: &str| value.str_at([name, field]).map(str::to_owned);
                Some(Pair { certificates: text("certificates")?, key: text("key")? })
            };
            Some(Identity { authority: pair("authority")?, serving: pair("serving")? })
        });
    }
    let Ok(objects) = transaction.open_table(OBJECTS) else { return Ok(kept) };
    for entry in objects.iter().map_err(|error| wrong(error.into()))? {
        let (key, text) = entry.map_err(|error| wrong(error.into()))?;
        let object = json::parse(text.value()).map_err(|error| failed("understand", error))?;
        // Of the parts of a key, only a name ever held what separates them.
        let parts: Vec<&str> = key.value().splitn(4, '\0').collect();
        let [group, plural, namespace, name] = parts.as_slice() else {
            let why = format!("{:?} is not the key of an object", key.value());
            return Err(failed("understand", why));
        };
        kept.records.push(Record {
            group: Str::new(group),
            plural: Str::new(plural),
            namespace: Str::new(namespace),
            name: Str::new(name),
            object: Some(object),
            revision,
        });
    }
    Ok(kept)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(directory: &Path, key: &str) {
        let (data, _) = Data::open(directory).unwrap();
        let transaction = data.database.begin_write().unwrap();
        {
            let mut objects = transaction.open_table(OBJECTS).unwrap();
            objects.insert(key, r#"{"metadata":{"name":"a"}}"#).unwrap();
        }
        transaction.commit().unwrap();
    }

    #[test]
    fn nothing_that_was_written_is_passed_over() {
        let directory = tempfile::tempdir().unwrap();
        let group = "rbac.authorization.k8s.io";
        written(directory.path(), &format!("{group}\0clusterroles\0\0a\0b"));
        let (data, kept) = Data::open(directory.path()).unwrap();
        let names: Vec<&str> = kept.records.iter().map(|record| record.name.as_str()).collect();
        assert_eq!(names, ["a\0b"], "a name that was once taken");
        drop(data);
        written(directory.path(), "configmaps\0a");
        let error = Data::open(directory.path()).unwrap_err();
        assert_eq!(
            error.message,
            r#"cannot understand the data: "configmaps\0a" is not the key of an object"#
        );
    }
}
