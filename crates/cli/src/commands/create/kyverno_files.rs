//! `kiln create test` and its neighbours: the files that Kyverno's command line creates, with its options.
//!
//! Values are built and printed, so that whatever is typed is quoted as YAML needs it. Tests and values have the
//! `apiVersion` and `kind` that both programs want.

use std::io::Write;
use std::path::PathBuf;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Map, Value, json, value};
use kiln_yaml::{EmitOptions, KeyOrder, emit_into};

use crate::exit::{CommandFailure, CommandOutcome, CommandResult};
use crate::input;
use crate::ui::Ui;

/// What is created besides kustomizations.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum KyvernoFile {
    /// Create a test suite, as kyverno create test does
    Test(TestArgs),
    /// Create a PolicyException
    Exception(ExceptionArgs),
    /// Create a ConfigMap with the namespaces that metrics are kept for
    MetricsConfig(MetricsArgs),
    /// Create a file of kind UserInfo, for kiln apply and kiln test
    UserInfo(UserInfoArgs),
    /// Create a file of kind Values, for kiln apply and kiln test
    Values(ValuesArgs),
    /// Create a ClusterRole for controllers, aggregated to theirs
    ClusterRole(ClusterRoleArgs),
}

#[derive(Debug, clap::Args)]
pub(crate) struct OutputArgs {
    /// File to write [default: standard output]
    #[arg(short, long, value_name = "PATH")]
    output: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct TestArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// Name of the test
    #[arg(short, long, default_value = "test-name")]
    name: String,
    /// Policy files; repeat or separate with commas
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    policy: Vec<String>,
    /// Resource files; repeat or separate with commas
    #[arg(short, long, value_name = "FILE", value_delimiter = ',')]
    resource: Vec<String>,
    /// Values file
    #[arg(short = 'f', long, value_name = "FILE")]
    values: Option<String>,
    /// Expected pass: POLICY,RULE,RESOURCE,NAMESPACE,KIND[,PATCHED]; repeatable
    #[arg(long, value_name = "RESULT")]
    pass: Vec<String>,
    /// Expected fail, likewise
    #[arg(long, value_name = "RESULT")]
    fail: Vec<String>,
    /// Expected skip, likewise
    #[arg(long, value_name = "RESULT")]
    skip: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ExceptionArgs {
    /// Name of the exception
    name: String,
    #[command(flatten)]
    output: OutputArgs,
    /// Namespace of the exception
    #[arg(long, default_value = "default")]
    namespace: String,
    /// Whether background scans honor it
    #[arg(short, long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    background: bool,
    /// Policy and its rules: POLICY,RULE,RULE; repeatable
    #[arg(long, required = true, value_name = "POLICY,RULE")]
    policy_rules: Vec<String>,
    /// Resources of which one must match: kind=Pod,name=test-*,namespace=shop,operation=CREATE; repeatable
    #[arg(long, value_name = "FILTER")]
    any: Vec<String>,
    /// Resources that must all match, likewise
    #[arg(long, value_name = "FILTER")]
    all: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct MetricsArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// Name of the ConfigMap
    #[arg(short, long, default_value = "kyverno-metrics")]
    name: String,
    /// Namespace of the ConfigMap
    #[arg(long, default_value = "kyverno")]
    namespace: String,
    /// Included namespaces; repeat or separate with commas
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',')]
    include: Vec<String>,
    /// Excluded namespaces; repeat or separate with commas
    #[arg(short, long, value_name = "NAMESPACE", value_delimiter = ',')]
    exclude: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct UserInfoArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// Name of the user
    #[arg(short, long, default_value = "", hide_default_value = true)]
    username: String,
    /// Roles; repeat or separate with commas
    #[arg(short, long, value_name = "ROLE", value_delimiter = ',')]
    role: Vec<String>,
    /// ClusterRoles; repeat or separate with commas
    #[arg(short, long, value_name = "ROLE", value_delimiter = ',')]
    cluster_role: Vec<String>,
    /// Groups; repeat or separate with commas
    #[arg(short, long, value_name = "GROUP", value_delimiter = ',')]
    group: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ValuesArgs {
    #[command(flatten)]
    output: OutputArgs,
    /// Labels of a namespace: NAMESPACE,KEY=VALUE; repeatable
    #[arg(short, long, value_name = "NAMESPACE,LABEL")]
    ns_selector: Vec<String>,
    /// Values for all policies, KEY=VALUE; repeat or separate with commas
    #[arg(short, long, value_name = "KEY=VALUE", value_delimiter = ',')]
    global: Vec<String>,
    /// Values of a rule: POLICY,RULE,KEY=VALUE; repeatable
    #[arg(long, value_name = "POLICY,RULE,VALUE")]
    rule: Vec<String>,
    /// Values of a resource: POLICY,RESOURCE,KEY=VALUE; repeatable
    #[arg(long, value_name = "POLICY,RESOURCE,VALUE")]
    resource: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct ClusterRoleArgs {
    /// Name of the role, without kyverno- before and -permission behind it
    name: String,
    #[command(flatten)]
    output: OutputArgs,
    /// Controllers that get the permissions; repeat or separate with commas
    #[arg(
        long,
        default_value = "background-controller",
        value_name = "NAME",
        value_delimiter = ','
    )]
    controllers: Vec<String>,
    /// API group of the resources
    #[arg(short = 'g', long, value_name = "GROUP")]
    api_groups: String,
    /// Verbs, or all; repeat or separate with commas
    #[arg(long, required = true, value_name = "VERB", value_delimiter = ',')]
    verbs: Vec<String>,
    /// Resources; repeat or separate with commas
    #[arg(long, required = true, value_name = "RESOURCE", value_delimiter = ',')]
    resources: Vec<String>,
}

pub(super) fn run(ui: &Ui, file: &KyvernoFile) -> CommandResult {
    let (value, output) = match file {
        KyvernoFile::Test(args) => (test(args)?, &args.output),
        KyvernoFile::Exception(args) => (exception(args)?, &args.output),
        KyvernoFile::MetricsConfig(args) => (metrics_config(args), &args.output),
        KyvernoFile::UserInfo(args) => (user_info(args), &args.output),
        KyvernoFile::Values(args) => (values(args)?, &args.output),
        KyvernoFile::ClusterRole(args) => (cluster_role(args), &args.output),
    };
    let text = in_order(&value);
    match &output.output {
        Some(path) => input::write_file(path, &text)?,
        None => {
            let mut out = ui.data();
            out.write_all(text.as_bytes())?;
            out.flush()?;
        }
    }
    Ok(CommandOutcome::Done)
}

/// YAML in the order in which people write it.
fn in_order(value: &Value) -> String {
    let mut text = String::new();
    emit_into(&mut text, value, &EmitOptions { key_order: KeyOrder::AsIs });
    text
}

fn texts(list: &[String]) -> Value {
    list.iter().map(String::as_str).collect()
}

/// `KEY=VALUE`.
fn pair<'t>(text: &'t str, option: &str) -> Result<(&'t str, &'t str), CommandFailure> {
    text.split_once('=')
        .filter(|(key, _)| !key.is_empty())
        .ok_or_else(|| Diagnostic::error(format!("{option}: {text:?} is not KEY=VALUE")).into())
}

fn pairs(parts: &[&str], option: &str) -> Result<Map, CommandFailure> {
    parts.iter().map(|part| pair(part, option)).collect()
}

fn test(args: &TestArgs) -> Result<Value, CommandFailure> {
    let mut results = Vec::new();
    for (word, given) in [("pass", &args.pass), ("fail", &args.fail), ("skip", &args.skip)] {
        for text in given {
            let parts: Vec<&str> = text.split(',').collect();
            let (policy, rule, resource, namespace, kind, patched) = match parts.as_slice() {
                [policy, rule, resource, namespace, kind] => {
                    (*policy, *rule, *resource, *namespace, *kind, None)
                }
                [policy, rule, resource, namespace, kind, patched] => {
                    (*policy, *rule, *resource, *namespace, *kind, Some(*patched))
                }
                _ => {
                    return Err(Diagnostic::error(format!("--{word}: {text:?} is not a result"))
                        .hint("write POLICY,RULE,RESOURCE,NAMESPACE,KIND; what a resource lacks stays empty")
                        .into());
                }
            };
            let resource = match namespace {
                "" => resource.to_owned(),
                namespace => format!("{namespace}/{resource}"),
            };
            let mut result = Map::from_iter([("policy", Value::from(policy))]);
            if !rule.is_empty() {
                result.insert("rule", rule);
            }
            result.insert("kind", kind);
            result.insert("resources", Value::from_iter([resource]));
            if let Some(patched) = patched {
                result.insert("patchedResources", patched);
            }
            result.insert("result", word);
            results.push(Value::from(result));
        }
    }
    let mut fields = Map::from_iter([
        ("apiVersion", Value::from("cli.kyverno.io/v1alpha1")),
        ("kind", Value::from("Test")),
        ("metadata", value!({"name": (&args.name)})),
        ("policies", texts(&args.policy)),
        ("resources", texts(&args.resource)),
    ]);
    if let Some(values) = &args.values {
        fields.insert("variables", values.as_str());
    }
    fields.insert("results", Value::from_iter(results));
    Ok(Value::from(fields))
}

fn exception(args: &ExceptionArgs) -> Result<Value, CommandFailure> {
    let mut exceptions = Vec::new();
    for text in &args.policy_rules {
        let mut parts = text.split(',');
        let policy = parts.next().unwrap_or_default();
        let rules: Value = parts.collect();
        if rules.as_list().is_none_or(|rules| rules.is_empty()) {
            return Err(Diagnostic::error(format!("--policy-rules: {text:?} names no rule"))
                .hint("write POLICY,RULE,RULE; the rule * means all")
                .into());
        }
        exceptions.push(value!({"policyName": (policy), "ruleNames": (rules)}));
    }
    let mut matched = Map::new();
    for (word, given) in [("any", &args.any), ("all", &args.all)] {
        let filters: Vec<Value> =
            given.iter().map(|text| filter(text, word)).collect::<Result<_, CommandFailure>>()?;
        if !filters.is_empty() {
            matched.insert(word, Value::from_iter(filters));
        }
    }
    if matched.is_empty() {
        return Err(Diagnostic::error("an exception must match resources")
            .hint("give --any kind=Pod,name=test-*")
            .into());
    }
    Ok(value!({
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": (&args.name), "namespace": (&args.namespace)},
        "spec": {
            "background": (args.background),
            "match": (matched),
            "exceptions": (exceptions),
        },
    }))
}

/// `kind=Pod,name=test-*` as a filter.
fn filter(text: &str, option: &str) -> Result<Value, CommandFailure> {
    let option = format!("--{option}");
    let mut lists: Vec<(&str, Vec<&str>)> = Vec::new();
    for part in text.split(',') {
        let (key, value) = pair(part, &option)?;
        let field = match key {
            "kind" => "kinds",
            "name" => "names",
            "namespace" => "namespaces",
            "operation" => "operations",
            _ => {
                return Err(Diagnostic::error(format!("{option}: there is no filter by {key}"))
                    .hint("filters are kind, name, namespace and operation")
                    .into());
            }
        };
        match lists.iter_mut().find(|(known, _)| *known == field) {
            Some((_, list)) => list.push(value),
            None => lists.push((field, vec![value])),
        }
    }
    let fields: Map = lists
        .into_iter()
        .map(|(field, list)| (field, list.into_iter().collect::<Value>()))
        .collect();
    Ok(value!({"resources": (fields)}))
}

fn metrics_config(args: &MetricsArgs) -> Value {
    let mut namespaces = Map::new();
    for (word, list) in [("include", &args.include), ("exclude", &args.exclude)] {
        if !list.is_empty() {
            namespaces.insert(word, texts(list));
        }
    }
    value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": (&args.name), "namespace": (&args.namespace)},
        "data": {"namespaces": (json::to_string_pretty(&Value::from(namespaces)))},
    })
}

fn user_info(args: &UserInfoArgs) -> Value {
    value!({
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "UserInfo",
        "metadata": {"name": "user-info"},
        "roles": (texts(&args.role)),
        "clusterRoles": (texts(&args.cluster_role)),
        "userInfo": {"username": (&args.username), "groups": (texts(&args.group))},
    })
}

fn values(args: &ValuesArgs) -> Result<Value, CommandFailure> {
    let split = |text: &str, option: &str| -> Result<(String, String, Map), CommandFailure> {
        let parts: Vec<&str> = text.split(',').collect();
        let [policy, name, rest @ ..] = parts.as_slice() else {
            return Err(Diagnostic::error(format!("{option}: {text:?} names only one thing"))
                .hint("write POLICY,NAME,KEY=VALUE")
                .into());
        };
        Ok(((*policy).to_owned(), (*name).to_owned(), pairs(rest, option)?))
    };
    let mut policies = Vec::new();
    for (field, option, given) in
        [("rules", "--rule", &args.rule), ("resources", "--resource", &args.resource)]
    {
        for text in given {
            let (policy, name, values) = split(text, option)?;
            let one = value!([{"name": (name), "values": (values)}]);
            policies
                .push(Value::from(Map::from_iter([("name", Value::from(policy)), (field, one)])));
        }
    }
    let mut selectors = Vec::new();
    for text in &args.ns_selector {
        let parts: Vec<&str> = text.split(',').collect();
        let labels = pairs(&parts[1..], "--ns-selector")?;
        selectors.push(value!({"name": (parts[0]), "labels": (labels)}));
    }
    let globals: Vec<&str> = args.global.iter().map(String::as_str).collect();
    Ok(value!({
        "apiVersion": "cli.kyverno.io/v1alpha1",
        "kind": "Values",
        "metadata": {"name": "values"},
        "policies": (policies),
        "globalValues": (pairs(&globals, "--global")?),
        "namespaceSelector": (selectors),
    }))
}

fn cluster_role(args: &ClusterRoleArgs) -> Value {
    let labels: Map = args
        .controllers
        .iter()
        .map(|name| (format!("rbac.kyverno.io/aggregate-to-{name}"), Value::from("true")))
        .collect();
    let all = ["create", "get", "update", "delete", "list", "watch"].map(str::to_owned);
    let is_all = args.verbs.first().is_some_and(|verb| verb == "all");
    let verbs: &[String] = if is_all { &all } else { &args.verbs };
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": (format!("kyverno-{}-permission", args.name)), "labels": (labels)},
        "rules": [{
            "apiGroups": [(&args.api_groups)],
            "resources": (texts(&args.resources)),
            "verbs": (texts(verbs)),
        }],
    })
}
