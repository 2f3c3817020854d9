//! What can go wrong with a model, told so that a person can act: every message names the file, and the tensor or the key in it.

use std::path::{Path, PathBuf};

/// A failure while reading, writing or preparing a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LmError {
    /// The operating system refused.
    #[error("{}: cannot {action}", path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What was tried, as it follows "cannot".
        action: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file that a model needs is not there.
    #[error("{}: not found; {hint}", path.display())]
    Missing {
        /// The file that was looked for.
        path: PathBuf,
        /// What to do about it.
        hint: String,
    },
    /// A file breaks its own format: a truncated or lying header, text that is not JSON, and so on.
    #[error("{}: {problem}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and where.
        problem: String,
    },
    /// One tensor of a file cannot be used.
    #[error("{}: tensor `{tensor}` {problem}", path.display())]
    Tensor {
        /// The file that holds (or should hold) the tensor.
        path: PathBuf,
        /// The tensor's name in that file.
        tensor: String,
        /// What is wrong with it, as it follows the name.
        problem: String,
    },
    /// A setting of a model is missing, impossible or not supported.
    #[error("{}: `{key}` {problem}", path.display())]
    Config {
        /// The file with the setting.
        path: PathBuf,
        /// The setting's key.
        key: String,
        /// What is wrong with it, as it follows the key.
        problem: String,
    },
    /// The model belongs to a family that is not implemented.
    #[error(
        "{}: unknown architecture `{found}`; supported are qwen3, qwen2 (Qwen2.5 as well) and llama",
        path.display()
    )]
    UnknownArchitecture {
        /// The file that names it.
        path: PathBuf,
        /// The name.
        found: String,
    },
    /// The tokenizer cannot be read or used.
    #[error("{}: tokenizer: {problem}", path.display())]
    Tokenizer {
        /// The tokenizer's file.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Two models do not share one token map, so their distributions cannot be compared.
    #[error("the token maps of {} and {} differ: {difference}", left.display(), right.display())]
    Vocabulary {
        /// The first tokenizer's file.
        left: PathBuf,
        /// The second tokenizer's file.
        right: PathBuf,
        /// The first differing ids.
        difference: String,
    },
    /// The chat template cannot be read or rendered.
    #[error("{}: chat template: {problem}", path.display())]
    ChatTemplate {
        /// The file that holds the template.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// Parameters in memory that do not make a model.
    #[error("parameter `{name}` {problem}")]
    Parameter {
        /// Hugging Face name.
        name: String,
        /// What is wrong with it, as it follows the name.
        problem: String,
    },
    /// A setting of an inference call, or a model's shape, that cannot work.
    #[error("{0}")]
    Setting(String),
    /// One request of a batch cannot be served as it is.
    #[error("request {index}: {reason}")]
    Request {
        /// Which request of the batch, from 0.
        index: usize,
        /// Why, and what to do.
        reason: String,
    },
    /// The model's output is not a distribution.
    #[error(
        "request {index}: the model's outputs at position {position} are not finite; its weights have diverged or are damaged"
    )]
    NotFinite {
        /// Which request of the batch, from 0.
        index: usize,
        /// Position in the sequence.
        position: usize,
    },
}

impl LmError {
    /// Wraps a system error on `path`; `action` follows "cannot".
    pub(crate) fn io(path: &Path, action: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io { path, action, source }
    }

    /// A broken file.
    pub(crate) fn malformed(path: &Path, problem: impl Into<String>) -> Self {
        Self::Malformed { path: path.to_owned(), problem: problem.into() }
    }

    /// A tensor that cannot be used.
    pub(crate) fn tensor(path: &Path, tensor: &str, problem: impl Into<String>) -> Self {
        Self::Tensor { path: path.to_owned(), tensor: tensor.to_owned(), problem: problem.into() }
    }

    /// A setting that cannot be used.
    pub(crate) fn config(path: &Path, key: &str, problem: impl Into<String>) -> Self {
        Self::Config { path: path.to_owned(), key: key.to_owned(), problem: problem.into() }
    }

    /// Whether the user can mend it by changing files or settings (rather than the machine failing underneath).
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Io { source, .. } => matches!(
                source.kind(),
                std::io::ErrorKind::NotFound
                    | std::io::ErrorKind::PermissionDenied
                    | std::io::ErrorKind::NotADirectory
                    | std::io::ErrorKind::IsADirectory
                    | std::io::ErrorKind::AlreadyExists
            ),
            Self::NotFinite { .. } => false,
            _ => true,
        }
    }
}
