//! Expressions that try to overflow the stack, run forever or eat memory.
//!
//! Everything runs on a thread with a stack of 2 MB, as a server's worker has it.

use std::sync::LazyLock;

use kiln_cel::{Budget, Env, EvalErrorKind, NoHost, PolicyScope, Program, Session, Type, Val};
use proptest::prelude::*;

const STACK: usize = 2 << 20;
const COST: &str = "operation cancelled: actual cost limit exceeded";

fn small_stack<T: Send>(run: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK);
        thread.spawn_scoped(scope, run).expect("a thread").join().expect("no panic")
    })
}

/// The value's debug form, or the message, and the cost.
fn eval(source: &str) -> (Result<Val, String>, u64) {
    let env = Env::suite();
    let program = match env.compile(source) {
        Ok(program) => program,
        Err(error) => return (Err(error.issues[0].message.clone()), 0),
    };
    let mut host = NoHost;
    let mut session = Session::new(&env, &mut host);
    let result = session.eval(&program).map_err(|error| error.to_string());
    (result, session.cost())
}

fn message(source: &str) -> String {
    eval(source).0.map_or_else(|message| message, |value| format!("{value:?}"))
}

#[test]
fn values_that_share_their_parts_are_counted_when_they_become_json() {
    let env = Env::policies(PolicyScope::Cluster);
    let doubled = format!("json.marshal([1.0]{})", ".map(x,[x,x])".repeat(40));
    let program = env.compile(&doubled).unwrap();
    let mut host = NoHost;
    let error = Session::new(&env, &mut host).eval(&program).unwrap_err().to_string();
    assert!(error.contains("too large") || error.contains(COST), "{error}");
    for hidden in ["[optional.of(double('NaN'))]", "{'a': [double('Infinity')]}"] {
        let program = env.compile(&format!("json.marshal({hidden})")).unwrap();
        let error = Session::new(&env, &mut host).eval(&program).unwrap_err().to_string();
        assert!(error.contains("not finite"), "{hidden}: {error}");
    }
}

#[test]
fn long_chains_need_no_stack() {
    small_stack(|| {
        let (value, cost) = eval(&format!("0{}", "+1".repeat(49_000)));
        assert!(matches!(value, Ok(Val::Int(49_000))), "{value:?}");
        assert_eq!(cost, 49_000);
        for (chain, wanted) in [
            (format!("true{}", "&&true".repeat(16_000)), "Bool(true)"),
            (format!("false{}", "||false".repeat(14_000)), "Bool(false)"),
            (format!("{}true", "!".repeat(99_000)), "Bool(true)"),
            (format!("{}1", "-".repeat(99_000)), "Int(1)"),
            (format!("{{}}{}", ".?a".repeat(33_000)), "Optional(None)"),
            (format!("[]{}", "[?0]".repeat(24_000)), "Optional(None)"),
            (format!("[1]{}", ".map(x,x)".repeat(11_000)), "List("),
            (format!("'a'{}", ".trim()".repeat(14_000)), "String"),
            (format!("optional.none(){}", ".or(optional.none())".repeat(4_900)), "Optional(None)"),
            (format!("[{}]", "[],".repeat(33_000)), "List("),
        ] {
            let got = message(&chain);
            assert!(got.starts_with(wanted), "{}…: {got:.200}", &chain[..20]);
        }
        let got = message(&format!("x{}", ".a".repeat(49_000)));
        assert!(got.starts_with("undeclared reference"), "{got}");
    });
}

#[test]
fn what_is_too_long_or_too_deep_is_refused() {
    small_stack(|| {
        assert_eq!(
            message(&format!("0{}", "+1".repeat(100_000))),
            "expression code point size exceeds limit: size: 200001, limit 100000"
        );
        let deep = "expression recursion limit exceeded: 250";
        for (open, inner, close) in [
            ("(", "1", ")"),
            ("[", "1", "]"),
            ("{1:", "1", "}"),
            ("size(", "1", ")"),
            ("[1].map(x,", "1", ")"),
            ("true?true:", "1", ""),
            ("cel.bind(x,1,", "1", ")"),
            ("[0][", "0", "]"),
            ("-(", "1", ")"),
        ] {
            let nested = |count| format!("{}{inner}{}", open.repeat(count), close.repeat(count));
            let most = 99_000 / (open.len() + close.len());
            assert_eq!(message(&nested(most)), deep, "{open}");
            // Just below the limit it is parsed, checked and run without trouble.
            assert_ne!(message(&nested(240)), deep, "{open}");
        }
        // Without the limit on the length, nesting alone is what stops it.
        assert_eq!(message(&format!("{}1", "(".repeat(99_999))), deep);
    });
}

#[test]
fn nested_loops_stop_at_the_budget() {
    small_stack(|| {
        let env = Env::suite().extend().variable("l", Type::list(Type::Int)).build();
        let loops = "l.all(a, l.all(b, l.all(c, l.all(d, a + b + c + d >= 0))))";
        let program = env.compile(loops).unwrap();
        let mut host = NoHost;
        let mut session = Session::new(&env, &mut host);
        session.set("l", Val::from_elements((0..1000).map(Val::Int)));
        let error = session.eval(&program).unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (EvalErrorKind::Budget, COST));
        assert_eq!(session.cost(), 1_000_000);
        // The session as a whole has a limit too.
        for _ in 0..20 {
            assert!(session.eval(&program).is_err());
        }
        assert_eq!(session.cost(), 10_000_000);
    });
}

#[test]
fn budget_errors_are_not_absorbed() {
    small_stack(|| {
        for source in [
            "lists.range(2000000).size() > 0 || true",
            "true && !(lists.range(2000000).size() > 0) || true",
            "[1].exists(x, lists.range(2000000).size() > 0 || x == 1)",
            "[0, 1].all(x, lists.range(2000000).size() == x)",
        ] {
            assert_eq!(message(source), COST, "{source}");
        }
    });
}

/// A value that doubles with every named step.
fn doubling(first: &str, step: &str, steps: usize, last: &str) -> String {
    let mut slots = vec![first.to_owned()];
    for at in 0..steps {
        slots.push(step.replace('@', &format!("cel.index({at})")));
    }
    let last = last.replace('@', &format!("cel.index({steps})"));
    format!("cel.block([{}], {last})", slots.join(", "))
}

#[test]
fn building_large_values_stops_at_the_budget() {
    small_stack(|| {
        for (source, wanted) in [
            (doubling("'0123456789'", "@ + @", 40, "@.size()"), COST),
            (doubling("b'0123456789'", "@ + @", 40, "@.size()"), COST),
            (doubling("[1]", "@ + @", 40, "@.size()"), COST),
            (doubling("'ab'", "@.replace('', @)", 30, "@.size()"), COST),
            (doubling("'ab'", "[@, @].join('-')", 30, "@.size()"), COST),
            (doubling("'%s%s'", "'%s%s'.format([@, @])", 30, "@.size()"), COST),
            (doubling("[1]", "[@, @]", 40, "@ == @ && [@] == [@]"), COST),
            (doubling("[1]", "[@, @]", 40, "'%s'.format([@])"), COST),
            (doubling("[1]", "[@, @]", 40, "[@].flatten(100).size()"), COST),
            (doubling("{1: 1}", "{1: @, 2: @}", 40, "@ == {1: @}[1]"), COST),
            (
                doubling(
                    "optional.of(1)",
                    "optional.of([@, @])",
                    40,
                    "@ == optional.of(@.value())",
                ),
                COST,
            ),
            ("'a'.matches('(a{1000}){1000}')".to_owned(), "invalid"),
            ("lists.range(9223372036854775807)".to_owned(), COST),
            (doubling("[1]", "[@]", 2_000, "@ == @"), "values nest more than 150 levels deep"),
            (
                doubling("{1: 1}", "{1: @}", 2_000, "@ == @"),
                "values nest more than 150 levels deep",
            ),
            (
                doubling("optional.of(1)", "optional.of(@)", 2_000, "@ == @"),
                "values nest more than 150 levels deep",
            ),
            (doubling("1", "@ + 1", 2_000, "@"), "variables nest too deep"),
        ] {
            let got = message(&source);
            // Either limit is fine for what is both deep and large; a result is not.
            let deep = got == "variables nest too deep";
            assert!(got.contains(wanted) || deep, "{source:.60}…: {got:.200}");
        }
    });
}

#[test]
fn ten_megabytes_of_text_are_too_much_for_one_expression() {
    small_stack(|| {
        let env = Env::suite().extend().variable("s", Type::String).build();
        let mut host = NoHost;
        let mut session = Session::new(&env, &mut host);
        session.set("s", "x".repeat(1 << 20));
        let twice = env.compile("(s + s).size() == 2097152").unwrap();
        assert!(matches!(session.eval(&twice), Ok(Val::Bool(true))));
        let many = env.compile("s + s + s + s + s + s + s + s + s + s").unwrap();
        assert_eq!(session.eval(&many).unwrap_err().message, COST);
    });
}

#[test]
fn whatever_looks_at_text_pays_by_its_length() {
    let text = "1".repeat(20_000);
    for source in [
        "size('T')",
        "int('T')",
        "uint('T')",
        "double('T')",
        "timestamp('T')",
        "duration('T')",
        "bytes('T')",
        "'T'.startsWith('x')",
        "'T'.contains('x')",
        "'T'.lowerAscii()",
        "'T'.split('x')",
        "'T' == 'T'",
        "'T' < 'T'",
        "['T', 'T'].sort()",
    ] {
        let (_, cost) = eval(&source.replace('T', &text));
        assert!(cost >= 2_000, "{source}: {cost}");
    }
}

#[test]
fn sorting_pays_for_the_texts_that_it_compares() {
    let text = "x".repeat(50_000);
    let twice = |list: String| format!("{list}.map(i, [i, i]).flatten()");
    let list = (0..6).fold(format!("['{text}']"), |list, _| twice(list));
    assert_eq!(message(&format!("{list}.sort().size()")), COST);
}

#[test]
fn results_have_a_size_limit_as_json() {
    small_stack(|| {
        let env = Env::suite();
        let program = env.compile(&doubling("['0123456789']", "[@, @]", 30, "@")).unwrap();
        let mut host = NoHost;
        let mut session = Session::new(&env, &mut host);
        let error = session.eval_json(&program).unwrap_err();
        assert_eq!(error.message, "the result is too large");
    });
}

#[test]
fn an_interrupt_ends_the_evaluation_soon() {
    let env = Env::suite();
    let program = env.compile("lists.range(900).all(x, lists.range(900).all(y, x >= 0))").unwrap();
    let mut host = NoHost;
    let mut asked = 0;
    let budget = Budget { expression: u64::MAX, total: u64::MAX, ..Budget::default() };
    let mut session =
        Session::with_budget(&env, &mut host, budget).interrupt(Box::new(move || {
            asked += 1;
            asked > 3
        }));
    let error = session.eval(&program).unwrap_err();
    assert_eq!(error.kind, EvalErrorKind::Interrupted);
    assert!(session.cost() < 10_000, "{}", session.cost());
}

#[test]
fn chains_of_variables_are_limited_not_fatal() {
    small_stack(|| {
        let mut env = Env::policies(PolicyScope::Cluster);
        let mut programs: Vec<(String, Program)> = Vec::new();
        for at in 0..800 {
            let source = match at {
                0 => "0".to_owned(),
                _ => format!("variables.v{} + 1", at - 1),
            };
            let program = env.compile(&source).unwrap();
            env = env.extend().policy_variable(&format!("v{at}"), Type::Int).build();
            programs.push((format!("v{at}"), program));
        }
        let mut host = NoHost;
        let mut session = Session::new(&env, &mut host);
        for (name, program) in &programs {
            session.set_policy_variable(name, program.clone());
        }
        let shallow = env.compile("variables.v200").unwrap();
        assert!(matches!(session.eval(&shallow), Ok(Val::Int(200))));
        session.forget_variables();
        let deep = env.compile("variables.v799").unwrap();
        assert!(session.eval(&deep).unwrap_err().to_string().contains("variables nest too deep"));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_text_makes_the_compiler_panic(source in "[-a-c0-9.?:(){}\\[\\]'\"`+*/%!&|<>=, \\\\x]{0,60}") {
        static ENVS: LazyLock<[Env; 2]> =
            LazyLock::new(|| [Env::suite(), Env::policies(PolicyScope::Cluster)]);
        for env in ENVS.iter() {
            let _ = env.compile(&source);
            if let Ok(program) = env.compile_unchecked(&source) {
                let mut host = NoHost;
                let _ = Session::new(env, &mut host).eval_json(&program);
            }
        }
    }
}
