//! Values as text, the way Go's `fmt` writes them, within the budget.

mod printf;
mod verbs;

use std::ops::Range;

use kiln_value::Str;

use crate::error::Refusal;
use crate::marked::{DataPart, Marked};
use crate::meter::Meter;
use crate::value::Dyn;

pub(crate) use printf::printf;
use verbs::Printer;

/// How deep a value may nest and still be walked.
pub(crate) const MAX_DEPTH: usize = 550;

/// A text that is charged while it grows.
pub(crate) struct Sink<'m> {
    pub(crate) text: String,
    /// Which parts of it are data.
    pub(crate) parts: Vec<DataPart>,
    pub(crate) meter: &'m Meter,
}

impl<'m> Sink<'m> {
    pub(crate) fn new(meter: &'m Meter) -> Self {
        Sink { text: String::new(), parts: Vec::new(), meter }
    }

    pub(crate) fn push(&mut self, text: &str) -> Result<(), Refusal> {
        self.meter.make(text.len() as u64)?;
        self.text.push_str(text);
        Ok(())
    }

    pub(crate) fn push_marked(&mut self, text: &Marked) -> Result<(), Refusal> {
        let start = self.text.len();
        self.push(text)?;
        self.keep(text.parts_of(0..text.len(), start))
    }

    /// Keeps marks of what was just written; they take room, too.
    pub(crate) fn keep(&mut self, parts: Vec<DataPart>) -> Result<(), Refusal> {
        self.meter.make(parts.len() as u64 * DataPart::COST)?;
        self.parts.extend(parts);
        Ok(())
    }

    /// Marks what was written last as data; `unescaped` is what it says where it was written with escapes.
    pub(crate) fn mark(&mut self, at: Range<usize>, unescaped: Option<Str>) -> Result<(), Refusal> {
        while self.parts.last().is_some_and(|part| part.at.end > at.start) {
            self.parts.pop();
        }
        let part = DataPart { at, unescaped };
        self.keep(if part.at.is_empty() { Vec::new() } else { vec![part] })
    }

    pub(crate) fn finish(self) -> Marked {
        Marked::with_parts(self.text, self.parts)
    }

    pub(crate) fn repeat(&mut self, text: &str, count: usize) -> Result<(), Refusal> {
        self.meter.make((text.len() as u64).saturating_mul(count as u64))?;
        self.text.extend(std::iter::repeat_n(text, count));
        Ok(())
    }
}

pub(crate) fn too_deep() -> Refusal {
    Refusal::Limit(format!("the value nests deeper than {MAX_DEPTH} levels"))
}

/// As `%v`.
pub(crate) fn plain(value: &Dyn, meter: &Meter) -> Result<Marked, Refusal> {
    if let Dyn::Text(text) = value {
        meter.make(text.len() as u64)?;
        return Ok(text.clone());
    }
    let mut printer = Printer::new(meter);
    printer.argument(value, 'v')?;
    Ok(printer.out.finish())
}

/// As `fmt.Sprint`: a space between two values of which neither is a string.
pub(crate) fn print(values: &[Dyn], meter: &Meter) -> Result<Marked, Refusal> {
    let mut printer = Printer::new(meter);
    let mut after_text = true;
    for value in values {
        let is_text = matches!(value, Dyn::Text(_));
        if !after_text && !is_text {
            printer.out.push(" ")?;
        }
        printer.argument(value, 'v')?;
        after_text = is_text;
    }
    Ok(printer.out.finish())
}

/// As `fmt.Sprintln`: a space between all values, and a new line.
pub(crate) fn println(values: &[Dyn], meter: &Meter) -> Result<Marked, Refusal> {
    let mut printer = Printer::new(meter);
    for (position, value) in values.iter().enumerate() {
        if position > 0 {
            printer.out.push(" ")?;
        }
        printer.argument(value, 'v')?;
    }
    printer.out.push("\n")?;
    Ok(printer.out.finish())
}
