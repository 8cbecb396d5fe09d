//! Where resources are not as rules want them: the place in their files, and in the rules.

use std::cell::RefCell;
use std::collections::HashMap;

use kiln_diagnostic::SourceLocation;
use kiln_engine::{RuleSet, ValidationFault};
use kiln_object::list;
use kiln_offline::RuleResult;
use kiln_rules::PolicyId;
use kiln_value::{Map, Path, Value};
use kiln_yaml::{Document, Places};

/// Where resources and rules were written.
pub struct Written<'w> {
    rules: &'w RuleSet,
    documents: Vec<Document>,
    /// For each resource, the number of its document and where it is there.
    resources: Vec<(usize, Path)>,
    /// Documents are read again for their places, each once.
    places: RefCell<HashMap<usize, Places>>,
    of_policies: RefCell<HashMap<PolicyId, Places>>,
}

impl<'w> Written<'w> {
    /// The documents of the resources, in order, and those of data and requests.
    pub fn new(rules: &'w RuleSet, documents: &[Document], payloads: Vec<Document>) -> Self {
        let resources = documents.iter().enumerate().flat_map(|(number, document)| {
            let places = list::places(document.value()).into_iter();
            places.map(move |path| (number, path))
        });
        let of_payloads = documents.len()..documents.len() + payloads.len();
        let of_payloads = of_payloads.map(|number| (number, Path::root()));
        Written {
            rules,
            resources: resources.chain(of_payloads).collect(),
            documents: documents.iter().cloned().chain(payloads).collect(),
            places: RefCell::default(),
            of_policies: RefCell::default(),
        }
    }

    pub fn rules(&self) -> &'w RuleSet {
        self.rules
    }

    /// Where a resource begins in its file; none for what rules made.
    pub fn resource(&self, result: &RuleResult) -> Option<SourceLocation> {
        self.place_in(result.number?, &Path::root())
    }

    /// Where a rule was written.
    pub fn rule(&self, result: &RuleResult) -> Option<SourceLocation> {
        self.place_in_rule(result, self.rules.rule(&result.rule)?.origin.path())
    }

    /// What is wrong with a resource, each with its places.
    pub fn faults<'r>(&self, result: &'r RuleResult) -> Vec<Located<'r>> {
        let violation = result.violation.as_ref();
        let faults = violation.into_iter().flat_map(|violation| &violation.faults);
        faults
            .map(|fault| Located {
                fault,
                place: result.number.and_then(|number| self.in_resource(number, fault)),
                wanted: self.in_rule(result, fault),
            })
            .collect()
    }

    fn in_resource(&self, number: usize, fault: &ValidationFault) -> Option<SourceLocation> {
        self.place_in(number, fault.at.as_ref()?)
    }

    fn place_in(&self, number: usize, at: &Path) -> Option<SourceLocation> {
        let (document, base) = self.resources.get(number)?;
        let text = self.documents.get(*document)?;
        let steps = base.segments().iter().chain(at.segments());
        let path: Path = steps.cloned().collect();
        let mut known = self.places.borrow_mut();
        Some(known.entry(*document).or_insert_with(|| text.places()).value(&path))
    }

    fn in_rule(&self, result: &RuleResult, fault: &ValidationFault) -> Option<SourceLocation> {
        self.place_in_rule(result, fault.wanted.as_ref()?)
    }

    fn place_in_rule(&self, result: &RuleResult, path: &Path) -> Option<SourceLocation> {
        let mut known = self.of_policies.borrow_mut();
        let policy = &result.rule.policy;
        if !known.contains_key(policy) {
            let origin = &self.rules.rule(&result.rule)?.origin;
            known.insert(policy.clone(), origin.document().places());
        }
        Some(known.get(policy)?.value(path))
    }
}

/// Something that is wrong with a resource, and where.
pub struct Located<'f> {
    pub fault: &'f ValidationFault,
    /// Where in the file of the resource; where it is missing, the last thing on the way.
    pub place: Option<SourceLocation>,
    /// Where the rule asks for something else.
    pub wanted: Option<SourceLocation>,
}

impl Located<'_> {
    /// In one line: `pod.yaml:8:5: spec.hostNetwork: true does not match false (policy.yaml:16:28)`.
    pub fn line(&self) -> String {
        let mut line = String::new();
        if let Some(place) = &self.place {
            line.push_str(&format!("{place}: "));
        }
        line.push_str(&self.said());
        if let Some(wanted) = &self.wanted {
            line.push_str(&format!(" ({wanted})"));
        }
        line
    }

    /// Without places: `spec.hostNetwork: true does not match false`.
    pub fn said(&self) -> String {
        match self.fault.at.as_ref().filter(|at| !at.is_root()) {
            Some(at) => format!("{at}: {}", self.fault.why),
            None => self.fault.why.clone(),
        }
    }

    pub fn as_value(&self) -> Value {
        let mut fields = Map::new();
        if let Some(at) = &self.fault.at {
            fields.insert("path", at.to_string());
            fields.insert("pointer", at.to_pointer());
        }
        fields.insert("why", self.fault.why.clone());
        if let Some(place) = &self.place {
            fields.insert("place", place_as_value(place));
        }
        if let Some(wanted) = &self.wanted {
            fields.insert("wanted", place_as_value(wanted));
        }
        Value::from(fields)
    }
}

pub(crate) fn place_as_value(place: &SourceLocation) -> Value {
    let position = place.position();
    Value::from(Map::from_iter([
        ("file", Value::from(place.source().name())),
        ("line", Value::from(position.line as u64)),
        ("column", Value::from(position.column as u64)),
    ]))
}
