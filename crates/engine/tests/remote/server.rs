//! A real HTTP server on loopback, small enough to misbehave on purpose.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;

/// A request as it came in.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path.split('?').next() == Some(path)
    }
}

/// What to do about a request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// An answer.
    Answer(u16, Vec<u8>),
    /// Close the connection without a word.
    Cut,
    /// Announce the whole body, send half of it, close.
    HalfAnswer(Vec<u8>),
    /// Say nothing for this long, then close.
    Hang(Duration),
}

impl Reply {
    pub(crate) fn json(status: u16, body: &Value) -> Self {
        Self::Answer(status, body.to_string().into_bytes())
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

/// A running server; dropping it closes the port and all connections.
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    stop: Arc<AtomicBool>,
    listener: Option<std::thread::JoinHandle<()>>,
}

impl Server {
    pub(crate) fn start(handler: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_at(0, handler)
    }

    pub(crate) fn start_at(
        port: u16,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let (seen, stop) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
        let handler: Arc<Handler> = Arc::new(handler);
        let (requests, stopping) = (seen.clone(), stop.clone());
        let accept = move || {
            for stream in listener.incoming() {
                if stopping.load(Ordering::SeqCst) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                let (handler, requests, stopping) =
                    (handler.clone(), requests.clone(), stopping.clone());
                std::thread::spawn(move || serve(&stream, &*handler, &requests, &stopping));
            }
        };
        let listener = Some(std::thread::spawn(accept));
        Self { url: format!("http://127.0.0.1:{port}"), port, seen, stop, listener }
    }

    /// The requests so far.
    pub(crate) fn seen(&self) -> Vec<Request> {
        self.seen.lock().expect("not poisoned").clone()
    }

    /// How many requests went to a path.
    pub(crate) fn count(&self, path: &str) -> usize {
        self.seen().iter().filter(|request| request.path.starts_with(path)).count()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

fn serve(stream: &TcpStream, handler: &Handler, seen: &Mutex<Vec<Request>>, stop: &AtomicBool) {
    let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
    let _ = stream.set_nodelay(true);
    let mut reader = BufReader::new(stream);
    while !stop.load(Ordering::SeqCst) {
        // Between requests an idle connection is looked after often enough to close with the server.
        match reader.fill_buf() {
            Ok([]) => return,
            Ok(_) => {}
            Err(error)
                if matches!(
                    error.kind(),
                    std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                ) =>
            {
                continue;
            }
            Err(_) => return,
        }
        if stop.load(Ordering::SeqCst) {
            return;
        }
        let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
        let Some(request) = read(&mut reader) else { return };
        let _ = stream.set_read_timeout(Some(Duration::from_millis(50)));
        seen.lock().expect("not poisoned").push(request.clone());
        let mut stream = stream;
        match handler(&request) {
            Reply::Answer(status, body) => {
                let head =
                    format!("HTTP/1.1 {status} Word\r\nContent-Length: {}\r\n\r\n", body.len());
                if stream.write_all(&[head.as_bytes(), &body].concat()).is_err() {
                    return;
                }
            }
            Reply::Cut => return,
            Reply::HalfAnswer(body) => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                let _ = stream.write_all(&[head.as_bytes(), &body[..body.len() / 2]].concat());
                return;
            }
            Reply::Hang(time) => {
                std::thread::sleep(time);
                return;
            }
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&length| length > 0)?;
    let mut words = line.split_whitespace();
    let (method, path) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut headers = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':')?;
        headers.push((name.to_owned(), value.trim().to_owned()));
    }
    let mut request = Request { method, path, headers, body: Vec::new() };
    let length =
        request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    reader.read_exact(&mut request.body).ok()?;
    Some(request)
}
