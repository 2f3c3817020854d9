//! Everything that can be wrong with a configuration.

use std::path::PathBuf;

use crate::layers::Origin;

/// A configuration that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A file could not be read.
    #[error("cannot read configuration `{path}`")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A folder, pipe or device where a file should be.
    #[error("configuration `{path}` is not a regular file")]
    NotAFile {
        /// What was named.
        path: PathBuf,
    },
    /// A file that is too long to be a configuration.
    #[error("configuration `{path}` is larger than {} KiB", limit >> 10)]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// The most bytes allowed.
        limit: u64,
    },
    /// Includes that include ever more files.
    #[error("{path}: the configuration is made of more than {limit} files")]
    TooManyFiles {
        /// The file that is one too many.
        path: PathBuf,
        /// The most files allowed.
        limit: usize,
    },
    /// A file is not TOML (or YAML, when importing).
    #[error("{path}:{line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
        /// What the parser said.
        message: String,
    },
    /// Files that include each other.
    #[error("{path} includes itself: {chain}")]
    IncludeCycle {
        /// The file met twice.
        path: PathBuf,
        /// The way there.
        chain: String,
    },
    /// `include` is not a list of file names.
    #[error("{path}: include must be a list of file names")]
    BadInclude {
        /// The file.
        path: PathBuf,
    },
    /// A key that does not exist.
    #[error("{origin}: unknown key `{key}`")]
    UnknownKey {
        /// Where it stands.
        origin: Origin,
        /// The key, dotted.
        key: String,
        /// The nearest key that exists, when one is near.
        suggestion: Option<String>,
    },
    /// A value of the wrong type, or not one of the words allowed.
    #[error("{origin}: `{key}`: {message}")]
    BadValue {
        /// Where it stands.
        origin: Origin,
        /// The key, dotted.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// An override that is not `a.b=c`.
    #[error("--set {text}: expected key=value")]
    BadOverride {
        /// What was given.
        text: String,
    },
}

impl ConfigError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Read { .. } => Some(
                "shipped configurations are in configs/; `lens config schema` describes the format"
                    .to_owned(),
            ),
            Self::UnknownKey { suggestion, .. } => {
                suggestion.as_ref().map(|near| format!("did you mean `{near}`?"))
            }
            Self::NotAFile { .. } | Self::TooLarge { .. } => {
                Some("name a TOML file; `lens config schema` describes the format".to_owned())
            }
            Self::TooManyFiles { .. } => Some(
                "a file counts each time it is included: include shared files once, from the top"
                    .to_owned(),
            ),
            Self::BadInclude { .. } => Some("write include = [\"base.toml\"]".to_owned()),
            Self::BadOverride { .. } => Some("for example --set train.steps=100".to_owned()),
            _ => None,
        }
    }
}
