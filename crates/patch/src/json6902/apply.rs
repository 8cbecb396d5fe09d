//! Applies the operations.
//!
//! Each operation first looks its places up without touching anything, then edits along the steps
//! it found; so only the spine down to the edited place is copied.

use kiln_value::{Key, MAX_DEPTH, Map, Number, SegmentRef, Value};

use super::measure::measure;
use super::{
    Action, JsonPatch, JsonPatchError, JsonPatchOperation, JsonPatchProblem, JsonPatchRules,
};
use super::{Pointer, WholeDocument};

/// How much of what moves to a deeper place may be looked at, to see how deep it is.
const MOVED_BYTES: usize = 64 << 20;

type PatchResult<T> = Result<T, JsonPatchProblem>;

impl JsonPatch {
    /// Applies all operations.
    ///
    /// # Errors
    /// When one of them does not apply; the document is then unchanged.
    pub fn apply(&self, document: &mut Value) -> Result<(), JsonPatchError> {
        // A clone is a pointer. Operations work on it, and the caller's document is replaced only when all of them
        // succeeded: a patch that fails in the middle must leave nothing behind.
        let mut run = PatchRun {
            rules: &self.rules,
            document: document.clone(),
            copied: self.rules.max_copied_bytes,
            moved: MOVED_BYTES,
            padded: 0,
        };
        for (index, operation) in self.operations.iter().enumerate() {
            run.operation(operation).map_err(|problem| JsonPatchError {
                index: Some(index),
                operations: self.operations.len(),
                op: Some(operation.action.name().to_owned()),
                path: Some(operation.path.as_str().to_owned()),
                problem: Box::new(problem),
            })?;
        }
        *document = run.document;
        Ok(())
    }
}

struct PatchRun<'p> {
    rules: &'p JsonPatchRules,
    document: Value,
    /// Bytes that copies may still add.
    copied: usize,
    /// Bytes that moves may still look at.
    moved: usize,
    /// Nulls put into short lists so far.
    padded: usize,
}

/// The place an operation names: the steps to its parent, and the last step.
type ParentAndKey<'p> = (Vec<SegmentRef<'p>>, &'p Key);

/// A position in a list on the way down.
#[derive(Clone, Copy)]
enum Spot {
    There(usize),
    New(usize),
}

impl PatchRun<'_> {
    fn operation(&mut self, operation: &JsonPatchOperation) -> PatchResult<()> {
        let path = &operation.path;
        match &operation.action {
            Action::Add(value) => {
                check_depth(path, value, &mut { usize::MAX })?;
                if path.steps().is_empty() {
                    return self.replace_document(value, |allowed| {
                        matches!(allowed, WholeDocument::Any | WholeDocument::AddReplaceCopy)
                    });
                }
                if self.rules.create_parents {
                    self.add_with_parents(path, value.clone())
                } else {
                    self.add(path, value.clone())
                }
            }
            Action::Replace(value) => {
                check_depth(path, value, &mut { usize::MAX })?;
                self.replace(path, value)
            }
            Action::Remove => self.remove(path),
            Action::Move(from) => self.move_value(from, path),
            Action::Copy(from) => self.copy(from, path),
            Action::Test(value) => self.test(path, value),
        }
    }

    fn replace_document(
        &mut self,
        value: &Value,
        allows: impl Fn(WholeDocument) -> bool,
    ) -> PatchResult<()> {
        let allowed = self.rules.whole_document;
        let fits = matches!(value, Value::Map(_) | Value::List(_));
        if !allows(allowed) || (allowed != WholeDocument::Any && !fits) {
            return Err(JsonPatchProblem::WholeDocument);
        }
        self.document = value.clone();
        Ok(())
    }

    /// Looks up the parent of a place, which must be there.
    fn parent<'p>(&self, path: &'p Pointer) -> PatchResult<ParentAndKey<'p>> {
        let (last, parents) = path.steps().split_last().ok_or(JsonPatchProblem::WholeDocument)?;
        let mut steps = Vec::with_capacity(parents.len());
        let mut place = &self.document;
        for (depth, step) in parents.iter().enumerate() {
            let (segment, next) = self.step(place, step, path, depth)?;
            steps.push(segment);
            place = next;
        }
        Ok((steps, last))
    }

    /// One step into a value; `depth` steps of the path led to it.
    fn step<'p, 'v>(
        &self,
        value: &'v Value,
        step: &'p Key,
        path: &Pointer,
        depth: usize,
    ) -> PatchResult<(SegmentRef<'p>, &'v Value)> {
        match value {
            Value::Map(map) => match map.get(step) {
                Some(next) => Ok((SegmentRef::Key(step), next)),
                None => Err(no_such_key(map, step, path, depth)),
            },
            Value::List(list) => {
                let at = self.element(list.len(), step, path, depth)?;
                Ok((SegmentRef::Index(at), &list[at]))
            }
            other => Err(not_a_container(other, path, depth)),
        }
    }

    /// An index as written, which may be negative.
    fn index(&self, step: &str) -> Option<i64> {
        let plain =
            step.bytes().all(|b| b.is_ascii_digit()) && (step.len() == 1 || !step.starts_with('0'));
        // Go's `strconv.Atoi` and this parser agree: an optional sign, then digits.
        (plain || self.rules.lenient_indices).then(|| step.parse().ok())?
    }

    fn signed_index(&self, step: &str, path: &Pointer, depth: usize) -> PatchResult<i64> {
        self.index(step).ok_or_else(|| JsonPatchProblem::NotAnIndex {
            list: path.prefix(depth),
            step: step.to_owned(),
        })
    }

    /// Counts a signed index from the end of this many elements if it is negative.
    fn count_from_end(&self, index: i64, count: usize) -> Option<usize> {
        match usize::try_from(index) {
            Ok(index) => Some(index),
            Err(_) if self.rules.negative_indices => {
                count.checked_sub(usize::try_from(index.unsigned_abs()).ok()?)
            }
            Err(_) => None,
        }
    }

    /// The position of an element that is there.
    fn element(
        &self,
        length: usize,
        step: &str,
        path: &Pointer,
        depth: usize,
    ) -> PatchResult<usize> {
        let index = self.signed_index(step, path, depth)?;
        self.count_from_end(index, length)
            .filter(|at| *at < length)
            .ok_or_else(|| no_such_element(length, step, path, depth))
    }

    /// The position at which an element is inserted.
    fn insertion(
        &self,
        length: usize,
        step: &str,
        path: &Pointer,
        depth: usize,
    ) -> PatchResult<usize> {
        if step == "-" {
            return Ok(length);
        }
        let index = self.signed_index(step, path, depth)?;
        // The list counts as one longer already, so that -1 appends.
        self.count_from_end(index, length + 1)
            .filter(|at| *at <= length)
            .ok_or_else(|| no_such_element(length, step, path, depth))
    }

    fn parent_value(&self, steps: &[SegmentRef<'_>]) -> &Value {
        self.document.get_path(steps.iter().copied()).unwrap_or(&Value::Null)
    }

    fn parent_mut(&mut self, steps: &[SegmentRef<'_>]) -> Option<&mut Value> {
        self.document.get_path_mut(steps.iter().copied())
    }

    fn add(&mut self, path: &Pointer, value: Value) -> PatchResult<()> {
        let (steps, last) = self.parent(path)?;
        let depth = steps.len();
        let at = match self.parent_value(&steps) {
            Value::Map(_) => None,
            Value::List(list) => Some(self.insertion(list.len(), last, path, depth)?),
            other => return Err(not_a_container(other, path, depth)),
        };
        match (self.parent_mut(&steps), at) {
            (Some(Value::Map(map)), None) => {
                map.insert(last.clone(), value);
            }
            (Some(Value::List(list)), Some(at)) => list.make_mut().insert(at, value),
            _ => unreachable!("the parent was looked at just now"),
        }
        Ok(())
    }

    /// Adds, making parents that are missing or null.
    fn add_with_parents(&mut self, path: &Pointer, value: Value) -> PatchResult<()> {
        let Some((last, parents)) = path.steps().split_last() else {
            return Err(JsonPatchProblem::WholeDocument);
        };
        // Taken out for the walk, which also needs the budgets in `self`. A failure may leave new parents in it, and the caller
        // then throws the document away.
        let mut document = std::mem::take(&mut self.document);
        let outcome = self.add_below(&mut document, path, parents, last, value);
        self.document = document;
        outcome
    }

    fn add_below(
        &mut self,
        mut place: &mut Value,
        path: &Pointer,
        parents: &[Key],
        last: &Key,
        value: Value,
    ) -> PatchResult<()> {
        let mut fresh = false;
        for (depth, step) in parents.iter().enumerate() {
            let following = parents.get(depth + 1).unwrap_or(last);
            let at = match &*place {
                Value::Map(map) => {
                    fresh = matches!(map.get(step), None | Some(Value::Null));
                    if fresh {
                        let made = self.new_parent(following, path, depth + 1)?;
                        place.as_map_mut().map(|map| map.insert(step.clone(), made));
                    }
                    SegmentRef::Key(step)
                }
                Value::List(list) => {
                    let spot = self.parent_element(list.len(), step, path, depth, fresh)?;
                    fresh = !matches!(spot, Spot::There(at) if !list[at].is_null());
                    if fresh {
                        let made = self.new_parent(following, path, depth + 1)?;
                        self.put_element(place, spot, made)?;
                    }
                    let (Spot::There(at) | Spot::New(at)) = spot;
                    SegmentRef::Index(at)
                }
                other => return Err(not_a_container(other, path, depth)),
            };
            place = place.get_path_mut([at]).expect("the step was made or found just now");
        }
        let depth = parents.len();
        match place {
            Value::Map(map) => {
                map.insert(last.clone(), value);
            }
            Value::List(list) => {
                let wanted = self.index(last).and_then(|index| usize::try_from(index).ok());
                if let Some(wanted) = wanted.filter(|_| fresh) {
                    self.pad(list.make_mut(), wanted)?;
                }
                let at = self.insertion(list.len(), last, path, depth)?;
                list.make_mut().insert(at, value);
            }
            other => return Err(not_a_container(other, path, depth)),
        }
        Ok(())
    }

    /// The position of a list element on the way down, which need not be there. `-` counts only in
    /// a list that this operation has made.
    fn parent_element(
        &self,
        length: usize,
        step: &str,
        path: &Pointer,
        depth: usize,
        fresh: bool,
    ) -> PatchResult<Spot> {
        if step == "-" && fresh {
            return Ok(Spot::New(length));
        }
        let index = self.signed_index(step, path, depth)?;
        match self.count_from_end(index, length) {
            Some(at) if at < length => Ok(Spot::There(at)),
            Some(at) => Ok(Spot::New(at)),
            // One before the first element is a new first element.
            None => self
                .count_from_end(index, length + 1)
                .map(Spot::New)
                .ok_or_else(|| no_such_element(length, step, path, depth)),
        }
    }

    /// Puts a new parent into a list.
    fn put_element(&mut self, list: &mut Value, spot: Spot, made: Value) -> PatchResult<()> {
        let Some(elements) = list.as_list_mut() else { return Ok(()) };
        match spot {
            Spot::There(at) => elements[at] = made,
            Spot::New(at) => {
                self.pad(elements, at)?;
                elements.insert(at, made);
            }
        }
        Ok(())
    }

    /// The list or map that a step needs as its parent.
    fn new_parent(&self, step: &str, path: &Pointer, depth: usize) -> PatchResult<Value> {
        match self.index(step) {
            Some(index) if index < -1 || (index < 0 && !self.rules.negative_indices) => {
                Err(no_such_element(0, step, path, depth))
            }
            Some(_) => Ok(Value::list()),
            None if step == "-" => Ok(Value::list()),
            None => Ok(Value::map()),
        }
    }

    fn pad(&mut self, list: &mut Vec<Value>, length: usize) -> PatchResult<()> {
        let more = length.saturating_sub(list.len());
        // Counted over all operations: `/a/999999` in each of a thousand would otherwise fill the memory.
        self.padded = self.padded.saturating_add(more);
        if self.padded > self.rules.max_padding {
            return Err(JsonPatchProblem::TooMuchPadding { limit: self.rules.max_padding });
        }
        list.resize(list.len() + more, Value::Null);
        Ok(())
    }

    fn replace(&mut self, path: &Pointer, value: &Value) -> PatchResult<()> {
        if path.steps().is_empty() {
            return self.replace_document(value, |allowed| allowed != WholeDocument::Nothing);
        }
        let (steps, last) = self.parent(path)?;
        let at = match self.step(self.parent_value(&steps), last, path, steps.len()) {
            Ok((at, _)) => at,
            Err(JsonPatchProblem::NoSuchKey { .. }) if self.rules.replace_adds_missing_members => {
                SegmentRef::Key(last)
            }
            Err(problem) => return Err(problem),
        };
        match (self.parent_mut(&steps), at) {
            (Some(Value::Map(map)), _) => {
                map.insert(last.clone(), value.clone());
            }
            (Some(Value::List(list)), SegmentRef::Index(at)) => {
                list.make_mut()[at] = value.clone();
            }
            _ => unreachable!("the parent was looked at just now"),
        }
        Ok(())
    }

    fn remove(&mut self, path: &Pointer) -> PatchResult<()> {
        if path.steps().is_empty() && self.rules.whole_document == WholeDocument::Any {
            self.document = Value::Null;
            return Ok(());
        }
        let ignored = self.rules.ignore_missing_removals;
        let (steps, last) = match self.parent(path) {
            Ok(place) => place,
            Err(_) if ignored => return Ok(()),
            Err(problem) => return Err(problem),
        };
        match self.take(&steps, last, path) {
            // What is not an index at all is a mistake rather than something missing.
            Err(problem) if ignored && !matches!(problem, JsonPatchProblem::NotAnIndex { .. }) => {
                Ok(())
            }
            outcome => outcome.map(|_| ()),
        }
    }

    fn take(&mut self, steps: &[SegmentRef<'_>], last: &Key, path: &Pointer) -> PatchResult<Value> {
        let (at, _) = self.step(self.parent_value(steps), last, path, steps.len())?;
        let all: Vec<SegmentRef<'_>> = steps.iter().copied().chain([at]).collect();
        Ok(self.document.remove(all).expect("the place was found just now"))
    }

    fn move_value(&mut self, from: &Pointer, path: &Pointer) -> PatchResult<()> {
        let whole = from.steps().is_empty() || path.steps().is_empty();
        if whole && self.rules.whole_document != WholeDocument::Any {
            return Err(JsonPatchProblem::WholeDocument);
        }
        let below =
            path.steps().len() > from.steps().len() && path.steps().starts_with(from.steps());
        if below && (self.rules.refuse_moves_below_themselves || from.steps().is_empty()) {
            return Err(JsonPatchProblem::MoveBelowItself);
        }
        if from.steps().is_empty() {
            return Ok(());
        }
        let (steps, last) = self.parent(from)?;
        let value = self.take(&steps, last, from)?;
        // Only a move to a deeper place can nest values too deep; others are not measured.
        if path.steps().len() > from.steps().len() {
            check_depth(path, &value, &mut self.moved)?;
        }
        if path.steps().is_empty() {
            self.document = value;
            return Ok(());
        }
        self.add(path, value)
    }

    fn copy(&mut self, from: &Pointer, path: &Pointer) -> PatchResult<()> {
        let rules = self.rules;
        let value = if from.steps().is_empty() {
            match rules.whole_document {
                WholeDocument::Any | WholeDocument::AddReplaceCopy => self.document.clone(),
                WholeDocument::Replace | WholeDocument::Nothing => {
                    return Err(JsonPatchProblem::WholeDocument);
                }
            }
        } else {
            let (steps, last) = self.parent(from)?;
            match self.step(self.parent_value(&steps), last, from, steps.len()) {
                Ok((_, value)) => value.clone(),
                Err(JsonPatchProblem::NoSuchKey { .. }) if rules.copy_missing_members_as_null => {
                    Value::Null
                }
                Err(problem) => return Err(problem),
            }
        };
        check_depth(path, &value, &mut self.copied).map_err(|problem| match self.copied {
            0 => JsonPatchProblem::TooMuchCopied { limit: rules.max_copied_bytes },
            _ => problem,
        })?;
        if path.steps().is_empty() {
            return self.replace_document(&value, |allowed| allowed == WholeDocument::Any);
        }
        self.add(path, value)
    }

    fn test(&self, path: &Pointer, wanted: &Value) -> PatchResult<()> {
        let found = if path.steps().is_empty() {
            Some(&self.document)
        } else {
            let (steps, last) = self.parent(path)?;
            match self.step(self.parent_value(&steps), last, path, steps.len()) {
                Ok((_, found)) => Some(found),
                Err(JsonPatchProblem::NoSuchKey { .. })
                    if self.rules.test_missing_members_as_null =>
                {
                    None
                }
                Err(problem) => return Err(problem),
            }
        };
        if self.equal(found.unwrap_or(&Value::Null), wanted) {
            return Ok(());
        }
        Err(JsonPatchProblem::TestFailed { wanted: wanted.clone(), found: found.cloned() })
    }

    fn equal(&self, found: &Value, wanted: &Value) -> bool {
        match (found, wanted) {
            (Value::Number(found), Value::Number(wanted)) => self.equal_numbers(*found, *wanted),
            (Value::List(found), Value::List(wanted)) => {
                found.len() == wanted.len()
                    && found.iter().zip(wanted).all(|(found, wanted)| self.equal(found, wanted))
            }
            (Value::Map(found), Value::Map(wanted)) => {
                found.len() == wanted.len()
                    && wanted.iter().all(|(key, wanted)| {
                        found.get(key).is_some_and(|found| self.equal(found, wanted))
                    })
            }
            (found, wanted) => found == wanted,
        }
    }

    fn equal_numbers(&self, found: Number, wanted: Number) -> bool {
        if !self.rules.numbers_differ_by_form {
            return found.compare(wanted) == Some(std::cmp::Ordering::Equal);
        }
        // The document was written by Go, which gives an integral float no fraction.
        found == wanted || (wanted.is_integer() && found.to_string() == wanted.to_string())
    }
}

/// Refuses what would nest deeper than any reader allows, or is larger than the budget.
fn check_depth(path: &Pointer, value: &Value, budget: &mut usize) -> PatchResult<()> {
    let room = MAX_DEPTH.checked_sub(path.steps().len());
    match (measure(value, budget), room) {
        (Some(depth), Some(room)) if depth <= room => Ok(()),
        _ => Err(JsonPatchProblem::TooDeep),
    }
}

fn no_such_key(map: &Map, key: &Key, path: &Pointer, depth: usize) -> JsonPatchProblem {
    /// Enough to recognise the map by.
    const SHOWN: usize = 6;
    let mut known: Vec<String> = map.keys().take(SHOWN).map(ToString::to_string).collect();
    if map.len() > SHOWN {
        known.push(format!("{} more", map.len() - SHOWN));
    }
    JsonPatchProblem::NoSuchKey { map: path.prefix(depth), key: key.to_string(), known }
}

fn no_such_element(length: usize, step: &str, path: &Pointer, depth: usize) -> JsonPatchProblem {
    JsonPatchProblem::NoSuchElement { list: path.prefix(depth), index: step.to_owned(), length }
}

fn not_a_container(value: &Value, path: &Pointer, depth: usize) -> JsonPatchProblem {
    JsonPatchProblem::NotAContainer { at: path.prefix(depth), found: value.type_name() }
}
