//! What can go wrong with a model.

/// A failure of the language-model engine.
#[derive(Debug, thiserror::Error)]
pub enum LmError {
    /// A configuration no model can have.
    #[error("model configuration: {0}")]
    Config(String),
    /// A parameter the configuration calls for is not there.
    #[error("parameter {name} is missing")]
    MissingParameter {
        /// Hugging Face name.
        name: String,
    },
    /// A parameter has another shape than the configuration says.
    #[error("parameter {name} has shape {found:?}, the configuration says {expected:?}")]
    ParameterShape {
        /// Hugging Face name.
        name: String,
        /// As found.
        found: Vec<usize>,
        /// As configured.
        expected: Vec<usize>,
    },
    /// A parameter holds NaN or infinity.
    #[error("parameter {name} holds a value that is not finite (at index {index})")]
    ParameterNotFinite {
        /// Hugging Face name.
        name: String,
        /// Where, in row-major order.
        index: usize,
    },
    /// A request cannot be served as it is.
    #[error("request {index}: {reason}")]
    Request {
        /// Which request of the batch.
        index: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// The model's output is not a distribution.
    #[error(
        "request {index}: the model's outputs at position {position} are not finite; the weights have diverged or are damaged"
    )]
    NotFinite {
        /// Which request of the batch.
        index: usize,
        /// Position in the sequence.
        position: usize,
    },
    /// Two models that should work together do not fit.
    #[error("the two models do not fit: {0}")]
    Pair(String),
}
