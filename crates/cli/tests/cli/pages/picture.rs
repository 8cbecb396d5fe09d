//! The picture in the README: a terminal that shows a command and what it prints, line by line.

use std::fmt::Write as _;

const FONT_SIZE: usize = 13;
const LINE_HEIGHT: usize = 20;
/// How wide a character is, in hundredths: fonts of terminals are about that wide, and `textLength` makes sure of it.
const CHARACTER: usize = 780;
const MARGIN: usize = 20;
const TOP: usize = 56;
/// Seconds until the first line, and between lines, in tenths.
const BEGIN: usize = 12;
const PAUSE: usize = 7;

/// Draws it as SVG. What cannot move shows the last moment.
pub(crate) fn terminal(command: &str, printed: &str) -> String {
    let lines: Vec<&str> = printed.lines().collect();
    let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or_default();
    let width = longest * CHARACTER / 100 + 2 * MARGIN;
    let height = TOP + (lines.len() + 1) * LINE_HEIGHT + MARGIN / 2;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\">\n\
         <title>{}</title>\n\
         <style>\n\
         text {{ font: {FONT_SIZE}px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; fill: #d7dae0; white-space: pre; }}\n\
         .command {{ fill: #ffffff; font-weight: bold; }}\n\
         .told {{ fill: #8fb8de; }}\n\
         .good {{ fill: #8fd19e; }}\n\
         @media (prefers-reduced-motion: no-preference) {{\n\
         .line {{ animation: appear 0.2s both; }}\n\
         @keyframes appear {{ from {{ opacity: 0; }} to {{ opacity: 1; }} }}\n\
         }}\n\
         </style>\n\
         <rect width=\"{width}\" height=\"{height}\" rx=\"10\" fill=\"#1d2330\"/>\n",
        escaped(command)
    );
    for (at, colour) in ["#ff5f57", "#febc2e", "#28c840"].iter().enumerate() {
        let _ =
            writeln!(svg, "<circle cx=\"{}\" cy=\"22\" r=\"6\" fill=\"{colour}\"/>", 24 + 20 * at);
    }
    draw(&mut svg, 0, "command", &format!("$ {command}"));
    for (at, line) in lines.iter().enumerate() {
        let class = match line {
            line if line.starts_with("demo: ") => "told",
            line if line.trim() == "pass" => "good",
            _ => "plain",
        };
        draw(&mut svg, at + 1, class, line);
    }
    svg.push_str("</svg>\n");
    svg
}

fn draw(svg: &mut String, row: usize, class: &str, line: &str) {
    let text = line.trim_start();
    if text.is_empty() {
        return;
    }
    let indent = (line.chars().count() - text.chars().count()) * CHARACTER / 100;
    let length = text.chars().count() * CHARACTER / 100;
    let (x, y) = (MARGIN + indent, TOP + row * LINE_HEIGHT);
    let delay = if row == 0 { 0 } else { BEGIN + (row - 1) * PAUSE };
    let _ = writeln!(
        svg,
        "<text class=\"line {class}\" x=\"{x}\" y=\"{y}\" textLength=\"{length}\" lengthAdjust=\"spacingAndGlyphs\" style=\"animation-delay: {}.{}s\">{}</text>",
        delay / 10,
        delay % 10,
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
