//! The plain HTTP part: metadata, schema, tasks.

use serde_json::{Value, json};
use ureq::Agent;

use super::PROTOCOL;
use crate::error::EnvError;
use crate::remote::tasks::{ANY_KIND, TaskLine, TaskList};
use crate::remote::{EnvironmentOptions, failed};

/// Tasks asked for at a time where the list is only a preview.
const PAGE: usize = 1000;
/// The most tasks of a split that are taken.
const MOST_TASKS: usize = 1_000_000;

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
            .http_status_as_error(false);
        if is_loopback(&base) {
            // A proxy cannot reach this machine's own servers.
            config = config.proxy(None);
        }
        let longest = options.max_message_bytes() as u64;
        Self { agent: config.build().into(), base, token, longest, protocol }
    }

    /// The address of the socket.
    pub(super) fn socket_address(&self) -> String {
        let (scheme, rest) = self.base.split_once("://").unwrap_or(("http", &self.base));
        let scheme = if scheme == "https" || scheme == "wss" { "wss" } else { "ws" };
        format!("{scheme}://{rest}/ws")
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

    /// The tasks of the server's Task API; `None` where it has none.
    pub(super) fn tasks(&self) -> Result<Option<TaskList>, EnvError> {
        let Some(names) = self.get("/list_environments")? else { return Ok(None) };
        let Some(name) = names[0].as_str() else { return Ok(None) };
        let Some(splits) = self.get(&format!("/{name}/splits"))? else { return Ok(None) };
        let mut list = TaskList::default();
        for split in splits.as_array().into_iter().flatten() {
            let Some(split) = split["name"].as_str().or(split.as_str()) else { continue };
            for (index, task) in self.split(name, split)?.iter().enumerate() {
                let line = task_line(split, index, task);
                // Names need only be unique in their split there.
                let again = TaskLine { id: format!("{split}/{}", line.id), ..line.clone() };
                list.add(line).or_else(|_| list.add(again)).map_err(|why| failed(PROTOCOL, why))?;
            }
        }
        Ok((!list.is_empty()).then_some(list))
    }

    /// All tasks of a split; the list itself may be a preview.
    fn split(&self, name: &str, split: &str) -> Result<Vec<Value>, EnvError> {
        let ask = |route: &str, body: &Value| {
            self.post(&format!("/{name}/{route}"), body).map(Option::unwrap_or_default)
        };
        let listed = ask("tasks", &json!({"split": split}))?;
        let mut tasks = listed["tasks"].as_array().cloned().unwrap_or_default();
        let count = ask("num_tasks", &json!({"split": split}))?["num_tasks"].as_u64();
        let count = count.unwrap_or(tasks.len() as u64).min(MOST_TASKS as u64) as usize;
        while tasks.len() < count {
            let stop = (tasks.len() + PAGE).min(count);
            let range = json!({"split": split, "start": tasks.len(), "stop": stop});
            match ask("task_range", &range)?["tasks"].as_array() {
                Some(more) if !more.is_empty() => tasks.extend(more.iter().cloned()),
                _ => break,
            }
        }
        Ok(tasks)
    }
}

fn is_loopback(base: &str) -> bool {
    let host = base.split_once("://").map_or(base, |(_, rest)| rest);
    ["127.", "localhost", "[::1]"].iter().any(|own| host.starts_with(own))
}

/// A task of the Task API: any JSON, chosen by its split and index. The seed makes episodes repeatable where the
/// environment uses one.
fn task_line(split: &str, index: usize, task: &Value) -> TaskLine {
    let text = |key: &str| match &task[key] {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    };
    TaskLine {
        id: text("id").unwrap_or_else(|| format!("{split}/{index}")),
        kind: text("kind").unwrap_or_else(|| ANY_KIND.to_owned()),
        split: split.to_owned(),
        task: text("task").or_else(|| text("goal")),
        reset: [("split", json!(split)), ("index", json!(index)), ("seed", json!(index))]
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value))
            .collect(),
        actions: None,
    }
}
