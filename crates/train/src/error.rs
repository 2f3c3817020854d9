//! What can stop a run.

use std::path::PathBuf;

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file of the run could not be written or read.
    #[error("cannot {action} {path}")]
    File {
        /// "read", "write", ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not enough room for what the run will write.
    #[error("{path} has {free} MB free, but the run needs about {needed} MB")]
    Disk {
        /// The folder.
        path: PathBuf,
        /// Megabytes there are.
        free: u64,
        /// Megabytes it takes.
        needed: u64,
    },
    /// The run folder is in use for something else.
    #[error("{path}: {message}")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What is wrong and what to do.
        message: String,
    },
    /// Another process trains in the folder.
    #[error("{path}: another process trains in this folder")]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A checkpoint's content is not what was saved.
    #[error("checkpoint {path} cannot be used: {message}")]
    Checkpoint {
        /// The checkpoint.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },
    /// Several steps in a row were not finite.
    #[error(
        "{steps} optimizer steps in a row had a loss or gradient that is not finite; the last batch is in {dump}"
    )]
    NotFinite {
        /// How many.
        steps: u32,
        /// The dumped batch.
        dump: PathBuf,
    },
    /// None of a run's checkpoints can be used.
    #[error("{folder}: none of the {} checkpoints can be used: {}", damaged.len(), listed(damaged))]
    NoUsableCheckpoint {
        /// The run's folder.
        folder: PathBuf,
        /// What is wrong with each.
        damaged: Vec<crate::checkpoint::Damaged>,
    },
    /// A checkpoint of a later release.
    #[error(
        "checkpoint {path} was made by a newer version (layout {found}, this one reads up to {supported})"
    )]
    NewerCheckpoint {
        /// The checkpoint.
        path: PathBuf,
        /// Its layout.
        found: u32,
        /// The newest layout this build reads.
        supported: u32,
    },
    /// A resumed run differs from the one that was interrupted.
    #[error("{path}: {what} is not what the run began with: {difference}")]
    Changed {
        /// The run's folder.
        path: PathBuf,
        /// What differs.
        what: String,
        /// How.
        difference: String,
    },
    /// A file of references that cannot be read.
    #[error("{path}:{line}: {message}")]
    References {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        message: String,
    },
    /// A method that replays successful episodes, without any.
    #[error("method \"{method}\" replays successful episodes, and `task.references` names none")]
    NoReferences {
        /// The method.
        method: lens_opd::methods::MethodName,
    },
    /// There is nothing to learn from.
    #[error("there are no examples to learn from")]
    NoExamples,
    /// Measures of results that have none.
    #[error("{what}: {reason}")]
    Measures {
        /// Evaluation or diagnostics.
        what: &'static str,
        /// What is wrong with the numbers.
        reason: lens_opd::error::InputError,
    },
    /// The one update of figure 2c went wrong.
    #[error("the one update of figure 2c met a number that is not finite")]
    NotFiniteUpdate,
    /// A line of the log could not be made.
    #[error(transparent)]
    Record(#[from] lens_records::WriteError),
    /// The environment failed.
    #[error(transparent)]
    Environment(#[from] lens_env::EnvError),
    /// The engine failed.
    #[error(transparent)]
    Engine(#[from] lens_engine::EngineError),
    /// The method refused what it was given.
    #[error(transparent)]
    Method(#[from] lens_opd::error::OpdError),
}

fn listed(damaged: &[crate::checkpoint::Damaged]) -> String {
    let lines = damaged.iter().map(|one| format!("{} ({})", one.path.display(), one.message));
    lines.collect::<Vec<_>>().join(", ")
}

impl TrainError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Disk { .. } => Some(
                "free some space, lower train.keep_checkpoints (--set works with --resume too), or set `output`"
                    .to_owned(),
            ),
            Self::NotFinite { .. } | Self::NotFiniteUpdate => {
                Some("lower optimizer.lr, or look at the batch".to_owned())
            }
            Self::NoUsableCheckpoint { folder, .. } => Some(format!(
                "put a good copy back into {}/checkpoints, or start over under another name with --set name=...",
                folder.display()
            )),
            Self::NewerCheckpoint { .. } => {
                Some("resume with the version that wrote it, or a newer one".to_owned())
            }
            Self::Busy { .. } => Some(
                "wait for it or stop it, or give this run another name with --set name=..."
                    .to_owned(),
            ),
            Self::Folder { .. } => Some(
                "resume it with --resume RUN, start over with --force, or give another name with --set name=..."
                    .to_owned(),
            ),
            Self::Changed { .. } => {
                Some("put it back, or start a run of another name with --set name=...".to_owned())
            }
            Self::NoReferences { .. } => Some(
                "collect them with `lens references collect CONFIG`, or set task.references=\"expert-plans\""
                    .to_owned(),
            ),
            _ => None,
        }
    }

    /// Wraps an I/O error with the file it concerns.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
