//! From the text of an action to the object a server takes.

use serde_json::{Map, Value, json};

use crate::error::EnvError;
use crate::remote::EnvironmentOptions;
use crate::remote::options::ActionFormat;

/// How actions are made. The error of [`Builder::build`] is what the agent is told.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Builder {
    /// Into the one field that takes text.
    Text { field: String },
    /// The text is the object.
    Json { schema: Value },
    /// The text is a call of one of these tools.
    Tool { tools: Vec<Tool> },
}

/// A tool of a tool environment.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) input_schema: Value,
}

impl Builder {
    /// By the options and the server's schema of actions.
    pub(super) fn new(
        options: &EnvironmentOptions,
        schema: &Value,
        tools: Vec<Tool>,
    ) -> Result<Self, EnvError> {
        match options.action_format {
            ActionFormat::Text => {
                text_field(&options.action_field, schema).map(|field| Self::Text { field })
            }
            ActionFormat::Json => Ok(Self::Json { schema: schema.clone() }),
            ActionFormat::Tool if tools.is_empty() => Err(EnvError::Setting {
                key: "environment.action_format".to_owned(),
                message: "the server has no tools; use `text` or `json`".to_owned(),
            }),
            ActionFormat::Tool => Ok(Self::Tool { tools }),
        }
    }

    /// The action object, or what is wrong with the text.
    pub(super) fn build(&self, text: &str) -> Result<Value, String> {
        match self {
            Self::Text { field } => Ok(json!({field: text})),
            Self::Json { schema } => {
                let action = object(text)?;
                fit(&Value::Object(action.clone()), schema, "the action")?;
                Ok(Value::Object(action))
            }
            Self::Tool { tools } => {
                let mut call = object(text)?;
                let name = call.remove("name").or_else(|| call.remove("tool_name"));
                let name =
                    name.as_ref().and_then(Value::as_str).ok_or("the call has no \"name\"")?;
                let tool = tools.iter().find(|tool| tool.name == name).ok_or_else(|| {
                    let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
                    format!("there is no tool {name:?}; there are {}", names.join(", "))
                })?;
                let arguments = call.remove("arguments").unwrap_or_else(|| json!({}));
                fit(&arguments, &tool.input_schema, "arguments")?;
                Ok(json!({"type": "call_tool", "tool_name": name, "arguments": arguments}))
            }
        }
    }

    /// What an agent has to know to call tools; empty otherwise.
    pub(super) fn instructions(&self) -> String {
        let Self::Tool { tools } = self else { return String::new() };
        let listed: Vec<String> = tools
            .iter()
            .map(|tool| {
                format!("{}: {} Arguments: {}", tool.name, tool.description, tool.input_schema)
            })
            .collect();
        format!(
            "An action is a tool call written as {{\"name\": \"...\", \"arguments\": {{...}}}}. The tools are:\n{}",
            listed.join("\n")
        )
    }
}

/// The tools an answer lists.
pub(super) fn tools(observation: &Value) -> Vec<Tool> {
    let listed = observation["tools"].as_array().into_iter().flatten();
    listed
        .filter_map(|tool| {
            Some(Tool {
                name: tool["name"].as_str()?.to_owned(),
                description: tool["description"].as_str().unwrap_or_default().to_owned(),
                input_schema: tool["input_schema"].clone(),
            })
        })
        .collect()
}

fn object(text: &str) -> Result<Map<String, Value>, String> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err("the action is not a JSON object".to_owned()),
        Err(error) => Err(format!("the action is not JSON: {error}")),
    }
}

/// The field named by the configuration, or the only required one that takes text.
fn text_field(named: &str, schema: &Value) -> Result<String, EnvError> {
    let refuse = |message: String| {
        Err(EnvError::Setting { key: "environment.action_field".to_owned(), message })
    };
    let properties: Vec<(&String, &Value)> =
        schema["properties"].as_object().into_iter().flatten().collect();
    let names = || properties.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ");
    if !named.is_empty() {
        if !properties.is_empty() && properties.iter().all(|(name, _)| *name != named) {
            return refuse(format!(
                "the server's actions have no {named:?}; they have {}",
                names()
            ));
        }
        return Ok(named.to_owned());
    }
    let required: Vec<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let takes_text: Vec<&str> = properties
        .iter()
        .filter(|(name, property)| {
            required.contains(&name.as_str()) && property["type"] == "string"
        })
        .map(|(name, _)| name.as_str())
        .collect();
    match (takes_text.as_slice(), required.len()) {
        ([only], 1) => Ok((*only).to_owned()),
        _ => refuse(format!(
            "say which field takes the text (the server's actions have {}), or set \
             `environment.action_format` to `json` or `tool`",
            names()
        )),
    }
}

/// Whether a value fits the parts of JSON Schema that decide most mistakes; the server judges the rest.
fn fit(value: &Value, schema: &Value, what: &str) -> Result<(), String> {
    if let Some(kind) = schema["type"].as_str() {
        let fits = match kind {
            "object" => value.is_object(),
            "array" => value.is_array(),
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_i64() || value.is_u64(),
            "number" => value.is_number(),
            "null" => value.is_null(),
            _ => true,
        };
        if !fits {
            return Err(format!("{what} must be of type {kind}"));
        }
    }
    if let Some(allowed) = schema["enum"].as_array()
        && !allowed.contains(value)
    {
        return Err(format!("{what} must be one of {}", Value::from(allowed.clone())));
    }
    let Some(fields) = value.as_object() else { return Ok(()) };
    for name in schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str) {
        if !fields.contains_key(name) {
            return Err(format!("{what} must have {name:?}"));
        }
    }
    let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
    for (name, field) in fields {
        match properties.get(name) {
            Some(schema) => fit(field, schema, name)?,
            None if schema["additionalProperties"] == false => {
                return Err(format!("{what} has no {name:?}"));
            }
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Value {
        json!({
            "additionalProperties": false, "required": ["command"], "type": "object",
            "properties": {"metadata": {"type": "object"}, "command": {"type": "string"}},
        })
    }

    #[test]
    fn the_schema_tells_which_field_takes_the_text() {
        let made = |options: &EnvironmentOptions, schema: &Value| {
            Builder::new(options, schema, Vec::new())
        };
        let standard = EnvironmentOptions::default();
        let builder = made(&standard, &schema()).unwrap();
        assert_eq!(builder.build("go east").unwrap(), json!({"command": "go east"}));
        let named = EnvironmentOptions {
            action_field: "comand".to_owned(),
            ..EnvironmentOptions::default()
        };
        let error = made(&named, &schema()).unwrap_err().to_string();
        assert!(error.contains("comand") && error.contains("metadata, command"), "{error}");
        let mut two = schema();
        two["required"] = json!(["command", "speed"]);
        assert!(
            made(&standard, &two).unwrap_err().to_string().starts_with("environment.action_field")
        );
    }

    #[test]
    fn json_actions_are_checked_before_they_are_sent() {
        let options = EnvironmentOptions {
            action_format: ActionFormat::Json,
            ..EnvironmentOptions::default()
        };
        let builder = Builder::new(&options, &schema(), Vec::new()).unwrap();
        assert!(builder.build(r#"{"command": "go"}"#).is_ok());
        for (text, why) in [
            ("go", "not JSON"),
            ("[]", "not a JSON object"),
            ("{}", "must have \"command\""),
            (r#"{"command": 5}"#, "command must be of type string"),
            (r#"{"command": "go", "speed": 1}"#, "has no \"speed\""),
        ] {
            let error = builder.build(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn tool_calls_are_checked_against_the_tools() {
        let listed = json!({"tools": [{"name": "add", "description": "Add.", "input_schema": {
            "additionalProperties": false, "required": ["a"], "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        }}]});
        let options = EnvironmentOptions {
            action_format: ActionFormat::Tool,
            ..EnvironmentOptions::default()
        };
        let builder = Builder::new(&options, &Value::Null, tools(&listed)).unwrap();
        assert_eq!(
            builder.build(r#"{"name": "add", "arguments": {"a": 2}}"#).unwrap(),
            json!({"type": "call_tool", "tool_name": "add", "arguments": {"a": 2}})
        );
        assert!(builder.instructions().contains("add: Add. Arguments: {"));
        for (text, why) in [
            (r#"{"arguments": {}}"#, "no \"name\""),
            (r#"{"name": "sub"}"#, "there are add"),
            (r#"{"name": "add"}"#, "must have \"a\""),
            (r#"{"name": "add", "arguments": {"a": "x"}}"#, "a must be of type integer"),
        ] {
            let error = builder.build(text).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert!(Builder::new(&options, &Value::Null, Vec::new()).is_err());
    }
}
