//! The protocol of one socket, without the socket: every text has exactly one answer.

use std::sync::Arc;

use lens_env::{Actions, EnvError, Environment, Status, Task, View};
use serde_json::{Map, Value, json};

use crate::catalog::{Catalog, Saved};
use crate::rpc::{RpcError, SESSION_CREATE, mcp};

/// What to do after a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Reaction {
    /// Answer and go on.
    Answer(Value),
    /// Answer and hang up: what came was no message at all.
    Last(Value),
    /// Hang up, as asked.
    Close,
}

/// One client's session.
pub struct Session {
    catalog: Arc<Catalog>,
    id: String,
    environment: Option<Box<dyn Environment>>,
    episode: Option<Episode>,
}

/// What a session remembers about its episode beside the environment.
#[derive(Debug, Clone)]
pub(crate) struct Episode {
    pub(crate) id: Option<String>,
    pub(crate) task: Task,
    pub(crate) steps: usize,
    pub(crate) view: View,
}

/// An error that the session survives.
#[derive(Debug)]
pub(crate) struct Refusal {
    code: &'static str,
    message: String,
    errors: Vec<Value>,
}

impl Refusal {
    pub(crate) fn execution(message: impl Into<String>) -> Self {
        Self { code: "EXECUTION_ERROR", message: message.into(), errors: Vec::new() }
    }

    pub(crate) fn invalid(kind: &str, place: &str, message: &str, input: &Value) -> Self {
        let error = json!({"type": kind, "loc": [place], "msg": message, "input": input});
        Self {
            code: "VALIDATION_ERROR",
            message: "Invalid message".to_owned(),
            errors: vec![error],
        }
    }

    /// The list of what is wrong with a message, for HTTP.
    pub(crate) fn details(&self) -> Option<&[Value]> {
        (!self.errors.is_empty()).then_some(&self.errors)
    }

    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    fn frame(self) -> Value {
        let mut data = json!({"message": self.message, "code": self.code});
        if !self.errors.is_empty() {
            data["errors"] = self.errors.into();
        }
        json!({"type": "error", "data": data})
    }
}

impl From<EnvError> for Refusal {
    fn from(error: EnvError) -> Self {
        Self::execution(error.to_string())
    }
}

/// An error frame.
pub(crate) fn error_frame(code: &'static str, message: impl Into<String>) -> Value {
    Refusal { code, message: message.into(), errors: Vec::new() }.frame()
}

impl Session {
    /// A session before its first reset.
    pub fn new(catalog: Arc<Catalog>, id: String) -> Self {
        Self { catalog, id, environment: None, episode: None }
    }

    /// Answers a message.
    pub fn handle(&mut self, text: &str) -> Reaction {
        let message: Value = match serde_json::from_str(text) {
            Ok(message) => message,
            Err(error) => {
                return Reaction::Answer(error_frame(
                    "INVALID_JSON",
                    format!("Invalid JSON: {error}"),
                ));
            }
        };
        let Value::Object(message) = message else {
            return Reaction::Last(error_frame("SESSION_ERROR", "a message is a JSON object"));
        };
        let kind = message.get("type").cloned().unwrap_or_default();
        let answered = match kind.as_str().unwrap_or_default() {
            "close" => match no_data(&message) {
                Ok(()) => return Reaction::Close,
                Err(refusal) => Err(refusal),
            },
            "reset" => data(&message, false).and_then(|data| self.reset(data)),
            "step" => data(&message, true).and_then(|data| self.step(data)),
            "state" => no_data(&message).and_then(|()| self.state()),
            "snapshot" => no_data(&message).and_then(|()| self.snapshot()),
            "restore" => data(&message, true).and_then(|data| self.restore(data)),
            "mcp" => data(&message, true).map(
                |data| json!({"type": "mcp", "data": mcp(data, |method, _| self.rpc(method))}),
            ),
            _ => Err(Refusal {
                code: "UNKNOWN_TYPE",
                message: format!(
                    "Unknown message type: {}",
                    kind.as_str().map_or_else(|| kind.to_string(), str::to_owned)
                ),
                errors: Vec::new(),
            }),
        };
        Reaction::Answer(answered.unwrap_or_else(Refusal::frame))
    }

    /// What a socket's own session answers to the session methods: it is there already, and ends with its socket.
    fn rpc(&self, method: &str) -> Option<Result<Value, RpcError>> {
        (method == SESSION_CREATE).then(|| Ok(json!({"session_id": self.id})))
    }

    /// The data of a reset's answer.
    pub(crate) fn reset_data(&mut self, data: &Map<String, Value>) -> Result<Value, Refusal> {
        if let Some(token) = data.get("injected_state").filter(|token| !token.is_null()) {
            let id =
                token.as_str().ok_or_else(|| Refusal::execution("injected_state is a text"))?;
            return self.put_back(id, data.get("episode_id"));
        }
        let task = self.choose(data)?;
        let mut environment = match self.environment.take() {
            Some(environment) => environment,
            None => Arc::clone(self.catalog.benchmark()).environment()?,
        };
        let view = environment.reset(&task)?;
        self.environment = Some(environment);
        let id = data.get("episode_id").and_then(Value::as_str).map(str::to_owned);
        let episode = Episode { id, task, steps: 0, view };
        let answer = self.observation(&episode, &Value::Null, false);
        self.episode = Some(episode);
        Ok(answer)
    }

    /// The data of a step's answer.
    pub(crate) fn step_data(&mut self, action: &Map<String, Value>) -> Result<Value, Refusal> {
        let command = command(action)?;
        let environment = self.environment.as_mut();
        let (Some(environment), Some(episode)) = (environment, self.episode.as_mut()) else {
            return Err(Refusal::execution("there is no episode; call reset first"));
        };
        let before = episode.view.score;
        episode.view = environment.step(&command)?;
        episode.steps += 1;
        let reward = episode.view.score - before;
        let episode = episode.clone();
        Ok(self.observation(&episode, &json!(reward), false))
    }

    /// The state's data.
    pub(crate) fn state_data(&mut self) -> Result<Value, Refusal> {
        let Some(episode) = self.episode.clone() else {
            return Ok(
                json!({"episode_id": null, "step_count": 0, "task_id": null, "snapshot": null}),
            );
        };
        let id = self.save()?;
        Ok(json!({
            "episode_id": episode.id,
            "step_count": episode.steps,
            "task_id": episode.task.id,
            "snapshot": id,
        }))
    }

    fn reset(&mut self, data: &Map<String, Value>) -> Result<Value, Refusal> {
        Ok(json!({"type": "observation", "data": self.reset_data(data)?}))
    }

    fn step(&mut self, data: &Map<String, Value>) -> Result<Value, Refusal> {
        Ok(json!({"type": "observation", "data": self.step_data(data)?}))
    }

    fn state(&mut self) -> Result<Value, Refusal> {
        Ok(json!({"type": "state", "data": self.state_data()?}))
    }

    fn snapshot(&mut self) -> Result<Value, Refusal> {
        Ok(json!({"type": "snapshot", "data": {"id": self.save()?}}))
    }

    fn restore(&mut self, data: &Map<String, Value>) -> Result<Value, Refusal> {
        let id = data.get("id").and_then(Value::as_str);
        let id = id.ok_or_else(|| {
            Refusal::invalid("missing", "id", "Field required", &Value::Object(data.clone()))
        })?;
        Ok(json!({"type": "observation", "data": self.put_back(id, None)?}))
    }

    fn save(&mut self) -> Result<String, Refusal> {
        let (Some(environment), Some(episode)) = (&mut self.environment, &self.episode) else {
            return Err(Refusal::execution("there is no episode; call reset first"));
        };
        let saved = Saved { snapshot: environment.snapshot()?, episode: episode.clone() };
        Ok(self.catalog.save(saved))
    }

    fn put_back(&mut self, id: &str, name: Option<&Value>) -> Result<Value, Refusal> {
        let saved = self.catalog.saved(id).ok_or_else(|| {
            Refusal::execution(format!("there is no snapshot {id:?}; the oldest are dropped first"))
        })?;
        let mut environment = match self.environment.take() {
            Some(environment) => environment,
            None => Arc::clone(self.catalog.benchmark()).environment()?,
        };
        let view = environment.restore(&saved.snapshot)?;
        self.environment = Some(environment);
        let id = name.and_then(Value::as_str).map(str::to_owned);
        let episode = Episode { id: id.or(saved.episode.id), view, ..saved.episode };
        let answer = self.observation(&episode, &json!(0.0), true);
        self.episode = Some(episode);
        Ok(answer)
    }

    /// The task a reset asks for: by `task_id`, or by `split` and `index`; a `seed` alone chooses one of the split.
    fn choose(&self, data: &Map<String, Value>) -> Result<Task, Refusal> {
        if let Some(id) = data.get("task_id").and_then(Value::as_str) {
            let task = self.catalog.task(id);
            return task
                .cloned()
                .ok_or_else(|| Refusal::execution(format!("there is no task {id:?}")));
        }
        let split = data.get("split").and_then(Value::as_str);
        let split = split.unwrap_or(&self.catalog.profile().train_split);
        let tasks = self.catalog.split(split).ok_or_else(|| {
            let names: Vec<&str> =
                self.catalog.splits().iter().map(|(name, _)| name.as_str()).collect();
            Refusal::execution(format!(
                "there is no split {split:?}; there are {}",
                names.join(", ")
            ))
        })?;
        let number = |key: &str| data.get(key).and_then(Value::as_u64);
        let index = match (number("index"), number("seed")) {
            (Some(index), _) => index,
            (None, Some(seed)) => seed % tasks.len().max(1) as u64,
            (None, None) => 0,
        };
        let task = usize::try_from(index).ok().and_then(|index| tasks.get(index));
        task.cloned().ok_or_else(|| {
            Refusal::execution(format!(
                "the split {split:?} has {} tasks, counted from 0",
                tasks.len()
            ))
        })
    }

    /// What a client sees of an episode.
    fn observation(&self, episode: &Episode, reward: &Value, restored: bool) -> Value {
        let view = &episode.view;
        let truncated = self.catalog.turn_limit().is_some_and(|limit| view.turn >= limit);
        let ended = matches!(view.status, Status::Ended { .. });
        let mut metadata =
            json!({"task_id": episode.task.id, "kind": episode.task.kind, "score": view.score});
        if ended || truncated {
            metadata["success"] = (view.status == Status::Ended { success: true }).into();
            metadata["truncated"] = (truncated && !ended).into();
        }
        if restored {
            metadata["restored"] = true.into();
        }
        let (commands, templates, objects) = match &view.actions {
            Actions::Commands(commands) => (json!(commands), Value::Null, Value::Null),
            Actions::Templates { templates, objects } => {
                (Value::Null, json!(templates), json!(objects))
            }
            Actions::Free => (Value::Null, Value::Null, Value::Null),
        };
        json!({
            "observation": {
                "metadata": metadata.clone(),
                "task": view.task,
                "text": view.observation,
                "admissible_actions": commands,
                "action_templates": templates,
                "objects": objects,
            },
            "reward": reward,
            "done": ended || truncated,
            "metadata": metadata,
        })
    }
}

/// A message's data, an object; nothing else may stand beside it.
fn data(message: &Map<String, Value>, required: bool) -> Result<&Map<String, Value>, Refusal> {
    static NONE: std::sync::LazyLock<Map<String, Value>> = std::sync::LazyLock::new(Map::new);
    no_extras(message, true)?;
    match message.get("data") {
        Some(Value::Object(data)) => Ok(data),
        None if !required => Ok(&NONE),
        None => Err(Refusal::invalid(
            "missing",
            "data",
            "Field required",
            &Value::Object(message.clone()),
        )),
        Some(other) => {
            Err(Refusal::invalid("dict_type", "data", "Input should be a valid dictionary", other))
        }
    }
}

fn no_data(message: &Map<String, Value>) -> Result<(), Refusal> {
    no_extras(message, false)
}

fn no_extras(message: &Map<String, Value>, with_data: bool) -> Result<(), Refusal> {
    let extra = message.iter().find(|(key, _)| *key != "type" && !(with_data && *key == "data"));
    match extra {
        None => Ok(()),
        Some((key, value)) => {
            Err(Refusal::invalid("extra_forbidden", key, "Extra inputs are not permitted", value))
        }
    }
}

/// The text of an action: `{"command": "..."}`, with free metadata beside it.
fn command(action: &Map<String, Value>) -> Result<String, Refusal> {
    for (key, value) in action {
        match key.as_str() {
            "command" => {}
            "metadata" if value.is_object() => {}
            "metadata" => {
                return Err(Refusal::invalid(
                    "dict_type",
                    key,
                    "Input should be a valid dictionary",
                    value,
                ));
            }
            _ => {
                return Err(Refusal::invalid(
                    "extra_forbidden",
                    key,
                    "Extra inputs are not permitted",
                    value,
                ));
            }
        }
    }
    match action.get("command") {
        Some(Value::String(command)) => Ok(command.clone()),
        Some(other) => {
            Err(Refusal::invalid("string_type", "command", "Input should be a valid string", other))
        }
        None => Err(Refusal::invalid(
            "missing",
            "command",
            "Field required",
            &Value::Object(action.clone()),
        )),
    }
}
