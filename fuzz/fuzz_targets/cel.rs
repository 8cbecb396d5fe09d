//! Any text compiles or is refused, and what compiles ends within its budget.

#![no_main]

use std::sync::LazyLock;

use kiln_cel::{Env, NoHost, PolicyScope, Session};
use libfuzzer_sys::fuzz_target;

static ENVS: LazyLock<[Env; 2]> =
    LazyLock::new(|| [Env::suite(), Env::policies(PolicyScope::Cluster)]);

fuzz_target!(|source: &str| {
    for env in ENVS.iter() {
        let _ = env.compile(source);
        if let Ok(program) = env.compile_unchecked(source) {
            let mut host = NoHost;
            let mut session = Session::new(env, &mut host);
            let _ = session.eval_json(&program);
            assert!(session.cost() <= 1_000_000);
        }
    }
});
