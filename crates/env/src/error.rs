//! What can go wrong in an environment, in words that name the file and say what to do.

use std::path::PathBuf;

/// An environment's failure. An action the environment does not understand is not one of these:
/// environments answer it with their own text, and the turn counts.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EnvError {
    /// A file could not be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file was read and is not what it should be.
    #[error("{path}{}: {message}", line.map(|line| format!(":{line}")).unwrap_or_default())]
    Malformed {
        /// The file (or archive member).
        path: String,
        /// The line, counted from 1, where it is known.
        line: Option<usize>,
        /// What is wrong and what to do about it.
        message: String,
    },
    /// A task or split that the benchmark does not have.
    #[error("{what} \"{name}\" is not in {benchmark}; {hint}")]
    Unknown {
        /// "task" or "split".
        what: &'static str,
        /// The name asked for.
        name: String,
        /// The benchmark asked.
        benchmark: String,
        /// What there is instead.
        hint: String,
    },
    /// An option that the benchmark has no use for.
    #[error("{benchmark} has no {option}; {hint}")]
    Unsupported {
        /// The benchmark asked.
        benchmark: String,
        /// What it was asked for.
        option: &'static str,
        /// What to do instead.
        hint: String,
    },
    /// Data or a program that must be installed first.
    #[error("{what} is missing: {hint}")]
    Missing {
        /// What is missing.
        what: String,
        /// How to get it.
        hint: String,
    },
    /// A snapshot of another kind of environment, or a restored state that differs from the recorded one.
    #[error("cannot restore: {0}")]
    Restore(String),
    /// An environment that answers the same actions differently.
    #[error("the environment is not repeatable: {0}")]
    NotRepeatable(String),
    /// A configuration key with a value that cannot be.
    #[error("{key}: {message}")]
    Setting {
        /// The key, with its section.
        key: String,
        /// What is wrong and what to do about it.
        message: String,
    },
    /// `step` or `snapshot` before `reset`.
    #[error("the environment has no running task: call reset first")]
    NotReset,
    /// A backend process died, hung or answered nonsense.
    #[error("{backend} failed: {message}")]
    Backend {
        /// Which backend.
        backend: &'static str,
        /// What happened.
        message: String,
    },
}

impl EnvError {
    /// The message without what to do about it, for places that show both apart.
    pub fn message(&self) -> String {
        let full = self.to_string();
        let short = self.hint().and_then(|hint| full.strip_suffix(hint));
        short.map_or_else(
            || full.clone(),
            |short| short.trim_end_matches([' ', ';', ':']).to_owned(),
        )
    }

    /// What to do about it.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unknown { hint, .. }
            | Self::Unsupported { hint, .. }
            | Self::Missing { hint, .. } => Some(hint),
            _ => None,
        }
    }
}
