//! Texts that share their named templates, as the files of a chart do.

use std::fmt;

use kiln_value::Str;

use crate::error::{Error, ErrorKind};
use crate::exec::{self, Means};
use crate::helm::{Data, Lookup};
use crate::meter::{Meter, TemplateLimits};
use crate::tree::Trees;
use crate::{AmbientSources, NO_VALUE, TemplateOptions, parse};

/// Several texts, parsed into one set of named templates. A later definition of a name replaces an earlier one.
pub struct TemplateSet {
    options: TemplateOptions,
    limits: TemplateLimits,
    trees: Trees,
    bytes: usize,
}

impl TemplateSet {
    /// An empty set. All texts together may be as long as `limits.source`.
    pub fn new(options: &TemplateOptions, limits: &TemplateLimits) -> Self {
        TemplateSet { options: *options, limits: *limits, trees: Trees::default(), bytes: 0 }
    }

    /// Parses one more text, which becomes a template of this name.
    ///
    /// # Errors
    /// When the text is not a template, or the set grows too large.
    pub fn add(&mut self, name: &str, text: &str) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(text.len());
        if self.bytes > self.limits.source {
            let limit = self.limits.source;
            let message = format!("the templates are longer than {limit} bytes together");
            return Err(Error::new(ErrorKind::Limit, 0..0, message).in_file(&Str::new(name)));
        }
        let definitions = parse::parse(name, text, self.options.functions, &self.limits)?;
        self.trees.add(name, text, definitions);
        Ok(())
    }

    /// The text that was added under a name, for messages.
    pub fn text(&self, name: &str) -> Option<&str> {
        let files = self.trees.files.iter();
        files.rev().find(|file| file.name == name).map(|file| file.text.as_str())
    }

    /// Begins to render: all renderings together stay within the budget.
    pub fn renderer<'s>(
        &'s self,
        sources: &'s dyn AmbientSources,
        lookup: &'s dyn Lookup,
    ) -> SetRenderer<'s> {
        SetRenderer { set: self, sources, lookup, meter: Meter::new(&self.limits) }
    }
}

impl fmt::Debug for TemplateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.trees.files.iter().map(|file| file.name.as_str());
        f.debug_list().entries(files).finish()
    }
}

/// Renders the templates of a set one after the other. Data that a template changes with `set` or `merge` stays changed
/// for those that come later, as in Helm.
pub struct SetRenderer<'s> {
    set: &'s TemplateSet,
    sources: &'s dyn AmbientSources,
    lookup: &'s dyn Lookup,
    meter: Meter,
}

impl SetRenderer<'_> {
    /// Renders one template. What has no value leaves nothing.
    ///
    /// # Errors
    /// When an access or a function fails, or the budget is used up.
    pub fn render(&self, name: &str, data: &Data) -> Result<String, Error> {
        let means = Means {
            meter: &self.meter,
            sources: self.sources,
            lookup: self.lookup,
            limits: &self.set.limits,
        };
        let written = exec::run(&self.set.trees, name, &self.set.options, means, data.0.clone())?;
        Ok(match written.text.contains(NO_VALUE) {
            true => written.text.replace(NO_VALUE, ""),
            false => written.text,
        })
    }
}

impl fmt::Debug for SetRenderer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.set.fmt(f)
    }
}
