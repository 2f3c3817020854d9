//! What a method remembers between explorer batches.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::MethodName;
use crate::error::OpdError;

/// The newest layout of [`MethodState`] this build writes and reads.
pub const METHOD_STATE_VERSION: u32 = 2;

/// A method's memory. Every field but the version has a default and unknown ones are passed over, so that a state of a
/// newer release can still be read far enough to be refused by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodState {
    /// Layout of this state.
    pub version: u32,
    /// The method's name.
    #[serde(default)]
    pub method: String,
    /// Explorer batches taken in.
    #[serde(default)]
    pub batches: u64,
    /// What the method itself remembers, in its own shape.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub memory: Value,
    /// The gap-adaptive clock, where layout 1 kept it.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub horizon: Value,
}

impl MethodState {
    pub(super) fn new(method: MethodName, batches: u64, memory: Value) -> Self {
        let version = METHOD_STATE_VERSION;
        Self { version, method: method.as_str().to_owned(), batches, memory, horizon: Value::Null }
    }

    /// The method's own memory, if the state is one that `method` can read.
    pub(super) fn memory(&self, method: MethodName) -> Result<Value, OpdError> {
        if self.version > METHOD_STATE_VERSION {
            return Err(OpdError::NewerState {
                what: "method",
                found: self.version,
                supported: METHOD_STATE_VERSION,
            });
        }
        if self.method != method.as_str() {
            let message =
                format!("it belongs to method \"{}\", this run's is \"{method}\"", self.method);
            return Err(OpdError::State { message });
        }
        Ok(if self.version == 1 { self.horizon.clone() } else { self.memory.clone() })
    }
}
