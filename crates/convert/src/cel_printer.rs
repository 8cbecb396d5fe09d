//! Expressions as text, as a person would write them: on one line if they fit, else broken at their outermost operators
//! and indented below.

use kiln_value::{Number, Value};

use crate::cel::{Cel, Operator};

/// How wide a line may be.
const WIDTH: usize = 96;

/// The text of an expression.
pub(crate) fn print(cel: &Cel) -> String {
    broken(cel, 0, 0)
}

/// The text of an expression on one line.
pub(crate) fn print_flat(cel: &Cel) -> String {
    flat(cel, 0)
}

fn level(cel: &Cel) -> u8 {
    match cel {
        Cel::Choose(..) => 1,
        Cel::Any(_) => 2,
        Cel::All(_) => 3,
        Cel::Binary(operator, ..) => operator_level(*operator),
        Cel::Not(_) => 7,
        Cel::Literal(Value::Number(number)) if number.as_f64() < 0.0 => 7,
        // It may be anything.
        Cel::Written(text) if !is_plain(text) => 0,
        _ => 8,
    }
}

fn is_plain(text: &str) -> bool {
    text.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '?'))
}

fn operator_level(operator: Operator) -> u8 {
    match operator {
        Operator::Plus | Operator::Minus => 5,
        Operator::Times | Operator::Divided | Operator::Modulo => 6,
        _ => 4,
    }
}

fn flat(cel: &Cel, outer: u8) -> String {
    let text = flat_alone(cel);
    if level(cel) < outer { format!("({text})") } else { text }
}

fn flat_alone(cel: &Cel) -> String {
    let list =
        |parts: &[Cel]| parts.iter().map(|part| flat(part, 0)).collect::<Vec<_>>().join(", ");
    let joined = |parts: &[Cel], word: &str, level: u8| {
        parts.iter().map(|part| flat(part, level + 1)).collect::<Vec<_>>().join(word)
    };
    match cel {
        Cel::Name(name) => name.clone(),
        Cel::Literal(value) => literal(value),
        Cel::Select { of, field, optional } => {
            format!("{}.{}{field}", flat(of, 8), if *optional { "?" } else { "" })
        }
        Cel::Index { of, key, optional } => {
            format!("{}[{}{}]", flat(of, 8), if *optional { "?" } else { "" }, flat(key, 0))
        }
        Cel::Call { target: None, function, args } => format!("{function}({})", list(args)),
        Cel::Call { target: Some(target), function, args } => {
            format!("{}.{function}({})", flat(target, 8), list(args))
        }
        Cel::Binary(operator, left, right) => {
            let level = operator_level(*operator);
            format!("{} {} {}", flat(left, level), operator.symbol(), flat(right, level + 1))
        }
        Cel::All(parts) => joined(parts, " && ", 3),
        Cel::Any(parts) => joined(parts, " || ", 2),
        Cel::Not(inner) => format!("!{}", flat(inner, 7)),
        Cel::Choose(condition, then, otherwise) => {
            format!("{} ? {} : {}", flat(condition, 2), flat(then, 2), flat(otherwise, 1))
        }
        Cel::List(parts) => format!("[{}]", list(parts)),
        Cel::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| format!("{}: {}", flat(key, 0), flat(value, 0)))
                .collect();
            format!("{{{}}}", entries.join(", "))
        }
        Cel::Struct(name, fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(field, value)| format!("{}: {}", field_name(field), flat(value, 0)))
                .collect();
            format!("{name}{{{}}}", fields.join(", "))
        }
        Cel::Written(text) => text.clone(),
    }
}

/// Names of fields in structures that are not identifiers stand in backticks.
fn field_name(field: &str) -> String {
    // A field that may be left out begins with a question mark.
    let (mark, name) = field.strip_prefix('?').map_or(("", field), |name| ("?", name));
    if crate::cel::is_identifier(name) { field.to_owned() } else { format!("{mark}`{name}`") }
}

/// The text, broken where it does not fit behind so many columns.
fn broken(cel: &Cel, indent: usize, outer: u8) -> String {
    let one_line = flat(cel, outer);
    if indent + one_line.len() <= WIDTH && !one_line.contains('\n') {
        return one_line;
    }
    if level(cel) < outer {
        let pad = " ".repeat(indent + 2);
        return format!("(\n{pad}{}\n{})", broken(cel, indent + 2, 0), " ".repeat(indent));
    }
    let pad = " ".repeat(indent);
    let inner = " ".repeat(indent + 2);
    let lines = |parts: &[Cel], word: &str, level: u8| {
        let parts: Vec<String> = parts.iter().map(|part| broken(part, indent, level + 1)).collect();
        parts.join(&format!(" {word}\n{pad}"))
    };
    match cel {
        Cel::All(parts) => lines(parts, "&&", 3),
        Cel::Any(parts) => lines(parts, "||", 2),
        Cel::Choose(condition, then, otherwise) => format!(
            "{}\n{inner}? {}\n{inner}: {}",
            broken(condition, indent, 2),
            broken(then, indent + 4, 2),
            broken(otherwise, indent + 4, 1)
        ),
        Cel::Binary(operator @ Operator::Plus, left, right) => {
            format!(
                "{} {}\n{pad}{}",
                broken(left, indent, 5),
                operator.symbol(),
                broken(right, indent, 6)
            )
        }
        Cel::Binary(operator, left, right) => {
            let level = operator_level(*operator);
            format!(
                "{} {} {}",
                broken(left, indent, level),
                operator.symbol(),
                broken(right, indent, level + 1)
            )
        }
        Cel::Not(part) => format!("!{}", broken(part, indent, 7)),
        Cel::Call { target, function, args } => {
            let target = target.as_ref().map(|target| format!("{}.", broken(target, indent, 8)));
            let target = target.unwrap_or_default();
            let Some((last, first)) = args.split_last() else {
                return format!("{target}{function}()");
            };
            let first: String = first.iter().map(|arg| format!("{}, ", flat(arg, 0))).collect();
            let first = first.trim_end();
            match first.is_empty() {
                true => format!("{target}{function}({})", broken(last, indent + 2, 0)),
                false => format!(
                    "{target}{function}({first}\n{inner}{}\n{pad})",
                    broken(last, indent + 2, 0)
                ),
            }
        }
        Cel::List(parts) => {
            let parts: Vec<String> = parts
                .iter()
                .map(|part| format!("{inner}{}", broken(part, indent + 2, 0)))
                .collect();
            format!("[\n{}\n{pad}]", parts.join(",\n"))
        }
        Cel::Map(entries) => {
            let entries: Vec<String> = entries
                .iter()
                .map(|(key, value)| {
                    format!("{inner}{}: {}", flat(key, 0), broken(value, indent + 2, 0))
                })
                .collect();
            format!("{{\n{}\n{pad}}}", entries.join(",\n"))
        }
        Cel::Struct(name, fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(field, value)| {
                    format!("{inner}{}: {}", field_name(field), broken(value, indent + 2, 0))
                })
                .collect();
            format!("{name}{{\n{}\n{pad}}}", fields.join(",\n"))
        }
        Cel::Select { of, field, optional } => {
            format!("{}.{}{field}", broken(of, indent, 8), if *optional { "?" } else { "" })
        }
        Cel::Index { of, key, optional } => {
            format!(
                "{}[{}{}]",
                broken(of, indent, 8),
                if *optional { "?" } else { "" },
                flat(key, 0)
            )
        }
        Cel::Name(_) | Cel::Literal(_) | Cel::Written(_) => one_line,
    }
}

/// A literal; lists and maps only hold what can be written out.
pub(crate) fn literal(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(truth) => truth.to_string(),
        Value::Number(Number::Float(float)) if float.fract() == 0.0 && float.abs() < 1e15 => {
            format!("{float:.1}")
        }
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::List(list) => {
            let parts: Vec<String> = list.iter().map(literal).collect();
            format!("[{}]", parts.join(", "))
        }
        Value::Map(map) => {
            let parts: Vec<String> = map
                .iter()
                .map(|(key, value)| format!("{}: {}", quoted(key), literal(value)))
                .collect();
            format!("{{{}}}", parts.join(", "))
        }
    }
}

/// Text in single quotes; in double ones if it holds single ones; raw if it holds backslashes.
fn quoted(text: &str) -> String {
    let has_control = text.chars().any(char::is_control);
    if text.contains('\\') && !has_control && !text.contains('\'') {
        return format!("r'{text}'");
    }
    let quote = if text.contains('\'') && !text.contains('"') { '"' } else { '\'' };
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push(quote);
    for c in text.chars() {
        match c {
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            '\r' => quoted.push_str("\\r"),
            '\\' => quoted.push_str("\\\\"),
            c if c == quote => {
                quoted.push('\\');
                quoted.push(c);
            }
            c if c.is_control() => quoted.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => quoted.push(c),
        }
    }
    quoted.push(quote);
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_expressions_stay_on_one_line_and_long_ones_break_at_their_operators() {
        let place =
            || Cel::name("object").select("spec").maybe("hostNetwork").or_value(Cel::bool(false));
        let both = Cel::all([place().equals(Cel::bool(false)), Cel::name("a").has()]);
        assert_eq!(print(&both), "object.spec.?hostNetwork.orValue(false) == false && has(a)");
        let long = Cel::all(
            (0..4).map(|at| place().equals(Cel::text(format!("a-rather-long-text-{at}")))),
        );
        assert!(
            print(&long).starts_with(
                "object.spec.?hostNetwork.orValue(false) == 'a-rather-long-text-0' &&\n"
            )
        );
    }

    #[test]
    fn operators_keep_their_meaning_in_each_other() {
        let (a, b) = (|| Cel::name("a"), || Cel::name("b"));
        let or = Cel::any([a(), b()]);
        assert_eq!(print(&Cel::all([or.clone(), b()])), "(a || b) && b");
        assert_eq!(print(&or.negate()), "!a && !b");
        assert_eq!(print(&a().plus(b()).call("size", vec![])), "(a + b).size()");
        assert_eq!(print(&Cel::Not(Box::new(a().within(b())))), "!(a in b)");
    }

    #[test]
    fn keys_that_are_not_identifiers_are_looked_up() {
        let place =
            Cel::name("object").select("metadata").maybe("labels").maybe("app.kubernetes.io/name");
        assert_eq!(print(&place), "object.metadata.?labels[?'app.kubernetes.io/name']");
        assert_eq!(print(&Cel::text(r"^\d+$")), r"r'^\d+$'");
        assert_eq!(print(&Cel::text("it's")), "\"it's\"");
    }
}
