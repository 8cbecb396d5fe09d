//! Conversions as users see them.

mod library;
mod suites;
mod twins;
