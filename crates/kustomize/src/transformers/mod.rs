//! The steps that change objects: one file each.

use crate::build::session::Session;
use crate::error::Result;
use crate::model::resources::Resources;

pub(crate) mod images;
pub(crate) mod json_patch;
pub(crate) mod labels;
pub(crate) mod namespace;
pub(crate) mod patches;
pub(crate) mod prefix_suffix;
pub(crate) mod replacements;
pub(crate) mod replicas;
pub(crate) mod sort;
pub(crate) mod value_add;

/// A step, configured and ready.
pub(crate) trait Transform {
    /// The name of the built-in transformer, or the kind of the plugin.
    fn kind(&self) -> &str;

    /// How many steps of kustomize this one is.
    fn repeats(&self) -> usize {
        1
    }

    /// Changes the objects.
    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()>;

    /// Changes the virtual resources that this step means, if it is a patch and means any.
    fn patch_virtual(&self, _: &mut Resources, _: &Session<'_>) -> Result<()> {
        Ok(())
    }
}
