//! Columns, as kubectl prints them.

use std::io::{self, Write};

use super::plain;

/// Prints rows in columns as wide as their widest cell.
pub(crate) fn table(
    out: &mut impl Write,
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
    for line in &lines {
        let mut text = String::new();
        for (width, cell) in widths.iter().zip(line) {
            text.push_str(&format!("{cell:<width$}   "));
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}
