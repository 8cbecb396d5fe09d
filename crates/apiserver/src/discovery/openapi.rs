//! OpenAPI, as far as clients read it: per group and version the kinds, that they can be patched with field
//! validation, and their schemas. Descriptions are left out.

use std::collections::BTreeMap;

use kiln_object::Kind;
use kiln_value::{Map, Value, json, value};

use crate::discovery::{etag, groups};
use crate::request::{ApiRequest, Response};
use crate::server::Server;
use crate::status::RequestFailure;
use crate::types::{SchemaType, StructId, TypeField, types};

/// An empty message: version 2 has nothing that version 3 does not have.
const V2: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// Answers below `/openapi`.
pub(crate) fn answer(
    server: &Server,
    request: &ApiRequest,
    parts: &[&str],
) -> Result<Response, RequestFailure> {
    match parts {
        ["openapi", "v2"] => Ok(Response::bytes(200, V2, Vec::new())),
        ["openapi", "v3"] => {
            let mut paths = Map::new();
            for (group, versions) in groups(server) {
                for (version, _) in versions {
                    let path = if group.is_empty() {
                        format!("api/{version}")
                    } else {
                        format!("apis/{group}/{version}")
                    };
                    let hash = format!("{:016X}", server.read().served);
                    let address = format!("/openapi/v3/{path}?hash={hash}");
                    paths.insert(path, value!({"serverRelativeURL": address}));
                }
            }
            let mut answer = Map::new();
            answer.insert("paths", Value::Map(paths));
            Ok(Response::json(200, &Value::Map(answer)))
        }
        ["openapi", "v3", "api", version] => document(server, request, "", version),
        ["openapi", "v3", "apis", group, version] => document(server, request, group, version),
        _ => Ok(Response::text(404, "404 page not found\n")),
    }
}

fn document(
    server: &Server,
    request: &ApiRequest,
    group: &str,
    version: &str,
) -> Result<Response, RequestFailure> {
    let all = groups(server);
    let versions = all.into_iter().find(|(name, _)| name == group).map(|(_, versions)| versions);
    let kinds =
        versions.and_then(|versions| versions.into_iter().find(|(name, _)| name == version));
    let Some((_, kinds)) = kinds else { return Ok(Response::text(404, "404 page not found\n")) };
    let mut builder = Builder::default();
    let mut paths = Map::new();
    for kind in &kinds {
        let schema = builder.kind(server, kind);
        let (path, operations) = operations(kind, &schema);
        paths.insert(path, operations);
    }
    let mut document =
        value!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.36.4"}});
    let _ = document.set(["paths"], Value::Map(paths));
    let schemas: Map = builder.done.into_iter().collect();
    let _ = document.set(["components", "schemas"], Value::Map(schemas));
    let text = json::to_string(&document);
    let tag = etag(&text);
    if request.header("If-None-Match").is_some_and(|known| known == tag) {
        return Ok(Response { status: 304, ..Response::default() }.with_header("ETag", &tag));
    }
    let response =
        Response::bytes(200, "application/json", text.into_bytes()).with_header("ETag", &tag);
    let hashed = request.parameters().get("hash").is_some();
    Ok(if hashed { response.with_header("Cache-Control", "public, immutable") } else { response })
}

/// The path of an object, and what can be done there, as far as kubectl looks.
fn operations(kind: &Kind, schema: &str) -> (String, Value) {
    let gvk = kind.gvk();
    let prefix = match gvk.group.as_str() {
        "" => format!("/api/{}", gvk.version),
        group => format!("/apis/{group}/{}", gvk.version),
    };
    let place = if kind.is_namespaced() { "/namespaces/{namespace}" } else { "" };
    let path = format!("{prefix}{place}/{}/{{name}}", kind.plural());
    let named = value!({"group": (gvk.group.as_str()), "version": (gvk.version.as_str()), "kind": (gvk.kind.as_str())});
    let parameters = value!([
        {"name": "dryRun", "in": "query", "schema": {"type": "string"}},
        {"name": "fieldManager", "in": "query", "schema": {"type": "string"}},
        {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}},
        {"name": "force", "in": "query", "schema": {"type": "boolean"}},
    ]);
    let reference = format!("#/components/schemas/{schema}");
    let answer = value!({"200": {"description": "OK", "content": {"application/json": {"schema": {"$ref": reference}}}}});
    let mut operations = Map::new();
    for (method, action) in
        [("get", "get"), ("put", "put"), ("patch", "patch"), ("delete", "delete")]
    {
        let verb = match method {
            "put" => "update",
            other => other,
        };
        if !kind.verbs().contains(&verb) && method != "patch" {
            continue;
        }
        let mut operation = Map::new();
        operation.insert("x-kubernetes-action", action);
        operation.insert("x-kubernetes-group-version-kind", named.clone());
        if method != "get" {
            operation.insert("parameters", parameters.clone());
        }
        operation.insert("responses", answer.clone());
        operations.insert(method, Value::Map(operation));
    }
    (path, Value::Map(operations))
}

/// Schemas by their names.
#[derive(Default)]
struct Builder {
    done: BTreeMap<String, Value>,
}

/// The name of a built-in type.
fn name_of(id: StructId) -> String {
    let short = types().get(id).name;
    let (package, name) = short.rsplit_once('.').unwrap_or(("", short));
    let (group, version) = package.split_once('/').unwrap_or(("", package));
    match group {
        "meta" => format!("io.k8s.apimachinery.pkg.apis.meta.{version}.{name}"),
        "apiextensions" => {
            format!("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.{version}.{name}")
        }
        "apiregistration" => {
            format!("io.k8s.kube-aggregator.pkg.apis.apiregistration.{version}.{name}")
        }
        group => format!("io.k8s.api.{group}.{version}.{name}"),
    }
}

impl Builder {
    /// The name of a kind's schema.
    fn kind(&mut self, server: &Server, kind: &Kind) -> String {
        let gvk = kind.gvk();
        let named = value!([{"group": (gvk.group.as_str()), "version": (gvk.version.as_str()), "kind": (gvk.kind.as_str())}]);
        let state = server.read();
        if let Some(custom) = state.customs.get(&gvk) {
            let mut parts: Vec<&str> = gvk.group.split('.').collect();
            parts.reverse();
            let name = format!("{}.{}.{}", parts.join("."), gvk.version, gvk.kind);
            let mut schema = custom.schema.clone().unwrap_or_else(|| value!({"type": "object"}));
            let _ = schema.set(["properties", "apiVersion"], value!({"type": "string"}));
            let _ = schema.set(["properties", "kind"], value!({"type": "string"}));
            let metadata =
                types().kind("v1", "ConfigMap").and_then(|id| types().field(id, "metadata"));
            if let Some(field) = metadata {
                let inner = self.field(field);
                let _ = schema.set(["properties", "metadata"], inner);
            }
            let _ = schema.set(["x-kubernetes-group-version-kind"], named);
            self.done.insert(name.clone(), schema);
            return name;
        }
        drop(state);
        let Some(id) = types().kind(&gvk.api_version(), &gvk.kind) else {
            let name = format!("io.k8s.{}", gvk.kind);
            self.done.insert(
                name.clone(),
                value!({"type": "object", "x-kubernetes-group-version-kind": []}),
            );
            return name;
        };
        let name = self.structure(id);
        if let Some(schema) = self.done.get_mut(&name) {
            let _ = schema.set(["properties", "apiVersion"], value!({"type": "string"}));
            let _ = schema.set(["properties", "kind"], value!({"type": "string"}));
            let _ = schema.set(["x-kubernetes-group-version-kind"], named);
        }
        name
    }

    fn structure(&mut self, id: StructId) -> String {
        let name = name_of(id);
        if self.done.contains_key(&name) {
            return name;
        }
        self.done.insert(name.clone(), Value::Null);
        let mut properties = Map::new();
        let mut required = Vec::new();
        for field in types().fields(id) {
            properties.insert(field.name, self.field(field));
            if field.required {
                required.push(field.name);
            }
        }
        properties.sort_keys();
        let mut schema = Map::new();
        schema.insert("type", "object");
        schema.insert("properties", Value::Map(properties));
        if !required.is_empty() {
            schema.insert("required", required);
        }
        if types().get(id).atomic {
            schema.insert("x-kubernetes-map-type", "atomic");
        }
        self.done.insert(name.clone(), Value::Map(schema));
        name
    }

    fn field(&mut self, field: &TypeField) -> Value {
        let mut schema = self.ty(&field.ty);
        let keys = field.keys.as_ref();
        if let Some(keys) = keys {
            if keys.is_empty() {
                let _ = schema.set(["x-kubernetes-list-type"], "set");
            } else {
                let _ = schema.set(["x-kubernetes-list-type"], "map");
                let _ = schema.set(["x-kubernetes-list-map-keys"], keys.clone());
            }
        }
        if field.atomic {
            let _ = schema.set(["x-kubernetes-map-type"], "atomic");
        }
        if let Some(default) = &field.default {
            let _ = schema.set(["default"], default.clone());
        }
        schema
    }

    fn ty(&mut self, ty: &SchemaType) -> Value {
        match ty {
            SchemaType::String | SchemaType::Duration => value!({"type": "string"}),
            SchemaType::Bool => value!({"type": "boolean"}),
            SchemaType::Int32 => value!({"type": "integer", "format": "int32"}),
            SchemaType::Int64 => value!({"type": "integer", "format": "int64"}),
            SchemaType::Double => value!({"type": "number", "format": "double"}),
            SchemaType::Bytes => value!({"type": "string", "format": "byte"}),
            SchemaType::Time => self.named("io.k8s.apimachinery.pkg.apis.meta.v1.Time", value!({"type": "string", "format": "date-time"})),
            SchemaType::MicroTime => self.named("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", value!({"type": "string", "format": "date-time"})),
            SchemaType::Quantity => self.named(
                "io.k8s.apimachinery.pkg.api.resource.Quantity",
                value!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            ),
            SchemaType::IntOrString => self.named(
                "io.k8s.apimachinery.pkg.util.intstr.IntOrString",
                value!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            ),
            SchemaType::Raw => self.named("io.k8s.apimachinery.pkg.runtime.RawExtension", value!({"type": "object"})),
            SchemaType::Fields => self.named("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", value!({"type": "object"})),
            SchemaType::Json | SchemaType::SchemaOr(_) => value!({}),
            SchemaType::Struct(id) => {
                let name = self.structure(*id);
                value!({"allOf": [{"$ref": (format!("#/components/schemas/{name}"))}], "default": {}})
            }
            SchemaType::List(items) => {
                let mut schema = value!({"type": "array"});
                let items = self.ty(items);
                let _ = schema.set(["items"], items);
                schema
            }
            SchemaType::Map(values) => {
                let mut schema = value!({"type": "object"});
                let values = self.ty(values);
                let _ = schema.set(["additionalProperties"], values);
                schema
            }
        }
    }

    fn named(&mut self, name: &str, schema: Value) -> Value {
        self.done.entry(name.to_owned()).or_insert(schema);
        value!({"$ref": (format!("#/components/schemas/{name}"))})
    }
}
