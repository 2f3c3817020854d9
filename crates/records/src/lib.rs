//! The typed lines of a run folder.
//!
//! A run writes three kinds of lines: [`metrics`] (numbers that follow from configuration and seed), [`timings`] (what
//! the clock said) and [`episodes`] (everything that was played, zstd). The trainer writes them through [`write`], and
//! everything that reads a run, such as figures and the viewer, goes through [`folder::RunFolder`] and [`lines`].
//!
//! Every line carries its own `format` number, because a run resumed by a newer build holds lines of both. Lines
//! without the number are format 1. Readers never stop at a bad line: they return a [`ReadProblem`] for it and go on.
//! Words that the method may add to later (ends, reasons, actors) are plain strings, so that an older reader shows a
//! word it does not know instead of refusing the line.
#![forbid(unsafe_code)]

pub mod audit;
pub mod episodes;
pub mod folder;
pub mod lines;
pub mod metrics;
mod problem;
pub mod timings;
pub mod write;

pub use episodes::EpisodeLine;
pub use folder::{RunFolder, RunState};
pub use metrics::Record;
pub use problem::ReadProblem;
pub use timings::TimingLine;
pub use write::WriteError;

/// The format this build writes.
pub const FORMAT: u32 = 2;

/// A line that says which format it has.
pub trait Versioned {
    /// The format number of the line; 1 where the line has none.
    fn format(&self) -> u32;
}

/// The format of lines that carry no number.
fn unnumbered() -> u32 {
    1
}
