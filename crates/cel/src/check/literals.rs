//! Literals that cannot work: what would fail at every run is refused with its expression.

use kiln_text::{Duration, Regex};

use super::Checker;
use crate::library::format;
use crate::syntax::ast::{ExprId, ExprKind, Literal};
use crate::{Span, Timestamp, Type};

impl Checker<'_> {
    /// Looks at fixed texts of formats, and where literals are strict at those of times and patterns.
    pub(super) fn check_literals(&mut self) {
        let ast = self.ast;
        for (expr, at) in ast.exprs.iter().zip(0..) {
            let ExprKind::Call { target, function, args } = &expr.kind else { continue };
            let problem = match (function.as_str(), target, args.as_slice()) {
                ("format", Some(target), [list]) => self.format_problem(*target, *list),
                ("timestamp", None, [text]) => {
                    self.strict(*text, "timestamp", |text| Timestamp::parse(text).is_some())
                }
                ("duration", None, [text]) => {
                    self.strict(*text, "duration", |text| Duration::parse(text).is_ok())
                }
                ("matches", Some(_), [pattern]) | ("matches", None, [_, pattern]) => {
                    self.strict(*pattern, "matches", |pattern| Regex::new(pattern).is_ok())
                }
                _ => None,
            };
            if let Some((message, span)) = problem {
                // What the parser left over is not part of the expression.
                if self.is_part(ExprId(at)) {
                    self.issue(message, span);
                }
            }
        }
    }

    fn is_part(&self, id: ExprId) -> bool {
        !matches!(self.references[id.index()], super::Reference::None)
    }

    fn fixed_text(&self, id: ExprId) -> Option<&str> {
        match self.ast.kind(id) {
            ExprKind::Literal(Literal::String(text)) => Some(text),
            _ => None,
        }
    }

    fn strict(
        &self,
        argument: ExprId,
        function: &str,
        reads: impl Fn(&str) -> bool,
    ) -> Option<(String, Span)> {
        let text = self.fixed_text(argument).filter(|_| self.env.homogeneous_literals)?;
        let problem = || (format!("invalid {function} argument"), self.ast.span(argument));
        (!reads(text)).then(problem)
    }

    fn format_problem(&self, target: ExprId, list: ExprId) -> Option<(String, Span)> {
        let (Some(text), ExprKind::List(elements)) = (self.fixed_text(target), self.ast.kind(list))
        else {
            return None;
        };
        let verified = format::verify(text, elements.len(), |verb, at| {
            let element = elements[at].value;
            let misfit = match verb {
                's' => self.unprintable(element),
                _ => Some(self.known(element)).filter(|ty| !self.takes(verb, ty)),
            };
            match misfit {
                None => Ok(()),
                Some(ty) => Err(format!(
                    "error during formatting: %{verb} clause cannot be used on {}",
                    ty.runtime_name()
                )),
            }
        });
        verified.err().map(|problem| (problem, self.ast.span(list)))
    }

    /// Whether a verb other than `s` takes values of a type.
    fn takes(&self, verb: char, ty: &Type) -> bool {
        let kubernetes = self.env.dialect.kubernetes;
        match ty {
            Type::Dyn | Type::Error | Type::Param(_) | Type::Variable(_) => true,
            Type::Int | Type::UInt => !kubernetes || !matches!(verb, 'f' | 'e'),
            Type::Double => matches!(verb, 'f' | 'e') || verb == 'd' && !kubernetes,
            // The words for what is not finite.
            Type::String if kubernetes && matches!(verb, 'f' | 'e') => true,
            Type::String | Type::Bytes => matches!(verb, 'x' | 'X'),
            Type::Bool => verb == 'b',
            _ => false,
        }
    }

    /// The type of a part that has no text.
    fn unprintable(&self, id: ExprId) -> Option<Type> {
        let ty = self.known(id);
        if matches!(ty, Type::Opaque(..) | Type::Struct(_)) {
            return Some(ty);
        }
        match self.ast.kind(id) {
            ExprKind::List(elements) => {
                elements.iter().find_map(|element| self.unprintable(element.value))
            }
            ExprKind::Map(entries) => {
                entries.iter().find_map(|entry| self.unprintable(entry.value))
            }
            _ => None,
        }
    }
}

/// Whether two types are the same, where an open one is whatever is wanted.
pub(super) fn equivalent(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Variable(_) | Type::Error, _) | (_, Type::Variable(_) | Type::Error) => true,
        (Type::List(a), Type::List(b)) => equivalent(a, b),
        (Type::Map(a), Type::Map(b)) => equivalent(&a.0, &b.0) && equivalent(&a.1, &b.1),
        (Type::Opaque(a, of), Type::Opaque(b, other)) => {
            a == b && of.iter().zip(other.iter()).all(|(a, b)| equivalent(a, b))
        }
        _ => a == b,
    }
}
