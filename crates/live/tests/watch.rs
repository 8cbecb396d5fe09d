//! Watches that stall, end and go on, against a server that does exactly that.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_live::health::Health;
use kiln_live::metrics::Metrics;
use kiln_live::watch::{Subject, Told, Watcher};
use kiln_live::{Client, Options};
use kiln_object::{Gvk, Kinds};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

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

async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(20), "{what} does not come to hold");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_watch_is_a_problem_until_it_speaks_again() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let acts = vec![Act::TellAndStall(5), Act::Stall, Act::TellAndStall(6), Act::Stall];
    let (address, mut counted) = server(acts).await;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config");
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, clusters: [{{name: c, cluster: {{server: '{address}'}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}], users: [{{name: u, user: {{token: t}}}}]}}"
    );
    std::fs::write(&file, config).unwrap();
    let options = Options { kubeconfig: Some(file), ..Options::default() };
    let health = Arc::new(Health::default());
    let (_kinds, kinds) = watch::channel(Kinds::builtin());
    let watcher = Watcher {
        client: Client::connect(&options, None).await.unwrap(),
        kinds,
        stale_after: Duration::from_millis(400),
        health: Arc::clone(&health),
        purpose: "rules".into(),
        metrics: Arc::new(Metrics::default()),
    };
    let (sender, mut told) = mpsc::channel(16);
    let metrics = Arc::clone(&watcher.metrics);
    let task = tokio::spawn(async move {
        let subject = Subject::all(Gvk::new("v1", "ConfigMap"));
        watcher.follow(&subject, 1, &sender, &watcher.standing(&subject)).await;
    });
    assert!(matches!(told.recv().await, Some((_, Told::Event(event))) if event.revision == 5));
    assert!(health.problems().is_empty(), "{:?}", health.problems());
    until("the first silence", || !health.problems().is_empty()).await;
    assert_eq!(health.problems(), ["rules: watch of v1/ConfigMap: it fell silent"]);
    // Begun anew it says nothing either: being connected is not being well.
    counted.wait_for(|count| *count == 2).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(!health.problems().is_empty(), "a watch that says nothing is not trusted");
    // The third one speaks, and goes on from where the first one was.
    assert!(matches!(told.recv().await, Some((_, Told::Event(event))) if event.revision == 6));
    until("being well again", || health.problems().is_empty()).await;
    let silent = r#"kiln_watch_restarts_total{kind="ConfigMap",reason="silent"} 2"#;
    assert!(metrics.text().contains(silent), "{}", metrics.text());
    task.abort();
}
