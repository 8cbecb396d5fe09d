//! Packaged charts: a gzipped tar archive, unpacked in memory within a budget.
//!
//! No path leads out of the chart, and links are refused: whatever is in a package is a file of it.

use std::io::Read;

use flate2::read::MultiGzDecoder;

use crate::error::{ChartError, Result};
use crate::files::{ChartFile, FileBudget, MemoryFiles};
use crate::options::ChartLimits;

const BLOCK: usize = 512;

/// The files of a packaged chart, without the directory that they are packaged in.
///
/// # Errors
/// When it is not a package, is too large, or has links or paths that lead out.
pub fn unpack(package: &[u8], limits: &ChartLimits) -> Result<MemoryFiles> {
    let files = read_package(package, &mut FileBudget::new(limits))?;
    Ok(MemoryFiles::new(files.into_iter().map(|file| (file.name, file.data.to_vec()))))
}

pub(crate) fn read_package(package: &[u8], budget: &mut FileBudget) -> Result<Vec<ChartFile>> {
    if !package.starts_with(b"\x1F\x8B") {
        return Err(ChartError::new("gzip: invalid header")
            .hint("a packaged chart is a gzipped tar archive, as `helm package` writes it"));
    }
    let mut archive = Archive { from: MultiGzDecoder::new(package), long_name: None };
    let mut files = Vec::new();
    while let Some(header) = archive.next(budget)? {
        let name = path_in_chart(&header.name)?;
        let data = archive.content(header.size, budget)?;
        budget.count(data.len())?;
        files.push(ChartFile::new(name, &data));
    }
    if files.is_empty() {
        return Err(ChartError::new("no files in chart archive"));
    }
    Ok(files)
}

struct Archive<'p> {
    from: MultiGzDecoder<&'p [u8]>,
    /// The name of the next file, if it is too long for its header.
    long_name: Option<String>,
}

struct Header {
    name: String,
    size: usize,
}

impl Archive<'_> {
    /// The header of the next file; directories and extensions are taken care of.
    fn next(&mut self, budget: &mut FileBudget) -> Result<Option<Header>> {
        loop {
            let mut block = [0; BLOCK];
            if !self.fill(&mut block)? || block.iter().all(|byte| *byte == 0) {
                return Ok(None);
            }
            let size = number(&block[124..136])
                .ok_or_else(|| broken("archive/tar: invalid tar header"))?;
            let kind = block[156];
            if !matches!(kind, b'0' | b'\0' | b'7') {
                // Whatever is not a file is counted like one, or an archive of them would have no end.
                budget.count(0)?;
            }
            match kind {
                b'x' | b'L' => {
                    let text = self.content(size, budget)?;
                    let long = match kind {
                        b'x' => extended_path(&text),
                        _ => text.split(|byte| *byte == 0).next().map(<[u8]>::to_vec),
                    };
                    self.long_name = long.map(|name| String::from_utf8_lossy(&name).into_owned());
                }
                b'g' | b'K' => drop(self.content(size, budget)?),
                b'5' => {
                    self.long_name = None;
                    self.content(size, budget)?;
                }
                b'0' | b'\0' | b'7' => {
                    let name = self.long_name.take().unwrap_or_else(|| header_name(&block));
                    if name.ends_with('/') {
                        self.content(size, budget)?;
                        continue;
                    }
                    if size > budget.limits.file_bytes {
                        let limit = budget.limits.file_bytes;
                        return Err(ChartError::new(format!(
                            "decompressed chart file {name:?} is larger than the maximum file size {limit}"
                        )));
                    }
                    return Ok(Some(Header { name, size }));
                }
                b'1' | b'2' => {
                    let name = self.long_name.take().unwrap_or_else(|| header_name(&block));
                    return Err(ChartError::new(format!("the package has a link, {name:?}"))
                        .hint("put the file itself into the package"));
                }
                _ => {
                    let name = self.long_name.take().unwrap_or_else(|| header_name(&block));
                    return Err(ChartError::new(format!("{name:?} in the package is not a file")));
                }
            }
        }
    }

    /// Reads so many bytes and what fills the last block.
    fn content(&mut self, size: usize, budget: &FileBudget) -> Result<Vec<u8>> {
        if size > budget.next() {
            let limit = budget.limits.chart_bytes;
            return Err(ChartError::new(format!(
                "decompressed chart is larger than the maximum file size {limit}"
            )));
        }
        let mut data = vec![0; size.next_multiple_of(BLOCK)];
        if !self.fill(&mut data)? && size > 0 {
            return Err(broken("unexpected EOF"));
        }
        data.truncate(size);
        Ok(data)
    }

    /// Fills a buffer; `false` if the archive ended before.
    fn fill(&mut self, buffer: &mut [u8]) -> Result<bool> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.from.read(&mut buffer[filled..]) {
                Ok(0) if filled == 0 => return Ok(false),
                Ok(0) => return Err(broken("unexpected EOF")),
                Ok(count) => filled += count,
                Err(error) => return Err(broken(&error.to_string())),
            }
        }
        Ok(true)
    }
}

fn broken(why: &str) -> ChartError {
    ChartError::new(why.to_owned())
}

fn header_name(block: &[u8; BLOCK]) -> String {
    let text = |range: std::ops::Range<usize>| {
        let bytes = block[range].split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(bytes).into_owned()
    };
    let (name, prefix) = (text(0..100), text(345..500));
    if block[257..].starts_with(b"ustar")
        && !block[257..].starts_with(b"ustar ")
        && !prefix.is_empty()
    {
        return format!("{prefix}/{name}");
    }
    name
}

/// A size: octal digits, or the bytes of a large number.
fn number(field: &[u8]) -> Option<usize> {
    if field[0] & 0x80 != 0 {
        let digits =
            field.iter().enumerate().map(|(at, byte)| if at == 0 { byte & 0x7F } else { *byte });
        return digits
            .into_iter()
            .try_fold(0_usize, |sum, byte| sum.checked_mul(256)?.checked_add(usize::from(byte)));
    }
    let text = str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    if text.is_empty() { Some(0) } else { usize::from_str_radix(text, 8).ok() }
}

/// The path of an extended header: lines of a length, a blank, a key, `=` and a value.
fn extended_path(text: &[u8]) -> Option<Vec<u8>> {
    let mut rest = text;
    let mut path = None;
    while !rest.is_empty() {
        let blank = rest.iter().position(|byte| *byte == b' ')?;
        let length: usize = str::from_utf8(&rest[..blank]).ok()?.parse().ok()?;
        let record = rest.get(blank + 1..length.checked_sub(1)?)?;
        if let Some(value) = record.strip_prefix(b"path=") {
            path = Some(value.to_vec());
        }
        rest = rest.get(length..)?;
    }
    path
}

/// The path of a file in the chart: without its first directory.
fn path_in_chart(name: &str) -> Result<String> {
    let delimiter = if name.contains('\\') { '\\' } else { '/' };
    let (first, rest) = name.split_once(delimiter).unwrap_or((name, ""));
    let path = rest.replace(delimiter, "/");
    if path.starts_with('/') {
        return Err(ChartError::new("chart illegally contains absolute paths"));
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let clean = parts.join("/");
    if clean.is_empty() {
        return Err(ChartError::new(format!(
            "chart illegally contains content outside the base directory: {name:?}"
        )));
    }
    if clean.starts_with("..") {
        return Err(ChartError::new("chart illegally references parent directory"));
    }
    let mut letters = clean.chars();
    if letters.next().is_some_and(|c| c.is_ascii_alphabetic()) && letters.as_str().starts_with(":/")
    {
        return Err(ChartError::new("chart contains illegally named files"));
    }
    if first == "Chart.yaml" {
        return Err(ChartError::new("chart yaml not in base directory"));
    }
    Ok(clean)
}
