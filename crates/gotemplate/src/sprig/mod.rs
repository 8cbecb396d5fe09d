//! Sprig's functions, by subject. Each module is a table and what is behind it.

mod case;
mod convert;
mod crypto;
mod dates;
mod decimal;
mod defaults;
pub(crate) mod dicts;
mod encode;
pub(crate) mod json;
pub(crate) mod json_syntax;
mod lists;
mod math;
mod outside;
mod paths;
mod random;
mod reflect;
mod regex;
mod strings;
mod urls;
mod versions;

use crate::functions::Function;

/// All tables. A name is in one of them only.
pub(crate) const TABLES: &[&[Function]] = &[
    strings::TABLE,
    defaults::TABLE,
    math::TABLE,
    lists::TABLE,
    dicts::TABLE,
    encode::TABLE,
    crypto::TABLE,
    regex::TABLE,
    versions::TABLE,
    reflect::TABLE,
    paths::TABLE,
    dates::TABLE,
    random::TABLE,
    outside::TABLE,
];
