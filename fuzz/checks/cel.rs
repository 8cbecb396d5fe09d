//! Any text compiles or is refused, and what compiles ends within its budget.

use std::sync::LazyLock;

use kiln_cel::{Env, NoHost, PolicyScope, Session};

static ENVS: LazyLock<[Env; 2]> =
    LazyLock::new(|| [Env::suite(), Env::policies(PolicyScope::Cluster)]);

pub(crate) fn check(input: &[u8]) {
    let Ok(source) = std::str::from_utf8(input) else { return };
    for env in ENVS.iter() {
        let _ = env.compile(source);
        if let Ok(program) = env.compile_unchecked(source) {
            let mut host = NoHost;
            let mut session = Session::new(env, &mut host);
            let _ = session.eval_json(&program);
            assert!(session.cost() <= 1_000_000);
        }
    }
}
