//! What the output of a template looks like before there is any data.

use crate::Template;
use crate::tree::{Command, Pipe, TemplateNode, Term, TermKind, Trees};

/// How many templates may stand in each other in a sketch.
const DEPTH: usize = 20;

/// An action whose output stands in a sketch.
#[derive(Clone, Debug)]
pub struct Action {
    /// As it is written, without its braces.
    pub text: String,
    /// The functions that it calls.
    pub functions: Vec<&'static str>,
}

impl Template {
    /// One way the output can look: every condition holds, every list has one element, and in the place of each action
    /// stands what `shown` says.
    pub fn sketch(&self, shown: &mut dyn FnMut(&Action) -> String) -> String {
        let mut sketch = Sketch { trees: &self.0.trees, out: String::new(), shown };
        if let Some(root) = self.0.trees.named.get(self.0.trees.files[0].name.as_str()) {
            sketch.list(&root.list, 0);
        }
        sketch.out
    }
}

struct Sketch<'s> {
    trees: &'s Trees,
    out: String,
    shown: &'s mut dyn FnMut(&Action) -> String,
}

impl Sketch<'_> {
    fn list(&mut self, list: &[TemplateNode], depth: usize) {
        for node in list {
            match node {
                TemplateNode::Text(text) => self.out.push_str(text),
                TemplateNode::Action(_, pipe) if pipe.variables.is_empty() => {
                    let mut functions = Vec::new();
                    called_by(pipe, &mut functions);
                    let action = Action { text: pipe.to_string(), functions };
                    let shown = (self.shown)(&action);
                    self.out.push_str(&shown);
                }
                TemplateNode::Action(..) | TemplateNode::Break | TemplateNode::Continue => {}
                TemplateNode::If(branch)
                | TemplateNode::With(branch)
                | TemplateNode::Range(branch) => {
                    self.list(&branch.list, depth);
                }
                TemplateNode::Template(_, name, _) => {
                    let trees = self.trees;
                    if let Some(found) = trees.named.get(name.as_str()).filter(|_| depth < DEPTH) {
                        self.list(&found.list, depth + 1);
                    }
                }
            }
        }
    }
}

fn called_by(pipe: &Pipe, functions: &mut Vec<&'static str>) {
    for Command { terms, .. } in &pipe.commands {
        terms.iter().for_each(|term| called_in(term, functions));
    }
}

fn called_in(term: &Term, functions: &mut Vec<&'static str>) {
    match &term.kind {
        TermKind::Function(function) => functions.push(function.name()),
        TermKind::Chain(inner, _) => called_in(inner, functions),
        TermKind::Pipe(pipe) => called_by(pipe, functions),
        _ => {}
    }
}
