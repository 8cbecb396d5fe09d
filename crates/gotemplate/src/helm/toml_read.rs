//! TOML to values.

use kiln_value::Str;

use crate::value::{Dyn, Map};

/// How deep values may nest in brackets.
const DEPTH: usize = 100;

type Result<R> = std::result::Result<R, String>;

/// The map of a TOML text, or what is wrong with it.
pub(super) fn parse(source: &str) -> Result<Dyn> {
    let root = Map::own(Default::default());
    let mut parser = TomlParser { rest: source, line: 1 };
    let mut table = root.clone();
    loop {
        parser.skip_lines();
        if parser.rest.is_empty() {
            return Ok(Dyn::Map(root));
        }
        if let Some(rest) = parser.rest.strip_prefix("[[") {
            parser.rest = rest;
            let path = parser.path()?;
            parser.expect("]]")?;
            table = parser.list_table(&root, &path)?;
        } else if let Some(rest) = parser.rest.strip_prefix('[') {
            parser.rest = rest;
            let path = parser.path()?;
            parser.expect("]")?;
            table = parser.table(&root, &path)?;
        } else {
            parser.entry(&table, 0)?;
        }
        parser.end_of_line()?;
    }
}

struct TomlParser<'s> {
    rest: &'s str,
    line: usize,
}

impl TomlParser<'_> {
    fn error<R>(&self, message: impl std::fmt::Display) -> Result<R> {
        Err(format!("toml: line {}: {message}", self.line))
    }

    fn skip_blanks(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
    }

    fn skip_comment(&mut self) {
        if self.rest.starts_with('#') {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.rest = &self.rest[end..];
        }
    }

    /// Skips blanks, comments and line ends.
    fn skip_lines(&mut self) {
        loop {
            self.skip_blanks();
            self.skip_comment();
            match self.rest.strip_prefix("\r\n").or_else(|| self.rest.strip_prefix('\n')) {
                Some(rest) => {
                    self.rest = rest;
                    self.line += 1;
                }
                None => return,
            }
        }
    }

    fn end_of_line(&mut self) -> Result<()> {
        self.skip_blanks();
        self.skip_comment();
        if self.rest.is_empty() || self.rest.starts_with('\n') || self.rest.starts_with("\r\n") {
            return Ok(());
        }
        self.error("expected a top-level item to end with a newline, comment, or EOF")
    }

    fn expect(&mut self, wanted: &str) -> Result<()> {
        self.skip_blanks();
        match self.rest.strip_prefix(wanted) {
            Some(rest) => {
                self.rest = rest;
                Ok(())
            }
            None => self.error(format!("expected '{wanted}'")),
        }
    }

    fn path(&mut self) -> Result<Vec<Str>> {
        let mut path = Vec::new();
        loop {
            self.skip_blanks();
            path.push(self.key()?);
            self.skip_blanks();
            match self.rest.strip_prefix('.') {
                Some(rest) => self.rest = rest,
                None => return Ok(path),
            }
        }
    }

    fn key(&mut self) -> Result<Str> {
        if self.rest.starts_with(['"', '\'']) {
            return self.string().map(Str::from);
        }
        let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let end = self.rest.find(|c| !bare(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return self.error("expected a key");
        }
        let (key, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(Str::new(key))
    }

    /// The table under a key, made if it is not there; of a list of tables the last one.
    fn step(&self, table: &Map, key: &Str) -> Result<Map> {
        match table.get(key) {
            None => {
                let inner = Map::own(Default::default());
                table.insert(key.clone(), Dyn::Map(inner.clone()));
                Ok(inner)
            }
            Some(Dyn::Map(inner)) => Ok(inner),
            Some(Dyn::List(list)) => match list.items().last() {
                Some(Dyn::Map(inner)) => Ok(inner.clone()),
                _ => self.error(format!("key '{key}' is not a table")),
            },
            Some(_) => self.error(format!("key '{key}' has already been defined")),
        }
    }

    fn table(&self, root: &Map, path: &[Str]) -> Result<Map> {
        path.iter().try_fold(root.clone(), |table, key| self.step(&table, key))
    }

    fn list_table(&self, root: &Map, path: &[Str]) -> Result<Map> {
        let Some((last, before)) = path.split_last() else { return self.error("expected a key") };
        let table = self.table(root, before)?;
        let mut items = match table.get(last) {
            None => Vec::new(),
            Some(Dyn::List(list)) => list.items().to_vec(),
            Some(_) => return self.error(format!("key '{last}' has already been defined")),
        };
        let inner = Map::own(Default::default());
        items.push(Dyn::Map(inner.clone()));
        table.insert(last.clone(), Dyn::list(items));
        Ok(inner)
    }

    fn entry(&mut self, table: &Map, depth: usize) -> Result<()> {
        let path = self.path()?;
        self.expect("=")?;
        self.skip_blanks();
        let value = self.value(depth)?;
        let Some((last, before)) = path.split_last() else { return self.error("expected a key") };
        let table = self.table(table, before)?;
        if table.contains(last) {
            return self.error(format!("Key '{last}' has already been defined."));
        }
        table.insert(last.clone(), value);
        Ok(())
    }

    fn value(&mut self, depth: usize) -> Result<Dyn> {
        if depth > DEPTH {
            return self.error("values nest too deep");
        }
        match self.rest.chars().next() {
            Some('"' | '\'') => self.string().map(Dyn::from),
            Some('[') => {
                self.rest = &self.rest[1..];
                let mut items = Vec::new();
                loop {
                    self.skip_lines();
                    if let Some(rest) = self.rest.strip_prefix(']') {
                        self.rest = rest;
                        return Ok(Dyn::list(items));
                    }
                    items.push(self.value(depth + 1)?);
                    self.skip_lines();
                    match self.rest.strip_prefix(',') {
                        Some(rest) => self.rest = rest,
                        None if self.rest.starts_with(']') => {}
                        None => return self.error("expected a comma or array terminator ']'"),
                    }
                }
            }
            Some('{') => {
                self.rest = &self.rest[1..];
                let map = Map::own(Default::default());
                loop {
                    self.skip_lines();
                    if let Some(rest) = self.rest.strip_prefix('}') {
                        self.rest = rest;
                        return Ok(Dyn::Map(map));
                    }
                    self.entry(&map, depth + 1)?;
                    self.skip_lines();
                    match self.rest.strip_prefix(',') {
                        Some(rest) => self.rest = rest,
                        None if self.rest.starts_with('}') => {}
                        None => {
                            return self
                                .error("expected a comma or an inline table terminator '}'");
                        }
                    }
                }
            }
            _ => self.bare(),
        }
    }

    /// A truth, a number or a time.
    fn bare(&mut self) -> Result<Dyn> {
        let ends = |c: char| matches!(c, ',' | ']' | '}' | '#' | '\n' | '\r' | ' ' | '\t');
        let mut end = self.rest.find(ends).unwrap_or(self.rest.len());
        // A date may have its time behind a blank.
        let digits = |text: &str| text.bytes().take(2).filter(u8::is_ascii_digit).count() == 2;
        if end == 10 && self.rest[end..].starts_with(' ') && digits(&self.rest[end + 1..]) {
            let time = &self.rest[end + 1..];
            end += 1 + time.find(ends).unwrap_or(time.len());
        }
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        let plain = word.replace('_', "");
        let unsigned = plain.strip_prefix(['+', '-']).unwrap_or(&plain);
        let radix = |prefix: &str, radix: u32| {
            unsigned.strip_prefix(prefix).and_then(|digits| i64::from_str_radix(digits, radix).ok())
        };
        if let Some(int) = radix("0x", 16).or_else(|| radix("0o", 8)).or_else(|| radix("0b", 2)) {
            return Ok(Dyn::Int64(int));
        }
        if let Ok(int) = plain.strip_prefix('+').unwrap_or(&plain).parse::<i64>() {
            return Ok(Dyn::Int64(int));
        }
        match unsigned {
            "true" if plain == unsigned => return Ok(true.into()),
            "false" if plain == unsigned => return Ok(false.into()),
            "nan" => return Ok(Dyn::Float(f64::NAN)),
            "inf" if plain.starts_with('-') => return Ok(Dyn::Float(f64::NEG_INFINITY)),
            "inf" => return Ok(Dyn::Float(f64::INFINITY)),
            _ => {}
        }
        if unsigned.starts_with(|c: char| c.is_ascii_digit())
            && !unsigned.contains([':', 'T', 't'])
            && unsigned.matches('-').count() < 2
            && let Ok(number) = plain.parse::<f64>()
        {
            return Ok(Dyn::Float(number));
        }
        if let Ok(time) = kiln_text::Time::parse_rfc3339(&word.replacen(' ', "T", 1)) {
            return Ok(Dyn::Time(std::rc::Rc::new(time)));
        }
        self.error(format!("expected value but found '{word}' instead"))
    }

    fn string(&mut self) -> Result<String> {
        for (quotes, escapes) in [("\"\"\"", true), ("'''", false)] {
            if let Some(rest) = self.rest.strip_prefix(quotes) {
                let rest =
                    rest.strip_prefix("\r\n").or_else(|| rest.strip_prefix('\n')).unwrap_or(rest);
                self.line += usize::from(rest.len() + quotes.len() < self.rest.len());
                self.rest = rest;
                return self.until(quotes, escapes);
            }
        }
        let (quote, escapes) = if self.rest.starts_with('"') { ("\"", true) } else { ("'", false) };
        self.rest = &self.rest[1..];
        self.until(quote, escapes)
    }

    fn until(&mut self, quote: &str, escapes: bool) -> Result<String> {
        let mut out = String::new();
        let lines = quote.len() == 3;
        loop {
            if self.rest.starts_with(quote) {
                // Up to two quotes may stand before those that end the text.
                let extra = self.rest.len() - self.rest.trim_start_matches(&quote[..1]).len();
                let extra = if lines { extra.saturating_sub(3).min(2) } else { 0 };
                out.push_str(&self.rest[..extra]);
                self.rest = &self.rest[extra + quote.len()..];
                return Ok(out);
            }
            let Some(c) = self.rest.chars().next() else {
                return self.error("unexpected EOF; expected a quote");
            };
            self.rest = &self.rest[c.len_utf8()..];
            match c {
                '\\' if escapes => self.escape(&mut out, lines)?,
                '\n' if !lines => return self.error("strings cannot contain newlines"),
                c => {
                    self.line += usize::from(c == '\n');
                    out.push(c);
                }
            }
        }
    }

    fn escape(&mut self, out: &mut String, lines: bool) -> Result<()> {
        let Some(c) = self.rest.chars().next() else { return self.error("unexpected EOF") };
        self.rest = &self.rest[c.len_utf8()..];
        let digits = match c {
            'b' => return push(out, '\u{8}'),
            't' => return push(out, '\t'),
            'n' => return push(out, '\n'),
            'f' => return push(out, '\u{c}'),
            'r' => return push(out, '\r'),
            'e' => return push(out, '\u{1b}'),
            '"' | '\\' => return push(out, c),
            ' ' | '\t' | '\n' | '\r' if lines => {
                // The line goes on where the next text is.
                self.line += usize::from(c == '\n');
                let kept = self.rest.trim_start_matches([' ', '\t', '\n', '\r']);
                self.line += self.rest[..self.rest.len() - kept.len()].matches('\n').count();
                self.rest = kept;
                return Ok(());
            }
            'x' => 2,
            'u' => 4,
            'U' => 8,
            c => return self.error(format!("invalid escape character '{c}'")),
        };
        let code = self.rest.get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
        match code.and_then(char::from_u32) {
            Some(c) => {
                self.rest = &self.rest[digits..];
                push(out, c)
            }
            None => self.error("invalid Unicode escape"),
        }
    }
}

fn push(out: &mut String, c: char) -> Result<()> {
    out.push(c);
    Ok(())
}
