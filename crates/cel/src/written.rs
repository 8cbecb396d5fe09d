//! What an expression writes out: the maps and lists in it, as far as they are known before it runs.

use std::collections::HashSet;

use kiln_value::{Str, Value};

use crate::Span;
use crate::syntax::ast::{Ast, ExprId, ExprKind, Literal};

/// A value that is written out in an expression.
#[derive(Clone, Debug, PartialEq)]
pub enum WrittenValue {
    /// A map, or a structure such as `Object{…}`. Entries whose keys are computed are left out.
    Map {
        /// The name of a structure; none for a map.
        name: Option<Str>,
        /// The keys, each with its place and value.
        entries: Vec<(Str, Span, WrittenValue)>,
        /// Whether entries were left out.
        open: bool,
    },
    List(Vec<WrittenValue>),
    /// Text, a number, a boolean or null.
    Scalar(Value),
    /// What only shows when the expression runs.
    Computed,
}

impl WrittenValue {
    /// The value as far as it is known, with null for what is not.
    pub fn known(&self) -> Value {
        match self {
            WrittenValue::Map { entries, .. } => {
                let entries = entries.iter().map(|(key, _, value)| (key.as_str(), value.known()));
                Value::Map(entries.collect())
            }
            WrittenValue::List(items) => items.iter().map(WrittenValue::known).collect(),
            WrittenValue::Scalar(value) => value.clone(),
            WrittenValue::Computed => Value::Null,
        }
    }
}

/// The maps, structures and lists of an expression that stand in no other one, each with its place.
pub(crate) fn written(ast: &Ast) -> Vec<(Span, WrittenValue)> {
    let mut inner = HashSet::new();
    for expr in &ast.exprs {
        let children: Vec<ExprId> = match &expr.kind {
            ExprKind::List(items) => items.iter().map(|item| item.value).collect(),
            ExprKind::Map(entries) => entries.iter().map(|entry| entry.value).collect(),
            ExprKind::Struct { fields, .. } => fields.iter().map(|field| field.value).collect(),
            _ => continue,
        };
        inner.extend(children.into_iter().map(|child| undressed(ast, child).index()));
    }
    let outer = ast.exprs.iter().enumerate().filter(|(at, expr)| {
        !inner.contains(at)
            && matches!(expr.kind, ExprKind::List(_) | ExprKind::Map(_) | ExprKind::Struct { .. })
    });
    let ids = outer.filter_map(|(at, _)| u32::try_from(at).ok().map(ExprId));
    ids.map(|id| (ast.span(id), value(ast, id))).collect()
}

/// What `dyn( )` is put around.
fn undressed(ast: &Ast, mut id: ExprId) -> ExprId {
    while let ExprKind::Call { target: None, function, args } = ast.kind(id)
        && function == "dyn"
        && let [only] = args.as_slice()
    {
        id = *only;
    }
    id
}

/// The parser has seen to it that nothing nests too deep.
fn value(ast: &Ast, id: ExprId) -> WrittenValue {
    let id = undressed(ast, id);
    match ast.kind(id) {
        ExprKind::List(items) => {
            WrittenValue::List(items.iter().map(|item| value(ast, item.value)).collect())
        }
        ExprKind::Map(written) => {
            let key = |key: ExprId| match ast.kind(undressed(ast, key)) {
                ExprKind::Literal(Literal::String(text)) => Some((text.clone(), ast.span(key))),
                _ => None,
            };
            let entries: Vec<_> = written
                .iter()
                .filter_map(|entry| {
                    let (key, span) = key(entry.key)?;
                    Some((key, span, value(ast, entry.value)))
                })
                .collect();
            WrittenValue::Map { name: None, open: entries.len() < written.len(), entries }
        }
        ExprKind::Struct { name, fields } => {
            let field = |field: &crate::syntax::ast::MessageField| {
                (field.name.clone(), field.span, value(ast, field.value))
            };
            let entries = fields.iter().map(field).collect();
            WrittenValue::Map { name: Some(name.clone()), entries, open: false }
        }
        ExprKind::Literal(literal) => match literal {
            Literal::Null => WrittenValue::Scalar(Value::Null),
            Literal::Bool(flag) => WrittenValue::Scalar(Value::from(*flag)),
            Literal::Int(number) => WrittenValue::Scalar(Value::from(*number)),
            Literal::UInt(number) => WrittenValue::Scalar(Value::from(*number)),
            Literal::Double(number) => WrittenValue::Scalar(Value::from(*number)),
            Literal::String(text) => WrittenValue::Scalar(Value::from(text.as_str())),
            Literal::Bytes(_) => WrittenValue::Computed,
        },
        _ => WrittenValue::Computed,
    }
}
