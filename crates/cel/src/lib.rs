//! The Common Expression Language on Kiln's values.
//!
//! An [`Env`] says what expressions may mention and compiles them: text is parsed (macros are
//! expanded on the way), types are checked, and the result is planned into a [`Program`]. A
//! [`Session`] binds variables and runs programs within a [`Budget`]; what library functions need
//! from outside goes through a [`Host`], and what expressions want done comes back as [`Effect`]s.
//!
//! ```
//! use kiln_cel::{Env, NoHost, Session, Type};
//! let env = Env::suite().extend().variable("object", Type::Dyn).build();
//! let program = env.compile_as("object.metadata.name.startsWith('web')", &[Type::Bool]).unwrap();
//! let mut host = NoHost;
//! let mut session = Session::new(&env, &mut host);
//! session.set("object", kiln_value::value!({"metadata": {"name": "web-1"}}));
//! assert_eq!(session.eval(&program).unwrap().as_bool(), Some(true));
//! ```
//!
//! Nothing an expression does can overflow the stack, run forever or eat memory: sources, nesting,
//! work and sizes are limited, see [`Budget`]. Nothing here does I/O or reads a clock.

mod budget;
mod check;
mod env;
mod error;
mod eval;
mod host;
mod library;
mod reads;
mod span;
mod syntax;
mod types;
mod uses;
mod value;
mod written;

pub use budget::{Budget, Interrupt};
pub use env::{CheckReport, Env, EnvBuilder, Structure};
pub use error::{CompileError, EvalError, EvalErrorKind, Issue};
pub use eval::{Program, Session};
pub use host::{
    Authorization, AuthorizationCheck, Effect, Host, HostError, HostResult, HttpRequest,
    HttpResponse, NoHost, Resource, ResourceRef,
};
pub use library::PolicyScope;
pub use library::authz::{Asker, AuthzAnswer};
pub use span::Span;
pub use syntax::{CelToken, lex};
pub use types::Type;
pub use uses::VariableUse;
pub use value::{CelList, Map, MapKey, Message, Nested, Opaque, Timestamp, ToJsonError, Val};
pub use written::WrittenValue;
