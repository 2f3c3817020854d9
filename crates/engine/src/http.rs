//! Calls to servers over HTTP: every call ends by its deadline, answers have a largest size, keys are never shown.

use std::path::Path;
use std::time::Duration;

use serde_json::Value;

use crate::deadline::Deadline;
use crate::error::EngineError;

/// The largest answer that is read.
const MAX_ANSWER: u64 = 256 << 20;

/// Longest part of a server's own words that goes into a message.
const MAX_WORDS: usize = 600;

/// Time to connect; a server that is there accepts at once.
const CONNECT: Duration = Duration::from_secs(10);

/// A secret that a server asks for. It has no way into a log or a file.
#[derive(Clone, PartialEq, Eq)]
pub struct Key(String);

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(hidden)")
    }
}

impl Key {
    /// The content of an environment variable.
    pub fn from_env(name: &str) -> Result<Self, EngineError> {
        let value = std::env::var(name).map_err(|_| {
            EngineError::Request(format!(
                "the environment variable {name}, which holds a server's key, is not set"
            ))
        })?;
        Self::new(&value, name)
    }

    /// The content of a file, without surrounding white space.
    pub fn from_file(path: &Path) -> Result<Self, EngineError> {
        let text = std::fs::read_to_string(path).map_err(|error| {
            EngineError::Request(format!("the key file {} cannot be read: {error}", path.display()))
        })?;
        Self::new(&text, &path.display().to_string())
    }

    fn new(text: &str, origin: &str) -> Result<Self, EngineError> {
        let text = text.trim();
        if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(EngineError::Request(format!(
                "{origin} holds no key of printable characters"
            )));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A server: its address, its key, and a pool of open connections.
#[derive(Clone)]
pub struct Endpoint {
    base: String,
    key: Option<Key>,
    headers: Vec<(&'static str, &'static str)>,
    agent: ureq::Agent,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint").field("base", &self.base).finish_non_exhaustive()
    }
}

/// What a server answered, whatever its status.
#[derive(Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: Vec<u8>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unanswered {
    /// No process listens there.
    #[error("it cannot be reached ({0})")]
    Unreachable(String),
    /// The connection was cut before the answer was whole.
    #[error("the connection was cut ({0})")]
    Cut(String),
    /// The deadline passed.
    #[error("it did not answer in time")]
    Timeout,
    /// The answer is larger than any that makes sense.
    #[error("its answer is larger than {} MB", MAX_ANSWER >> 20)]
    TooLarge,
}

impl Endpoint {
    /// A server at `url`, such as `http://127.0.0.1:8000`.
    pub fn new(url: &str, key: Option<Key>) -> Result<Self, EngineError> {
        let base = url.trim_end_matches('/').to_owned();
        let secure = cfg!(feature = "tls") && base.starts_with("https://");
        let address = base.split_once("://").map(|(_, rest)| rest).unwrap_or_default();
        if !(base.starts_with("http://") || secure)
            || address.is_empty()
            || address.contains(['?', '#', '@'])
        {
            return Err(EngineError::Request(format!(
                "\"{url}\" is not an address such as http://127.0.0.1:8000{}",
                if cfg!(feature = "tls") {
                    ""
                } else {
                    " (https needs a build with --features tls)"
                }
            )));
        }
        let config = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .proxy(None)
            .max_idle_connections(1024)
            .max_idle_connections_per_host(512)
            .max_idle_age(Duration::from_secs(3))
            .build();
        Ok(Self { base, key, headers: Vec::new(), agent: config.new_agent() })
    }

    /// The same, with a header on every request.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.base
    }

    /// Asks for `path`.
    pub fn get(&self, path: &str, deadline: Deadline) -> Result<Answer, Unanswered> {
        let limit = time_left(deadline)?;
        let mut request = self.agent.get(format!("{}{path}", self.base));
        for (name, value) in self.all_headers() {
            request = request.header(name, value);
        }
        read(request.config().timeout_global(limit).timeout_connect(Some(CONNECT)).build().call())
    }

    /// Sends a JSON body.
    pub fn post(&self, path: &str, body: &Value, deadline: Deadline) -> Result<Answer, Unanswered> {
        self.send(path, "application/json", body.to_string().as_bytes(), deadline)
    }

    /// Sends bytes.
    pub fn send(
        &self,
        path: &str,
        content_type: &str,
        body: &[u8],
        deadline: Deadline,
    ) -> Result<Answer, Unanswered> {
        let limit = time_left(deadline)?;
        let mut request =
            self.agent.post(format!("{}{path}", self.base)).header("Content-Type", content_type);
        for (name, value) in self.all_headers() {
            request = request.header(name, value);
        }
        let request = request.config().timeout_global(limit).timeout_connect(Some(CONNECT)).build();
        read(request.send(body))
    }

    fn all_headers(&self) -> Vec<(&str, String)> {
        let fixed = self.headers.iter().map(|&(name, value)| (name, value.to_owned()));
        let key = self.key.iter().map(|Key(key)| ("Authorization", format!("Bearer {key}")));
        fixed.chain(key).collect()
    }

    /// An error about this server.
    pub(crate) fn error(&self, status: Option<u16>, message: impl Into<String>) -> EngineError {
        EngineError::Remote { endpoint: self.base.clone(), status, message: message.into() }
    }

    /// An error out of a call that was not answered.
    pub(crate) fn unanswered(&self, what: &str, reason: &Unanswered) -> EngineError {
        self.error(None, format!("{what}: {reason}"))
    }
}

fn time_left(deadline: Deadline) -> Result<Option<Duration>, Unanswered> {
    match deadline.remaining() {
        Some(left) if left.is_zero() => Err(Unanswered::Timeout),
        left => Ok(left),
    }
}

fn read(
    result: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Answer, Unanswered> {
    let mut response = result.map_err(|error| unanswered(&error))?;
    let status = response.status().as_u16();
    let body = response.body_mut().with_config().limit(MAX_ANSWER).read_to_vec();
    Ok(Answer { status, body: body.map_err(|error| unanswered(&error))? })
}

fn unanswered(error: &ureq::Error) -> Unanswered {
    use std::io::ErrorKind;
    match error {
        ureq::Error::ConnectionFailed
        | ureq::Error::HostNotFound
        | ureq::Error::Timeout(ureq::Timeout::Connect | ureq::Timeout::Resolve) => {
            Unanswered::Unreachable(error.to_string())
        }
        ureq::Error::Timeout(_) => Unanswered::Timeout,
        ureq::Error::BodyExceedsLimit(_) => Unanswered::TooLarge,
        ureq::Error::Io(io) => match io.kind() {
            ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable => Unanswered::Unreachable(io.to_string()),
            ErrorKind::TimedOut | ErrorKind::WouldBlock => Unanswered::Timeout,
            _ => Unanswered::Cut(io.to_string()),
        },
        other => Unanswered::Cut(other.to_string()),
    }
}

impl Answer {
    /// The body as JSON; `None` if it is none.
    pub fn json(&self) -> Option<Value> {
        serde_json::from_slice(&self.body).ok()
    }

    /// Whether the server says to come back later.
    pub fn is_busy(&self) -> bool {
        matches!(self.status, 429 | 502 | 503 | 504)
    }

    /// The server's own words about an error, out of the shapes that servers use.
    pub fn words(&self) -> String {
        let json = self.json();
        let field = |value: &Value, name: &str| Some(value.get(name)?.as_str()?.to_owned());
        let words = json.as_ref().and_then(|json| {
            let error = json.get("error").unwrap_or(json);
            error
                .as_str()
                .map(str::to_owned)
                .or_else(|| field(error, "message"))
                .or_else(|| field(json, "detail"))
        });
        let words = words.unwrap_or_else(|| String::from_utf8_lossy(&self.body).into_owned());
        let words = words.split_whitespace().collect::<Vec<_>>().join(" ");
        if words.is_empty() {
            return "no explanation".to_owned();
        }
        words.chars().take(MAX_WORDS).collect()
    }
}

/// How often a call that changes nothing is made again, and after which pauses.
#[derive(Debug, Clone, Copy)]
pub struct Retry {
    /// Calls after the first one.
    pub again: u32,
    /// The first pause; every further one is twice as long.
    pub pause: Duration,
}

impl Default for Retry {
    fn default() -> Self {
        Self { again: 5, pause: Duration::from_millis(500) }
    }
}

impl Retry {
    /// For servers under load: outlasts a minute in which every answer is "busy".
    pub const PATIENT: Self = Self { again: 8, pause: Duration::from_millis(500) };

    /// Waits before repetition `number` (from 0): the pause times a factor between 0.5 and 1.5 that `key` decides.
    /// `false`: there is no time or no repetition left.
    pub(crate) fn wait(&self, number: u32, key: u64, deadline: Deadline) -> bool {
        if number >= self.again {
            return false;
        }
        let word = (key ^ u64::from(number)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let factor = 0.5 + (word >> 40) as f64 / (1_u64 << 24) as f64;
        let pause = self.pause.saturating_mul(1 << number.min(16)).mul_f64(factor);
        if deadline.remaining().is_some_and(|left| left <= pause) {
            return false;
        }
        std::thread::sleep(pause);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minute_of_busy_answers_is_outlasted() {
        let Retry { again, pause } = Retry::PATIENT;
        // Every pause may be half of what it is on average.
        let shortest: Duration = (0..again).map(|number| pause * (1 << number) / 2).sum();
        assert!(shortest > Duration::from_mins(1), "{shortest:?}");
    }

    #[test]
    fn a_key_is_never_shown() {
        let key = Key::new(" secret-word\n", "the test").expect("a key");
        let endpoint = Endpoint::new("http://127.0.0.1:1/", Some(key.clone())).expect("an address");
        assert!(!format!("{key:?} {endpoint:?}").contains("secret"));
        let error = endpoint.get("/health", Deadline::never()).expect_err("nobody listens");
        assert!(matches!(error, Unanswered::Unreachable(_)), "{error}");
        let error = endpoint.unanswered("health", &error).to_string();
        assert!(error.contains("http://127.0.0.1:1") && !error.contains("secret"), "{error}");
        assert!(Key::new("two\nlines", "the test").is_err());
    }

    #[test]
    fn addresses_that_are_none_are_refused() {
        for url in ["127.0.0.1:8000", "ftp://x", "http://", "http://user:word@host", ""] {
            assert!(Endpoint::new(url, None).is_err(), "{url}");
        }
    }

    #[test]
    fn every_shape_of_error_is_read() {
        for (body, words) in [
            (r#"{"error": {"message": "too long", "code": 400}}"#, "too long"),
            (r#"{"error": "Unauthorized"}"#, "Unauthorized"),
            (r#"{"detail": "Not Found"}"#, "Not Found"),
            (
                r#"{"object": "error", "message": "The request queue is full."}"#,
                "The request queue is full.",
            ),
            ("plain  text", "plain text"),
            ("", "no explanation"),
        ] {
            assert_eq!(Answer { status: 400, body: body.as_bytes().to_vec() }.words(), words);
        }
    }
}
