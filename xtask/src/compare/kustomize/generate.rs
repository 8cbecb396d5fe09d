//! Random trees: bases, overlays, components, and most that kustomizations can say.

mod fields;
mod objects;

use super::node::{Node, list, map, scalar};
use super::{Files, ROOT};

/// A tree of files, each with its documents.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    files: Vec<(String, Vec<Node>)>,
}

impl Tree {
    /// The texts by path.
    pub(super) fn files(&self) -> Files {
        let text = |documents: &[Node]| {
            let texts: Vec<String> = documents.iter().map(Node::text).collect();
            texts.join("---\n")
        };
        self.files.iter().map(|(path, documents)| (path.clone(), text(documents))).collect()
    }

    /// How many parts it has that can be left out.
    pub(super) fn parts(&self) -> usize {
        self.files.len()
            + self.documents().map(Node::parts).sum::<usize>()
            + self.documents().count()
    }

    /// The same without one of them: a file, a document, or something inside of one.
    pub(super) fn without(&self, mut part: usize) -> Tree {
        let mut tree = self.clone();
        if part < tree.files.len() {
            tree.files.remove(part);
            return tree;
        }
        part -= tree.files.len();
        for (_, documents) in &mut tree.files {
            if part < documents.len() {
                documents.remove(part);
                return tree;
            }
            part -= documents.len();
        }
        for document in tree.files.iter_mut().flat_map(|(_, documents)| documents) {
            if document.leave_out(&mut part) {
                break;
            }
        }
        tree
    }

    fn documents(&self) -> impl Iterator<Item = &Node> {
        self.files.iter().flat_map(|(_, documents)| documents)
    }
}

/// Numbers without end from a seed.
pub(super) struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True once in so many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

/// The tree of a seed.
pub(super) fn tree(seed: u64) -> Tree {
    let mut random = Random(seed);
    let random = &mut random;
    let mut tree = Tree { files: Vec::new() };
    let bases = 1 + usize::from(random.once_in(3));
    let mut objects = Vec::new();
    let mut below = Vec::new();
    for base in 0..bases {
        let directory = format!("base{base}");
        objects.extend(objects::base(random, base, &directory, &mut tree.files));
        below.push(directory);
    }
    let layers = 1 + random.below(2);
    for layer in 0..layers {
        let is_last = layer + 1 == layers;
        let directory = if is_last { ROOT.to_owned() } else { format!("layer{layer}") };
        let mut kustomization = map::<String>([]);
        kustomization.put("resources", list(below.iter().map(|path| scalar(format!("../{path}")))));
        if random.once_in(4) {
            let component = format!("component{layer}");
            let mut body = map([
                ("apiVersion", "kustomize.config.k8s.io/v1alpha1".into()),
                ("kind", "Component".into()),
            ]);
            fields::fill(random, &mut body, &objects, &component, &mut tree.files);
            tree.files.push((format!("{component}/kustomization.yaml"), vec![body]));
            kustomization.put("components", list([scalar(format!("../{component}"))]));
        }
        fields::fill(random, &mut kustomization, &objects, &directory, &mut tree.files);
        if is_last {
            fields::for_the_whole_build(random, &mut kustomization);
        }
        tree.files.push((format!("{directory}/kustomization.yaml"), vec![kustomization]));
        below = vec![directory];
    }
    tree
}

const KEYS: [&str; 7] = ["app", "env", "tier", "team", "x.io/part", "k", "note"];

/// A text for a label or an annotation, as a user might write it.
fn text(random: &mut Random) -> Node {
    let plain = ["web", "db", "prod", "base", "a b", "x-1", "1.2.3"];
    let odd = [
        "\"web\"", "'db'", "\"1\"", "\"true\"", "\"0x1F\"", "'null'", "\"\"", "\"1e3\"", "\"yes\"",
    ];
    if random.once_in(3) { random.pick(&odd).into() } else { random.pick(&plain).into() }
}

/// Anything that can stand behind a key.
fn anything(random: &mut Random) -> Node {
    let odd = [
        "",
        "null",
        "~",
        "5",
        "-1",
        "1.50",
        "true",
        "no",
        "\"5\"",
        "'x'",
        "\"a: b\"",
        "07",
        "1e3",
        "|\n  one\n  two",
        "|-\n  one\n\n  two",
        ">\n  one\n  two",
        ">-\n  one\n   two\n\n  three",
        "2001-01-01",
        "\"2001-01-01\"",
        "!!str 5",
    ];
    if random.once_in(3) { random.pick(&odd).into() } else { text(random) }
}

fn pairs(random: &mut Random, most: usize, value: impl Fn(&mut Random) -> Node) -> Node {
    let mut pairs = map::<String>([]);
    for _ in 0..=random.below(most) {
        let key = random.pick(&KEYS);
        pairs.put(key, value(random));
    }
    pairs
}
