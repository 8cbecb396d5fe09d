//! Image references, and the metadata of images in their registries.

use std::any::Any;
use std::sync::Arc;

use kiln_text::image::Reference;

use super::host_failure;
use crate::error::{Failure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::value::Opaque;
use crate::{Type, Val};

impl Opaque for Reference {
    fn type_name(&self) -> &'static str {
        "kyverno.Image"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Reference>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        let separator = if self.digest().is_empty() { ':' } else { '@' };
        Some(format!("{}/{}{separator}{}", self.registry(), self.repository(), self.identifier()))
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque("kyverno.Image"));
    registry.add(
        |context, args| Ok(Arc::new(parse(context, args)?).into()),
        &["image(string): kyverno.Image", "parseImageReference(string): kyverno.Image"],
    );
    registry.add(
        |context, args| match &args[0] {
            Val::String(_) => Ok(Val::Bool(parse(context, args).is_ok())),
            _ => Err(no_such_overload()),
        },
        &["isImage(string): bool"],
    );
    registry.add(
        |_, args| Ok(Val::string(reference(args)?.registry())),
        &["(kyverno.Image).registry(): string"],
    );
    registry.add(
        |_, args| Ok(Val::string(reference(args)?.repository())),
        &["(kyverno.Image).repository(): string"],
    );
    registry.add(
        |_, args| Ok(Val::string(reference(args)?.identifier())),
        &["(kyverno.Image).identifier(): string"],
    );
    registry
        .add(|_, args| Ok(Val::string(reference(args)?.tag())), &["(kyverno.Image).tag(): string"]);
    registry.add(
        |_, args| Ok(Val::string(reference(args)?.digest())),
        &["(kyverno.Image).digest(): string"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(!reference(args)?.digest().is_empty())),
        &["(kyverno.Image).containsDigest(): bool"],
    );
    registry.add(
        metadata,
        &[
            "(kyverno.ImageData).GetMetadata(string): dyn",
            "(kyverno.ImageData).getMetadata(string): dyn",
        ],
    );
}

fn parse(context: &mut Context<'_>, args: &[Val]) -> Result<Reference, Failure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Reference::parse(text).map_err(|error| failure(error.to_string()))
}

fn reference(args: &[Val]) -> Result<&Reference, Failure> {
    args[0].as_opaque::<Reference>().ok_or_else(no_such_overload)
}

fn metadata(context: &mut Context<'_>, args: &[Val]) -> Result<Val, Failure> {
    context.meter.charge(10_000)?;
    let [_, Val::String(image)] = args else { return Err(no_such_overload()) };
    let found = context.host.image_metadata(image);
    Ok(Val::from(found.map_err(|error| host_failure("get image data", &error))?))
}
