//! What a rule does once it fires.
//!
//! A generate program is a list of blocks; a block runs once, or once per element of a list; each run
//! emits objects. All written forms (one target, `cloneList`, `dataList`, `foreach`) come down to this.

use kiln_object::Gvk;
use kiln_value::{Path, Str};
use kiln_variables::{Conditions, Template};

use crate::context::{ContextEntry, QueryText};
use crate::delete::Delete;
use crate::document::DocumentPart;
use crate::modify::Modify;
use crate::mutate::Mutate;
use crate::script::Expression;
use crate::validate::Validate;

/// What a rule does.
#[derive(Clone, Debug)]
pub enum Program {
    /// Makes objects.
    Generate(Generate),
    /// Changes objects.
    Mutate(Mutate),
    /// Patches or refuses objects that paths describe.
    Modify(Box<Modify>),
    /// Checks objects.
    Validate(Box<Validate>),
    /// Deletes objects, when their time has come.
    Delete(Box<Delete>),
}

impl Program {
    /// Whether it changes objects.
    pub fn is_mutate(&self) -> bool {
        matches!(self, Program::Mutate(_))
    }

    /// The word that users write for it.
    pub fn word(&self) -> &'static str {
        match self {
            Program::Generate(_) => "generate",
            Program::Mutate(_) => "mutate",
            Program::Modify(modify) if modify.changes_trigger() => "patch",
            Program::Modify(_) => "reject",
            Program::Validate(_) => "validate",
            // The word of Kyverno's kinds, metrics and accounts.
            Program::Delete(_) => "cleanup",
        }
    }

    /// Whether it changes the object of the event, before that is stored.
    pub fn changes_trigger(&self) -> bool {
        match self {
            Program::Generate(_) | Program::Validate(_) | Program::Delete(_) => false,
            Program::Mutate(mutate) => mutate.changes_trigger(),
            Program::Modify(modify) => modify.changes_trigger(),
        }
    }

    /// Whether all there is to it happens before the object of the event is stored.
    pub fn acts_at_admission(&self) -> bool {
        self.changes_trigger() || matches!(self, Program::Modify(_) | Program::Validate(_))
    }

    /// Whether a clock makes it run, and nothing that happens to an object.
    pub fn is_scheduled(&self) -> bool {
        matches!(self, Program::Delete(_))
    }

    /// Programs of lower tiers come first; those without tiers are in the middle.
    pub fn tier(&self) -> i16 {
        match self {
            Program::Modify(modify) => modify.tier,
            Program::Generate(_)
            | Program::Mutate(_)
            | Program::Validate(_)
            | Program::Delete(_) => 0,
        }
    }
}

/// Makes objects.
#[derive(Clone, Debug)]
pub struct Generate {
    /// Run one after the other.
    pub blocks: Vec<Block>,
    /// When a block fails, those after it do not run. Otherwise they do.
    pub stop_at_failure: bool,
}

impl Generate {
    /// Every emitter, with the numbers of its block and of itself in it.
    pub fn emitters(&self) -> impl Iterator<Item = (usize, usize, &Emitter)> {
        self.blocks.iter().enumerate().flat_map(|(block, b)| {
            b.emitters.iter().enumerate().map(move |(emitter, e)| (block, emitter, e))
        })
    }

    /// Whether every object is a copy of a source.
    pub fn only_copies(&self) -> bool {
        self.emitters().all(|(_, _, emitter)| {
            matches!(emitter.emission, Emission::Clone { .. } | Emission::CloneSelect(_))
        })
    }
}

impl Emitter {
    /// The kinds that it makes, as far as they are known before it runs.
    pub fn target_kinds(&self) -> Vec<Gvk> {
        match &self.emission {
            Emission::Data { target, .. } | Emission::Clone { target, .. } => {
                kind(&target.api_version, &target.kind).into_iter().collect()
            }
            Emission::CloneSelect(select) => select.plain_kinds().collect(),
            Emission::FromExpression { named, .. } => named.clone(),
            Emission::Documents(documents) => {
                let text = |part: &DocumentPart, key: &str| {
                    part.plain([key]).and_then(|value| value.as_str().map(str::to_owned))
                };
                let kind = |part: &DocumentPart| {
                    Some(Gvk::new(&text(part, "apiVersion")?, &text(part, "kind")?))
                };
                documents.iter().filter_map(kind).collect()
            }
        }
    }

    /// The kinds that it copies from, as far as they are known before it runs.
    pub fn source_kinds(&self) -> Vec<Gvk> {
        match &self.emission {
            Emission::Data { .. } | Emission::FromExpression { .. } | Emission::Documents(_) => {
                Vec::new()
            }
            Emission::Clone { source, .. } => {
                kind(&source.api_version, &source.kind).into_iter().collect()
            }
            Emission::CloneSelect(select) => select.plain_kinds().collect(),
        }
    }
}

/// A kind without variables in it, and without its subresource.
fn kind(api_version: &Template, kind: &Template) -> Option<Gvk> {
    let plain = |template: &Template| {
        template.is_plain().then(|| template.document().as_str().map(str::to_owned)).flatten()
    };
    let (api_version, kind) = (plain(api_version)?, plain(kind)?);
    Some(Gvk::new(&api_version, kind.split('/').next().unwrap_or(&kind)))
}

/// Emitters that run together.
#[derive(Clone, Debug)]
pub struct Block {
    /// The list to run for, if there is one.
    pub foreach: Option<ForEach>,
    /// What each run makes.
    pub emitters: Vec<Emitter>,
}

/// A list to run for. `element` and `elementIndex` are set for each run.
#[derive(Clone, Debug)]
pub struct ForEach {
    /// The list. What is not a list counts as its only element; null elements are skipped.
    pub list: QueryText,
    /// Named values of each run.
    pub context: Vec<ContextEntry>,
    /// Whether to run for an element.
    pub guard: Option<Conditions>,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// Makes one object, or one for each source it finds.
#[derive(Clone, Debug)]
pub struct Emitter {
    /// What it makes.
    pub emission: Emission,
    /// The name that its author gave it.
    pub name: Option<Str>,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// What an emitter makes.
#[derive(Clone, Debug)]
pub enum Emission {
    /// An object with this content.
    Data {
        /// What it is called.
        target: Box<Target>,
        /// The object below its envelope; nothing but the envelope when left out.
        body: Option<Template>,
    },
    /// A copy of an object.
    Clone {
        /// What to copy.
        source: Box<Source>,
        /// What the copy is called.
        target: Box<Target>,
    },
    /// A copy of each object that is found.
    CloneSelect(Box<CloneSelect>),
    /// Whatever an expression asks for while it runs.
    FromExpression {
        expression: Expression,
        /// The kinds that it, or a value it may use, names.
        named: Vec<Gvk>,
    },
    /// Documents to fill in, each an object.
    Documents(Vec<DocumentPart>),
}

/// What a made object is called.
#[derive(Clone, Debug)]
pub struct Target {
    /// `apiVersion`.
    pub api_version: Template,
    /// `kind`, perhaps with a subresource behind a slash.
    pub kind: Template,
    pub name: Template,
    pub namespace: TargetNamespace,
}

/// The namespace of a made object.
#[derive(Clone, Debug)]
pub enum TargetNamespace {
    /// None was written: the object is cluster-scoped.
    None,
    /// The namespace that the rule names.
    Written(Template),
    /// That of the trigger; for a Namespace, its name.
    OfTrigger,
}

/// What to copy.
#[derive(Clone, Debug)]
pub struct Source {
    /// `apiVersion`.
    pub api_version: Template,
    pub kind: Template,
    pub name: Template,
    /// The namespace; none for a cluster-scoped source.
    pub namespace: Option<Template>,
}

/// Copies of all objects of some kinds, each under its own name.
#[derive(Clone, Debug)]
pub struct CloneSelect {
    /// Each as `version/Kind` or `group/version/Kind`.
    pub kinds: Vec<Template>,
    /// Where the sources are; none for cluster-scoped ones.
    pub namespace: Option<Template>,
    /// Which of them: a label selector to fill in.
    pub selector: Option<Template>,
    /// Where the copies go; none for cluster-scoped ones.
    pub target_namespace: Option<Template>,
}

impl CloneSelect {
    /// The kinds that are known before anything runs.
    pub fn plain_kinds(&self) -> impl Iterator<Item = Gvk> {
        self.kinds
            .iter()
            .filter(|kind| kind.is_plain())
            .filter_map(|kind| Gvk::parse(kind.document().as_str()?))
    }
}
