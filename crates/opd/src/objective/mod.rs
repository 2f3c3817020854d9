//! Losses with their gradients with respect to the student's logits, on plain slices.
//!
//! This is the reference: everything is computed in `f64`, one token at a time, with whole
//! distributions in memory. Fast kernels are checked against it. A loss is a fixed linear combination
//! of token losses (see [`plan`]), so how rows are split into micro-batches cannot change it.

pub mod buckets;
pub mod distribution;
pub mod forward_kl;
pub mod plan;
pub mod policy_gradient;
pub mod reverse_kl;

use serde::{Deserialize, Serialize};

use crate::error::{InputError, OpdError};
use buckets::TopToken;
use policy_gradient::{ClipParams, k1_pg};
use reverse_kl::{rkl_full, rkl_topk};

/// A token's loss and its gradient with respect to the student's logits at that position.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLoss {
    /// The loss.
    pub value: f64,
    /// Its derivative by each logit.
    pub gradient: Vec<f64>,
}

impl TokenLoss {
    fn scaled(mut self, factor: f64) -> Self {
        self.value *= factor;
        self.gradient.iter_mut().for_each(|g| *g *= factor);
        self
    }
}

/// The token estimator of on-policy distillation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Estimator {
    /// `KL(student || teacher)` over the full vocabulary.
    #[default]
    RklFull,
    /// The same over the teacher's top k tokens and one bucket for the rest.
    RklTopk,
    /// Policy gradient on the sampled token, with the clipped ratio of PPO.
    K1Pg,
}

/// What the whole train batch is divided by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregation {
    /// The weight of all tokens of the train batch.
    #[default]
    TokenMean,
    /// Each row by its own weight, then by the number of rows (one of TCOD's settings).
    RowMean,
}

/// The loss of a run; the same for every method.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LossParams {
    /// The token estimator.
    pub estimator: Estimator,
    /// Factor on the token estimator.
    pub kl_coef: f64,
    /// Half-width of the interval the ratio is clipped to.
    pub clip_range: f64,
    /// Bound on the loss of a negative advantage.
    pub dual_clip: f64,
    /// Guards the denominators.
    pub eps: f64,
    /// What sums are divided by.
    pub aggregation: Aggregation,
}

impl Default for LossParams {
    fn default() -> Self {
        Self {
            estimator: Estimator::RklFull,
            kl_coef: 1.0,
            clip_range: 0.2,
            dual_clip: 3.0,
            eps: 1e-6,
            aggregation: Aggregation::TokenMean,
        }
    }
}

impl LossParams {
    /// Refuses constants with which the loss would mean nothing.
    pub fn check(&self) -> Result<(), OpdError> {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        for (key, value, good, expected) in [
            ("loss.kl_coef", self.kl_coef, positive(self.kl_coef), "must be positive"),
            (
                "loss.clip_range",
                self.clip_range,
                positive(self.clip_range) && self.clip_range < 1.0,
                "must be between 0 and 1",
            ),
            (
                "loss.dual_clip",
                self.dual_clip,
                self.dual_clip.is_finite() && self.dual_clip > 1.0,
                "must be above 1",
            ),
            ("loss.eps", self.eps, positive(self.eps), "must be positive"),
        ] {
            if !good {
                return Err(OpdError::Parameter { key, value: value.to_string(), expected });
            }
        }
        Ok(())
    }
}

/// What the teacher said about one position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TeacherSignal<'a> {
    /// Its logits.
    Logits(&'a [f32]),
    /// Its most likely tokens.
    Top(&'a [TopToken]),
    /// Its log-probability of the sampled token, and the rollout's; `None`: not measured.
    Sampled {
        /// `log T(y)`.
        teacher: Option<f32>,
        /// `log mu(y)`, by the snapshot that sampled the token.
        rollout: Option<f32>,
    },
}

/// The token loss `l` of on-policy distillation by the run's estimator (eq. agent-opd).
pub fn opd_token_loss(
    params: &LossParams,
    student_logits: &[f32],
    token: u32,
    teacher: TeacherSignal<'_>,
) -> Result<TokenLoss, InputError> {
    match (params.estimator, teacher) {
        (Estimator::RklFull, TeacherSignal::Logits(teacher_logits)) => {
            Ok(rkl_full(student_logits, teacher_logits)?.scaled(params.kl_coef))
        }
        (Estimator::RklTopk, TeacherSignal::Top(top)) => {
            Ok(rkl_topk(student_logits, top)?.scaled(params.kl_coef))
        }
        (Estimator::K1Pg, TeacherSignal::Sampled { teacher, rollout }) => {
            let clip = ClipParams {
                kl_coef: params.kl_coef,
                clip_range: params.clip_range,
                dual_clip: params.dual_clip,
            };
            k1_pg(student_logits, token, teacher, rollout, &clip)
        }
        (Estimator::RklFull, _) => {
            Err(InputError::Missing { what: "the teacher's distribution", position: 0 })
        }
        (Estimator::RklTopk, _) => {
            Err(InputError::Missing { what: "the teacher's top tokens", position: 0 })
        }
        (Estimator::K1Pg, _) => {
            Err(InputError::Missing { what: "the sampled token's log-probabilities", position: 0 })
        }
    }
}
