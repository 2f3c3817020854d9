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
    /// Student and teacher do not fit together.
    #[error("student and teacher do not fit together: {0}")]
    Mismatch(String),
    /// A request that makes no sense.
    #[error("bad request: {0}")]
    Request(String),
    /// The saved state of a learner cannot be used.
    #[error("the learner's state {path} cannot be used: {message}")]
    State {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

/// One request of a batch failed; the others did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
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
