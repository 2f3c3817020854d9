//! The loss of a whole train batch, fixed before the first gradient.
//!
//! `L = sum(m*r*l) / (sum(m*r) + eps) + lambda_GI * (1/B) * sum over gi rows of their mean KL`. Both
//! denominators belong to the train batch, so they are computed here, once, over all its rows; each
//! row then gets one number that its token losses are multiplied by. Adding up rows in any grouping
//! gives the same loss.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::{Aggregation, LossParams, TokenLoss};
use crate::error::{InputError, OpdError};
use crate::methods::rows::{RowKind, TrainRow};

/// How a method puts its kinds of rows together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Terms {
    /// Weight of guidance internalisation, `lambda_GI`.
    pub lambda_gi: f64,
    /// Set: teacher turns and student turns are averaged apart and mixed with this share for the
    /// teacher's. Not set: every token of either kind weighs the same.
    pub teacher_mix: Option<f64>,
}

impl Default for Terms {
    fn default() -> Self {
        Self { lambda_gi: 1.0, teacher_mix: None }
    }
}

/// Sums of a train batch that a run logs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanCounts {
    /// Distinct trajectories, `B`.
    pub trajectories: usize,
    /// Trained tokens of rows other than gi.
    pub opd_tokens: usize,
    /// Tokens of gi rows.
    pub gi_tokens: usize,
    /// `sum(m*r)` over rows other than gi.
    pub weight: f64,
}

/// What each row's token losses are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct LossPlan {
    coefficients: Vec<Vec<f64>>,
    counts: PlanCounts,
}

impl LossPlan {
    /// Fixes the loss of a train batch (eq. focused-opd, eq. gi-objective).
    pub fn new(rows: &[TrainRow], loss: &LossParams, terms: &Terms) -> Result<Self, OpdError> {
        let counts = count(rows)?;
        let apart = |kind: RowKind| terms.teacher_mix.is_some() && kind == RowKind::TeacherNll;
        let weight_of = |teacher: bool| -> (f64, usize) {
            let side =
                rows.iter().filter(|row| row.kind != RowKind::Gi && apart(row.kind) == teacher);
            side.fold((0.0, 0), |(sum, count), row| (sum + row_weight(row), count + 1))
        };
        let (student, teacher) = (weight_of(false), weight_of(true));
        let coefficients = rows
            .iter()
            .map(|row| {
                if row.kind == RowKind::Gi {
                    let mean = terms.lambda_gi / (counts.trajectories * row.weights.len()) as f64;
                    return vec![mean; row.weights.len()];
                }
                let is_teacher = apart(row.kind);
                let share = match terms.teacher_mix {
                    None => 1.0,
                    Some(mix) => {
                        if is_teacher {
                            mix
                        } else {
                            1.0 - mix
                        }
                    }
                };
                let (weight, row_count) = if is_teacher { teacher } else { student };
                let scale = match loss.aggregation {
                    Aggregation::TokenMean => share / (weight + loss.eps),
                    Aggregation::RowMean => {
                        share / (row_count as f64 * (row_weight(row) + loss.eps))
                    }
                };
                row.weights.iter().map(|&r| scale * f64::from(r)).collect()
            })
            .collect();
        Ok(Self { coefficients, counts })
    }

    /// The factors of one row's token losses; `None` beyond the batch.
    pub fn coefficients(&self, row: usize) -> Option<&[f64]> {
        self.coefficients.get(row).map(Vec::as_slice)
    }

    /// The sums of the batch.
    pub fn counts(&self) -> PlanCounts {
        self.counts
    }

    /// One row's share of the loss and of the gradient at each of its tokens (eq. focused-opd).
    pub fn row_loss(&self, row: usize, tokens: &[TokenLoss]) -> Result<RowLoss, InputError> {
        let coefficients =
            self.coefficients(row).ok_or(InputError::Empty { what: "the row in the plan" })?;
        if tokens.len() != coefficients.len() {
            let (expected, found) = (coefficients.len(), tokens.len());
            return Err(InputError::Length { what: "token losses of a row", expected, found });
        }
        let mut loss = RowLoss { value: 0.0, gradients: Vec::with_capacity(tokens.len()) };
        for (coefficient, token) in coefficients.iter().zip(tokens) {
            loss.value += coefficient * token.value;
            loss.gradients.push(token.gradient.iter().map(|g| coefficient * g).collect());
        }
        Ok(loss)
    }
}

/// One row's share of the batch loss.
#[derive(Debug, Clone, PartialEq)]
pub struct RowLoss {
    /// Its part of the loss.
    pub value: f64,
    /// Its part of the gradient: one vector over the logits per token.
    pub gradients: Vec<Vec<f64>>,
}

fn row_weight(row: &TrainRow) -> f64 {
    row.weights.iter().map(|&r| f64::from(r)).sum()
}

fn count(rows: &[TrainRow]) -> Result<PlanCounts, InputError> {
    if rows.is_empty() {
        return Err(InputError::Empty { what: "the train batch" });
    }
    let mut counts = PlanCounts::default();
    let mut trajectories = BTreeSet::new();
    for row in rows {
        if row.weights.is_empty() {
            return Err(InputError::Empty { what: "a train row" });
        }
        for (position, &weight) in row.weights.iter().enumerate() {
            let (what, value) = ("token weight", f64::from(weight));
            if !weight.is_finite() {
                return Err(InputError::NotFinite { what, position, value });
            }
            if weight < 0.0 {
                let expected = "at least 0";
                return Err(InputError::OutOfRange { what, position, value, expected });
            }
        }
        trajectories.insert((row.batch, row.episode));
        if row.kind == RowKind::Gi {
            counts.gi_tokens += row.weights.len();
        } else {
            counts.opd_tokens += row.weights.len();
            counts.weight += row_weight(row);
        }
    }
    counts.trajectories = trajectories.len();
    Ok(counts)
}
