//! The environment of policies: libraries, variables, effects and the messages users know.

use kiln_cel::{
    Effect, Env, Host, HostError, HostResult, HttpRequest, HttpResponse, PolicyScope, ResourceRef,
    Session, Timestamp, Type,
};
use kiln_value::{Str, Value, value};

/// A small world: two secrets, one global context entry, one web page.
struct World;

impl Host for World {
    fn get_resource(
        &mut self,
        resource: &ResourceRef<'_>,
        name: &str,
    ) -> HostResult<Option<Value>> {
        match (resource.resource, name) {
            ("secrets", "forbidden") => Err(HostError::forbidden("no")),
            ("secrets", "missing") => Ok(None),
            (resource, name) => Ok(Some(value!({
                "kind": resource, "metadata": {"name": name}
            }))),
        }
    }

    fn list_resources(
        &mut self,
        resource: &ResourceRef<'_>,
        labels: &[(Str, Str)],
    ) -> HostResult<Value> {
        let item = |name: &str| {
            value!({
                "apiVersion": "v1", "kind": "Secret",
                "metadata": {"name": name, "namespace": resource.namespace}
            })
        };
        let items: Vec<Value> =
            if labels.is_empty() { vec![item("a"), item("b")] } else { vec![item("a")] };
        let mut list = value!({"apiVersion": "v1", "kind": "SecretList"});
        list.set(["items"], items).unwrap();
        Ok(list)
    }

    fn global_context(&mut self, name: &str, _: Option<&str>) -> HostResult<Option<Value>> {
        Ok((name == "present").then(|| value!([1, 2])))
    }

    fn http(&mut self, request: HttpRequest<'_>) -> HostResult<HttpResponse> {
        match request.url {
            "http://page" => {
                Ok(HttpResponse { status: 404, body: Some(value!({"error": "gone"})) })
            }
            "http://list" => Ok(HttpResponse { status: 200, body: Some(value!([1])) }),
            _ => Err(HostError::new("no route")),
        }
    }

    fn now(&mut self) -> HostResult<Timestamp> {
        Ok(Timestamp::new(1_700_000_000, 0).unwrap())
    }

    fn random(&mut self) -> HostResult<u64> {
        Ok(7)
    }
}

fn object() -> Value {
    value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "nginx"}},
        "spec": {"volumes": [{"name": "v"}], "replicas": 3}
    })
}

/// Evaluates in a cluster policy: the value as JSON and the effects, or the message.
fn run(scope: &PolicyScope, source: &str) -> Result<(Value, Vec<Effect>), String> {
    let env = Env::policies(scope.clone());
    let program = env.compile(source).map_err(|error| error.issues[0].message.clone())?;
    let mut world = World;
    let mut session = Session::new(&env, &mut world);
    session.set("object", object());
    session.set("request", value!({"operation": "CREATE", "userInfo": {"username": "jo"}}));
    session.set("oldObject", Value::Null);
    let value = session.eval_json(&program).map_err(|error| error.to_string())?;
    Ok((value, session.take_effects()))
}

fn eval(source: &str) -> Result<Value, String> {
    run(&PolicyScope::Cluster, source).map(|(value, _)| value)
}

/// What a call generates: namespace, then the names of the objects.
fn generated(scope: &PolicyScope, source: &str) -> Result<Vec<String>, String> {
    let (_, effects) = run(scope, source)?;
    Ok(effects
        .iter()
        .map(|effect| {
            let Effect::Generate { namespace, objects } = effect;
            let names: Vec<&str> = objects
                .iter()
                .map(|object| object.str_at(["metadata", "name"]).unwrap_or("?"))
                .collect();
            format!("{}: {}", namespace.as_deref().unwrap_or("-"), names.join(" "))
        })
        .collect())
}

const MAP: &str =
    r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x", "namespace": "b"}}"#;

#[test]
fn generator_calls_become_effects_in_order() {
    let cluster = PolicyScope::Cluster;
    let dynamic = MAP.replace("\"v1\"", "dyn(\"v1\")");
    for (source, wanted) in [
        (format!("generator.apply('a', [{MAP}])"), vec!["a: x"]),
        (format!("generator.Apply('a', [{dynamic}])"), vec!["a: x"]),
        (format!("generator.ApplyAll('a', {MAP})"), vec!["a: x"]),
        (format!("generator.applyAll('a', [[{MAP}], {MAP}])"), vec!["a: x x"]),
        (format!("generator.apply('a', [optional.none(), optional.of({MAP})])"), vec!["a: x"]),
        (
            "generator.apply('a', [resource.list('v1', 'secrets', 'default')])".into(),
            vec!["a: a b"],
        ),
        (
            "generator.apply('a', resource.list('v1', 'secrets', 'default').items)".into(),
            vec!["a: a b"],
        ),
        (format!("['a', 'b'].all(ns, generator.apply(ns, [{MAP}]))"), vec!["a: x", "b: x"]),
        (format!("['a', 'b'].map(ns, generator.ApplyAll(ns, [{MAP}]))"), vec!["a: x", "b: x"]),
        (format!("['a', 'b'].exists(ns, generator.apply(ns, [{MAP}]))"), vec!["a: x"]),
        (format!("true || generator.apply('a', [{MAP}])"), vec![]),
        (format!("false || generator.apply('a', [{MAP}])"), vec!["a: x"]),
        ("true".into(), vec![]),
    ] {
        assert_eq!(
            generated(&cluster, &source),
            Ok(wanted.iter().map(ToString::to_string).collect()),
            "{source}"
        );
    }
    let null = generated(
        &cluster,
        "generator.apply('a', [resource.get('v1', 'secrets', 'd', 'missing')])",
    );
    assert_eq!(null, Err("failed to generate resources: [0] is null_type, not an object".into()));
}

#[test]
fn the_wrong_form_for_the_scope_does_not_compile() {
    let own = PolicyScope::Namespace(Str::new("shop"));
    assert_eq!(generated(&own, &format!("generator.apply([{MAP}])")), Ok(vec!["-: x".to_owned()]));
    for (scope, source) in [
        (&PolicyScope::Cluster, format!("generator.apply([{MAP}])")),
        (&own, format!("generator.apply('a', [{MAP}])")),
        (&own, "resource.get('v1', 'secrets', 'default', 'x')".into()),
        (&PolicyScope::Cluster, "resource.get('v1', 'secrets', 'x')".into()),
    ] {
        let message = generated(scope, &source).unwrap_err();
        assert!(message.starts_with("found no matching overload for "), "{source}: {message}");
    }
    let (value, _) =
        run(&own, "resource.list('v1', 'secrets').items[0].metadata.namespace").unwrap();
    assert_eq!(value, value!("shop"));
}

#[test]
fn expressions_have_the_values_that_kyverno_gives_them() {
    for (source, wanted) in [
        (r#"{"a": 1, "b": "x", "c": [true, null]}"#, value!({"a": 1, "b": "x", "c": [true, null]})),
        ("resource.get('v1', 'secrets', 'default', 'missing') == null", value!(true)),
        ("resource.Get('v1', 'secrets', 'default', 'x').metadata.name", value!("x")),
        ("resource.List('v1', 'secrets', '', {'a': 'b'}).items.size()", value!(1)),
        (r#"object.metadata.?labels[?"a"].orValue("none")"#, value!("none")),
        (r#"object.metadata.?annotations[?"a"].orValue("none")"#, value!("none")),
        (r#"object.metadata.?labels[?"app"].orValue("none")"#, value!("nginx")),
        ("object.spec.volumes.orValue([]).size()", value!(1)),
        ("globalContext.get('absent')", value!(null)),
        ("globalContext.Get('present')[1]", value!(2)),
        ("http.get('http://page')", value!({"error": "gone", "statusCode": 404})),
        ("http.Get('http://list').body", value!([1])),
        ("http.Client('').Post('http://list', {'a': 1}, {'h': 'v'}).statusCode", value!(200)),
        ("request.operation == 'CREATE' && request.userInfo.username == 'jo'", value!(true)),
        ("oldObject == null", value!(true)),
        (
            "image('nginx').registry() + '/' + image('nginx').repository()",
            value!("index.docker.io/library/nginx"),
        ),
        ("parseImageReference('ghcr.io/a/b:1').tag()", value!("1")),
        ("isImage('a b')", value!(false)),
        ("sha256('')", value!("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")),
        ("hash.md5('a') == md5('a') && sha1('a') == hash.sha1('a')", value!(true)),
        ("math.round(2.345, 2)", value!(2.35)),
        ("math.round(2.5)", value!(3.0)),
        ("json.unmarshal('{\"a\": [1, 2.5]}').a[0]", value!(1.0)),
        ("json.marshal({'b': 1, 'a': '<'})", value!("{\"a\":\"\\u003c\",\"b\":1}")),
        ("random('[a]{3}')", value!("aaa")),
        ("random().size()", value!(8)),
        ("time.now()", value!("2023-11-14T22:13:20Z")),
        ("time.toCron(time.now())", value!("13 22 14 11 2")),
        ("time.truncate(time.now(), duration('24h'))", value!("2023-11-14T00:00:00Z")),
        (
            "listObjToMap([{'k': 'a'}, {'k': 'b'}], [{'v': 1}, {'v': 2}], 'k', 'v')",
            value!({"a": 1, "b": 2}),
        ),
        ("gzip.decompress(gzip.compress('hello'))", value!("hello")),
        (
            "parseServiceAccount('system:serviceaccount:ns:name')",
            value!({"Name": "name", "Namespace": "ns"}),
        ),
        ("parseServiceAccount('jo')", value!({"Name": "", "Namespace": ""})),
        (
            r"{'a': {'b': [1, 2]}}.setField('a.b.1', 5).setField('x.y\\.z', true)",
            value!({"a": {"b": [1, 5]}, "x": {"y.z": true}}),
        ),
        (
            "object.metadata.setField('name', 'other').name + object.metadata.name",
            value!("otherweb"),
        ),
        ("cel.bind(r, resource, r.get('v1', 'pods', 'd', 'p').kind)", value!("pods")),
        ("exceptions == null || true", value!(true)),
    ] {
        assert_eq!(eval(source), Ok(wanted), "{source}");
    }
}

#[test]
fn kubernetes_functions() {
    for (source, wanted) in [
        ("[1, 2, 2].isSorted() && ![2, 1].isSorted()", value!(true)),
        ("[1, 2, 3].sum() + [1, 2, 2].indexOf(2) + [1, 2, 2].lastIndexOf(2)", value!(9)),
        ("[].sum()", value!(0)),
        ("['b', 'a'].min() + ['b', 'a'].max()", value!("ab")),
        ("['a'].includes('a')", value!(true)),
        ("'abc 123'.find('[0-9]+')", value!("123")),
        ("'1 22 333'.findAll('[0-9]+', 2)", value!(["1", "22"])),
        ("url('https://example.com:80/a?b=c&b=d').getQuery()", value!({"b": ["c", "d"]})),
        (
            "url('https://[::1]:80/').getHostname() + url('https://x:80/').getPort()",
            value!("::180"),
        ),
        ("isURL('not a url')", value!(false)),
        ("ip('10.0.0.1').family()", value!(4)),
        ("cidr('10.0.0.0/8').containsIP('10.1.2.3')", value!(true)),
        ("quantity('1Gi').isGreaterThan(quantity('1000Mi'))", value!(true)),
        ("quantity('500m').add(quantity('500m')).compareTo(quantity('1'))", value!(0)),
        ("string(quantity('1k').add(1))", value!("1001")),
        ("quantity('1k').asInteger() + quantity('-1').sign()", value!(999)),
        ("isQuantity('1x')", value!(false)),
        ("semver('1.2.3').isLessThan(semver('1.10.0'))", value!(true)),
        ("semver('v1.2', true).minor()", value!(2)),
        ("isSemver('v1.2')", value!(false)),
        ("format.dns1123Label().validate('ok').hasValue()", value!(false)),
        ("format.dns1123Label().validate('Not').value().size() > 0", value!(true)),
        (
            "format.named('uuid').value().validate('x').value()",
            value!(["does not match the UUID format"]),
        ),
        ("format.named('nope').hasValue()", value!(false)),
        ("jsonpatch.escapeKey('k8s.io/my~label')", value!("k8s.io~1my~0label")),
        ("[[1, 2], [3]].flatten()", value!([1, 2, 3])),
        ("[3, 1, 2].sort() + ['x'].map(x, 9)", value!([1, 2, 3, 9])),
        ("['ab', 'c'].sortBy(s, s.size())", value!(["c", "ab"])),
        ("[1, 1.0, 2].distinct()", value!([1, 2])),
        ("lists.range(3).reverse()", value!([2, 1, 0])),
        ("[1, 2].first().value() + [1, 2].last().value()", value!(3)),
        ("sets.contains([1, 2], [dyn(2.0)])", value!(true)),
        ("sets.equivalent([1, 1], [1]) && sets.intersects([1], [1, 2])", value!(true)),
        ("regex.replace('a1b22', '([a-z])([0-9]+)', r'\\2\\1')", value!("1a22b")),
        ("regex.extract('id=42', 'id=([0-9]+)').value()", value!("42")),
        ("regex.extractAll('a1b2', '[0-9]')", value!(["1", "2"])),
        ("{'a': 1}.transformMapEntry(k, v, {string(v): k})", value!({"1": "a"})),
    ] {
        assert_eq!(eval(source), Ok(wanted), "{source}");
    }
}

#[test]
fn failures_say_what_users_know() {
    for (source, wanted) in [
        ("object.metadata.annotations['x']", "no such key: annotations"),
        ("object.nothing", "no such key: nothing"),
        ("[1][2]", "index out of bounds: 2"),
        ("1 / 0", "division by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        (
            "resource.get('v1', 'secrets', 'd', 'forbidden')",
            "failed to get resource: permission denied: no",
        ),
        ("http.get('http://nowhere')", "request failed: no route"),
        ("object.spec.replicas.startsWith('x')", "no such overload"),
        ("quantity('1.5').asInteger()", "cannot convert value to integer"),
        ("[].min()", "min called on empty list"),
        ("missing", "undeclared reference to 'missing' (in container '')"),
        ("1 + 'a'", "found no matching overload for '_+_' applied to '(int, string)'"),
        (
            "'a'.startsWith(1)",
            "found no matching overload for 'startsWith' applied to 'string.(int)'",
        ),
        ("nope(1)", "undeclared reference to 'nope' (in container '')"),
        ("request.nope", "undefined field 'nope'"),
        ("'a'.b", "type 'string' does not support field selection"),
        ("variables.x", "undeclared reference to 'variables' (in container '')"),
        ("yaml.parse('a: 1')", "failed to parse YAML: reading YAML is not available here"),
    ] {
        assert_eq!(eval(source), Err(wanted.to_owned()), "{source}");
    }
}

#[test]
fn a_missing_key_has_a_place_and_a_hint() {
    let env = Env::policies(PolicyScope::Cluster);
    let mut world = World;
    let mut session = Session::new(&env, &mut world);
    session.set("object", object());
    for (source, at, hint) in [
        (
            "1 > 0 && object.metadata.annotations['a/b'] == ''",
            "object.metadata.annotations['a/b']",
            ".?annotations[?'a/b'].orValue(…)",
        ),
        ("[object][0].status", ".status", ".?status.orValue(…)"),
    ] {
        let error = session.eval(&env.compile(source).unwrap()).unwrap_err();
        assert_eq!(error.span.map(|span| &source[span.range()]), Some(at));
        assert_eq!(error.hint, Some(format!("if it may be missing, write {hint}")));
    }
}

#[test]
fn a_compile_error_points_at_its_place() {
    let env = Env::policies(PolicyScope::Cluster);
    let error = env.compile("object.a ==\n  missing").unwrap_err();
    assert_eq!(
        error.to_string(),
        "ERROR: <input>:2:3: undeclared reference to 'missing' (in container '')\n |   missing\n | ..^"
    );
    let error = env.compile_as("'x'", &[Type::Bool]).unwrap_err();
    assert_eq!(error.issues[0].message, "output is expected to be of type bool");
    let error = env.compile_as("1", &[Type::String, Type::Null]).unwrap_err();
    assert_eq!(error.issues[0].message, "output is expected to be either of type string or null");
}

#[test]
fn variables_are_lazy_computed_once_and_typed() {
    let mut env = Env::policies(PolicyScope::Cluster);
    let mut programs = Vec::new();
    for (name, source) in [
        ("bad", "object.missing.key"),
        ("n", "size(object.spec.volumes)"),
        ("twice", "variables.n + variables.n"),
        ("made", "generator.apply('a', [{'kind': 'X', 'metadata': {'name': 'once'}}])"),
    ] {
        let program = env.compile(source).unwrap();
        env = env.extend().policy_variable(name, program.result_type().clone()).build();
        programs.push((name, program));
    }
    let mut world = World;
    let mut session = Session::new(&env, &mut world);
    session.set("object", object());
    for (name, program) in &programs {
        session.set_policy_variable(name, program.clone());
    }
    let mut eval = |source: &str| {
        let program = env.compile(source).unwrap();
        session.eval_json(&program).map_err(|error| error.to_string())
    };
    assert_eq!(eval("variables.twice"), Ok(value!(2)));
    assert_eq!(eval("has(variables.n) && variables.made && variables.made"), Ok(value!(true)));
    assert_eq!(
        eval("variables.bad == 1"),
        Err("variable \"variables.bad\": no such key: missing".into())
    );
    assert_eq!(eval("variables.bad == 1 || true"), Ok(value!(true)));
    assert_eq!(session.take_effects().len(), 1);
    // A changed object does not change what was computed, unless one asks for it.
    session.set("object", value!({"spec": {"volumes": []}}));
    let twice = env.compile("variables.twice").unwrap();
    assert_eq!(session.eval_json(&twice), Ok(value!(2)));
    session.forget_variables();
    assert_eq!(session.eval_json(&twice), Ok(value!(0)));

    let message =
        |env: &Env, source: &str| env.compile(source).unwrap_err().issues[0].message.clone();
    assert_eq!(message(&env, "variables.later"), "undefined field 'later'");
    assert_eq!(
        message(&env, "variables.n + 'x'"),
        "found no matching overload for '_+_' applied to '(int, string)'"
    );
}

#[test]
fn a_variable_that_needs_itself_is_an_error() {
    let env = Env::policies(PolicyScope::Cluster)
        .extend()
        .policy_variable("a", Type::Dyn)
        .policy_variable("b", Type::Dyn)
        .build();
    let mut world = World;
    let mut session = Session::new(&env, &mut world);
    session.set_policy_variable("a", env.compile("variables.b").unwrap());
    session.set_policy_variable("b", env.compile("variables.a").unwrap());
    let program = env.compile("variables.a").unwrap();
    let error = session.eval(&program).unwrap_err().to_string();
    assert!(error.contains("depends on itself"), "{error}");
}

#[test]
fn patch_literals_are_typed_and_named_by_their_place() {
    let env = Env::policies(PolicyScope::Cluster).extend().homogeneous_literals(true).build();
    let mut world = World;
    let mut session = Session::new(&env, &mut world);
    session.set("object", object());
    let mut patch = |source: &str| {
        let program = env.compile(source).map_err(|error| error.issues[0].message.clone())?;
        let value = session.eval(&program).map_err(|error| error.to_string())?;
        value.to_patch_object(1000)
    };
    assert_eq!(
        patch(
            "Object{metadata: Object.metadata{labels: {'a': 'b'}}, spec: Object.spec{replicas: 3, ?x: optional.none()}}"
        ),
        Ok(value!({"metadata": {"labels": {"a": "b"}}, "spec": {"replicas": 3}}))
    );
    assert_eq!(
        patch("Object{spec: Object.spec{containers: [Object.spec.containers{name: 'b'}]}}"),
        Ok(value!({"spec": {"containers": [{"name": "b"}]}}))
    );
    assert_eq!(
        patch("Object{spec: Object.specx{}}"),
        Err("type mismatch: unexpected type name \"Object.specx\", expected \"Object.spec\", which matches field name path from root Object type".into())
    );
    assert_eq!(patch("true ? Object{} : Object{spec: 1}"), Ok(value!({})));
    assert_eq!(
        patch("has(Object{}.f) ? Object{f: 1} : Object{g: Object{f: 2}.f}"),
        Ok(value!({"g": 2}))
    );
    assert_eq!(patch("1"), Err("must evaluate to Object but got int".into()));
    assert_eq!(patch("JSONPatch{nope: 1}"), Err("undefined field 'nope'".into()));
    assert_eq!(patch("[1, 'a']").unwrap_err(), "expected type 'int' but found 'string'");
    let ty = |source: &str| env.check(source).map(|report| report.result.to_string());
    assert_eq!(ty("Object{}").unwrap(), "Object");
    assert_eq!(ty("[JSONPatch{op: 'remove', path: '/a'}]").unwrap(), "list(JSONPatch)");
    assert_eq!(
        ty("[1].map(i, i > 0 ? JSONPatch{op: 'test'} : null).filter(p, p != null)").unwrap(),
        "list(JSONPatch)"
    );
    assert_eq!(ty("{'a': dyn(1), 'b': dyn('x')}").unwrap(), "map(string, dyn)");
}
