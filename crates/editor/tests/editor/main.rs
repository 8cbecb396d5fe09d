//! What editors get: schemas of the tables, and answers of the language server.

mod language_server;
mod place_help;
mod schemas;
