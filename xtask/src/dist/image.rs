//! The image, as an OCI layout: one image index with an image for each processor. No engine takes part; an image is a
//! few JSON documents and archives that name each other by digest.
//!
//! Two layers: certificates and users, which are the same for all processors, and the program.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::archive::{Tree, gzip};
use super::sbom::timestamp;
use super::{Source, digest};

/// What the layers of an image may have together, compressed.
pub(super) const LIMIT: usize = 15_000_000;

/// The path of the binary in the image.
pub(super) const PROGRAM: &str = "/usr/local/bin/kiln";
/// The user that it runs as: a number, so that Kubernetes can see that it is not root.
const USER: &str = "65532:65532";
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";

const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// An OCI layout in memory.
pub(super) struct Layout {
    /// Its files, by path.
    files: BTreeMap<String, Vec<u8>>,
    /// The digest of the image index: what `REGISTRY/kiln@…` names after a push.
    pub(super) digest: String,
    /// The compressed size of each image, by processor.
    pub(super) sizes: BTreeMap<String, usize>,
}

/// The image with these programs, by processor.
pub(super) fn layout(programs: &BTreeMap<&str, Vec<u8>>, source: &Source) -> Result<Layout> {
    let mut layout =
        Layout { files: BTreeMap::new(), digest: String::new(), sizes: BTreeMap::new() };
    let base = Layer::of(&base(), source)?;
    let mut manifests = Vec::new();
    for (arch, program) in programs {
        let mut tree = Tree::default();
        tree.executable(PROGRAM.trim_start_matches('/'), program.as_slice());
        let program = Layer::of(&tree, source)?;
        let config = config(arch, &[&base, &program], source);
        let config = layout.add(CONFIG, config.to_string().into_bytes());
        let layers = [&base, &program].map(|layer| layout.add(LAYER, layer.compressed.clone()));
        layout.sizes.insert((*arch).to_owned(), base.compressed.len() + program.compressed.len());
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": layers,
            "annotations": annotations(source),
        });
        let mut entry = layout.add(MANIFEST, manifest.to_string().into_bytes());
        entry["platform"] = json!({"architecture": arch, "os": "linux"});
        manifests.push(entry);
    }
    let index = json!({
        "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests,
        "annotations": annotations(source),
    });
    let mut top = layout.add(INDEX, index.to_string().into_bytes());
    layout.digest = top["digest"].as_str().unwrap_or_default().to_owned();
    // Tools that load a layout name the image so; "localhost" names no registry.
    let name = source.image.as_deref().unwrap_or("localhost/kiln");
    top["annotations"] = json!({
        "org.opencontainers.image.ref.name": source.version,
        "io.containerd.image.name": format!("{name}:{}", source.version),
    });
    let index = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [top]});
    layout.files.insert("index.json".to_owned(), index.to_string().into_bytes());
    let version = json!({"imageLayoutVersion": "1.0.0"});
    layout.files.insert("oci-layout".to_owned(), version.to_string().into_bytes());
    Ok(layout)
}

impl Layout {
    /// Keeps content under its digest; the descriptor of it.
    fn add(&mut self, kind: &str, bytes: Vec<u8>) -> Value {
        let sum = digest::sha256(&bytes);
        let descriptor =
            json!({"mediaType": kind, "digest": format!("sha256:{sum}"), "size": bytes.len()});
        self.files.insert(format!("blobs/sha256/{sum}"), bytes);
        descriptor
    }

    /// Writes the layout into a directory.
    pub(super) fn write(&self, directory: &Path) -> Result<()> {
        for (path, bytes) in &self.files {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().context("a file lies in a directory")?)?;
            fs::write(&path, bytes).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    /// The layout in one file, as `docker load`, `podman load` and `ctr images import` take it.
    pub(super) fn archive(&self, time: u64) -> Result<Vec<u8>> {
        let mut tree = Tree::default();
        for (path, bytes) in &self.files {
            tree.file(path, bytes.as_slice());
        }
        tree.tar(time)
    }
}

/// Files of an image.
struct Layer {
    /// The digest of the archive before it is compressed.
    id: String,
    compressed: Vec<u8>,
}

impl Layer {
    fn of(tree: &Tree, source: &Source) -> Result<Self> {
        let tar = tree.tar(source.epoch)?;
        Ok(Layer { id: format!("sha256:{}", digest::sha256(&tar)), compressed: gzip(&tar)? })
    }
}

/// What a program expects of a system: users, certificate authorities, a place for temporary files.
fn base() -> Tree {
    let mut tree = Tree::default();
    let users = "root:x:0:0:root:/:/sbin/nologin\nkiln:x:65532:65532:kiln:/tmp:/sbin/nologin\n";
    tree.file("etc/passwd", users);
    tree.file("etc/group", "root:x:0:\nkiln:x:65532:\n");
    tree.file(CERTIFICATES, certificates());
    // Read-only like all the rest, unless a volume is mounted there.
    tree.directory("tmp", 0o1777);
    tree
}

/// Mozilla's authorities, as the package in Cargo.lock has them.
fn certificates() -> String {
    let mut text = String::new();
    for certificate in webpki_root_certs::TLS_SERVER_ROOT_CERTS {
        let encoded = STANDARD.encode(certificate.as_ref());
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let mut rest = encoded.as_str();
        while !rest.is_empty() {
            let (line, after) = rest.split_at(rest.len().min(64));
            text.push_str(line);
            text.push('\n');
            rest = after;
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

fn config(arch: &str, layers: &[&Layer], source: &Source) -> Value {
    let created = timestamp(source.epoch);
    let ids: Vec<&str> = layers.iter().map(|layer| layer.id.as_str()).collect();
    let steps = ["certificate authorities and users", "kiln"];
    let history: Vec<Value> = steps
        .iter()
        .map(|step| json!({"created": created, "created_by": "cargo xtask dist", "comment": step}))
        .collect();
    json!({
        "created": created,
        "architecture": arch,
        "os": "linux",
        "config": {
            "User": USER,
            "Env": [
                "PATH=/usr/local/bin",
                format!("SSL_CERT_FILE=/{CERTIFICATES}"),
            ],
            "Entrypoint": [PROGRAM],
            "WorkingDir": "/",
            "Labels": annotations(source),
        },
        "rootfs": {"type": "layers", "diff_ids": ids},
        "history": history,
    })
}

fn annotations(source: &Source) -> Value {
    json!({
        "org.opencontainers.image.title": "kiln",
        "org.opencontainers.image.version": source.version,
        "org.opencontainers.image.revision": source.commit,
        "org.opencontainers.image.created": timestamp(source.epoch),
        "org.opencontainers.image.licenses": "Apache-2.0",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source() -> Source {
        Source {
            version: "0.2.0".to_owned(),
            commit: "c0ffee".to_owned(),
            changed: false,
            image: None,
            epoch: 1_000_000_000,
        }
    }

    fn built() -> Layout {
        let programs = [("amd64", b"one".to_vec()), ("arm64", b"other".to_vec())];
        layout(&programs.into(), &source()).unwrap()
    }

    fn json_at(layout: &Layout, path: &str) -> Value {
        serde_json::from_slice(&layout.files[path]).unwrap()
    }

    /// What a descriptor is about. Its size and digest must be true.
    fn content(layout: &Layout, descriptor: &Value) -> Vec<u8> {
        let digest = descriptor["digest"].as_str().unwrap();
        let sum = digest.strip_prefix("sha256:").unwrap();
        let bytes = layout.files[&format!("blobs/sha256/{sum}")].clone();
        assert_eq!(digest::sha256(&bytes), sum);
        assert_eq!(descriptor["size"], bytes.len());
        bytes
    }

    fn json_of(layout: &Layout, descriptor: &Value) -> Value {
        serde_json::from_slice(&content(layout, descriptor)).unwrap()
    }

    /// The files of a layer, and the digest of its archive.
    fn unpacked(compressed: &[u8]) -> (BTreeMap<String, Vec<u8>>, String) {
        use std::io::Read as _;
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(compressed).read_to_end(&mut tar).unwrap();
        let mut files = BTreeMap::new();
        for entry in tar::Archive::new(tar.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            files.insert(path, bytes);
        }
        (files, format!("sha256:{}", digest::sha256(&tar)))
    }

    #[test]
    fn every_part_is_reached_by_its_digest() {
        let layout = built();
        assert_eq!(json_at(&layout, "oci-layout")["imageLayoutVersion"], "1.0.0");
        let top = json_at(&layout, "index.json")["manifests"][0].clone();
        assert_eq!(top["digest"], layout.digest.as_str());
        assert_eq!(top["annotations"]["org.opencontainers.image.ref.name"], "0.2.0");
        let images = json_of(&layout, &top)["manifests"].as_array().unwrap().clone();
        assert_eq!(images.len(), 2);
        let mut bases = Vec::new();
        for (image, (arch, program)) in images.iter().zip([("amd64", "one"), ("arm64", "other")]) {
            assert_eq!(image["platform"], json!({"architecture": arch, "os": "linux"}));
            let manifest = json_of(&layout, image);
            let config = json_of(&layout, &manifest["config"]);
            assert_eq!(config["architecture"], arch);
            let layers = manifest["layers"].as_array().unwrap();
            let mut size = 0;
            let mut files = BTreeMap::new();
            for (layer, id) in layers.iter().zip(config["rootfs"]["diff_ids"].as_array().unwrap()) {
                let compressed = content(&layout, layer);
                size += compressed.len();
                let (found, sum) = unpacked(&compressed);
                assert_eq!(*id, sum);
                files.extend(found);
            }
            assert_eq!(layout.sizes[arch], size);
            assert_eq!(files["usr/local/bin/kiln"], program.as_bytes());
            assert_eq!(config["config"]["Entrypoint"], json!(["/usr/local/bin/kiln"]));
            bases.push(layers[0].clone());
        }
        assert_eq!(bases[0], bases[1], "one layer for both processors");
    }

    #[test]
    fn the_user_is_not_root_and_has_certificates() {
        let (files, _) = unpacked(&Layer::of(&base(), &source()).unwrap().compressed);
        let text = |path: &str| std::str::from_utf8(&files[path]).unwrap();
        assert!(text("etc/passwd").contains("\nkiln:x:65532:65532:"));
        let pem = text(CERTIFICATES);
        let count = pem.matches("-----BEGIN CERTIFICATE-----\n").count();
        assert_eq!(count, webpki_root_certs::TLS_SERVER_ROOT_CERTS.len());
        assert!(count > 50 && pem.lines().all(|line| line.len() <= 64));
        let config = config("amd64", &[], &source());
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["created"], "2001-09-09T01:46:40Z");
    }

    #[test]
    fn the_dockerfile_makes_an_image_that_runs_the_same_way() {
        let text = fs::read_to_string(crate::root().join("Dockerfile")).unwrap();
        let config = config("amd64", &[], &source());
        let environment: Vec<&str> =
            config["config"]["Env"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
        for line in [
            format!("USER {USER}"),
            format!("ENTRYPOINT {}", config["config"]["Entrypoint"]),
            format!("ENV {}", environment.join(" ")),
        ] {
            assert!(text.lines().any(|found| found == line), "Dockerfile lacks {line}");
        }
        let (files, _) = unpacked(&Layer::of(&base(), &source()).unwrap().compressed);
        for path in ["etc/passwd", "etc/group"] {
            let content = std::str::from_utf8(&files[path]).unwrap().replace('\n', "\\n");
            let command = format!("printf '{content}' > /image/{path}");
            assert!(text.contains(&command), "Dockerfile lacks {command}");
        }
    }

    #[test]
    fn the_same_programs_make_the_same_image() {
        let (one, other) = (built(), built());
        assert_eq!(one.files, other.files);
        assert_eq!(one.archive(1).unwrap(), other.archive(1).unwrap());
        let changed = layout(&[("amd64", b"two".to_vec())].into(), &source()).unwrap();
        assert_ne!(one.digest, changed.digest);
    }
}
