//! The sandbox's API server in the process of a test, without a socket: time stands still, chance repeats itself.
//!
//! ```
//! use kiln_testkit::server;
//! use kiln_value::value;
//!
//! let server = server::start();
//! let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
//! server::create(&server, "/api/v1/namespaces", &namespace);
//! server.settle(); // what controllers would do
//! let accounts = server::get(&server, "/api/v1/namespaces/shop/serviceaccounts/default");
//! assert_eq!(accounts.status, 200);
//! ```

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use kiln_apiserver::{ApiRequest, Response, Server, ServerHost, Settings};
use kiln_value::{Value, json};

/// 2026-11-16T00:00:00Z.
pub const NOW: i64 = 1_794_787_200;

/// A world in which nothing happens.
#[derive(Debug, Default)]
pub struct Still {
    drawn: AtomicU64,
    seconds: AtomicI64,
}

impl ServerHost for Still {
    fn now(&self) -> (i64, u32) {
        (NOW + self.seconds.load(Ordering::Relaxed), 0)
    }

    fn random(&self) -> u64 {
        // SplitMix64.
        let at = self.drawn.fetch_add(1, Ordering::Relaxed);
        let mut z = at.wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(0x5851_f42d_4c95_7f2d);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Starts a server with these settings.
pub fn start_with(settings: Settings) -> Server {
    Server::new(settings, Box::new(Still::default()))
}

/// Starts a server, without pods for workloads.
pub fn start() -> Server {
    start_with(Settings { workloads: false, ..Settings::default() })
}

/// Sends a body in JSON.
pub fn send(server: &Server, method: &str, path: &str, body: &Value) -> Response {
    let request =
        ApiRequest::new(method, path).with_body("application/json", json::to_string(body));
    server.call(&request)
}

/// Asks for something.
pub fn get(server: &Server, path: &str) -> Response {
    server.call(&ApiRequest::new("GET", path))
}

/// Creates something that must be accepted.
///
/// # Panics
/// When it is not.
pub fn create(server: &Server, path: &str, body: &Value) -> Value {
    let answer = send(server, "POST", path, body);
    assert_eq!(answer.status, 201, "{path}: {}", String::from_utf8_lossy(&answer.body));
    answer.value()
}
