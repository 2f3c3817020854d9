//! What training reports.

use serde::{Deserialize, Serialize};

/// The kinds of token loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LossKind {
    /// Full-vocabulary `KL(student || teacher)`.
    ReverseKl,
    /// `KL(student || teacher)` over the teacher's top-k plus a tail.
    ReverseKlTopK,
    /// Policy gradient on the sampled token.
    PolicyGradient,
    /// `KL(snapshot || student)`.
    ForwardKl,
    /// Negative log-likelihood.
    Nll,
}

/// One row's share of the batch loss.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RowReport {
    /// The row's kind of loss.
    pub kind: LossKind,
    /// Sum over tokens of coefficient times token loss.
    pub weighted_loss: f64,
    /// Sum over tokens of the token loss.
    pub token_loss: f64,
    /// Tokens with a coefficient other than zero.
    pub tokens: usize,
}

/// Totals of the rows of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct KindTotals {
    /// The kind.
    pub kind: LossKind,
    /// Rows of this kind.
    pub rows: usize,
    /// Tokens with a coefficient other than zero.
    pub tokens: usize,
    /// Sum over tokens of coefficient times token loss.
    pub weighted_loss: f64,
    /// Sum over tokens of the token loss.
    pub token_loss: f64,
}

/// What one call of [`accumulate`](super::Trainer::accumulate) computed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LossReport {
    /// Per row, in the order given.
    pub rows: Vec<RowReport>,
    /// Per kind that occurred, in the kinds' order.
    pub kinds: Vec<KindTotals>,
    /// The loss: the sum over all tokens of coefficient times token loss.
    pub loss: f64,
    /// Tokens that went through the model.
    pub tokens: usize,
    /// Tokens with a coefficient other than zero.
    pub loss_tokens: usize,
}

impl LossReport {
    /// Sums the rows up, in order.
    pub(super) fn of(rows: Vec<RowReport>, tokens: usize) -> Self {
        let mut kinds: Vec<KindTotals> = Vec::new();
        for row in &rows {
            let at = match kinds.binary_search_by_key(&row.kind, |totals| totals.kind) {
                Ok(at) => at,
                Err(at) => {
                    let kind = row.kind;
                    let empty = KindTotals {
                        kind,
                        rows: 0,
                        tokens: 0,
                        weighted_loss: 0.0,
                        token_loss: 0.0,
                    };
                    kinds.insert(at, empty);
                    at
                }
            };
            let totals = &mut kinds[at];
            totals.rows += 1;
            totals.tokens += row.tokens;
            totals.weighted_loss += row.weighted_loss;
            totals.token_loss += row.token_loss;
        }
        let loss = rows.iter().map(|row| row.weighted_loss).sum();
        let loss_tokens = rows.iter().map(|row| row.tokens).sum();
        Self { rows, kinds, loss, tokens, loss_tokens }
    }
}

/// What one optimizer step did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepReport {
    /// Global norm of the gradient before clipping; not finite when the step was skipped for that reason.
    pub grad_norm: f64,
    /// Whether the gradient was scaled down to the clip norm.
    pub clipped: bool,
    /// Whether the loss or the gradient was not finite: then nothing was updated and the gradient was dropped.
    pub skipped_non_finite: bool,
    /// Optimizer steps taken so far.
    pub step: u64,
}
