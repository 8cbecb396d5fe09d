//! Regular expressions as Go's `regexp` package has them.
//!
//! The syntax is read by our own [`parse`](self) module, with Go's rules and error texts, and becomes
//! the intermediate form of the `regex-syntax` crate; `regex-automata` then runs it in linear time.
//! Reading it ourselves keeps every difference out of the way: `\d`, `\w`, `\s` and `\b` are ASCII,
//! classes do not nest, `$` is the end of the text only, unknown escapes are errors.
//!
//! Limits: repeat counts of 1000 (also multiplied), 250 levels, [`MAX_SIZE`] characters and class
//! ranges, 10 MiB for the compiled program, and [`MAX_OUTPUT`] bytes for a replacement's result.

mod class;
mod generate;
mod parse;
mod template;

use std::fmt;
use std::ops::Range;

use regex_automata::meta;
use regex_automata::util::captures::Captures as Slots;

pub use generate::Generator;
pub use parse::SyntaxError;

/// How many characters and class ranges an expression may have.
pub const MAX_SIZE: usize = 200_000;
/// How many bytes the result of a replacement may have.
pub const MAX_OUTPUT: usize = 16 << 20;
/// How many bytes the compiled program may take.
const MAX_PROGRAM: usize = 10 << 20;

/// A replacement whose result is longer than [`MAX_OUTPUT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the result of the replacement is longer than {MAX_OUTPUT} bytes")]
pub struct OutputTooLarge;

/// A compiled regular expression. Matches are leftmost-first and not anchored.
///
/// ```
/// use kiln_text::regex::Regex;
/// let image = Regex::new(r"^(?P<name>[^:]+):(\d+)$").unwrap();
/// assert_eq!(image.replace_all("nginx:1", "${name}@$2").unwrap(), "nginx@1");
/// ```
#[derive(Clone)]
pub struct Regex {
    pattern: Box<str>,
    /// The names of the groups, from group 0 on.
    names: Box<[Option<Box<str>>]>,
    program: meta::Regex,
}

/// Where the groups of one match lie; group 0 is the whole match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captures<'t> {
    text: &'t str,
    groups: Vec<Option<Range<usize>>>,
}

impl Regex {
    /// Compiles an expression.
    ///
    /// # Errors
    /// With Go's text when it is not one in Go's syntax, and when it is too large.
    pub fn new(pattern: &str) -> Result<Self, SyntaxError> {
        let (hir, names) = parse::parse(pattern)?;
        // Without a table of all states ahead of the first search: it took nine tenths of compiling `^registry\.example/`
        // (1.0 of 1.1 million instructions), for each of 1,000 rules and for each rendering of a template. States are
        // made when a search comes to them.
        let config = meta::Config::new()
            .nfa_size_limit(Some(MAX_PROGRAM))
            .hybrid_cache_capacity(2 << 20)
            .dfa(false);
        let program = meta::Builder::new()
            .configure(config)
            .build_from_hir(&hir)
            .map_err(|_| SyntaxError::too_large(pattern))?;
        Ok(Regex { pattern: pattern.into(), names: names.into(), program })
    }

    /// The expression as it was written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }

    /// How many groups there are, without the whole match.
    pub fn group_count(&self) -> usize {
        self.names.len() - 1
    }

    /// The names of the groups, from group 0 on; most have none, and several may have the same.
    pub fn group_names(&self) -> impl Iterator<Item = Option<&str>> {
        self.names.iter().map(Option::as_deref)
    }

    /// Whether it matches anywhere.
    pub fn is_match(&self, text: &str) -> bool {
        self.program.is_match(text)
    }

    /// The first match.
    pub fn find<'t>(&self, text: &'t str) -> Option<&'t str> {
        self.program.find(text).map(|found| &text[found.range()])
    }

    /// Matches one after the other, at most `limit` of them; an empty match right behind another
    /// match does not count.
    pub fn find_all<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        self.ranges(text).take(limit.unwrap_or(usize::MAX)).map(|range| &text[range]).collect()
    }

    /// Where the matches lie; see [`Regex::find_all`].
    pub fn ranges<'t>(&'t self, text: &'t str) -> impl Iterator<Item = Range<usize>> + 't {
        self.program.find_iter(text).map(|found| found.range())
    }

    /// The groups of the first match.
    pub fn captures<'t>(&self, text: &'t str) -> Option<Captures<'t>> {
        self.captures_iter(text).next()
    }

    /// The groups of all matches; see [`Regex::find_all`].
    pub fn captures_iter<'r, 't: 'r>(
        &'r self,
        text: &'t str,
    ) -> impl Iterator<Item = Captures<'t>> + 'r {
        self.program.captures_iter(text).map(move |slots| Captures::new(text, &slots))
    }

    /// Replaces all matches by a template: `$1`, `${1}`, `$name` and `${name}` stand for groups,
    /// `$$` for `$`. As in Go, `$1x` is the group named `1x`, and unknown groups are empty.
    ///
    /// # Errors
    /// When the result would be longer than [`MAX_OUTPUT`].
    pub fn replace_all(&self, text: &str, template: &str) -> Result<String, OutputTooLarge> {
        if !template.contains('$') {
            return self.replace_all_literal(text, template);
        }
        self.replace_all_with(text, |captures, out| template::expand(template, self, captures, out))
    }

    /// Replaces all matches by the text as it is.
    ///
    /// # Errors
    /// When the result would be longer than [`MAX_OUTPUT`].
    pub fn replace_all_literal(&self, text: &str, by: &str) -> Result<String, OutputTooLarge> {
        let mut output = Output::default();
        let mut end = 0;
        for range in self.ranges(text) {
            output.push(&text[end..range.start])?;
            output.push(by)?;
            end = range.end;
        }
        output.push(&text[end..])?;
        Ok(output.text)
    }

    /// Replaces all matches by what the function writes for each.
    ///
    /// # Errors
    /// When the result would be longer than [`MAX_OUTPUT`], or with the function's own error.
    pub fn replace_all_with<E: From<OutputTooLarge>>(
        &self,
        text: &str,
        mut by: impl FnMut(&Captures<'_>, &mut Output) -> Result<(), E>,
    ) -> Result<String, E> {
        let mut output = Output::default();
        let mut end = 0;
        for captures in self.captures_iter(text) {
            let range = captures.range(0).unwrap_or(end..end);
            output.push(&text[end..range.start])?;
            by(&captures, &mut output)?;
            end = range.end;
        }
        output.push(&text[end..])?;
        Ok(output.text)
    }

    /// The pieces between matches, at most `limit` of them, the last being the rest.
    // Go: an expression that is not empty splits the empty text into one piece; no limit above 0
    // gives no piece.
    pub fn split<'t>(&self, text: &'t str, limit: Option<usize>) -> Vec<&'t str> {
        if limit == Some(0) {
            return Vec::new();
        }
        if !self.pattern.is_empty() && text.is_empty() {
            return vec![""];
        }
        let mut pieces = Vec::new();
        let (mut begin, mut end) = (0, 0);
        for range in self.ranges(text).take(limit.unwrap_or(usize::MAX)) {
            if limit.is_some_and(|limit| pieces.len() + 1 >= limit) {
                break;
            }
            end = range.start;
            if range.end != 0 {
                pieces.push(&text[begin..end]);
            }
            begin = range.end;
        }
        if end != text.len() {
            pieces.push(&text[begin..]);
        }
        pieces
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Regex").field(&self.pattern).finish()
    }
}

impl fmt::Display for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.pattern)
    }
}

impl<'t> Captures<'t> {
    fn new(text: &'t str, slots: &Slots) -> Self {
        let groups = slots.iter().map(|group| group.map(|span| span.range())).collect();
        Captures { text, groups }
    }

    /// The text of a group; `None` when the group does not exist or took no part in the match.
    pub fn get(&self, group: usize) -> Option<&'t str> {
        self.range(group).map(|range| &self.text[range])
    }

    /// Where a group lies.
    pub fn range(&self, group: usize) -> Option<Range<usize>> {
        self.groups.get(group)?.clone()
    }

    /// The texts of all groups, the whole match first.
    pub fn iter(&self) -> impl Iterator<Item = Option<&'t str>> {
        (0..self.groups.len()).map(|group| self.get(group))
    }
}

/// The result of a replacement while it is written.
#[derive(Debug, Default)]
pub struct Output {
    text: String,
}

impl Output {
    /// Appends a text.
    ///
    /// # Errors
    /// When the whole would be longer than [`MAX_OUTPUT`].
    pub fn push(&mut self, text: &str) -> Result<(), OutputTooLarge> {
        if self.text.len() + text.len() > MAX_OUTPUT {
            return Err(OutputTooLarge);
        }
        self.text.push_str(text);
        Ok(())
    }
}

/// Escapes a text so that it matches itself.
pub fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if r"\.+*?()|[]{}^$".contains(c) {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn re(pattern: &str) -> Regex {
        Regex::new(pattern).unwrap_or_else(|e| panic!("{pattern}: {e}"))
    }

    #[test]
    fn matches_as_go() {
        for (pattern, text, found) in [
            ("a+", "baaac", Some("aaa")),
            (r"\d", "٣", None),
            (r"\w+", "é_1", Some("_1")),
            (r"\s", "\u{b}", None),
            (r"\bfoo\b", "éfoo", Some("foo")),
            ("(?i)straSSe", "STRASSE", Some("STRASSE")),
            ("(?i)k", "\u{212A}", Some("\u{212A}")),
            ("a$", "a\n", None),
            ("(?m)a$", "a\n", Some("a")),
            ("a.b", "a\nb", None),
            ("(?s)a.b", "a\nb", Some("a\nb")),
            ("(?U)a+", "aaa", Some("a")),
            ("(?U)a+?", "aaa", Some("aaa")),
            ("a*?", "aaa", Some("")),
            ("[a&&b]+", "&b", Some("&b")),
            ("[[a]+", "[a", Some("[a")),
            ("[]a]+", "]a", Some("]a")),
            ("[^]a]+", "]ab", Some("b")),
            ("[a-]+", "-a", Some("-a")),
            ("[--/]+", "-./", Some("-./")),
            ("[a~~b]+", "~", Some("~")),
            ("[[:alpha:]-]+", "ab-", Some("ab-")),
            ("[[:^alpha:]]+", "ab12", Some("12")),
            (r"[\d\-x]+", "1-x", Some("1-x")),
            (r"[\D]+", "1-x", Some("-x")),
            (r"\pL+", "1éa", Some("éa")),
            (r"\p{^Greek}+", "αa", Some("a")),
            (r"\PL+", "a12", Some("12")),
            (r"\p{Lu}", "aB", Some("B")),
            (r"\Qa.b\E+", "a.bb", Some("a.bb")),
            (r"\Qa.b", "a.b", Some("a.b")),
            (r"\x41\x{1F600}", "A\u{1F600}", Some("A\u{1F600}")),
            (r"\101\012", "A\n", Some("A\n")),
            (r"\z", "a", Some("")),
            ("a{2}", "aaa", Some("aa")),
            ("a{,2}", "a{,2}", Some("a{,2}")),
            ("a{2,1x}", "a{2,1x}", Some("a{2,1x}")),
            ("a{02}", "a{02}", Some("a{02}")),
            ("(|a)*", "aa", Some("")),
            ("(|a)+", "aa", Some("")),
            ("^*", "", Some("")),
            ("(?:)", "x", Some("")),
            ("", "", Some("")),
            ("x|", "y", Some("")),
            ("(?i:a)b", "AB", None),
            ("a(?i)b|c", "C", Some("C")),
            ("(?-i)a", "A", None),
            (r"\_\-\#\ ", "_-# ", Some("_-# ")),
            ("[^\\x00-\\x{10FFFF}]", "a", None),
            (r"\x{D800}", "a", None),
            ("(?i)[^k]", "K", None),
            (r"(?i)\W", "\u{17F}", None),
            ("(?i)[[:^word:]]", "k", None),
            (r"\B", "é", Some("")),
        ] {
            assert_eq!(re(pattern).find(text), found, "{pattern} on {text:?}");
        }
    }

    #[test]
    fn finds_splits_and_replaces_as_go() {
        assert_eq!(re("a*").find_all("baaa", None), ["", "aaa"]);
        assert_eq!(re("a").find_all("aaaa", Some(2)), ["a", "a"]);
        assert_eq!(re("a*").split("abaabaccadaaae", Some(5)), ["", "b", "b", "c", "cadaaae"]);
        assert_eq!(re("z+").split("", None), [""]);
        assert_eq!(re("").split("", None), Vec::<&str>::new());
        assert_eq!(re("").split("foo", None), ["f", "o", "o"]);
        assert_eq!(re(",").split("a,b,c", Some(2)), ["a", "b,c"]);
        assert_eq!(re(",").split("a,", None), ["a", ""]);
        for (pattern, template, text, result) in [
            ("a(x*)b", "$1", "-ab-axxb-", "--xx-"),
            ("a(x*)b", "$1W", "-ab-axxb-", "---"),
            ("a(x*)b", "${1}W", "-ab-axxb-", "-W-xxW-"),
            ("a(?P<n>x*)b", "${n}$0$$1$", "axb", "xaxb$1$"),
            ("a(?<n>x*)b", "$n ${n", "axb", "x ${n"),
            ("", "-", "ab", "-a-b-"),
            ("b*", "-", "abc", "-a-c-"),
            ("(a)|b", "[$1]", "ab", "[a][]"),
            ("a", "$01", "a", ""),
            ("é", "$0$0", "é", "éé"),
            ("(?P<n>a)|(?P<n>b)", "<$n>", "ab", "<a><b>"),
        ] {
            let got = re(pattern).replace_all(text, template);
            assert_eq!(got.as_deref(), Ok(result), "{pattern} by {template}");
        }
        assert_eq!(re("a").replace_all_literal("ab", "$0").as_deref(), Ok("$0b"));
    }

    #[test]
    fn groups_have_numbers_and_names() {
        let re = re("(?P<a>x)(y)?(?P<b>z)");
        assert_eq!(re.group_count(), 3);
        assert_eq!(re.group_names().collect::<Vec<_>>(), [None, Some("a"), None, Some("b")]);
        let unused = super::Regex::new("(?P<no>a){0}(b)").unwrap();
        assert_eq!(unused.group_names().collect::<Vec<_>>(), [None, Some("no"), None]);
        assert_eq!(unused.captures("ab").unwrap().get(2), Some("b"));
        let captures = re.captures("-xz").unwrap();
        let groups: Vec<_> = captures.iter().collect();
        assert_eq!(groups, [Some("xz"), Some("x"), None, Some("z")]);
        assert_eq!(captures.range(3), Some(2..3));
    }

    #[test]
    fn escaped_texts_match_themselves() {
        let text = r"a.b*c+d?(e)|[f]{g}^$\-/&~#";
        assert_eq!(re(&escape(text)).find(text), Some(text));
    }

    #[test]
    fn size_is_limited() {
        let large = "expression too large";
        for pattern in [
            r"\pL{1000}".to_owned(),
            "(?i)".to_owned() + &"ab".repeat(200_000),
            r"\pL".repeat(1_000_000),
            "x".repeat(10_000_000),
        ] {
            assert!(Regex::new(&pattern).unwrap_err().to_string().contains(large));
        }
        let by = "y".repeat(MAX_OUTPUT / 4);
        assert_eq!(re("").replace_all_literal("abcde", &by), Err(OutputTooLarge));
        assert_eq!(re("").replace_all("abcde", &(by + "$0")), Err(OutputTooLarge));
    }

    #[test]
    fn nesting_is_limited() {
        let nested = |depth: usize| "(".repeat(depth) + &")".repeat(depth);
        assert!(Regex::new(&nested(200)).is_ok());
        let deep = Regex::new(&nested(100_000)).unwrap_err();
        assert!(deep.to_string().contains("nests too deeply"), "{deep}");
        assert!(Regex::new(&format!("a*{}", "(?i)*".repeat(10_000))).is_err());
    }
}
