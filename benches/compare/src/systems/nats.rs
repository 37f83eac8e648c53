//! NATS with JetStream: a file that says where it stores and when it syncs, and one stream that
//! takes all subjects.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use super::{Running, Site, SystemError, write_file};
use crate::process::Launch;

const ASK_TIMEOUT: Duration = Duration::from_secs(10);
const STREAM: &str = concat!(
    r#"{"name":"BENCH","subjects":["bench.*"],"storage":"file","retention":"limits","#,
    r#""discard":"old","max_msgs":-1,"max_bytes":-1,"max_age":0,"num_replicas":1}"#
);
const ANSWER_MAX_BYTES: usize = 64 << 10;

/// Starts it; `sync` is its sync_interval.
pub fn start(site: &Site, sync: &str) -> Result<Running, SystemError> {
    let (program, config) = (site.programs.nats.to_string_lossy(), site.path("nats.conf"));
    let text = format!(
        "listen: \"{}\"\njetstream {{\n  store_dir: \"{}\"\n  sync_interval: \"{sync}\"\n}}\n",
        site.addr(0),
        site.path("data"),
    );
    write_file(config.as_ref(), &text)?;
    site.launch(&[Launch::new("nats", site.cpu, [&*program, "-c", &config])])
}

/// Makes the stream, or finds it as it was made.
pub fn make_stream(addr: SocketAddr) -> Result<(), SystemError> {
    let not_ready = |last: String| SystemError::NotReady {
        what: "JetStream has its stream",
        after_s: ASK_TIMEOUT.as_secs(),
        last,
    };
    let answer = ask(addr).map_err(|error| not_ready(error.to_string()))?;
    if answer.contains("\"error\"") || !answer.contains("\"config\"") {
        return Err(not_ready(answer));
    }
    Ok(())
}

fn ask(addr: SocketAddr) -> std::io::Result<String> {
    let mut socket = TcpStream::connect_timeout(&addr, ASK_TIMEOUT)?;
    socket.set_read_timeout(Some(ASK_TIMEOUT))?;
    let length = STREAM.len();
    let request = format!(
        "CONNECT {{\"verbose\":false}}\r\nSUB _INBOX.make 1\r\n\
         PUB $JS.API.STREAM.CREATE.BENCH _INBOX.make {length}\r\n{STREAM}\r\n"
    );
    socket.write_all(request.as_bytes())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    // The answer is a message; behind its line comes JSON that ends the text.
    while answer.len() < ANSWER_MAX_BYTES {
        let count = socket.read(&mut piece)?;
        if count == 0 {
            break;
        }
        answer.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&answer);
        if let Some(at) = text.find("MSG _INBOX.make")
            && text[at..].ends_with("}\r\n")
        {
            return Ok(text[at..].to_owned());
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}
