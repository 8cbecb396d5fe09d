//! `kiln lsp`

use std::io::{self, BufRead, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kiln_diagnostic::Diagnostic;
use kiln_editor::LanguageServer;
use kiln_kustomize::fs::Disk;
use serde_json::Value as Json;

use crate::exit::{CommandOutcome, CommandResult};
use crate::ui::Ui;

/// Serve editors with the Language Server Protocol
///
/// Editors start this command and talk to it on standard input and output. It gives diagnostics with quick fixes, hover, completion, definitions and formatting
/// for policies, kustomizations and tests. Nothing is fetched and no program is run.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Accepted because editors pass it; there is no other transport
    #[arg(long)]
    stdio: bool,

    /// Process of the editor; accepted because editors pass it
    #[arg(long = "clientProcessId", value_name = "PID", hide = true)]
    client_process_id: Option<u32>,
}

/// A message is not larger than this.
const LARGEST: usize = 64 << 20;

pub(crate) fn run(ui: &Ui, _: &Args) -> CommandResult {
    ui.has_formats_of("lsp")?;
    let mut server = LanguageServer::new(Some(&Disk));
    let mut input = io::stdin().lock();
    let mut output = io::stdout().lock();
    loop {
        let message = match receive(&mut input) {
            Ok(Some(message)) => message,
            // The editor has gone.
            Ok(None) => return Ok(CommandOutcome::Done),
            Err(error) => {
                return Err(Diagnostic::error(format!("cannot read a message: {error}"))
                    .hint("editors start this command; try `kiln check` for files")
                    .into());
            }
        };
        // A request that panics is answered with an error, and the next one is served.
        let answers =
            catch_unwind(AssertUnwindSafe(|| server.handle(&message))).unwrap_or_else(|_| {
                LanguageServer::failed(&message, "the server failed").into_iter().collect()
            });
        for answer in answers {
            let text = answer.to_string();
            write!(output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
        }
        output.flush()?;
        if let Some(code) = server.exit_code() {
            return Ok(CommandOutcome::Code(code));
        }
    }
}

/// The next message; none at the end of the input.
fn receive(input: &mut impl BufRead) -> io::Result<Option<Json>> {
    let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
    let mut length = None;
    loop {
        let mut line = String::new();
        // A header is short: what goes on and on is not one.
        if input.by_ref().take(4096).read_line(&mut line)? == 0 {
            return if length.is_none() { Ok(None) } else { Err(invalid("it ends in its header")) };
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("Content-Length")
        {
            length =
                Some(value.trim().parse::<usize>().map_err(|_| invalid("its length is wrong"))?);
        }
    }
    let length = length.ok_or_else(|| invalid("it has no Content-Length"))?;
    if length > LARGEST {
        return Err(invalid("it is too large"));
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body)?;
    serde_json::from_slice(&body).map(Some).map_err(|error| invalid(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::receive;

    #[test]
    fn messages_are_framed_by_their_length() {
        let text = "Content-Length: 4\r\nContent-Type: x\r\n\r\ntruecontent-length: 2\r\n\r\n{}";
        let mut input = text.as_bytes();
        assert_eq!(receive(&mut input).unwrap().unwrap(), serde_json::json!(true));
        assert_eq!(receive(&mut input).unwrap().unwrap(), serde_json::json!({}));
        assert!(receive(&mut input).unwrap().is_none());
        for text in [
            "Content-Length: x\r\n\r\n",
            "a: b\r\n\r\n",
            "Content-Length: 9\r\n\r\n{}",
            "Content-Length: 99999999999\r\n\r\n",
        ] {
            assert!(receive(&mut text.as_bytes()).is_err(), "{text}");
        }
    }
}
