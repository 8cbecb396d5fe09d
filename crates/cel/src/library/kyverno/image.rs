//! Image references, and the metadata of images in their registries.

use std::any::Any;
use std::sync::Arc;

use kiln_text::image::Reference;
use kiln_value::Str;

use super::host_failure;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::value::Opaque;
use crate::{Type, Val};

/// An image as an expression wrote it.
#[derive(Debug)]
struct Image {
    text: Str,
    reference: Reference,
}

impl Image {
    fn parse(text: &Str) -> Result<Self, EvalFailure> {
        let reference = Reference::parse(text).map_err(|error| failure(error.to_string()))?;
        let whole = reference.repository();
        let own = whole.strip_prefix("library/").filter(|_| !text.contains("library/"));
        let digest = reference.digest();
        let problem = if own.unwrap_or(whole).len() < 2 {
            "the repository has fewer than two characters"
        } else if !digest.is_empty() && !digest.starts_with("sha256:") {
            "the digest is not one of sha256"
        } else {
            return Ok(Image { text: text.clone(), reference });
        };
        Err(failure(format!("could not parse reference: {text}: {problem}")))
    }

    /// The tag, also where a digest follows it.
    fn tag(&self) -> &str {
        let Some((before, _)) = self.text.split_once('@') else { return self.reference.tag() };
        let name = before.rsplit_once('/').map_or(before, |(_, name)| name);
        name.split_once(':').map_or("", |(_, tag)| tag)
    }

    fn identifier(&self) -> String {
        match (self.tag(), self.reference.digest()) {
            (tag, "") => tag.to_owned(),
            ("", digest) => digest.to_owned(),
            (tag, digest) => format!("{tag}@{digest}"),
        }
    }

    /// With its separator; a digest counts more than a tag.
    fn separated(&self) -> String {
        match self.reference.digest() {
            "" => format!(":{}", self.tag()),
            digest => format!("@{digest}"),
        }
    }
}

impl Opaque for Image {
    fn type_name(&self) -> &'static str {
        "kyverno.Image"
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        // Kyverno: what is written differently is not equal, though it names the same image.
        other.as_any().downcast_ref::<Image>().is_some_and(|other| other.text == self.text)
    }
    fn to_text(&self) -> Option<String> {
        let Image { reference, .. } = self;
        Some(format!("{}/{}{}", reference.registry(), reference.repository(), self.separated()))
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
        |_, args| Ok(Val::string(image(args)?.reference.registry())),
        &["(kyverno.Image).registry(): string"],
    );
    registry.add(
        |_, args| Ok(Val::string(image(args)?.reference.repository())),
        &["(kyverno.Image).repository(): string"],
    );
    registry.add(
        |_, args| Ok(Val::from(image(args)?.identifier())),
        &["(kyverno.Image).identifier(): string"],
    );
    registry.add(
        |_, args| Ok(Val::from(image(args)?.separated())),
        &["(kyverno.Image).identifierWithSeparator(): string"],
    );
    registry.add(|_, args| Ok(Val::string(image(args)?.tag())), &["(kyverno.Image).tag(): string"]);
    registry.add(
        |_, args| Ok(Val::string(image(args)?.reference.digest())),
        &["(kyverno.Image).digest(): string"],
    );
    registry.add(
        |_, args| Ok(Val::Bool(!image(args)?.reference.digest().is_empty())),
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

fn parse(context: &mut Context<'_>, args: &[Val]) -> Result<Image, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Image::parse(text)
}

fn image(args: &[Val]) -> Result<&Image, EvalFailure> {
    args[0].as_opaque::<Image>().ok_or_else(no_such_overload)
}

fn metadata(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    context.meter.charge(10_000)?;
    let [_, Val::String(image)] = args else { return Err(no_such_overload()) };
    let found = context.host.image_metadata(image);
    Ok(Val::from(found.map_err(|error| host_failure("get image data", &error))?))
}
