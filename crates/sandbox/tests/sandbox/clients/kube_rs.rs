//! kube-rs: every recorded step again, each request and each answer as it was.

use std::fmt::Debug;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::{Stream, StreamExt as _};
use http::{Request, Response};
use http_body_util::BodyExt as _;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod, ServiceAccount};
use kiln_sandbox::{Sandbox, SandboxOptions};
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, EvictParams, GroupVersionKind, ListParams, Patch,
    PatchParams, PostParams, ValidationDirective, WatchParams,
};
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::PartialObjectMeta;
use kube::discovery::{self, Discovery};
use kube::runtime::watcher;
use kube::{Api, Client, Config};
use serde_json::json;

use super::recorded::{self, CERTIFICATES, Exchange, Step};

/// A client as the kubeconfig of the sandbox makes it.
pub(crate) async fn client(sandbox: &Sandbox) -> Client {
    let kubeconfig = Kubeconfig::from_yaml(sandbox.kubeconfig()).expect("a kubeconfig");
    let options = KubeConfigOptions::default();
    let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
    Client::try_from(config.expect("a configuration")).expect("a client")
}

type Log = Arc<Mutex<Vec<(Exchange, Arc<Mutex<Vec<u8>>>)>>>;

/// Passes everything on to a client, and writes it down.
fn recording(inner: Client, log: Log) -> Client {
    let service = tower::service_fn(move |request: Request<Body>| {
        let (inner, log) = (inner.clone(), Arc::clone(&log));
        async move {
            let method = request.method().to_string();
            let path = request.uri().to_string();
            let response = inner.send(request).await?;
            let header = |name: &str| {
                let value = response.headers().get(name).and_then(|value| value.to_str().ok());
                value.unwrap_or_default().to_owned()
            };
            let exchange = Exchange {
                method,
                path,
                status: response.status().as_u16(),
                content_type: header("content-type"),
                warning: header("warning"),
                body: String::new(),
            };
            let read = Arc::new(Mutex::new(Vec::new()));
            log.lock().unwrap().push((exchange, Arc::clone(&read)));
            let (head, body) = response.into_parts();
            let body = body.map_frame(move |frame| {
                read.lock().unwrap().extend(frame.data_ref().into_iter().flatten());
                frame
            });
            Ok::<_, kube::Error>(Response::from_parts(head, body))
        }
    });
    Client::new(service, "default")
}

/// The steps so far, and what was exchanged since the last one.
struct Recorder {
    log: Log,
    steps: Vec<Step>,
}

impl Recorder {
    fn end(&mut self, name: &str) {
        let exchanges = std::mem::take(&mut *self.log.lock().unwrap());
        let exchanges = exchanges.into_iter().map(|(exchange, read)| {
            let body = String::from_utf8_lossy(&read.lock().unwrap()).into_owned();
            Exchange { body, ..exchange }
        });
        self.steps.push(Step { name: name.to_owned(), exchanges: exchanges.collect() });
    }

    /// Follows a stream until a watch has told of so many events. Some end with the last one, and are begun anew.
    async fn follow<T: Debug>(&self, stream: impl Stream<Item = T>, wanted: usize) {
        tokio::pin!(stream);
        let began = Instant::now();
        loop {
            {
                let mut log = self.log.lock().unwrap();
                let told = |(exchange, read): &(Exchange, Arc<Mutex<Vec<u8>>>)| {
                    let read = read.lock().unwrap();
                    exchange.path.contains("watch=true")
                        && recorded::events(&String::from_utf8_lossy(&read)).len() >= wanted
                };
                if let Some(last) = log.iter().position(told) {
                    log.truncate(last + 1);
                    return;
                }
            }
            assert!(began.elapsed() < Duration::from_secs(20), "the events do not come");
            let _ = tokio::time::timeout(Duration::from_millis(10), stream.next()).await;
        }
    }
}

fn config_map(value: serde_json::Value) -> ConfigMap {
    serde_json::from_value(value).expect("a ConfigMap")
}

/// Waits until something is there, or no longer.
async fn until(api: &Api<ConfigMap>, name: &str, there: bool) {
    let began = Instant::now();
    while api.get_opt(name).await.expect("an answer").is_some() != there {
        assert!(began.elapsed() < Duration::from_secs(10), "{name} there: {there}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_recorded_step_gets_what_it_got() {
    let Some(wanted) = recorded::steps("kube_rs") else { return };
    let sandbox = Sandbox::start(&SandboxOptions::default()).await.expect("a sandbox");
    // What others do meanwhile is not part of the recording.
    let others = client(&sandbox).await;
    let log = Log::default();
    let client = recording(others.clone(), Arc::clone(&log));
    let mut recorder = Recorder { log, steps: Vec::new() };
    discover(&client, &mut recorder).await;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let namespace = serde_json::from_value(json!({"metadata": {"name": "rust"}})).unwrap();
    let namespace = namespaces.create(&PostParams::default(), &namespace).await.unwrap();
    recorder.end("kube-rs Api::create namespace");
    let unseen: Api<ConfigMap> = Api::namespaced(others, "rust");
    until(&unseen, CERTIFICATES, true).await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "rust");
    write(&maps, &mut recorder).await;
    read(&maps, &mut recorder).await;
    let version = namespace.metadata.resource_version.expect("a version");
    follow(&maps, &unseen, &version, &mut recorder).await;
    subresources(&client, &mut recorder).await;
    let gone = maps.delete("a", &DeleteParams::foreground()).await.unwrap();
    assert!(gone.is_left(), "an object that is being deleted");
    recorder.end("kube-rs Api::delete with preconditions");
    // Garbage is collected sooner here than it was recorded.
    until(&unseen, "a", false).await;
    let another = config_map(json!({"metadata": {"name": "b"}}));
    unseen.create(&PostParams::default(), &another).await.unwrap();
    maps.delete_collection(&DeleteParams::default(), &ListParams::default()).await.unwrap();
    recorder.end("kube-rs Api::delete_collection");
    let unknown = ApiResource::from_gvk(&GroupVersionKind::gvk("no.such", "v1", "Foo"));
    let unknown: Api<DynamicObject> = Api::namespaced_with(client.clone(), "rust", &unknown);
    assert!(unknown.get("x").await.is_err());
    recorder.end("kube-rs dynamic Api get unknown kind (404 page)");
    namespaces.delete("rust", &DeleteParams::default()).await.unwrap();
    recorder.end("end");
    sandbox.stop().await;
    // How often others wrote is not in the recording: it says how the history begins.
    let history = recorder.steps.iter_mut().find(|step| step.name.contains("stale rv")).unwrap();
    let body = &mut history.exchanges[0].body;
    let lines = body.lines().filter(|line| !line.contains(CERTIFICATES));
    let beginning: Vec<&str> = lines.take(4).collect();
    *body = beginning.join("\n");
    recorded::assert_same("kube-rs", &wanted, &recorder.steps);
}

async fn discover(client: &Client, recorder: &mut Recorder) {
    let version = client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "36"));
    recorder.end("kube-rs Client::apiserver_version");
    let all = Discovery::new(client.clone()).run().await.unwrap();
    assert!(all.has_group("apps"));
    recorder.end("kube-rs Discovery::run (legacy)");
    let all = Discovery::new(client.clone()).run_aggregated().await.unwrap();
    let deployment = GroupVersionKind::gvk("apps", "v1", "Deployment");
    assert_eq!(all.resolve_gvk(&deployment).unwrap().0.plural, "deployments");
    recorder.end("kube-rs Discovery::run_aggregated");
    let (resource, _) = discovery::pinned_kind(client, &deployment).await.unwrap();
    assert_eq!(resource.plural, "deployments");
    recorder.end("kube-rs discovery::pinned_kind");
    let group = discovery::group(client, "apps").await.unwrap();
    assert!(group.recommended_kind("StatefulSet").is_some());
    recorder.end("kube-rs discovery::group");
}

async fn write(maps: &Api<ConfigMap>, recorder: &mut Recorder) {
    let post = PostParams::default();
    let a = config_map(json!({"metadata": {"name": "a"}, "data": {"x": "1"}}));
    maps.create(&post, &a).await.unwrap();
    recorder.end("kube-rs Api::create");
    assert!(
        matches!(maps.create(&post, &a).await, Err(kube::Error::Api(error)) if error.code == 409)
    );
    recorder.end("kube-rs Api::create again (409)");
    assert!(maps.get_opt("nope").await.unwrap().is_none());
    recorder.end("kube-rs Api::get_opt missing (404)");
    let applied = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"y": "2"}});
    maps.patch("a", &PatchParams::apply("kr").force(), &Patch::Apply(&applied)).await.unwrap();
    recorder.end("kube-rs Api::patch apply");
    let z = json!({"data": {"z": "3"}});
    let tried =
        maps.patch("a", &PatchParams::default().dry_run(), &Patch::Merge(&z)).await.unwrap();
    assert!(tried.data.unwrap().contains_key("z"));
    recorder.end("kube-rs Api::patch merge dry-run");
    let made = maps.patch("a", &PatchParams::default(), &Patch::Strategic(&z)).await.unwrap();
    assert_eq!(made.data.unwrap().len(), 3);
    recorder.end("kube-rs Api::patch strategic");
    let strict = PatchParams {
        field_validation: Some(ValidationDirective::Strict),
        ..PatchParams::default()
    };
    let wrong = json!({"dataa": {"z": "3"}});
    assert!(maps.patch("a", &strict, &Patch::Merge(&wrong)).await.is_err());
    recorder.end("kube-rs Api::patch validation strict");
    let mut stale = maps.get("a").await.unwrap();
    stale.metadata.resource_version = Some("1".to_owned());
    let refused = maps.replace("a", &post, &stale).await;
    assert!(matches!(refused, Err(kube::Error::Api(error)) if error.reason == "Conflict"));
    recorder.end("kube-rs Api::replace stale (409)");
}

async fn read(maps: &Api<ConfigMap>, recorder: &mut Recorder) {
    maps.list(&ListParams::default().limit(1)).await.unwrap();
    recorder.end("kube-rs Api::list limit 1");
    maps.list_metadata(&ListParams::default()).await.unwrap();
    recorder.end("kube-rs Api::list_metadata");
    maps.get_metadata("a").await.unwrap();
    recorder.end("kube-rs Api::get_metadata");
}

async fn follow(
    maps: &Api<ConfigMap>,
    others: &Api<ConfigMap>,
    since: &str,
    recorder: &mut Recorder,
) {
    // Shorter watches end without a bookmark.
    let config = || watcher::Config::default().timeout(3);
    maps.list(&ListParams::default().limit(1)).await.unwrap();
    recorder.follow(watcher(maps.clone(), config()), 1).await;
    recorder.end("kube-rs watcher (list then watch)");
    recorder.follow(watcher(maps.clone(), config().streaming_lists()), 3).await;
    recorder.end("kube-rs watcher streaming_lists");
    let change = |to: &'static str| async move {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let patch = json!({"data": {"z": to}});
        others.patch("a", &PatchParams::default(), &Patch::Merge(&patch)).await.unwrap();
    };
    let watching = recorder.follow(watcher(maps.clone(), config().any_semantic()), 1);
    tokio::join!(watching, change("4"));
    recorder.end("kube-rs watcher any_semantic");
    let metadata: Api<PartialObjectMeta<ConfigMap>> =
        Api::namespaced(maps.clone().into_client(), "rust");
    let watching = recorder.follow(watcher(metadata, config()), 1);
    tokio::join!(watching, change("5"));
    recorder.end("kube-rs metadata_watcher");
    let stream = maps.watch(&WatchParams::default().timeout(1), since).await.unwrap();
    recorder.follow(stream, 5).await;
    recorder.end("kube-rs Api::watch from stale rv (410)");
}

async fn subresources(client: &Client, recorder: &mut Recorder) {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), "rust");
    let deployment = json!({"metadata": {"name": "d"}, "spec": {
        "selector": {"matchLabels": {"a": "b"}},
        "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}});
    let deployment = serde_json::from_value(deployment).unwrap();
    deployments.create(&PostParams::default(), &deployment).await.unwrap();
    assert_eq!(deployments.get_scale("d").await.unwrap().spec.unwrap().replicas, Some(1));
    let (anybody, two) = (PatchParams::default(), json!({"spec": {"replicas": 2}}));
    let scale = deployments.patch_scale("d", &anybody, &Patch::Merge(&two)).await.unwrap();
    assert_eq!(scale.spec.unwrap().replicas, Some(2));
    let status = json!({"status": {"observedGeneration": 1}});
    let patched = deployments.patch_status("d", &anybody, &Patch::Merge(&status)).await.unwrap();
    assert_eq!(patched.spec.replicas, Some(2));
    recorder.end("kube-rs Api::get_scale / patch_scale / patch_status");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "rust");
    let pod =
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).unwrap()).await.unwrap();
    pods.evict("p", &EvictParams::default()).await.unwrap();
    recorder.end("kube-rs Api::evict");
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "rust");
    let request = TokenRequest {
        spec: Some(TokenRequestSpec { audiences: Some(Vec::new()), ..TokenRequestSpec::default() }),
        ..TokenRequest::default()
    };
    let post = PostParams::default();
    let made = accounts.create_token_request("default", &post, &request).await;
    assert!(made.unwrap().status.unwrap().token.is_some());
    recorder.end("kube-rs create_token_request");
}
