//! Writers at the same time, on storage that fails: what was acknowledged is stored.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use kiln_apiserver::ApiRequest;
use kiln_testkit::server;
use kiln_value::{json, value};

use super::*;
use crate::data::Data;

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// What a disk does with a commit.
#[derive(Clone, Copy, PartialEq)]
enum Fate {
    Kept,
    Fails,
}

/// A disk in memory.
struct Disk {
    held: Arc<Mutex<Batch>>,
    fate: Box<dyn FnMut() -> Fate + Send>,
}

impl Storage for Disk {
    fn commit(&mut self, batch: &Batch) -> Result<(), String> {
        // Others get their turn, as they do while a disk works.
        (0..3).for_each(|_| std::thread::yield_now());
        if (self.fate)() == Fate::Fails {
            return Err("the disk fails".to_owned());
        }
        let mut held = self.held.lock().unwrap();
        assert!(batch.revision > held.revision, "{} after {}", batch.revision, held.revision);
        held.revision = batch.revision;
        held.objects
            .extend(batch.objects.iter().map(|(key, object)| (key.clone(), object.clone())));
        Ok(())
    }
}

fn serving() -> Server {
    let server = server::start();
    server.keep_records();
    server
}

fn send(server: &Server, method: &str, path: &str, body: &Value) -> u16 {
    let request =
        ApiRequest::new(method, path).with_body("application/json", json::to_string(body));
    server.call(&request).status
}

fn config_map(name: &str, step: usize) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"step": (step.to_string())}})
}

/// One writer and its object: each step writes it anew, every third one deletes it. The last step that was acknowledged
/// of as done, and the last that it tried.
fn write(server: &Server, journal: &Journal, name: &str, steps: usize) -> (usize, usize) {
    let one = format!("{CONFIG_MAPS}/{name}");
    let mut acknowledged = 0;
    for step in 1..=steps {
        let status = match step % 3 {
            0 => send(server, "DELETE", &one, &Value::map()),
            1 => send(server, "POST", CONFIG_MAPS, &config_map(name, step)),
            _ => send(server, "PUT", &one, &config_map(name, step)),
        };
        assert!(status < 300, "{name} at {step}: {status}");
        if journal.keep(server).is_ok() {
            acknowledged = step;
        }
    }
    (acknowledged, steps)
}

/// Lets writers loose on a disk, and compares the acknowledged writes with the stored ones.
fn compare(fate: impl FnMut() -> Fate + Send + 'static) {
    const WRITERS: usize = 8;
    const STEPS: usize = 12;
    let held = Arc::new(Mutex::new(Batch::default()));
    let disk = Disk { held: Arc::clone(&held), fate: Box::new(fate) };
    let (server, journal) = (serving(), Journal::new(Box::new(disk)));
    let told: Vec<(String, (usize, usize))> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|at| {
                let (server, journal) = (&server, &journal);
                let name = format!("w{at}");
                scope.spawn(move || (name.clone(), write(server, journal, &name, STEPS)))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let held = held.lock().unwrap();
    for (name, (acknowledged, tried)) in told {
        let key = (Str::new(""), Str::new("configmaps"), Str::new("default"), Str::new(&name));
        let on_disk = held.objects.get(&key);
        // What is on disk is what the object was at some step that was not before the acknowledged one.
        let fits = (acknowledged..=tried).any(|step| match on_disk {
            None => step == 0,
            Some(None) => step > 0 && step.is_multiple_of(3),
            Some(Some(object)) => object.str_at(["data", "step"]) == Some(&step.to_string()),
        });
        assert!(fits, "{name}: step {acknowledged} was acknowledged, on disk is {on_disk:?}");
    }
}

#[test]
fn what_is_acknowledged_is_stored_whenever_the_disk_stops() {
    for last in [0, 1, 5, 20] {
        let mut commits = 0;
        compare(move || {
            commits += 1;
            if commits > last { Fate::Fails } else { Fate::Kept }
        });
    }
}

#[test]
fn what_is_acknowledged_is_stored_when_the_disk_fails_now_and_then() {
    for rhythm in [2, 3] {
        let mut commits = 0;
        compare(move || {
            commits += 1;
            if commits % rhythm == 0 { Fate::Fails } else { Fate::Kept }
        });
    }
}

/// A disk whose first commit tells that it began, and waits.
struct Slow {
    began: Sender<()>,
    goes_on: Receiver<()>,
    commits: usize,
    done: Sender<usize>,
}

impl Storage for Slow {
    fn commit(&mut self, _: &Batch) -> Result<(), String> {
        self.commits += 1;
        if self.commits == 1 {
            self.began.send(()).unwrap();
            self.goes_on.recv().unwrap();
        }
        self.done.send(self.commits).unwrap();
        Ok(())
    }
}

#[test]
fn many_who_wait_share_one_commit() {
    let ((began, has_begun), (go_on, goes_on), (done, commits)) = (channel(), channel(), channel());
    let journal = Journal::new(Box::new(Slow { began, goes_on, commits: 0, done }));
    let server = serving();
    std::thread::scope(|scope| {
        let (server, journal) = (&server, &journal);
        let write = move |name: String| {
            assert_eq!(send(server, "POST", CONFIG_MAPS, &config_map(&name, 1)), 201);
            journal.keep(server).unwrap();
        };
        scope.spawn(move || write("first".to_owned()));
        has_begun.recv().unwrap();
        let before = server.revision();
        for at in 0..8 {
            scope.spawn(move || write(format!("w{at}")));
        }
        while server.revision() < before + 8 {
            std::thread::yield_now();
        }
        go_on.send(()).unwrap();
    });
    drop(journal);
    assert_eq!(commits.iter().collect::<Vec<_>>(), [1, 2]);
}

#[test]
fn who_writes_after_the_end_is_told_so() {
    let held = Arc::new(Mutex::new(Batch::default()));
    let disk = Disk { held: Arc::clone(&held), fate: Box::new(|| Fate::Kept) };
    let (server, journal) = (serving(), Journal::new(Box::new(disk)));
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &config_map("a", 1)), 201);
    journal.close(&server).unwrap();
    assert_eq!(held.lock().unwrap().objects.len(), 1, "the end keeps what is left");
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &config_map("b", 1)), 201);
    assert!(journal.keep(&server).is_err());
    assert!(journal.keep(&server).is_err(), "also the second time");
}

#[test]
fn the_revision_does_not_come_again() {
    let directory = tempfile::tempdir().unwrap();
    let begin = || {
        let (data, kept) = Data::open(directory.path()).unwrap();
        let revision = kept.records.iter().map(|record| record.revision).max().unwrap_or(0);
        (Journal::new(Box::new(data)), revision)
    };
    let server = serving();
    let (journal, _) = begin();
    journal.keep_all(&server).unwrap();
    journal.close(&server).unwrap();
    drop(journal);
    let (journal, clean) = begin();
    assert_eq!(clean, server.revision());
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &config_map("a", 1)), 201);
    journal.keep(&server).unwrap();
    // A client sees a write that never reaches the disk.
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &config_map("b", 1)), 201);
    drop(journal);
    assert!(begin().1 > server.revision());
}
