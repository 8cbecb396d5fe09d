//! What is known of each version of Kubernetes: one generated table with its kinds, scopes, types, merge keys and list
//! types. [`crate::Kinds`] reads the kinds of a table, `kiln_schema` the types.

/// The table of Kubernetes 1.36.
pub const TABLE_1_36: &str = include_str!("../tables/kubernetes-1.36.txt");

/// The table of Kubernetes 1.37.
pub const TABLE_1_37: &str = include_str!("../tables/kubernetes-1.37.txt");

/// A kind as discovery lists it: a line of a table.
#[derive(Debug)]
pub struct KindRow<'t> {
    /// Group and version, as objects write them.
    pub api_version: &'t str,
    pub kind: &'t str,
    pub plural: &'t str,
    pub namespaced: bool,
    /// What can be done with it.
    pub verbs: Vec<&'t str>,
    pub short_names: Vec<&'t str>,
    pub categories: Vec<&'t str>,
    /// Its subresources, by name.
    pub subresources: Vec<SubresourceRow<'t>>,
}

/// A subresource in a line of a table.
#[derive(Debug)]
pub struct SubresourceRow<'t> {
    pub name: &'t str,
    /// Empty for that of the object.
    pub api_version: &'t str,
    pub kind: &'t str,
    pub verbs: Vec<&'t str>,
}

/// The kinds of a table.
pub fn kind_rows(table: &str) -> impl Iterator<Item = KindRow<'_>> {
    table.lines().filter_map(|line| line.strip_prefix("* ")).filter_map(kind_row)
}

fn kind_row(line: &str) -> Option<KindRow<'_>> {
    let mut words = line.split(' ');
    let (api_version, kind, plural) = (words.next()?, words.next()?, words.next()?);
    let namespaced = words.next()? == "namespaced";
    let mut row = KindRow {
        api_version,
        kind,
        plural,
        namespaced,
        verbs: words.next()?.split(',').collect(),
        short_names: Vec::new(),
        categories: Vec::new(),
        subresources: Vec::new(),
    };
    for extra in words {
        if let Some(names) = extra.strip_prefix("S=") {
            row.short_names = names.split(',').collect();
        } else if let Some(names) = extra.strip_prefix("C=") {
            row.categories = names.split(',').collect();
        } else if let Some((name, rest)) = extra.strip_prefix('/').and_then(|e| e.split_once('=')) {
            let mut parts = rest.splitn(3, ':');
            let (api_version, kind) = (parts.next()?, parts.next()?);
            let verbs = parts.next()?.split(',').collect();
            row.subresources.push(SubresourceRow { name, api_version, kind, verbs });
        }
    }
    Some(row)
}
