//! Conversions as users see them.

mod figures;
mod kyverno;
mod library;
mod suites;
mod twins;
