//! A report as HTML: a page that stands alone, or the part of it that the web application shows.
//!
//! The page has no script and loads nothing, so it can be attached to a ticket and opened anywhere. However large the
//! report is, the page stays below [`MAX_PAGE_SIZE`]: what does not fit is counted instead.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

use super::lineage_picture::lineage_picture;
use super::writer::HtmlWriter;
use crate::plan_report::{
    ActionCounts, ChangeAction, NamespaceChanges, PlanReport, ReportedChange, ReportedResult,
};

/// The most bytes of a page.
pub const MAX_PAGE_SIZE: usize = 400_000;

/// What the parts of a page may take of it. Together with the styles they are less than the whole.
const LINEAGE_ROWS: usize = 60;
const RADIUS_SIZE: usize = 40_000;
const CHANGES_SIZE: usize = 100_000;
const RESULTS_SIZE: usize = 60_000;
const NOTES_SIZE: usize = 20_000;
/// The most lines of one difference.
const DIFF_LINES: usize = 400;

/// The styles of every page.
pub const STYLES: &str = include_str!("studio.css");

/// The whole page.
pub fn plan_page(report: &PlanReport) -> String {
    let mut html = HtmlWriter::new();
    let digest = STANDARD.encode(Sha256::digest(STYLES));
    html.raw("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    html.raw("<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-");
    html.text(&digest);
    html.raw("'; base-uri 'none'; form-action 'none'\">\n");
    html.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    html.raw("<meta name=\"color-scheme\" content=\"light dark\">\n<title>").text(&report.title);
    html.raw("</title>\n<style>")
        .raw(STYLES)
        .raw("</style>\n</head>\n<body>\n<header class=\"top\"><h1>");
    html.text(&report.title).raw("</h1><p>").text(&report.summary).raw("</p></header>\n<main>\n");
    html.append(&plan_sections(report));
    html.raw("</main>\n<footer>Made by Kiln. This page has no script and loads nothing.</footer>\n</body>\n</html>\n");
    html.finish()
}

/// What stands between the header and the footer.
pub fn plan_sections(report: &PlanReport) -> HtmlWriter {
    let mut html = HtmlWriter::new();
    chips(&mut html, &report.counts());
    let namespaces = report.by_namespace();
    if !namespaces.is_empty() {
        blast_radius(&mut html, &namespaces);
    }
    html.raw("<section aria-labelledby=\"lineage\"><h2 id=\"lineage\">Lineage</h2>");
    lineage_picture(&mut html, &report.lineage, LINEAGE_ROWS);
    html.raw("</section>\n");
    changes(&mut html, &namespaces);
    if !report.results.is_empty() {
        results(&mut html, &report.results);
    }
    notes(&mut html, report);
    html
}

fn chips(html: &mut HtmlWriter, counts: &ActionCounts) {
    html.raw("<ul class=\"chips\" aria-label=\"Counts\">");
    for (action, count) in ChangeAction::ALL.into_iter().zip(counts) {
        // The three that everybody asks about are there even when they are none.
        if *count == 0
            && !matches!(action, ChangeAction::Create | ChangeAction::Change | ChangeAction::Delete)
        {
            continue;
        }
        html.raw("<li class=\"chip ").raw(if *count == 0 { "t-plain" } else { action.class() });
        html.raw("\"><b>").count(*count).raw("</b> ").raw(action.as_str()).raw("</li>");
    }
    html.raw("</ul>\n");
}

fn named(namespace: &str) -> &str {
    if namespace.is_empty() { "(cluster)" } else { namespace }
}

/// Which namespaces are hit how hard: a table with bars.
fn blast_radius(html: &mut HtmlWriter, namespaces: &[NamespaceChanges<'_>]) {
    html.raw("<section aria-labelledby=\"radius\"><h2 id=\"radius\">Blast radius</h2>");
    let total = |changes: &NamespaceChanges<'_>| changes.counts.iter().sum::<usize>();
    let most = namespaces.iter().map(total).max().unwrap_or(1).max(1);
    let used: Vec<usize> = (0..ChangeAction::ALL.len())
        .filter(|at| namespaces.iter().any(|changes| changes.counts[*at] > 0))
        .collect();
    html.raw("<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Changes per namespace\"><table><thead><tr><th scope=\"col\">Namespace</th>");
    for at in &used {
        html.raw("<th scope=\"col\" class=\"n\">")
            .raw(ChangeAction::ALL[*at].as_str())
            .raw("</th>");
    }
    html.raw("<th scope=\"col\" class=\"wide\">Share</th></tr></thead><tbody>");
    // Those that are hit hardest come first.
    let mut order: Vec<&NamespaceChanges<'_>> = namespaces.iter().collect();
    order.sort_by_key(|changes| std::cmp::Reverse(total(changes)));
    let begin = html.len();
    for (at, changes) in order.iter().enumerate() {
        if html.len() - begin > RADIUS_SIZE {
            html.raw("<tr><td>").count(order.len() - at).raw(" more namespaces</td></tr>");
            break;
        }
        html.raw("<tr><th scope=\"row\">").text(named(changes.namespace)).raw("</th>");
        for at in &used {
            html.raw("<td class=\"n\">").count(changes.counts[*at]).raw("</td>");
        }
        html.raw("<td><svg class=\"bar\" aria-hidden=\"true\" width=\"240\" height=\"12\">");
        let mut x = 0;
        for (action, count) in ChangeAction::ALL.into_iter().zip(changes.counts) {
            let width =
                i64::try_from(count * 240 / most).unwrap_or(0).max(i64::from(count > 0) * 2);
            if width > 0 {
                html.raw("<rect class=\"").raw(action.class()).raw("\" x=\"").number(x);
                html.raw("\" width=\"").number(width).raw("\" height=\"12\"/>");
                x += width;
            }
        }
        html.raw("</svg></td></tr>");
    }
    html.raw("</tbody></table></div></section>\n");
}

/// Namespaces, kinds and objects as a tree that opens and closes without a script.
fn changes(html: &mut HtmlWriter, namespaces: &[NamespaceChanges<'_>]) {
    html.raw("<section aria-labelledby=\"changes\"><h2 id=\"changes\">Changes</h2>");
    if namespaces.is_empty() {
        html.raw("<p class=\"empty\">Nothing would change.</p></section>\n");
        return;
    }
    let begin = html.len();
    let count: usize = namespaces.iter().map(|changes| changes.counts.iter().sum::<usize>()).sum();
    // A short report is open, a long one is a table of contents.
    let opens = if count <= 20 { " open" } else { "" };
    for (at, changes) in namespaces.iter().enumerate() {
        if html.len() - begin > CHANGES_SIZE {
            html.raw("<p class=\"muted\">").count(namespaces.len() - at);
            html.raw(" more namespaces are left out, so that this page stays small; the blast radius counts them, and --format json has them.</p>");
            break;
        }
        html.raw("<details class=\"namespace\"").raw(opens).raw("><summary><b>");
        html.text(named(changes.namespace)).raw("</b> ");
        tallies(html, &changes.counts);
        html.raw("</summary>");
        for (kind, objects) in &changes.kinds {
            html.raw("<h3>")
                .text(kind)
                .raw(" <span class=\"muted\">")
                .count(objects.len())
                .raw("</span></h3><ul class=\"objects\">");
            for (at, change) in objects.iter().enumerate() {
                let left = CHANGES_SIZE.saturating_sub(html.len() - begin);
                if left == 0 {
                    html.raw("<li class=\"muted\">").count(objects.len() - at).raw(" more</li>");
                    break;
                }
                change_entry(html, change, left);
            }
            html.raw("</ul>");
        }
        html.raw("</details>");
    }
    html.raw("</section>\n");
}

fn tallies(html: &mut HtmlWriter, counts: &ActionCounts) {
    for (action, count) in
        ChangeAction::ALL.into_iter().zip(counts).filter(|(_, count)| **count > 0)
    {
        html.raw("<span class=\"tag ").raw(action.class()).raw("\">").count(*count).raw(" ");
        html.raw(action.as_str()).raw("</span> ");
    }
}

fn change_entry(html: &mut HtmlWriter, change: &ReportedChange, room: usize) {
    html.raw("<li>");
    let has_more = !change.diff.is_empty();
    html.raw(if has_more { "<details><summary>" } else { "<div class=\"line\">" });
    html.raw("<span class=\"tag ")
        .raw(change.action.class())
        .raw("\">")
        .raw(change.action.as_str());
    html.raw("</span> <span class=\"object\">").text(&change.object.name).raw("</span>");
    if !change.rules.is_empty() {
        let rules: Vec<String> = change.rules.iter().map(crate::RuleName::short).collect();
        html.raw(" <span class=\"muted\">by ").text(&rules.join(", ")).raw("</span>");
    }
    if let Some(why) = &change.why {
        html.raw(" <span class=\"why\">").text(why).raw("</span>");
    }
    html.raw(if has_more { "</summary>" } else { "</div>" });
    if has_more {
        difference(html, &change.diff, room);
        if let Some(remark) = &change.remark {
            html.raw("<p class=\"muted\">").text(remark).raw("</p>");
        }
        html.raw("</details>");
    }
    html.raw("</li>");
}

/// A difference, line by line: additions and removals are marked as such for readers that do not see colors.
pub(crate) fn difference(html: &mut HtmlWriter, diff: &str, room: usize) {
    html.raw("<pre class=\"diff\" tabindex=\"0\" aria-label=\"Difference\">");
    let begin = html.len();
    let count = diff.lines().count();
    for (at, line) in diff.lines().enumerate() {
        if at >= DIFF_LINES || html.len() - begin > room {
            html.raw("<span class=\"muted\">").count(count - at).raw(" more lines</span>\n");
            break;
        }
        let (open, close) = match line.as_bytes().first() {
            Some(b'+') => ("<ins>", "</ins>\n"),
            Some(b'-') => ("<del>", "</del>\n"),
            Some(b'@') => ("<span class=\"hunk\">", "</span>\n"),
            _ => ("", "\n"),
        };
        // One line may be as long as a page.
        let line: String = line.chars().take(2_000).collect();
        html.raw(open).text(&line).raw(close);
    }
    html.raw("</pre>");
}

fn results(html: &mut HtmlWriter, results: &[ReportedResult]) {
    html.raw("<section aria-labelledby=\"results\"><h2 id=\"results\">Results</h2><div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"Results per rule\"><table><thead><tr><th scope=\"col\">Result</th><th scope=\"col\">Resource</th><th scope=\"col\">Policy</th><th scope=\"col\">Rule</th><th scope=\"col\" class=\"wide\">Message</th></tr></thead><tbody>");
    let begin = html.len();
    // What failed comes first: it must not be what is left out.
    let mut order: Vec<&ReportedResult> = results.iter().collect();
    order.sort_by_key(|result| !matches!(result.result.as_str(), "fail" | "error" | "warn"));
    for (at, result) in order.iter().enumerate() {
        if html.len() - begin > RESULTS_SIZE {
            html.raw("<tr><td colspan=\"5\">")
                .count(order.len() - at)
                .raw(" more results</td></tr>");
            break;
        }
        let class = match result.result.as_str() {
            "pass" | "keep" => "t-create",
            "fail" | "error" | "delete" => "t-delete",
            "warn" => "t-change",
            _ => "t-plain",
        };
        html.raw("<tr><td><span class=\"tag ")
            .raw(class)
            .raw("\">")
            .text(&result.result)
            .raw("</span></td><td>");
        html.text(&result.resource.kind).raw(" ").text(&result.resource.path()).raw("</td><td>");
        html.text(&result.rule.policy).raw("</td><td>").text(&result.rule.rule).raw("</td><td>");
        html.text(&result.message);
        for detail in result.details.iter().take(20) {
            html.raw("<br><span class=\"muted\">").text(detail).raw("</span>");
        }
        html.raw("</td></tr>");
    }
    html.raw("</tbody></table></div></section>\n");
}

fn notes(html: &mut HtmlWriter, report: &PlanReport) {
    if report.notes.is_empty() {
        return;
    }
    html.raw("<section aria-labelledby=\"notes\"><h2 id=\"notes\">Notes</h2><ul class=\"notes\">");
    let begin = html.len();
    for (at, note) in report.notes.iter().enumerate() {
        if html.len() - begin > NOTES_SIZE {
            html.raw("<li>").count(report.notes.len() - at).raw(" more</li>");
            break;
        }
        html.raw(if note.failed {
            "<li><span class=\"tag t-delete\">not done</span> "
        } else {
            "<li>"
        });
        html.text(&note.what);
        if !note.why.is_empty() {
            html.raw(": ").text(&note.why);
        }
        html.raw("</li>");
    }
    html.raw("</ul></section>\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lineage::{Lineage, LineageLink, LinkState};
    use crate::object_name::{ObjectName, RuleName};
    use crate::plan_report::ReportedNote;

    const HOSTILE: &str =
        "</style></pre></title>\"'><script>alert(1)</script><img src=x onerror=alert(2)>";

    fn object(namespace: &str, name: &str) -> ObjectName {
        ObjectName {
            namespace: namespace.to_owned(),
            kind: "ConfigMap".to_owned(),
            name: name.to_owned(),
            api_version: "v1".to_owned(),
        }
    }

    fn rule(name: &str) -> RuleName {
        RuleName { policy: name.to_owned(), rule: name.to_owned() }
    }

    fn report(count: usize, text: &str) -> PlanReport {
        let change = |number: usize| ReportedChange {
            action: ChangeAction::ALL[number % 7],
            object: object(&format!("{text}{}", number % 300), &format!("{text}{number}")),
            rules: vec![rule(text)],
            why: Some(text.to_owned()),
            diff: format!("@@ -1 +1 @@\n-{text}\n+{text}{text}\n {text}\n"),
            remark: Some(text.to_owned()),
        };
        let link = |number: usize| LineageLink {
            rule: rule(text),
            trigger: Some(object("", text)),
            sources: vec![object(text, text)],
            object: Some(object(text, &format!("{text}{number}"))),
            state: LinkState::Created,
            why: Some(text.to_owned()),
        };
        let result = |_| ReportedResult {
            rule: rule(text),
            resource: object(text, text),
            result: "fail".to_owned(),
            message: text.to_owned(),
            details: vec![text.to_owned()],
        };
        let note = |_| ReportedNote { what: text.to_owned(), why: text.to_owned(), failed: true };
        PlanReport {
            title: text.to_owned(),
            summary: text.to_owned(),
            changes: (0..count).map(change).collect(),
            results: (0..count).map(result).collect(),
            lineage: Lineage::new((0..count).map(link).collect()),
            notes: (0..count).map(note).collect(),
        }
    }

    #[test]
    fn script_in_every_field_stays_text() {
        let page = plan_page(&report(9, HOSTILE));
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        assert_eq!(page.matches("</style>").count(), 1);
        assert!(page.contains("&lt;script&gt;alert(1)"));
        // Nothing is loaded or run.
        assert!(page.contains("default-src 'none'"), "{page}");
        assert!(!page.contains(" style=\"") && !page.contains(" onclick"), "{page}");
    }

    #[test]
    fn a_page_stays_small_whatever_it_shows() {
        let long = "x".repeat(9_000);
        for (count, text) in
            [(20_000, "team-with-a-long-name-"), (3_000, HOSTILE), (50, long.as_str())]
        {
            let page = plan_page(&report(count, text));
            assert!(page.len() <= MAX_PAGE_SIZE, "{count}: {} bytes", page.len());
            assert!(page.ends_with("</html>\n"));
        }
    }

    #[test]
    fn a_small_report_shows_everything() {
        let page = plan_page(&report(7, "a"));
        for action in ChangeAction::ALL {
            assert!(page.contains(&format!("<b>1</b> {}", action.as_str())), "{}", action.as_str());
        }
        assert_eq!(page.matches("<ins>").count(), 7);
        assert!(!page.contains(" more "), "{page}");
    }

    #[test]
    fn nothing_to_do_says_so() {
        let page = plan_page(&PlanReport::default());
        assert!(page.contains("Nothing would change."));
    }
}
