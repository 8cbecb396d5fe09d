//! What an expression takes of a variable, for hosts that fetch no more than is asked for.

use std::collections::{BTreeSet, HashSet};

use kiln_value::Str;

use crate::syntax::ast::{Ast, BinaryOp, ExprId, ExprKind, Literal};

/// What an expression takes of a variable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VariableUse {
    /// The fields that it names, in the order of names.
    pub fields: BTreeSet<Str>,
    /// It takes the variable as a whole, so that it may read any field.
    pub whole: bool,
    /// It asks whether there is one, by comparing it with null.
    pub compared: bool,
}

impl VariableUse {
    /// All of a variable, as far as is known.
    pub(crate) fn unknown() -> Self {
        VariableUse { whole: true, ..VariableUse::default() }
    }

    /// Whether the expression takes anything of it.
    pub fn is_any(&self) -> bool {
        self.whole || self.compared || !self.fields.is_empty()
    }

    /// Whether the expression may read a field of it.
    pub fn may_read(&self, field: &str) -> bool {
        self.whole || self.fields.contains(field)
    }
}

/// What an expression takes of a variable. A name that a loop gives another meaning counts as well: too much is safe.
pub(crate) fn uses(ast: &Ast, variable: &str) -> VariableUse {
    let is_it =
        |id: ExprId| matches!(ast.kind(id), ExprKind::Ident { name, .. } if name == variable);
    let is_null = |id: ExprId| matches!(ast.kind(id), ExprKind::Literal(Literal::Null));
    let mut found = VariableUse::default();
    let mut accounted = HashSet::new();
    for expr in &ast.exprs {
        match &expr.kind {
            ExprKind::Select { operand, field, .. } | ExprKind::Has { operand, field }
                if is_it(*operand) =>
            {
                found.fields.insert(field.clone());
                accounted.insert(*operand);
            }
            ExprKind::Index { operand, index, .. } if is_it(*operand) => {
                if let ExprKind::Literal(Literal::String(key)) = ast.kind(*index) {
                    found.fields.insert(key.clone());
                    accounted.insert(*operand);
                }
            }
            // Whether it is there says nothing of what is in it.
            ExprKind::Binary { op: BinaryOp::Equal | BinaryOp::NotEqual, left, right }
                if is_null(*left) || is_null(*right) =>
            {
                let named = [*left, *right].into_iter().find(|side| is_it(*side));
                found.compared |= named.is_some();
                accounted.extend(named);
            }
            _ => {}
        }
    }
    // A name in any other place is taken as a whole.
    let mut names = (0..ast.exprs.len()).filter_map(|at| u32::try_from(at).ok().map(ExprId));
    found.whole = names.any(|id| is_it(id) && !accounted.contains(&id));
    found
}

#[cfg(test)]
mod tests {
    use crate::{Env, Type};

    #[test]
    fn fields_are_told_apart_from_the_whole() {
        let env = Env::suite().extend().variable("request", Type::Dyn).build();
        for (source, fields, whole) in [
            ("1 + 1", "", false),
            ("request.userInfo.username == 'ann'", "userInfo", false),
            ("has(request.oldObject) && request['name'] == ''", "name oldObject", false),
            ("request.?options.?a.orValue('') == request.name", "name options", false),
            ("request != null && null != request", "", false),
            ("string(request) == ''", "", true),
            ("cel.bind(it, request, it.userInfo.username == '')", "", true),
            ("request['user' + 'Info'].username == ''", "", true),
            ("[request].exists(one, one.name == '')", "", true),
            ("request.kind.kind == 'request.userInfo' // request", "kind", false),
        ] {
            let program = env.compile_unchecked(source).unwrap();
            let found = program.uses("request");
            let named: Vec<&str> = found.fields.iter().map(kiln_value::Str::as_str).collect();
            assert_eq!((named.join(" ").as_str(), found.whole), (fields, whole), "{source}");
        }
    }
}
