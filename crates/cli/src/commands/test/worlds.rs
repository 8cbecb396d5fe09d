//! Clusters for tests with live steps: a world in this thread, with the engine at work, for every test.

use std::cell::RefCell;
use std::time::Duration;

use kiln_apiserver::ApiRequest;
use kiln_diagnostic::Diagnostic;
use kiln_suites::chainsaw::{ApiResponse, TestCluster, TestClusters, Waited};
use kiln_value::{Value, json};
use kiln_world::{Stepped, World, WorldImage, WorldOptions};
use kiln_yaml::Document;

/// Worlds, as many as there are tests, which all begin with the same image.
pub(super) struct Worlds<'i> {
    pub(super) image: &'i WorldImage,
}

/// A cluster with the engine and these definitions. Kyverno: its own runs of such tests take exceptions from everywhere.
pub(super) fn image(definitions: &[Document]) -> Result<WorldImage, Diagnostic> {
    let objects: Vec<Value> =
        definitions.iter().map(|definition| definition.value().clone()).collect();
    WorldImage::with_engine(&objects, Some("*")).map_err(|refused| {
        let problem = Diagnostic::error(format!("the sandbox refuses it: {}", refused.message));
        let document = refused.definition.and_then(|number| definitions.get(number));
        match document {
            Some(document) => problem.at(document.place()),
            None => problem,
        }
    })
}

impl TestClusters for Worlds<'_> {
    fn cluster(&self) -> Result<Box<dyn TestCluster + '_>, Diagnostic> {
        let world = World::new(&WorldOptions::default(), self.image);
        Ok(Box::new(WorldCluster { world: RefCell::new(world) }))
    }
}

/// A world for one test.
struct WorldCluster {
    world: RefCell<World>,
}

impl TestCluster for WorldCluster {
    fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> ApiResponse {
        let mut request = ApiRequest::new(method, path);
        if let Some(body) = body {
            request = request.with_body(content_type, json::to_string(body));
        }
        let response = self.world.borrow().send(request);
        if method != "GET" {
            // A policy or definition is at work, and what rules do at once is done, when the write returns.
            self.world.borrow_mut().run_now();
        }
        ApiResponse { status: response.status, value: response.value() }
    }

    fn revision(&self) -> u64 {
        self.world.borrow().revision()
    }

    fn wait(&self, revision: u64, at_most: Duration) -> Waited {
        let mut world = self.world.borrow_mut();
        let began = world.now();
        let limit = began + milliseconds(at_most);
        loop {
            let now = world.revision();
            let took = Duration::from_millis(world.now() - began);
            if now > revision {
                return Waited { revision: Some(now), took };
            }
            if world.now() > limit || world.step(limit) == Stepped::Quiet {
                return Waited { revision: None, took };
            }
        }
    }

    fn sleep(&self, time: Duration) {
        let mut world = self.world.borrow_mut();
        let until = world.now() + milliseconds(time);
        world.run_until(until);
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX / 2)
}
