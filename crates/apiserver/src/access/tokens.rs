//! Authentication: the administrator's token, tokens of ServiceAccounts, impersonation.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use kiln_value::{Map, Value, json, value};
use sha2::{Digest as _, Sha256};

use crate::access::authorization::{self, Attributes, User};
use crate::read::current;
use crate::request::media;
use crate::request::paths::RequestTarget;
use crate::request::{ApiRequest, Response};
use crate::server::{Server, ServerCall};
use crate::status::{About, FieldProblem, RequestFailure};
use crate::storage::TableKey;
use crate::types::{decode, types};

/// How long a token lasts by default, at least and at most.
const USUAL_SECONDS: i64 = 3600;
const LEAST_SECONDS: i64 = 600;
const MOST_SECONDS: i64 = 1 << 32;

fn unauthorized() -> RequestFailure {
    RequestFailure::new(401, "Unauthorized", "Unauthorized")
}

/// Paths that need no token. A client that waits for the server to start has none yet.
const OPEN: [&str; 4] = ["/healthz", "/livez", "/readyz", "/version"];

/// Authenticates a request. Anonymous requests are refused: where every client may do everything, that would
/// be every process of the machine.
pub(crate) fn authenticate(server: &Server, request: &ApiRequest) -> Result<User, RequestFailure> {
    let user = match bearer(request) {
        Some(token) if same(server.settings.admin_token.as_deref(), token) => User::admin(),
        Some(token) => verify(server, token).ok_or_else(unauthorized)?,
        None if !is_stranger(server, request) => User::admin(),
        None if OPEN.contains(&request.path.as_str()) => {
            return Ok(User {
                name: "system:anonymous".to_owned(),
                groups: vec!["system:unauthenticated".to_owned()],
                ..User::default()
            });
        }
        None => return Err(unauthorized()),
    };
    impersonate(server, request, user)
}

/// Whether a request is anonymous.
pub(crate) fn is_stranger(server: &Server, request: &ApiRequest) -> bool {
    server.settings.admin_token.is_some() && bearer(request).is_none()
}

/// The token that a request comes with.
// Kubernetes: the word before it in any case.
fn bearer(request: &ApiRequest) -> Option<&str> {
    let (scheme, token) = request.header("Authorization")?.trim().split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("Bearer") && !token.is_empty())
}

/// Compares without telling how far two texts agree.
fn same(known: Option<&str>, given: &str) -> bool {
    known.is_some_and(|known| Sha256::digest(known.as_bytes()) == Sha256::digest(given.as_bytes()))
}

fn impersonate(server: &Server, request: &ApiRequest, user: User) -> Result<User, RequestFailure> {
    let Some(name) = request.header("Impersonate-User") else { return Ok(user) };
    let parts: Vec<&str> = name.split(':').collect();
    let account = match parts.as_slice() {
        ["system", "serviceaccount", namespace, name] => Some((*namespace, *name)),
        _ => None,
    };
    let allowed = |group: &str, resource: &str, namespace: &str, name: &str| {
        let attributes = Attributes {
            verb: "impersonate".to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            ..Attributes::default()
        };
        if authorization::may(server, &user, &attributes) {
            return Ok(());
        }
        let why = authorization::refusal(&user, &attributes);
        Err(RequestFailure::forbidden(&About::new(group, resource, name), &why))
    };
    match account {
        // Kubernetes: accounts are asked for as what they are.
        Some((namespace, name)) => allowed("", "serviceaccounts", namespace, name)?,
        None => allowed("", "users", "", name)?,
    }
    let mut groups: Vec<String> =
        request.headers_of("Impersonate-Group").map(str::to_owned).collect();
    for group in &groups {
        allowed("", "groups", "", group)?;
    }
    if let Some((namespace, _)) = account
        && groups.is_empty()
    {
        groups = vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
        ];
    }
    if name != "system:anonymous" && !groups.iter().any(|group| group == "system:authenticated") {
        groups.push("system:authenticated".to_owned());
    }
    let uid = request.header("Impersonate-Uid").unwrap_or_default().to_owned();
    if !uid.is_empty() {
        allowed("authentication.k8s.io", "uids", "", &uid)?;
    }
    Ok(User { name: name.to_owned(), groups, uid, extra: Vec::new() })
}

/// HMAC with SHA-256.
fn sign(key: &[u8], message: &[u8]) -> Vec<u8> {
    let mut block = [0u8; 64];
    if key.len() > 64 {
        block[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        block[..key.len()].copy_from_slice(key);
    }
    let pad = |byte: u8| block.iter().map(|of| of ^ byte).collect::<Vec<u8>>();
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize().to_vec()
}

fn token_of(key: &[u8], claims: &Value) -> String {
    let header = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let body = format!("{header}.{}", URL_SAFE_NO_PAD.encode(json::to_string(claims)));
    format!("{body}.{}", URL_SAFE_NO_PAD.encode(sign(key, body.as_bytes())))
}

/// The claims of a token that this server made, if it still holds.
pub(crate) fn claims(server: &Server, token: &str) -> Option<Value> {
    let (body, signature) = token.rsplit_once('.')?;
    let wanted = URL_SAFE_NO_PAD.encode(sign(&server.settings.signing_key, body.as_bytes()));
    if !same(Some(&wanted), signature) {
        return None;
    }
    let claims = URL_SAFE_NO_PAD.decode(body.split_once('.')?.1).ok()?;
    let claims = json::parse(std::str::from_utf8(&claims).ok()?).ok()?;
    (claims.get("exp")?.as_i64()? > server.host.now().0).then_some(claims)
}

fn verify(server: &Server, token: &str) -> Option<User> {
    let claims = claims(server, token)?;
    let account =
        |field: &str| claims.str_at(["kubernetes.io", "serviceaccount", field]).map(str::to_owned);
    let namespace = claims.str_at(["kubernetes.io", "namespace"])?.to_owned();
    let (name, uid) = (account("name")?, account("uid")?);
    let key = TableKey::new("", "serviceaccounts");
    let state = server.read();
    let stored = state.store.get(&key, &namespace, &name)?;
    if stored.str_at(["metadata", "uid"]) != Some(uid.as_str()) {
        return None;
    }
    Some(User {
        name: format!("system:serviceaccount:{namespace}:{name}"),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        uid,
        extra: Vec::new(),
    })
}

/// How many seconds a token is asked for.
fn lifetime(request: &Value) -> Result<i64, RequestFailure> {
    let unreadable = |why: &str| {
        RequestFailure::bad_request(format!(
            "TokenRequest in version \"v1\" cannot be handled as a TokenRequest: {why}"
        ))
    };
    let id = types().kind("authentication.k8s.io/v1", "TokenRequest");
    let decoded = id.map(|id| decode(request, id)).transpose().map_err(|why| unreadable(&why))?;
    let request = decoded.map_or_else(|| request.clone(), |decoded| decoded.object);
    let Some(asked) = request.get_path(["spec", "expirationSeconds"]).filter(|n| !n.is_null())
    else {
        return Ok(USUAL_SECONDS);
    };
    let seconds = asked.as_i64().ok_or_else(|| unreadable("expirationSeconds is not a number"))?;
    let why = match seconds {
        LEAST_SECONDS..=MOST_SECONDS => return Ok(seconds),
        ..LEAST_SECONDS => "may not specify a duration less than 10 minutes",
        _ => "may not specify a duration larger than 2^32 seconds",
    };
    let problem = FieldProblem::invalid("spec.expirationSeconds", seconds, why);
    Err(RequestFailure::invalid("authentication.k8s.io", "TokenRequest", "", &[problem]))
}

/// Makes a token of a ServiceAccount.
pub(crate) fn create(server: &Server, call: &ServerCall<'_>) -> Result<Response, RequestFailure> {
    let request = media::read(call.request, "TokenRequest")?.value;
    let seconds = lifetime(&request)?;
    let target = RequestTarget { subresource: String::new(), ..call.target.clone() };
    let account = current(&server.read(), &target)?;
    let issuer = format!("https://{}", server.settings.address);
    let audiences = request
        .get_path(["spec", "audiences"])
        .filter(|list| list.as_list().is_some_and(|l| !l.is_empty()));
    let audiences = audiences.cloned().unwrap_or_else(|| Value::from(vec![issuer.as_str()]));
    let (now, _) = server.host.now();
    let uid = account.str_at(["metadata", "uid"]).unwrap_or_default();
    let (namespace, name) = (target.namespace.as_str(), target.name.as_str());
    let claims = value!({
        "aud": null, "exp": (now + seconds), "iat": now, "nbf": now, "iss": issuer,
        "jti": (crate::write::new_uid(server)),
        "kubernetes.io": {"namespace": namespace, "serviceaccount": {"name": name, "uid": uid}},
        "sub": (format!("system:serviceaccount:{namespace}:{name}")),
    });
    let mut claims = claims;
    let _ = claims.set(["aud"], audiences.clone());
    let expires = kiln_text::Time::from_unix(now + seconds, 0)
        .map_or_else(String::new, |time| time.rfc3339());
    let mut metadata = Map::new();
    metadata.insert("name", name);
    metadata.insert("namespace", namespace);
    metadata.insert("creationTimestamp", server.timestamp());
    let mut answer = value!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1"});
    let _ = answer.set(["metadata"], Value::Map(metadata));
    let bound = request.get_path(["spec", "boundObjectRef"]).cloned().unwrap_or_default();
    let mut spec = Map::new();
    spec.insert("audiences", audiences);
    spec.insert("expirationSeconds", seconds);
    spec.insert("boundObjectRef", bound);
    let _ = answer.set(["spec"], Value::Map(spec));
    let token = token_of(&server.settings.signing_key, &claims);
    let _ = answer.set(["status"], value!({"token": token, "expirationTimestamp": expires}));
    Ok(Response::json(201, &answer))
}

#[cfg(test)]
mod tests {
    use super::sign;

    #[test]
    fn signatures_are_those_of_the_standard() {
        // RFC 4231, test case 2.
        let hex: String = sign(b"Jefe", b"what do ya want for nothing?")
            .iter()
            .map(|b| format!("{b:02x}"))
            .collect();
        assert_eq!(hex, "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    }
}
