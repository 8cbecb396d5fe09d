//! What sprig makes of any value: a text, an integer, a float, a list of texts.

use kiln_text::float;

use crate::error::Refusal;
use crate::format;
use crate::marked::Marked;
use crate::meter::Meter;
use crate::number::parse_int;
use crate::value::Dyn;

/// The text of a value, as `%v` prints it.
pub(super) fn text_of(value: &Dyn, meter: &Meter) -> Result<Marked, Refusal> {
    match value {
        Dyn::Text(text) => Ok(text.clone()),
        Dyn::Bytes(bytes) => {
            meter.make(bytes.len() as u64)?;
            Ok(Marked::data(String::from_utf8_lossy(bytes).into_owned()))
        }
        other => format::plain(other, meter),
    }
}

/// The texts of a list without its nils; of anything else a list of one.
pub(super) fn texts_of(value: &Dyn, meter: &Meter) -> Result<Vec<Marked>, Refusal> {
    match value {
        Dyn::Missing | Dyn::Nil => Ok(Vec::new()),
        Dyn::List(list) => {
            let present = list.items().iter().filter(|item| !item.is_nil());
            present.map(|item| text_of(item, meter)).collect()
        }
        other => Ok(vec![text_of(other, meter)?]),
    }
}

/// An integer; what is none is 0. Texts may have a prefix for their base.
pub(super) fn int_of(value: &Dyn) -> i64 {
    match value {
        Dyn::Bool(truth) => i64::from(*truth),
        Dyn::Float(float) => float_to_int(*float),
        Dyn::Text(text) => parse_int(text).unwrap_or(0),
        Dyn::Uint64(uint) => *uint as i64,
        other => other.as_integer().and_then(|int| i64::try_from(int).ok()).unwrap_or(0),
    }
}

/// Go on common machines: a float beyond the integers becomes the smallest one.
fn float_to_int(float: f64) -> i64 {
    if float.is_nan() || !(-9.223_372_036_854_776e18..9.223_372_036_854_776e18).contains(&float) {
        return i64::MIN;
    }
    float as i64
}

/// A float; what is none is 0.
pub(super) fn float_of(value: &Dyn) -> f64 {
    match value {
        Dyn::Bool(truth) => f64::from(u8::from(*truth)),
        Dyn::Float(float) => *float,
        Dyn::Text(text) => float::parse(text).unwrap_or(0.0),
        other => other.as_integer().map_or(0.0, |int| int as f64),
    }
}

/// Whether sprig calls a value empty.
pub(super) fn is_empty(value: &Dyn) -> bool {
    !value.is_true()
}
