//! One episode on an OpenEnv server.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::PROTOCOL;
use super::action::{self, Builder, Tool};
use super::message::{self, Fault, Reply};
use super::socket::Socket;
use crate::error::EnvError;
use crate::remote::reader::Reader;
use crate::remote::{Answer, Connector, EnvironmentOptions, Outcome, RemoteTask, Session, failed};

/// What is known about a server's snapshots. A server that is not known to have them is asked once: an unknown message
/// is an error that the session survives.
#[derive(Debug)]
pub(super) struct Snapshots(AtomicU8);

const UNKNOWN: u8 = 0;
const NONE: u8 = 1;
/// `snapshot` and `restore` messages.
const MESSAGES: u8 = 2;
/// A token in the state that `reset` takes back as `injected_state`.
const INJECTED: u8 = 3;

impl Snapshots {
    /// From the capabilities in the server's metadata.
    pub(super) fn announced(metadata: &Value) -> Self {
        let capabilities = &metadata["capabilities"];
        let known = if capabilities.get("snapshot").is_some_and(|snapshot| snapshot != false) {
            MESSAGES
        } else if capabilities["set_state"] == true {
            INJECTED
        } else {
            UNKNOWN
        };
        Self(AtomicU8::new(known))
    }
}

/// What all sessions with a server share.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) options: EnvironmentOptions,
    pub(super) address: String,
    pub(super) token: Option<String>,
    pub(super) reader: Reader,
    /// `None` until the server's schema or tools are read.
    pub(super) builder: Option<Builder>,
    pub(super) snapshots: Snapshots,
}

impl Server {
    /// Opens a session, waiting for a free one where the server is full.
    pub(super) fn open(self: &Arc<Self>) -> Result<OpenEnvSession, EnvError> {
        let deadline = Instant::now() + self.options.connect_time();
        let mut pause = Duration::from_millis(50);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let socket = Socket::connect(
                &self.address,
                self.token.as_deref(),
                left.max(Duration::from_millis(1)),
                self.options.max_message_bytes(),
            )?;
            let mut session = OpenEnvSession { server: Arc::clone(self), socket };
            // A full server says so after it has accepted the socket, so the session is tried.
            match session.ask(&json!({"type": "state"}))? {
                Reply::Error(fault) if fault.is_final() => {
                    if fault.code != "CAPACITY_REACHED" || Instant::now() + pause > deadline {
                        return Err(fault.into_error());
                    }
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_secs(1));
                }
                _ => return Ok(session),
            }
        }
    }
}

/// The connector of a benchmark.
pub(super) struct Sockets(pub(super) Arc<Server>);

impl Connector for Sockets {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn connect(&self) -> Result<Box<dyn Session>, EnvError> {
        Ok(Box::new(self.0.open()?))
    }

    /// An idle socket holds one of the server's sessions, and servers may close what lies idle.
    fn spare_sessions(&self) -> usize {
        0
    }
}

/// A session.
#[derive(Debug)]
pub(super) struct OpenEnvSession {
    server: Arc<Server>,
    socket: Socket,
}

impl OpenEnvSession {
    fn ask(&mut self, request: &Value) -> Result<Reply, EnvError> {
        let answer = self.socket.ask(request.to_string(), self.server.options.answer_time())?;
        message::read(&answer)
    }

    /// The tools of a tool environment; none where it has none.
    pub(super) fn list_tools(&mut self) -> Result<Vec<Tool>, EnvError> {
        match self.ask(&json!({"type": "step", "data": {"type": "list_tools"}}))? {
            Reply::Observation(data) => Ok(action::tools(&data["observation"])),
            Reply::Error(fault) if !fault.is_final() => Ok(Vec::new()),
            other => Err(unexpected("list_tools", other)),
        }
    }

    fn observation(&mut self, what: &str, request: &Value) -> Result<Value, EnvError> {
        match self.ask(request)? {
            Reply::Observation(data) => Ok(data),
            other => Err(unexpected(what, other)),
        }
    }

    fn state(&mut self) -> Result<Value, EnvError> {
        match self.ask(&json!({"type": "state"}))? {
            Reply::State(state) => Ok(state),
            other => Err(unexpected("state", other)),
        }
    }

    /// The token in the state, where the server puts one there.
    fn token(&mut self) -> Result<Option<Value>, EnvError> {
        let state = self.state()?;
        let token = state.get("snapshot").filter(|token| !token.is_null());
        Ok(token.map(|token| json!({"injected_state": token})))
    }

    fn know(&self, snapshots: u8) {
        self.server.snapshots.0.store(snapshots, Ordering::Relaxed);
    }
}

fn unexpected(what: &str, reply: Reply) -> EnvError {
    match reply {
        Reply::Error(fault) => {
            let Fault { code, message, .. } = &fault;
            if fault.is_final() {
                return fault.into_error();
            }
            failed(PROTOCOL, format!("{what} failed: {code}: {message}"))
        }
        Reply::Observation(_) => failed(PROTOCOL, format!("{what} was answered by an observation")),
        Reply::State(_) => failed(PROTOCOL, format!("{what} was answered by a state")),
        Reply::Snapshot(_) => failed(PROTOCOL, format!("{what} was answered by a snapshot")),
    }
}

impl Session for OpenEnvSession {
    fn reset(&mut self, task: &RemoteTask) -> Result<Answer, EnvError> {
        let data = self.observation("reset", &json!({"type": "reset", "data": task.reset}))?;
        let mut answer = self.server.reader.answer(data)?;
        let instructions = self.server.builder.as_ref().map(Builder::instructions);
        if let Some(instructions) = instructions.filter(|text| !text.is_empty()) {
            let text = answer.task.take().or_else(|| task.text.clone()).unwrap_or_default();
            answer.task = Some(format!("{text}\n{instructions}").trim_start().to_owned());
        }
        Ok(answer)
    }

    fn step(&mut self, text: &str) -> Result<Outcome, EnvError> {
        let server = Arc::clone(&self.server);
        let builder = server.builder.as_ref().ok_or(EnvError::NotReset)?;
        let action = match builder.build(text) {
            Ok(action) => action,
            Err(why) => return Ok(Outcome::Refused(format!("Invalid action: {why}."))),
        };
        match self.ask(&json!({"type": "step", "data": action}))? {
            Reply::Observation(data) => server.reader.answer(data).map(Outcome::Taken),
            Reply::Error(fault) if fault.code == "VALIDATION_ERROR" => {
                Ok(Outcome::Refused(format!("Invalid action: {}.", fault.reasons())))
            }
            // The step may have had effects, so the episode cannot go on.
            other => Err(unexpected("step", other)),
        }
    }

    fn snapshot(&mut self) -> Result<Option<Value>, EnvError> {
        match self.server.snapshots.0.load(Ordering::Relaxed) {
            NONE => Ok(None),
            INJECTED => self.token(),
            known => match self.ask(&json!({"type": "snapshot"}))? {
                Reply::Snapshot(data) => {
                    if known == UNKNOWN {
                        self.know(MESSAGES);
                    }
                    Ok(Some(json!({"id": data["id"]})))
                }
                Reply::Error(fault) if !fault.is_final() => {
                    // Servers of the Python package cannot announce anything; a token in the state is their word.
                    let token = self.token()?;
                    self.know(if token.is_some() { INJECTED } else { NONE });
                    Ok(token)
                }
                other => Err(unexpected("snapshot", other)),
            },
        }
    }

    fn restore(&mut self, state: &Value) -> Result<Answer, EnvError> {
        if state.get("injected_state").is_none() {
            let data = self.observation("restore", &json!({"type": "restore", "data": state}))?;
            return self.server.reader.answer(data);
        }
        let data = self.observation("reset", &json!({"type": "reset", "data": state}))?;
        // A server that does not know the keyword drops it and starts a new episode, so it has to confirm.
        let confirmed = [&data["metadata"], &data["observation"]["metadata"]]
            .iter()
            .any(|metadata| metadata["restored"] == true);
        if !confirmed {
            self.know(NONE);
            return Err(EnvError::Restore(
                "the server did not confirm the restored state".to_owned(),
            ));
        }
        self.server.reader.answer(data)
    }
}
