//! Go's regular expression syntax, read into the intermediate form of `regex-syntax`.
//!
//! One pass over the text with a stack of open groups, so depth costs no call stack. Runs of plain
//! characters are kept together until something is to be repeated. What stands for one character is in
//! `chars`.

mod chars;

use std::fmt;

use regex_syntax::hir::{Capture, Class, ClassUnicode, Hir, Look, Repetition};

use super::{MAX_SIZE, class};

/// How often something may be repeated, with all repetitions around it.
const MAX_REPEAT: u32 = 1000;
/// How deep groups and repetitions may nest.
const MAX_DEPTH: usize = 250;

/// Why a text is not a regular expression: what is wrong, and the part that is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    problem: &'static str,
    part: String,
}

impl SyntaxError {
    fn new(problem: &'static str, part: &str) -> Self {
        // Long parts (a whole expression, say) are cut; the beginning shows the place.
        let part = match part.char_indices().nth(200) {
            Some((cut, _)) => format!("{}...", &part[..cut]),
            None => part.to_owned(),
        };
        SyntaxError { problem, part }
    }

    pub(super) fn too_large(pattern: &str) -> Self {
        SyntaxError::new("expression too large", pattern)
    }
}

impl fmt::Display for SyntaxError {
    /// Prints Go's text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error parsing regexp: {}: `{}`", self.problem, self.part)
    }
}

impl std::error::Error for SyntaxError {}

type Result<T, E = SyntaxError> = std::result::Result<T, E>;

/// The expression and the names of its groups, from group 0 on.
pub(super) fn parse(pattern: &str) -> Result<(Hir, Vec<Option<Box<str>>>)> {
    let mut parser = RegexParser::new(pattern);
    while let Some(c) = parser.peek() {
        parser.step(c)?;
    }
    parser.finish()
}

#[derive(Clone, Copy, Default)]
struct Flags {
    fold_case: bool,
    multi_line: bool,
    dot_newline: bool,
    ungreedy: bool,
}

/// A finished part, with what the limits need to know about it.
struct RegexNode {
    hir: Hir,
    depth: usize,
    /// How many copies of something inside its repetitions make.
    copies: u32,
}

impl RegexNode {
    fn leaf(hir: Hir) -> Self {
        RegexNode { hir, depth: 0, copies: 1 }
    }
}

/// An open group: what stands before it is already finished.
#[derive(Default)]
struct OpenGroup {
    /// The number of a capturing group.
    capture: Option<u32>,
    /// The flags to return to when it closes.
    flags: Flags,
    alternatives: Vec<RegexNode>,
    sequence: Vec<RegexNode>,
    /// Plain characters at the end of the sequence.
    run: String,
}

struct RegexParser<'p> {
    pattern: &'p str,
    at: usize,
    flags: Flags,
    /// The innermost group is last; the first is the whole expression.
    groups: Vec<OpenGroup>,
    /// The name of each capturing group; several may have one name. Group 0 is the whole.
    names: Vec<Option<Box<str>>>,
    size: usize,
    /// Where the repetition began that ends right here.
    last_repeat: Option<usize>,
}

impl<'p> RegexParser<'p> {
    fn new(pattern: &'p str) -> Self {
        RegexParser {
            pattern,
            at: 0,
            flags: Flags::default(),
            groups: vec![OpenGroup::default()],
            names: vec![None],
            size: 0,
            last_repeat: None,
        }
    }

    fn rest(&self) -> &'p str {
        &self.pattern[self.at..]
    }

    fn peek(&self) -> Option<char> {
        self.rest().chars().next()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += c.len_utf8();
        Some(c)
    }

    fn eat(&mut self, text: &str) -> bool {
        let found = self.rest().starts_with(text);
        if found {
            self.at += text.len();
        }
        found
    }

    fn error_from<T>(&self, problem: &'static str, start: usize) -> Result<T> {
        Err(SyntaxError::new(problem, &self.pattern[start..self.at]))
    }

    fn group(&mut self) -> &mut OpenGroup {
        if self.groups.is_empty() {
            self.groups.push(OpenGroup::default());
        }
        let last = self.groups.len() - 1;
        &mut self.groups[last]
    }

    /// Counts what was read against the size limit.
    fn grow(&mut self, by: usize) -> Result<()> {
        self.size += by;
        if self.size > MAX_SIZE { Err(SyntaxError::too_large(self.pattern)) } else { Ok(()) }
    }

    /// Reads one element, operator or parenthesis.
    fn step(&mut self, c: char) -> Result<()> {
        let start = self.at;
        let last_repeat = self.last_repeat.take();
        match c {
            '(' if self.rest().starts_with("(?") => self.flags_or_group()?,
            '(' => {
                self.at += 1;
                self.open_capture(None)?;
            }
            '|' => {
                self.at += 1;
                self.group().close_sequence();
            }
            ')' => self.close()?,
            '^' | '$' => {
                self.at += 1;
                let look = match (c, self.flags.multi_line) {
                    ('^', false) => Look::Start,
                    ('^', true) => Look::StartLF,
                    (_, false) => Look::End,
                    (_, true) => Look::EndLF,
                };
                self.push(Hir::look(look))?;
            }
            '.' => {
                self.at += 1;
                self.push_class(class::any(self.flags.dot_newline))?;
            }
            '[' => {
                let class = self.bracket()?;
                self.push_class(class)?;
            }
            '*' | '+' | '?' => {
                self.at += 1;
                let (min, max) = match c {
                    '*' => (0, None),
                    '+' => (1, None),
                    _ => (0, Some(1)),
                };
                self.repeat(start, min, max, last_repeat)?;
            }
            '{' => match self.counts() {
                Some((min, max)) => {
                    let in_range =
                        min <= MAX_REPEAT && max.is_none_or(|max| max <= MAX_REPEAT && min <= max);
                    if !in_range {
                        return self.error_from("invalid repeat count", start);
                    }
                    self.repeat(start, min, max, last_repeat)?;
                }
                None => {
                    self.at += 1;
                    self.push_char('{')?;
                }
            },
            '\\' => self.escape()?,
            c => {
                self.at += c.len_utf8();
                self.push_char(c)?;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Result<(Hir, Vec<Option<Box<str>>>)> {
        if self.groups.len() > 1 {
            return Err(SyntaxError::new("missing closing )", self.pattern));
        }
        Ok((self.groups.pop().unwrap_or_default().finish().hir, self.names))
    }

    // --- elements ---

    fn push(&mut self, hir: Hir) -> Result<()> {
        self.grow(1)?;
        let group = self.group();
        group.close_run();
        group.sequence.push(RegexNode::leaf(hir));
        Ok(())
    }

    fn push_class(&mut self, class: ClassUnicode) -> Result<()> {
        self.grow(class.ranges().len())?;
        self.push(Hir::class(Class::Unicode(class)))
    }

    fn push_char(&mut self, c: char) -> Result<()> {
        if self.flags.fold_case {
            let mut class = class::from_ranges(&[(c, c)]);
            class.case_fold_simple();
            if class.ranges().len() > 1 {
                return self.push_class(class);
            }
        }
        self.grow(1)?;
        self.group().run.push(c);
        Ok(())
    }

    /// Reads what a backslash begins, outside of brackets.
    fn escape(&mut self) -> Result<()> {
        let look = |look| Hir::look(look);
        let hir = match self.rest()[1..].chars().next() {
            Some('A') => look(Look::Start),
            Some('z') => look(Look::End),
            Some('b') => look(Look::WordAscii),
            Some('B') => look(Look::WordAsciiNegate),
            Some('Q') => {
                self.at += 2;
                let (quoted, length) = match self.rest().find("\\E") {
                    Some(end) => (&self.rest()[..end], end + 2),
                    None => (self.rest(), self.rest().len()),
                };
                self.at += length;
                return quoted.chars().try_for_each(|c| self.push_char(c));
            }
            Some('p' | 'P') => {
                let class = self.unicode_class()?;
                return self.push_class(class);
            }
            Some(letter) if class::is_perl(letter) => {
                let class = self.perl_class(letter);
                return self.push_class(class);
            }
            _ => {
                return match self.escaped_char()? {
                    Ok(c) => self.push_char(c),
                    Err(_) => self.push(Hir::fail()),
                };
            }
        };
        self.at += 2;
        self.push(hir)
    }

    // --- groups ---

    fn open_capture(&mut self, name: Option<Box<str>>) -> Result<()> {
        let number = u32::try_from(self.names.len()).ok();
        self.names.push(name);
        self.open(number)
    }

    fn open(&mut self, capture: Option<u32>) -> Result<()> {
        self.grow(1)?;
        if self.groups.len() >= MAX_DEPTH {
            return Err(SyntaxError::new("expression nests too deeply", self.pattern));
        }
        self.groups.push(OpenGroup { capture, flags: self.flags, ..OpenGroup::default() });
        Ok(())
    }

    fn close(&mut self) -> Result<()> {
        if self.groups.len() < 2 {
            return Err(SyntaxError::new("unexpected )", self.pattern));
        }
        self.at += 1;
        let mut group = self.groups.pop().unwrap_or_default();
        self.flags = group.flags;
        let capture = group.capture.take();
        let mut node = group.finish();
        if let Some(index) = capture {
            // Names stay here: Go lets groups share one, the engine does not.
            node.hir = Hir::capture(Capture { index, name: None, sub: Box::new(node.hir) });
        }
        node.depth += 1;
        self.check_depth(node.depth)?;
        let group = self.group();
        group.close_run();
        group.sequence.push(node);
        Ok(())
    }

    fn check_depth(&self, depth: usize) -> Result<()> {
        if depth > MAX_DEPTH {
            return Err(SyntaxError::new("expression nests too deeply", self.pattern));
        }
        Ok(())
    }

    /// Reads what `(?` begins: a named group, flags, or a group with flags.
    fn flags_or_group(&mut self) -> Result<()> {
        let start = self.at;
        self.at += 2;
        // Go: the shortest texts are not taken for names, so `(?<` is unknown syntax.
        let named = (self.rest().len() > 2 && self.rest().starts_with("P<"))
            || (self.rest().len() > 1 && self.rest().starts_with('<'));
        if named {
            return self.named_group(start);
        }
        let mut flags = self.flags;
        let mut value = true;
        let mut saw_flag = false;
        loop {
            match self.next() {
                Some('i') => flags.fold_case = value,
                Some('m') => flags.multi_line = value,
                Some('s') => flags.dot_newline = value,
                Some('U') => flags.ungreedy = value,
                Some('-') if value => {
                    value = false;
                    saw_flag = false;
                    continue;
                }
                Some(end @ (':' | ')')) if value || saw_flag => {
                    if end == ':' {
                        self.open(None)?;
                    }
                    self.flags = flags;
                    return Ok(());
                }
                _ => return self.error_from("invalid or unsupported Perl syntax", start),
            }
            saw_flag = true;
        }
    }

    fn named_group(&mut self, start: usize) -> Result<()> {
        let problem = "invalid named capture";
        let _ = self.eat("P");
        let _ = self.eat("<");
        let Some(length) = self.rest().find('>') else {
            self.at = self.pattern.len();
            return self.error_from(problem, start);
        };
        let name = &self.rest()[..length];
        self.at += length + 1;
        let valid =
            !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !valid {
            return self.error_from(problem, start);
        }
        self.open_capture(Some(name.into()))
    }

    // --- repetitions ---

    /// Reads `{n}`, `{n,}` or `{n,m}`; anything else is not a repetition and stays unread.
    fn counts(&mut self) -> Option<(u32, Option<u32>)> {
        let (inside, _) = self.rest()[1..].split_once('}')?;
        let (min, max) = match inside.split_once(',') {
            None => (count(inside)?, Some(count(inside)?)),
            Some((min, "")) => (count(min)?, None),
            Some((min, max)) => (count(min)?, Some(count(max)?)),
        };
        self.at += inside.len() + 2;
        Some((min, max))
    }

    fn repeat(
        &mut self,
        start: usize,
        min: u32,
        max: Option<u32>,
        last_repeat: Option<usize>,
    ) -> Result<()> {
        let greedy = !self.eat("?") ^ self.flags.ungreedy;
        if let Some(last) = last_repeat {
            return self.error_from("invalid nested repetition operator", last);
        }
        self.grow(1)?;
        let group = self.group();
        let Some(mut node) = group.last_element() else {
            return self.error_from("missing argument to repetition operator", start);
        };
        let times = max.unwrap_or(min);
        if self.pattern[start..].starts_with('{') && times > 0 {
            node.copies = node.copies.saturating_mul(times);
            if times >= 2 && node.copies > MAX_REPEAT {
                return self.error_from("invalid repeat count", start);
            }
        } else if max == Some(0) {
            node.copies = 1;
        }
        node.depth += 1;
        self.check_depth(node.depth)?;
        node.hir = if max == Some(0) {
            never(node.hir)
        } else {
            Hir::repetition(Repetition { min, max, greedy, sub: Box::new(node.hir) })
        };
        self.group().sequence.push(node);
        self.last_repeat = Some(start);
        Ok(())
    }
}

/// Matches the empty text and never the part, whose groups still count.
fn never(part: Hir) -> Hir {
    if part.properties().explicit_captures_len() == 0 {
        return Hir::empty();
    }
    Hir::alternation(vec![Hir::empty(), Hir::concat(vec![Hir::fail(), part])])
}

/// A repeat count; more digits than make sense count as too large, a leading zero as no count.
fn count(text: &str) -> Option<u32> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let zero = text.len() > 1 && text.starts_with('0');
    (plain && !zero).then(|| text.parse().unwrap_or(u32::MAX))
}

impl OpenGroup {
    fn close_run(&mut self) {
        if !self.run.is_empty() {
            let run = std::mem::take(&mut self.run);
            self.sequence.push(RegexNode::leaf(Hir::literal(run.into_bytes())));
        }
    }

    /// Takes off what a repetition operator applies to.
    fn last_element(&mut self) -> Option<RegexNode> {
        match self.run.pop() {
            Some(c) => {
                self.close_run();
                Some(RegexNode::leaf(Hir::literal(c.encode_utf8(&mut [0; 4]).as_bytes().to_vec())))
            }
            None => self.sequence.pop(),
        }
    }

    fn close_sequence(&mut self) {
        self.close_run();
        let sequence = std::mem::take(&mut self.sequence);
        self.alternatives.push(join(sequence, Hir::concat));
    }

    fn finish(mut self) -> RegexNode {
        self.close_sequence();
        join(self.alternatives, Hir::alternation)
    }
}

fn join(nodes: Vec<RegexNode>, with: impl FnOnce(Vec<Hir>) -> Hir) -> RegexNode {
    let depth = nodes.iter().map(|node| node.depth).max().unwrap_or(0);
    let copies = nodes.iter().map(|node| node.copies).max().unwrap_or(1);
    let hir = with(nodes.into_iter().map(|node| node.hir).collect());
    RegexNode { hir, depth, copies }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_gos() {
        for (pattern, error) in [
            ("(abc", "missing closing ): `(abc`"),
            ("a)", "unexpected ): `a)`"),
            ("[abc", "missing closing ]: `[abc`"),
            ("[", "missing closing ]: `[`"),
            ("[]", "missing closing ]: `[]`"),
            ("[a-", "missing closing ]: `[a-`"),
            ("[z-a]", "invalid character class range: `z-a`"),
            ("[[:foo:]]", "invalid character class range: `[:foo:]`"),
            ("*", "missing argument to repetition operator: `*`"),
            ("a|*?", "missing argument to repetition operator: `*?`"),
            ("(?i)+", "missing argument to repetition operator: `+`"),
            ("a**", "invalid nested repetition operator: `**`"),
            ("a*+?", "invalid nested repetition operator: `*+?`"),
            ("a{2}{3}", "invalid nested repetition operator: `{2}{3}`"),
            ("a{1001}", "invalid repeat count: `{1001}`"),
            ("a{2,1}", "invalid repeat count: `{2,1}`"),
            ("a{99999999999}", "invalid repeat count: `{99999999999}`"),
            ("(?:a{100}){11}", "invalid repeat count: `{11}`"),
            ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
            ("(?<=a)", "invalid named capture: `(?<=a)`"),
            ("(?i-)a", "invalid or unsupported Perl syntax: `(?i-)`"),
            ("(?z)", "invalid or unsupported Perl syntax: `(?z`"),
            ("(?P<n", "invalid named capture: `(?P<n`"),
            ("(?P<n-m>a)", "invalid named capture: `(?P<n-m>`"),
            (r"\1", r"invalid escape sequence: `\1`"),
            (r"\C", r"invalid escape sequence: `\C`"),
            (r"\Z", r"invalid escape sequence: `\Z`"),
            (r"\é", r"invalid escape sequence: `\é`"),
            (r"\x{110000}", r"invalid escape sequence: `\x{110000`"),
            (r"\xg", r"invalid escape sequence: `\xg`"),
            (r"a\", "trailing backslash at end of expression: ``"),
            (r"\p{Foo}", r"invalid character class range: `\p{Foo}`"),
            (r"\p{Alphabetic}", r"invalid character class range: `\p{Alphabetic}`"),
            (r"\pX", r"invalid character class range: `\pX`"),
            (r"[a-\d]", r"invalid escape sequence: `\d`"),
        ] {
            let got = parse(pattern).err().map(|e| e.to_string());
            assert_eq!(got, Some(format!("error parsing regexp: {error}")), "{pattern}");
        }
    }
}
