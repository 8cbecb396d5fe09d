//! Watches that stall, end and go on, against a server that does exactly that.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kiln_object::{Gvk, Kinds};
use kiln_runtime::health::Health;
use kiln_runtime::metrics::Metrics;
use kiln_runtime::policy_store::{self, Registry};
use kiln_runtime::watch::{Subject, WatchNews, Watcher};
use kiln_runtime::{Client, RuntimeOptions};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

use crate::support::{kubeconfig, until};

/// What the server does with the next watch.
enum Act {
    /// Tells of one object, and then nothing more.
    TellAndStall(u32),
    /// Says nothing at all.
    Stall,
}

async fn answer(mut stream: TcpStream, act: Act) {
    let mut head = [0; 4096];
    let _ = stream.read(&mut head).await;
    let _ = stream
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n")
        .await;
    if let Act::TellAndStall(revision) = act {
        let line = format!(
            "{{\"type\":\"ADDED\",\"object\":{{\"metadata\":{{\"name\":\"a\",\"resourceVersion\":\"{revision}\"}}}}}}\n"
        );
        let _ = stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await;
    }
    // Held open, and silent.
    let _ = stream.read(&mut head).await;
}

/// A server that does one thing after the other, and counts.
async fn server(acts: Vec<Act>) -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        for act in acts {
            let Ok((stream, _)) = listener.accept().await else { return };
            count.send_modify(|count| *count += 1);
            tokio::spawn(answer(stream, act));
        }
        std::future::pending::<()>().await;
    });
    (address, counted)
}

async fn watcher(address: &str) -> (Watcher, watch::Sender<Kinds>, tempfile::TempDir) {
    let (folder, file) = kubeconfig(address);
    let options = RuntimeOptions { kubeconfig: Some(file), ..RuntimeOptions::default() };
    let (sender, kinds) = watch::channel(Kinds::builtin());
    let watcher = Watcher {
        client: Client::connect(&options, None).await.unwrap(),
        kinds,
        stale_after: Duration::from_millis(400),
        health: Arc::new(Health::default()),
        purpose: "rules".into(),
        metrics: Arc::new(Metrics::default()),
    };
    (watcher, sender, folder)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_watch_is_a_problem_until_it_speaks_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let acts = vec![Act::TellAndStall(5), Act::Stall, Act::TellAndStall(6), Act::Stall];
    let (address, mut counted) = server(acts).await;
    let (watcher, _kinds, _folder) = watcher(&address).await;
    let health = Arc::clone(&watcher.health);
    let (sender, mut told) = mpsc::channel(16);
    let metrics = Arc::clone(&watcher.metrics);
    let task = tokio::spawn(async move {
        let subject = Subject::all(Gvk::new("v1", "ConfigMap"));
        watcher.follow(&subject, 1, &sender, &watcher.standing(&subject)).await;
    });
    assert!(matches!(told.recv().await, Some((_, WatchNews::Event(event))) if event.revision == 5));
    assert!(health.problems().is_empty(), "{:?}", health.problems());
    until("the first silence", || !health.problems().is_empty()).await;
    assert_eq!(health.problems(), ["rules: watch of v1/ConfigMap: it fell silent"]);
    // Begun anew it says nothing either: being connected is not being well.
    counted.wait_for(|count| *count == 2).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!health.problems().is_empty(), "a watch that says nothing is not trusted");
    // The third one speaks, and goes on from where the first one was.
    assert!(matches!(told.recv().await, Some((_, WatchNews::Event(event))) if event.revision == 6));
    until("being well again", || health.problems().is_empty()).await;
    let silent = r#"kiln_watch_restarts_total{kind="ConfigMap",reason="silent"} 2"#;
    assert!(metrics.text().contains(silent), "{}", metrics.text());
    task.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_may_be_silent_because_they_have_no_bookmarks() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (address, mut counted) = server(vec![Act::Stall, Act::Stall, Act::Stall]).await;
    let (watcher, _kinds, _folder) = watcher(&address).await;
    let health = Arc::clone(&watcher.health);
    let (sender, _told) = mpsc::channel(16);
    let task = tokio::spawn(async move {
        let subject = Subject::all(Gvk::new("events.k8s.io/v1", "Event"));
        watcher.follow(&subject, 1, &sender, &watcher.standing(&subject)).await;
    });
    // Twice it was silent and begun anew, in case the connection is gone.
    counted.wait_for(|count| *count == 3).await.unwrap();
    assert!(health.problems().is_empty(), "{:?}", health.problems());
    task.abort();
}

/// A server that has nothing, and lets it be listed if it may be, and watched never.
async fn empty_server(may_list: Arc<AtomicBool>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let may_list = Arc::clone(&may_list);
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let count = stream.read(&mut head).await.unwrap_or(0);
                let watches = String::from_utf8_lossy(&head[..count]).contains("watch=true");
                let (status, body) = if !watches && may_list.load(Ordering::SeqCst) {
                    ("200 OK", r#"{"kind":"List","metadata":{"resourceVersion":"1"},"items":[]}"#)
                } else {
                    ("500 Oops", r#"{"kind":"Status","code":500,"message":"not today"}"#)
                };
                let length = body.len();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n{body}"
                );
                let _ = stream.write_all(answer.as_bytes()).await;
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rules_that_were_read_once_count_while_they_cannot_be_read() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let may_list = Arc::new(AtomicBool::new(false));
    let address = empty_server(Arc::clone(&may_list)).await;
    let (watcher, _kinds, _folder) = watcher(&address).await;
    let health = Arc::clone(&watcher.health);
    let (sender, registry) = watch::channel(Arc::new(Registry::default()));
    let keeping = policy_store::keep(
        watcher,
        std::sync::Arc::new(kiln_runtime::RuntimeOptions::default()),
        sender,
    );
    let task = tokio::spawn(keeping);
    until("a problem", || !health.problems().is_empty()).await;
    assert!(!health.keeps_from_answering().is_empty(), "the rules are unknown");
    assert!(!registry.borrow().complete);
    may_list.store(true, Ordering::SeqCst);
    until("everything to be read", || registry.borrow().complete).await;
    may_list.store(false, Ordering::SeqCst);
    until("another problem", || !health.problems().is_empty()).await;
    let problems = health.problems();
    assert!(problems.iter().all(|problem| problem.starts_with("rules: watch of")), "{problems:?}");
    assert_eq!(health.keeps_from_answering(), [""; 0], "the rules that were read are known");
    assert!(registry.borrow().complete);
    task.abort();
}
