//! Macros that walk lists and maps.
//!
//! Each step is charged what the expansion of the macro costs in cel-go, on top of its parts.

use super::node::{Loop, OptMap};
use super::run::{EvalResult, EvalRun, Local};
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::syntax::ast::LoopKind;
use crate::value::{CelList, Map, MapBuilder, MapKey};

/// What a loop goes over.
enum Range<'v> {
    List(&'v CelList),
    Map(&'v Map),
}

impl Range<'_> {
    fn len(&self) -> usize {
        match self {
            Range::List(list) => list.len(),
            Range::Map(map) => map.len(),
        }
    }
}

impl EvalRun<'_, '_> {
    #[inline(never)]
    pub(super) fn comprehension(&mut self, range: &Val, it: &Loop) -> EvalResult {
        let range = match range {
            Val::List(list) => Range::List(list),
            Val::Map(map) => Range::Map(map),
            _ => return Err(no_such_overload()),
        };
        match it.kind {
            LoopKind::All => self.decide(&range, it, false),
            LoopKind::Exists => self.decide(&range, it, true),
            LoopKind::ExistsOne => self.exists_one(&range, it),
            LoopKind::Map => self.transform(&range, it),
            LoopKind::Filter => self.filter(&range, it),
            LoopKind::TransformMap | LoopKind::TransformMapEntry => self.transform_map(&range, it),
            LoopKind::SortBy => self.sort_by(&range, it),
        }
    }

    /// Sets the loop variables for the element at a position; gives back the single variable.
    fn enter(&mut self, range: &Range<'_>, at: usize, it: &Loop) -> Result<(), EvalFailure> {
        let gone = || failure("the list changed under the loop");
        let first = it.first as usize;
        match (range, it.second) {
            (Range::List(list), None) => {
                self.locals[first] = Local::Value(list.get(at).ok_or_else(gone)?);
            }
            (Range::Map(map), None) => {
                self.locals[first] = Local::Value(map.key(at).ok_or_else(gone)?);
            }
            (Range::List(list), Some(second)) => {
                self.locals[first] = Local::Value(Val::Int(at.cast_signed() as i64));
                self.locals[second as usize] = Local::Value(list.get(at).ok_or_else(gone)?);
            }
            (Range::Map(map), Some(second)) => {
                let (key, value) = map.entry(at).ok_or_else(gone)?;
                self.locals[first] = Local::Value(key);
                self.locals[second as usize] = Local::Value(value);
            }
        }
        Ok(())
    }

    fn first(&self, it: &Loop) -> Val {
        match &self.locals[it.first as usize] {
            Local::Value(value) => value.clone(),
            _ => Val::Null,
        }
    }

    fn test(&mut self, node: &super::node::ExprNode) -> Result<bool, EvalFailure> {
        self.eval(node)?.as_bool().ok_or_else(no_such_overload)
    }

    /// `all` ends at the first false, `exists` at the first true; errors before that are forgiven.
    fn decide(&mut self, range: &Range<'_>, it: &Loop, decisive: bool) -> EvalResult {
        let mut problem = None;
        for at in 0..range.len() {
            self.charge(if decisive { 4 } else { 3 })?;
            self.enter(range, at, it)?;
            match self.test(&it.body) {
                Ok(b) if b == decisive => return Ok(Val::Bool(decisive)),
                Ok(_) => {}
                Err(error) if error.is_absorbable() => {
                    problem.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        problem.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    fn exists_one(&mut self, range: &Range<'_>, it: &Loop) -> EvalResult {
        let mut found = 0usize;
        for at in 0..range.len() {
            self.charge(2)?;
            self.enter(range, at, it)?;
            if self.test(&it.body)? {
                found += 1;
            }
        }
        Ok(Val::Bool(found == 1))
    }

    fn passes(&mut self, it: &Loop) -> Result<bool, EvalFailure> {
        match &it.filter {
            Some(filter) => self.test(filter),
            None => Ok(true),
        }
    }

    fn transform(&mut self, range: &Range<'_>, it: &Loop) -> EvalResult {
        self.charge(11)?;
        let mut elements = Vec::new();
        for at in 0..range.len() {
            self.charge(12)?;
            self.enter(range, at, it)?;
            if self.passes(it)? {
                elements.push(self.eval(&it.body)?);
            }
        }
        Val::list(elements)
    }

    fn filter(&mut self, range: &Range<'_>, it: &Loop) -> EvalResult {
        self.charge(11)?;
        let mut elements = Vec::new();
        for at in 0..range.len() {
            self.charge(1)?;
            self.enter(range, at, it)?;
            if self.test(&it.body)? {
                self.charge(12)?;
                elements.push(self.first(it));
            }
        }
        Val::list(elements)
    }

    fn transform_map(&mut self, range: &Range<'_>, it: &Loop) -> EvalResult {
        self.charge(31)?;
        let mut map = MapBuilder::with_capacity(range.len());
        for at in 0..range.len() {
            self.charge(2)?;
            self.enter(range, at, it)?;
            if !self.passes(it)? {
                continue;
            }
            let key = self.first(it);
            let value = self.eval(&it.body)?;
            if it.kind == LoopKind::TransformMap {
                map.insert(MapKey::from_val(&key)?, value)?;
                continue;
            }
            let Val::Map(entries) = value else { return Err(no_such_overload()) };
            for (key, value) in entries.iter() {
                self.charge(1)?;
                map.insert(MapKey::from_val(&key)?, value)?;
            }
        }
        map.finish()
    }

    fn sort_by(&mut self, range: &Range<'_>, it: &Loop) -> EvalResult {
        self.charge(11)?;
        let mut keyed = Vec::with_capacity(range.len());
        for at in 0..range.len() {
            self.charge(12)?;
            self.enter(range, at, it)?;
            let key = self.eval(&it.body)?;
            keyed.push((key, self.first(it)));
        }
        let sorted = crate::library::sorted_by_key(keyed, &mut self.session.context.meter)?;
        Val::list(sorted)
    }

    #[inline(never)]
    pub(super) fn opt_map(&mut self, target: &Val, it: &OptMap) -> EvalResult {
        self.charge(2)?;
        match target {
            Val::Optional(None) => Ok(Val::none()),
            Val::Optional(Some(nested)) => {
                self.locals[it.variable as usize] = Local::Value(nested.value.clone());
                let value = self.eval(&it.body)?;
                match (it.flat, &value) {
                    (true, Val::Optional(_)) => Ok(value),
                    (true, _) => Err(no_such_overload()),
                    (false, _) => Val::some(value),
                }
            }
            _ => Err(no_such_overload()),
        }
    }
}
