//! The lines of `timings.jsonl`: what the clock said, kept apart from the numbers that must not depend on it.

use serde::{Deserialize, Serialize};

use crate::{Versioned, unnumbered};

/// How long one stage of one batch took.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TimingLine {
    /// Format of the line.
    #[serde(default = "unnumbered")]
    pub format: u32,
    /// `explore`, `learn` or `evaluate`.
    pub stage: String,
    /// The explorer batch.
    pub batch: u64,
    /// How long it took.
    pub seconds: f64,
    /// When it ended, in seconds since 1970 (format 2).
    #[serde(default)]
    pub at: Option<f64>,
}

impl Versioned for TimingLine {
    fn format(&self) -> u32 {
        self.format
    }
}
