//! Types of the macros that walk lists and maps.

use kiln_value::Str;

use super::Checker;
use crate::syntax::ast::{ExprId, Loop, LoopKind};
use crate::{Span, Type};

impl Checker<'_> {
    pub(super) fn comprehension(&mut self, it: &Loop, span: Span) -> Type {
        let range = self.known(it.range);
        let (key, value) = match &range {
            Type::List(element) => (Type::Int, (**element).clone()),
            Type::Map(entry) => entry.as_ref().clone(),
            Type::Dyn | Type::Error => (Type::Dyn, Type::Dyn),
            Type::Variable(_) => {
                // Nothing is known of it yet, and nothing later could say it in time for the body.
                self.unifier.assignable(&Type::Dyn, &range);
                (Type::Dyn, Type::Dyn)
            }
            other => {
                let message = format!(
                    "expression of type '{other}' cannot be range of a comprehension \
                     (must be list, map, or dynamic)"
                );
                self.issue(message, self.ast.span(it.range));
                (Type::Error, Type::Error)
            }
        };
        // A loop with one variable sees the elements of a list, and the keys of a map.
        let single = if matches!(range, Type::List(_)) { value.clone() } else { key.clone() };
        let outer = self.scopes.len();
        match &it.second {
            None => self.scopes.push((it.first.clone(), single.clone())),
            Some(second) => {
                self.scopes.push((it.first.clone(), key.clone()));
                self.scopes.push((second.clone(), value));
            }
        }
        if let Some(filter) = it.filter {
            self.check(filter);
            self.expect_bool(filter, "_?_:_", span);
        }
        self.check(it.body);
        let body = self.known(it.body);
        let ty = match it.kind {
            LoopKind::All => self.expect_bool(it.body, "_&&_", span),
            LoopKind::Exists => self.expect_bool(it.body, "_||_", span),
            LoopKind::ExistsOne => self.expect_bool(it.body, "_?_:_", span),
            LoopKind::Filter => {
                self.expect_bool(it.body, "_?_:_", span);
                Type::list(single)
            }
            LoopKind::Map => Type::list(body),
            LoopKind::TransformMap => Type::map(key, body),
            LoopKind::TransformMapEntry => match body {
                Type::Map(_) | Type::Dyn | Type::Error => body,
                other => {
                    self.issue(format!("expected type 'map(dyn, dyn)' but found '{other}'"), span)
                }
            },
            LoopKind::SortBy => self.sort_by(&range, &body, single, span),
        };
        self.scopes.truncate(outer);
        ty
    }

    fn expect_bool(&mut self, id: ExprId, function: &str, span: Span) -> Type {
        let ty = self.known(id);
        if !self.unifier.assignable(&ty, &Type::Bool) {
            return self.mismatched_logic(function, &Type::Bool, &ty, span);
        }
        Type::Bool
    }

    fn sort_by(&mut self, range: &Type, key: &Type, element: Type, span: Span) -> Type {
        let sortable = matches!(
            key,
            Type::Int
                | Type::UInt
                | Type::Double
                | Type::Bool
                | Type::Duration
                | Type::Timestamp
                | Type::String
                | Type::Bytes
                | Type::Dyn
                | Type::Error
                | Type::Variable(_)
        );
        if !sortable {
            let message =
                format!("found no matching overload for 'sortBy' applied to '{range}.({key})'");
            return self.issue(message, span);
        }
        Type::list(element)
    }

    pub(super) fn opt_map(
        &mut self,
        target: ExprId,
        variable: &Str,
        body: ExprId,
        flat: bool,
        span: Span,
    ) -> Type {
        let target = self.known(target);
        let inner = match &target {
            Type::Dyn | Type::Error => Type::Dyn,
            Type::Variable(_) => {
                self.unifier.assignable(&Type::Dyn, &target);
                Type::Dyn
            }
            other => match other.as_optional() {
                Some(inner) => inner.clone(),
                None => {
                    let message = format!(
                        "found no matching overload for 'hasValue' applied to '{other}.()'"
                    );
                    self.issue(message, span)
                }
            },
        };
        self.scopes.push((variable.clone(), inner));
        self.check(body);
        self.scopes.pop();
        let ty = self.known(body);
        if !flat {
            return Type::optional(ty);
        }
        if ty.is_dyn() || ty.as_optional().is_some() {
            return ty;
        }
        let message = format!(
            "found no matching overload for '_?_:_' applied to '(bool, {ty}, optional_type(dyn))'"
        );
        self.issue(message, span)
    }
}
