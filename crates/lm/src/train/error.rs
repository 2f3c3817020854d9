//! What can be wrong with the input of training.

use thiserror::Error;

use crate::error::LmError;

/// An input that training refuses. Nothing has been computed or changed when one is returned.
#[derive(Debug, Error)]
pub enum TrainError {
    /// The model's shape cannot be trained.
    #[error("model configuration: {0}")]
    Config(String),
    /// The instruction set that was asked for is not there.
    #[error("{0}")]
    Kernels(String),
    /// A parameter is absent.
    #[error("parameter `{name}` is missing: the configuration asks for it with shape {shape:?}")]
    MissingParameter {
        /// Its Hugging Face name.
        name: String,
        /// The shape asked for.
        shape: Vec<usize>,
    },
    /// A parameter the configuration does not know.
    #[error("parameter `{0}` does not belong to this configuration")]
    UnknownParameter(String),
    /// A parameter of the wrong shape.
    #[error("parameter `{name}` has shape {found:?}, the configuration asks for {expected:?}")]
    ParameterShape {
        /// Its Hugging Face name.
        name: String,
        /// The shape asked for.
        expected: Vec<usize>,
        /// The shape found.
        found: Vec<usize>,
    },
    /// A parameter with a value that is not finite.
    #[error("parameter `{name}` holds a value that is not finite at index {index}")]
    NonFiniteParameter {
        /// Its Hugging Face name.
        name: String,
        /// Index of the first such value.
        index: usize,
    },
    /// Weights that could not be read.
    #[error(transparent)]
    Read(#[from] LmError),
    /// Adapters that do not fit this model or these settings.
    #[error("adapters: {0}")]
    Adapters(String),
    /// A row that cannot be trained on.
    #[error("training row {row}: {reason}")]
    Row {
        /// Index in the batch.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// An output head that does not fit.
    #[error("{which} output head: {reason}")]
    Head {
        /// Whose head.
        which: &'static str,
        /// What is wrong with it.
        reason: String,
    },
    /// Optimizer settings that make no sense.
    #[error("optimizer setting `{name}` is {value}: {expected}")]
    Optimizer {
        /// The setting.
        name: &'static str,
        /// Its value.
        value: f64,
        /// What it should be.
        expected: &'static str,
    },
    /// A saved optimizer state that does not fit this model.
    #[error("optimizer state: {0}")]
    State(String),
    /// The optimizer state could not be written.
    #[error("optimizer state could not be written: {0}")]
    Write(#[from] std::io::Error),
}
