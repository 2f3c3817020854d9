//! What can stop a run.

use std::path::PathBuf;

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// A file of the run could not be written or read.
    #[error("cannot {action} {path}: {source}")]
    File {
        /// "read", "write", ...
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Not enough room for what the run will write.
    #[error(
        "{path} has {free} MB free, but the run needs about {needed} MB; free some space, lower train.keep_checkpoints or set `output`"
    )]
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
        "{steps} optimiser steps in a row had a loss or gradient that is not finite; the last batch is in {dump}. Lower optimizer.lr or look at the batch"
    )]
    NotFinite {
        /// How many.
        steps: u32,
        /// The dumped batch.
        dump: PathBuf,
    },
    /// There is nothing to do.
    #[error("{0}")]
    Nothing(String),
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

impl TrainError {
    /// Wraps an I/O error with the file it concerns.
    pub(crate) fn file(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { action, path, source }
    }
}
