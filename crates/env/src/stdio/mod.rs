//! Environments that are programs: JSON lines on standard input and output.
//!
//! The protocol fits on one page ([`docs/reference/stdio-protocol.md`]) so that a script in any language is an
//! environment. A program plays one episode at a time; side by side there are as many processes as episodes, and a
//! process that has finished its episode is used for the next one.
//!
//! [`docs/reference/stdio-protocol.md`]: ../../../../docs/reference/stdio-protocol.md

mod process;
mod protocol;

use std::sync::Arc;
use std::time::Duration;

use process::Process;
use protocol::{Reply, Request};
use serde_json::Value;

use crate::benchmark::Benchmark;
use crate::error::EnvError;
use crate::profile::Profile;
use crate::registry::BenchmarkOptions;
use crate::remote::tasks::TaskList;
use crate::remote::{
    self, Answer, Connector, EnvironmentOptions, Outcome, RemoteBenchmark, RemoteTask, Session,
    failed,
};

/// The name of the protocol in messages.
const PROTOCOL: &str = "the environment program";
/// Processes kept between episodes; more than that are started again when they are needed.
const SPARE: usize = 64;

/// A program as an environment. The names of its tasks' splits come from the program.
pub const PROFILE: Profile =
    remote::profile("stdio", "Your own environment: a program that speaks JSON lines");

/// Starts the program once to hear what it offers, and opens it as a benchmark.
pub fn open(options: &EnvironmentOptions) -> Result<Arc<RemoteBenchmark>, EnvError> {
    options.check_command()?;
    let program = Program { options: options.clone() };
    let mut session = program.start()?;
    let tasks = remote::tasks(options, || session.list_tasks().map(Some))?;
    let mut profile = options.profile(&PROFILE, &tasks);
    if let Some(limit) = session.hello.turn_limit {
        profile.turn_limit = limit;
    }
    if let Some(scale) = session.hello.score {
        profile.score = scale;
    }
    Ok(Arc::new(RemoteBenchmark::new(profile, tasks, options.clone(), Box::new(program))))
}

pub(crate) fn from_options(options: &BenchmarkOptions) -> Result<Arc<dyn Benchmark>, EnvError> {
    remote::open_listed(&PROFILE, options, open)
}

/// The program to start.
struct Program {
    options: EnvironmentOptions,
}

impl Program {
    fn start(&self) -> Result<StdioSession, EnvError> {
        let process = Process::start(&self.options.command, self.options.max_message_bytes())?;
        let mut session = StdioSession {
            process,
            hello: protocol::Hello::default(),
            patience: self.options.answer_time(),
        };
        let hello = session.ask(&Request::Hello { version: 1 }, self.options.connect_time())?;
        match hello {
            Reply::Hello(hello) if hello.version == 1 => session.hello = hello,
            Reply::Hello(hello) => {
                return Err(failed(
                    PROTOCOL,
                    format!("it speaks version {}, not 1", hello.version),
                ));
            }
            other => return Err(unexpected("hello", &other)),
        }
        Ok(session)
    }
}

impl Connector for Program {
    fn protocol(&self) -> &'static str {
        PROTOCOL
    }

    fn connect(&self) -> Result<Box<dyn Session>, EnvError> {
        Ok(Box::new(self.start()?))
    }

    fn spare_sessions(&self) -> usize {
        SPARE
    }
}

struct StdioSession {
    process: Process,
    hello: protocol::Hello,
    patience: Duration,
}

fn unexpected(request: &str, reply: &Reply) -> EnvError {
    failed(PROTOCOL, format!("to `{request}` it answered `{}`", reply.kind()))
}

impl StdioSession {
    /// Sends a request and reads its answer.
    fn ask(&mut self, request: &Request<'_>, patience: Duration) -> Result<Reply, EnvError> {
        let line = serde_json::to_string(request)
            .map_err(|error| failed(PROTOCOL, format!("a request cannot be written: {error}")))?;
        let answer = self.process.exchange(line, patience)?;
        let reply = serde_json::from_str(&answer).map_err(|error| {
            let start: String = answer.chars().take(200).collect();
            failed(PROTOCOL, format!("it answered {start:?}, which is no message: {error}"))
        })?;
        match reply {
            Reply::Error { message } => {
                Err(failed(PROTOCOL, format!("it reports an error: {message}")))
            }
            reply => Ok(reply),
        }
    }

    fn list_tasks(&mut self) -> Result<TaskList, EnvError> {
        match self.ask(&Request::Tasks, self.patience)? {
            Reply::Tasks { tasks } => {
                let mut list = TaskList::default();
                for line in tasks {
                    list.add(line).map_err(|message| failed(PROTOCOL, message))?;
                }
                Ok(list)
            }
            other => Err(unexpected("tasks", &other)),
        }
    }

    fn view(&mut self, what: &str, request: &Request<'_>) -> Result<Answer, EnvError> {
        match self.ask(request, self.patience)? {
            Reply::View(view) => Ok(view.into()),
            other => Err(unexpected(what, &other)),
        }
    }
}

impl Session for StdioSession {
    fn reset(&mut self, task: &RemoteTask) -> Result<Answer, EnvError> {
        self.view("reset", &Request::Reset { task: &task.task.id, data: &task.reset })
    }

    fn step(&mut self, action: &str) -> Result<Outcome, EnvError> {
        self.view("step", &Request::Step { action }).map(Outcome::Taken)
    }

    fn snapshot(&mut self) -> Result<Option<Value>, EnvError> {
        if !self.hello.snapshot {
            return Ok(None);
        }
        match self.ask(&Request::Snapshot, self.patience)? {
            Reply::Snapshot { state } => Ok(Some(state)),
            other => Err(unexpected("snapshot", &other)),
        }
    }

    fn restore(&mut self, state: &Value) -> Result<Answer, EnvError> {
        self.view("restore", &Request::Restore { state })
    }
}
