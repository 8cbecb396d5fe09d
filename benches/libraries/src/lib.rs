//! What the bench programs share: the protocol that `cargo xtask bench` speaks, a clock, a counter of
//! live memory, and made-up resources.

use std::hint::black_box;
use std::time::Instant;

#[cfg(feature = "memory")]
mod memory;
#[cfg(feature = "memory")]
pub use memory::live;

/// One contender in one workload.
pub struct Contest {
    /// What is done; contenders with the same text compete.
    pub workload: &'static str,
    /// `kiln` or the name of the peer.
    pub who: &'static str,
    /// Its version.
    pub version: &'static str,
    /// Whether the figures of the whole process are of interest too.
    pub peak: bool,
    /// Whether instructions are to be counted.
    pub instructions: bool,
    /// Does the work once and says what it took.
    pub run: fn() -> Outcome,
}

/// What one run of a workload came to.
#[derive(Default)]
pub struct Outcome {
    pub seconds: Option<f64>,
    pub live_bytes: Option<usize>,
    pub check: Option<String>,
}

impl Outcome {
    #[must_use]
    pub fn check(mut self, result: impl ToString) -> Self {
        self.check = Some(result.to_string());
        self
    }
}

/// The version under which Kiln competes.
pub const KILN: &str = env!("CARGO_PKG_VERSION");

/// Lists the contests, or runs the one that the arguments name.
pub fn main(contests: &[Contest]) {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args == ["--list"] {
        for contest in contests {
            let Contest { workload, who, version, peak, instructions, .. } = contest;
            println!(
                "{}",
                serde_json::json!({"workload": workload, "who": who, "version": version, "peak": peak, "instructions": instructions})
            );
        }
        return;
    }
    let chosen = contests.iter().find(|c| args == [c.workload, c.who]);
    let Some(contest) = chosen else {
        eprintln!("usage: --list, or a workload and a contender of that list");
        std::process::exit(2);
    };
    let Outcome { seconds, live_bytes, check } = (contest.run)();
    println!(
        "{}",
        serde_json::json!({"seconds": seconds, "live_bytes": live_bytes, "check": check})
    );
}

/// The seconds of one call, after one to warm up (but not when instructions are counted).
pub fn once<T>(mut work: impl FnMut() -> T) -> Outcome {
    if std::env::var_os("KILN_BENCH_COUNTING").is_none() {
        black_box(work());
    }
    let begin = Instant::now();
    let result = black_box(work());
    let seconds = begin.elapsed().as_secs_f64();
    drop(result);
    Outcome { seconds: Some(seconds), ..Outcome::default() }
}

/// The seconds of one call on average, over about a fifth of a second of them. When instructions are counted there is no
/// clock: `KILN_BENCH_COUNTING` says how many calls there are, so that two counts tell what one call takes.
pub fn often<T>(mut work: impl FnMut() -> T) -> Outcome {
    if let Some(count) = std::env::var("KILN_BENCH_COUNTING").ok().and_then(|n| n.parse().ok()) {
        for _ in 0..count {
            black_box(work());
        }
        return Outcome::default();
    }
    let mut count = 1u32;
    loop {
        let begin = Instant::now();
        for _ in 0..count {
            black_box(work());
        }
        let took = begin.elapsed().as_secs_f64();
        if took > 0.2 {
            return Outcome { seconds: Some(took / f64::from(count)), ..Outcome::default() };
        }
        count = count.saturating_mul(if took < 0.02 { 10 } else { 2 });
    }
}

/// A YAML stream of resources, half Deployments and half ConfigMaps, as people write them.
pub fn resources(count: usize) -> String {
    let mut text = String::with_capacity(count * 600);
    for i in 0..count {
        if i > 0 {
            text.push_str("---\n");
        }
        if i % 2 == 0 {
            text.push_str(&format!(
                "apiVersion: apps/v1\nkind: Deployment\nmetadata:\n  name: web-{i}\n  namespace: team-{team}\n  labels:\n    app: web-{i}\n    \
                 app.kubernetes.io/part-of: shop\n    tier: frontend\n  annotations:\n    example.com/owner: team-{team}@example.com\nspec:\n  \
                 replicas: {replicas}\n  selector:\n    matchLabels:\n      app: web-{i}\n  template:\n    metadata:\n      labels:\n        app: web-{i}\n    \
                 spec:\n      serviceAccountName: web\n      containers:\n      - name: main\n        image: registry.example.com/shop/web:{tag}\n        \
                 ports:\n        - containerPort: 8080\n          name: http\n          protocol: TCP\n        env:\n        - name: LOG_LEVEL\n          \
                 value: info\n        - name: REGION\n          value: \"eu-west-{team}\"\n        resources:\n          requests:\n            cpu: 100m\n            \
                 memory: 128Mi\n          limits:\n            memory: 256Mi\n      - name: sidecar\n        image: registry.example.com/mesh/proxy:1.{tag}\n",
                team = i % 40,
                replicas = i % 7 + 1,
                tag = i % 90,
            ));
        } else {
            text.push_str(&format!(
                "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings-{i}\n  namespace: team-{team}\n  labels:\n    app: web-{i}\ndata:\n  \
                 color: blue\n  retries: \"{retries}\"\n  enabled: \"true\"\n  url: https://service-{i}.example.com/api/v1\n  app.properties: |\n    \
                 cache.size={i}\n    cache.ttl=30s\n    feature.flags=a,b,c\n",
                team = i % 40,
                retries = i % 5,
            ));
        }
    }
    text
}
