//! Sprig's functions, by subject. Each module is a table and what is behind it; what several tables need is in
//! `convert` and `encoding/json`.

mod convert;
mod crypto;
mod dates;
mod defaults;
pub(crate) mod dicts;
pub(crate) mod encoding;
mod lists;
mod math;
mod paths;
mod random;
mod reflect;
mod refused;
mod strings;
mod urls;
mod versions;

use crate::functions::TemplateFunction;

/// All tables. A name is in one of them only.
pub(crate) const TABLES: &[&[TemplateFunction]] = &[
    strings::TABLE,
    defaults::TABLE,
    math::TABLE,
    lists::TABLE,
    dicts::TABLE,
    encoding::TABLE,
    crypto::TABLE,
    strings::regex::TABLE,
    versions::TABLE,
    reflect::TABLE,
    paths::TABLE,
    dates::TABLE,
    random::TABLE,
    refused::TABLE,
];
