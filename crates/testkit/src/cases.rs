//! Tables of cases that the repository has of its own: inputs written by hand, results recorded from the original.
//!
//! A table is a YAML file with `recorded` (tool and version) and `cases`. Each case has a `name`, its inputs, and
//! either `output` or `error`, which `cargo xtask record` fills in. Where Kiln deliberately does otherwise, `differs`
//! says why, and `kiln` or `kilnError` what it does.

use std::path::{Path, PathBuf};

use kiln_value::Value;
use kiln_yaml::{ReadOptions, read_bytes};

use crate::Tally;

/// One case of a table.
#[derive(Debug)]
pub struct Case {
    place: String,
    fields: Value,
}

/// What a case expects of Kiln.
#[derive(Debug, Clone, Copy)]
pub enum Expected<'a> {
    /// This result.
    Output(&'a Value),
    /// A failure; the text is the original's, or Kiln's own where it deliberately differs.
    Error(&'a str),
}

impl Case {
    /// File and name, as lists of known failures spell them: `strings.yaml: upper case`.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Everything the case says.
    pub fn fields(&self) -> &Value {
        &self.fields
    }

    /// A field, if the case has it.
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.fields.get(field)
    }

    /// A field that must be there and be text.
    ///
    /// # Panics
    /// When it is not.
    pub fn text(&self, field: &str) -> &str {
        self.fields
            .str_at([field])
            .unwrap_or_else(|| panic!("{}: `{field}` must be there and be text", self.place))
    }

    /// Whether Kiln deliberately does otherwise than the original.
    pub fn differs(&self) -> bool {
        self.get("differs").is_some()
    }

    /// What the case expects of Kiln.
    ///
    /// # Panics
    /// When the case has no result: `cargo xtask record` fills it in.
    pub fn expected(&self) -> Expected<'_> {
        let recorded = ("output", "error");
        let (output, error) = if self.differs() { ("kiln", "kilnError") } else { recorded };
        assert!(
            self.get(recorded.0).is_some() || self.get(recorded.1).is_some(),
            "{}: nothing is recorded; `cargo xtask record` does that",
            self.place
        );
        assert!(
            !self.differs() || self.get("kiln").is_none() || self.get("kiln") != self.get("output"),
            "{}: `differs`, but `kiln` is what the original gives",
            self.place
        );
        match (self.get(output), self.get(error)) {
            (Some(output), None) => Expected::Output(output),
            (None, Some(error)) => Expected::Error(error.as_str().unwrap_or_else(|| {
                panic!("{}: `{error:?}` must be text", self.place);
            })),
            (None, None) => panic!(
                "{}: neither `{output}` nor `{error}` is there; `cargo xtask record` fills them in",
                self.place
            ),
            (Some(_), Some(_)) => panic!("{}: both `{output}` and `{error}`", self.place),
        }
    }
}

/// Runs every case of the tables in a directory, and fails with every case that does not give what was recorded.
///
/// `known` lists cases that fail, by [`Case::place`], with the reason; one that passes fails the test.
///
/// # Panics
/// When a case fails, a table cannot be read, or there is none.
pub fn cases(
    name: &str,
    directory: impl AsRef<Path>,
    known: &[(&str, &str)],
    run: impl Fn(&Case) -> Result<(), String>,
) {
    let mut tally = Tally::new(format!("{name}, own cases"));
    for (case, reason) in known {
        tally.known_failure(*case, *reason);
    }
    for case in read_cases(directory) {
        tally.case(case.place(), || run(&case));
    }
    tally.finish();
}

/// Every case of the tables in a directory.
///
/// # Panics
/// When a table cannot be read.
pub fn read_cases(directory: impl AsRef<Path>) -> Vec<Case> {
    tables(directory.as_ref()).iter().flat_map(|file| read(file)).collect()
}

fn tables(directory: &Path) -> Vec<PathBuf> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    let mut files: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry of the directory").path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "yaml"))
        .collect();
    files.sort();
    files
}

fn read(file: &Path) -> Vec<Case> {
    let shown = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let bytes = std::fs::read(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    let documents = read_bytes(&shown, &bytes, ReadOptions::kubernetes())
        .unwrap_or_else(|e| panic!("{}: {e:?}", file.display()));
    let [document] = documents.as_slice() else { panic!("{shown}: one document, please") };
    let table = document.value();
    assert!(table.str_at(["recorded"]).is_some(), "{shown}: `recorded` must name tool and version");
    let cases = table.get("cases").and_then(Value::as_list);
    let mut names = std::collections::HashSet::new();
    cases
        .unwrap_or_else(|| panic!("{shown}: `cases` must be a list"))
        .iter()
        .map(|case| {
            let name =
                case.str_at(["name"]).unwrap_or_else(|| panic!("{shown}: a case has no name"));
            assert!(names.insert(name.to_owned()), "{shown}: two cases are named {name:?}");
            Case { place: format!("{shown}: {name}"), fields: case.clone() }
        })
        .collect()
}
