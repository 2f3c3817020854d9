//! From an answer as JSON to what an agent sees, by the configuration's templates and pointers.

use serde_json::{Map, Value, json};

use super::{Answer, EnvironmentOptions};
use crate::environment::Actions;
use crate::error::EnvError;
use crate::template::Template;

/// Keys under which environments say what the agent is asked to do.
const TASK_KEYS: [&str; 4] = ["task", "goal", "instruction", "task_description"];
/// The key under which our own server lists admissible actions.
const ACTIONS_KEY: &str = "admissible_actions";
/// The keys under which it lists command templates and the objects that fit them.
const TEMPLATES_KEYS: [&str; 2] = ["action_templates", "objects"];

/// A value as text: texts as they are, the rest as JSON.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Turns answers into what an agent sees.
#[derive(Debug)]
pub(crate) struct Reader {
    task: Option<Template>,
    observation: Option<Template>,
    actions: String,
    success: String,
}

impl Reader {
    pub(crate) fn new(options: &EnvironmentOptions) -> Result<Self, EnvError> {
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
    pub(crate) fn answer(&self, mut data: Value) -> Result<Answer, EnvError> {
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
        let Some(found) = found.filter(|found| !found.is_null() || !self.actions.is_empty()) else {
            return Ok(templates(&data["observation"]));
        };
        match found {
            Value::Array(list) => Ok(Actions::Commands(texts(list))),
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

fn texts(list: &[Value]) -> Vec<String> {
    list.iter().map(plain).collect()
}

/// Command templates and objects, where an observation lists them; else any text is allowed.
fn templates(observation: &Value) -> Actions {
    match TEMPLATES_KEYS.map(|key| observation[key].as_array()) {
        [Some(templates), Some(objects)] => {
            Actions::Templates { templates: texts(templates), objects: texts(objects) }
        }
        _ => Actions::Free,
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
    let places = [&data["observation"], &data["metadata"], data];
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
        .filter(|(key, _)| !TEMPLATES_KEYS.contains(&key.as_str()))
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
        let data: Value = serde_json::from_str(text).unwrap();
        Reader::new(options).unwrap().answer(data).unwrap()
    }

    const GAME: &str = r#"{"observation":{"metadata":{"won":true},"text":"A hall.","admissible":["look","go"],"goal":"find the cup"},"reward":1,"done":true,"metadata":{"won":true}}"#;

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
        let tool = r#"{"observation":{"tool_name":"add","result":{"data":5},"error":null},"reward":null,"done":false}"#;
        assert_eq!(answer(&options, tool).observation, "5");
        let odd = r#"{"observation":{"a":1,"b":[2]},"reward":true}"#;
        let odd = answer(&options, odd);
        assert_eq!((odd.observation.as_str(), odd.reward), (r#"{"a":1,"b":[2]}"#, 1.0));
    }

    #[test]
    fn a_list_that_is_none_names_the_key() {
        let options = EnvironmentOptions {
            actions: "/observation/goal".to_owned(),
            ..EnvironmentOptions::default()
        };
        let data: Value = serde_json::from_str(GAME).unwrap();
        let error = Reader::new(&options).unwrap().answer(data).unwrap_err().to_string();
        assert!(error.starts_with("environment.actions: /observation/goal is text"), "{error}");
    }

    #[test]
    fn templates_and_objects_are_listed_apart() {
        let text = r#"{"observation":{"text":"A lab.","admissible_actions":null,"action_templates":["open OBJ"],"objects":["door"]},"reward":0,"done":false}"#;
        let read = answer(&EnvironmentOptions::default(), text);
        assert_eq!(read.observation, "A lab.");
        let (templates, objects) = (vec!["open OBJ".to_owned()], vec!["door".to_owned()]);
        assert_eq!(read.actions, Actions::Templates { templates, objects });
    }
}
