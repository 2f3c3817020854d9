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
    /// A server or the training worker failed, and the run cannot go on without it.
    #[error("{endpoint}: {message}{}", with_status(*status))]
    Remote {
        /// Its address.
        endpoint: String,
        /// The HTTP status, if it answered.
        status: Option<u16>,
        /// What went wrong and what to do.
        message: String,
    },
    /// A server answered with other weights than it was given.
    #[error(
        "{endpoint} answers with weights \"{found}\", but it was given \"{expected}\": it was restarted or changed by someone else; resume the run, which publishes the weights again"
    )]
    Version {
        /// The server.
        endpoint: String,
        /// The version it was given.
        expected: String,
        /// The version it answered with.
        found: String,
    },
    /// The saved state of an engine cannot be used.
    #[error("the saved state {path} cannot be used: {message}")]
    State {
        /// The file.
        path: String,
        /// What is wrong with it.
        message: String,
    },
}

fn with_status(status: Option<u16>) -> String {
    status.map_or_else(String::new, |status| format!(" (HTTP {status})"))
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use lens_lm::model::WeightFormat;
    use lens_lm::train::{AdamWConfig, TrainerOptions};
    use lens_opd::objective::Loss;

    use super::*;
    use crate::native::{LearnerOptions, NativeEngine, NativePolicy};
    use crate::{Engine, LearnRow, Target};

    const ALL: [&str; 4] = ["Model", "Train", "Request", "State"];

    /// Has no other arm: a new variant does not compile until it stands here.
    fn name(error: &EngineError) -> &'static str {
        match error {
            EngineError::Model(_) => ALL[0],
            EngineError::Train(_) => ALL[1],
            EngineError::Request(_) => ALL[2],
            EngineError::State { .. } => ALL[3],
            // Only a server can cause these; `tests/remote` does.
            EngineError::Remote { .. } => "Remote",
            EngineError::Version { .. } => "Version",
        }
    }

    fn model(family: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../lm/tests/fixtures").join(family)
    }

    #[test]
    fn every_error_without_a_server_is_produced_and_says_what_is_wrong() {
        let options = LearnerOptions {
            format: WeightFormat::F32,
            loss: Loss::default(),
            optimizer: AdamWConfig::default(),
            training: TrainerOptions::default(),
        };
        let mut engine =
            NativeEngine::load(&model("qwen3"), &model("qwen2"), WeightFormat::F32, options)
                .expect("the models are committed");
        let row = |coefficients: usize, target: Target| LearnRow {
            prompt: vec![1, 2],
            response: vec![3, 4],
            coefficients: vec![1.0; coefficients],
            target,
        };
        let gone = Target(crate::target::Kind::Snapshot {
            hidden: std::sync::Arc::new(vec![0.0; 64]),
            version: 9,
        });
        let produced = [
            (NativePolicy::load(&model("absent"), WeightFormat::F32).err(), "absent"),
            (engine.learn(&[row(1, Target::tokens())]).err(), "row 0"),
            (engine.learn(&[row(2, gone)]).err(), "snapshot 9"),
            (engine.load(&model("qwen3"), &[]).err(), "queue-targets"),
        ];
        let mut seen = BTreeSet::new();
        for (error, word) in produced {
            let error = error.expect("it fails");
            assert!(error.to_string().contains(word), "{error} does not name {word}");
            seen.insert(name(&error));
        }
        assert_eq!(seen, BTreeSet::from(ALL));
    }
}
