//! The two servers, as histories are run on them.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use kiln_apiserver::{ApiRequest, Response, ResponseOrWatch, Server, Settings, Watch};
use kiln_testkit::control_plane::ControlPlane;
use kiln_testkit::server;
use kiln_value::{Value, json};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// How long events may be on their way.
const PATIENCE: Duration = Duration::from_secs(4);
/// How long more events than expected are waited for.
const SURPLUS: Duration = Duration::from_millis(8);
/// How long the real server may take for an answer.
const LONGEST_ANSWER: Duration = Duration::from_secs(60);

/// An answer that is there as a whole.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) warnings: Vec<String>,
    pub(super) body: Value,
}

/// A server to which requests are sent one after the other.
pub(super) trait Side {
    fn send(&mut self, request: &ApiRequest) -> Result<Answer>;

    /// Begins a watch; the answer, when it is refused.
    fn watch(&mut self, number: usize, request: &ApiRequest) -> Result<Option<Answer>>;

    /// What a watch has told since it was last asked. The other server told of so many.
    fn events(&mut self, number: usize, expected: usize) -> Result<Vec<Value>>;

    /// Waits until a defined kind is served at a path.
    fn wait_for_kind(&mut self, collection: &str) -> Result<()>;

    /// Ends what the history has begun.
    fn end(&mut self);
}

/// Our own, in this process. Time stands still in it.
pub(super) struct Ours {
    server: Server,
    watches: HashMap<usize, Box<Watch>>,
}

impl Ours {
    pub(super) fn new() -> Self {
        let settings = Settings { workloads: false, ..Settings::default() };
        Ours { server: server::start_with(settings), watches: HashMap::new() }
    }
}

impl Side for Ours {
    fn send(&mut self, request: &ApiRequest) -> Result<Answer> {
        Ok(answer(&self.server.call(request)))
    }

    fn watch(&mut self, number: usize, request: &ApiRequest) -> Result<Option<Answer>> {
        match self.server.handle(request) {
            ResponseOrWatch::Response(response) => Ok(Some(answer(&response))),
            ResponseOrWatch::Watch(watch) => {
                self.watches.insert(number, watch);
                Ok(None)
            }
        }
    }

    fn events(&mut self, number: usize, _expected: usize) -> Result<Vec<Value>> {
        let Some(watch) = self.watches.get_mut(&number) else { return Ok(Vec::new()) };
        let mut events = Vec::new();
        loop {
            let bytes = watch.next(&self.server);
            if bytes.is_empty() {
                return Ok(events);
            }
            for line in std::str::from_utf8(&bytes)?.lines() {
                events.push(parsed(line));
            }
        }
    }

    fn wait_for_kind(&mut self, _collection: &str) -> Result<()> {
        // What the controllers of a cluster do: the names of the kind are accepted.
        self.server.settle();
        Ok(())
    }

    fn end(&mut self) {
        self.watches.clear();
    }
}

fn answer(response: &Response) -> Answer {
    let warnings = response.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("warning"));
    Answer {
        status: response.status,
        warnings: warnings.map(|(_, text)| text.clone()).collect(),
        body: parsed(&String::from_utf8_lossy(&response.body)),
    }
}

/// JSON as a value, other text as a text.
fn parsed(text: &str) -> Value {
    json::parse(text).unwrap_or_else(|_| Value::from(text.trim_end()))
}

/// How a control plane is reached as its administrator.
#[derive(Clone)]
pub(super) struct Access {
    address: String,
    config: Arc<ClientConfig>,
}

impl Access {
    pub(super) fn of(cluster: &ControlPlane) -> Result<Self> {
        // The first to set it wins; it is ring either way.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let kubeconfig = std::fs::read_to_string(cluster.kubeconfig())?;
        let part = |key: &str| -> Result<Vec<u8>> {
            let line = kubeconfig.lines().find_map(|line| line.trim().strip_prefix(key));
            Ok(BASE64_STANDARD.decode(line.context("the kubeconfig has no keys")?.trim())?)
        };
        let mut roots = RootCertStore::empty();
        for authority in CertificateDer::pem_slice_iter(&part("certificate-authority-data:")?) {
            roots.add(authority?)?;
        }
        let chain = part("client-certificate-data:")?;
        let chain = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(&part("client-key-data:")?)?;
        let config = ClientConfig::builder()
            .with_root_certificates(roots)
            .with_client_auth_cert(chain, key)?;
        let address = cluster.url().trim_start_matches("https://").to_owned();
        Ok(Access { address, config: Arc::new(config) })
    }

    fn connect(&self) -> Result<Connection> {
        let tcp = TcpStream::connect(&self.address).context("cannot reach the API server")?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(LONGEST_ANSWER))?;
        let tls = ClientConnection::new(self.config.clone(), ServerName::try_from("127.0.0.1")?)?;
        Ok(Connection(BufReader::new(StreamOwned::new(tls, tcp))))
    }
}

/// A connection that speaks HTTP/1.
struct Connection(BufReader<StreamOwned<ClientConnection, TcpStream>>);

impl Connection {
    fn write(&mut self, request: &ApiRequest, version: &str) -> Result<()> {
        let query =
            if request.query.is_empty() { String::new() } else { format!("?{}", request.query) };
        let mut head =
            format!("{} {}{query} {version}\r\nHost: kiln\r\n", request.method, request.path);
        for (name, value) in &request.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str(&format!("Content-Length: {}\r\n\r\n", request.body.len()));
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&request.body);
        let stream = self.0.get_mut();
        stream.write_all(&bytes)?;
        stream.flush()?;
        Ok(())
    }

    /// Status and headers of an answer.
    fn head(&mut self) -> Result<(u16, Vec<(String, String)>)> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.with_context(|| format!("no status in {first:?}"))?;
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            if line.is_empty() {
                return Ok((status, headers));
            }
            if let Some((name, value)) = line.split_once(':') {
                headers.push((name.to_owned(), value.trim().to_owned()));
            }
        }
    }

    fn line(&mut self) -> Result<String> {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line)?;
        ensure!(line.ends_with(b"\n"), "the connection has ended");
        Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
    }

    fn read_answer(&mut self) -> Result<Response> {
        let (status, headers) = self.head()?;
        let mut response = Response { status, headers, body: Vec::new() };
        if response.header("Transfer-Encoding") == Some("chunked") {
            loop {
                let size = usize::from_str_radix(&self.line()?, 16).context("a bad chunk")?;
                let from = response.body.len();
                response.body.resize(from + size, 0);
                self.0.read_exact(&mut response.body[from..])?;
                self.line()?;
                if size == 0 {
                    return Ok(response);
                }
            }
        }
        let length = response.header("Content-Length").and_then(|text| text.parse().ok());
        response.body.resize(length.unwrap_or(0), 0);
        self.0.read_exact(&mut response.body)?;
        Ok(response)
    }
}

/// The real one.
pub(super) struct Real {
    access: Access,
    connection: Option<Connection>,
    watches: HashMap<usize, OpenWatch>,
}

struct OpenWatch {
    connection: Connection,
    /// The beginning of an event whose end is not there yet.
    partial: Vec<u8>,
    ended: bool,
}

impl Real {
    pub(super) fn new(access: Access) -> Self {
        Real { access, connection: None, watches: HashMap::new() }
    }
}

impl Side for Real {
    fn send(&mut self, request: &ApiRequest) -> Result<Answer> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => self.access.connect()?,
        };
        connection.write(request, "HTTP/1.1")?;
        let response = connection.read_answer()?;
        if response.header("Connection") != Some("close") {
            self.connection = Some(connection);
        }
        Ok(answer(&response))
    }

    fn watch(&mut self, number: usize, request: &ApiRequest) -> Result<Option<Answer>> {
        let mut connection = self.access.connect()?;
        // HTTP/1.0 has no chunks: the body is the lines of the events.
        connection.write(request, "HTTP/1.0")?;
        let (status, headers) = connection.head()?;
        if status != 200 {
            let mut response = Response { status, headers, body: Vec::new() };
            connection.0.read_to_end(&mut response.body).or_else(ended)?;
            return Ok(Some(answer(&response)));
        }
        self.watches.insert(number, OpenWatch { connection, partial: Vec::new(), ended: false });
        Ok(None)
    }

    fn events(&mut self, number: usize, expected: usize) -> Result<Vec<Value>> {
        let Some(watch) = self.watches.get_mut(&number) else { return Ok(Vec::new()) };
        let begin = Instant::now();
        let mut events = Vec::new();
        while !watch.ended {
            let missing = events.len() < expected;
            if missing && begin.elapsed() > PATIENCE {
                break;
            }
            let tcp = &watch.connection.0.get_ref().sock;
            tcp.set_read_timeout(Some(if missing { PATIENCE } else { SURPLUS }))?;
            match watch.connection.0.read_until(b'\n', &mut watch.partial) {
                Ok(0) => watch.ended = true,
                Ok(_) if watch.partial.ends_with(b"\n") => {
                    events.push(parsed(&String::from_utf8_lossy(&watch.partial)));
                    watch.partial.clear();
                }
                Ok(_) => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    break;
                }
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => watch.ended = true,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(events)
    }

    fn wait_for_kind(&mut self, collection: &str) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            let request = ApiRequest::new("GET", collection);
            if self.send(&request)?.status == 200 {
                // It is served; the readers of definitions hear of them a moment later.
                std::thread::sleep(Duration::from_millis(50));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        // It may be one that is not served; what follows shows whether it should be.
        Ok(())
    }

    fn end(&mut self) {
        self.watches.clear();
    }
}

/// A server that closes the connection without saying so in TLS.
fn ended(error: std::io::Error) -> std::io::Result<usize> {
    if error.kind() == ErrorKind::UnexpectedEof { Ok(0) } else { Err(error) }
}
