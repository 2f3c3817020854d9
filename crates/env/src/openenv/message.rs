//! The messages of the protocol, and how an answer is read.

use serde_json::{Map, Value, json};

use super::PROTOCOL;
use crate::environment::Actions;
use crate::error::EnvError;
use crate::remote::{Answer, EnvironmentOptions, failed};
use crate::template::Template;

/// Keys under which environments say what the agent is asked to do.
const TASK_KEYS: [&str; 3] = ["task", "goal", "instruction"];
/// The key under which our own server lists admissible actions.
pub(super) const ACTIONS_KEY: &str = "admissible_actions";

/// What a server says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Reply {
    /// To a reset, a step or a restore.
    Observation(Value),
    State(Value),
    Snapshot(Value),
    Error(Fault),
}

/// An error message.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Fault {
    pub(super) code: String,
    pub(super) message: String,
    data: Map<String, Value>,
}

impl Fault {
    /// Whether the server has closed the session.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.code.as_str(), "CAPACITY_REACHED" | "FACTORY_ERROR" | "SESSION_ERROR")
    }

    /// Why an action was refused, field by field where the server says so.
    pub(super) fn reasons(&self) -> String {
        let fields = self.data.get("errors").and_then(Value::as_array).into_iter().flatten();
        let reasons: Vec<String> = fields
            .map(|error| {
                let place = error["loc"].as_array().into_iter().flatten().map(plain);
                let place = place.collect::<Vec<_>>().join(".");
                format!("{place}: {}", error["msg"].as_str().unwrap_or("invalid"))
            })
            .collect();
        if reasons.is_empty() { self.message.clone() } else { reasons.join("; ") }
    }
}

impl Fault {
    /// The failure of a session.
    pub(super) fn into_error(self) -> EnvError {
        let hint = match self.code.as_str() {
            "CAPACITY_REACHED" => {
                "; raise the server's session limit (max_concurrent_envs) or play fewer episodes side by side"
            }
            _ => "",
        };
        failed(PROTOCOL, format!("{}: {}{hint}", self.code, self.message))
    }
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Reads a server's message. Types are taken from the message, not from the question: servers differ in what they call
/// an answer, so an unknown type with an observation in it is one.
pub(super) fn read(text: &str) -> Result<Reply, EnvError> {
    let start = || text.chars().take(200).collect::<String>();
    let nonsense = |why: &str| failed(PROTOCOL, format!("the server sent {:?}, {why}", start()));
    let message: Value =
        serde_json::from_str(text).map_err(|error| nonsense(&format!("no JSON: {error}")))?;
    let Value::Object(mut message) = message else { return Err(nonsense("no JSON object")) };
    let kind = message.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    let data = message.remove("data").unwrap_or_else(|| json!({}));
    let Value::Object(data) = data else { return Err(nonsense("without an object as data")) };
    Ok(match kind.as_str() {
        "error" => Reply::Error(Fault {
            code: data.get("code").map_or_else(|| "UNKNOWN".to_owned(), plain),
            message: data.get("message").map_or_else(|| "no message".to_owned(), plain),
            data,
        }),
        "state" => Reply::State(data.into()),
        "snapshot" => Reply::Snapshot(data.into()),
        "observation" => Reply::Observation(data.into()),
        other => return Err(nonsense(&format!("of the unknown type {other:?}"))),
    })
}

/// Turns answers into what an agent sees.
#[derive(Debug)]
pub(super) struct Reader {
    task: Option<Template>,
    observation: Option<Template>,
    actions: String,
    success: String,
}

impl Reader {
    pub(super) fn new(options: &EnvironmentOptions) -> Result<Self, EnvError> {
        let template = |key: &str, source: &str| {
            let made = (!source.is_empty()).then(|| Template::new(source)).transpose();
            made.map_err(|error| EnvError::Setting {
                key: format!("environment.{key}"),
                message: error.to_string(),
            })
        };
        Ok(Self {
            task: template("task", &options.task)?,
            observation: template("observation", &options.observation)?,
            actions: options.actions.clone(),
            success: options.success.clone(),
        })
    }

    /// Reads the data of an observation message.
    pub(super) fn answer(&self, mut data: Value) -> Result<Answer, EnvError> {
        // Metadata comes beside the observation, inside it or not at all, by the server's version.
        let metadata = [&data["metadata"], &data["observation"]["metadata"]]
            .into_iter()
            .find(|metadata| metadata.as_object().is_some_and(|metadata| !metadata.is_empty()))
            .cloned();
        data["metadata"] = metadata.unwrap_or_else(|| json!({}));
        let render = |key: &str, template: &Template| {
            template.render(&data).map_err(|error| EnvError::Setting {
                key: format!("environment.{key}"),
                message: format!("the server's answer cannot be shown: {error}"),
            })
        };
        let task = match &self.task {
            Some(template) => Some(render("task", template)?),
            None => default_task(&data),
        };
        let observation = match &self.observation {
            Some(template) => render("observation", template)?,
            None => default_text(&data["observation"]),
        };
        let success = match self.success.as_str() {
            "" => data["metadata"]["success"].as_bool(),
            pointer => data.pointer(pointer).and_then(truth),
        };
        Ok(Answer {
            task,
            observation,
            actions: self.actions(&data)?,
            reward: number(&data["reward"]),
            score: data["metadata"]["score"].as_f64(),
            done: data["done"].as_bool().unwrap_or(false),
            success,
        })
    }

    fn actions(&self, data: &Value) -> Result<Actions, EnvError> {
        let found = match self.actions.as_str() {
            "" => data["observation"].get(ACTIONS_KEY),
            pointer => Some(data.pointer(pointer).unwrap_or(&Value::Null)),
        };
        let Some(found) = found else { return Ok(Actions::Free) };
        match found {
            Value::Array(list) => Ok(Actions::Commands(list.iter().map(plain).collect())),
            // A finished episode may have no actions left.
            Value::Null if data["done"].as_bool() == Some(true) => {
                Ok(Actions::Commands(Vec::new()))
            }
            other => Err(EnvError::Setting {
                key: "environment.actions".to_owned(),
                message: format!("{} is {}, not a list", self.actions, kind(other)),
            }),
        }
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "missing or null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// Rewards are numbers, `true`, `false` or nothing.
fn number(value: &Value) -> f64 {
    match value {
        Value::Bool(true) => 1.0,
        value => value.as_f64().unwrap_or(0.0),
    }
}

fn truth(value: &Value) -> Option<bool> {
    match value {
        Value::Bool(truth) => Some(*truth),
        Value::Number(number) => number.as_f64().map(|number| number > 0.0),
        _ => None,
    }
}

fn default_task(data: &Value) -> Option<String> {
    let places = [&data["observation"], &data["metadata"]];
    let found = places.into_iter().flat_map(|place| TASK_KEYS.map(|key| &place[key]));
    found.filter_map(Value::as_str).find(|text| !text.is_empty()).map(str::to_owned)
}

/// The value of a tool call, the observation's only text, or all of it as JSON.
fn default_text(observation: &Value) -> String {
    if observation.get("tool_name").is_some() {
        let error = &observation["error"];
        if !error.is_null() {
            return format!("Error: {}", plain(error.get("message").unwrap_or(error)));
        }
        let result = &observation["result"];
        return plain(result.get("data").filter(|data| !data.is_null()).unwrap_or(result));
    }
    let Some(fields) = observation.as_object() else { return plain(observation) };
    let fields: Map<String, Value> = fields
        .iter()
        .filter(|(key, _)| *key != "metadata" && *key != ACTIONS_KEY)
        .filter(|(key, _)| !TASK_KEYS.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    let mut texts = fields.values().filter_map(Value::as_str);
    match (texts.next(), texts.next()) {
        (Some(only), None) => only.to_owned(),
        _ => Value::Object(fields).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(options: &EnvironmentOptions, text: &str) -> Answer {
        let Reply::Observation(data) = read(text).unwrap() else { panic!("{text}") };
        Reader::new(options).unwrap().answer(data).unwrap()
    }

    const GAME: &str = r#"{"type":"observation","data":{"observation":{"metadata":{"won":true},"text":"A hall.","admissible":["look","go"],"goal":"find the cup"},"reward":1,"done":true,"metadata":{"won":true}}}"#;

    #[test]
    fn an_answer_is_read_by_the_options() {
        let options = EnvironmentOptions {
            observation: "{{ observation.text }} ({{ reward }})".to_owned(),
            actions: "/observation/admissible".to_owned(),
            success: "/metadata/won".to_owned(),
            ..EnvironmentOptions::default()
        };
        let read = answer(&options, GAME);
        assert_eq!(
            (read.task.as_deref(), read.observation.as_str()),
            (Some("find the cup"), "A hall. (1)")
        );
        assert_eq!(read.actions, Actions::Commands(vec!["look".to_owned(), "go".to_owned()]));
        assert_eq!((read.reward, read.done, read.success), (1.0, true, Some(true)));
    }

    #[test]
    fn without_options_the_only_text_is_taken() {
        let options = EnvironmentOptions::default();
        let read = answer(&options, GAME);
        assert_eq!(
            (read.observation.as_str(), read.actions, read.success),
            ("A hall.", Actions::Free, None)
        );
        let tool = r#"{"type":"observation","data":{"observation":{"tool_name":"add","result":{"data":5},"error":null},"reward":null,"done":false}}"#;
        assert_eq!(answer(&options, tool).observation, "5");
        let odd = r#"{"type":"observation","data":{"observation":{"a":1,"b":[2]},"reward":true}}"#;
        let odd = answer(&options, odd);
        assert_eq!((odd.observation.as_str(), odd.reward), (r#"{"a":1,"b":[2]}"#, 1.0));
    }

    #[test]
    fn a_list_that_is_none_names_the_key() {
        let options = EnvironmentOptions {
            actions: "/observation/goal".to_owned(),
            ..EnvironmentOptions::default()
        };
        let Reply::Observation(data) = read(GAME).unwrap() else { panic!() };
        let error = Reader::new(&options).unwrap().answer(data).unwrap_err().to_string();
        assert!(error.starts_with("environment.actions: /observation/goal is text"), "{error}");
    }

    #[test]
    fn nonsense_is_shown() {
        for text in ["", "[]", "5", "\u{0}", r#"{"type":"party"}"#, r#"{"type":"state","data":[]}"#]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
