//! From tokens to events, by the rules of go-yaml's parser.

mod collection;

use std::borrow::Cow;
use std::ops::Range;

use crate::events::event::{CollectionForm, Properties, Quoting, Scalar, SyntaxError, YamlEvent};
use crate::events::scan::{Scanner, YamlTokenKind};
use crate::events::tag_handles::TagHandles;
use crate::notes::{Comments, Notes};

/// The events of a text, each with its bytes.
pub(crate) struct Events<'t> {
    scanner: Scanner<'t>,
    state: ParseState,
    /// What to do after the node that is being parsed.
    after: Vec<ParseState>,
    /// Where the open collections begin, for errors.
    begun: Vec<usize>,
    tag_handles: TagHandles<'t>,
    /// What was written around the last event, if comments are wanted.
    comments: Comments,
    /// What stands above the `-` before a list or map, which belongs to that as a whole.
    stem: String,
}

/// What is expected next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ParseState {
    FirstDocument,
    Document,
    DocumentContent,
    DocumentEnd,
    BlockItem,
    /// A list that is not indented below its key.
    IndentlessItem,
    BlockKey,
    BlockValue,
    FlowItem {
        first: bool,
    },
    /// `[a: b]`: a map of one entry in a list.
    PairKey,
    PairValue,
    PairEnd,
    FlowKey {
        first: bool,
    },
    FlowValue,
    FlowEmptyValue,
    BlockNode,
    End,
}

type Parse<'t> = Result<(YamlEvent<'t>, Range<usize>), SyntaxError>;

/// The token kinds that a parser decision depends on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Directive,
    DocumentStart,
    DocumentEnd,
    StreamEnd,
    Item,
    BlockEnd,
    Key,
    Value,
    Comma,
    FlowListEnd,
    FlowMapEnd,
    Node,
}

impl<'t> Events<'t> {
    /// The events from this byte on, which must be the beginning of a line outside of any document.
    pub(crate) fn new(text: &'t str, at: usize) -> Self {
        Events {
            scanner: Scanner::new(text, at),
            state: ParseState::FirstDocument,
            after: Vec::new(),
            begun: Vec::new(),
            tag_handles: TagHandles::default(),
            comments: Comments::default(),
            stem: String::new(),
        }
    }

    /// The events of a text, with its comments.
    pub(crate) fn with_comments(text: &'t str) -> Self {
        let mut events = Events::new(text, 0);
        events.scanner.notes = Some(Box::new(Notes::default()));
        events
    }

    /// What was written around the last event.
    pub(crate) fn take_comments(&mut self) -> Comments {
        std::mem::take(&mut self.comments)
    }

    /// What has been read of comments belongs to the event that comes next.
    fn comment_event(&mut self) {
        if let Some(notes) = &mut self.scanner.notes {
            self.comments = std::mem::take(&mut notes.comments);
            self.stem.clear();
        }
    }

    /// What stood above the `-` before the list or map that begins now.
    fn comment_start(&mut self) {
        self.comments.head = std::mem::take(&mut self.stem);
    }

    /// What stands above a whole document: all comments before the last empty line.
    fn comment_document(&mut self) {
        let Some(notes) = &mut self.scanner.notes else { return };
        let head = &mut notes.comments.head;
        let empty = match head.strip_suffix('\n') {
            Some(above) => Some(above.len()),
            None => head.rfind("\n\n"),
        };
        if let Some(at) = empty {
            let rest = head.get(at..).unwrap_or_default().trim_start_matches('\n').to_owned();
            head.truncate(at);
            self.comments.head = std::mem::replace(head, rest);
        }
    }

    /// Goes past a `-`, and sets aside what stands above it if a list or map begins behind it.
    fn skip_item(&mut self) -> Result<(), SyntaxError> {
        let above = self.scanner.notes.as_ref().map_or(0, |notes| notes.comments.head.len());
        self.skip();
        if above == 0 {
            return Ok(());
        }
        let token = self.scanner.peek()?;
        let begins =
            matches!(token.kind, YamlTokenKind::BlockListStart | YamlTokenKind::BlockMapStart);
        if let Some(notes) = self.scanner.notes.as_mut().filter(|_| begins) {
            let head = &mut notes.comments.head;
            // A line break stands between them.
            let rest = head.get(above + 1..).unwrap_or_default().to_owned();
            head.truncate(above);
            self.stem = std::mem::replace(head, rest);
        }
        Ok(())
    }

    /// The next event. After an error or the end of the stream there is nothing to ask for.
    pub(crate) fn next(&mut self) -> Parse<'t> {
        match self.state {
            ParseState::FirstDocument => self.document_start(true),
            ParseState::Document => self.document_start(false),
            ParseState::DocumentContent => match self.peek()?.0 {
                Next::Directive | Next::DocumentStart | Next::DocumentEnd | Next::StreamEnd => {
                    self.pop_state();
                    self.empty_scalar()
                }
                _ => self.node(true, false),
            },
            ParseState::DocumentEnd => self.document_end(),
            ParseState::BlockNode => self.node(true, false),
            ParseState::BlockItem => self.block_item(),
            ParseState::IndentlessItem => self.indentless_item(),
            ParseState::BlockKey => self.block_key(),
            ParseState::BlockValue => self.block_value(),
            ParseState::FlowItem { first } => self.flow_item(first),
            ParseState::PairKey => self.pair_key(),
            ParseState::PairValue => self.pair_value(),
            ParseState::PairEnd => {
                self.state = ParseState::FlowItem { first: false };
                let (_, at) = self.peek()?;
                Ok((YamlEvent::MapEnd, at.start..at.start))
            }
            ParseState::FlowKey { first } => self.flow_key(first),
            ParseState::FlowValue => self.flow_value(),
            ParseState::FlowEmptyValue => {
                self.state = ParseState::FlowKey { first: false };
                self.empty_scalar()
            }
            ParseState::End => {
                let (_, at) = self.peek()?;
                Ok((YamlEvent::StreamEnd, at))
            }
        }
    }

    /// Where the first comment is, as far as the text has been scanned.
    pub(crate) fn first_comment(&self) -> Option<Range<usize>> {
        self.scanner.first_comment.clone()
    }

    fn peek(&mut self) -> Result<(Next, Range<usize>), SyntaxError> {
        let token = self.scanner.peek()?;
        let next = match token.kind {
            YamlTokenKind::StreamEnd => Next::StreamEnd,
            YamlTokenKind::YamlDirective { .. } | YamlTokenKind::TagDirective { .. } => {
                Next::Directive
            }
            YamlTokenKind::DocumentStart => Next::DocumentStart,
            YamlTokenKind::DocumentEnd => Next::DocumentEnd,
            YamlTokenKind::BlockEnd => Next::BlockEnd,
            YamlTokenKind::FlowListEnd => Next::FlowListEnd,
            YamlTokenKind::FlowMapEnd => Next::FlowMapEnd,
            YamlTokenKind::Item => Next::Item,
            YamlTokenKind::Comma => Next::Comma,
            YamlTokenKind::Key => Next::Key,
            YamlTokenKind::Value => Next::Value,
            YamlTokenKind::BlockListStart
            | YamlTokenKind::BlockMapStart
            | YamlTokenKind::FlowListStart
            | YamlTokenKind::FlowMapStart
            | YamlTokenKind::Alias(_)
            | YamlTokenKind::Anchor(_)
            | YamlTokenKind::Tag { .. }
            | YamlTokenKind::Scalar { .. } => Next::Node,
        };
        Ok((next, token.start..token.end))
    }

    /// Takes the token that was peeked at.
    fn skip(&mut self) {
        self.scanner.take();
    }

    fn pop_state(&mut self) {
        self.state = self.after.pop().unwrap_or(ParseState::End);
    }

    /// Parses a node, and then goes on like this.
    fn node_then(&mut self, then: ParseState, block: bool, indentless: bool) -> Parse<'t> {
        self.after.push(then);
        self.node(block, indentless)
    }

    /// A node that is not written is empty.
    fn empty_scalar(&mut self) -> Parse<'t> {
        let (_, at) = self.peek()?;
        Ok(Self::empty_at(at.start))
    }

    fn empty_at(at: usize) -> (YamlEvent<'t>, Range<usize>) {
        let scalar = Scalar {
            properties: Properties::default(),
            text: Cow::Borrowed(""),
            quoting: Quoting::Plain,
        };
        (YamlEvent::Scalar(scalar), at..at)
    }

    #[cold]
    fn error_in_collection(
        &mut self,
        doing: &'static str,
        problem: &'static str,
        at: usize,
    ) -> SyntaxError {
        let context = self.begun.pop().map(|begun| (doing, begun));
        SyntaxError { problem, at, context }
    }

    fn document_start(&mut self, first: bool) -> Parse<'t> {
        let (mut next, mut at) = self.peek()?;
        while !first && next == Next::DocumentEnd {
            self.skip();
            (next, at) = self.peek()?;
        }
        self.tag_handles.clear();
        match next {
            Next::StreamEnd => {
                self.state = ParseState::End;
                Ok((YamlEvent::StreamEnd, at))
            }
            Next::Directive | Next::DocumentStart => {
                self.directives()?;
                let (next, marker) = self.peek()?;
                if next != Next::DocumentStart {
                    let problem = "did not find expected <document start>";
                    return Err(SyntaxError { problem, at: marker.start, context: None });
                }
                self.skip();
                self.after.push(ParseState::DocumentEnd);
                self.state = ParseState::DocumentContent;
                Ok((YamlEvent::DocumentStart, at.start..marker.end))
            }
            // go-yaml: only the first document may begin without `---`.
            _ if first => {
                self.after.push(ParseState::DocumentEnd);
                self.state = ParseState::BlockNode;
                self.comment_document();
                Ok((YamlEvent::DocumentStart, at.start..at.start))
            }
            _ => {
                let problem = "did not find expected <document start>";
                Err(SyntaxError { problem, at: at.start, context: None })
            }
        }
    }

    fn directives(&mut self) -> Result<(), SyntaxError> {
        let mut version_seen = false;
        loop {
            let (next, at) = self.peek()?;
            if next != Next::Directive {
                return Ok(());
            }
            let error = |problem| Err(SyntaxError { problem, at: at.start, context: None });
            match self.scanner.take().map(|token| token.kind) {
                Some(YamlTokenKind::YamlDirective { .. }) if version_seen => {
                    return error("found duplicate %YAML directive");
                }
                Some(YamlTokenKind::YamlDirective { supported }) => {
                    if !supported {
                        return error("found incompatible YAML document");
                    }
                    version_seen = true;
                }
                Some(YamlTokenKind::TagDirective { handle, prefix }) => {
                    if let Err(problem) = self.tag_handles.declare(handle, prefix) {
                        return error(problem);
                    }
                }
                _ => {}
            }
        }
    }

    fn document_end(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        self.state = ParseState::Document;
        self.comment_event();
        if self.comments.foot.is_empty() {
            self.comments.foot = std::mem::take(&mut self.comments.head);
        }
        if next == Next::DocumentEnd {
            self.skip();
            return Ok((YamlEvent::DocumentEnd, at));
        }
        Ok((YamlEvent::DocumentEnd, at.start..at.start))
    }

    fn node(&mut self, block: bool, indentless: bool) -> Parse<'t> {
        let first = self.scanner.peek()?;
        let start = first.start;
        if let YamlTokenKind::Alias(name) = first.kind {
            let span = first.start..first.end;
            self.comment_event();
            self.skip();
            self.pop_state();
            return Ok((YamlEvent::Alias(name), span));
        }
        let mut end = start;
        let properties = self.properties(&mut end)?;
        let token = self.scanner.peek()?;
        let (at, token_end) = (token.start, token.end);
        let begun = start..token_end;
        match token.kind {
            YamlTokenKind::Item if indentless => {
                self.state = ParseState::IndentlessItem;
                Ok((YamlEvent::ListStart(properties, CollectionForm::Block), begun))
            }
            YamlTokenKind::Scalar { .. } => {
                self.comment_event();
                let Some(YamlTokenKind::Scalar { text, quoting }) =
                    self.scanner.take().map(|t| t.kind)
                else {
                    return Ok(Self::empty_at(at));
                };
                self.pop_state();
                // What stands before a scalar is not part of it.
                Ok((YamlEvent::Scalar(Scalar { properties, text, quoting }), at..token_end))
            }
            YamlTokenKind::FlowListStart => {
                self.comment_event();
                self.begin(at, ParseState::FlowItem { first: true });
                Ok((YamlEvent::ListStart(properties, CollectionForm::Flow), at..token_end))
            }
            YamlTokenKind::FlowMapStart => {
                self.comment_event();
                self.begin(at, ParseState::FlowKey { first: true });
                Ok((YamlEvent::MapStart(properties, CollectionForm::Flow), at..token_end))
            }
            YamlTokenKind::BlockListStart if block => {
                self.comment_start();
                self.begin(at, ParseState::BlockItem);
                Ok((YamlEvent::ListStart(properties, CollectionForm::Block), at..token_end))
            }
            YamlTokenKind::BlockMapStart if block => {
                self.comment_start();
                self.begin(at, ParseState::BlockKey);
                Ok((YamlEvent::MapStart(properties, CollectionForm::Block), at..token_end))
            }
            _ if properties.anchor.is_some() || properties.tag.is_some() => {
                self.pop_state();
                let text = Cow::Borrowed("");
                let scalar = Scalar { properties, text, quoting: Quoting::Plain };
                Ok((YamlEvent::Scalar(scalar), start..end))
            }
            _ => {
                let doing =
                    if block { "while parsing a block node" } else { "while parsing a flow node" };
                let problem = "did not find expected node content";
                Err(SyntaxError { problem, at, context: Some((doing, start)) })
            }
        }
    }

    fn begin(&mut self, at: usize, state: ParseState) {
        self.skip();
        self.begun.push(at);
        self.state = state;
    }

    /// An anchor and a tag, in either order.
    fn properties(&mut self, end: &mut usize) -> Result<Properties<'t>, SyntaxError> {
        let mut properties = Properties::default();
        loop {
            let token = self.scanner.peek()?;
            match token.kind {
                YamlTokenKind::Anchor(name) if properties.anchor.is_none() => {
                    *end = token.end;
                    properties.anchor = Some(name);
                    self.skip();
                }
                YamlTokenKind::Tag { .. } if properties.tag.is_none() => {
                    *end = token.end;
                    let at = token.start;
                    if let Some(YamlTokenKind::Tag { handle, suffix }) =
                        self.scanner.take().map(|t| t.kind)
                    {
                        properties.tag = Some(self.full_tag(handle, suffix, at)?);
                    }
                }
                _ => return Ok(properties),
            }
        }
    }

    fn full_tag(&self, handle: &str, suffix: Box<str>, at: usize) -> Result<Box<str>, SyntaxError> {
        let prefix = match (self.tag_handles.prefix(handle), handle) {
            (_, "") => return Ok(suffix),
            (Some(prefix), _) => prefix,
            (None, "!") => "!",
            (None, "!!") => "tag:yaml.org,2002:",
            (None, _) => {
                let context = Some(("while parsing a node", at));
                return Err(SyntaxError { problem: "found undefined tag handle", at, context });
            }
        };
        Ok(format!("{prefix}{suffix}").into_boxed_str())
    }
}
