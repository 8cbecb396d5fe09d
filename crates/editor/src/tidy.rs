//! YAML formatted with its comments: two blanks of indentation, one blank behind colons and dashes. Order, quotes,
//! anchors and styles stay.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source};
use kiln_yaml::{ReadOptions, YamlLimits, emit_node, read_nodes};

use crate::text_document::TextDocument;

/// The text as it should be. It says the same: a text that would not is left as it is.
///
/// # Errors
/// When it is not YAML.
pub fn tidy(name: &str, text: &str) -> Result<String, Diagnostic> {
    let whole = Arc::new(Source::new(name, text));
    let before = values(&whole)?;
    let document = TextDocument::new(name, text);
    let mut tidied = String::new();
    // Many begin with a marker, because their linter wants one.
    let is_marked = text.starts_with("---\n");
    for (number, part) in document.parts().into_iter().enumerate() {
        let part = &text[part];
        if number > 0 || is_marked {
            tidied.push_str("---\n");
        }
        if part.trim().is_empty() {
            continue;
        }
        let source = Arc::new(Source::new(name, part));
        match read_nodes(&source, &YamlLimits::default())? {
            Some(node) => tidied.push_str(&emit_node(&node)),
            // Only comments.
            None => tidied.push_str(&format!("{}\n", part.trim_end())),
        }
        if !tidied.ends_with('\n') {
            tidied.push('\n');
        }
    }
    let after = Arc::new(Source::new(name, tidied.as_str()));
    let is_same = values(&after).is_ok_and(|after| after == before);
    Ok(if is_same && keeps_comments(text, &tidied) { tidied } else { text.to_owned() })
}

fn values(source: &Arc<Source>) -> Result<Vec<kiln_value::Value>, Diagnostic> {
    let read = kiln_yaml::read(source, ReadOptions::kustomize_resource())?;
    Ok(read.into_iter().map(kiln_yaml::Document::into_value).collect())
}

/// Whether as many comments are there as before.
fn keeps_comments(before: &str, after: &str) -> bool {
    let count = |text: &str| text.lines().filter(|line| line.contains('#')).count();
    count(before) == count(after)
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn indentation_changes_and_comments_stay() {
        let text = "# head\na:\n    b:   1 # why\n    c:\n        - 'x'\n# foot\n---\nz: {y: 1}\n";
        let tidied = tidy("t", text).unwrap();
        assert!(tidied.contains("# head\na:\n  b: 1 # why\n  c:\n"), "{tidied}");
        assert!(
            tidied.contains("- 'x'") && tidied.contains("# foot") && tidied.contains("---\nz:")
        );
        assert_eq!(tidy("t", &tidied).unwrap(), tidied);
        assert_eq!(tidy("t", "---\na:   1\n---\nb: 2\n").unwrap(), "---\na: 1\n---\nb: 2\n");
        assert!(tidy("t", "a: [").is_err());
        assert_eq!(tidy("t", "").unwrap(), "");
        assert_eq!(tidy("t", "# only\n").unwrap(), "# only\n");
    }
}
