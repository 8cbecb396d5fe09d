//! Random lives of a cluster with a user's own rules, in a world: what people and controllers do to objects, and whether the
//! rules stand it.
//!
//! ```text
//! rules, resources ─▶ candidates (objects that rules match) ─▶ stories ─▶ play in a world ─▶ findings
//!                                                                 ▲                            │
//!                                                                 └──────── minimised ◀────────┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | here | [`Storm`]: stories until the host wants no more |
//! | `candidates` | objects that the rules match, made from their kinds and constants |
//! | `story` | what happens in a story, as data: played, shown, stored, exported as a Chainsaw test |
//! | `play` | a story in a world, and what was seen of it |
//! | `finding` | what can be wrong, and how it is found in what was seen |
//! | `contradictions` | rules that no object can match |
//!
//! Pure: the host reads files, and says when to stop.

mod candidates;
mod contradictions;
mod finding;
mod play;
mod story;

use std::collections::BTreeSet;

use kiln_dialects::{Compiled, PolicyHost, compile_for};
use kiln_value::Value;
use kiln_world::{Chance, NotInstalled, WorldImage};
use kiln_yaml::Document;

use candidates::Candidates;
pub use finding::{Finding, FindingKind};
pub use story::{Action, BadStory, Story};

/// The most stories of one storm: budgets are counted, the clock of the host only ends a storm sooner.
const MOST_STORIES: u64 = 400;
/// How often a story is played at most to make it shorter.
const MOST_SHORTENINGS: usize = 40;

/// What a storm is about.
#[derive(Clone, Debug)]
pub struct StormInput {
    /// Policies and ModRules.
    pub policies: Vec<Document>,
    /// Objects of the user: triggers, sources, definitions.
    pub resources: Vec<Value>,
    pub seed: u64,
}

/// What came of a storm.
#[derive(Clone, Debug, Default)]
pub struct StormReport {
    /// What is wrong with the rules, each once, with the shortest story that shows it.
    pub findings: Vec<Finding>,
    /// How many stories were played.
    pub stories: u64,
    /// How many actions they had.
    pub actions: u64,
}

/// Why there is no storm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StormError {
    /// The cluster refuses something.
    Refused(String),
    /// There is nothing to play with.
    NoRules,
}

impl std::fmt::Display for StormError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StormError::Refused(why) => f.write_str(why),
            StormError::NoRules => f.write_str("there is no policy or ModRule among the rules"),
        }
    }
}

impl std::error::Error for StormError {}

impl From<NotInstalled> for StormError {
    fn from(refused: NotInstalled) -> Self {
        StormError::Refused(refused.message)
    }
}

fn is_definition(object: &&Value) -> bool {
    object.str_at(["kind"]) == Some("CustomResourceDefinition")
}

/// Rules, and a cluster to try them on.
#[derive(Debug)]
pub struct Storm {
    image: WorldImage,
    policies: Vec<Value>,
    compiled: Compiled,
    candidates: Candidates,
    seed: u64,
}

impl Storm {
    /// Puts rules on a cluster.
    ///
    /// # Errors
    /// When there are none, or the cluster refuses one.
    pub fn new(input: &StormInput) -> Result<Self, StormError> {
        let definitions: Vec<Value> =
            input.resources.iter().filter(is_definition).cloned().collect();
        Storm::on(&WorldImage::with_engine(&definitions, Some("*"))?, input)
    }

    /// Puts rules on a cluster that has the definitions already.
    ///
    /// # Errors
    /// When there are none, or the cluster refuses one.
    pub fn on(image: &WorldImage, input: &StormInput) -> Result<Self, StormError> {
        let image = image.clone();
        let bare = kiln_world::World::new(&kiln_world::WorldOptions::default(), &image);
        let kinds = bare.kinds();
        let compiled = compile_for(PolicyHost::Cluster, &input.policies, &kinds);
        if compiled.policies.is_empty() {
            return Err(StormError::NoRules);
        }
        let policies: Vec<Value> =
            input.policies.iter().map(|document| document.value().clone()).collect();
        let given: Vec<Value> =
            input.resources.iter().filter(|object| !is_definition(object)).cloned().collect();
        let candidates = Candidates::of(&compiled.policies, &policies, given, &kinds);
        let storm = Storm { image, policies, compiled, candidates, seed: input.seed };
        play::check_policies(&storm.image, &storm.policies).map_err(StormError::Refused)?;
        Ok(storm)
    }

    /// Plays stories until the host, who sees what was found so far, wants no more, or enough were played.
    pub fn run(&self, mut goes_on: impl FnMut(&StormReport) -> bool) -> StormReport {
        let mut report = StormReport::default();
        let mut known: BTreeSet<(FindingKind, String)> = BTreeSet::new();
        for finding in contradictions::find(&self.compiled.policies) {
            known.insert(finding.key());
            report.findings.push(finding);
        }
        let mut chance = Chance::new(self.seed);
        while report.stories < MOST_STORIES && goes_on(&report) {
            let story = self.candidates.story(report.stories, &mut chance);
            report.stories += 1;
            report.actions += u64::try_from(story.actions.len()).unwrap_or(0);
            for finding in self.seen_in(&story) {
                if known.insert(finding.key()) {
                    // The host knows of it before it is short: that takes longer than finding it.
                    report.findings.push(finding.clone());
                    let shortest = self.shortened(finding, || goes_on(&report));
                    report.findings.pop();
                    report.findings.push(shortest);
                }
            }
        }
        report.findings.sort_by_key(Finding::key);
        report
    }

    /// What one story shows, and what no story is needed for.
    pub fn play(&self, story: &Story) -> Vec<Finding> {
        let mut found = contradictions::find(&self.compiled.policies);
        found.extend(self.seen_in(story));
        found
    }

    fn seen_in(&self, story: &Story) -> Vec<Finding> {
        let seen = play::play(&self.image, &self.policies, story);
        finding::find(&self.image, &self.policies, &self.compiled.policies, story, &seen)
    }

    /// The same finding, with a story from which nothing can be left out.
    fn shortened(&self, mut finding: Finding, mut goes_on: impl FnMut() -> bool) -> Finding {
        let mut plays = 0;
        let mut at = 0;
        while at < finding.story.actions.len() && plays < MOST_SHORTENINGS && goes_on() {
            let mut shorter = finding.story.clone();
            shorter.actions.remove(at);
            plays += 1;
            let key = finding.key();
            match self.seen_in(&shorter).into_iter().find(|other| other.key() == key) {
                Some(shown) => finding = shown,
                None => at += 1,
            }
        }
        finding
    }
}
