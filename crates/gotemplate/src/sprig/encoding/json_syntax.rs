//! What Go says of a text that is not JSON: the first character that cannot stand where it stands.

use kiln_text::quote::quote;

/// What is wrong with a text; nothing if Go would read it.
pub(crate) fn problem(source: &str) -> Option<String> {
    let mut scanner =
        JsonScanner { bytes: source.as_bytes(), at: 0, open: Vec::new(), too_large: None };
    scanner.document().err().or(scanner.too_large)
}

type Scan<R = ()> = Result<R, String>;

struct JsonScanner<'s> {
    bytes: &'s [u8],
    at: usize,
    /// The objects (`{`) and arrays (`[`) around this place.
    open: Vec<u8>,
    /// What is wrong with a number that is not a float; mistakes in the syntax come before it.
    too_large: Option<String>,
}

impl JsonScanner<'_> {
    fn document(&mut self) -> Scan {
        self.value()?;
        loop {
            // A value has ended: what may follow depends on where it stands.
            self.space();
            match (self.open.last(), self.peek()) {
                (None, None) => return Ok(()),
                (None, Some(_)) => return self.unexpected("after top-level value"),
                (Some(b'{'), Some(b',')) => {
                    self.at += 1;
                    self.key()?;
                    self.value()?;
                }
                (Some(b'['), Some(b',')) => {
                    self.at += 1;
                    self.value()?;
                }
                (Some(b'{'), Some(b'}')) | (Some(b'['), Some(b']')) => {
                    self.at += 1;
                    self.open.pop();
                }
                (Some(b'{'), _) => return self.unexpected("after object key:value pair"),
                (Some(_), _) => return self.unexpected("after array element"),
            }
        }
    }

    /// A value, or the beginning of one that holds others: its first element, or its end.
    fn value(&mut self) -> Scan {
        loop {
            self.space();
            match self.peek() {
                Some(b'{') => {
                    self.enter(b'{');
                    if self.peek() == Some(b'}') {
                        return self.leave();
                    }
                    self.key()?;
                }
                Some(b'[') => {
                    self.enter(b'[');
                    if self.peek() == Some(b']') {
                        return self.leave();
                    }
                }
                Some(b'"') => return self.string(),
                Some(b'-' | b'0'..=b'9') => return self.number(),
                Some(b't') => return self.literal("true"),
                Some(b'f') => return self.literal("false"),
                Some(b'n') => return self.literal("null"),
                _ => return self.unexpected("looking for beginning of value"),
            }
        }
    }

    fn enter(&mut self, opening: u8) {
        self.at += 1;
        self.open.push(opening);
        self.space();
    }

    fn leave(&mut self) -> Scan {
        self.at += 1;
        self.open.pop();
        Ok(())
    }

    fn key(&mut self) -> Scan {
        self.space();
        if self.peek() != Some(b'"') {
            return self.unexpected("looking for beginning of object key string");
        }
        self.string()?;
        self.space();
        if self.peek() != Some(b':') {
            return self.unexpected("after object key");
        }
        self.at += 1;
        Ok(())
    }

    fn string(&mut self) -> Scan {
        self.at += 1;
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => {
                    self.at += 1;
                    self.escape()?;
                }
                Some(b' '..) => self.at += 1,
                _ => return self.unexpected("in string literal"),
            }
        }
    }

    fn escape(&mut self) -> Scan {
        match self.peek() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 1,
            Some(b'u') => {
                self.at += 1;
                for _ in 0..4 {
                    if !self.peek().is_some_and(|byte| byte.is_ascii_hexdigit()) {
                        return self.unexpected_within("in \\u hexadecimal character escape");
                    }
                    self.at += 1;
                }
            }
            _ => return self.unexpected_within("in string escape code"),
        }
        Ok(())
    }

    fn number(&mut self) -> Scan {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        if self.peek() == Some(b'0') {
            self.at += 1;
        } else {
            self.digits("in numeric literal")?;
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits("after decimal point in numeric literal")?;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            self.digits("in exponent of numeric literal")?;
        }
        let text = String::from_utf8_lossy(&self.bytes[start..self.at]);
        if !text.parse::<f64>().is_ok_and(f64::is_finite) {
            self.too_large.get_or_insert_with(|| {
                format!("json: cannot unmarshal number {text} into Go value of type float64")
            });
        }
        Ok(())
    }

    fn digits(&mut self, place: &str) -> Scan {
        if !self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            return self.unexpected_within(place);
        }
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        Ok(())
    }

    fn literal(&mut self, word: &str) -> Scan {
        for wanted in word.bytes() {
            if self.peek() != Some(wanted) {
                let wanted = char::from(wanted);
                let place = format!("in literal {word} (expecting '{wanted}')");
                return self.unexpected_within(&place);
            }
            self.at += 1;
        }
        Ok(())
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\t' | b'\r' | b'\n') = self.peek() {
            self.at += 1;
        }
    }

    /// The error for the character here.
    fn unexpected(&self, place: &str) -> Scan {
        match self.peek() {
            Some(byte) => invalid(byte, place),
            None => Err("unexpected end of JSON input".into()),
        }
    }

    /// The same inside of a word or number, which Go ends with a space.
    fn unexpected_within(&self, place: &str) -> Scan {
        invalid(self.peek().unwrap_or(b' '), place)
    }
}

fn invalid(byte: u8, place: &str) -> Scan {
    let shown = match byte {
        b'\'' => "\\'".to_owned(),
        b'"' => "\"".to_owned(),
        // Go: a byte is taken for a character.
        byte => {
            let quoted = quote(&char::from(byte).to_string());
            quoted[1..quoted.len() - 1].to_owned()
        }
    };
    Err(format!("invalid character '{shown}' {place}"))
}
