//! Labels, patches, images, replicas.

use super::FIELD_SPEC;
use crate::{FieldTable, boolean, integer, string, string_map, table, tables};

/// An entry of `labels`.
pub static LABEL: FieldTable = FieldTable::new(
    "Label entry",
    "An entry of `labels`.",
    &[
        string_map("pairs", "Labels.").example("{app: shop}"),
        boolean("includeSelectors", "Whether selectors and templates get them, too.")
            .default("false")
            .example("true"),
        boolean("includeTemplates", "Whether templates get them, too.")
            .default("false")
            .example("true"),
        boolean(
            "includeVolumeClaimTemplates",
            "Whether volumeClaimTemplates get them, too; selectors bring them along.",
        )
        .default("false")
        .example("true"),
        tables("fields", &FIELD_SPEC, "More fields."),
    ],
);

/// An entry of `patches` or `patchesJson6902`.
pub static PATCH: FieldTable = FieldTable::new(
    "Patch",
    "`path` or `patch`. Without `target`, a strategic merge patch names its object itself.",
    &[
        string("path", "File with the patch.").example("patch.yaml"),
        string("patch", "The patch itself: strategic merge, or JSON patch operations.")
            .example("\"- {op: remove, path: /spec/replicas}\""),
        table("target", &SELECTOR, "Objects to patch."),
        table("options", &PATCH_OPTIONS, "What the patch may change."),
    ],
);

/// `options` of a patch.
pub static PATCH_OPTIONS: FieldTable = FieldTable::new(
    "Patch options",
    "What a patch may change.",
    &[
        boolean("allowNameChange", "Whether it may change names.").default("false").example("true"),
        boolean("allowKindChange", "Whether it may change kinds.").default("false").example("true"),
    ],
);

/// Which objects.
pub static SELECTOR: FieldTable = FieldTable::new(
    "Selector",
    "All parts that are written must fit. `name`, `namespace`, `group`, `version` and `kind` are regular expressions that must match the whole text.",
    &[
        string("group", "API group.").example("apps"),
        string("version", "Version.").example("v1"),
        string("kind", "Kind.").example("Deployment|StatefulSet"),
        string("name", "Name.").example("web.*"),
        string("namespace", "Namespace.").example("shop"),
        string("annotationSelector", "Annotations, as `kubectl -l` writes labels.")
            .example("team=shop"),
        string("labelSelector", "Labels, as `kubectl -l` writes them.")
            .example("app in (web, api)"),
    ],
);

/// An entry of `images`.
pub static IMAGE: FieldTable = FieldTable::new(
    "Image",
    "An entry of `images`.",
    &[
        string("name", "Name of the image, without tag and digest.").example("nginx"),
        string("newName", "New name.").example("registry.example.com/nginx"),
        string("tagSuffix", "Text after the tag.").example("-alpine"),
        string("newTag", "New tag.").example("'1.29'"),
        string("digest", "Digest, in place of a tag.")
            .example("sha256:24a0c4b4a4c0eb97a1aabb8e29f18e917d05abfe1b7a7c07857230879ce7d3d3"),
    ],
);

/// An entry of `replicas`.
pub static REPLICA: FieldTable = FieldTable::new(
    "Replica",
    "An entry of `replicas`.",
    &[
        string("name", "Name of a Deployment, ReplicaSet, ReplicationController or StatefulSet.")
            .example("web"),
        integer("count", "Number of replicas.").default("0").example("3"),
    ],
);
