//! JSON over plain HTTP, with deadlines and a limit on what is read.

use std::time::Duration;

use serde_json::Value;
use ureq::Agent;

use super::{EnvironmentOptions, failed};
use crate::error::EnvError;

/// Connections kept for the next question.
const IDLE: usize = 256;

/// A server's HTTP side.
pub(crate) struct Http {
    agent: Agent,
    base: String,
    token: Option<String>,
    longest: u64,
    protocol: &'static str,
}

impl Http {
    pub(crate) fn new(
        protocol: &'static str,
        options: &EnvironmentOptions,
        token: Option<String>,
    ) -> Self {
        let base = options.url.trim_end_matches('/');
        let base = if base.contains("://") { base.to_owned() } else { format!("http://{base}") };
        let mut config = Agent::config_builder()
            .timeout_connect(Some(options.connect_time()))
            .timeout_global(Some(options.connect_time() + options.answer_time()))
            // Python's usual server hangs up after five idle seconds.
            .max_idle_age(Duration::from_secs(3))
            .max_idle_connections(IDLE)
            .max_idle_connections_per_host(IDLE)
            .http_status_as_error(false);
        if is_loopback(&base) {
            // A proxy cannot reach this machine's own servers.
            config = config.proxy(None);
        }
        let longest = options.max_message_bytes() as u64;
        Self { agent: config.build().into(), base, token, longest, protocol }
    }

    /// The server's address, with its scheme.
    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// The JSON at a path; `None` where the server has no such route.
    pub(crate) fn get(&self, path: &str) -> Result<Option<Value>, EnvError> {
        let mut request = self.agent.get(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.read(path, request.call())
    }

    /// The JSON answer to a JSON question; `None` where the server has no such route.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Result<Option<Value>, EnvError> {
        let mut request = self.agent.post(format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        self.read(path, request.send_json(body))
    }

    fn read(
        &self,
        path: &str,
        answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Option<Value>, EnvError> {
        let wrong = |why: String| failed(self.protocol, format!("{}{path}: {why}", self.base));
        let mut answer = answer.map_err(|error| wrong(error.to_string()))?;
        let status = answer.status().as_u16();
        if matches!(status, 404 | 405 | 501) {
            return Ok(None);
        }
        let text = answer
            .body_mut()
            .with_config()
            .limit(self.longest)
            .read_to_string()
            .map_err(|error| wrong(error.to_string()))?;
        if status != 200 {
            let start: String = text.chars().take(200).collect();
            return Err(wrong(format!("status {status}: {start}")));
        }
        serde_json::from_str(&text).map(Some).map_err(|error| wrong(format!("no JSON: {error}")))
    }
}

fn is_loopback(base: &str) -> bool {
    let host = base.split_once("://").map_or(base, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own))
}
