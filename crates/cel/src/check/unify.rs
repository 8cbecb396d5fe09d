//! Which type fits where, and what type parameters stand for.
//!
//! The rules are those of cel-go's checker. Trying an overload leaves no traces when it does not
//! fit: every binding is on a trail and can be taken back.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use kiln_value::Str;

use crate::Type;

#[derive(Default)]
pub(super) struct Unifier {
    /// What each type variable stands for, by number.
    bindings: Vec<Option<Type>>,
    /// Old bindings, to go back to.
    trail: Vec<(u32, Option<Type>)>,
    /// Whether null may stand for maps and lists too.
    nullable_aggregates: bool,
}

impl Unifier {
    pub(super) fn new(nullable_aggregates: bool) -> Self {
        Unifier { nullable_aggregates, ..Unifier::default() }
    }

    pub(super) fn fresh(&mut self) -> Type {
        self.bindings.push(None);
        Type::Variable(u32::try_from(self.bindings.len() - 1).unwrap_or(u32::MAX))
    }

    /// Replaces the parameters of a declaration by fresh variables.
    pub(super) fn instantiate(&mut self, ty: &Type, names: &mut FxHashMap<Str, Type>) -> Type {
        match ty {
            Type::Param(name) => match names.get(name) {
                Some(known) => known.clone(),
                None => {
                    let fresh = self.fresh();
                    names.insert(name.clone(), fresh.clone());
                    fresh
                }
            },
            Type::List(element) => Type::list(self.instantiate(element, names)),
            Type::Map(entry) => {
                let key = self.instantiate(&entry.0, names);
                Type::map(key, self.instantiate(&entry.1, names))
            }
            Type::Opaque(name, params) if !params.is_empty() => Type::Opaque(
                name.clone(),
                params.iter().map(|param| self.instantiate(param, names)).collect(),
            ),
            _ => ty.clone(),
        }
    }

    /// Puts in what variables stand for. `finally` turns unknown ones into dyn.
    pub(super) fn resolve(&self, ty: &Type, finally: bool) -> Type {
        match self.follow(ty) {
            Type::Variable(_) if finally => Type::Dyn,
            Type::List(element) => Type::list(self.resolve(element, finally)),
            Type::Map(entry) => {
                Type::map(self.resolve(&entry.0, finally), self.resolve(&entry.1, finally))
            }
            Type::Opaque(name, params) if !params.is_empty() => {
                let params: Arc<[Type]> =
                    params.iter().map(|param| self.resolve(param, finally)).collect();
                Type::Opaque(name.clone(), params)
            }
            known => known.clone(),
        }
    }

    /// What a variable stands for in the end; chains of variables can be long, so no recursion.
    fn follow<'t>(&'t self, mut ty: &'t Type) -> &'t Type {
        while let Type::Variable(number) = ty {
            match &self.bindings[*number as usize] {
                Some(bound) => ty = bound,
                None => break,
            }
        }
        ty
    }

    /// Whether a value of type `from` may stand where `to` is wanted; binds variables if so.
    pub(super) fn assignable(&mut self, from: &Type, to: &Type) -> bool {
        self.all_assignable(std::iter::once((from, to)))
    }

    /// Whether each `from` fits its `to`, all under one binding of variables.
    pub(super) fn all_assignable<'t>(
        &mut self,
        mut pairs: impl Iterator<Item = (&'t Type, &'t Type)>,
    ) -> bool {
        let mark = self.trail.len();
        let fits = pairs.all(|(from, to)| self.fits(from, to));
        if fits {
            if mark == 0 {
                self.trail.clear();
            }
            return true;
        }
        while self.trail.len() > mark {
            if let Some((number, old)) = self.trail.pop() {
                self.bindings[number as usize] = old;
            }
        }
        false
    }

    fn bind(&mut self, number: u32, ty: Type) {
        let old = self.bindings[number as usize].replace(ty);
        self.trail.push((number, old));
    }

    fn fits(&mut self, from: &Type, to: &Type) -> bool {
        if let Type::Variable(number) = to {
            let (valid, bound) = self.substitutes(from, *number);
            if valid {
                return true;
            }
            if bound {
                return false;
            }
        }
        if let Type::Variable(number) = from {
            return self.substitutes(to, *number).0;
        }
        if from.is_dyn() || to.is_dyn() {
            return true;
        }
        match (from, to) {
            (Type::Null, other) | (other, Type::Null) => self.nullable(other),
            (Type::List(a), Type::List(b)) => self.fits(a, b),
            (Type::Map(a), Type::Map(b)) => self.fits(&a.0, &b.0) && self.fits(&a.1, &b.1),
            (Type::Opaque(a, p), Type::Opaque(b, q)) => {
                a == b && p.len() == q.len() && p.iter().zip(q.iter()).all(|(a, b)| self.fits(a, b))
            }
            _ => from == to,
        }
    }

    // cel-go: null goes for messages, abstract types and times.
    fn nullable(&self, ty: &Type) -> bool {
        match ty {
            Type::Null | Type::Struct(_) | Type::Opaque(..) | Type::Duration | Type::Timestamp => {
                true
            }
            Type::Map(_) | Type::List(_) => self.nullable_aggregates,
            _ => false,
        }
    }

    /// Whether the variable may stand for the type, and whether it stood for something before.
    fn substitutes(&mut self, ty: &Type, number: u32) -> (bool, bool) {
        if *ty == Type::Variable(number) {
            return (true, true);
        }
        if let Some(bound) = self.bindings[number as usize].clone() {
            if bound == *ty {
                return (true, true);
            }
            if !self.fits(ty, &bound) {
                return (false, true);
            }
            let general = most_general(ty, &bound).clone();
            if !self.occurs(number, &general) {
                self.bind(number, general);
            }
            return (true, true);
        }
        if self.occurs(number, ty) {
            return (false, false);
        }
        self.bind(number, ty.clone());
        (true, false)
    }

    fn occurs(&self, number: u32, ty: &Type) -> bool {
        let mut ty = ty;
        while let Type::Variable(other) = ty {
            if *other == number {
                return true;
            }
            match &self.bindings[*other as usize] {
                Some(bound) => ty = bound,
                None => return false,
            }
        }
        match ty {
            Type::List(element) => self.occurs(number, element),
            Type::Map(entry) => self.occurs(number, &entry.0) || self.occurs(number, &entry.1),
            Type::Opaque(_, params) => params.iter().any(|param| self.occurs(number, param)),
            _ => false,
        }
    }

    /// The type of a place that holds both, if one fits the other.
    pub(super) fn join(&mut self, previous: &Type, current: &Type) -> Option<Type> {
        if !self.assignable(previous, current) {
            return None;
        }
        // `[{}, null]`: the type that says more about values wins over null.
        if *previous == Type::Null {
            return Some(current.clone());
        }
        if *current == Type::Null {
            return Some(previous.clone());
        }
        Some(most_general(previous, current).clone())
    }
}

fn most_general<'t>(a: &'t Type, b: &'t Type) -> &'t Type {
    if equal_or_less_specific(a, b) { a } else { b }
}

fn equal_or_less_specific(a: &Type, b: &Type) -> bool {
    match (a, b) {
        (Type::Dyn | Type::Error | Type::Variable(_), _) => true,
        (_, Type::Dyn | Type::Error | Type::Variable(_)) => false,
        (Type::List(a), Type::List(b)) => equal_or_less_specific(a, b),
        (Type::Map(a), Type::Map(b)) => {
            equal_or_less_specific(&a.0, &b.0) && equal_or_less_specific(&a.1, &b.1)
        }
        (Type::Opaque(a, p), Type::Opaque(b, q)) => {
            a == b
                && p.len() == q.len()
                && p.iter().zip(q.iter()).all(|(a, b)| equal_or_less_specific(a, b))
        }
        _ => a == b,
    }
}
