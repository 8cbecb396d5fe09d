//! Which file, generator, patch and transformer touched an object.

/// One step that made or changed an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The id the object had after the step.
    pub id: String,
    /// The id it had at first, which all touches of an object share.
    pub original: String,
    /// Its kind after the step.
    pub kind: String,
    /// Its name after the step.
    pub name: String,
    /// What happened to it.
    pub what: What,
    /// The file or kustomization that caused it.
    pub file: String,
    /// The generator, transformer or plugin, as kustomize names it.
    pub by: String,
}

/// What a step did to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// It was read from a file.
    Read,
    /// A generator made it.
    Generated,
    /// A transformer changed it.
    Changed,
    /// A transformer deleted it.
    Deleted,
    /// It was renamed because of its content's hash.
    Hashed,
    /// Names of other objects in it were brought up to date.
    References,
    /// Vars in it were replaced.
    Vars,
}
