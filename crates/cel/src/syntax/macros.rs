//! Macros: calls that are rewritten before anything is checked.

use kiln_value::Str;

use super::ast::{ExprId, ExprKind, Literal, Loop, LoopKind};
use super::parse::{CelParser, Parsed};
use crate::Span;
use crate::error::Issue;

/// The macros, by name and as they are written.
pub(crate) const MACROS: &[(&str, &str)] = &[
    ("all", "RANGE.all(x, TEST)"),
    ("bind", "cel.bind(x, VALUE, EXPRESSION)"),
    ("exists", "RANGE.exists(x, TEST)"),
    ("exists_one", "RANGE.exists_one(x, TEST)"),
    ("filter", "RANGE.filter(x, TEST)"),
    ("has", "has(e.field)"),
    ("map", "RANGE.map(x, EXPRESSION)"),
    ("map", "RANGE.map(x, TEST, EXPRESSION)"),
    ("optFlatMap", "OPTIONAL.optFlatMap(x, EXPRESSION)"),
    ("optMap", "OPTIONAL.optMap(x, EXPRESSION)"),
    ("sortBy", "LIST.sortBy(x, KEY)"),
    ("transformList", "RANGE.transformList(k, v, EXPRESSION)"),
    ("transformMap", "RANGE.transformMap(k, v, EXPRESSION)"),
    ("transformMapEntry", "RANGE.transformMapEntry(k, v, EXPRESSION)"),
];

/// The rewritten call, or `None` when it is not a macro.
pub(super) fn expand(
    parser: &mut CelParser<'_>,
    target: Option<ExprId>,
    function: &str,
    args: &[ExprId],
    span: Span,
) -> Parsed<Option<ExprId>> {
    let Some(target) = target else {
        return if function == "has" && args.len() == 1 {
            has(parser, args[0], span)
        } else {
            Ok(None)
        };
    };
    let namespace = match &parser.exprs[target.index()].kind {
        ExprKind::Ident { name, absolute: false } => Some(name.clone()),
        _ => None,
    };
    match (namespace.as_deref(), function, args) {
        (Some("cel"), "bind", [variable, value, body]) => {
            let name = variable_name(
                parser,
                *variable,
                "cel.bind() variable names must be simple identifiers",
            )?;
            Ok(Some(parser.add(ExprKind::Bind { slots: vec![(name, *value)], body: *body }, span)))
        }
        (Some("cel"), "block" | "index" | "iterVar", _) if parser.dialect.blocks => {
            block(parser, function, args, span)
        }
        (_, "optMap" | "optFlatMap", [variable, body]) => {
            let problem = format!("{function}() variable name must be a simple identifier");
            let variable = variable_name(parser, *variable, &problem)?;
            let flat = function == "optFlatMap";
            Ok(Some(parser.add(ExprKind::OptMap { target, variable, body: *body, flat }, span)))
        }
        // Kyverno: the optional may turn out to be a plain value.
        (_, "orValue", [other]) if parser.dialect.lenient_or_value => {
            let call = ExprKind::Call {
                target: None,
                function: Str::new_static("@orValue"),
                args: vec![target, *other],
            };
            Ok(Some(parser.add(call, span)))
        }
        // `math.greatest(1, 2)` takes any number of arguments.
        (Some("math"), "greatest" | "least", [_, ..]) => {
            extreme(parser, function, args, span).map(Some)
        }
        _ => comprehension(parser, target, function, args, span),
    }
}

fn has(parser: &mut CelParser<'_>, arg: ExprId, span: Span) -> Parsed<Option<ExprId>> {
    match &parser.exprs[arg.index()].kind {
        ExprKind::Select { operand, field, optional: false } => {
            let (operand, field) = (*operand, field.clone());
            Ok(Some(parser.add(ExprKind::Has { operand, field }, span)))
        }
        _ => Err(Issue::new("invalid argument to has() macro", parser.span_of(arg))),
    }
}

fn comprehension(
    parser: &mut CelParser<'_>,
    range: ExprId,
    function: &str,
    args: &[ExprId],
    span: Span,
) -> Parsed<Option<ExprId>> {
    use LoopKind::{All, Exists, ExistsOne, Filter, Map, SortBy, TransformMap, TransformMapEntry};
    let two = parser.dialect.two_variables;
    let (kind, variables, filtered) = match (function, args.len()) {
        ("all", 2) => (All, 1, false),
        ("exists", 2) => (Exists, 1, false),
        ("exists_one", 2) => (ExistsOne, 1, false),
        ("map", 2) => (Map, 1, false),
        ("map", 3) => (Map, 1, true),
        ("filter", 2) => (Filter, 1, false),
        ("sortBy", 2) => (SortBy, 1, false),
        ("all", 3) if two => (All, 2, false),
        ("exists", 3) if two => (Exists, 2, false),
        ("existsOne" | "exists_one", 3) if two => (ExistsOne, 2, false),
        ("transformList", 3) if two => (Map, 2, false),
        ("transformList", 4) if two => (Map, 2, true),
        ("transformMap", 3) if two => (TransformMap, 2, false),
        ("transformMap", 4) if two => (TransformMap, 2, true),
        ("transformMapEntry", 3) if two => (TransformMapEntry, 2, false),
        ("transformMapEntry", 4) if two => (TransformMapEntry, 2, true),
        _ => return Ok(None),
    };
    let first = variable_name(parser, args[0], "argument must be a simple name")?;
    let second = match variables {
        1 => None,
        _ => Some(variable_name(parser, args[1], "argument must be a simple name")?),
    };
    if second.as_ref() == Some(&first) {
        let message = format!("duplicate variable name: {first}");
        return Err(Issue::new(message, parser.span_of(args[1])));
    }
    let filter = filtered.then(|| args[variables]);
    let body = args[args.len() - 1];
    let it = Loop { kind, range, first, second, filter, body };
    Ok(Some(parser.add(ExprKind::Loop(Box::new(it)), span)))
}

fn variable_name(parser: &CelParser<'_>, arg: ExprId, problem: &str) -> Parsed<Str> {
    match &parser.exprs[arg.index()].kind {
        ExprKind::Ident { name, absolute: false } => Ok(name.clone()),
        _ => Err(Issue::new(problem, parser.span_of(arg))),
    }
}

/// One argument is a list or a number, more are put into a list.
fn extreme(parser: &mut CelParser<'_>, function: &str, args: &[ExprId], span: Span) -> Parsed {
    for arg in args {
        let number = match &parser.exprs[arg.index()].kind {
            ExprKind::Literal(Literal::Int(_) | Literal::UInt(_) | Literal::Double(_)) => true,
            ExprKind::Literal(_) | ExprKind::Map(_) | ExprKind::Struct { .. } => false,
            ExprKind::List(elements) => args.len() == 1 && !elements.is_empty(),
            _ => true,
        };
        if !number {
            let message = format!("math.{function}() invalid single argument value");
            let message = if args.len() == 1 {
                message
            } else {
                format!("math.{function}() simple literal arguments must be numeric")
            };
            return Err(Issue::new(message, parser.span_of(*arg)));
        }
    }
    let args = if args.len() > 2 {
        let elements =
            args.iter().map(|&value| super::ast::Element { value, optional: false }).collect();
        vec![parser.add(ExprKind::List(elements), span)]
    } else {
        args.to_vec()
    };
    let function = Str::new_static(if function == "greatest" { "math.@max" } else { "math.@min" });
    Ok(parser.add(ExprKind::Call { target: None, function, args }, span))
}

fn block(
    parser: &mut CelParser<'_>,
    function: &str,
    args: &[ExprId],
    span: Span,
) -> Parsed<Option<ExprId>> {
    let numbers: Option<Vec<u64>> = args
        .iter()
        .map(|arg| match parser.exprs[arg.index()].kind {
            ExprKind::Literal(Literal::Int(number)) => u64::try_from(number).ok(),
            _ => None,
        })
        .collect();
    let kind = match (function, numbers.as_deref(), args) {
        ("index", Some([slot]), _) => ExprKind::Ident { name: slot_name(*slot), absolute: false },
        ("iterVar", Some([depth, unique]), _) => {
            ExprKind::Ident { name: Str::from(format!("@it:{depth}:{unique}")), absolute: false }
        }
        ("block", _, [list, body]) => match &parser.exprs[list.index()].kind {
            ExprKind::List(elements) if elements.iter().all(|element| !element.optional) => {
                let numbered = elements.iter().zip(0u64..);
                let slots = numbered.map(|(element, at)| (slot_name(at), element.value)).collect();
                ExprKind::Bind { slots, body: *body }
            }
            _ => {
                let message = "cel.block requires the first arg to be a list literal";
                return Err(Issue::new(message, parser.span_of(*list)));
            }
        },
        _ => return Err(Issue::new(format!("invalid argument to cel.{function}"), span)),
    };
    Ok(Some(parser.add(kind, span)))
}

fn slot_name(slot: u64) -> Str {
    Str::from(format!("@index{slot}"))
}
