//! Who can say how likely a response is, and what else might have stood at each of its positions.

use lens_lm::score::{ScoreOptions, ScoreRequest, score_with};

use crate::deadline::Deadline;
use crate::error::{CallFailure, EngineError};
use crate::native::NativePolicy;

/// A response to score.
#[derive(Debug, Clone)]
pub(crate) struct ScoreRow<'a> {
    pub(crate) prompt: &'a [u32],
    pub(crate) response: &'a [u32],
    /// How many of the most likely tokens are wanted at every position.
    pub(crate) top_k: usize,
    /// More ids to score: one list per response token, or none at all.
    pub(crate) asked: Vec<Vec<u32>>,
}

/// What a model says of one response token. What was not measured is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Scored {
    /// Log-probability of the realized token.
    pub(crate) logprob: Option<f32>,
    /// The most likely tokens, best first, the lowest id of equals first.
    pub(crate) top: Vec<(u32, f32)>,
    /// Log-probabilities of the asked ids, in their order.
    pub(crate) asked: Vec<Option<f32>>,
}

/// The answer to one row: one entry per response token.
pub(crate) type RowScores = Result<Vec<Scored>, CallFailure>;

/// A model that scores responses.
pub(crate) trait Scorer: Send + Sync {
    /// Scores all rows at temperature 1.
    fn score(
        &self,
        rows: &[ScoreRow<'_>],
        deadline: Deadline,
    ) -> Result<Vec<RowScores>, EngineError>;

    /// Whether asked ids are answered.
    fn answers_asked(&self) -> bool;
}

impl Scorer for NativePolicy {
    fn score(
        &self,
        rows: &[ScoreRow<'_>],
        deadline: Deadline,
    ) -> Result<Vec<RowScores>, EngineError> {
        if deadline.has_passed() {
            return Ok(rows.iter().map(|_| Err(CallFailure::Timeout)).collect());
        }
        let requests: Vec<ScoreRequest<'_>> = rows
            .iter()
            .map(|row| ScoreRequest {
                prompt: row.prompt,
                response: row.response,
                asked: &row.asked,
            })
            .collect();
        let options = ScoreOptions {
            real_vocab: Some(self.real_vocab()),
            top_k: rows.iter().map(|row| row.top_k).max().unwrap_or(0),
            ..ScoreOptions::default()
        };
        let scored = score_with(self.model(), &requests, &options, &mut self.prefix())?;
        let answers = scored.into_iter().zip(rows).map(|(scored, row)| {
            let positions = scored.positions.into_iter().map(|mut position| {
                position.top.truncate(row.top_k);
                Scored {
                    logprob: Some(position.logprob),
                    top: position.top,
                    asked: position.asked.into_iter().map(Some).collect(),
                }
            });
            Ok(positions.collect())
        });
        Ok(answers.collect())
    }

    fn answers_asked(&self) -> bool {
        true
    }
}

/// Puts a list of candidates into the order the engines agree on: best first, the lowest id of equals first; padding ids
/// and all beyond the `k` best go.
pub(crate) fn best_first(
    mut found: Vec<(u32, f32)>,
    k: usize,
    real_vocab: usize,
) -> Vec<(u32, f32)> {
    found.retain(|&(id, _)| (id as usize) < real_vocab);
    found.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    found.dedup_by_key(|&mut (id, _)| id);
    found.truncate(k);
    found
}

/// A log-probability as servers write it; minus infinity, NaN and the numbers that stand for them were not measured.
pub(crate) fn measured(value: &serde_json::Value) -> Option<f32> {
    const NOTHING: f64 = -9999.0;
    const ROUNDING: f64 = 1e-3;
    let value = value.as_f64()?;
    (value.is_finite() && value > NOTHING && value <= ROUNDING).then_some(value as f32)
}
