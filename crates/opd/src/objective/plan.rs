//! The loss of a whole train batch, fixed before the first gradient.
//!
//! `L = sum(m*r*l) / (D + epsilon) + lambda_GI * sum over internalization rows of w * their mean KL`. `D` is the weight
//! `sum(m*r)` or the number of trained tokens ([`Denominator`]); `w` is what one internalization row weighs
//! ([`InternalizeAggregation`]). Everything a factor depends on belongs to the train batch or to the row, so it is fixed
//! here, once, over all rows; adding up rows in any grouping gives the same loss.

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Aggregation, Loss, TokenLoss};
use crate::error::{InputError, OpdError};
use crate::methods::record::TokenCounts;
use crate::methods::rows::{RowKind, TrainRow, token_counts};

/// What the token losses of a train batch are divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Denominator {
    /// The weight of its tokens, `sum(m*r)`: weights say how the step is split (LENS-OPD).
    #[default]
    Weights,
    /// The number of its tokens: weights also say how large the step is (SOD, IW-OPD).
    Tokens,
}

/// What one internalization row weighs next to 1 for all other rows together.
///
/// Algorithm 1 adds `L_focus + lambda * L_GI` over trajectories; a train batch holds rows. With `G` internalization
/// rows, `R` rows and `N` trajectories in the explorer batch a row came from:
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum InternalizeAggregation {
    /// `(R/N) / rows of the train batch`: the mean of Algorithm 1 over trajectories, at every horizon.
    #[default]
    Trajectory,
    /// `1/B`, `B` the trajectories present in the train batch: weighs less the deeper episodes go.
    Batch,
    /// `(G/N) / internalization rows of the train batch`: a mean over those rows.
    Rows,
}

/// How a method puts its kinds of rows together.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct LossTerms {
    /// Weight of guidance internalization, `lambda_GI`.
    pub internalize_weight: f64,
    /// What one internalization row weighs.
    pub internalize_aggregation: InternalizeAggregation,
    /// Set: teacher turns and student turns are averaged apart and mixed with this share for the
    /// teacher's. Not set: every token of either kind weighs the same.
    pub teacher_mix: Option<f64>,
    /// What token losses are divided by.
    pub denominator: Denominator,
}

impl Default for LossTerms {
    fn default() -> Self {
        Self {
            internalize_weight: 1.0,
            internalize_aggregation: InternalizeAggregation::Trajectory,
            teacher_mix: None,
            denominator: Denominator::Weights,
        }
    }
}

/// Sums of a train batch that a run logs.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct PlanCounts {
    /// Distinct trajectories, `B`.
    pub trajectories: usize,
    /// Trained tokens by kind of row (figure 4c).
    pub tokens: TokenCounts,
    /// `sum(m*r)` over rows other than internalization.
    pub weight: f64,
    /// Internalization rows.
    pub internalized: usize,
    /// Their factors added up: what internalization weighs next to 1 for all other rows.
    pub internalize_share: f64,
}

/// What each row's token losses are multiplied by.
#[derive(Debug, Clone, PartialEq)]
pub struct LossPlan {
    coefficients: Vec<Vec<f64>>,
    counts: PlanCounts,
}

impl LossPlan {
    /// Fixes the loss of a train batch (eq. focused-opd, eq. gi-objective).
    pub fn new(rows: &[TrainRow], loss: &Loss, terms: &LossTerms) -> Result<Self, OpdError> {
        let mut counts = count(rows)?;
        let apart = |kind: RowKind| terms.teacher_mix.is_some() && kind == RowKind::TeacherNll;
        let total = |teacher: bool| -> (f64, usize) {
            let side = rows
                .iter()
                .filter(|row| row.kind != RowKind::Internalize && apart(row.kind) == teacher);
            side.fold((0.0, 0), |(sum, count), row| (sum + terms.denominator.of(row), count + 1))
        };
        let (student, teacher) = (total(false), total(true));
        let mut coefficients = Vec::with_capacity(rows.len());
        for row in rows {
            if row.kind == RowKind::Internalize {
                let share = terms.internalize_weight
                    * terms.internalize_aggregation.row_weight(row, rows.len(), &counts);
                counts.internalize_share += share;
                let tokens = row.weights.len();
                coefficients.push(vec![share / tokens as f64; tokens]);
                continue;
            }
            let is_teacher = apart(row.kind);
            let share = match (terms.teacher_mix, is_teacher) {
                (None, _) => 1.0,
                (Some(mix), true) => mix,
                (Some(mix), false) => 1.0 - mix,
            };
            let (sum, row_count) = if is_teacher { teacher } else { student };
            let scale = match loss.aggregation {
                Aggregation::TokenMean => share / (sum + loss.epsilon),
                Aggregation::RowMean => {
                    share / (row_count as f64 * (terms.denominator.of(row) + loss.epsilon))
                }
            };
            coefficients.push(row.weights.iter().map(|&r| scale * f64::from(r)).collect());
        }
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

impl Denominator {
    /// A row's part of the denominator.
    fn of(self, row: &TrainRow) -> f64 {
        match self {
            Self::Weights => row_weight(row),
            Self::Tokens => row.weights.len() as f64,
        }
    }
}

impl InternalizeAggregation {
    /// What `row` weighs in a train batch of `rows` rows.
    fn row_weight(self, row: &TrainRow, rows: usize, counts: &PlanCounts) -> f64 {
        let shape = row.shape;
        let per_trajectory = |count: usize| count as f64 / shape.trajectories as f64;
        match self {
            Self::Trajectory if shape.trajectories > 0 => per_trajectory(shape.rows) / rows as f64,
            Self::Rows if shape.trajectories > 0 => {
                per_trajectory(shape.internalized) / counts.internalized as f64
            }
            // Rows queued by a release that did not record their batch's shape have only this reading.
            Self::Trajectory | Self::Rows | Self::Batch => 1.0 / counts.trajectories as f64,
        }
    }
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
        if row.kind == RowKind::Internalize {
            counts.internalized += 1;
        } else {
            counts.weight += row_weight(row);
        }
    }
    counts.tokens = token_counts(rows);
    counts.trajectories = trajectories.len();
    Ok(counts)
}
