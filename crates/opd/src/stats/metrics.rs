//! The paper's evaluation metrics (appendix B.2), each on one seed's episodes.

use serde::{Deserialize, Serialize};

use super::mean;
use crate::error::InputError;

/// One finished evaluation episode.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct EvalEpisode {
    /// Whether the environment calls the task done.
    pub success: bool,
    /// The final score on the environment's own scale: WebShop 0 to 1, ScienceWorld up to 100.
    pub score: f64,
    /// Turns taken.
    pub turns: usize,
}

/// Score (where the benchmark has one) and success rate, both in percent or points.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BenchmarkResult {
    /// The score; ALFWorld has none.
    pub score: Option<f64>,
    /// The success rate in percent.
    pub success_rate: f64,
}

/// ALFWorld: share of completed tasks in percent.
pub fn alfworld(episodes: &[EvalEpisode]) -> Result<BenchmarkResult, InputError> {
    Ok(BenchmarkResult { score: None, success_rate: completion_rate(episodes)? })
}

/// WebShop: mean reward times 100, and share of rewards of exactly 1 in percent.
pub fn webshop(episodes: &[EvalEpisode]) -> Result<BenchmarkResult, InputError> {
    for (position, episode) in episodes.iter().enumerate() {
        if !(0.0..=1.0).contains(&episode.score) {
            let (what, expected) = ("WebShop reward", "between 0 and 1");
            let value = episode.score;
            return Err(InputError::OutOfRange { what, position, value, expected });
        }
    }
    let score = 100.0 * mean_of(episodes, |episode| episode.score)?;
    let success_rate = 100.0 * mean_of(episodes, |e| f64::from(u8::from(e.score == 1.0)))?;
    Ok(BenchmarkResult { score: Some(score), success_rate })
}

/// ScienceWorld: mean final score with negative ones as 0, and share of completed tasks in percent.
pub fn scienceworld(episodes: &[EvalEpisode]) -> Result<BenchmarkResult, InputError> {
    mean_of(episodes, |episode| episode.score)?;
    let score = mean_of(episodes, |episode| episode.score.max(0.0))?;
    Ok(BenchmarkResult { score: Some(score), success_rate: completion_rate(episodes)? })
}

/// Mean interaction rounds: turns used, `max_turns` for a failed episode (tables 2 and 3).
pub fn rounds(episodes: &[EvalEpisode], max_turns: usize) -> Result<f64, InputError> {
    mean_of(episodes, |e| if e.success { e.turns as f64 } else { max_turns as f64 })
}

fn completion_rate(episodes: &[EvalEpisode]) -> Result<f64, InputError> {
    Ok(100.0 * mean_of(episodes, |episode| f64::from(u8::from(episode.success)))?)
}

fn mean_of(
    episodes: &[EvalEpisode],
    value: impl Fn(&EvalEpisode) -> f64,
) -> Result<f64, InputError> {
    mean(&episodes.iter().map(value).collect::<Vec<_>>())
}
