//! Paths and addresses that variables fill: the text of the policy makes their structure.
//!
//! What an object says is a part of one step of a path, of one value of a query, or of one text in an expression, whatever it says. Kyverno reads the filled
//! text instead, which lets the author of an object choose what a policy reads.
//!
//! The policy's own text is what stands between the variables, what a value of its context without variables says, and the
//! text of a context variable, which is read as if it stood there itself.

use std::fmt::Write as _;

use kiln_rules::Load;
use kiln_value::{Str, Value};
use kiln_variables::{FilledValue, Template};

use crate::context::{Layer, not_text, text_of};
use crate::output::failure::{Failure, FailureKind};
use crate::protected_namespaces;

/// A part of a text that was filled.
enum FilledPart {
    /// What the policy says.
    Own(String),
    /// What a variable says, and its expression.
    Said(String, std::sync::Arc<str>),
    /// A list or a map that a variable gives, as JSON.
    Structure(String),
}

/// A path with its variables substituted.
pub(crate) struct FilledPath {
    pub(crate) text: String,
    /// Its steps that variables say, or a part of them.
    pub(crate) said: Vec<String>,
}

/// What is filled.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressKind {
    ApiPath,
    Service,
    Expression,
}

impl AddressKind {
    fn what(self) -> &'static str {
        match self {
            AddressKind::ApiPath => "urlPath",
            AddressKind::Service => "the address of a service",
            // Kyverno's words.
            AddressKind::Expression => "jmespath value",
        }
    }
}

/// What an expression is in the middle of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Quote {
    None,
    Within(char),
}

impl Quote {
    /// What comes after some more of the policy's own text.
    fn after(self, text: &str) -> Self {
        let mut quote = self;
        let mut chars = text.chars();
        while let Some(c) = chars.next() {
            quote = match quote {
                Quote::None if matches!(c, '\'' | '"' | '`') => Quote::Within(c),
                Quote::Within(open) if c == open => Quote::None,
                Quote::Within(_) if c == '\\' => {
                    chars.next();
                    quote
                }
                _ => quote,
            };
        }
        quote
    }

    /// What an object says, so that it does not end what it stands in.
    fn quoted(self, said: &str) -> Option<String> {
        match self {
            Quote::None => {
                let is_path = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.');
                said.chars().all(is_path).then(|| said.to_owned())
            }
            // Nothing but the quote is escaped in a raw string.
            Quote::Within('\'') if said.ends_with('\\') || said.contains("\\'") => None,
            Quote::Within('\'') => Some(said.replace('\'', "\\'")),
            Quote::Within(_) if said.contains('`') => None,
            Quote::Within(_) => {
                let text = kiln_value::json::to_string(&Value::from(said));
                Some(text.strip_prefix('"')?.strip_suffix('"')?.to_owned())
            }
        }
    }
}

impl Layer<'_> {
    /// The path of a request to the API server.
    pub(crate) fn api_path(&self, template: &Template) -> Result<FilledPath, Failure> {
        AddressBuilder::joined(AddressKind::ApiPath, &self.parts(template, AddressKind::ApiPath)?)
    }

    /// The address of a service.
    pub(crate) fn service_url(&self, template: &Template) -> Result<String, Failure> {
        Ok(AddressBuilder::joined(
            AddressKind::Service,
            &self.parts(template, AddressKind::Service)?,
        )?
        .text)
    }

    /// A name, or a part of one, in which some characters mean something if the policy writes them.
    pub(crate) fn name(
        &self,
        template: &Template,
        what: &str,
        meaningful: &[char],
    ) -> Result<Str, Failure> {
        let name = text_of(self.fill(template)?, what)?;
        // Most values say nothing that could mean more.
        if template.is_plain() || !(name.is_empty() || name.contains(meaningful)) {
            return Ok(name);
        }
        let parts = self.parts(template, AddressKind::ApiPath)?;
        let said = |part: &FilledPart| match part {
            FilledPart::Own(_) => false,
            FilledPart::Said(text, _) | FilledPart::Structure(text) => {
                name.is_empty() || text.contains(meaningful)
            }
        };
        if !parts.iter().any(said) {
            return Ok(name);
        }
        let message = match name.as_str() {
            "" => format!("{what} is empty, because a variable is"),
            name => format!("{what} is {name:?}, and a variable brings more than a name into it"),
        };
        Err(Failure::new(FailureKind::Value, message)
            .hint("what an object says is one name: write wildcards and slashes into the rule"))
    }

    /// An expression. What an object says is a part of the text or of the name that it stands in.
    pub(crate) fn expression_text(&self, template: &Template) -> Result<String, Failure> {
        let mut text = String::new();
        let mut quote = Quote::None;
        for part in self.parts(template, AddressKind::Expression)? {
            match part {
                FilledPart::Own(own) => {
                    quote = quote.after(&own);
                    text.push_str(&own);
                }
                // A list or a map is asked for as one: its texts are between quotes of its own.
                FilledPart::Structure(json)
                    if quote == Quote::None
                        || (quote == Quote::Within('`') && !json.contains('`')) =>
                {
                    text.push_str(&json);
                }
                FilledPart::Said(said, _) | FilledPart::Structure(said) => {
                    let said = quote.quoted(&said).ok_or_else(|| {
                        let message = format!("a variable brings {said:?} into an expression, which is more than a value or a name");
                        Failure::new(FailureKind::Value, message)
                            .hint("put the variable between single quotes, as in '{{ … }}'")
                    })?;
                    text.push_str(&said);
                }
            }
        }
        Ok(text)
    }

    fn parts(&self, template: &Template, kind: AddressKind) -> Result<Vec<FilledPart>, Failure> {
        let what = kind.what();
        if template.is_plain() {
            let text = text_of(template.document().clone(), what)?;
            return Ok(vec![FilledPart::Own(text.to_string())]);
        }
        let filled = self.fill_text(template)?;
        let mut parts = Vec::new();
        let mut done = 0;
        for FilledValue { at, value, expression } in filled.values {
            if at.start > done {
                parts.push(FilledPart::Own(filled.text[done..at.start].to_owned()));
            }
            done = at.end;
            let is_all = at == (0..filled.text.len());
            let is_structure = matches!(value, Value::Map(_) | Value::List(_));
            if (is_structure && kind != AddressKind::Expression)
                || (is_all && !matches!(value, Value::String(_)))
            {
                return Err(not_text(&value, what));
            }
            let text = filled.text[at.clone()].to_owned();
            match self.source(&expression) {
                Some(ValueSource::Written) => parts.push(FilledPart::Own(text)),
                _ if is_structure => parts.push(FilledPart::Structure(text)),
                Some(ValueSource::Named) if kind == AddressKind::Service && at.start == 0 => {
                    parts.push(FilledPart::Own(text));
                }
                Some(ValueSource::Text(layer, template)) => {
                    parts.extend(layer.parts(template, kind)?);
                }
                _ => parts.push(FilledPart::Said(text, expression)),
            }
        }
        if done < filled.text.len() {
            parts.push(FilledPart::Own(filled.text[done..].to_owned()));
        }
        Ok(parts)
    }

    /// Where the value of a variable comes from, if that is the policy itself.
    fn source(&self, expression: &str) -> Option<ValueSource<'_>> {
        let path = Some(expression.trim()).filter(|path| protected_namespaces::is_path(path))?;
        let (layer, entry) = self.entry(path)?;
        match &entry.load {
            _ if protected_namespaces::written(entry).is_some() => Some(ValueSource::Written),
            Load::Variable { value: Some(value), query: None, default: None }
                if path == entry.name && value.document().as_str().is_some() =>
            {
                Some(ValueSource::Text(layer, value))
            }
            Load::ConfigMap { name, namespace }
                if name.is_plain() && namespace.as_ref().is_none_or(Template::is_plain) =>
            {
                Some(ValueSource::Named)
            }
            _ => None,
        }
    }
}

enum ValueSource<'s> {
    /// It is written down as it is.
    Written,
    /// It is a text with variables of its own.
    Text(Layer<'s>, &'s Template),
    /// A ConfigMap that the policy names says it.
    Named,
}

/// What the next character is a part of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressPart {
    Scheme,
    Authority,
    Step,
    Key,
    Value,
    Fragment,
}

/// An address that is being built.
struct AddressBuilder {
    kind: AddressKind,
    text: String,
    place: AddressPart,
    /// Where the step or the value began, whether a variable is in it, and whether text of the policy is.
    began: usize,
    said: bool,
    own: bool,
    /// The steps that variables say.
    said_steps: Vec<String>,
}

impl AddressBuilder {
    fn joined(kind: AddressKind, parts: &[FilledPart]) -> Result<FilledPath, Failure> {
        let place =
            if kind == AddressKind::Service { AddressPart::Scheme } else { AddressPart::Step };
        let (text, said_steps) = (String::new(), Vec::new());
        let mut address =
            AddressBuilder { kind, text, place, began: 0, said: false, own: false, said_steps };
        for (at, part) in parts.iter().enumerate() {
            match part {
                FilledPart::Own(text) => text.chars().try_for_each(|c| address.own(c))?,
                FilledPart::Said(said, expression) => {
                    let next = match parts.get(at + 1) {
                        None => Some(""),
                        Some(FilledPart::Own(text)) => Some(text.as_str()),
                        Some(FilledPart::Said(..) | FilledPart::Structure(_)) => None,
                    };
                    address.said(said, expression, next)?;
                }
                FilledPart::Structure(json) => {
                    return Err(address.refused(json, "which is not text"));
                }
            }
        }
        address.end_step()?;
        Ok(FilledPath { text: address.text, said: address.said_steps })
    }

    fn own(&mut self, c: char) -> Result<(), Failure> {
        let next = match (self.place, c) {
            (AddressPart::Scheme, '/') if self.text.ends_with(":/") => Some(AddressPart::Authority),
            (AddressPart::Authority | AddressPart::Step, '/') => Some(AddressPart::Step),
            (AddressPart::Authority | AddressPart::Step, '?')
            | (AddressPart::Key | AddressPart::Value, '&') => Some(AddressPart::Key),
            // A slip for `&` in a path of the API server.
            (AddressPart::Key | AddressPart::Value, '?') if self.kind == AddressKind::ApiPath => {
                Some(AddressPart::Key)
            }
            (AddressPart::Key, '=') => Some(AddressPart::Value),
            (AddressPart::Scheme | AddressPart::Fragment, _) => None,
            (_, '#') if self.kind == AddressKind::Service => Some(AddressPart::Fragment),
            _ => None,
        };
        if next.is_some() {
            self.end_step()?;
        }
        self.text.push(c);
        self.own = true;
        if let Some(place) = next {
            (self.place, self.began) = (place, self.text.len());
            (self.said, self.own) = (false, false);
        }
        Ok(())
    }

    /// A step that a variable is in has to be one.
    fn end_step(&mut self) -> Result<(), Failure> {
        let step = &self.text[self.began..];
        if self.place == AddressPart::Step && self.said {
            if ["", ".", ".."].contains(&step) {
                return Err(self.refused(step, "which is not a step of a path"));
            }
            self.said_steps.push(step.to_owned());
        }
        if self.place == AddressPart::Authority && self.said && !self.own {
            return Err(self.refused(step, "where the policy has to say which host is asked"));
        }
        Ok(())
    }

    /// Takes what a variable says. `next` is the policy's text behind it, unless another variable is there.
    fn said(&mut self, said: &str, expression: &str, next: Option<&str>) -> Result<(), Failure> {
        let within = |more: &[char], text: &str| {
            text.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(&c))
        };
        self.said = true;
        match self.place {
            AddressPart::Scheme => {
                return Err(self.refused(said, "where the policy has to say which host is asked"));
            }
            AddressPart::Authority if !within(&['-'], said) => {
                return Err(self.refused(said, "which is more than a part of a host's name"));
            }
            AddressPart::Key if !within(&['-', '.', '_'], said) => {
                return Err(self.refused(said, "which is more than a name"));
            }
            AddressPart::Authority | AddressPart::Key => self.text.push_str(said),
            AddressPart::Step if self.takes_api_version(said, next) => self.text.push_str(said),
            AddressPart::Step => {
                let is_more = |c: char| matches!(c, '/' | '?' | '#' | '%' | '\\') || c.is_control();
                if said.contains(is_more) {
                    return Err(self.refused(said, "which is more than one step of a path"));
                }
                encode(&mut self.text, said, b"-._~!$&'()*+,;=:@");
            }
            AddressPart::Value => {
                let is_all = self.text.len() == self.began
                    && next
                        .is_some_and(|next| next.is_empty() || next.starts_with(['&', '?', '#']));
                let is_more = |c: char| match c {
                    // A list that the policy joins.
                    ',' => !expression.trim_start().starts_with("join("),
                    '=' | '!' | '<' | '>' | '(' | ')' => true,
                    c => c.is_whitespace(),
                };
                let key = self.text[..self.began].trim_end_matches('=');
                if said.is_empty() && is_all && key.ends_with("Selector") {
                    return Err(self.refused(said, "which would select everything"));
                }
                if self.kind == AddressKind::ApiPath && !is_all && said.contains(is_more) {
                    return Err(self.refused(said, "which is more than one value of a selector"));
                }
                encode(&mut self.text, said, b"-._~!$'()*,=:@/");
            }
            AddressPart::Fragment => encode(&mut self.text, said, b"-._~"),
        }
        Ok(())
    }

    /// Whether this is the group and version of `/apis/{{ apiVersion }}/namespaces/…`.
    fn takes_api_version(&self, said: &str, next: Option<&str>) -> bool {
        let is_name = |text: &str| {
            !text.is_empty()
                && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b))
                && !text.starts_with('.')
        };
        let step = next.and_then(|next| next.strip_prefix('/'));
        let step = step.and_then(|rest| rest.split_once('/')).map(|(step, _)| step);
        // Otherwise the policy says the version itself.
        let follows = step.is_some_and(|step| step == "namespaces");
        self.kind == AddressKind::ApiPath
            && self.text == "/apis/"
            && follows
            && said
                .split_once('/')
                .is_some_and(|(group, version)| is_name(group) && is_name(version))
    }

    fn refused(&self, said: &str, why: &str) -> Failure {
        let what = self.kind.what();
        let message = format!("a variable brings {said:?} into {what}, {why}");
        Failure::new(FailureKind::Value, message).hint(
            "what an object says fills one step of a path or one value of a query: write the rest into the rule, or into a context variable that is text",
        )
    }
}

/// Text with everything but letters, digits and some others as `%41`.
fn encode(into: &mut String, text: &str, kept: &[u8]) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || kept.contains(&byte) {
            into.push(char::from(byte));
        } else {
            let _ = write!(into, "%{byte:02X}");
        }
    }
}
