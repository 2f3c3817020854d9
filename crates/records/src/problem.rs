//! What can be wrong with a file of a run.

use std::path::PathBuf;

/// A line or a file that could not be read. Reading continues behind it where that is possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadProblem {
    /// The file could not be opened.
    #[error("cannot open `{}`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file could not be read to its end; later lines are lost.
    #[error("cannot read `{}` beyond line {line}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The line reading stopped at, from 1.
        line: u64,
        /// The system's error.
        source: std::io::Error,
    },
    /// The compressed stream ends in the middle: a copy that was cut off, or a file still being written.
    #[error("`{}` ends inside a zstd frame after line {line}; copy it again, or wait until it is written", path.display())]
    CutOff {
        /// The file.
        path: PathBuf,
        /// Whole lines that could be read.
        line: u64,
    },
    /// The last line has no end. A run that is writing looks like this for a moment; a killed one stays like it.
    #[error("`{}`:{line}: the last line is unfinished", path.display())]
    Unfinished {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
    },
    /// A line is longer than any line a run writes.
    #[error("`{}`:{line}: longer than {limit} bytes; skipped", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The longest line accepted.
        limit: usize,
    },
    /// A line is not what it should be.
    #[error("`{}`:{line}: {message}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// What the parser said.
        message: String,
    },
    /// A line was written by a newer build.
    #[error("`{}`:{line}: format {found}, but this build reads up to {supported}; update lens", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: u64,
        /// The line's format.
        found: u32,
        /// The newest format this build knows.
        supported: u32,
    },
}

impl ReadProblem {
    /// The file concerned.
    pub fn path(&self) -> &std::path::Path {
        match self {
            Self::Open { path, .. }
            | Self::Read { path, .. }
            | Self::CutOff { path, .. }
            | Self::Unfinished { path, .. }
            | Self::TooLong { path, .. }
            | Self::Damaged { path, .. }
            | Self::Newer { path, .. } => path,
        }
    }

    /// The line concerned, from 1; `None` when the file as a whole is.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Open { .. } => None,
            Self::Read { line, .. }
            | Self::CutOff { line, .. }
            | Self::Unfinished { line, .. }
            | Self::TooLong { line, .. }
            | Self::Damaged { line, .. }
            | Self::Newer { line, .. } => Some(*line),
        }
    }

    /// Whether waiting may cure it: the writer has not finished the line or the file yet.
    pub fn may_pass(&self) -> bool {
        matches!(self, Self::Unfinished { .. } | Self::CutOff { .. })
    }
}
