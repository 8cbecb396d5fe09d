//! What functions lose on the way: comments, and the order of fields.

use kiln_yaml::{Comments, Node, NodeKind, NodeStyle};

/// Gives what a function wrote the comments and the order of what it got.
pub(super) fn take_over(old: &Node, new: &mut Node) {
    // What stands above and below a whole document stands around its root now.
    copy(&old.comments, &mut new.comments);
    comments(old.root(), new.root_mut());
    order(old.root(), new.root_mut());
}

fn copy(from: &Comments, to: &mut Comments) {
    for (from, to) in
        [(&from.head, &mut to.head), (&from.line, &mut to.line), (&from.foot, &mut to.foot)]
    {
        if to.is_empty() {
            to.clone_from(from);
        }
    }
}

fn comments(old: &Node, new: &mut Node) {
    if old.kind != new.kind {
        return;
    }
    copy(&old.comments, &mut new.comments);
    match new.kind {
        // kustomize: a comment would end up in the text of a folded block.
        NodeKind::Scalar if new.style.has(NodeStyle::FOLDED) => {
            new.style = NodeStyle::DOUBLE_QUOTED;
        }
        NodeKind::Map => {
            for pair in new.content.chunks_exact_mut(2) {
                let [key, value] = pair else { continue };
                let Some(at) = old.position(&key.value) else { continue };
                copy(&old.content[at].comments, &mut key.comments);
                comments(&old.content[at + 1], value);
            }
        }
        NodeKind::List => {
            let by_name =
                |list: &Node| list.content.iter().all(|inner| inner.get("name").is_some());
            let named = by_name(old) && by_name(new);
            for (at, inner) in new.content.iter_mut().enumerate() {
                let same = match inner.get("name").filter(|_| named) {
                    Some(name) => old
                        .content
                        .iter()
                        .find(|old| old.get("name").is_some_and(|other| other.value == name.value)),
                    None => old.content.get(at).filter(|old| old.value == inner.value),
                };
                if let Some(same) = same {
                    comments(same, inner);
                }
            }
        }
        _ => {}
    }
}

/// Fields come in the order that they had; new ones at the end.
fn order(old: &Node, new: &mut Node) {
    if old.kind != new.kind {
        return;
    }
    match new.kind {
        NodeKind::Map => {
            let mut pairs: Vec<[Node; 2]> = Vec::new();
            let mut content = std::mem::take(&mut new.content).into_iter();
            while let (Some(key), Some(mut value)) = (content.next(), content.next()) {
                if let Some(before) = old.get(&key.value) {
                    order(before, &mut value);
                }
                pairs.push([key, value]);
            }
            pairs.sort_by_key(|[key, _]| old.position(&key.value).unwrap_or(usize::MAX));
            new.content = pairs.into_iter().flatten().collect();
        }
        NodeKind::List => {
            for (old, new) in old.content.iter().zip(&mut new.content) {
                order(old, new);
            }
        }
        _ => {}
    }
}
