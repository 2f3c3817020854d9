//! Laboratory errors. Every message names the file, the key or the model; the hint says what to do.

use std::path::PathBuf;

use lens_engine::EngineError;
use lens_env::EnvError;
use lens_lm::error::LmError;
use lens_train::TrainError;

/// A build or an examination that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LabError {
    /// A recipe could not be read.
    #[error("cannot read recipe `{path}`")]
    ReadRecipe {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A recipe is not TOML, or has an unknown key or a value of the wrong type.
    #[error("{origin}:{line}: {message}")]
    Syntax {
        /// The file, or the name of a shipped recipe.
        origin: String,
        /// The line, counted from 1.
        line: usize,
        /// The key, where there is one, and what is wrong.
        message: String,
    },
    /// A value of a recipe that is out of bounds or contradicts another one.
    #[error("recipe: `{key}`: {message}")]
    BadValue {
        /// The key, such as `model[0].stage[1].lr`.
        key: String,
        /// What is wrong with it.
        message: String,
    },
    /// No recipe is shipped for the benchmark.
    #[error("no recipe is shipped for the benchmark `{benchmark}`")]
    NoRecipe {
        /// The benchmark.
        benchmark: String,
    },
    /// The recipe has no model of that name.
    #[error("the recipe has no model `{name}`")]
    UnknownModel {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The model has no stage of that number.
    #[error("model `{model}` has {stages} stages; there is no stage {stage}")]
    NoStage {
        /// The model.
        model: String,
        /// How many stages it has.
        stages: usize,
        /// The number asked for, counted from 1.
        stage: usize,
    },
    /// The corpus has no sample of any kind in a stage's mixture.
    #[error("stage {stage} of `{model}`: the corpus has no sample of the kinds {mixture}")]
    NoSamples {
        /// The model.
        model: String,
        /// The stage, counted from 1.
        stage: usize,
        /// The kinds, separated by commas.
        mixture: String,
    },
    /// A tokenizer is in the output folder, and nothing says what it was made from.
    #[error("`{path}` exists, but `{record}`, which says what it was made from, cannot be read")]
    TokenizerUnknown {
        /// The tokenizer.
        path: PathBuf,
        /// The record beside it.
        record: PathBuf,
        /// What the system or the parser said.
        source: std::io::Error,
    },
    /// A tokenizer in the output folder was made from something else.
    #[error("`{path}` was made from something else: {}", differences.join(", "))]
    TokenizerOther {
        /// The tokenizer.
        path: PathBuf,
        /// What differs, such as `seed 1, not 2`.
        differences: Vec<String>,
    },
    /// The benchmark has no expert to compare a model with.
    #[error("{benchmark} has no expert to compare a model with")]
    NoExpert {
        /// The benchmark.
        benchmark: String,
    },
    /// A model's files or shape.
    #[error(transparent)]
    Model(#[from] LmError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The benchmark.
    #[error(transparent)]
    Environment(#[from] EnvError),
    /// Supervised training, or writing a file.
    #[error(transparent)]
    Train(#[from] TrainError),
}

impl LabError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::ReadRecipe { .. } => {
                Some("print a shipped recipe to start from with `lens lab recipe`".to_owned())
            }
            Self::Syntax { .. } => {
                Some("`lens lab recipe --schema` describes the format".to_owned())
            }
            Self::NoRecipe { .. } => Some("pass one with `--recipe FILE`".to_owned()),
            Self::UnknownModel { known, .. } => Some(format!("there are {}", known.join(", "))),
            Self::NoSamples { .. } => Some(
                "change the stage's `mixture`, or raise the share of these kinds in `[corpus]`"
                    .to_owned(),
            ),
            Self::TokenizerUnknown { path, .. } | Self::TokenizerOther { path, .. } => {
                Some(format!(
                    "choose another `--out`, or delete `{}` and rebuild every model in that folder",
                    path.display()
                ))
            }
            Self::NoExpert { .. } => Some("choose another `--benchmark`".to_owned()),
            Self::Environment(error) => error.hint().map(str::to_owned),
            Self::Train(error) => error.hint(),
            _ => None,
        }
    }

    /// Whether the user can fix it: a wrong recipe, a wrong argument, a folder in use.
    pub fn is_user_error(&self) -> bool {
        match self {
            Self::Model(error) => error.is_user_error(),
            Self::Engine(_) | Self::Train(_) => false,
            Self::Environment(error) => {
                !matches!(error, EnvError::Backend { .. } | EnvError::Restore(_))
            }
            _ => true,
        }
    }

    pub(crate) fn bad(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self::BadValue { key: key.into(), message: message.into() }
    }
}
