//! Columns, as kubectl prints them.

use std::io;

use super::paint::{Paint, Style};
use super::plain;

/// The columns that say how something ended.
const RESULTS: [&str; 2] = ["RESULT", "ACTION"];

/// Prints rows in columns as wide as their widest cell.
pub(crate) fn table(
    out: &mut impl Paint,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<String>>,
) -> io::Result<()> {
    let mut lines = vec![header.iter().map(ToString::to_string).collect::<Vec<_>>()];
    // A cell is one line, whatever others wrote into it.
    lines.extend(rows.into_iter().map(|row| row.iter().map(|cell| plain(cell)).collect()));
    let mut widths = vec![0; header.len()];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    for (number, line) in lines.iter().enumerate() {
        // Nothing stands behind the last cell that is not empty.
        let last = line.iter().rposition(|cell| !cell.is_empty()).unwrap_or(0);
        for (at, (width, cell)) in widths.iter().zip(line).enumerate().take(last + 1) {
            match number {
                0 => out.paint(Style::Strong, cell)?,
                // A policy may be called "ok".
                _ if RESULTS.contains(&header[at]) => out.result(cell)?,
                _ => out.write_all(cell.as_bytes())?,
            }
            if at < last {
                write!(out, "{:1$}", "", width - cell.chars().count() + 3)?;
            }
        }
        writeln!(out)?;
    }
    Ok(())
}
