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

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{InputError, OpdError};
use crate::parameter::{count, positive, require};
use buckets::TopToken;
use policy_gradient::k1_pg;
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Aggregation {
    /// The weight of all tokens of the train batch.
    #[default]
    TokenMean,
    /// Each row by its own weight, then by the number of rows (one of TCOD's settings).
    RowMean,
}

/// The token loss; the same for every method.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Loss {
    /// The token-level estimator.
    pub estimator: Estimator,
    /// Factor on the token estimator (the advantage's scale in k1_pg).
    pub kl_coef: f64,
    /// PPO clip range of k1_pg: the ratio stays within 1 minus and 1 plus this.
    pub clip: f64,
    /// Dual clip of k1_pg: bound on the loss of a negative advantage.
    pub dual_clip: f64,
    /// Guards the denominators.
    pub epsilon: f64,
    /// What the whole train batch is divided by.
    pub aggregation: Aggregation,
    /// k of rkl_topk.
    pub top_k: usize,
}

impl Default for Loss {
    fn default() -> Self {
        Self {
            estimator: Estimator::RklFull,
            kl_coef: 1.0,
            clip: 0.2,
            dual_clip: 3.0,
            epsilon: 1e-6,
            aggregation: Aggregation::TokenMean,
            top_k: 64,
        }
    }
}

impl Loss {
    /// Refuses constants with which the loss would mean nothing.
    pub fn check(&self) -> Result<(), OpdError> {
        positive("loss.kl_coef", self.kl_coef, 1e6)?;
        require("loss.clip", self.clip, self.clip > 0.0 && self.clip < 1.0, || {
            "above 0 and below 1".to_owned()
        })?;
        require(
            "loss.dual_clip",
            self.dual_clip,
            self.dual_clip > 1.0 && self.dual_clip <= 1e6,
            || "above 1 and at most 1000000".to_owned(),
        )?;
        positive("loss.epsilon", self.epsilon, 1.0)?;
        count("loss.top_k", self.top_k as u64, 1..=100_000)
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
    loss: &Loss,
    student_logits: &[f32],
    token: u32,
    teacher: TeacherSignal<'_>,
) -> Result<TokenLoss, InputError> {
    match (loss.estimator, teacher) {
        (Estimator::RklFull, TeacherSignal::Logits(teacher_logits)) => {
            Ok(rkl_full(student_logits, teacher_logits)?.scaled(loss.kl_coef))
        }
        (Estimator::RklTopk, TeacherSignal::Top(top)) => {
            Ok(rkl_topk(student_logits, top)?.scaled(loss.kl_coef))
        }
        (Estimator::K1Pg, TeacherSignal::Sampled { teacher, rollout }) => {
            k1_pg(student_logits, token, teacher, rollout, loss)
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
