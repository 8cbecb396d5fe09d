//! A problem with a snippet and a caret.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Group, Level, Origin, Renderer, Snippet};
use kiln_diagnostic::{Diagnostic, Severity, SourceLocation};

/// Lines longer than this are cut: one line of a megabyte does not help.
const WIDEST: usize = 240;

/// What stands before the message.
#[derive(Debug, Clone, Copy)]
pub(super) enum Words {
    /// `error: …`
    Kiln,
    /// `Error: …` and `# Warning: …`, for those who look for that.
    Kustomize,
}

/// Renders a problem for a terminal.
pub(super) fn render(problem: &Diagnostic, words: Words, color: bool) -> String {
    let (level, name) = match problem.severity {
        Severity::Error => (Level::ERROR, "Error"),
        Severity::Warning => (Level::WARNING, "# Warning"),
        Severity::Note => (Level::NOTE, "# Note"),
    };
    let level = match words {
        Words::Kiln => level,
        Words::Kustomize => level.with_name(name),
    };
    let excerpt = problem.place.as_ref().map(Excerpt::around);
    let related: Vec<_> = problem.related.iter().map(|r| Excerpt::around(&r.place)).collect();

    let mut main = Group::with_title(level.primary_title(&problem.message));
    if let Some(excerpt) = &excerpt {
        main = excerpt.show(main, problem.label.as_deref());
    }
    // The renderer joins two titles with a line that leads from a snippet to the next, also where there is none.
    let is_bare = excerpt.is_none() && related.is_empty();
    let mut report = vec![main];
    for (place, excerpt) in problem.related.iter().zip(&related) {
        let title = Level::NOTE.secondary_title(&place.message);
        report.push(excerpt.show(Group::with_title(title), None));
    }
    let help =
        problem.hint.as_ref().map(|hint| Group::with_title(Level::HELP.secondary_title(hint)));
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    match help {
        Some(help) if is_bare => {
            format!("{}\n{}", renderer.render(&report), renderer.render(&[help]))
        }
        help => {
            report.extend(help);
            renderer.render(&report)
        }
    }
}

/// The lines around a place, short enough to show.
struct Excerpt<'p> {
    name: &'p str,
    text: String,
    first_line: usize,
    line: usize,
    column: usize,
    /// Whether the beginning of the line is missing.
    cut: bool,
    span: Range<usize>,
}

impl<'p> Excerpt<'p> {
    fn around(place: &'p SourceLocation) -> Self {
        let text = place.source().text();
        let position = place.position();
        let start = floor(text, place.span().start);
        let line_start = text[..start].rfind('\n').map_or(0, |at| at + 1);
        let line_end = text[start..].find('\n').map_or(text.len(), |at| start + at);
        // Only the first line of the place is shown, and of a long line only what is near it.
        let from = if start - line_start > WIDEST / 2 {
            floor(text, start - WIDEST / 2)
        } else {
            line_start
        };
        let to = floor(text, line_end.min(from + WIDEST));
        let before = if from == line_start { context_before(text, line_start) } else { line_start };
        let shown_from = if from == line_start { before } else { from };
        let end = floor(text, place.span().end).clamp(start, to.max(start));
        Excerpt {
            name: place.source().name(),
            text: text[shown_from..to.max(start)].to_owned(),
            first_line: position.line - text[shown_from..start].matches('\n').count(),
            line: position.line,
            cut: from != line_start,
            column: position.column,
            span: start - shown_from..end - shown_from,
        }
    }

    /// Adds the place and the lines to a message.
    fn show<'e>(&'e self, group: Group<'e>, label: Option<&'e str>) -> Group<'e> {
        let origin = Origin::path(self.name).line(self.line).char_column(self.column);
        if self.text.is_empty()
            || self.text[..self.span.start].ends_with('\n') && self.span.start == self.text.len()
        {
            // The place is behind the last line: there is nothing to point at.
            return group.element(origin);
        }
        let annotation = AnnotationKind::Primary.span(self.span.clone());
        let snippet = Snippet::source(self.text.as_str())
            .line_start(self.first_line)
            .fold(false)
            .annotation(match label {
                Some(label) => annotation.label(label),
                None => annotation,
            });
        if self.cut {
            // The renderer would count columns from the cut.
            group.element(origin).element(snippet)
        } else {
            group.element(snippet.path(self.name))
        }
    }
}

/// The start of the line before this one, for context, unless that line is overlong.
fn context_before(text: &str, line_start: usize) -> usize {
    let Some(end) = line_start.checked_sub(1) else { return line_start };
    let start = text[..end].rfind('\n').map_or(0, |at| at + 1);
    if end - start <= WIDEST { start } else { line_start }
}

/// The nearest character boundary at or before an offset.
fn floor(text: &str, offset: usize) -> usize {
    text.floor_char_boundary(offset)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kiln_diagnostic::Source;

    use super::*;

    fn place(text: &str, span: Range<usize>) -> SourceLocation {
        SourceLocation::new(Arc::new(Source::new("rules.yaml", text)), span)
    }

    #[test]
    fn shows_line_caret_related_place_and_hint() {
        let text = "a: 1\nb:\n  x: 1\n  x: 2\n";
        let problem = Diagnostic::error("duplicate key \"x\"")
            .at(place(text, 17..18))
            .related("first defined here", place(text, 10..11))
            .hint("remove one of them");
        let wanted = "\
error: duplicate key \"x\"
 --> rules.yaml:4:3
  |
3 |   x: 1
4 |   x: 2
  |   ^
  |
note: first defined here
 --> rules.yaml:3:3
  |
2 | b:
3 |   x: 1
  |   ^
help: remove one of them";
        assert_eq!(render(&problem, Words::Kiln, false), wanted);
    }

    #[test]
    fn a_hint_without_a_place_follows_the_message() {
        let problem = Diagnostic::error("there is no resource").hint("give one with --resource");
        let wanted = "error: there is no resource\nhelp: give one with --resource";
        assert_eq!(render(&problem, Words::Kiln, false), wanted);
        let colored = render(&problem, Words::Kiln, true);
        assert_eq!(colored.lines().count(), 2, "{colored:?}");
    }

    #[test]
    fn the_header_names_the_place_in_the_file() {
        let header = |text: &str, at: usize| {
            let problem = Diagnostic::error("p").at(place(text, at..at + 1));
            let rendered = render(&problem, Words::Kiln, false);
            rendered.lines().nth(1).unwrap_or_default().trim().to_owned()
        };
        assert_eq!(header("x: 1\na: [\n", 10), "--> rules.yaml:3:1");
        assert_eq!(header(&format!("k: {}", "y".repeat(900)), 500), "--> rules.yaml:1:501");
        assert_eq!(header("a: [", 4), "--> rules.yaml:1:5");
    }

    #[test]
    fn survives_every_place_in_a_hostile_text() {
        let long = "é".repeat(5000);
        for text in ["", "\n", "\u{feff}é\0x\n\n", "a\r\nb", long.as_str(), "x\n\ty"] {
            for start in 0..text.len().min(300) + 2 {
                for length in [0, 1, 7, 10_000] {
                    let problem = Diagnostic::error("p").at(place(text, start..start + length));
                    assert!(render(&problem, Words::Kiln, true).len() < 4000);
                }
            }
        }
    }
}
