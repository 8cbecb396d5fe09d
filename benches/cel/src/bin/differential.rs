//! Random expressions through Kiln and `cel-core`: both give the same value, or both fail.
//!
//! Left out is what `cel-core` does differently from cel-go: indexing strings, negative indices,
//! splitting by nothing, `+` of maps, `in` with keys no map has, optional fields of scalars, texts of
//! floats, the name of optional types.
//!
//! `cargo run --release --bin differential [COUNT] [SEED]` prints every disagreement.

use kiln_cel::{NoHost, Session, Val};

struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((bits ^ (bits >> 31)) % count) as usize
    }

    fn pick<'t>(&mut self, from: &[&'t str]) -> &'t str {
        from[self.below(from.len() as u64)]
    }
}

const ATOMS: [&str; 21] = [
    "0",
    "1",
    "-1",
    "9223372036854775807",
    "2u",
    "18446744073709551615u",
    "1.5",
    "-0.0",
    "1e300",
    "true",
    "false",
    "null",
    "''",
    "'a'",
    "'aé'",
    "b'x'",
    "[]",
    "[1, 2]",
    "{'a': 1}['a']",
    "duration('90s')",
    "timestamp('2020-02-29T12:00:00Z')",
];
const BINARY: [&str; 14] =
    ["+", "-", "*", "/", "%", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "in"];
const METHODS: [&str; 18] = [
    "size()",
    "startsWith('a')",
    "contains('é')",
    "matches('a.*')",
    "getHours()",
    "getFullYear()",
    "all(x, x > 0)",
    "exists(x, x == 1)",
    "map(x, [x])",
    "filter(x, x != 1)",
    "exists_one(x, true)",
    "charAt(0)",
    "split('a')",
    "upperAscii()",
    "replace('a', 'bb')",
    "substring(1)",
    "trim()",
    "a",
];
const FUNCTIONS: [&str; 12] = [
    "int",
    "uint",
    "double",
    "bytes",
    "bool",
    "type",
    "dyn",
    "size",
    "math.abs",
    "math.ceil",
    "math.sign",
    "math.bitNot",
];

fn expression(chance: &mut Chance, depth: u32) -> String {
    if depth == 0 {
        return chance.pick(&ATOMS).to_owned();
    }
    let mut inner = || expression(chance, depth - 1);
    let (a, b) = (inner(), inner());
    match chance.below(9) {
        0..=2 => format!("({a} {} {b})", chance.pick(&BINARY)),
        3 | 4 => format!("{a}.{}", chance.pick(&METHODS)),
        5 => format!("{}({a})", chance.pick(&FUNCTIONS)),
        6 => format!("({a} ? {b} : {b})"),
        7 => format!("[{a}, {b}]"),
        _ => format!("[{a}, {b}][1]"),
    }
}

/// One text per value, the same for both sides.
fn ours(value: &Val) -> String {
    match value {
        Val::Null => "null".into(),
        Val::Bool(b) => format!("{b}"),
        Val::Int(i) => format!("{i}"),
        Val::UInt(u) => format!("{u}u"),
        Val::Double(x) => format!("{x:?}"),
        Val::String(text) => format!("{:?}", text.as_str()),
        Val::Bytes(bytes) => format!("b{bytes:?}"),
        Val::List(list) => {
            format!("[{}]", list.iter().map(|value| ours(&value)).collect::<Vec<_>>().join(","))
        }
        Val::Map(map) => {
            let mut entries: Vec<String> =
                map.iter().map(|(key, value)| format!("{}:{}", ours(&key), ours(&value))).collect();
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Val::Duration(duration) => format!("{}ns", duration.as_nanos()),
        Val::Timestamp(at) => format!("@{}.{}", at.seconds(), at.nanos()),
        Val::Type(name) => format!("type {name}"),
        Val::Optional(_) => "optional".into(),
        other => format!("{other:?}"),
    }
}

fn theirs(value: &cel_core::Value) -> Option<String> {
    use cel_core::{MapKey, Value};
    Some(match value {
        Value::Null => "null".into(),
        Value::Bool(b) => format!("{b}"),
        Value::Int(i) => format!("{i}"),
        Value::UInt(u) => format!("{u}u"),
        Value::Double(x) => format!("{x:?}"),
        Value::String(text) => format!("{text:?}"),
        Value::Bytes(bytes) => format!("b{bytes:?}"),
        Value::List(list) => {
            format!("[{}]", list.iter().map(theirs).collect::<Option<Vec<_>>>()?.join(","))
        }
        Value::Map(map) => {
            let mut entries = Vec::new();
            for (key, value) in map.iter() {
                let key = match key {
                    MapKey::String(text) => format!("{text:?}"),
                    MapKey::Int(i) => format!("{i}"),
                    MapKey::UInt(u) => format!("{u}u"),
                    MapKey::Bool(b) => format!("{b}"),
                };
                entries.push(format!("{key}:{}", theirs(value)?));
            }
            entries.sort();
            format!("{{{}}}", entries.join(","))
        }
        Value::Duration(duration) => format!("{}ns", duration.to_nanos()),
        Value::Timestamp(at) => format!("@{}.{}", at.seconds, at.nanos),
        Value::Type(ty) => format!("type {}", ty.name),
        Value::Optional(_) => "optional".into(),
        Value::Error(_) => return None,
        other => format!("{other:?}"),
    })
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (count, seed) = (args.next().unwrap_or(100_000), args.next().unwrap_or(1));
    let mut chance = Chance(seed);
    let env = kiln_cel::Env::suite();
    let core = cel_core::Env::with_standard_library().with_all_extensions();
    let (mut values, mut failures, mut differences) = (0, 0, 0);
    for _ in 0..count {
        let depth = 1 + chance.below(3) as u32;
        let source = expression(&mut chance, depth);
        // Mixed types are the interesting part, so neither side refuses them first.
        let mut host = NoHost;
        let a = env.compile_unchecked(&source).ok().and_then(|program| {
            Session::new(&env, &mut host).eval(&program).ok().map(|value| ours(&value))
        });
        let b = core
            .parse_only(&source)
            .ok()
            .and_then(|ast| theirs(&core.program(&ast).ok()?.eval_empty()));
        match &a {
            _ if a != b => {
                differences += 1;
                println!("{source}\n  kiln {a:?}\n  core {b:?}");
            }
            Some(_) => values += 1,
            None => failures += 1,
        }
    }
    println!("{values} equal values, {failures} failures on both sides, {differences} differences");
}
