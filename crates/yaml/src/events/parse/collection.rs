//! Lists and maps, in blocks and in brackets: which event follows in each state.

use super::{Events, Next, Parse, ParseState};
use crate::events::event::{CollectionForm, Properties, YamlEvent};

impl<'t> Events<'t> {
    pub(super) fn block_item(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        match next {
            Next::Item => {
                self.skip_item()?;
                match self.peek()?.0 {
                    Next::Item | Next::BlockEnd => Ok(Self::empty_at(at.end)),
                    _ => self.node_then(ParseState::BlockItem, true, false),
                }
            }
            Next::BlockEnd => {
                self.end_collection();
                Ok((YamlEvent::ListEnd, at))
            }
            _ => Err(self.error_in_collection(
                "while parsing a block collection",
                "did not find expected '-' indicator",
                at.start,
            )),
        }
    }

    pub(super) fn indentless_item(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        if next != Next::Item {
            self.pop_state();
            return Ok((YamlEvent::ListEnd, at.start..at.start));
        }
        self.skip_item()?;
        match self.peek()?.0 {
            Next::Item | Next::Key | Next::Value | Next::BlockEnd => Ok(Self::empty_at(at.end)),
            _ => self.node_then(ParseState::IndentlessItem, true, false),
        }
    }

    pub(super) fn block_key(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        match next {
            Next::Key => {
                self.skip();
                match self.peek()?.0 {
                    Next::Key | Next::Value | Next::BlockEnd => {
                        self.state = ParseState::BlockValue;
                        Ok(Self::empty_at(at.end))
                    }
                    _ => self.node_then(ParseState::BlockValue, true, true),
                }
            }
            Next::BlockEnd => {
                self.comment_event();
                self.end_collection();
                Ok((YamlEvent::MapEnd, at))
            }
            _ => Err(self.error_in_collection(
                "while parsing a block mapping",
                "did not find expected key",
                at.start,
            )),
        }
    }

    pub(super) fn block_value(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        if next != Next::Value {
            self.state = ParseState::BlockKey;
            return Ok(Self::empty_at(at.start));
        }
        self.skip();
        match self.peek()?.0 {
            Next::Key | Next::Value | Next::BlockEnd => {
                self.state = ParseState::BlockKey;
                Ok(Self::empty_at(at.end))
            }
            _ => self.node_then(ParseState::BlockKey, true, true),
        }
    }

    pub(super) fn flow_item(&mut self, first: bool) -> Parse<'t> {
        let (mut next, mut at) = self.peek()?;
        if next != Next::FlowListEnd && !first {
            if next != Next::Comma {
                return Err(self.error_in_collection(
                    "while parsing a flow sequence",
                    "did not find expected ',' or ']'",
                    at.start,
                ));
            }
            self.skip();
            (next, at) = self.peek()?;
        }
        match next {
            Next::FlowListEnd => {
                self.comment_event();
                self.end_collection();
                Ok((YamlEvent::ListEnd, at))
            }
            Next::Key => {
                self.skip();
                self.state = ParseState::PairKey;
                Ok((YamlEvent::MapStart(Properties::default(), CollectionForm::Flow), at))
            }
            _ => self.node_then(ParseState::FlowItem { first: false }, false, false),
        }
    }

    pub(super) fn pair_key(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        match next {
            Next::Value | Next::Comma | Next::FlowListEnd => {
                // go-yaml: takes the token that ends the key; its value is then missing, too.
                self.skip();
                self.state = ParseState::PairValue;
                Ok(Self::empty_at(at.end))
            }
            _ => self.node_then(ParseState::PairValue, false, false),
        }
    }

    pub(super) fn pair_value(&mut self) -> Parse<'t> {
        let (next, at) = self.peek()?;
        if next == Next::Value {
            self.skip();
            if !matches!(self.peek()?.0, Next::Comma | Next::FlowListEnd) {
                return self.node_then(ParseState::PairEnd, false, false);
            }
        }
        self.state = ParseState::PairEnd;
        Ok(Self::empty_at(at.start))
    }

    pub(super) fn flow_key(&mut self, first: bool) -> Parse<'t> {
        let (mut next, mut at) = self.peek()?;
        if next != Next::FlowMapEnd && !first {
            if next != Next::Comma {
                return Err(self.error_in_collection(
                    "while parsing a flow mapping",
                    "did not find expected ',' or '}'",
                    at.start,
                ));
            }
            self.skip();
            (next, at) = self.peek()?;
        }
        match next {
            Next::FlowMapEnd => {
                self.comment_event();
                self.end_collection();
                Ok((YamlEvent::MapEnd, at))
            }
            Next::Key => {
                self.skip();
                match self.peek()?.0 {
                    Next::Value | Next::Comma | Next::FlowMapEnd => {
                        self.state = ParseState::FlowValue;
                        self.empty_scalar()
                    }
                    _ => self.node_then(ParseState::FlowValue, false, false),
                }
            }
            _ => self.node_then(ParseState::FlowEmptyValue, false, false),
        }
    }

    pub(super) fn flow_value(&mut self) -> Parse<'t> {
        if self.peek()?.0 == Next::Value {
            self.skip();
            if !matches!(self.peek()?.0, Next::Comma | Next::FlowMapEnd) {
                return self.node_then(ParseState::FlowKey { first: false }, false, false);
            }
        }
        self.state = ParseState::FlowKey { first: false };
        self.empty_scalar()
    }

    pub(super) fn end_collection(&mut self) {
        self.skip();
        self.begun.pop();
        self.pop_state();
    }
}
