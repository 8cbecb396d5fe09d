//! The web application, as the binary carries it. `cargo xtask web` builds it from `web`.

/// A file of the application.
pub(super) struct Asset {
    pub(super) bytes: &'static [u8],
    pub(super) content_type: &'static str,
}

/// What index.html says of its home; the application asks the process that served it instead of WebAssembly.
const HOME: &str = "<meta name=\"kiln-home\" content=\"process\">\n<title>";

pub(super) fn index() -> String {
    include_str!("../../../../../web/bundle/index.html").replacen("<title>", HOME, 1)
}

pub(super) fn asset(path: &str) -> Option<Asset> {
    let (bytes, content_type): (&[u8], &str) = match path {
        "/app.js" => {
            (include_bytes!("../../../../../web/bundle/app.js"), "text/javascript; charset=utf-8")
        }
        "/app.css" => {
            (include_bytes!("../../../../../web/bundle/app.css"), "text/css; charset=utf-8")
        }
        "/gallery.json" => {
            (include_bytes!("../../../../../web/bundle/gallery.json"), "application/json")
        }
        _ => return None,
    };
    Some(Asset { bytes, content_type })
}
