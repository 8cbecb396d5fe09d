//! Keys and values from literals, files and env files.

use crate::build::session::KustomizationSite;
use crate::error::{Context, Error, Result};
use crate::load::kustomization::GeneratorArgs;

/// Keys and values in the order of their sources.
///
/// # Errors
/// When a source is malformed or missing, or a key occurs twice.
pub(crate) fn load(
    args: &GeneratorArgs,
    site: &KustomizationSite<'_, '_>,
) -> Result<Vec<(String, Vec<u8>)>> {
    let mut pairs = Vec::new();
    from_env_files(&args.envs, site, &mut pairs)
        .context(format_args!("env source files: [{}]", args.envs.join(" ")))
        .context("loading KV pairs")?;
    from_literals(&args.literals, &mut pairs)
        .context(format_args!("literal sources [{}]", args.literals.join(" ")))
        .context("loading KV pairs")?;
    from_files(&args.files, site, &mut pairs)
        .context(format_args!("file sources: [{}]", args.files.join(" ")))
        .context("loading KV pairs")?;
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    if let Some(twice) = pairs.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        return Err(Error::new(format!(
            "configmap {} illegally repeats the key `{}`",
            args.name, twice[0].0
        )));
    }
    Ok(pairs)
}

type Pairs = Vec<(String, Vec<u8>)>;

fn from_literals(literals: &[String], pairs: &mut Pairs) -> Result<()> {
    for literal in literals {
        let (key, value) =
            literal.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
                Error::new(format!("invalid literal source {literal}, expected key=value"))
            })?;
        pairs.push((key.to_owned(), without_quotes(value).as_bytes().to_vec()));
    }
    Ok(())
}

/// One pair of quotes around the whole value goes away.
fn without_quotes(value: &str) -> &str {
    ['"', '\'']
        .into_iter()
        .filter(|_| value.len() >= 2)
        .find_map(|quote| value.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(value)
}

fn from_files(files: &[String], site: &KustomizationSite<'_, '_>, pairs: &mut Pairs) -> Result<()> {
    for file in files {
        let (key, path) = match file.matches('=').count() {
            0 => (crate::load::paths::base(file), file.as_str()),
            1 => file.split_once('=').unwrap_or_default(),
            _ => {
                return Err(Error::new(format!(
                    "source {file:?} key name or file path contains '='"
                )));
            }
        };
        if key.is_empty() {
            return Err(Error::new(format!(
                "missing key name for file path {path:?} in source {file:?}"
            )));
        }
        if path.is_empty() {
            return Err(Error::new(format!(
                "missing file path for key name {key:?} in source {file:?}"
            )));
        }
        pairs.push((key.to_owned(), site.load(path)?.to_vec()));
    }
    Ok(())
}

fn from_env_files(
    files: &[String],
    site: &KustomizationSite<'_, '_>,
    pairs: &mut Pairs,
) -> Result<()> {
    for file in files {
        let contents = site.load(file)?;
        from_lines(&contents, pairs)?;
    }
    Ok(())
}

fn from_lines(contents: &[u8], pairs: &mut Pairs) -> Result<()> {
    for (at, line) in contents.split(|b| *b == b'\n').enumerate() {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let line = std::str::from_utf8(line).map_err(|_| {
            Error::new(format!(
                "line {} has invalid utf8 bytes : {}",
                at + 1,
                String::from_utf8_lossy(line)
            ))
        })?;
        let line = if at == 0 { line.strip_prefix('\u{feff}').unwrap_or(line) } else { line };
        let line = line.trim_start();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if key.is_empty() {
            continue;
        }
        pairs.push((key.to_owned(), value.as_bytes().to_vec()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_lose_one_pair_of_quotes() {
        let mut pairs = Vec::new();
        let literals = ["a=b", "q=\"x y\"", "s='x'", "one=\"", "mixed=\"x'", "eq=a=b", "e="];
        from_literals(&literals.map(str::to_owned), &mut pairs).unwrap();
        let values: Vec<&[u8]> = pairs.iter().map(|(_, value)| value.as_slice()).collect();
        assert_eq!(values, [&b"b"[..], b"x y", b"x", b"\"", b"\"x'", b"a=b", b""]);
        assert!(from_literals(&["=x".to_owned()], &mut pairs).is_err());
    }

    #[test]
    fn env_files_are_read_line_by_line() {
        let mut pairs = Vec::new();
        from_lines("\u{feff}a=1\r\n# no\n\n  b = \"2\" \nc".as_bytes(), &mut pairs).unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let pairs: Vec<_> = pairs.iter().map(|(key, value)| (key.as_str(), text(value))).collect();
        assert_eq!(pairs, [("a", "1".into()), ("b ", " \"2\" ".into()), ("c", String::new())]);
    }
}
