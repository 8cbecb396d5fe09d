//! `cfg tree`: objects by the directories that they are in, or by who owns them.

use std::collections::BTreeMap;

use kiln_yaml::{Node, NodeStyle};

use super::{format, matching, meta};
use crate::error::{Error, Result};
use crate::load::paths;

/// How to show a tree.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    fields: Vec<TreeField>,
    /// Whose branches; otherwise those of owners if any object has one.
    structure: Option<Structure>,
}

/// What the branches are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Structure {
    Directory,
    Owners,
}

/// A field that is shown below its object.
#[derive(Clone, Debug)]
struct TreeField {
    path: Vec<String>,
    /// The list that it is shown below, and its name there.
    name: String,
    within: Option<String>,
}

/// The deepest that a tree may be, as values in documents.
const DEEPEST: usize = 500;

const CONTAINERS: [&str; 3] = [
    "spec.template.spec.containers",
    "spec.jobTemplate.spec.template.spec.containers",
    "spec.containers",
];

impl TreeField {
    fn new(path: Vec<String>) -> Self {
        let name = path.join(".");
        match CONTAINERS.into_iter().find(|list| name.starts_with(list)) {
            Some(list) => {
                let within = path.last().cloned();
                TreeField { path, name: list.to_owned(), within }
            }
            None => TreeField { path, name, within: None },
        }
    }
}

impl Tree {
    /// A tree without fields; by default, those of owners if any object has one.
    pub fn new(structure: Option<Structure>) -> Self {
        Tree { fields: Vec::new(), structure }
    }

    /// Shows a field by its path.
    ///
    /// # Errors
    /// When the path is malformed.
    pub fn field(&mut self, path: &str) -> Result<()> {
        self.fields.push(TreeField::new(matching::parse(path)?));
        Ok(())
    }

    /// Shows a field of all containers, wherever kinds have them.
    pub fn container_field(&mut self, name: &str) {
        for list in [CONTAINERS[2], CONTAINERS[0], CONTAINERS[1]] {
            let mut path: Vec<String> = list.split('.').map(str::to_owned).collect();
            path.extend(["[name=.*]".to_owned(), name.to_owned()]);
            self.fields.push(TreeField::new(path));
        }
    }

    pub(super) fn show(
        &self,
        nodes: Vec<Node>,
        root: &str,
        is_package: &dyn Fn(&str) -> bool,
    ) -> Result<String> {
        let owned = |node: &Node| {
            let metadata = node.root().get("metadata");
            metadata.is_some_and(|metadata| metadata.get("ownerReferences").is_some())
        };
        let by_owners = match self.structure {
            None => nodes.iter().any(owned),
            Some(structure) => structure == Structure::Owners,
        };
        let tree = if by_owners {
            self.by_owners(&nodes)?
        } else {
            self.by_directory(nodes, root, is_package)?
        };
        let mut text = format!("{}\n", tree.value);
        tree.print(&mut String::new(), &mut text);
        Ok(text)
    }

    fn by_directory(
        &self,
        mut nodes: Vec<Node>,
        root: &str,
        is_package: &dyn Fn(&str) -> bool,
    ) -> Result<Branch> {
        nodes.iter_mut().try_for_each(meta::copy_legacy)?;
        nodes.retain(|node| !meta::kind(node).is_empty());
        nodes.sort_by(|a, b| order(a).cmp(&order(b)));
        let mut directories: BTreeMap<&str, Vec<&Node>> = BTreeMap::new();
        for node in &nodes {
            directories.entry(directory(meta::path(node))).or_default().push(node);
        }
        let mut tree = Branch::new(root);
        let mut begun: Vec<(&str, Vec<usize>)> = Vec::new();
        for (name, members) in directories {
            let mut at = Vec::new();
            if name != "." {
                // Names are sorted, so that a directory comes after those that it is in.
                let above = begun.iter().filter(|(above, _)| paths::is_within(name, above));
                at = above
                    .max_by_key(|(above, _)| above.len())
                    .map(|(_, at)| at.clone())
                    .unwrap_or_default();
                let shown = if is_package(name) { "Pkg: " } else { "" };
                let branch = tree.at(&at);
                branch.inner.push(Branch::new(&format!("{shown}{}", paths::base(name))));
                at.push(branch.inner.len() - 1);
                check_depth(at.len())?;
                begun.push((name, at.clone()));
            }
            for node in members {
                let file = match paths::base(meta::path(node)) {
                    "" => ".",
                    name => name,
                };
                let branch = self.object(node, file)?;
                tree.at(&at).inner.push(branch);
            }
        }
        Ok(tree)
    }

    fn by_owners(&self, nodes: &[Node]) -> Result<Branch> {
        let mut owned: BTreeMap<String, Vec<&Node>> = BTreeMap::new();
        let mut known = std::collections::BTreeSet::new();
        for node in nodes {
            known.insert(format!(
                "{} {}/{}",
                meta::kind(node),
                meta::namespace(node),
                meta::name(node)
            ));
            owned.entry(owner(node)).or_default().push(node);
        }
        if let Some(missing) = owned.keys().find(|key| !key.is_empty() && !known.contains(*key)) {
            return Err(Error::new(format!(
                "owner '{missing}' not found in input, but found as an owner of input objects"
            )));
        }
        let mut tree = Branch::new(".");
        self.owned_by("", &mut owned, &mut tree, 0)?;
        Ok(tree)
    }

    fn owned_by(
        &self,
        key: &str,
        owned: &mut BTreeMap<String, Vec<&Node>>,
        branch: &mut Branch,
        depth: usize,
    ) -> Result<()> {
        check_depth(depth)?;
        // Taken out, so that objects that own each other end somewhere.
        let mut members = owned.remove(key).unwrap_or_default();
        members.sort_by(|a, b| order(a).cmp(&order(b)));
        for node in members {
            let mut inner = self.object(node, "Resource")?;
            let key =
                format!("{} {}/{}", meta::kind(node), meta::namespace(node), meta::name(node));
            self.owned_by(&key, owned, &mut inner, depth + 1)?;
            branch.inner.push(inner);
        }
        Ok(())
    }

    /// An object with its fields.
    fn object(&self, node: &Node, label: &str) -> Result<Branch> {
        let (kind, name) = (meta::kind(node), meta::name(node));
        let mut branch = Branch::new(&match meta::namespace(node) {
            "" => format!("{kind} {name}"),
            namespace => format!("{kind} {namespace}/{name}"),
        });
        branch.label = Some(label.to_owned());
        // The value of each field, or its elements by what they were found by.
        let mut shown: BTreeMap<(usize, String), Shown> = BTreeMap::new();
        for field in &self.fields {
            let found = matching::find(node.root(), &field.path)?;
            if found.is_empty() {
                continue;
            }
            let (rank, _) = format::rank(&field.name);
            let shown = shown.entry((rank, field.name.clone())).or_default();
            let Some(within) = &field.within else {
                shown.value = found.first().map(|found| in_flow(&found.node)).unwrap_or_default();
                continue;
            };
            for found in found {
                let elements = shown.elements.entry(found.by.join("/")).or_default();
                elements.push((within.clone(), in_flow(&found.node)));
            }
        }
        for ((_, name), shown) in shown {
            if shown.elements.is_empty() {
                branch.inner.push(Branch::new(&format!("{name}: {}", shown.value)));
                continue;
            }
            let mut list = Branch::new(&name);
            let mut elements: Vec<_> = shown.elements.into_iter().collect();
            elements.sort_by(|(a, _), (b, _)| format::rank(a).cmp(&format::rank(b)));
            for (at, (_, mut fields)) in elements.into_iter().enumerate() {
                fields.sort_by(|a, b| (format::rank(&a.0), &a.1).cmp(&(format::rank(&b.0), &b.1)));
                let mut element = Branch::new(&at.to_string());
                let fields =
                    fields.iter().map(|(name, value)| Branch::new(&format!("{name}: {value}")));
                element.inner.extend(fields);
                list.inner.push(element);
            }
            branch.inner.push(list);
        }
        Ok(branch)
    }
}

#[derive(Default)]
struct Shown {
    value: String,
    elements: BTreeMap<String, Vec<(String, String)>>,
}

/// A node on one line, without comments.
fn in_flow(node: &Node) -> String {
    let mut node = node.clone();
    node.strip_comments();
    node.style = NodeStyle::FLOW;
    kiln_yaml::emit_node(&node).trim().to_owned()
}

/// What objects of one branch are sorted by.
fn order(node: &Node) -> [&str; 5] {
    let file = paths::base(meta::path(node));
    [file, meta::namespace(node), meta::name(node), meta::kind(node), meta::api_version(node)]
}

/// No tree is deeper than values may nest: each level takes a part of the stack.
fn check_depth(depth: usize) -> Result<()> {
    match depth > DEEPEST {
        true => Err(Error::new(format!("the tree is more than {DEEPEST} levels deep"))),
        false => Ok(()),
    }
}

/// The directory of a file as Go has it: `.` for one without.
fn directory(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(directory, _)| directory)
}

/// The key of the first owner; empty if there is none.
fn owner(node: &Node) -> String {
    let references =
        node.root().get("metadata").and_then(|metadata| metadata.get("ownerReferences"));
    let Some(first) = references.and_then(|list| list.content.first()) else {
        return String::new();
    };
    let text = |field: &str| first.get(field).map_or("", |value| value.value.as_str());
    format!("{} {}/{}", text("kind"), meta::namespace(node), text("name"))
}

/// A line of the tree, and what is below it.
struct Branch {
    label: Option<String>,
    value: String,
    inner: Vec<Branch>,
}

impl Branch {
    fn new(value: &str) -> Self {
        Branch { label: None, value: value.to_owned(), inner: Vec::new() }
    }

    fn at(&mut self, path: &[usize]) -> &mut Branch {
        path.iter().fold(self, |branch, at| &mut branch.inner[*at])
    }

    fn print(&self, above: &mut String, text: &mut String) {
        for (at, branch) in self.inner.iter().enumerate() {
            let last = at + 1 == self.inner.len();
            let label =
                branch.label.as_ref().map(|label| format!("[{label}]  ")).unwrap_or_default();
            let edge = if last { "└──" } else { "├──" };
            let length = above.len();
            let further = if last { "    " } else { "│   " };
            let value = branch.value.replace('\n', &format!("\n{above}{further}"));
            text.push_str(&format!("{above}{edge} {label}{value}\n"));
            above.push_str(further);
            branch.print(above, text);
            above.truncate(length);
        }
    }
}
