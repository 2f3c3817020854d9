//! What can go wrong in an engine.

use serde::{Deserialize, Serialize};

/// A whole call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The model's files or numbers are at fault.
    #[error(transparent)]
    Model(#[from] lens_lm::error::LmError),
    /// Training failed.
    #[error(transparent)]
    Train(#[from] lens_lm::train::TrainError),
    /// A request that makes no sense.
    #[error("bad request: {0}")]
    Request(String),
    /// The saved state of an engine cannot be used.
    #[error("the saved state {path} cannot be used: {message}")]
    State {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

impl EngineError {
    /// A file of a saved state that could not be read or written.
    pub(crate) fn state(path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.display().to_string();
        move |error| Self::State { path, message: error.to_string() }
    }

    /// A saved state whose content cannot be used.
    pub(crate) fn unusable(path: &std::path::Path, message: String) -> Self {
        Self::State { path: path.display().to_string(), message }
    }
}

/// One request of a batch failed; the others did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum CallFailure {
    /// The prompt is longer than the limit; it is never cut.
    #[error("the prompt is longer than the limit")]
    PromptTooLong,
    /// The deadline passed.
    #[error("the deadline passed")]
    Timeout,
    /// The engine failed.
    #[error("the engine failed")]
    Engine,
}
