//! The Language Server Protocol as a function: one message in, messages out.
//!
//! JSON-RPC is written by hand: a dozen methods, each a handful of fields, weigh less than the types of all of the
//! protocol.

use std::collections::BTreeMap;

use kiln_diagnostic::{Diagnostic, Severity};
use kiln_kustomize::fs::FileSystem;
use serde_json::{Value as Json, json};

use crate::text_document::{TextDocument, uri_of};
use crate::{completion, definition, diagnostics, hover, quick_fix, tidy};

const METHOD_NOT_FOUND: i64 = -32601;
const INVALID_REQUEST: i64 = -32600;
const NOT_INITIALIZED: i64 = -32002;
const REQUEST_FAILED: i64 = -32803;

/// More open documents than this are not kept.
const MOST_DOCUMENTS: usize = 1000;

/// The state of a language server: the open documents.
pub struct LanguageServer<'f> {
    files: Option<&'f dyn FileSystem>,
    documents: BTreeMap<String, TextDocument>,
    is_initialized: bool,
    is_shut_down: bool,
    exit: Option<u8>,
}

impl<'f> LanguageServer<'f> {
    /// A server that reads files that kustomizations name from here.
    pub fn new(files: Option<&'f dyn FileSystem>) -> Self {
        LanguageServer {
            files,
            documents: BTreeMap::new(),
            is_initialized: false,
            is_shut_down: false,
            exit: None,
        }
    }

    /// The exit code, once the client has asked the server to end.
    pub fn exit_code(&self) -> Option<u8> {
        self.exit
    }

    /// What is sent to the client in answer to a message.
    pub fn handle(&mut self, message: &Json) -> Vec<Json> {
        let method = message.get("method").and_then(Json::as_str);
        let null = Json::Null;
        let params = message.get("params").unwrap_or(&null);
        match (method, message.get("id")) {
            (Some(method), Some(id)) => {
                let answer = match self.request(method, params) {
                    Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
                    Err((code, text)) => error(id, code, &text),
                };
                vec![answer]
            }
            (Some(method), None) => self.notification(method, params),
            // An answer to something that this server never asks.
            (None, Some(_))
                if message.get("result").is_some() || message.get("error").is_some() =>
            {
                Vec::new()
            }
            (None, id) => {
                vec![error(id.unwrap_or(&null), INVALID_REQUEST, "a message has a method")]
            }
        }
    }

    /// The answer to a request that failed for a reason of this program.
    pub fn failed(message: &Json, text: &str) -> Option<Json> {
        const INTERNAL_ERROR: i64 = -32603;
        message.get("id").map(|id| error(id, INTERNAL_ERROR, text))
    }

    fn request(&mut self, method: &str, params: &Json) -> Result<Json, (i64, String)> {
        if method == "initialize" {
            self.is_initialized = true;
            return Ok(capabilities());
        }
        if !self.is_initialized {
            return Err((NOT_INITIALIZED, "the client has not sent initialize".to_owned()));
        }
        if self.is_shut_down {
            return Err((INVALID_REQUEST, "the server is shut down".to_owned()));
        }
        match method {
            "shutdown" => {
                self.is_shut_down = true;
                Ok(Json::Null)
            }
            "textDocument/hover" => Ok(self.hover(params).unwrap_or(Json::Null)),
            "textDocument/completion" => Ok(self.completion(params)),
            "textDocument/definition" => Ok(self.definition(params).unwrap_or(Json::Null)),
            "textDocument/codeAction" => Ok(self.code_actions(params)),
            "textDocument/formatting" => self.format(params),
            _ => Err((METHOD_NOT_FOUND, format!("there is no method {method}"))),
        }
    }

    fn notification(&mut self, method: &str, params: &Json) -> Vec<Json> {
        if method == "exit" {
            self.exit = Some(u8::from(!self.is_shut_down));
            return Vec::new();
        }
        if !self.is_initialized {
            return Vec::new();
        }
        let given = &params["textDocument"];
        let uri = given["uri"].as_str().unwrap_or_default().to_owned();
        match method {
            "textDocument/didOpen" => {
                if self.documents.len() < MOST_DOCUMENTS {
                    let text = given["text"].as_str().unwrap_or_default();
                    self.documents.insert(uri.clone(), TextDocument::new(&uri, text));
                }
                self.published(&uri, true)
            }
            "textDocument/didChange" => {
                // Whole texts: the last one counts.
                let changes = params["contentChanges"].as_array();
                let text = changes.and_then(|changes| changes.last()?["text"].as_str());
                match (text, self.documents.contains_key(&uri)) {
                    (Some(text), true) => {
                        self.documents.insert(uri.clone(), TextDocument::new(&uri, text));
                        self.published(&uri, false)
                    }
                    _ => Vec::new(),
                }
            }
            "textDocument/didSave" => self.published(&uri, true),
            "textDocument/didClose" => {
                self.documents.remove(&uri);
                vec![publish(&uri, &[])]
            }
            _ => Vec::new(),
        }
    }

    /// What is wrong with a document. Kustomizations are built when they are opened or saved, not at every key.
    fn published(&self, uri: &str, builds: bool) -> Vec<Json> {
        let Some(document) = self.documents.get(uri) else { return Vec::new() };
        let files = self.files.filter(|_| builds);
        let found = diagnostics::problems(document, files);
        let shown: Vec<Json> = found.iter().map(|problem| diagnostic(document, problem)).collect();
        vec![publish(uri, &shown)]
    }

    /// The document and the byte that a request is about.
    fn place(&self, params: &Json) -> Option<(&TextDocument, usize)> {
        let uri = params["textDocument"]["uri"].as_str()?;
        let document = self.documents.get(uri).filter(|document| !document.is_too_large())?;
        Some((document, document.offset(&params["position"])))
    }

    fn hover(&self, params: &Json) -> Option<Json> {
        let (document, at) = self.place(params)?;
        let (text, span) = hover::hover(document, at)?;
        Some(json!({
            "contents": {"kind": "markdown", "value": text},
            "range": document.range(&span),
        }))
    }

    fn completion(&self, params: &Json) -> Json {
        let items = self
            .place(params)
            .map(|(document, at)| completion::completion(document, at, self.files))
            .unwrap_or_default();
        json!({"isIncomplete": false, "items": items})
    }

    fn definition(&self, params: &Json) -> Option<Json> {
        let (document, at) = self.place(params)?;
        definition::definition(document, at, self.files)
    }

    /// Quick fixes for the problems that touch a range.
    fn code_actions(&self, params: &Json) -> Json {
        let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
        let Some(document) = self.documents.get(uri) else { return json!([]) };
        let asked = document.span(&params["range"]);
        let wants = params["context"]["only"].as_array();
        let is_wanted = wants.is_none_or(|kinds| {
            kinds.iter().any(|kind| kind.as_str().is_some_and(|kind| "quickfix".starts_with(kind)))
        });
        if !is_wanted {
            return json!([]);
        }
        let found = diagnostics::problems(document, None);
        let actions: Vec<Json> = found
            .iter()
            .filter(|problem| diagnostics::is_here(problem, document))
            .filter_map(|problem| {
                let span = problem.place.as_ref()?.span();
                let touches = span.start <= asked.end && asked.start <= span.end;
                let fix = quick_fix::quick_fix(problem).filter(|_| touches)?;
                let edit = json!({"range": document.range(&fix.span), "newText": fix.text});
                Some(json!({
                    "title": fix.title,
                    "kind": "quickfix",
                    "isPreferred": true,
                    "diagnostics": [diagnostic(document, problem)],
                    "edit": {"changes": {uri: [edit]}},
                }))
            })
            .collect();
        json!(actions)
    }

    fn format(&self, params: &Json) -> Result<Json, (i64, String)> {
        let uri = params["textDocument"]["uri"].as_str().unwrap_or_default();
        let Some(document) = self.documents.get(uri).filter(|found| !found.is_too_large()) else {
            return Ok(Json::Null);
        };
        let text = tidy(&document.path, document.text())
            .map_err(|problem| (REQUEST_FAILED, problem.to_string()))?;
        if text == document.text() {
            return Ok(json!([]));
        }
        let whole = document.range(&(0..document.text().len()));
        Ok(json!([{"range": whole, "newText": text}]))
    }
}

fn error(id: &Json, code: i64, text: &str) -> Json {
    json!({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})
}

fn capabilities() -> Json {
    json!({
        "capabilities": {
            "positionEncoding": "utf-16",
            "textDocumentSync": {"openClose": true, "change": 1, "save": true},
            "hoverProvider": true,
            "completionProvider": {"triggerCharacters": [":", " ", "-", ".", "{", "(", "/", "$"]},
            "definitionProvider": true,
            "codeActionProvider": {"codeActionKinds": ["quickfix"]},
            "documentFormattingProvider": true,
        },
        "serverInfo": {"name": "kiln", "version": env!("CARGO_PKG_VERSION")},
    })
}

fn publish(uri: &str, diagnostics: &[Json]) -> Json {
    json!({
        "jsonrpc": "2.0",
        "method": "textDocument/publishDiagnostics",
        "params": {"uri": uri, "diagnostics": diagnostics},
    })
}

fn diagnostic(document: &TextDocument, problem: &Diagnostic) -> Json {
    let span = match &problem.place {
        Some(place) if diagnostics::is_here(problem, document) => place.span(),
        _ => 0..0,
    };
    // A block is underlined in its first line.
    let line_end =
        document.text()[span.start..].find('\n').map_or(document.text().len(), |n| span.start + n);
    let span = span.start..span.end.min(line_end);
    let mut message = problem.message.clone();
    if let Some(hint) = &problem.hint {
        message.push_str(&format!("\nhelp: {hint}"));
    }
    let related: Vec<Json> = problem
        .related
        .iter()
        .map(|related| {
            let name = related.place.source().name();
            let other = TextDocument::new(&uri_of(name), related.place.source().text());
            let uri = if name == document.path { document.uri.clone() } else { other.uri.clone() };
            json!({
                "location": {"uri": uri, "range": other.range(&related.place.span())},
                "message": related.message,
            })
        })
        .collect();
    let severity = match problem.severity {
        Severity::Error => 1,
        Severity::Warning => 2,
        Severity::Note => 3,
    };
    let mut found = json!({
        "range": document.range(&span),
        "severity": severity,
        "source": "kiln",
        "message": message,
    });
    if !related.is_empty() {
        found["relatedInformation"] = json!(related);
    }
    found
}
