//! A lineage as a picture: policy, rule, trigger, sources and downstreams in columns.

use std::collections::{BTreeMap, BTreeSet};

use super::writer::HtmlWriter;
use crate::lineage::{Lineage, LineageLink, LinkState};
use crate::object_name::ObjectName;

/// Heights and widths in the units of the picture.
const ROW: i64 = 56;
const NODE_HEIGHT: i64 = 46;
/// All five columns fit beside the objects of a cluster on a page of 1,280 pixels.
const NODE_WIDTH: i64 = 164;
const GAP: i64 = 20;
const TOP: i64 = 30;
const SIDE: i64 = 8;
/// How many characters fit into a node.
const NAME_LENGTH: usize = 20;
const DETAIL_LENGTH: usize = 27;
/// The longest tooltip: names of objects have at most 253 characters, messages may have any number.
const TITLE_LENGTH: usize = 300;
/// The longest name of an object.
const LONGEST_NAME: usize = 253;

const COLUMNS: [&str; 5] = ["Policy", "Rule", "Trigger", "Source", "Downstream or target"];

/// A row of the picture: one link, or the links that are not drawn.
enum Row<'l> {
    Link(&'l LineageLink),
    /// How many more the rule has, and in how many namespaces.
    More {
        of: &'l LineageLink,
        count: usize,
        namespaces: usize,
    },
}

impl<'l> Row<'l> {
    fn link(&self) -> &'l LineageLink {
        match self {
            Row::Link(link) | Row::More { of: link, .. } => link,
        }
    }
}

/// Draws a lineage in at most so many rows; rules with more objects say how many are left out.
pub fn lineage_picture(html: &mut HtmlWriter, lineage: &Lineage, max_rows: usize) {
    let (rows, left_out) = rows(lineage, max_rows);
    if rows.is_empty() {
        html.raw("<p class=\"empty\">No rule made, changed or denied an object.</p>");
        return;
    }
    let layout = Layout::new(&rows);
    let height = TOP + ROW * i64::try_from(layout.height).unwrap_or(0);
    html.raw(
        "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Lineage picture\">",
    );
    html.raw(
        "<svg class=\"lineage\" role=\"img\" aria-label=\"From policies to objects\" width=\"",
    );
    html.number(layout.width()).raw("\" height=\"").number(height).raw("\" viewBox=\"0 0 ");
    html.number(layout.width()).raw(" ").number(height).raw("\">");
    for (column, title) in COLUMNS.iter().enumerate().filter(|(at, _)| layout.has(*at)) {
        html.raw("<text class=\"head\" x=\"").number(layout.x(column)).raw("\" y=\"16\">");
        html.raw(title).raw("</text>");
    }
    for (from, to) in &layout.edges {
        let (a, b) = (&layout.nodes[*from], &layout.nodes[*to]);
        let (x1, y1) = (layout.x(a.column) + NODE_WIDTH, a.y + NODE_HEIGHT / 2);
        let (x2, y2) = (layout.x(b.column), b.y + NODE_HEIGHT / 2);
        let bend = (x2 - x1) / 2;
        html.raw("<path class=\"edge\" d=\"M").number(x1).raw(" ").number(y1);
        html.raw("C").number(x1 + bend).raw(" ").number(y1);
        html.raw(" ").number(x2 - bend).raw(" ").number(y2);
        html.raw(" ").number(x2).raw(" ").number(y2).raw("\"/>");
    }
    for node in &layout.nodes {
        draw_node(html, &layout, node);
    }
    html.raw("</svg></div>");
    if left_out > 0 {
        html.raw("<p class=\"muted\">").count(left_out);
        html.raw(
            " more links are not drawn; filter by namespace, policy or state to see them.</p>",
        );
    }
}

/// The rows, and how many links are in none of them.
fn rows(lineage: &Lineage, max_rows: usize) -> (Vec<Row<'_>>, usize) {
    let rules: Vec<&[LineageLink]> = lineage.links.chunk_by(|a, b| a.rule == b.rule).collect();
    if lineage.links.len() <= max_rows {
        return (lineage.links.iter().map(Row::Link).collect(), 0);
    }
    let shown = rules.len().min(max_rows / 2).max(1);
    let each = (max_rows / shown).max(2) - 1;
    let mut rows = Vec::new();
    for links in rules.iter().take(shown) {
        let fits = if links.len() <= each + 1 { links.len() } else { each };
        rows.extend(links.iter().take(fits).map(Row::Link));
        if let [first, ..] = &links[fits..] {
            let namespaces: BTreeSet<_> = links[fits..]
                .iter()
                .filter_map(|link| link.object.as_ref())
                .map(|o| &o.namespace)
                .collect();
            let (count, namespaces) = (links.len() - fits, namespaces.len());
            rows.push(Row::More { of: first, count, namespaces });
        }
    }
    (rows, rules.iter().skip(shown).map(|links| links.len()).sum())
}

struct Node {
    column: usize,
    y: i64,
    name: String,
    detail: String,
    /// Everything that the node stands for, for a tooltip.
    title: String,
    state: Option<LinkState>,
    /// What a click on it means.
    object: Option<ObjectName>,
}

/// Where everything is.
struct Layout {
    nodes: Vec<Node>,
    edges: BTreeSet<(usize, usize)>,
    has_triggers: bool,
    has_sources: bool,
    /// In rows.
    height: usize,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct NodeKey<'k> {
    column: usize,
    policy: &'k str,
    rule: &'k str,
    object: Option<&'k ObjectName>,
    row: usize,
}

impl Layout {
    fn new(rows: &[Row<'_>]) -> Self {
        let mut layout = Layout {
            nodes: Vec::new(),
            edges: BTreeSet::new(),
            has_triggers: rows.iter().any(|row| row.link().trigger.is_some()),
            has_sources: rows.iter().any(|row| !row.link().sources.is_empty()),
            height: rows.len(),
        };
        // Which rows a node belongs to decides its height in the picture.
        let mut known: BTreeMap<NodeKey<'_>, (usize, usize, usize)> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            let link = row.link();
            let (policy, rule) = (link.rule.policy.as_str(), link.rule.rule.as_str());
            let mut add = |layout: &mut Layout, key: NodeKey<'_>, node: Node| {
                let key = NodeKey {
                    policy,
                    rule: if key.column == 0 { "" } else { rule },
                    ..key_of(&key, link)
                };
                let index = layout.nodes.len();
                let entry = known.entry(key).or_insert((index, at, at));
                entry.2 = at;
                if entry.0 == index {
                    layout.nodes.push(node);
                }
                entry.0
            };
            let own = |column| NodeKey { column, policy: "", rule: "", object: None, row: 0 };
            let mut last = add(&mut layout, own(0), Node::named(0, policy, "policy"));
            let has_name = !rule.is_empty() && rule != policy;
            let rule_node = Node::named(1, if has_name { rule } else { policy }, "rule");
            let next = add(&mut layout, own(1), rule_node);
            layout.edges.insert((last, next));
            last = next;
            if let Row::More { count, namespaces, .. } = row {
                let node = Node::more(*count, *namespaces);
                let next = add(&mut layout, NodeKey { row: at + 1, ..own(4) }, node);
                layout.edges.insert((last, next));
                continue;
            }
            if let Some(trigger) = &link.trigger {
                let mut node = Node::object(2, trigger);
                if link.object.is_none() {
                    node.state = Some(link.state);
                    node.title = titled(&node.title, link);
                }
                let next = add(&mut layout, own(2), node);
                layout.edges.insert((last, next));
                last = next;
            }
            let Some(object) = &link.object else { continue };
            let mut node = Node::object(4, object);
            node.state = Some(link.state);
            node.title = titled(&node.title, link);
            let end = add(&mut layout, NodeKey { row: at + 1, ..own(4) }, node);
            if link.sources.is_empty() {
                layout.edges.insert((last, end));
            }
            for (number, source) in link.sources.iter().enumerate() {
                let key = NodeKey { row: number, ..own(3) };
                let next = add(&mut layout, key, Node::object(3, source));
                layout.edges.insert((last, next));
                layout.edges.insert((next, end));
            }
        }
        for (index, first, end) in known.into_values() {
            let middle = i64::try_from(first + end).unwrap_or(0) * ROW / 2;
            layout.nodes[index].y = TOP + middle;
        }
        layout.spread_sources();
        layout
    }

    /// Sources of several rows may want one place.
    fn spread_sources(&mut self) {
        let mut sources: Vec<usize> =
            (0..self.nodes.len()).filter(|at| self.nodes[*at].column == 3).collect();
        sources.sort_by_key(|at| self.nodes[*at].y);
        let mut free = TOP;
        for at in sources {
            let y = self.nodes[at].y.max(free);
            self.nodes[at].y = y;
            free = y + ROW;
        }
        let end = usize::try_from((free - TOP) / ROW).unwrap_or(0);
        self.height = self.height.max(end);
    }

    fn has(&self, column: usize) -> bool {
        match column {
            2 => self.has_triggers,
            3 => self.has_sources,
            _ => true,
        }
    }

    fn x(&self, column: usize) -> i64 {
        let before = (0..column).filter(|at| self.has(*at)).count();
        SIDE + i64::try_from(before).unwrap_or(0) * (NODE_WIDTH + GAP)
    }

    fn width(&self) -> i64 {
        self.x(5) - GAP + SIDE
    }
}

/// The key of a node of a link: triggers and sources are told apart by what they are.
fn key_of<'k>(key: &NodeKey<'_>, link: &'k LineageLink) -> NodeKey<'k> {
    let object = match key.column {
        2 => link.trigger.as_ref(),
        3 => link.sources.get(key.row),
        _ => None,
    };
    let row = if key.column == 4 { key.row } else { 0 };
    NodeKey { column: key.column, policy: "", rule: "", object, row }
}

fn titled(title: &str, link: &LineageLink) -> String {
    match &link.why {
        Some(why) => format!("{title}\n{}: {why}", link.state.as_str()),
        None => format!("{title}\n{}", link.state.as_str()),
    }
}

impl Node {
    fn named(column: usize, name: &str, detail: &str) -> Self {
        Node {
            column,
            y: 0,
            name: name.to_owned(),
            detail: detail.to_owned(),
            title: name.to_owned(),
            state: None,
            object: None,
        }
    }

    fn more(count: usize, namespaces: usize) -> Self {
        let detail = match namespaces {
            0 | 1 => "of this rule".to_owned(),
            many => format!("in {many} namespaces"),
        };
        Node::named(4, &format!("{count} more objects"), &detail)
    }

    fn object(column: usize, object: &ObjectName) -> Self {
        let detail = match object.namespace.as_str() {
            "" => object.kind.clone(),
            namespace => format!("{} in {namespace}", object.kind),
        };
        let title = format!("{} {} {}", object.api_version, object.kind, object.path());
        Node { object: Some(object.clone()), title, ..Node::named(column, &object.name, &detail) }
    }
}

fn draw_node(html: &mut HtmlWriter, layout: &Layout, node: &Node) {
    let (x, y) = (layout.x(node.column), node.y);
    html.raw("<g class=\"node ").raw(node.state.map_or("t-plain", LinkState::class)).raw("\"");
    if let Some(object) = &node.object {
        let parts = [&object.api_version, &object.kind, &object.namespace, &object.name];
        // No stored object has a longer name, and a page has no room for one.
        if parts.iter().all(|part| part.len() <= LONGEST_NAME) {
            html.raw(" data-object=\"").text(&parts.map(String::as_str).join("|")).raw("\"");
        }
    }
    html.raw("><title>")
        .text(&shortened(&node.title, TITLE_LENGTH))
        .raw("</title><rect x=\"")
        .number(x)
        .raw("\" y=\"");
    html.number(y).raw("\" width=\"").number(NODE_WIDTH).raw("\" height=\"").number(NODE_HEIGHT);
    html.raw("\" rx=\"5\"/>");
    let mut line = |class: &'static str, down: i64, words: &str| {
        html.raw("<text class=\"").raw(class).raw("\" x=\"").number(x + 9).raw("\" y=\"");
        html.number(y + down).raw("\">").text(words).raw("</text>");
    };
    let first = if node.state.is_some() { 14 } else { 20 };
    line("name", first, &shortened(&node.name, NAME_LENGTH));
    line("detail", first + 13, &shortened(&node.detail, DETAIL_LENGTH));
    if let Some(state) = node.state {
        line("state", first + 26, state.as_str());
    }
    html.raw("</g>");
}

/// The text, with its middle left out if it is long: names often differ at their ends.
fn shortened(text: &str, length: usize) -> String {
    let count = text.chars().count();
    if count <= length {
        return text.to_owned();
    }
    let head = length / 2;
    let tail = length.saturating_sub(head + 1);
    let start: String = text.chars().take(head).collect();
    let end: String = text.chars().skip(count - tail).collect();
    format!("{start}…{end}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object_name::RuleName;

    fn object(kind: &str, namespace: &str, name: &str) -> ObjectName {
        ObjectName {
            namespace: namespace.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            api_version: "v1".to_owned(),
        }
    }

    fn clones(count: usize) -> Lineage {
        let links = (0..count).map(|number| {
            let namespace = format!("team-{number:04}");
            LineageLink {
                rule: RuleName { policy: "sync".to_owned(), rule: "clone".to_owned() },
                trigger: Some(object("Namespace", "", &namespace)),
                sources: vec![object("Secret", "default", "pull")],
                object: Some(object("Secret", &namespace, "pull")),
                state: LinkState::Created,
                why: None,
            }
        });
        Lineage::new(links.collect())
    }

    fn drawn(lineage: &Lineage, rows: usize) -> String {
        let mut html = HtmlWriter::new();
        lineage_picture(&mut html, lineage, rows);
        html.finish()
    }

    #[test]
    fn a_source_of_many_is_drawn_once() {
        let picture = drawn(&clones(3), 60);
        // Policy, rule, three triggers, one source, three downstreams.
        assert_eq!(picture.matches("<g class=\"node").count(), 9, "{picture}");
        // policy-rule, 3 rule-trigger, 3 trigger-source, 3 source-downstream.
        assert_eq!(picture.matches("class=\"edge\"").count(), 10);
        assert!(picture.contains(">Source</text>"));
    }

    #[test]
    fn thousands_of_objects_are_folded_and_counted() {
        let picture = drawn(&clones(5_000), 60);
        assert!(picture.contains("4941 more objects"), "{}", picture.len());
        assert!(picture.len() < 60_000, "{}", picture.len());
        let all = drawn(&clones(1_000), 1_000);
        assert!(all.contains("team-0999"));
        assert!(!all.contains("more objects"));
    }

    #[test]
    fn nothing_says_so() {
        assert!(drawn(&Lineage::default(), 60).contains("No rule made"));
    }

    #[test]
    fn long_names_keep_both_ends() {
        assert_eq!(shortened("abcdefghij", 7), "abc…hij");
        assert_eq!(shortened("abc", 7), "abc");
    }
}
