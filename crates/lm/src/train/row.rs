//! What a training row is, and the checks it passes before any work is done.

use super::TrainError;
use super::report::LossKind;
use super::weights::Values;

/// One prompt and response with a loss on the response's tokens.
#[derive(Debug, Clone, PartialEq)]
pub struct TrainRow {
    /// Prompt and response as the engine produced them.
    pub tokens: Vec<u32>,
    /// Index of the response's first token; at least 1.
    pub response_start: usize,
    /// Per response token, its final coefficient in the batch loss. Tokens with coefficient 0 are not computed.
    pub weights: Vec<f32>,
    /// The loss of this row's tokens.
    pub loss: RowLoss,
}

/// The token losses, each with what it needs from outside.
#[derive(Debug, Clone, PartialEq)]
pub enum RowLoss {
    /// `KL(student || teacher)` over the whole vocabulary.
    ReverseKl {
        /// The teacher's last hidden states (after its final norm) that predict the response tokens,
        /// response length x teacher hidden size.
        teacher_hidden: Vec<f32>,
    },
    /// `KL(student || teacher)` over the teacher's top-k tokens plus one bucket for all others.
    ReverseKlTopK {
        /// Tokens per position.
        k: usize,
        /// The teacher's tokens, response length x k, distinct within a position.
        ids: Vec<u32>,
        /// Their log-probabilities, response length x k.
        logps: Vec<f32>,
        /// The log-probability of the tail bucket, one per response token.
        tail_logps: Vec<f32>,
    },
    /// Policy gradient on the sampled token with the advantage `kl_coef * (log T - log mu)`, PPO clip and dual clip.
    PolicyGradient {
        /// The teacher's log-probability of each response token.
        teacher_logp: Vec<f32>,
        /// The rollout engine's log-probability of each response token (`mu`).
        rollout_logp: Vec<f32>,
        /// Factor of the advantage.
        kl_coef: f32,
        /// The ratio is clipped to `1 - clip ..= 1 + clip`.
        clip: f32,
        /// Bound of the loss for negative advantages, as a multiple of `-advantage`.
        dual_clip: f32,
    },
    /// `KL(snapshot || student)` over the whole vocabulary, the snapshot frozen (guidance internalization).
    ForwardKl {
        /// The snapshot's last hidden states (after its final norm) under the hinted context,
        /// response length x snapshot hidden size.
        snapshot_hidden: Vec<f32>,
    },
    /// Negative log-likelihood of the response tokens.
    Nll,
}

impl RowLoss {
    /// Which kind of loss this is.
    pub fn kind(&self) -> LossKind {
        match self {
            Self::ReverseKl { .. } => LossKind::ReverseKl,
            Self::ReverseKlTopK { .. } => LossKind::ReverseKlTopK,
            Self::PolicyGradient { .. } => LossKind::PolicyGradient,
            Self::ForwardKl { .. } => LossKind::ForwardKl,
            Self::Nll => LossKind::Nll,
        }
    }
}

/// A prompt and response whose last hidden states are asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PromptedRow<'a> {
    /// Prompt and response.
    pub tokens: &'a [u32],
    /// Index of the response's first token; at least 1.
    pub response_start: usize,
}

/// An output head outside the trained model.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Head<'a> {
    /// Vocabulary x hidden values, row-major; rows beyond the real tokens are never read.
    pub weight: Values<'a>,
    /// Width of the hidden states this head reads.
    pub hidden: usize,
}

/// The output heads that stored hidden states go through.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Heads<'a> {
    /// The teacher's, for [`RowLoss::ReverseKl`].
    pub teacher: Option<Head<'a>>,
    /// The frozen snapshot's, for [`RowLoss::ForwardKl`].
    pub snapshot: Option<Head<'a>>,
}

/// What rows are checked against.
pub(super) struct RowLimits {
    /// Tokens below this id are embedded.
    pub(super) vocab_size: usize,
    /// Tokens below this id take part in the softmax.
    pub(super) real_vocab: usize,
    /// Longest row.
    pub(super) max_position: usize,
}

impl Head<'_> {
    fn check(&self, which: &'static str, real_vocab: usize) -> Result<(), TrainError> {
        let fail = |reason: String| Err(TrainError::Head { which, reason });
        if self.hidden == 0 || !self.weight.len().is_multiple_of(self.hidden) {
            return fail(format!(
                "{} values are not a whole number of rows of {}",
                self.weight.len(),
                self.hidden
            ));
        }
        let rows = self.weight.len() / self.hidden;
        if rows < real_vocab {
            return fail(format!(
                "{rows} rows, but the student has {real_vocab} real tokens; \
                 set `real_vocab` to the number of tokens both models share"
            ));
        }
        Ok(())
    }
}

/// Checks a prompt and response for the forward pass.
pub(super) fn check_tokens(
    row: usize,
    tokens: &[u32],
    response_start: usize,
    limits: &RowLimits,
) -> Result<(), TrainError> {
    let fail = |reason: String| Err(TrainError::Row { row, reason });
    if response_start == 0 || response_start > tokens.len() {
        return fail(format!(
            "response starts at {response_start} of {} tokens; it needs at least one token before it",
            tokens.len()
        ));
    }
    if tokens.len() > limits.max_position {
        return fail(format!(
            "{} tokens, more than the model's {} positions",
            tokens.len(),
            limits.max_position
        ));
    }
    match tokens.iter().position(|&token| token as usize >= limits.vocab_size) {
        Some(at) => fail(format!(
            "token {} at index {at} is outside the vocabulary of {}",
            tokens[at], limits.vocab_size
        )),
        None => Ok(()),
    }
}

/// Checks a training row and everything its loss needs.
pub(super) fn check_row(
    row: usize,
    data: &TrainRow,
    heads: &Heads<'_>,
    limits: &RowLimits,
) -> Result<(), TrainError> {
    check_tokens(row, &data.tokens, data.response_start, limits)?;
    let fail = |reason: String| Err(TrainError::Row { row, reason });
    let count = data.tokens.len() - data.response_start;
    let sized = |what: &str, found: usize, expected: usize| {
        if found == expected {
            Ok(())
        } else {
            fail(format!("{what} holds {found} values, expected {expected}"))
        }
    };
    sized("`weights`", data.weights.len(), count)?;
    if let Some(at) = data.weights.iter().position(|weight| !weight.is_finite()) {
        return fail(format!("weight {at} is {}", data.weights[at]));
    }
    let head = |which: &'static str, head: Option<Head<'_>>| match head {
        Some(head) => head.check(which, limits.real_vocab).map(|()| head.hidden),
        None => Err(TrainError::Head {
            which,
            reason: format!("row {row} needs it, but it was not given"),
        }),
    };
    let response = &data.tokens[data.response_start..];
    let real = |what: &str, ids: &[u32]| match ids
        .iter()
        .find(|&&token| token as usize >= limits.real_vocab)
    {
        Some(token) => {
            fail(format!("{what} {token} is outside the {} real tokens", limits.real_vocab))
        }
        None => Ok(()),
    };
    match &data.loss {
        RowLoss::ReverseKl { teacher_hidden } => {
            let width = head("teacher", heads.teacher)?;
            sized("`teacher_hidden`", teacher_hidden.len(), count * width)
        }
        RowLoss::ForwardKl { snapshot_hidden } => {
            let width = head("snapshot", heads.snapshot)?;
            sized("`snapshot_hidden`", snapshot_hidden.len(), count * width)
        }
        RowLoss::ReverseKlTopK { k, ids, logps, tail_logps } => {
            sized("`ids`", ids.len(), count * k)?;
            sized("`logps`", logps.len(), count * k)?;
            sized("`tail_logps`", tail_logps.len(), count)?;
            real("top-k token", ids)?;
            for (at, set) in ids.chunks(*k.max(&1)).enumerate() {
                let mut sorted = set.to_vec();
                sorted.sort_unstable();
                if sorted.windows(2).any(|pair| pair[0] == pair[1]) {
                    return fail(format!("the top-k tokens of response position {at} repeat"));
                }
            }
            Ok(())
        }
        RowLoss::PolicyGradient { teacher_logp, rollout_logp, .. } => {
            sized("`teacher_logp`", teacher_logp.len(), count)?;
            sized("`rollout_logp`", rollout_logp.len(), count)?;
            real("response token", response)
        }
        RowLoss::Nll => real("response token", response),
    }
}
