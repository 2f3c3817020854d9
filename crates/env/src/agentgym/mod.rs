//! Environments behind AgentGym's servers: JSON over plain HTTP, an integer for every environment.
//!
//! The servers agree on `POST /create`, `/reset` and `/step` and differ in the rest; what is the same for all of them is
//! learned from their answers (what the id is called, where actions are listed), and the section `[environment]` says
//! the remainder. They list no tasks, so `environment.tasks` names a file whose `reset` objects choose them, such as
//! `{"data_idx": 3}`. There are no snapshots: states are replayed.

mod answer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use answer::{Hints, Id};
use serde_json::{Value, json};

use crate::benchmark::Benchmark;
use crate::environment::Actions;
use crate::error::EnvError;
use crate::profile::Profile;
use crate::registry::BenchmarkOptions;
use crate::remote::http::Http;
use crate::remote::reader::Reader;
use crate::remote::{
    self, Answer, Connector, EnvironmentOptions, Outcome, RemoteBenchmark, RemoteTask, Session,
    failed,
};

/// The name of the protocol in messages.
const PROTOCOL: &str = "the AgentGym server";
/// Environments kept between episodes. Some servers cannot give one back, and all of them are slow to make one.
const SPARE: usize = 64;

/// An AgentGym server as an environment.
pub const PROFILE: Profile =
    remote::profile("agentgym", "Your own environment: an AgentGym server");

/// Opens the server as a benchmark.
pub fn open(options: &EnvironmentOptions) -> Result<Arc<RemoteBenchmark>, EnvError> {
    options.check_url()?;
    let http = Http::new(PROTOCOL, options, options.token()?);
    let tasks = remote::tasks(options, || Ok(None))?;
    let server = Arc::new(Server {
        http,
        reader: Reader::new(options)?,
        hints: AtomicU8::new(Hints::Unknown as u8),
        lists_by_pointer: !options.actions.is_empty(),
    });
    // Whether anything is there is known before a run starts.
    drop(server.create()?);
    let profile = options.profile(&PROFILE, &tasks);
    let connector = Box::new(Environments(server));
    Ok(Arc::new(RemoteBenchmark::new(profile, tasks, options.clone(), connector)))
}

pub(crate) fn from_options(options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
    remote::open_listed(&PROFILE, options, open)
}

/// What all environments of a server share.
struct Server {
    http: Http,
    reader: Reader,
    /// A [`Hints`]: where actions are listed, once a reset has shown it.
    hints: AtomicU8,
    lists_by_pointer: bool,
}

impl Server {
    fn create(self: &Arc<Self>) -> Result<AgentGymSession, EnvError> {
        let answer = self.post("/create", &json!({}))?;
        let id = Id::read(&answer).ok_or_else(|| {
            failed(PROTOCOL, format!("/create answered {}, which holds no id", head(&answer)))
        })?;
        Ok(AgentGymSession { server: Arc::clone(self), id, broken: false })
    }

    /// An answer that is none, or that reports an error, is a failure.
    fn post(&self, path: &str, body: &Value) -> Result<Value, EnvError> {
        let answer = self.http.post(path, body)?;
        let answer = answer.ok_or_else(|| {
            failed(
                PROTOCOL,
                format!("{} has no {path}; is it an AgentGym server?", self.http.base()),
            )
        })?;
        match answer.get("error") {
            Some(error) if !error.is_null() => {
                Err(failed(PROTOCOL, format!("{path} reports an error: {}", head(error))))
            }
            _ => Ok(answer),
        }
    }
}

fn head(value: &Value) -> String {
    value.to_string().chars().take(200).collect()
}

/// The connector of a benchmark.
struct Environments(Arc<Server>);

impl Connector for Environments {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn connect(&self) -> Result<Box<dyn Session>, EnvError> {
        Ok(Box::new(self.0.create()?))
    }

    fn spare_sessions(&self) -> usize {
        SPARE
    }
}

/// One environment of a server.
struct AgentGymSession {
    server: Arc<Server>,
    id: Id,
    /// Whether a question went wrong: the server may be gone or hang.
    broken: bool,
}

impl AgentGymSession {
    fn ask(&mut self, path: &str, body: Value) -> Result<Answer, EnvError> {
        let answer = self.exchange(path, body);
        self.broken |= answer.is_err();
        answer
    }

    fn exchange(&self, path: &str, mut body: Value) -> Result<Answer, EnvError> {
        body[self.id.key()] = self.id.number().into();
        let answer = self.server.post(path, &body)?;
        let data = answer::normal(answer)
            .ok_or_else(|| failed(PROTOCOL, format!("{path} answered without an observation")))?;
        let listed = data.get(answer::LISTED).is_some();
        let mut read = self.server.reader.answer(data)?;
        if !read.done && !self.server.lists_by_pointer {
            read.actions = self.actions(read.actions, listed)?;
        }
        Ok(read)
    }

    /// What may be done: in the answer, or at the route that this server has for it.
    fn actions(&self, read: Actions, listed: bool) -> Result<Actions, EnvError> {
        let known = Hints::from(self.server.hints.load(Ordering::Relaxed));
        let routes: &[Hints] = match known {
            _ if listed => &[Hints::Answer],
            Hints::Unknown => &[Hints::AvailableActions, Hints::ActionHint, Hints::None],
            Hints::AvailableActions => &[Hints::AvailableActions],
            Hints::ActionHint => &[Hints::ActionHint],
            Hints::Answer | Hints::None => &[Hints::None],
        };
        for &hints in routes {
            let found = match hints.route() {
                None => Some(read.clone()),
                Some(route) => {
                    let path = format!("{route}?{}={}", self.id.key(), self.id.number());
                    self.server.http.get(&path)?.as_ref().and_then(answer::actions)
                }
            };
            if let Some(found) = found {
                self.server.hints.store(hints as u8, Ordering::Relaxed);
                return Ok(found);
            }
        }
        Ok(read)
    }
}

impl Session for AgentGymSession {
    fn reset(&mut self, task: &RemoteTask) -> Result<Answer, EnvError> {
        self.ask("/reset", Value::Object(task.reset.clone()))
    }

    fn step(&mut self, action: &str) -> Result<Outcome, EnvError> {
        self.ask("/step", json!({"action": action})).map(Outcome::Taken)
    }

    fn snapshot(&mut self) -> Result<Option<Value>, EnvError> {
        Ok(None)
    }

    fn restore(&mut self, _: &Value) -> Result<Answer, EnvError> {
        Err(EnvError::Restore("AgentGym's servers have no snapshots".to_owned()))
    }
}

impl Drop for AgentGymSession {
    /// Gives the environment back. Servers that cannot take it answer 404, and one that has died takes nothing; a broken
    /// one is not waited for.
    fn drop(&mut self) {
        let (server, id) = (Arc::clone(&self.server), self.id);
        let close = move || {
            let _ = server.http.post("/close", &json!({id.key(): id.number()}));
        };
        if self.broken {
            std::thread::spawn(close);
        } else {
            close();
        }
    }
}
