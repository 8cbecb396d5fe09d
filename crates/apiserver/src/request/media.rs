//! What bodies are written in, and what answers may be.

use kiln_value::{KeyTable, Value, json};
use kiln_yaml::{DuplicateKeys, ReadOptions};

use crate::request::ApiRequest;
use crate::status::RequestFailure;
use crate::types::{envelope, types};

/// The limit of request bodies: that of kube-apiserver.
pub const LONGEST_BODY: usize = 3 * 1024 * 1024;

const ACCEPTED: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";

/// The media type of a header, without parameters.
pub(crate) fn media_type(header: &str) -> &str {
    header.split(';').next().unwrap_or_default().trim()
}

/// A body, read.
#[derive(Debug)]
pub(crate) struct RequestBody {
    pub(crate) value: Value,
    /// A key that occurs twice in one map.
    pub(crate) duplicate: Option<String>,
}

/// Reads the object that a request holds; `kind` is what it should be.
pub(crate) fn read(request: &ApiRequest, kind: &str) -> Result<RequestBody, RequestFailure> {
    if request.body.len() > LONGEST_BODY {
        let message = format!("Request entity too large: limit is {LONGEST_BODY}");
        return Err(RequestFailure::new(413, "RequestEntityTooLarge", message));
    }
    let unreadable = |why: &str| {
        unrecognized(request, kind, &format!("couldn't get version/kind; json parse error: {why}"))
    };
    match media_type(request.header("Content-Type").unwrap_or_default()) {
        "" | "application/json" => {
            match json::parse_bytes_unique(&request.body, &mut KeyTable::new()) {
                Ok(value) => Ok(RequestBody { value, duplicate: None }),
                Err(error) => match json::parse_bytes(&request.body, &mut KeyTable::new()) {
                    Ok(value) => {
                        Ok(RequestBody { value, duplicate: Some(quoted(&error.to_string())) })
                    }
                    Err(error) => {
                        Err(unreadable(&go_json_error(&request.body, &error.to_string())))
                    }
                },
            }
        }
        "application/yaml" => yaml(&request.body)
            .map(|value| RequestBody { value, duplicate: None })
            .map_err(|why| RequestFailure::bad_request(format!("yaml: {why}"))),
        "application/vnd.kubernetes.protobuf" => {
            let value = envelope(&request.body).and_then(|envelope| {
                match types().kind(&envelope.api_version, &envelope.kind) {
                    Some(id) => envelope.decode(id),
                    None => Err(format!(
                        "no kind {:?} is registered for version {:?}",
                        envelope.kind, envelope.api_version
                    )),
                }
            });
            value.map(|value| RequestBody { value, duplicate: None }).map_err(|why| {
                RequestFailure::bad_request(format!(
                    "{kind} cannot be decoded from protobuf: {why}"
                ))
            })
        }
        _ => Err(RequestFailure::unsupported(ACCEPTED)),
    }
}

/// A body that is not a Kubernetes object.
pub(crate) fn unrecognized(request: &ApiRequest, kind: &str, why: &str) -> RequestFailure {
    RequestFailure::bad_request(format!(
        "the object provided is unrecognized (must be of type {kind}): {why} ({})",
        summary(&request.body)
    ))
}

/// What Kubernetes shows of a body: the beginning of an object, the bytes of anything else.
fn summary(body: &[u8]) -> String {
    const MOST: usize = 30;
    let shown = body.get(..MOST).unwrap_or(body);
    let text = match body.first() {
        None => return "<empty>".to_owned(),
        Some(b'{') => String::from_utf8_lossy(shown).into_owned(),
        Some(_) => shown.iter().map(|byte| format!("{byte:02x}")).collect(),
    };
    if shown.len() < body.len() { format!("{text} ...") } else { text }
}

/// The first text in quotes.
fn quoted(message: &str) -> String {
    message.split(['"', '`', '\'']).nth(1).unwrap_or_default().to_owned()
}

/// The first document of a YAML text.
pub(crate) fn yaml(bytes: &[u8]) -> Result<Value, String> {
    // Go: of a key that occurs twice the last one counts.
    let options =
        ReadOptions { duplicate_keys: DuplicateKeys::LastWins, ..ReadOptions::kubernetes() };
    let documents =
        kiln_yaml::read_bytes("body", bytes, options).map_err(|problem| problem.to_string())?;
    Ok(documents.into_iter().next().map(kiln_yaml::Document::into_value).unwrap_or_default())
}

/// Why JSON cannot be read, in Go's words as far as they are known.
pub(crate) fn go_json_error(body: &[u8], ours: &str) -> String {
    let lower = ours.to_lowercase();
    if body.iter().all(u8::is_ascii_whitespace) || lower.contains("eof") || lower.contains("end of")
    {
        return "unexpected end of JSON input".to_owned();
    }
    if lower.contains("trailing") {
        return "invalid character after top-level value".to_owned();
    }
    format!("invalid JSON: {ours}")
}

/// The form of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseForm {
    Object,
    Table,
    /// `PartialObjectMetadata`, or a list of them.
    Metadata,
}

/// In which form the client wants its answer: the first that is served.
pub(crate) fn accepted(request: &ApiRequest) -> Result<(ResponseForm, bool), RequestFailure> {
    let header = request.headers_of("Accept").collect::<Vec<_>>().join(",");
    if header.trim().is_empty() {
        return Ok((ResponseForm::Object, false));
    }
    for part in header.split(',') {
        let parameter = |name: &str| {
            let parts = part.split(';').skip(1).map(str::trim);
            parts
                .filter_map(|pair| pair.split_once('='))
                .find(|(key, _)| *key == name)
                .map(|(_, value)| value)
        };
        let yaml = match media_type(part) {
            "application/json" | "*/*" | "application/*" => false,
            "application/yaml" => true,
            _ => continue,
        };
        match parameter("as") {
            None => return Ok((ResponseForm::Object, yaml)),
            Some("Table") if parameter("v").is_none_or(|version| version == "v1") => {
                return Ok((ResponseForm::Table, yaml));
            }
            Some("PartialObjectMetadata" | "PartialObjectMetadataList") => {
                return Ok((ResponseForm::Metadata, yaml));
            }
            Some(_) => {}
        }
    }
    let message = format!("406: Not Acceptable\n\nAvailable representations: {ACCEPTED}");
    Err(RequestFailure::new(406, "NotAcceptable", message).with_details(Value::map()))
}
