//! The messages of the protocol.

use serde_json::{Map, Value, json};

use super::PROTOCOL;
use crate::error::EnvError;
use crate::remote::failed;
use crate::remote::reader::plain;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_is_shown() {
        for text in ["", "[]", "5", "\u{0}", r#"{"type":"party"}"#, r#"{"type":"state","data":[]}"#]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
