//! Expressions compiled with their types, every slip with its place inside the text.

use kiln_cel::{Asker, Env, Program, Type};
use kiln_diagnostic::Diagnostic;
use kiln_rules::{Expression, NamedExpression};
use kiln_value::Path;
use kiln_yaml::part_of;

use crate::document_reader::{DocumentNode, Report};

/// What the value of an expression must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExpectedType {
    /// Anything.
    Any,
    /// True or false.
    Bool,
    /// True or false, or lists of them: what calls of the generator give.
    Calls,
    /// Text, or null.
    Text,
    /// Text, and nothing else.
    Message,
    /// An answer to a request, or null.
    Answer(Asker),
    /// A map: an object, or a List of objects.
    Map,
    /// A part of an object, as `Object{…}`.
    Object,
    /// A list of `JSONPatch{…}`.
    Patches,
}

impl ExpectedType {
    fn takes(self, ty: &Type) -> bool {
        match self {
            ExpectedType::Any => true,
            ExpectedType::Bool => *ty == Type::Bool,
            ExpectedType::Calls => match ty {
                Type::List(element) => self.takes(element),
                ty => *ty == Type::Bool || ty.is_dyn(),
            },
            ExpectedType::Map => matches!(ty, Type::Map(_)) || ty.is_dyn(),
            ExpectedType::Object => matches!(ty, Type::Struct(name) if name == "Object"),
            ExpectedType::Patches => match ty {
                Type::List(element) => {
                    element.is_dyn()
                        || matches!(&**element, Type::Struct(name) if name == "JSONPatch")
                }
                _ => false,
            },
            ExpectedType::Text => matches!(ty, Type::String | Type::Null) || ty.is_dyn(),
            ExpectedType::Message => *ty == Type::String,
            ExpectedType::Answer(asker) => *ty == Type::Null || *ty == asker.answer_type(),
        }
    }

    // Kyverno's words.
    fn refusal(self) -> &'static str {
        match self {
            ExpectedType::Any => "",
            ExpectedType::Bool | ExpectedType::Calls => "output is expected to be of type bool",
            ExpectedType::Map => "output type must be a map",
            ExpectedType::Object => "output is expected to be of type Object",
            ExpectedType::Patches => "output is expected to be of type list",
            ExpectedType::Text => "output is expected to be either of type string or null_type",
            ExpectedType::Message => "output is expected to be of type string",
            ExpectedType::Answer(_) => "the expression gives neither a response nor null",
        }
    }
}

/// A text that holds an expression.
pub(super) struct Text<'t> {
    pub(super) source: &'t str,
    pub(super) path: Path,
    /// Where the expression begins in the text at the path.
    pub(super) offset: usize,
    /// The whole text at the path.
    pub(super) whole: &'t str,
}

/// Compiles an expression; every slip is reported.
pub(super) fn compile(
    env: &Env,
    text: &Text<'_>,
    wanted: ExpectedType,
    report: &Report<'_>,
) -> Option<Expression> {
    let program = match env.compile(text.source) {
        Ok(program) => program,
        Err(error) => {
            for issue in &error.issues {
                let range = issue.span.range();
                let part = text.offset + range.start..text.offset + range.end;
                let place = part_of(&report.place(&text.path), text.whole, part);
                let hint = hint(&issue.message).or_else(|| meant(env, &issue.message));
                report.add(Diagnostic::error(&issue.message).at(place).maybe_hint(hint));
            }
            return None;
        }
    };
    if !wanted.takes(program.result_type()) {
        let found = format!("it is of type {}", program.result_type());
        report.error(&text.path, wanted.refusal(), Some(found));
        return None;
    }
    Some(Expression { program, path: text.path.clone(), offset: text.offset })
}

/// The name that an undeclared name was probably meant to be.
fn meant(env: &Env, message: &str) -> Option<String> {
    let name = message.strip_prefix("undeclared reference to '")?.split('\'').next()?;
    env.nearest(name).map(|meant| format!("did you mean {meant:?}?"))
}

/// What to do about a slip, where that can be said.
fn hint(message: &str) -> Option<String> {
    let hint = if message.contains("'apply'") || message.contains("'Apply") {
        "a cluster policy writes generator.Apply(namespace, objects), a namespaced one \
         generator.Apply(objects)"
    } else if message.starts_with("undeclared reference to 'variables'")
        || message.starts_with("undefined field")
    {
        "a value is there for those listed after it; conditions of a GeneratingPolicy see none"
    } else if message.starts_with("undeclared reference to 'jwks'") {
        "Kiln does not fetch key sets; verify tokens that are signed with a secret: jwt.Decode(token, secret)"
    } else if message.starts_with("undeclared reference to 'mcp'") {
        "Kiln does not have the library mcp; read the body of the request with json.Unmarshal"
    } else {
        return None;
    };
    Some(hint.to_owned())
}

/// Compiles the expression that a node holds.
pub(super) fn node(
    env: &Env,
    node: &DocumentNode<'_, '_>,
    wanted: ExpectedType,
) -> Option<Expression> {
    let text = node.text()?;
    let text = Text { source: &text, path: node.path.clone(), offset: 0, whole: &text };
    compile(env, &text, wanted, node.report)
}

/// Compiles a list of `name` and `expression`.
pub(super) fn named(
    env: &Env,
    list: Option<DocumentNode<'_, '_>>,
    wanted: ExpectedType,
) -> Vec<NamedExpression> {
    let mut found: Vec<NamedExpression> = Vec::new();
    for element in list.map(|node| node.elements()).unwrap_or_default() {
        let Some(fields) = element.fields(&kiln_fields::kyverno::MATCH_CONDITION) else { continue };
        let (Some(name), Some(_)) =
            (fields.required_text("name"), fields.required_text("expression"))
        else {
            continue;
        };
        if found.iter().any(|known| known.name == name) {
            element.error_with(
                format!("Duplicate value: {:?}", name.as_str()),
                "give each one a name of its own",
            );
        }
        let expression =
            fields.get("expression").and_then(|expression| node(env, &expression, wanted));
        found.extend(expression.map(|expression| NamedExpression { name, expression }));
    }
    found
}

/// The type of a value as later expressions see it.
pub(super) fn type_of(program: &Program) -> Type {
    program.result_type().clone()
}
