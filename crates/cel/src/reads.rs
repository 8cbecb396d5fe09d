//! Which fields of a variable an expression reads, as far as they are known before it runs.

use std::collections::HashSet;

use kiln_value::Str;

use crate::Span;
use crate::syntax::ast::{Ast, ExprId, ExprKind, Literal};

/// The fields below a variable that an expression reads, each path as long as it goes, with the place of its last step.
/// Elements of lists are passed over, and so are optional fields (`.?`); what `has` asks for counts.
pub(crate) fn reads(ast: &Ast, variable: &str) -> Vec<(Span, Vec<Str>)> {
    if ast.exprs.iter().any(|expr| declares(&expr.kind, variable)) {
        return Vec::new();
    }
    let inner: HashSet<usize> = ast
        .exprs
        .iter()
        .filter_map(|expr| match &expr.kind {
            ExprKind::Select { operand, optional: false, .. }
            | ExprKind::Index { operand, optional: false, .. } => Some(operand.index()),
            _ => None,
        })
        .collect();
    let outer = (0..ast.exprs.len()).filter(|at| !inner.contains(at));
    outer
        .filter_map(|at| u32::try_from(at).ok().map(ExprId))
        .filter_map(|id| Some((ast.span(id), path(ast, id, variable)?)))
        .filter(|(_, path)| !path.is_empty())
        .collect()
}

/// Whether an expression gives the name another meaning in a part of it.
fn declares(kind: &ExprKind, name: &str) -> bool {
    match kind {
        ExprKind::Loop(each) => {
            each.first == name || each.second.as_ref().is_some_and(|second| second == name)
        }
        ExprKind::Bind { slots, .. } => slots.iter().any(|(slot, _)| slot == name),
        ExprKind::OptMap { variable, .. } => variable == name,
        _ => false,
    }
}

fn path(ast: &Ast, mut id: ExprId, variable: &str) -> Option<Vec<Str>> {
    let mut fields = Vec::new();
    loop {
        id = match ast.kind(id) {
            ExprKind::Ident { name, .. } => {
                fields.reverse();
                return (name == variable).then_some(fields);
            }
            ExprKind::Select { operand, field, optional: false } => {
                fields.push(field.clone());
                *operand
            }
            ExprKind::Index { operand, index, optional: false } => {
                if let ExprKind::Literal(Literal::String(key)) = ast.kind(*index) {
                    fields.push(key.clone());
                }
                *operand
            }
            _ => return None,
        };
    }
}
